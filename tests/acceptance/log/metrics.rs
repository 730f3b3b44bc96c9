//! Metrics: every series moves with what it counts, and they are shown to those who are listed alone.

use std::collections::BTreeMap;

use tests::world::{EVIL, EVIL_ADDRESS};

use super::*;

const ADDRESS: &str = "127.0.0.1:9464";

/// The series and their values.
fn series(text: &str) -> BTreeMap<String, f64> {
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| {
            let (name, value) = line.rsplit_once(' ').unwrap();
            (name.to_owned(), value.parse().unwrap())
        })
        .collect()
}

fn scrape(world: &World, uid: u32) -> Finished {
    Program::new("curl")
        .args(["-sS", "--max-time", "20", "-w", "\n%{http_code}"])
        .arg(format!("http://{ADDRESS}/metrics"))
        .as_uid(uid)
        .in_netns(&world.netns)
        .run()
}

#[test]
fn every_series_moves_and_is_shown_to_whom_it_is_listed_for_alone() {
    let mut world = World::prepared(None, Boundary::Kernel);
    let scraper = host::uid();
    configure(
        &world,
        "[metrics]",
        &format!("listen = \"{ADDRESS}\"\nusers = [\"{scraper}\"]"),
    );
    world.raise_wall();
    world.start();
    let now = |world: &World| {
        let told = scrape(world, scraper).ok();
        let text = told
            .stdout
            .strip_suffix("\n200")
            .unwrap()
            .trim_end()
            .to_owned();
        assert!(text.ends_with("# EOF"), "{text}");
        series(&text)
    };
    let before = now(&world);

    for path in ["/x", "/status/404", "/status/500", "/status/401"] {
        world.curl(&[&format!("https://{WEB}{path}")]).ok();
    }
    world
        .curl(&["--data", "twelve bytes", &format!("https://{WEB}/echo")])
        .ok();
    world.curl(&[&format!("https://{EVIL}/x")]).ok();
    world.curl(&[&format!("https://{WEB}/secret/x")]).ok();
    let beside = world
        .unproxied("curl")
        .args([
            "-sS",
            "--max-time",
            "2",
            &format!("https://{EVIL_ADDRESS}/"),
        ])
        .run();
    assert_ne!(beside.code(), 0, "the boundary is there");

    let request = |verdict: &str, service: &str, status: &str| {
        format!(
            "portcullis_requests_total{{verdict=\"{verdict}\",service=\"{service}\",status=\"{status}\"}}"
        )
    };
    let uid = world.agent;
    let grows = [
        request("allow", "web", "2xx"),
        request("allow", "web", "4xx"),
        request("allow", "web", "5xx"),
        request("refuse", "web", "4xx"),
        request("refuse", "none", "4xx"),
        "portcullis_refusals_total{code=\"destination_not_listed\"}".to_owned(),
        "portcullis_refusals_total{code=\"denied_by_rule\"}".to_owned(),
        "portcullis_request_duration_seconds_count".to_owned(),
        "portcullis_request_duration_seconds_bucket{le=\"+Inf\"}".to_owned(),
        "portcullis_body_bytes_total{from=\"client\"}".to_owned(),
        "portcullis_body_bytes_total{from=\"upstream\"}".to_owned(),
        format!("portcullis_boundary_refused_packets_total{{uid=\"{uid}\"}}"),
        "portcullis_credential_injected_total{credential=\"web\"}".to_owned(),
        "portcullis_credential_refused_total{credential=\"web\"}".to_owned(),
        "portcullis_audit_sequence".to_owned(),
        "portcullis_leaf_cache".to_owned(),
        "portcullis_audit_last_sync_microseconds".to_owned(),
    ];
    let mut last = before.clone();
    let of =
        |values: &BTreeMap<String, f64>, name: &String| values.get(name).copied().unwrap_or(0.0);
    wait::until_true("each series has moved", || {
        last = now(&world);
        grows.iter().all(|name| of(&last, name) > of(&before, name))
    });
    assert!(
        of(
            &last,
            &"portcullis_body_bytes_total{from=\"client\"}".to_owned()
        ) >= 12.0
    );
    // What nothing moves here is there all the same.
    for name in [
        "portcullis_tokens_total{kind=\"read\"}",
        "portcullis_tokens_total{kind=\"written\"}",
        "portcullis_cost_microusd_total",
        "portcullis_holds_total",
        "portcullis_audit_lag_lines",
        "portcullis_audit_waiting",
        "portcullis_leaf_cache_most",
        "portcullis_runs",
    ] {
        assert!(last.contains_key(name), "{name} is not in {last:?}");
    }
    for (name, value) in [
        ("portcullis_ready", 1.0),
        ("portcullis_boundary_ok", 1.0),
        ("portcullis_audit_ok", 1.0),
        ("portcullis_policy_stale{profile=\"default\"}", 0.0),
        ("portcullis_credential_loaded{credential=\"git\"}", 1.0),
        ("portcullis_credential_sick{credential=\"git\"}", 0.0),
    ] {
        assert_eq!(last.get(name), Some(&value), "{name}");
    }
    // No label is what an agent chose.
    assert!(
        !last
            .keys()
            .any(|name| name.contains("evil") || name.contains("/x"))
    );

    // Another uid is told so and nothing else; the boundary does not even let an agent ask.
    for other in [host::uid(), 0] {
        let told = scrape(&world, other).ok();
        assert!(told.stdout.ends_with("\n403"), "{other}: {}", told.shown());
        assert!(!told.stdout.contains("portcullis_"), "{}", told.shown());
    }
    let agent = scrape(&world, world.agent);
    assert!(
        agent.code() != 0 && !agent.stdout.contains("portcullis_"),
        "{}",
        agent.shown()
    );
    // Loopback alone: the namespace's other addresses do not answer.
    let elsewhere = Program::new("curl")
        .args([
            "-sS",
            "--max-time",
            "5",
            &format!("http://{EVIL_ADDRESS}:9464/metrics"),
        ])
        .as_uid(scraper)
        .in_netns(&world.netns)
        .run();
    assert_ne!(elsewhere.code(), 0, "{}", elsewhere.shown());

    // Health turns: the log is taken away, the boundary abandoned, the policy broken.
    let folder = world.gate.audit_file().parent().unwrap().to_owned();
    let away = world.gate.dir.join("away");
    fs::rename(&folder, &away).unwrap();
    wait::until_true("the log is missed", || {
        of(&now(&world), &"portcullis_audit_ok".to_owned()) == 0.0
    });
    assert_eq!(now(&world)["portcullis_ready"], 0.0);
    fs::rename(&away, &folder).unwrap();
    wait::until_true("the log is back", || {
        now(&world)["portcullis_audit_ok"] == 1.0
    });
    let policy = fs::read_to_string(world.gate.policy()).unwrap();
    world
        .gate
        .write_policy("version = 1\n[[service]]\nnonsense");
    assert_eq!(world.control().call("POST", "/v1/reload", None).status, 422);
    assert_eq!(
        now(&world)["portcullis_policy_stale{profile=\"default\"}"],
        1.0
    );
    world.gate.write_policy(&policy);
    world.wall.as_mut().unwrap().abandon();
    wait::until_true("the boundary is missed", || {
        now(&world)["portcullis_boundary_ok"] == 0.0
    });
}

#[test]
fn the_port_is_on_loopback_and_for_somebody_or_the_configuration_is_refused() {
    let world = World::prepared(None, Boundary::External);
    let text = fs::read_to_string(world.gate.config()).unwrap();
    let scraper = host::uid();
    for (listen, users, problem) in [
        (ADDRESS, format!("\"{scraper}\""), ""),
        ("[::1]:9464", format!("\"{scraper}\""), ""),
        (
            "0.0.0.0:9464",
            format!("\"{scraper}\""),
            "is not a loopback",
        ),
        (
            "93.184.215.20:9464",
            format!("\"{scraper}\""),
            "is not a loopback",
        ),
        (ADDRESS, String::new(), "names nobody who may ask"),
        (
            ADDRESS,
            "\"nobody-of-that-name\"".to_owned(),
            "there is no user",
        ),
    ] {
        let section = format!("{text}[metrics]\nlisten = \"{listen}\"\nusers = [{users}]\n");
        host::file(&world.gate.config(), &section, 0, 0o644);
        let told = proxy(&["check", "--config"]).arg(world.gate.config()).run();
        assert_eq!(told.code() == 0, problem.is_empty(), "{}", told.shown());
        assert!(told.stderr.contains(problem), "{}", told.shown());
    }
}
