//! Tickets, wakes and runs: one live run per ticket, an honest end, no second run too early.
//!
//! Real orchestrator, real gate, real containers. The agents are shell scripts in a bundle that is
//! mounted at `/opt/agent`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tests::binaries;
use tests::canary::Canary;
use tests::host;
use tests::instance::Instance;
use tests::wait;

/// Ends the ticket as done, with a comment.
const FINISH: &str = r#"
board() {
    curl --silent --show-error --max-time 30 --request "$1" "$PAPERCLIP_API_URL/api$2" \
        --header 'content-type: application/json' --header "X-Paperclip-Run-Id: $PAPERCLIP_RUN_ID" \
        --data "${3-}"
}
finish() { board PATCH "/issues/$PAPERCLIP_TASK_ID" "{\"status\":\"done\",\"comment\":\"$1\"}"; }
"#;

struct Office {
    instance: Instance,
    company: String,
}

impl Office {
    fn open() -> Self {
        let instance = Instance::up();
        let made = instance.json(&["company", "create", "Acme"]);
        Self {
            company: text(&made, "id"),
            instance,
        }
    }

    /// An agent whose run is `script`.
    fn agent(&self, name: &str, script: &str) -> String {
        let bundle = self.bundle(name);
        host::directory(&bundle, 0, 0o755);
        let text_of = format!("#!/bin/bash\nset -u\n{FINISH}\n{script}\n");
        host::file(&bundle.join("agent.sh"), &text_of, 0, 0o755);
        let bundle = bundle.display().to_string();
        // `--json` stands before the command: what follows `--` is the agent's.
        let finished = self
            .instance
            .portcullis()
            .args([
                "agent",
                "create",
                name,
                "--company",
                &self.company,
                "--adapter",
                "process",
            ])
            .args([
                "--bundle",
                &bundle,
                "--json",
                "--",
                "/bin/bash",
                "/opt/agent/agent.sh",
            ])
            .run()
            .ok();
        text(&serde_json::from_str(&finished.stdout).unwrap(), "id")
    }

    fn bundle(&self, name: &str) -> PathBuf {
        self.instance.path(&format!("srv/{name}"))
    }

    /// A ticket; its identifier.
    fn ticket(&self, title: &str) -> String {
        let made = self
            .instance
            .json(&["ticket", "create", title, "--company", &self.company]);
        text(&made, "identifier")
    }

    fn assign(&self, ticket: &str, agent: &str) {
        self.instance
            .json(&["ticket", "assign", ticket, "--agent", agent]);
    }

    fn show(&self, ticket: &str) -> Value {
        self.instance.json(&["ticket", "show", ticket])
    }

    fn at_rest(&self, ticket: &str) -> String {
        wait::until_within(wait::PATIENCE * 3, "the ticket is at rest", || {
            let status = text(&self.show(ticket), "status");
            ["done", "blocked", "in_review", "cancelled"]
                .contains(&status.as_str())
                .then_some(status)
        })
    }

    /// Every run so far, ended ones included.
    fn runs(&self) -> Vec<Value> {
        let listed = self.instance.json(&["run", "list"]);
        listed
            .as_array()
            .cloned()
            .unwrap_or_else(|| listed["runs"].as_array().cloned().unwrap())
    }

    fn timeline(&self, ticket: &str) -> String {
        self.instance
            .portcullis()
            .args(["ticket", "timeline", ticket])
            .run()
            .ok()
            .stdout
    }
}

fn text(value: &Value, key: &str) -> String {
    value[key]
        .as_str()
        .unwrap_or_else(|| panic!("no `{key}` in {value}"))
        .to_owned()
}

#[test]
fn assigning_wakes_the_agent_runs_it_and_the_ticket_ends_as_done() {
    let office = Office::open();
    assert!(
        office.runs().is_empty(),
        "start-up begins no run of its own"
    );
    let agent = office.agent("worker", "finish \"hello from $(hostname)\"");
    let ticket = office.ticket("Say hello");
    assert_eq!(text(&office.show(&ticket), "status"), "todo");
    assert!(office.runs().is_empty(), "creating is no wake");
    office.assign(&ticket, &agent);
    assert_eq!(office.at_rest(&ticket), "done");
    assert_eq!(office.runs().len(), 1);
    let timeline = office.timeline(&ticket);
    for expected in [
        "assigned",
        "hello from",
        "done",
        "board.portcullis.internal",
    ] {
        assert!(timeline.contains(expected), "{expected}: {timeline}");
    }
}

#[test]
fn a_run_that_pushes_finds_no_secret_anywhere_in_its_container() {
    let office = Office::open();
    let folder = office.instance.path("etc/portcullis/credentials");
    let file = fs::read_dir(folder)
        .unwrap()
        .flatten()
        .next()
        .expect("the demo's credential");
    let secret = fs::read_to_string(file.path()).unwrap().trim().to_owned();
    let canary = Canary { secret };
    let agent = office.agent(
        "seeker",
        "git clone --quiet https://git.portcullis.test/acme/web.git web
         git -C web push --quiet origin HEAD:refs/heads/agent/seeker && echo pushed > pushed
         for remote in git@git.portcullis.test:acme/web.git ssh://git@git.portcullis.test/acme/web.git \\
             ssh://git@git.portcullis.test:22/acme/web.git git@other.portcullis.test:acme/web.git; do
             git ls-remote $remote agent/seeker 2>&1; echo \"$? $remote\"
         done > remotes-over-ssh
         git config --show-origin --get-all url.https://git.portcullis.test/.insteadOf >> remotes-over-ssh
         curl -sv --proxytunnel http://git.portcullis.test:22/ > tunnel-to-ssh 2>&1
         env > environment
         roots=()
         for folder in /*; do
             # Programs of the read-only system; processes are searched by themselves.
             case $folder in /usr|/lib*|/bin|/sbin|/proc|/sys) ;; *) roots+=(--root \"$folder\") ;; esac
         done
         cat /opt/agent/forms | /opt/agent/portcullis-probe search --processes \"${roots[@]}\" > found 2> trouble
         finish \"searched with $?\"",
    );
    let bundle = office.bundle("seeker");
    let probe = bundle.join("portcullis-probe");
    fs::copy(binaries::path("portcullis-probe"), &probe).unwrap();
    fs::set_permissions(&probe, fs::Permissions::from_mode(0o755)).unwrap();
    host::file(&bundle.join("forms"), &canary.forms_in_hex(), 0, 0o644);

    let ticket = office.ticket("Seek");
    office.assign(&ticket, &agent);
    assert_eq!(
        office.at_rest(&ticket),
        "done",
        "{}",
        office.timeline(&ticket)
    );
    let var = office.instance.path("var");
    let left = |name: &str| {
        let file = find(&var, name).unwrap_or_else(|| panic!("the run left no `{name}`"));
        fs::read_to_string(file).unwrap()
    };
    assert_eq!(left("pushed"), "pushed\n");
    // What the run's own system says of remotes over ssh, with nobody's help.
    let ssh = left("remotes-over-ssh");
    for expected in [
        "refs/heads/agent/seeker\n0 git@git.portcullis.test:acme/web.git\n",
        "refs/heads/agent/seeker\n0 ssh://git@git.portcullis.test/acme/web.git\n",
        "refs/heads/agent/seeker\n0 ssh://git@git.portcullis.test:22/acme/web.git\n",
        "Portcullis: ssh (port 22) is refused",
        "hint: use https://HOST/",
        "\n128 git@other.portcullis.test:acme/web.git\n",
        "file:/etc/gitconfig\tgit@git.portcullis.test:\n",
    ] {
        assert!(ssh.contains(expected), "{expected}: {ssh}");
    }
    let tunnel = left("tunnel-to-ssh");
    for expected in ["403 Portcullis", "use https://git.portcullis.test/"] {
        assert!(tunnel.contains(expected), "{expected}: {tunnel}");
    }
    assert!(
        left("environment").contains("PAPERCLIP_API_KEY="),
        "{}",
        left("environment")
    );
    canary.absent_from("the run's environment", left("environment"));
    // The list of what to look for spells the secret in hex: the control that the search works.
    let found = left("found");
    assert!(
        found.contains("\t/opt/agent/forms"),
        "{found}{}",
        left("trouble")
    );
    let elsewhere: Vec<_> = found
        .lines()
        .filter(|line| !line.ends_with("/opt/agent/forms"))
        .collect();
    assert!(elsewhere.is_empty(), "{elsewhere:?}");
    canary.absent_from("the timeline", office.timeline(&ticket));
}

#[test]
fn two_wakes_and_a_wake_during_a_run_are_one_run_at_a_time() {
    let office = Office::open();
    let agent = office.agent("slow", "sleep 3; finish once");
    let ticket = office.ticket("Take your time");
    office.assign(&ticket, &agent);
    // Assigning woke it; these two come before and during its run.
    for _ in 0..2 {
        office
            .instance
            .portcullis()
            .args(["wake", &ticket, "--json"])
            .run();
    }
    wait::until_true("the run is live", || live(&office.runs()) == 1);
    office
        .instance
        .portcullis()
        .args(["wake", &ticket, "--json"])
        .run();
    let mut most = 0;
    wait::until_within(wait::PATIENCE * 3, "the ticket is done", || {
        most = most.max(live(&office.runs()));
        (text(&office.show(&ticket), "status") == "done").then_some(())
    });
    assert_eq!(most, 1, "{:?}", office.runs());
    assert_eq!(
        office.runs().len(),
        1,
        "a done ticket wakes nobody: {:?}",
        office.runs()
    );
}

#[test]
fn of_twenty_racing_checkouts_one_wins() {
    let office = Office::open();
    let prize = text(&office.show(&office.ticket("The prize")), "id");
    let start = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs()
        + 25;
    let racers: Vec<_> = (0..20)
        .map(|number| {
            let script = format!(
                "until [ \"$(date +%s)\" -ge {start} ]; do sleep 0.05; done
                 want='{{\"agentId\":\"'$PAPERCLIP_AGENT_ID'\",\"expectedStatuses\":[\"todo\"]}}'
                 answer=$(board POST /issues/{prize}/checkout \"$want\" && echo)
                 case $answer in
                 *conflict*|*error*) finish 'lost the race' ;;
                 *) board PATCH /issues/{prize} '{{\"status\":\"done\"}}'; finish 'won the race' ;;
                 esac"
            );
            let agent = office.agent(&format!("racer-{number}"), &script);
            let ticket = office.ticket(&format!("Race {number}"));
            office.assign(&ticket, &agent);
            ticket
        })
        .collect();
    for ticket in &racers {
        assert_eq!(
            office.at_rest(ticket),
            "done",
            "{}",
            office.timeline(ticket)
        );
    }
    let answers: Vec<_> = racers
        .iter()
        .map(|ticket| office.timeline(ticket))
        .collect();
    let won = answers
        .iter()
        .filter(|text| text.contains("won the race"))
        .count();
    let lost = answers
        .iter()
        .filter(|text| text.contains("lost the race"))
        .count();
    assert_eq!(office.at_rest(&prize), "done");
    assert_eq!((won, lost), (1, 19), "{answers:?}");
    assert_eq!(office.runs().len(), 20, "a lost race creates nothing");
}

#[test]
fn a_killed_orchestrator_starts_no_second_run_while_the_first_process_lives() {
    let office = Office::open();
    let agent = office.agent(
        "stubborn",
        "echo begun >> beats; while :; do date +%s%N >> beats; sleep 0.2; done",
    );
    let ticket = office.ticket("Survive");
    office.assign(&ticket, &agent);
    let beats = wait::until("the agent works", || {
        find(&office.instance.path("var"), "beats")
    });
    let begun = || {
        fs::read_to_string(&beats)
            .unwrap_or_default()
            .matches("begun")
            .count()
    };
    wait::until_true("it beats", || begun() == 1);

    let served = office.instance.processes("portcullis-orchestrator serve");
    assert!(!served.is_empty());
    for pid in &served {
        kill(Pid::from_raw(i32::try_from(*pid).unwrap()), Signal::SIGKILL).unwrap();
    }
    wait::until_true("the orchestrator is back", || {
        let now = office.instance.processes("portcullis-orchestrator serve");
        !now.is_empty() && now != served && office.instance.run_status(&[]).code() == 0
    });
    let mut most = 0;
    let status = wait::until_within(
        wait::PATIENCE * 4,
        "the ticket has an end or is worked on",
        || {
            most = most.max(live(&office.runs()));
            let status = text(&office.show(&ticket), "status");
            let ended = office.runs().iter().any(|run| !is_live(run));
            ended.then_some(status)
        },
    );
    assert!(most <= 1, "{:?}", office.runs());
    assert!(begun() <= office.runs().len(), "{status}");
    let why = office.instance.portcullis().args(["why", &ticket]).run();
    let story = office.timeline(&ticket) + &why.output();
    assert!(
        story.contains("gone") || story.contains("lost") || story.contains("killed"),
        "{story}"
    );
}

fn live(runs: &[Value]) -> usize {
    runs.iter().filter(|run| is_live(run)).count()
}

fn is_live(run: &Value) -> bool {
    let status = run["status"]
        .as_str()
        .or_else(|| run["state"].as_str())
        .unwrap_or_default();
    [
        "reserved", "queued", "starting", "running", "stopping", "ending",
    ]
    .contains(&status)
}

/// The file of that name below `root`.
fn find(root: &std::path::Path, name: &str) -> Option<PathBuf> {
    let mut open = vec![root.to_path_buf()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if entry.file_name() == name && path.is_file() {
                return Some(path);
            }
            // The runs' root file system is large and holds nothing of the agent's.
            if path.is_dir() && !path.is_symlink() && entry.file_name() != "rootfs" {
                open.push(path);
            }
        }
    }
    None
}
