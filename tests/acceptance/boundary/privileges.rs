//! Agents' processes have `no_new_privs`, and `verify` names those that have not.

use tests::command::Program;
use tests::{binaries, wait};

use super::lab::{AGENT, GATE, Lab, MONITOR, OTHER_AGENT, Running, SUBORDINATE};

/// A program that stays, as this user.
fn stays(lab: &Lab, uid: u32, flag: bool) -> Running {
    let mut words = vec!["setpriv".to_owned(), "--clear-groups".to_owned()];
    words.extend([format!("--reuid={uid}"), format!("--regid={uid}")]);
    if flag {
        words.push("--no-new-privs".to_owned());
    }
    words.extend(["sh", "-c", "echo running; read -r line"].map(str::to_owned));
    Running::start(lab.on_host(words), "running")
}

/// A script that stays, as this user and without the flag.
fn python(lab: &Lab, uid: u32, script: &str) -> Running {
    let ids = [format!("--reuid={uid}"), format!("--regid={uid}")];
    let words = ["setpriv", "--clear-groups"].map(str::to_owned).into_iter();
    let rest = ["python3", "-c", script].map(str::to_owned);
    Running::start(lab.on_host(words.chain(ids).chain(rest)), "running")
}

type Start<'a> = &'a dyn Fn(&Lab) -> Running;

/// An agent's without the flag, in a user namespace of its own.
fn inside(lab: &Lab) -> Running {
    let ids = [
        format!("--reuid={OTHER_AGENT}"),
        format!("--regid={OTHER_AGENT}"),
    ];
    let words = ["setpriv", "--clear-groups"].map(str::to_owned).into_iter();
    let rest = ["unshare", "-U", "sh", "-c", "echo running; read -r line"].map(str::to_owned);
    Running::start(lab.on_host(words.chain(ids).chain(rest)), "running")
}

#[test]
fn verify_names_agents_that_may_gain_rights() {
    let lab = Lab::new("agents");
    lab.shut();
    for (uid, name) in [
        (OTHER_AGENT, "lab-other"),
        (SUBORDINATE + 7, "subordinate of lab-agent"),
    ] {
        let running = stays(&lab, uid, true);
        lab.boundary(&["verify"]).ok();
        drop(running);

        let running = stays(&lab, uid, false);
        let finished = lab.boundary(&["verify"]);
        assert_eq!(finished.code(), 1, "{}", finished.shown());
        let pid = running.pid();
        let expected =
            format!("able: process {pid} (sh) of uid {uid} ({name}): no_new_privs is not set");
        assert!(
            finished.stdout.contains(&expected),
            "{expected}: {}",
            finished.shown()
        );
        let remedy = format!("kill {pid}");
        assert!(finished.stdout.contains("hint: "), "{}", finished.shown());
        assert!(
            finished.stdout.contains("NoNewPrivileges=yes"),
            "{}",
            finished.shown()
        );
        assert!(finished.stdout.contains(&remedy), "{}", finished.shown());
        assert!(
            !finished.stderr.contains("apply puts"),
            "{}",
            finished.shown()
        );
        let json = lab.boundary(&["verify", "--json"]).stdout;
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json["ok"], false, "{json}");
        assert_eq!(json["differences"][0]["kind"], "able", "{json}");
        // The rules themselves stand, and are not in doubt for it.
        assert_eq!(json["differences"].as_array().unwrap().len(), 1, "{json}");
        drop(running);
        lab.boundary(&["verify"]).ok();
    }
}

/// A program that stays, as this user, with the flag and one capability.
fn capable(lab: &Lab, uid: u32, capability: &str) -> Running {
    let ids = [format!("--reuid={uid}"), format!("--regid={uid}")];
    let sets = ["--inh-caps=", "--ambient-caps="].map(|set| format!("{set}{capability}"));
    let words = ["setpriv", "--clear-groups", "--no-new-privs"].map(str::to_owned);
    let rest = ["sh", "-c", "echo running; read -r line"].map(str::to_owned);
    let words = words.into_iter().chain(ids).chain(sets).chain(rest);
    Running::start(lab.on_host(words), "running")
}

/// With a capability a process goes past the rules: CAP_NET_RAW writes frames below all of them.
#[test]
fn verify_names_agents_with_a_capability() {
    for scope in ["agents", "guest"] {
        let lab = Lab::new(scope);
        let agents = "agents = [\"lab-agent\", \"lab-other\"]\nreserves = [\"lab-agent\"]";
        lab.write_config_with(scope, agents, "");
        lab.shut();
        let before = lab.received();
        let writes = |set: &str| {
            let sets = ["--inh-caps=", "--ambient-caps="].map(|option| format!("{option}{set}"));
            let ids = [
                format!("--reuid={OTHER_AGENT}"),
                format!("--regid={OTHER_AGENT}"),
            ];
            let words = ["setpriv", "--clear-groups", "--no-new-privs"].map(str::to_owned);
            let words = words.into_iter().chain(ids).chain(sets);
            lab.on_host(words.chain(lab.script(&["packet", "wire"])))
                .run()
        };
        assert!(writes("-all").stdout.contains("EPERM"), "control");
        assert_eq!(lab.received(), before);
        assert!(
            writes("+net_raw").stdout.contains("sent"),
            "what it is about"
        );
        wait::until_true("its frame passes every rule", || lab.received() > before);

        for (set, name) in [
            ("+net_raw", "CAP_NET_RAW"),
            ("+sys_ptrace", "CAP_SYS_PTRACE"),
        ] {
            let running = capable(&lab, OTHER_AGENT, set);
            let finished = lab.boundary(&["verify"]);
            assert_eq!(finished.code(), 1, "{scope}: {}", finished.shown());
            let expected = format!(
                "able: process {} (sh) of uid {OTHER_AGENT} (lab-other): it holds {name} (effective, permitted, \
                 inheritable, ambient, bounding)",
                running.pid()
            );
            assert!(
                finished.stdout.contains(&expected),
                "{expected}: {}",
                finished.shown()
            );
            assert!(
                finished.stdout.contains("AmbientCapabilities="),
                "{}",
                finished.shown()
            );
        }
        // Controls: without one; somebody else's; in a user namespace of its own, where it rules nothing outside.
        let _plain = capable(&lab, OTHER_AGENT, "-all");
        let _others = [0, GATE, MONITOR].map(|uid| capable(&lab, uid, "+net_raw"));
        let _inside = inside(&lab);
        lab.boundary(&["verify"]).ok();
    }
}

/// In a guest nobody has to be listed; whoever is, is held to the same.
#[test]
fn verify_looks_at_the_agents_that_a_guest_names() {
    let lab = Lab::new("guest");
    lab.shut();
    let running = stays(&lab, OTHER_AGENT, false);
    let finished = lab.boundary(&["verify"]).ok();
    assert!(
        finished.stderr.contains("no agents are named"),
        "{}",
        finished.shown()
    );
    lab.write_config_with("guest", "agents = [\"lab-other\", \"lab-agent\"]", "");
    let finished = lab.boundary(&["verify"]);
    assert_eq!(finished.code(), 1, "{}", finished.shown());
    assert!(
        !finished.stderr.contains("no agents are named"),
        "{}",
        finished.shown()
    );
    let pid = running.pid();
    for expected in [
        format!(
            "able: process {pid} (sh) of uid {OTHER_AGENT} (lab-other): no_new_privs is not set"
        ),
        format!("able: /etc/subuid:1: \"lab-agent:{SUBORDINATE}:1000\""),
        format!("able: /etc/subgid:1: \"lab-agent:{SUBORDINATE}:1000\""),
    ] {
        assert!(
            finished.stdout.contains(&expected),
            "{expected}: {}",
            finished.shown()
        );
    }
    drop(running);
    lab.write_accounts(false);
    lab.boundary(&["verify"]).ok();
}

/// Nobody else needs the flag: the host's users, the gate, and those whose ids are there for runs.
#[test]
fn verify_leaves_everybody_else_their_rights() {
    let lab = Lab::new("agents");
    lab.shut();
    let _others: Vec<Running> = [0, GATE, MONITOR, AGENT]
        .into_iter()
        .map(|uid| stays(&lab, uid, false))
        .collect();
    // In a user namespace of its own an agent becomes nobody outside.
    let _inside = inside(&lab);
    // An agent's in another network: these rules do not see it, and it has no way to theirs.
    let elsewhere = Lab::new("agents");
    let _there = stays(&elsewhere, OTHER_AGENT, false);
    lab.boundary(&["verify"]).ok();
    elsewhere.shut();
    assert_eq!(elsewhere.boundary(&["verify"]).code(), 1, "control");
}

/// The flag is each thread's own.
#[test]
fn verify_looks_at_every_thread() {
    let lab = Lab::new("agents");
    lab.shut();
    let script = "\
import ctypes, sys, threading
libc = ctypes.CDLL(None)
ready, over = threading.Event(), threading.Event()
def work():
    ready.set()
    over.wait()
# The first thread sets the flag (PR_SET_NO_NEW_PRIVS) after it made the second.
threading.Thread(target=work, daemon=True).start()
ready.wait()
assert libc.prctl(38, 1, 0, 0, 0) == 0
print('running', flush=True)
sys.stdin.readline()
";
    let running = python(&lab, OTHER_AGENT, script);
    let text = std::fs::read_to_string(format!("/proc/{}/status", running.pid())).unwrap();
    assert!(text.contains("NoNewPrivs:\t1"), "control: {text}");
    let finished = lab.boundary(&["verify"]);
    assert_eq!(finished.code(), 1, "{}", finished.shown());
    let expected = format!("process {} (python3)", running.pid());
    assert!(finished.stdout.contains(&expected), "{}", finished.shown());
}

/// A first thread that ended leaves its number to the others.
#[test]
fn verify_finds_a_process_whose_first_thread_is_over() {
    let lab = Lab::new("agents");
    lab.shut();
    let script = "\
import ctypes, platform, sys, threading
def work():
    print('running', flush=True)
    sys.stdin.readline()
threading.Thread(target=work).start()
# exit(2) of this thread alone.
ctypes.CDLL(None).syscall({'x86_64': 60}.get(platform.machine(), 93), 0)
";
    let running = python(&lab, OTHER_AGENT, script);
    let pid = running.pid();
    wait::until_true("the first thread is over", || {
        let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        text.contains("State:\tZ")
    });
    let finished = lab.boundary(&["verify"]);
    assert_eq!(finished.code(), 1, "{}", finished.shown());
    let expected = format!("process {pid} (python3)");
    assert!(finished.stdout.contains(&expected), "{}", finished.shown());
}

/// What it calls itself is its own affair.
#[test]
fn verify_names_a_process_whatever_it_calls_itself() {
    let lab = Lab::new("agents");
    lab.shut();
    let script = "\
import ctypes, select
libc = ctypes.CDLL(None)
print('running', flush=True)
turn = 0
while not select.select([0], [], [], 0.001)[0]:
    turn += 1
    assert libc.prctl(15, b'name %d' % turn, 0, 0, 0) == 0
";
    let running = python(&lab, OTHER_AGENT, script);
    let finished = lab.boundary(&["verify"]);
    assert_eq!(finished.code(), 1, "{}", finished.shown());
    let expected = format!("able: process {} (name ", running.pid());
    assert!(finished.stdout.contains(&expected), "{}", finished.shown());
    drop(running);
    lab.boundary(&["verify"]).ok();
}

/// Each lives shorter than the time between two looks, or than one look takes, and starts the next.
#[test]
fn verify_names_an_agent_whose_processes_follow_one_another() {
    let lab = Lab::new("agents");
    lab.shut();
    for (life, flags) in [("0.02", "00"), ("0", "00"), ("0.02", "11")] {
        // Whoever starts the first has the flag, and takes in those that are over.
        let script = format!(
            "\
import ctypes, os, select, signal, sys
libc = ctypes.CDLL(None)
assert libc.prctl(36, 1, 0, 0, 0) == 0
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
if {flags}: assert libc.prctl(38, 1, 0, 0, 0) == 0
if os.fork():
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    print('running', flush=True)
    sys.stdin.readline()
    sys.exit()
while not select.select([0], [], [], {life})[0]:
    if os.fork():
        os._exit(0)
"
        );
        let running = python(&lab, OTHER_AGENT, &script);
        if flags == "11" {
            lab.boundary(&["verify"]).ok();
            continue;
        }
        wait::until_true("verify names it", || {
            let finished = lab.boundary(&["verify"]);
            let named = finished.stdout.contains(&format!(
                "(python3) of uid {OTHER_AGENT} (lab-other), and another before it: no_new_privs is not set"
            ));
            let remedy = format!("setpriv --reuid={OTHER_AGENT} ");
            finished.code() == 1 && named && finished.stdout.contains(&remedy)
        });
        drop(running);
        wait::until_true("they are over", || lab.boundary(&["verify"]).code() == 0);
    }
}

/// A proof that sees less than a person's `verify` would keep the gate down for what is no fault, or up for what is one.
#[test]
fn the_units_proof_says_what_verify_says() {
    let units = binaries::repository().join("provisioning/units");
    let unit = std::fs::read_to_string(units.join("boundary-proof.service")).unwrap();
    let kept = unit
        .lines()
        .find_map(|line| line.strip_prefix("CapabilityBoundingSet="))
        .unwrap();
    let lab = Lab::new("agents");
    lab.shut();
    let proof = |capabilities: &str| {
        let mut set = "--bounding-set=-all".to_owned();
        for capability in capabilities.split_whitespace() {
            set.push_str(",+");
            set.push_str(&capability.trim_start_matches("CAP_").to_lowercase());
        }
        let words = ["setpriv", "--no-new-privs", "--inh-caps=-all", &set].map(str::to_owned);
        let program = binaries::path("portcullis-boundary").display().to_string();
        let config = lab.path("boundary.toml").display().to_string();
        let rest = [program, "verify".to_owned(), "--config".to_owned(), config];
        lab.on_host(words.into_iter().chain(rest)).run()
    };
    let elsewhere = Lab::new("agents");
    let plain = |lab: &Lab| stays(lab, OTHER_AGENT, false);
    let flagged = |lab: &Lab| stays(lab, OTHER_AGENT, true);
    let subordinate = |lab: &Lab| stays(lab, SUBORDINATE + 7, false);
    let cases: [(&str, i32, &Lab, Start<'_>); 5] = [
        ("with the flag", 0, &lab, &flagged),
        ("in another network", 0, &elsewhere, &plain),
        ("in a user namespace of its own", 0, &lab, &inside),
        ("without the flag", 1, &lab, &plain),
        ("a subordinate's", 1, &lab, &subordinate),
    ];
    for (what, code, place, start) in cases {
        let running = start(place);
        let (persons, units) = (lab.boundary(&["verify"]), proof(kept));
        assert_eq!(persons.code(), code, "{what}: {}", persons.shown());
        assert_eq!(units.code(), code, "{what}: {}", units.shown());
        assert_eq!(units.stdout, persons.stdout, "{what}");
        let pid = running.pid();
        let named = units.stdout.contains(&format!("process {pid} (sh)"));
        assert_eq!(named, code == 1, "{what}: {}", units.shown());
        assert!(
            !units.stdout.contains("cannot be read"),
            "{}",
            units.shown()
        );
        if place.host.name() != lab.host.name() {
            // Without the privilege nobody can tell where it is: it counts, and that is said.
            let blind = proof("CAP_NET_ADMIN");
            assert_eq!(blind.code(), 1, "control: {}", blind.shown());
            let doubt = "cannot be read without CAP_SYS_PTRACE";
            assert!(blind.stdout.contains(doubt), "control: {}", blind.shown());
        }
    }
}

/// A set-user-id program that an agent runs has another uid in force, and the agent's beside it.
#[test]
fn verify_names_what_an_agent_runs_as_somebody_else() {
    let lab = Lab::new("agents");
    lab.shut();
    let words = ["setpriv", "--clear-groups"].map(str::to_owned).into_iter();
    let ids = [format!("--ruid={OTHER_AGENT}"), "--euid=0".to_owned()];
    let rest = ["sh", "-pc", "echo running; read -r line"].map(str::to_owned);
    let program: Program = lab.on_host(words.chain(ids).chain(rest));
    let running = Running::start(program, "running");
    wait::until_true("verify names it", || {
        let finished = lab.boundary(&["verify"]);
        let expected = format!("process {} (sh) of uid {OTHER_AGENT}", running.pid());
        finished.code() == 1 && finished.stdout.contains(&expected)
    });
}
