//! Shape one, as shipped: the agent has no network, and the gate's volume is all it gets.

use std::io::{BufRead, BufReader};
use std::time::Duration;

use tests::stand_in::model::DONE;
use tests::wait;

use super::lab::{MODEL, Project};

const COUNT: &str = "https://api.anthropic.com/v1/messages/count_tokens";
const COUNTED: &str = "\"input_tokens\":5";

#[test]
fn an_agent_without_a_network_works_by_the_gate_alone() {
    let project = Project::new(&["compose.yaml"]);
    project.up();

    // As the entrypoint starts it: told of the gate, and carrying nothing.
    let curl = ["curl", "--silent", "--show-error", "--data", "{}", COUNT];
    let told = project.agent(&curl).ok();
    assert!(told.stdout.contains(COUNTED), "{}", told.shown());
    // Told of nothing but whom to trust: names and addresses lead to the gate by themselves.
    let untold = project.agent(
        &[
            "env",
            "-i",
            "PATH=/usr/bin:/bin",
            "CURL_CA_BUNDLE=/portcullis/bundle.pem",
        ]
        .iter()
        .chain(&curl)
        .copied()
        .collect::<Vec<_>>(),
    );
    assert!(
        untold.clone().ok().stdout.contains(COUNTED),
        "{}",
        untold.shown()
    );
    // What is not listed does not exist, and what is listed is judged.
    let elsewhere = project.agent(&[
        "curl",
        "--silent",
        "--show-error",
        "https://elsewhere.example/",
    ]);
    assert!(
        elsewhere.output().contains("destination_not_listed"),
        "{}",
        elsewhere.shown()
    );
    let nowhere = project.agent(&[
        "env",
        "-i",
        "PATH=/usr/bin:/bin",
        "curl",
        "https://elsewhere.example/",
    ]);
    let nowhere = nowhere.refused();
    assert!(
        nowhere.stderr.contains("resolve host"),
        "{}",
        nowhere.shown()
    );

    programs_of_a_person_who_execs(&project);
    claude_code_completes_a_prompt(&project);
    the_operator_sees_it(&project);
    a_signal_reloads(&project);
    a_gate_that_would_not_pass_everything_is_unhealthy(&project);
    a_proof_is_green_inside_and_red_outside(&project);

    let gate = project.container("gate");
    let everything = project.docker(&["logs", &gate]).run();
    for line in everything.stderr.lines() {
        let object: serde_json::Value =
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert!(object["level"].is_string(), "{line}");
    }
    let secret = &project.lab.credential;
    secret.absent_from("the gate's log", everything.output());
    let agent = project.exec(
        "agent",
        &[
            "sh",
            "-c",
            "env; cat /proc/*/environ; cat /portcullis/*.pem /portcullis/env*",
        ],
    );
    secret.absent_from("the agent's container", agent.run().output());
}

/// A shell in the running container reads `env.sh`; `docker exec` takes the other form.
fn programs_of_a_person_who_execs(project: &Project) {
    let script = format!(". /portcullis/env.sh; curl --silent --data '{{}}' {COUNT}");
    let shell = project.exec("agent", &["sh", "-c", &script]).run().ok();
    assert!(shell.stdout.contains(COUNTED), "{}", shell.shown());
    // Node's fetch knows no proxy; it trusts whom a variable names.
    let script = format!(
        "fetch('{COUNT}', {{method: 'POST', body: '{{}}'}}).then(r => r.text()).then(console.log)"
    );
    let node = project.docker(&[
        "exec",
        "--env",
        "NODE_EXTRA_CA_CERTS=/portcullis/bundle.pem",
    ]);
    let node = node
        .arg(project.container("agent"))
        .args(["node", "-e", &script]);
    let node = node.run().ok();
    assert!(node.stdout.contains(COUNTED), "{}", node.shown());
    // python's urllib, as env.sh has it.
    let script = format!(
        ". /portcullis/env.sh; python3 -c \"import urllib.request as u; \
         print(u.urlopen(u.Request('{COUNT}', b'{{}}')).read())\""
    );
    let python = project.exec("agent", &["sh", "-c", &script]).run().ok();
    assert!(python.stdout.contains(COUNTED), "{}", python.shown());
}

/// From npm, in the container, with nothing but what the entrypoint gives it.
fn claude_code_completes_a_prompt(project: &Project) {
    let claude = tests::matrix::directory().join("bin/claude");
    let claude = claude.canonicalize().unwrap();
    let volume = format!("{}:/usr/local/bin/claude:ro", claude.display());
    let options = ["--workdir", "/home/agent", "--volume", &volume];
    let prompt = "Use the tool once, then stop.";
    let words = ["claude", "--dangerously-skip-permissions", "-p", prompt];
    let answered = project.agent_with(&options, &words);
    assert!(answered.stdout.contains(DONE), "{}", answered.shown());
}

fn the_operator_sees_it(project: &Project) {
    assert_eq!(
        project.inspect("gate", "{{.State.Health.Status}}"),
        "healthy"
    );
    let query = project.exec("gate", &["portcullis", "audit", "query", "--json"]);
    let log = query.run().ok().stdout;
    let records = log
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let ours: Vec<_> = records
        .filter(|it| it["kind"] == "request" && it["authority"] == format!("{MODEL}:443"))
        .collect();
    assert!(!ours.is_empty(), "{log}");
    for record in ours {
        assert_eq!(
            (&record["peer_uid"], &record["agent"]),
            (&1000.into(), &"agent".into())
        );
        assert_eq!(record["credential"], "anthropic", "{record}");
    }
    // Followed while it happens.
    let mut tail = project
        .exec("gate", &["portcullis", "audit", "tail", "-f"])
        .spawn();
    let lines = BufReader::new(tail.stdout.take().unwrap()).lines();
    let (told, heard) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            if told.send(line).is_err() {
                break;
            }
        }
    });
    let mut number = 0;
    wait::until_within(
        Duration::from_secs(60),
        "a line of the log while it is written",
        || {
            number += 1;
            let path = format!("https://{MODEL}/v1/followed-{number}");
            let script = format!(". /portcullis/env.sh; curl --silent {path}");
            project.exec("agent", &["sh", "-c", &script]).run();
            heard
                .try_iter()
                .any(|line| line.contains("/v1/followed-"))
                .then_some(())
        },
    );
    // The test's own child; gone already is as good.
    let _gone = tail.kill();
    let _status = tail.wait();
}

fn a_signal_reloads(project: &Project) {
    let curl = ["curl", "--silent", "--show-error", "--data", "{}", COUNT];
    project.write_policy(
        "[[service]]\nid = \"closed\"\nkind = \"http\"\nhost = \"api.anthropic.com\"\ndeny = [\"* /**\"]\n",
    );
    let gate = project.container("gate");
    project
        .docker(&["kill", "--signal", "HUP", &gate])
        .run()
        .ok();
    wait::until("the new policy", || {
        let script = format!(". /portcullis/env.sh; {}", curl.join(" "));
        let asked = project.exec("agent", &["sh", "-c", &script]).run();
        asked.stdout.contains("closed").then_some(())
    });
    project.write_policy("");
    project
        .docker(&["kill", "--signal", "HUP", &gate])
        .run()
        .ok();
    wait::until("the former policy", || {
        let asked = project.agent(&curl);
        asked.stdout.contains(COUNTED).then_some(())
    });
}

/// The engine knows it by the check of the shipped file, and whoever asks it, why.
fn a_gate_that_would_not_pass_everything_is_unhealthy(project: &Project) {
    let gate = project.container("gate");
    let hang_up = || {
        let kill = ["kill", "--signal", "HUP", &gate];
        project.docker(&kill).run().ok();
    };
    assert_eq!(project.until_health("gate", "healthy"), "ready");
    project.write_policy("[[service]]\nkind = \"nonsense\"\n");
    hang_up();
    let said = project.until_health("gate", "unhealthy");
    assert!(
        said.starts_with("not ready: policy default: its file is broken since 2"),
        "{said}"
    );
    // It serves by the former one meanwhile.
    let script = format!(". /portcullis/env.sh; curl --silent --data '{{}}' {COUNT}");
    let served = project.exec("agent", &["sh", "-c", &script]).run().ok();
    assert!(served.stdout.contains(COUNTED), "{}", served.shown());
    project.write_policy("");
    hang_up();
    assert_eq!(project.until_health("gate", "healthy"), "ready");
}

fn a_proof_is_green_inside_and_red_outside(project: &Project) {
    let prove = ["/portcullis/portcullis", "prove"];
    let green = project.exec("agent", &prove).run();
    assert_eq!(green.code(), 0, "{}", green.shown());
    // The same container, but for the wall: on the engine's bridge.
    let volume = format!("{}:/portcullis:ro", project.volume("portcullis"));
    let red = project.docker(&["run", "--rm", "--user", "1000:1000", "--cap-drop", "ALL"]);
    let red = red.args([
        "--security-opt",
        "no-new-privileges",
        "--volume",
        &volume,
        "agent",
    ]);
    let red = red.args(prove).run();
    assert_eq!(red.code(), 1, "{}", red.shown());
}
