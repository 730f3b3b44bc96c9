//! Names, addresses, agreement of authorities, redirects: only what is listed is resolved or dialled.

mod kept;

use tests::world::{EVIL, EVIL_ADDRESS, GIT, WEB, WEB_ADDRESS, World};

/// Attack: AUT-17
#[test]
fn an_unlisted_host_is_refused_without_being_resolved_or_dialled_and_clients_read_why() {
    let world = World::new();
    let dials = world.netns.count_dials(world.gate.uid);
    let asked = |world: &World, name: &str| world.names.questions().iter().any(|it| it == name);

    let refused = world
        .curl(&["--include", &format!("https://{EVIL}/x?q=1")])
        .ok();
    assert!(refused.stdout.ends_with("\n403"), "{}", refused.shown());
    for expected in [
        "x-portcullis-code: destination_not_listed",
        "Portcullis",
        EVIL,
        "hint",
    ] {
        assert!(
            refused.stdout.contains(expected),
            "{expected}: {}",
            refused.shown()
        );
    }
    let cloned = world
        .git(".", &["clone", &format!("https://{EVIL}/acme/web.git")])
        .refused();
    for expected in ["Portcullis", "destination_not_listed", "hint"] {
        assert!(
            cloned.output().contains(expected),
            "{expected}: {}",
            cloned.shown()
        );
    }
    let plain = world.curl(&["--include", &format!("http://{EVIL}/x")]).ok();
    assert!(plain.stdout.ends_with("\n403"), "{}", plain.shown());
    assert!(
        plain.stdout.contains("destination_not_listed"),
        "{}",
        plain.shown()
    );
    assert!(!asked(&world, EVIL), "{:?}", world.names.questions());
    assert_eq!(dials.count(), 0);
    assert!(world.evil.connections().is_empty());

    // The control: a listed host is resolved, dialled and reached, and all three detectors see it.
    let allowed = world.curl(&[&format!("https://{WEB}/x")]).ok();
    assert!(allowed.stdout.ends_with("\n200"), "{}", allowed.shown());
    assert!(asked(&world, WEB));
    assert_eq!(dials.count(), 1);
    assert_eq!(world.web.connections().len(), 1);
}

#[test]
fn a_refusal_leaves_one_audit_record_that_names_its_code() {
    let world = World::new();
    let refused = world
        .curl(&["--include", &format!("https://{EVIL}/x")])
        .ok();
    let id = header(&refused.stdout, "x-portcullis-audit").expect("a refusal names its record");
    let records: Vec<_> = world
        .gate
        .audit()
        .into_iter()
        .filter(|it| it["id"] == id.as_str())
        .collect();
    assert_eq!(records.len(), 1, "{records:?}");
    assert_eq!(records[0]["kind"], "refusal");
    assert_eq!(records[0]["code"], "destination_not_listed");
    assert_eq!(records[0]["authority"], format!("{EVIL}:443"));
    assert_eq!(records[0]["peer_uid"], world.agent);
}

/// Attack: CRD-11, PTH-01, PTH-02, PTH-03, PTH-08
#[test]
fn methods_and_paths_that_no_rule_allows_are_refused_with_their_code() {
    let world = World::new();
    let url = |path: &str| format!("https://{WEB}{path}");
    for (args, path, code) in [
        (&["--request", "DELETE"][..], "/x", "method_not_allowed"),
        (&["--request", "POST"][..], "/x", "_not_allowed"),
        (&["--request", "TRACE"][..], "/x", "method_refused"),
        (&["--path-as-is"][..], "/a/../secret/x", "ambiguous_path"),
        (
            &["--path-as-is"][..],
            "/a/%2e%2e/secret/x",
            "ambiguous_path",
        ),
        (&["--path-as-is"][..], "/secret%2fx", "ambiguous_path"),
        (&[][..], "/secret/x", "denied_by_rule"),
        (&[][..], "/%73ecret/x", "denied_by_rule"),
    ] {
        let target = url(path);
        let mut all = vec!["--include"];
        all.extend_from_slice(args);
        all.push(&target);
        let refused = world.curl(&all).ok();
        assert!(
            refused.stdout.contains(code),
            "{args:?} {path}: {}",
            refused.shown()
        );
    }
    // The host is listed, so that it may be asked what it speaks; no byte of a request is sent.
    assert!(world.web.received().is_empty(), "{}", world.web.received());

    let allowed = world.curl(&["--data", "hello", &url("/echo")]).ok();
    assert_eq!(allowed.stdout, "hello\n200");
}

/// Attack: AUT-01, AUT-02
#[test]
fn host_and_server_name_must_agree_with_the_connect_target() {
    let world = World::new();
    let url = format!("https://{WEB}/x");
    let other = format!("Host: {EVIL}");
    let refused = world.curl(&["--include", "--header", &other, &url]).ok();
    assert!(
        refused.stdout.contains("authority_mismatch"),
        "{}",
        refused.shown()
    );

    // The tunnel is asked for to the listed host, the handshake names another, and the reverse.
    for (tunnel, name) in [(WEB, EVIL), (EVIL, WEB)] {
        let to = format!("{name}:443:{tunnel}:443");
        let url = format!("https://{name}/x");
        let seen = world.curl(&["--include", "--connect-to", &to, &url]);
        assert!(
            !seen.stdout.ends_with("200"),
            "{tunnel}, {name}: {}",
            seen.shown()
        );
    }
    assert!(world.web.received().is_empty() && world.evil.connections().is_empty());
    let codes: Vec<_> = world
        .gate
        .audit()
        .iter()
        .map(|it| it["code"].to_string())
        .collect();
    assert!(codes.contains(&"\"sni_mismatch\"".to_owned()), "{codes:?}");

    let same = format!("{WEB}:443:{WEB}:443");
    let allowed = world.curl(&["--connect-to", &same, &url]).ok();
    assert!(allowed.stdout.ends_with("\n200"), "{}", allowed.shown());
}

/// Attack: DST-01, DST-14, DST-17
#[test]
fn an_address_of_a_listed_name_is_not_listed_and_legacy_spellings_are_no_hosts() {
    let world = World::new();
    for host in [
        WEB_ADDRESS.to_string(),
        EVIL_ADDRESS.to_string(),
        "127.0.0.1".to_owned(),
    ] {
        let refused = world.curl(&["--insecure", "--include", &format!("https://{host}/x")]);
        assert!(
            !refused.stdout.ends_with("200"),
            "{host}: {}",
            refused.shown()
        );
    }
    for host in ["0x7f000001", "2130706433", "0177.0.0.1", "127.1"] {
        // curl itself would rewrite these in a URL; asked for as a tunnel they arrive as they are.
        let to = format!("{WEB}:443:{host}:443");
        let url = format!("https://{WEB}/x");
        let refused = world.curl(&["--include", "--connect-to", &to, &url]);
        assert!(
            !refused.stdout.ends_with("200"),
            "{host}: {}",
            refused.shown()
        );
    }
    assert!(world.web.connections().is_empty() && world.evil.connections().is_empty());
    let allowed = world
        .curl(&[&format!("https://{}/x", WEB.to_ascii_uppercase())])
        .ok();
    assert!(allowed.stdout.ends_with("\n200"), "{}", allowed.shown());
}

/// Attack: SSR-01, SSR-05, SSR-07
#[test]
fn a_listed_name_that_resolves_to_a_private_address_is_not_dialled() {
    let world = World::new();
    let dials = world.netns.count_dials(world.gate.uid);
    for address in [
        "127.0.0.1",
        "10.0.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
    ] {
        world.names.set(WEB, address.parse().unwrap());
        // Answers live a second at most; a gate that caches longer would fail the control below.
        std::thread::sleep(std::time::Duration::from_millis(1100));
        let refused = world.curl(&["--include", &format!("https://{WEB}/x")]).ok();
        assert!(
            refused.stdout.contains("upstream_private"),
            "{address}: {}",
            refused.shown()
        );
    }
    assert_eq!(dials.count(), 0);
    assert!(world.web.connections().is_empty());

    world.names.set(WEB, WEB_ADDRESS);
    let allowed = tests::wait::until("the name resolves to its address again", || {
        let allowed = world.curl(&[&format!("https://{WEB}/x")]).ok();
        allowed.stdout.ends_with("\n200").then_some(allowed)
    });
    assert_eq!(allowed.stdout, "recorded\n\n200");
}

/// Attack: SSR-10
#[test]
fn a_private_address_is_reached_only_by_a_service_that_names_it() {
    let policy = World::policy().replace(
        "credential = \"web\"\n",
        "credential = \"web\"\naddress = \"127.0.0.1:8443\"\n",
    );
    let world = World::with_policy(&policy);
    let record = world.path().join("private");
    let address = "127.0.0.1:8443".parse().unwrap();
    let start = |name: &str, address: &str| {
        let (record, address) = (world.path().join(name), address.parse().unwrap());
        tests::upstream::WebHost::start(&world.netns, &record, &world.pki, address)
    };
    let private = tests::upstream::WebHost::start(&world.netns, &record, &world.pki, address);
    let others = [
        start("port", "127.0.0.1:9443"),
        start("neighbour", "127.0.0.2:8443"),
        start("named", "127.0.0.2:443"),
    ];
    world.names.set(GIT, "127.0.0.2".parse().unwrap());
    let dials = world.netns.count_all_dials(world.gate.uid);
    for (url, code) in [
        (format!("https://{WEB}:9443/x"), "port_not_listed"),
        (format!("https://{WEB}:22/x"), "403"),
        (
            "https://127.0.0.1:8443/x".to_owned(),
            "destination_not_listed",
        ),
        (
            "https://127.0.0.1:9443/x".to_owned(),
            "destination_not_listed",
        ),
        ("https://127.0.0.1:22/x".to_owned(), "403"),
        (
            "https://127.0.0.2:8443/x".to_owned(),
            "destination_not_listed",
        ),
        (
            format!("https://{GIT}/acme/web.git/info/refs?service=git-upload-pack"),
            "upstream_private",
        ),
    ] {
        let refused = world.curl(&["--include", &url]);
        assert!(!refused.stdout.ends_with("\n200"), "{}", refused.shown());
        assert!(
            refused.output().contains(code),
            "{url}: {}",
            refused.shown()
        );
    }
    assert_eq!(dials.count(), 0);
    assert!(private.connections().is_empty());
    assert!(others.iter().all(|other| other.connections().is_empty()));
    let allowed = world.curl(&[&format!("https://{WEB}/x")]).ok();
    assert!(allowed.stdout.ends_with("\n200"), "{}", allowed.shown());
    assert!(private.received().contains("GET /x HTTP/1.1"));
    assert_eq!(dials.count(), 1, "control: that one is counted");
    assert!(world.web.connections().is_empty());
    assert!(
        !world.names.questions().iter().any(|name| name == WEB),
        "an address needs no name"
    );
}

/// Attack: CRD-09, SSR-13
#[test]
fn redirects_are_passed_back_and_judged_when_the_client_follows() {
    let world = World::new();
    let to_evil = format!("https://{WEB}/redirect/{EVIL}/x");
    let passed = world.curl(&["--include", &to_evil]).ok();
    assert!(passed.stdout.ends_with("\n302"), "{}", passed.shown());
    assert!(world.evil.connections().is_empty());
    let followed = world.curl(&["--include", "--location", &to_evil]).ok();
    assert!(
        followed.stdout.contains("destination_not_listed"),
        "{}",
        followed.shown()
    );
    assert!(world.evil.connections().is_empty());

    let to_self = format!("https://{WEB}/redirect/{WEB}/there");
    let followed = world.curl(&["--location", &to_self]).ok();
    assert!(
        followed.stdout.ends_with("recorded\n\n200"),
        "{}",
        followed.shown()
    );
}

/// Attack: FRM-15
#[test]
fn a_tunnel_is_judged_request_by_request() {
    let world = World::new();
    let first = format!("https://{WEB}/x");
    let second = format!("https://{WEB}/secret/y");
    let third = format!("https://{WEB}/z");

    let all = world.curl(&["--include", &first, &second, &third]);
    assert!(all.stdout.contains("denied_by_rule"), "{}", all.shown());
    let received = world.web.received();
    assert!(
        received.contains("GET /x ") && received.contains("GET /z "),
        "{received}"
    );
    assert!(!received.contains("/secret/"), "{received}");
}

#[test]
fn an_uid_without_an_identity_is_refused_and_a_known_one_is_not() {
    let world = World::new();
    let stranger = tests::host::uid();
    let url = format!("https://{WEB}/x");
    let proxy = format!("http://{}", tests::gate::ADDRESS);
    let as_uid = |uid: u32| {
        tests::command::Program::new("curl")
            .args([
                "--silent",
                "--show-error",
                "--include",
                "--max-time",
                "30",
                "--proxy",
                &proxy,
            ])
            .arg("--cacert")
            .arg(world.trust())
            .arg(&url)
            .as_uid(uid)
            .in_netns(&world.netns)
            .run()
    };
    for uid in [stranger, 0] {
        let refused = as_uid(uid);
        assert!(
            !refused.stdout.contains("recorded"),
            "{uid}: {}",
            refused.shown()
        );
    }
    assert!(world.web.connections().is_empty());
    assert!(as_uid(world.agent).ok().stdout.contains("recorded"));
}

/// The value of a header field in `curl --include` output.
fn header(output: &str, name: &str) -> Option<String> {
    output.lines().find_map(|line| {
        let (found, value) = line.split_once(':')?;
        found
            .eq_ignore_ascii_case(name)
            .then(|| value.trim().to_owned())
    })
}
