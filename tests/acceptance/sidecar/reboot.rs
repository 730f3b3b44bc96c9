//! The machine goes down and comes up again: the engine is stopped and started, and whatever is to run again starts by itself,
//! in whichever order the engine likes. Nothing of the agent's leaves at any moment of that.

use std::time::Duration;

use tests::command::Program;
use tests::{host, wait};

use super::hostile;
use super::lab::{Lab, Project};
use super::shared::served;

/// The shipped shape, whose agent comes back by itself too and wants out from its first moment on.
const FILES: &[&str] = &["compose.shared.yaml", "restless.yaml"];
const RESTLESS: &str = "services: {agent: {restart: unless-stopped, command: [python3, /hostile.py], \
                        volumes: [./hostile.py:/hostile.py:ro]}}\n";

/// So many reboots; more than one also by hand in every order, and beside agents whom no boundary guards.
pub(crate) fn reboots(rounds: usize) {
    let project = Project::of(Lab::own(), FILES);
    let script = project.path("hostile.py");
    host::file(&script, &hostile::program(), 0, 0o644);
    host::file(&project.path("restless.yaml"), RESTLESS, 0, 0o644);
    hostile::is_heard_where_nothing_stops_it(&project, &script);
    project.up();
    served(&project);
    if rounds > 1 {
        without_the_boundary_it_is_heard_again_after_a_reboot(&project);
        project.compose(&["up", "--detach"]).run().ok();
        served(&project);
    }
    let quiet = project.lab.packets_to_peer();
    for _ in 0..rounds {
        reboot(&project);
        // What the engine made of it, it has made by now: who joins a namespace that is not there yet is not tried again.
        wait::until_within(Duration::from_secs(90), "the boundary stands", || {
            (project.inspect("boundary", "{{.State.Health.Status}}") == "healthy").then_some(())
        });
        assert_eq!(project.lab.packets_to_peer(), quiet);
        // The remedy of the documentation.
        project.compose(&["up", "--detach"]).run().ok();
        served(&project);
        assert_eq!(project.lab.packets_to_peer(), quiet);
    }
    if rounds > 1 {
        every_order_by_hand(&project, quiet);
    }
    // It was the boundary that kept it in, to the end: without its rules the same agent is heard.
    project.compose(&["up", "--detach"]).run().ok();
    served(&project);
    let pid = project.inspect("boundary", "{{.State.Pid}}");
    project
        .docker(&["pause", &project.container("boundary")])
        .run()
        .ok();
    let delete = ["nft", "delete", "table", "inet", "portcullis"];
    let net = format!("--net=/proc/{pid}/ns/net");
    Program::new("nsenter").arg(&net).args(delete).run().ok();
    wait::until_true("the agent, once nothing stops it", || {
        project.lab.packets_to_peer() > quiet
    });
}

fn reboot(project: &Project) {
    project.lab.engine.stop();
    project.lab.engine.start_again();
}

/// An agent that joins a namespace which nobody guards: heard before the reboot and after it. With the entrypoint in front of
/// the same program it never starts.
fn without_the_boundary_it_is_heard_again_after_a_reboot(project: &Project) {
    // A container that somebody has stopped stays down.
    project
        .docker(&["stop", "--time=0", &project.container("agent")])
        .run()
        .ok();
    let always = [
        "run",
        "--detach",
        "--restart=unless-stopped",
        "--user=1000:1000",
    ];
    let script = format!(
        "--volume={}:/hostile.py:ro",
        project.path("hostile.py").display()
    );
    let names = ["owner", "joined", "guarded"].map(|name| project.container(name));
    let named = names.each_ref().map(|name| format!("--name={name}"));
    let network = format!("--network=container:{}", names[0]);
    let share = project.share();
    project
        .docker(&always)
        .args([&named[0], "agent", "sleep", "infinity"])
        .run()
        .ok();
    let quiet = project.lab.packets_to_peer();
    let guarded = [
        named[2].as_str(),
        network.as_str(),
        "--cap-drop=ALL",
        &script,
        &share,
        "--entrypoint=/portcullis/portcullis-relay",
        "agent",
        "sidecar",
        "--boundary",
        "/run/portcullis/boundary/status.json",
        "--",
        "python3",
        "/hostile.py",
    ];
    project.docker(&always).args(guarded).run().ok();
    wait::until_true("the entrypoint has refused more than once", || {
        let said = project.docker(&["logs", &names[2]]).run();
        said.stderr.matches("the boundary is not proven").count() > 1
    });
    assert_eq!(project.lab.packets_to_peer(), quiet);
    let joined = [
        &named[1],
        &network,
        &script,
        "agent",
        "python3",
        "/hostile.py",
    ];
    project.docker(&always).args(joined).run().ok();
    let heard = || project.lab.packets_to_peer();
    wait::until_true("it is heard before", || heard() > quiet);
    reboot(project);
    let before = heard();
    wait::until_true("it is heard after", || {
        // The owner may have come too late for it.
        project.docker(&["start", &names[1]]).run();
        heard() > before
    });
    project.docker(&["rm", "--force"]).args(names).run().ok();
}

/// After a reboot that nothing survives, the three are started in each order, the agent again when it could not.
fn every_order_by_hand(project: &Project, quiet: u64) {
    let all = ["agent", "gate", "boundary"].map(|service| project.container(service));
    project
        .docker(&["update", "--restart=no"])
        .args(&all)
        .run()
        .ok();
    reboot(project);
    let running = project.docker(&["ps", "--quiet"]).run().ok();
    assert_eq!(running.stdout, "", "{}", running.shown());
    for order in [
        [0, 1, 2],
        [0, 2, 1],
        [1, 0, 2],
        [1, 2, 0],
        [2, 0, 1],
        [2, 1, 0],
    ] {
        let names = order.map(|at| all[at].as_str());
        project.docker(&["start"]).args(names).run();
        project.docker(&["start"]).args(names).run();
        // Its main program wants out; so does one beside it, if it runs.
        let beside = [
            "exec",
            "--detach",
            &all[0],
            "timeout",
            "3",
            "python3",
            "/hostile.py",
        ];
        project.docker(&beside).run();
        project
            .docker(&["kill"])
            .args(order.map(|at| all[at].as_str()))
            .run();
        assert_eq!(project.lab.packets_to_peer(), quiet, "{names:?}");
    }
}
