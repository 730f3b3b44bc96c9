//! `portcullis doctor`: each check is well on a whole instance, and red when its one thing is broken.
//!
//! Most things are broken in a mount namespace of the doctor's own, so that the instance itself stays whole and every
//! red has its control: the same check on the same instance.

use std::fs;
use std::path::Path;

use serde_json::Value;
use tests::command::Program;
use tests::host;
use tests::instance::Instance;
use tests::wait;

const CHECKS: [&str; 12] = [
    "rules",
    "proof",
    "service",
    "gate",
    "clock",
    "authority",
    "credential",
    "store",
    "space",
    "log",
    "subuid",
    "nesting",
];

/// The doctor after `broken` was done to what it sees: its exit status and its report.
fn doctor(instance: &Instance, broken: &str) -> (i32, Value) {
    let command = instance.path("usr/local/bin/portcullis");
    let script = format!("set -e; {broken}\nexec {} doctor --json", command.display());
    let found = Program::new("unshare")
        .args(["--mount", "sh", "-c", &script])
        .env("HOME", "/root")
        .run();
    let report = serde_json::from_str(&found.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", found.shown()));
    (found.code(), report)
}

/// Every finding of a check.
fn of<'r>(report: &'r Value, check: &str) -> Vec<&'r Value> {
    let all = report["checks"].as_array().unwrap();
    all.iter().filter(|one| one["check"] == check).collect()
}

/// The one finding of a check that is bad, with a command beside it.
#[track_caller]
fn bad(report: &Value, check: &str) -> String {
    let found = of(report, check)
        .into_iter()
        .find(|one| one["verdict"] == "bad");
    let found = found.unwrap_or_else(|| panic!("{check} is not bad: {report:#}"));
    assert!(!found["repair"].as_str().unwrap().is_empty());
    found["fact"].as_str().unwrap().to_owned()
}

/// A file like `like` with this text, put in its place for the doctor alone.
fn over(place: &Path, name: &str, like: &Path, text: &[u8]) -> String {
    let other = place.join(name);
    fs::write(&other, text).unwrap();
    format!(
        "chown --reference={like} {other}; chmod --reference={like} {other}; mount --bind {other} {like}",
        like = like.display(),
        other = other.display()
    )
}

fn gate_with(instance: &Instance, change: impl FnOnce(String) -> String) {
    let path = instance.path("etc/portcullis/proxy.toml");
    let text = change(fs::read_to_string(&path).unwrap());
    fs::write(&path, text).unwrap();
    let before = instance.processes("portcullis-proxy run");
    for pid in &before {
        Program::new("kill").arg(pid.to_string()).run().ok();
    }
    wait::until_true("the gate is started anew", || {
        let now = instance.processes("portcullis-proxy run");
        now.len() == 1 && now != before && instance.run_status(&[]).code() == 0
    });
}

#[test]
fn every_check_is_well_on_a_whole_instance_and_red_when_its_one_thing_is_broken() {
    let instance = Instance::up();
    let scratch = host::scratch();
    let place = scratch.path();
    let etc = |name: &str| instance.path(&format!("etc/portcullis/{name}"));
    let state = |name: &str| instance.path(&format!("var/lib/portcullis/{name}"));

    // The control for all of it.
    let (code, well) = doctor(&instance, "");
    assert_eq!(code, 0, "{well:#}");
    for check in CHECKS {
        assert!(!of(&well, check).is_empty(), "{check}: {well:#}");
        for found in of(&well, check) {
            assert!(
                ["ok", "note"].contains(&found["verdict"].as_str().unwrap()),
                "{found}"
            );
            assert!(
                found["fact"].is_string() && found["repair"].is_string(),
                "{found}"
            );
        }
    }
    assert_eq!(of(&well, "service").len(), 4);
    assert_eq!(of(&well, "subuid").len(), 2);
    assert_eq!(
        of(&well, "credential")[0]["verdict"],
        "note",
        "no canary is named"
    );

    // Without rules: a network namespace of its own has none.
    let whole = instance
        .path("usr/local/bin/portcullis")
        .display()
        .to_string();
    let bare = Program::new("unshare")
        .args(["--net", &whole, "doctor", "--json"])
        .run();
    let report: Value = serde_json::from_str(&bare.stdout).unwrap();
    assert_eq!(bare.code(), 1, "{report:#}");
    bad(&report, "rules");
    bad(&report, "proof");

    let run = instance.path("run/portcullis/proxy");
    let (code, report) = doctor(&instance, &format!("mount -t tmpfs none {}", run.display()));
    assert_eq!(code, 1);
    bad(&report, "gate");
    bad(&report, "service");
    assert_eq!(
        of(&report, "credential")[0]["verdict"],
        "unknown",
        "{report:#}"
    );

    let log = state("proxy/audit/audit.jsonl");
    let text = fs::read_to_string(&log).unwrap();
    let later = over(place, "later", &log, text.as_bytes());
    let later = format!("{later}; touch -d '+1 day' {}", log.display());
    let (code, report) = doctor(&instance, &later);
    assert_eq!(code, 1);
    assert!(
        bad(&report, "clock").contains("behind the time at which"),
        "{report:#}"
    );

    let changed = text.replacen("\"kind\":\"", "\"kind\": \"", 1);
    assert_ne!(changed, text);
    let (code, report) = doctor(&instance, &over(place, "changed", &log, changed.as_bytes()));
    assert_eq!(code, 1);
    assert!(bad(&report, "log").contains("NOT INTACT"), "{report:#}");

    let audit = state("proxy/audit");
    let small = format!("mount -t tmpfs -o size=1m none {}", audit.display());
    let (code, report) = doctor(&instance, &small);
    assert_eq!(code, 1);
    assert!(bad(&report, "space").starts_with("1 MiB"), "{report:#}");

    let (key, ca) = (state("proxy/ca/ca.key"), state("proxy/ca/ca.pem"));
    let ending = Program::new("openssl")
        .args([
            "req",
            "-x509",
            "-new",
            "-days",
            "9",
            "-subj",
            "/CN=ending",
            "-sha256",
            "-key",
        ])
        .arg(&key)
        .args(["-addext", "keyUsage=critical,keyCertSign,cRLSign"])
        .run()
        .ok();
    let (code, report) = doctor(&instance, &over(place, "ca", &ca, ending.stdout.as_bytes()));
    assert_eq!(code, 1, "{report:#}");
    assert!(
        bad(&report, "authority").contains("has no successor"),
        "{report:#}"
    );

    let subuid = fs::read_to_string("/etc/subuid").unwrap();
    let owner = format!("{}-exec:", instance.name);
    let without: String = subuid
        .lines()
        .filter(|line| !line.starts_with(&owner))
        .fold(String::new(), |text, line| text + line + "\n");
    assert_ne!(without, subuid);
    let (code, report) = doctor(
        &instance,
        &over(
            place,
            "subuid",
            Path::new("/etc/subuid"),
            without.as_bytes(),
        ),
    );
    assert_eq!(code, 1);
    bad(&report, "subuid");

    let switch = Path::new("/proc/sys/user/max_user_namespaces");
    let zero = place.join("zero");
    fs::write(&zero, "0\n").unwrap();
    let shut = format!("mount --bind {} {}", zero.display(), switch.display());
    let (code, report) = doctor(&instance, &shut);
    assert_eq!(code, 1);
    assert!(
        bad(&report, "nesting").contains("max_user_namespaces is 0"),
        "{report:#}"
    );
    // Not the switch but the thing itself.
    let (_, report) = doctor(&instance, "mount --bind /bin/false /usr/bin/newuidmap");
    bad(&report, "nesting");

    // A store whose key reads what is the operator's, and one whose key does not.
    for (reads, verdict) in [(true, "bad"), (false, "ok")] {
        let folder = store(place, &format!("store-{reads}"), reads);
        let config = fs::read_to_string(etc("proxy.toml")).unwrap();
        let config = format!(
            "{config}\n[store]\ndirectory = \"{0}/store\"\nkey = \"{0}/key\"\noperator_entries = \"{0}/operator\"\n",
            folder.display()
        );
        let name = format!("proxy-{reads}");
        let with = over(place, &name, &etc("proxy.toml"), config.as_bytes());
        let (_, report) = doctor(&instance, &with);
        let found = of(&report, "store")[0];
        assert_eq!(found["verdict"], verdict, "{report:#}");
        assert_eq!(
            found["fact"]
                .as_str()
                .unwrap()
                .contains("the scope proof failed"),
            reads
        );
    }

    // Whom the boundary refuses is the first line, by name.
    let ids = subuid
        .lines()
        .find_map(|line| line.strip_prefix(&owner))
        .unwrap();
    let uid: u32 = ids.split(':').next().unwrap().parse().unwrap();
    Program::new("bash")
        .args(["-c", "exec 3<>/dev/tcp/93.184.215.14/80"])
        .as_uid(uid)
        .run()
        .refused();
    let shown = instance.portcullis().arg("doctor").run();
    assert_eq!(shown.code(), 0, "{}", shown.shown());
    let first = shown.stdout.lines().next().unwrap();
    assert!(first.starts_with(&format!("uid {uid} (")), "{first}");
    assert!(first.contains("was refused"), "{first}");
    assert!(
        shown.stdout.lines().count() <= 50,
        "one screen: {}",
        shown.stdout
    );
}

/// A store with one entry and an operator's entry that its key can read, or not.
fn store(place: &Path, name: &str, reads: bool) -> std::path::PathBuf {
    let folder = place.join(name);
    let home = folder.join("gnupg");
    fs::create_dir_all(&home).unwrap();
    fs::create_dir_all(folder.join("store/agents")).unwrap();
    fs::create_dir_all(folder.join("operator")).unwrap();
    let script = format!(
        "set -e; umask 077; export GNUPGHOME={home}; chmod 700 {home}; cd {folder}
        for who in agents operator; do
          gpg --batch --quiet --passphrase '' --quick-generate-key $who future-default default never
        done
        seal() {{ echo value | gpg --batch --quiet --trust-model always --encrypt --recipient $1 > $2; }}
        gpg --batch --export-secret-keys agents > key
        gpg --list-keys --with-colons agents | awk -F: '/^fpr/ {{ print $10; exit }}' > store/.gpg-id
        seal agents store/agents/x.gpg
        seal {recipient} operator/bank.gpg
        gpgconf --kill all",
        home = home.display(),
        folder = folder.display(),
        recipient = if reads { "agents" } else { "operator" },
    );
    Program::new("sh").args(["-c", &script]).run().ok();
    folder
}

/// A 401 that an agent meets marks the credential sick in status, metrics and doctor; with a canary the doctor
/// finds it out by itself, and each trial is in the log.
#[test]
fn a_credential_that_is_refused_is_sick_everywhere_and_its_canary_says_so_on_demand() {
    let instance = Instance::up();
    let token = instance.path("etc/portcullis/credentials/github");
    let good = fs::read_to_string(&token).unwrap();
    let policy = instance.path("etc/portcullis/policies/default.toml");
    let put = |value: &str| {
        // Over the old one: owner and mode stay.
        fs::write(&token, value).unwrap();
        instance.portcullis().arg("reload").run().ok();
    };
    let project = host::scratch();
    let agent = || {
        instance
            .portcullis()
            .in_directory(project.path())
            .args(["exec", "--policy"])
            .arg(&policy)
            .args([
                "--",
                "git",
                "ls-remote",
                "https://git.portcullis.test/acme/web.git",
            ])
            .run()
    };
    let gate = || {
        let status = instance
            .portcullis()
            .args(["gate", "status", "--json"])
            .run();
        let status: Value = serde_json::from_str(&status.stdout).unwrap();
        status["credentials"][0].clone()
    };
    let metric = |name: &str| {
        let socket = instance.path("run/portcullis/proxy/control.sock");
        let shown = Program::new("curl")
            .args(["--silent", "--fail", "--unix-socket"])
            .arg(&socket)
            .arg("http://gate/v1/metrics")
            .run()
            .ok();
        let wanted = format!("portcullis_{name}{{credential=\"github\"}} ");
        let line = shown
            .stdout
            .lines()
            .find_map(|line| line.strip_prefix(&wanted));
        line.unwrap_or_else(|| panic!("{name}: {}", shown.stdout))
            .to_owned()
    };
    let credential = || {
        let (code, report) = doctor(&instance, "");
        (code, of(&report, "credential")[0].clone())
    };

    agent().ok();
    assert_eq!(
        (gate()["sick"].clone(), metric("credential_sick")),
        (Value::Null, "0".to_owned())
    );
    assert_eq!(credential().0, 0, "the control");
    let wrong = format!("ghp_{}\n", "A".repeat(36));
    put(&wrong);
    agent().refused();
    assert!(gate()["sick"]["refusals"].as_u64() >= Some(1), "{}", gate());
    assert_eq!(metric("credential_sick"), "1");
    let (code, found) = credential();
    assert_eq!(code, 1, "{found}");
    let fact = found["fact"].as_str().unwrap();
    assert!(
        fact.contains("sick: git.portcullis.test") && fact.contains("401"),
        "{fact}"
    );
    put(&good);
    agent().ok();
    assert_eq!(
        (gate()["sick"].clone(), metric("credential_sick")),
        (Value::Null, "0".to_owned())
    );
    assert_eq!(credential().0, 0, "it is well again");

    gate_with(&instance, |text| {
        text.replace(
            "[credential.github]\n",
            "[credential.github]\ncanary = \"GET /acme/web.git/info/refs?service=git-upload-pack\"\n",
        )
    });
    let (code, found) = credential();
    assert_eq!(code, 0, "{found}");
    assert!(
        found["fact"].as_str().unwrap().starts_with("works: 200"),
        "{found}"
    );
    let trials = || {
        let log = fs::read_to_string(instance.path("var/lib/portcullis/proxy/audit/audit.jsonl"));
        let log = log.unwrap();
        assert!(!log.contains(good.trim()) && !log.contains(wrong.trim()));
        let own = "\"reason\":\"the gate's own request\"";
        log.lines().filter(|line| line.contains(own)).count()
    };
    let before = trials();
    assert_eq!(instance.portcullis().arg("canary").run().code(), 0);
    // The one at the gate's start may still come.
    assert!(trials() >= before + 2, "with it and without, now");
    put(&wrong);
    let canary = instance.portcullis().arg("canary").run();
    assert_eq!(canary.code(), 1, "{}", canary.shown());
    assert!(
        canary.stdout.starts_with("refused  github: 401"),
        "{}",
        canary.shown()
    );
    let (code, found) = credential();
    assert_eq!(code, 1);
    assert!(
        found["fact"]
            .as_str()
            .unwrap()
            .starts_with("canary refused: 401"),
        "{found}"
    );
    assert_eq!(metric("credential_canary_works"), "0");
    put(&good);
    assert_eq!(
        instance.portcullis().arg("canary").run().code(),
        0,
        "it is well again"
    );
}
