//! Shape two, as shipped: a third container owns the network namespace and guards it. Whoever is restarted, killed or paused,
//! in whatever order, no packet of the agent's reaches anybody.

use std::time::Duration;

use tests::command::Program;
use tests::wait;

use super::hostile;
use super::lab::Project;

const COUNT: &str = "https://api.anthropic.com/v1/messages/count_tokens";
const COUNTED: &str = "\"input_tokens\":5";

#[test]
fn no_order_of_restarts_opens_anything() {
    let project = Project::new(&["compose.shared.yaml"]);
    let script = project.path("hostile.py");
    tests::host::file(&script, &hostile::program(), 0, 0o644);

    hostile::is_heard_where_nothing_stops_it(&project, &script);

    project.up();
    served(&project);
    let quiet = project.lab.packets_to_peer();
    attack(&project);

    let all = ["agent", "gate", "boundary"];
    let orders = [
        [0, 1, 2],
        [0, 2, 1],
        [1, 0, 2],
        [1, 2, 0],
        [2, 0, 1],
        [2, 1, 0],
    ];
    for verbs in [
        &["restart --time=0"][..],
        &["kill", "start"],
        &["pause", "unpause"],
    ] {
        for order in orders {
            for verb in verbs {
                for service in order.map(|at| all[at]) {
                    // An agent whose namespace is gone does not start; that is an answer too.
                    let words: Vec<&str> = verb.split(' ').collect();
                    let container = project.container(service);
                    project.docker(&words).arg(&container).run();
                    if service == "agent" {
                        attack(&project);
                    }
                }
            }
            let heard = project.lab.packets_to_peer();
            assert_eq!(
                heard,
                quiet,
                "{verbs:?} in the order {:?}",
                order.map(|at| all[at])
            );
        }
    }

    // And it can be put right again, in the order of the file.
    for service in ["boundary", "gate", "agent"] {
        let container = project.container(service);
        project
            .docker(&["restart", "--time=0", &container])
            .run()
            .ok();
        if service != "agent" {
            project.until_healthy(service);
        }
    }
    served(&project);
    assert_eq!(project.lab.packets_to_peer(), quiet);
    without_its_rules_the_proof_is_red(&project);
}

/// The hostile program in the agent's container, if that runs.
fn attack(project: &Project) {
    let encoded = hostile::program();
    let container = project.container("agent");
    let exec = [
        "exec", "--detach", &container, "timeout", "5", "python3", "-c", &encoded,
    ];
    project.docker(&exec).run();
}

/// Programs that are told of nothing but whom to trust are led to the gate.
pub(super) fn served(project: &Project) {
    let words = [
        "env",
        "-i",
        "PATH=/usr/bin:/bin",
        "CURL_CA_BUNDLE=/portcullis/bundle.pem",
    ];
    let curl = [
        "curl",
        "--silent",
        "--show-error",
        "--max-time",
        "20",
        "--data",
        "{}",
        COUNT,
    ];
    wait::until_within(Duration::from_secs(60), "an agent that is served", || {
        let asked = project.exec("agent", &words).args(curl).run();
        asked.stdout.contains(COUNTED).then_some(())
    });
}

fn without_its_rules_the_proof_is_red(project: &Project) {
    let prove = || {
        project
            .exec("agent", &["/portcullis/portcullis", "prove"])
            .run()
    };
    // Without an outside peer nobody can say that a connection that was led to the gate went nowhere else.
    let before = prove();
    assert_eq!(before.code(), 2, "{}", before.shown());
    assert!(before.output().contains(" 0 broken"), "{}", before.shown());
    // Nobody puts them back.
    let boundary = project.container("boundary");
    let pid = project.inspect("boundary", "{{.State.Pid}}");
    project.docker(&["pause", &boundary]).run().ok();
    let net = format!("--net=/proc/{pid}/ns/net");
    let nft = |words: &[&str]| {
        Program::new("nsenter")
            .arg(&net)
            .arg("nft")
            .args(words)
            .run()
    };
    nft(&["delete", "table", "inet", "portcullis"]).ok();
    let red = prove();
    assert_eq!(red.code(), 1, "{}", red.shown());
    // Nor does an agent start there any more, once the proof is old.
    wait::until_within(Duration::from_secs(30), "an agent that is refused", || {
        let volume = format!("--volume={}:/portcullis:ro", project.volume("portcullis"));
        let status = format!(
            "--volume={}:/run/portcullis/boundary:ro",
            project.volume("boundary")
        );
        let network = format!("--network=container:{boundary}");
        let run = [
            "run",
            "--rm",
            "--user=1000:1000",
            "--cap-drop=ALL",
            &volume,
            &status,
            &network,
        ];
        let entry = [
            "--entrypoint=/portcullis/portcullis-relay",
            "agent",
            "sidecar",
            "--boundary",
        ];
        let run = project.docker(&run).args(entry);
        let refused = run
            .args(["/run/portcullis/boundary/status.json", "--check"])
            .run();
        (refused.code() == 125 && refused.stderr.contains("the boundary is not proven"))
            .then_some(())
    });
    // The gate is ill of it too, and says of what.
    let said = project.until_health("gate", "unhealthy");
    assert!(said.starts_with("not ready: boundary: "), "{said}");
    project.docker(&["unpause", &boundary]).run().ok();
    project.until_healthy("gate");
}
