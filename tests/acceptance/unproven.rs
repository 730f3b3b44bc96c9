//! Nothing of an agent starts while the boundary is not proven here and now: neither a run of the
//! orchestrator nor `exec`; both say why, and what to do, and go on once it is.

use std::path::PathBuf;

use serde_json::Value;
use tests::command::{Finished, Program};
use tests::host;
use tests::instance::Instance;
use tests::wait;

struct Site {
    instance: Instance,
    company: String,
    agent: String,
    policy: PathBuf,
    project: PathBuf,
}

impl Site {
    fn new() -> Self {
        let instance = Instance::up();
        let company = word(&instance.json(&["company", "create", "Acme"]), "id");
        let bundle = instance.path("srv/worker");
        host::directory(&bundle, 0, 0o755);
        let script = "#!/bin/bash\ncurl --silent --request PATCH \
                      \"$PAPERCLIP_API_URL/api/issues/$PAPERCLIP_TASK_ID\" --header 'content-type: application/json' \
                      --header \"X-Paperclip-Run-Id: $PAPERCLIP_RUN_ID\" --data '{\"status\":\"done\",\"comment\":\"ran\"}'\n";
        host::file(&bundle.join("agent.sh"), script, 0, 0o755);
        let bundle = bundle.display().to_string();
        let made = instance
            .portcullis()
            .args(["agent", "create", "worker", "--company", &company])
            .args(["--adapter", "process", "--bundle", &bundle, "--json", "--"])
            .args(["/bin/bash", "/opt/agent/agent.sh"])
            .run()
            .ok();
        let agent = word(&serde_json::from_str(&made.stdout).unwrap(), "id");
        let project = instance.path("srv/project");
        host::directory(&project, 0, 0o755);
        Self {
            company,
            agent,
            policy: instance.path("etc/portcullis/policies/default.toml"),
            project,
            instance,
        }
    }

    fn exec(&self) -> Finished {
        self.instance
            .portcullis()
            .in_directory(&self.project)
            .args(["exec", "--policy"])
            .arg(&self.policy)
            .args(["--", "/bin/sh", "-c", "echo started"])
            .run()
    }

    /// A ticket whose agent is to be woken.
    fn assigned(&self, title: &str) -> String {
        let made = ["ticket", "create", title, "--company", &self.company];
        let ticket = word(&self.instance.json(&made), "identifier");
        let words = ["ticket", "assign", &ticket, "--agent", &self.agent];
        self.instance.json(&words);
        ticket
    }

    fn runs(&self) -> usize {
        let listed = self.instance.json(&["run", "list"]);
        let list = listed.as_array().or_else(|| listed["runs"].as_array());
        list.unwrap().len()
    }

    fn done(&self, ticket: &str) {
        wait::until_within(wait::PATIENCE * 3, "the ticket is done", || {
            let shown = self.instance.json(&["ticket", "show", ticket]);
            (shown["status"] == "done").then_some(())
        });
    }

    /// The watcher, and who would start another.
    fn watchers(&self) -> Vec<u32> {
        let mut all = self.instance.processes("supervise boundary");
        all.extend(self.instance.processes("portcullis-boundary watch"));
        assert!(all.len() >= 2, "{all:?}");
        all
    }
}

/// Stopped when made, and goes on when dropped.
struct Stopped(Vec<u32>);

impl Stopped {
    fn new(pids: Vec<u32>) -> Self {
        signal("-STOP", &pids);
        Self(pids)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        signal("-CONT", &self.0);
    }
}

fn signal(name: &str, pids: &[u32]) {
    for pid in pids {
        Program::new("kill").args([name, &pid.to_string()]).run();
    }
}

fn word(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap().to_owned()
}

#[test]
fn no_run_and_no_exec_starts_without_a_fresh_proof() {
    let site = Site::new();
    let started = site.exec();
    assert!(started.stdout.contains("started"), "{}", started.shown());
    site.done(&site.assigned("Before"));
    let mut before = site.runs();
    assert_eq!(before, 1);

    for (way, reason) in [
        ("the watcher stops", "stale"),
        ("the table is removed", "the boundary was removed"),
    ] {
        let stopped = Stopped::new(site.watchers());
        if reason != "stale" {
            let removed = site.instance.portcullis().args(["boundary", "remove"]);
            removed.run().ok();
        }
        let refused = wait::until(way, || {
            let tried = site.exec();
            (tried.code() != 0).then_some(tried)
        });
        for part in ["boundary_not_proven", reason, "hint:"] {
            assert!(refused.stderr.contains(part), "{way}: {}", refused.shown());
        }
        assert!(!refused.stdout.contains("started"), "{}", refused.shown());
        let ticket = site.assigned(way);
        let why = wait::until(way, || {
            let why = site.instance.json(&["why", &ticket]).to_string();
            why.contains("not proven").then_some(why)
        });
        assert!(why.contains("gate_ready"), "{way}: {why}");
        assert_eq!(site.runs(), before, "{way}: a run started: {why}");

        // The control: the same ticket and the same command, once the watcher is back.
        drop(stopped);
        site.done(&ticket);
        before += 1;
        assert_eq!(site.runs(), before, "{way}");
        wait::until_true("exec starts again", || {
            site.exec().stdout.contains("started")
        });
    }
}
