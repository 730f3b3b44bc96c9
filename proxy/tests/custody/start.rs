//! What the gate refuses to start with, and how it says so.

use super::fixture::{Fixture, PROXY, USER, set_mode, stderr};

fn refused(fixture: &Fixture, wanted: &[&str]) {
    let output = fixture.tool(&["run", "--user", USER]);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    for text in wanted {
        assert!(said.contains(text), "wanted `{text}` in:\n{said}");
    }
    assert!(!said.contains("canary"), "{said}");
    assert!(
        !fixture.path("run/control.sock").exists(),
        "nothing was opened"
    );
}

#[test]
fn as_root_without_a_user_to_become() {
    let mut fixture = Fixture::new();
    let output = fixture.tool(&["run"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("refusing to run as root: name the service user"));
    for user in ["root", "0", "nobody-of-this-name"] {
        let output = fixture.tool(&["run", "--user", user]);
        assert_eq!(output.status.code(), Some(2), "{user}");
    }
    assert!(!fixture.path("run/control.sock").exists());
    // The control: with a user it starts.
    fixture.start();
    fixture.stop();
}

#[test]
fn with_a_broken_policy_it_names_file_line_key_problem_and_remedy() {
    let fixture = Fixture::new();
    let file = fixture.path("default.toml");
    let text = std::fs::read_to_string(&file)
        .unwrap()
        .replace("allow", "alow");
    std::fs::write(&file, text).unwrap();
    let place = format!("{}:6: service[1].alow: ", file.display());
    refused(&fixture, &[&place, "hint: ", "allow"]);

    // `policy check` says the same and exits 1; 2 when it cannot read.
    let check = |file: &std::path::Path| {
        std::process::Command::new(PROXY)
            .args(["policy", "check"])
            .arg(file)
            .output()
            .unwrap()
    };
    let output = check(&file);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains(&place), "{}", stderr(&output));
    assert_eq!(check(&fixture.path("missing.toml")).status.code(), Some(2));
    std::fs::write(&file, super::fixture::POLICY).unwrap();
    assert_eq!(check(&file).status.code(), Some(0));
}

/// Attack: LIF-05
#[test]
fn with_a_policy_that_is_missing_or_unreadable() {
    let fixture = Fixture::new();
    std::fs::remove_file(fixture.path("default.toml")).unwrap();
    refused(&fixture, &["default.toml: cannot be read", "hint: "]);
}

#[test]
fn with_a_policy_whose_credential_is_not_bound_that_way() {
    let fixture =
        Fixture::with(|text| text.replace("[\"api.example.com\"]", "[\"other.example\"]"));
    let config = fixture.config().display().to_string();
    refused(
        &fixture,
        &[
            "default.toml:7: service.credential: example would go to",
            &config,
        ],
    );
    let fixture =
        Fixture::with(|text| text.replace("[credential.example]", "[credential.exemple]"));
    let config = fixture.config().display().to_string();
    refused(&fixture, &["there is no credential example in", &config]);
}

#[test]
fn with_a_configuration_that_has_an_error() {
    let fixture = Fixture::new();
    let text = std::fs::read_to_string(fixture.config()).unwrap();
    std::fs::write(
        fixture.config(),
        text.replace("inline = true", "inlined = true"),
    )
    .unwrap();
    let line = text
        .lines()
        .position(|line| line.starts_with("inline"))
        .unwrap()
        + 1;
    let file = fixture.config().display().to_string();
    let place = format!("{file}:{line}: control.peer[1].inlined: is not a key we know");
    refused(&fixture, &[&place, "did you mean inline?"]);
    assert_eq!(fixture.tool(&["check"]).status.code(), Some(1));
    std::fs::write(fixture.config(), text).unwrap();
    assert_eq!(fixture.tool(&["check"]).status.code(), Some(0));
}

/// Attack: CRD-27
#[test]
fn with_a_credential_that_is_empty_or_open_to_others() {
    let fixture = Fixture::new();
    let secret = fixture.path("secret/example");
    std::fs::write(&secret, "").unwrap();
    refused(
        &fixture,
        &["credential example: the value in", "is empty", "hint: "],
    );
    std::fs::write(&secret, "Bearer canary").unwrap();
    refused(
        &fixture,
        &["starts with the word of an authentication scheme"],
    );
    std::fs::write(&secret, "canary").unwrap();
    set_mode(&secret, 0o644);
    refused(&fixture, &["has mode 0644", "chmod 600"]);
    set_mode(&secret, 0o600);
    let check = ["check", "--credentials", "--user", USER];
    assert_eq!(fixture.tool(&check).status.code(), Some(0), "control");
}

#[test]
fn without_a_certificate_authority() {
    let fixture = Fixture::new();
    std::fs::remove_dir_all(fixture.path("lib/ca")).unwrap();
    refused(&fixture, &["ca.key", "portcullis-proxy ca init"]);
}

#[test]
fn a_log_that_another_gate_writes() {
    let mut fixture = Fixture::new();
    fixture.start();
    let output = fixture.tool(&["run", "--user", USER]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("is being written by another process"));
    assert_eq!(
        fixture.status()["ready"],
        true,
        "the first is not disturbed"
    );
    fixture.stop();
}

#[test]
fn help_and_papers() {
    let run = |args: &[&str]| {
        std::process::Command::new(PROXY)
            .args(args)
            .output()
            .unwrap()
    };
    for args in [
        &["--help"][..],
        &["man"],
        &["completions", "bash"],
        &["--version"],
    ] {
        let output = run(args);
        assert!(
            output.status.success() && !output.stdout.is_empty(),
            "{args:?}"
        );
    }
    assert_eq!(run(&["no-such-command"]).status.code(), Some(2));
    assert_eq!(run(&[]).status.code(), Some(2));
}

/// A service manager that gives the gate a user namespace of its own blinds it: every peer would
/// be 65534.
#[test]
fn in_a_user_namespace_where_it_cannot_tell_uids_apart() {
    let mut fixture = Fixture::new();
    let uid = super::fixture::uid_of(USER);
    let as_user = |namespace: &[&str]| {
        let mut command = std::process::Command::new("setpriv");
        command.args([format!("--reuid={uid}"), format!("--regid={uid}")]);
        command.arg("--clear-groups").args(namespace).arg(PROXY);
        command.args(["run", "--config"]).arg(fixture.config());
        command
    };
    let output = as_user(&["unshare", "--user", "--map-current-user"])
        .output()
        .unwrap();
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("uid 0 is not mapped in the gate's user namespace"),
        "{said}"
    );
    assert!(said.contains("PrivateUsers="), "{said}");
    // The control: started as the service user by somebody else, without a namespace, it serves.
    let mut child = as_user(&[])
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    super::fixture::eventually("the control socket answers", || {
        std::os::unix::net::UnixStream::connect(fixture.path("run/control.sock")).is_ok()
    });
    assert_eq!(fixture.status()["ready"], true);
    child.kill().unwrap();
    child.wait().unwrap();
    fixture.start();
    fixture.stop();
}

/// Attack: LIF-21
#[test]
fn readiness_is_told_to_the_service_manager() {
    let fixture = Fixture::new();
    let path = fixture.path("notify.sock");
    let manager = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    set_mode(&path, 0o666);
    manager
        .set_read_timeout(Some(super::fixture::DEADLINE))
        .unwrap();
    let mut child = std::process::Command::new(PROXY)
        .args(["run", "--user", USER, "--config"])
        .arg(fixture.config())
        .env("NOTIFY_SOCKET", &path)
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let mut told = [0; 64];
    let length = manager.recv(&mut told).unwrap();
    assert_eq!(&told[..length], b"READY=1\n");
    assert_eq!(fixture.status()["ready"], true);
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn with_a_ca_file_that_cannot_be_had() {
    let mut fixture = Fixture::new();
    let file = fixture.path("upstream.pem");
    let text = super::fixture::POLICY
        .replace("allow", &format!("ca_file = \"{}\"\nallow", file.display()));
    std::fs::write(fixture.path("default.toml"), text).unwrap();
    let place = format!("ca_file {}: ", file.display());
    refused(&fixture, &[&place, "http-api.example.com-1", "hint: "]);
    let pem = std::fs::read_to_string(fixture.path("lib/ca/ca.pem")).unwrap();
    for bad in [
        "",
        "canary of another file\n",
        "-----BEGIN CERTIFICATE-----\ncanary\n",
    ] {
        std::fs::write(&file, bad).unwrap();
        refused(&fixture, &[&place, "hint: "]);
    }
    std::fs::write(&file, pem).unwrap();
    // Root could read it; the user that the gate becomes cannot.
    set_mode(&file, 0o600);
    refused(&fixture, &[&place, "Permission denied"]);
    set_mode(&file, 0o644);
    fixture.start();
    fixture.stop();
}
