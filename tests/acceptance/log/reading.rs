//! The log is read by people and by programs: followed over rotation, asked, and checked elsewhere by
//! somebody who has nothing but a copy and the public key.

use std::collections::BTreeSet;

use tests::world::EVIL;

use super::*;

/// Text that makes each line of a request more than 2 KB long.
fn padding() -> String {
    "a".repeat(1900)
}

#[test]
fn tail_follows_across_rotation_with_and_without_filters() {
    let mut world = World::prepared(None, Boundary::External);
    configure(&world, "[audit]", "segment_mib = 1");
    world.start();
    assert!(
        world
            .curl(&[&format!("https://{WEB}/first")])
            .ok()
            .stdout
            .ends_with("\n200")
    );
    let agent = format!("agent-{}", world.agent);
    let follow = |name: &str, more: &[&str]| {
        let log = world.path().join(name);
        let child = proxy(&["audit", "tail", "-n", "0", "-f", "--config"])
            .arg(world.gate.config())
            .args(more)
            .spawn_logging(&log);
        (child, log)
    };
    let (mut all, everything) = follow("all", &["--json"]);
    let refusals = ["--verdict", "refuse", "--agent", &agent, "--host", EVIL];
    let (mut some, refused) = follow("some", &refusals);
    let (mut other, nothing) = follow("other", &["--agent", "somebody", "--ticket", "T-1"]);
    let read = |path: &Path| -> Vec<Value> {
        let text = fs::read_to_string(path).unwrap_or_default();
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let lines = whole.lines();
        lines
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    };
    // They have begun once they see what comes.
    wait::until_true("both follow", || {
        world.curl(&[&format!("https://{EVIL}/early")]).ok();
        !read(&everything).is_empty() && !read(&refused).is_empty()
    });
    let closed = |world: &World| {
        let names = fs::read_dir(world.gate.audit_file().parent().unwrap()).unwrap();
        names
            .filter(|it| {
                it.as_ref()
                    .unwrap()
                    .file_name()
                    .to_str()
                    .unwrap()
                    .starts_with("audit-")
            })
            .count()
    };
    wait::until_true("a file is closed", || {
        let many = format!("https://{WEB}/{}-[1-80]", padding());
        world.curl(&["-o", "/dev/null", &many]).ok();
        closed(&world) > 0
    });
    assert!(
        world
            .curl(&[&format!("https://{EVIL}/late")])
            .ok()
            .stdout
            .ends_with("\n403")
    );
    let late = |it: &Value| {
        it["path"] == "/late" || it["kind"] == "refusal" && it["seq"].as_u64() > Some(200)
    };
    wait::until_true("the present is shown behind the rotation", || {
        read(&everything).iter().any(late) && read(&refused).iter().any(late)
    });
    for child in [&mut all, &mut some, &mut other] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let seqs: Vec<u64> = read(&everything)
        .iter()
        .map(|it| it["seq"].as_u64().unwrap())
        .collect();
    assert!(seqs.len() > 200, "{}", seqs.len());
    assert!(
        seqs.windows(2).all(|pair| pair[1] == pair[0] + 1),
        "{seqs:?}"
    );
    for record in read(&refused) {
        assert_eq!(record["verdict"], "refuse", "{record}");
        assert_eq!(record["authority"], format!("{EVIL}:443"), "{record}");
    }
    assert_eq!(read(&nothing), [Value::Null; 0]);

    // The same log, asked: what stands in closed files and in the open one.
    let ask = |words: &[&str]| {
        let told = proxy(&["audit"])
            .args(words)
            .arg("--config")
            .arg(world.gate.config())
            .run();
        (told.code(), told.stdout)
    };
    let (code, found) = ask(&[
        "query",
        "--host",
        EVIL,
        "--verdict",
        "refuse",
        "--since",
        "1h",
    ]);
    assert_eq!(
        (code, found.lines().count()),
        (0, read(&refused).len().max(2)),
        "{found}"
    );
    assert_eq!(
        ask(&["query", "--host", EVIL, "--until", "1h"]).0,
        1,
        "nothing so long ago"
    );
    let (code, text) = ask(&["stats", "--json"]);
    let stats: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(code, 0);
    assert!(
        stats["hosts"][WEB]["requests"].as_u64() > Some(80),
        "{stats}"
    );
    assert!(
        stats["hosts"][WEB]["bytes_out"].as_u64() > Some(80),
        "{stats}"
    );
    assert!(
        stats["refused_by_code"]["destination_not_listed"].as_u64() >= Some(2),
        "{stats}"
    );
    assert_eq!(
        stats["total"]["cost_microusd"], 0,
        "no service here says whose usage is read"
    );
    let (code, table) = ask(&["export", "--verdict", "refuse"]);
    assert_eq!(code, 0);
    let mut rows = table.lines();
    let columns: BTreeSet<&str> = rows.next().unwrap().split(',').collect();
    for column in [
        "tokens_in",
        "tokens_out",
        "cost_microusd",
        "hold",
        "decider",
        "rule",
        "ms",
    ] {
        assert!(columns.contains(column), "{column}");
    }
    assert!(rows.clone().count() >= 2 && rows.all(|row| row.contains("destination_not_listed")));
}

#[test]
fn tail_is_coloured_on_a_terminal_and_json_elsewhere() {
    let world = World::new();
    assert!(
        world
            .curl(&[&format!("https://{EVIL}/x")])
            .ok()
            .stdout
            .ends_with("\n403")
    );
    let command = format!(
        "{} audit tail -n 5 --verdict refuse --config {}",
        binaries::path("portcullis-proxy").display(),
        world.gate.config().display()
    );
    let terminal = |no_colour: &str| {
        Program::new("script")
            .env("NO_COLOR", no_colour)
            .args(["--quiet", "--return", "--command", &command, "/dev/null"])
            .run()
            .ok()
            .stdout
    };
    let (coloured, plain) = (terminal(""), terminal("1"));
    assert!(
        coloured.contains("\u{1b}[31mREFUSE\u{1b}[0m"),
        "{coloured:?}"
    );
    assert!(
        plain.contains(" REFUSE ") && !plain.contains('\u{1b}'),
        "{plain:?}"
    );
    assert!(
        plain.contains(EVIL) && plain.contains("destination_not_listed"),
        "{plain:?}"
    );
    let elsewhere = Program::new("sh").args(["-c", &command]).run().ok().stdout;
    let record: Value = serde_json::from_str(elsewhere.lines().last().unwrap()).unwrap();
    assert_eq!(record["code"], "destination_not_listed");
}

/// Offline: no gate, no configuration, no rights; a copy of the files and the public key.
#[test]
fn a_copy_is_verified_by_somebody_who_has_the_public_key_alone() {
    let mut world = World::prepared(None, Boundary::External);
    let secret = world.gate.dir.join("credentials/audit.key");
    configure(
        &world,
        "[audit]",
        &format!(
            "signing_key = \"{}\"\ncheckpoint_records = 4",
            secret.display()
        ),
    );
    let keygen = proxy(&["audit", "keygen", "--config"]).arg(world.gate.config());
    keygen.as_uid(world.gate.uid).run().ok();
    world.start();
    let heard = world.path().join("events");
    let mut events = world.control().follow("/v1/events", &heard);
    for number in 0..5 {
        let url = format!("https://{WEB}/x-{number}");
        assert!(world.curl(&[&url]).ok().stdout.ends_with("\n200"));
    }
    // Checkpoints leave the gate: on the stream, and for whoever asks.
    let told = wait::until("a checkpoint is heard", || {
        world.curl(&[&format!("https://{WEB}/more")]).ok();
        let text = fs::read_to_string(&heard).unwrap_or_default();
        let mut lines = text
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.find(|it| it["kind"] == "checkpoint")
    });
    events.kill().unwrap();
    events.wait().unwrap();
    let asked = world.control().call("GET", "/v1/checkpoint", None).ok();
    assert!(asked["seq"].as_u64() >= told["seq"].as_u64(), "{asked}");
    for checkpoint in [told, asked] {
        assert!(
            checkpoint["checkpoint"]["signature"].is_string(),
            "{checkpoint}"
        );
    }
    let unlisted = world.curl(&[&format!("https://{EVIL}/x")]).ok();
    assert!(unlisted.stdout.ends_with("\n403"));
    assert_eq!(world.gate.stop(), Some(0));

    let stranger = host::uid();
    let copy = world.home().parent().unwrap().join("copy");
    host::directory(&copy, stranger, 0o700);
    let log = fs::read_to_string(world.gate.audit_file()).unwrap();
    let public = fs::read_to_string(secret.with_extension("key.pub")).unwrap();
    host::file(&copy.join("audit.asc"), &public, stranger, 0o600);
    let file = copy.join("audit.jsonl");
    let check = |text: &str| {
        host::file(&file, text, stranger, 0o600);
        let program = proxy(&["audit", "verify", "--json", "--file"]).arg(&copy);
        let told = program
            .arg("--key")
            .arg(copy.join("audit.asc"))
            .as_uid(stranger)
            .run();
        let report: Value = serde_json::from_str(&told.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", told.shown()));
        (told.code(), report)
    };
    let (code, report) = check(&log);
    assert_eq!(
        (code, &report["end"]),
        (0, &Value::from("closed")),
        "{report}"
    );
    assert!(
        report["signed"].as_u64() > Some(0) && report["unsigned"] == 0,
        "{report}"
    );
    let lines: Vec<&str> = log.lines().collect();
    let whole = |lines: &[&str]| format!("{}\n", lines.join("\n"));
    let last = lines.len() - 1;
    let swapped = {
        let mut lines = lines.clone();
        lines.swap(1, 2);
        whole(&lines)
    };
    for (what, text, end) in [
        ("a changed byte", log.replacen("/x-2", "/x-3", 1), "closed"),
        (
            "a removed line",
            whole(&[&lines[..1], &lines[2..]].concat()),
            "closed",
        ),
        ("two lines the other way round", swapped, "closed"),
        ("no end", whole(&lines[..last]), "cut"),
        (
            "half an end",
            format!("{}{}", whole(&lines[..last]), &lines[last][..50]),
            "torn",
        ),
        ("nothing", String::new(), "empty"),
    ] {
        let (code, report) = check(&text);
        assert_eq!(
            (code, report["end"].as_str()),
            (1, Some(end)),
            "{what}: {report}"
        );
    }
    assert_eq!(check(&log).0, 0, "control");

    // The documented way with gpg alone.
    let gnupg = copy.join("gnupg");
    host::directory(&gnupg, stranger, 0o700);
    let exported = proxy(&["audit", "checkpoint-export", "--file"]).arg(&copy);
    let exported = exported.arg("--to").arg(&copy).as_uid(stranger).run().ok();
    let [text, signature] = exported.stdout.lines().collect::<Vec<_>>()[..] else {
        panic!("{}", exported.shown());
    };
    let gpg = |arguments: &[&str]| {
        let program = Program::new("gpg").env("GNUPGHOME", &gnupg);
        let program = program.args(["--batch", "--no-autostart"]).args(arguments);
        program.as_uid(stranger).run()
    };
    gpg(&["--import", copy.join("audit.asc").to_str().unwrap()]).ok();
    gpg(&["--verify", signature, text]).ok();
    let statement = fs::read_to_string(text).unwrap();
    let fields: Vec<&str> = statement
        .lines()
        .map(|line| line.split(' ').next().unwrap())
        .collect();
    let wanted = [
        "Portcullis",
        "seq",
        "head",
        "time",
        "closing",
        "every",
        "policy",
        "boundary",
        "refused",
    ];
    assert_eq!(fields, wanted, "{statement}");
    fs::write(text, statement.replace("closing yes", "closing no")).unwrap();
    assert_ne!(
        gpg(&["--verify", signature, text]).code(),
        0,
        "a changed statement"
    );
}
