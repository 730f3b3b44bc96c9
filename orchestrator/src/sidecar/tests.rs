use super::*;

fn place() -> Place {
    Place {
        share: "/portcullis".into(),
        boundary: None,
    }
}

fn facts(change: impl FnOnce(&mut Facts)) -> Vec<Refusal> {
    let mut facts = Facts {
        gate_uid: Some(1900),
        capabilities: vec![("effective", 0), ("bounding", 0)],
        ids: Ids::of(1000, 1000),
        ..Facts::default()
    };
    change(&mut facts);
    refusals(&facts, &place())
}

#[test]
fn an_ordinary_user_with_nothing_may_start_and_anything_more_is_named_with_its_remedy() {
    assert_eq!(facts(|_| ()), []);
    let find = |what| Found {
        what,
        path: "/x/y.sock".into(),
    };
    type Change = Box<dyn Fn(&mut Facts)>;
    let cases: [(Change, &str, &str); 11] = [
        (Box::new(|it| it.ids = Ids::of(0, 0)), "root", "user:"),
        (Box::new(|it| it.ids = Ids::of(1000, 0)), "group", "user:"),
        (
            Box::new(|it| it.ids = Ids::of(1900, 1900)),
            "gate's own",
            "user:",
        ),
        (Box::new(|it| it.gate_uid = None), "no gate", "volume"),
        (
            Box::new(|it| it.capabilities[0].1 = 1 << 12),
            "effective: NET_ADMIN",
            "cap_drop: [ALL]",
        ),
        (
            Box::new(|it| it.capabilities[1].1 = 1 << 7),
            "bounding: SETUID",
            "cap_drop: [ALL]",
        ),
        (
            Box::new(|it| it.host_network = true),
            "host's network",
            "network_mode: none",
        ),
        (
            Box::new(|it| it.traced_by_gate_pids = true),
            "gate's processes",
            "pid:",
        ),
        (
            Box::new(move |it| it.found = vec![find(Find::Engine)]),
            "/x/y.sock is a container engine's",
            "volume",
        ),
        (
            Box::new(move |it| it.found = vec![find(Find::Control)]),
            "/x/y.sock is within reach",
            "[control] socket",
        ),
        (
            Box::new(move |it| it.found = vec![find(Find::WritableShare)]),
            "can be written",
            ":ro",
        ),
    ];
    for (change, problem, remedy) in cases {
        let refused = facts(change);
        assert_eq!(refused.len(), 1, "{problem}: {refused:?}");
        assert!(refused[0].problem.contains(problem), "{refused:?}");
        assert!(refused[0].remedy.contains(remedy), "{refused:?}");
    }
}

#[test]
fn every_reason_is_told_at_once() {
    let refused = facts(|it| {
        it.ids = Ids::of(0, 0);
        it.host_network = true;
        it.capabilities[0].1 = 1;
    });
    assert_eq!(refused.len(), 3, "{refused:?}");
}

#[test]
fn the_gates_variables_win_and_a_persons_own_key_stays() {
    let variables: Vec<_> = place().variables(|name| name == "OPENAI_API_KEY").collect();
    let value = |name: &str| {
        let found = variables.iter().find(|(other, _)| other == name);
        found.map(|(_, value)| value.as_str())
    };
    assert_eq!(value("HTTPS_PROXY"), Some(GATE));
    assert_eq!(value("SSL_CERT_FILE"), Some("/portcullis/bundle.pem"));
    assert_eq!(value("ANTHROPIC_API_KEY"), Some(environment::PLACEHOLDER));
    assert_eq!(value("OPENAI_API_KEY"), None);
}

#[test]
fn the_env_file_can_be_read_by_a_shell_and_by_compose() {
    let files = files(GATE, "/portcullis");
    let (_, env) = files.iter().find(|(name, _)| *name == "env").unwrap();
    assert!(
        env.contains("\nHTTPS_PROXY=http://127.0.0.1:3128\n"),
        "{env}"
    );
    assert!(env.contains("\nAPT_CONFIG=/portcullis/apt.conf\n"), "{env}");
    assert!(env.lines().all(|line| line.contains('=')));
    let (_, shell) = files.iter().find(|(name, _)| *name == "env.sh").unwrap();
    assert_eq!(shell.lines().count(), env.lines().count());
    assert!(shell.contains("export JAVA_TOOL_OPTIONS='-D"), "{shell}");
    assert!(!env.contains("KEY=") && !env.contains("TOKEN="), "{env}");
}

#[test]
fn a_gate_elsewhere_is_named_and_files_that_name_another_are_not() {
    let gate = "http://172.31.77.2:3128";
    let env = env(gate, "/portcullis");
    assert!(env.contains(&format!("\nHTTPS_PROXY={gate}\n")), "{env}");
    assert!(env.contains("\nWGETRC=/portcullis/wgetrc\n"), "{env}");
    assert!(
        !env.contains("apt.conf") && !env.contains("127.0.0.1:3128"),
        "{env}"
    );
    // Controls: on loopback it is what the image's file says, and written anew the files are the gate's.
    let image = files(GATE, "/portcullis");
    let (_, file) = image.iter().find(|(name, _)| *name == "env").unwrap();
    assert_eq!(&super::env(GATE, "/portcullis"), file);
    let written = files(gate, "/portcullis");
    let (_, apt) = written
        .iter()
        .find(|(name, _)| *name == "apt.conf")
        .unwrap();
    assert!(apt.contains(gate), "{apt}");
}

#[test]
fn a_resolver_elsewhere_is_warned_of() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("resolv.conf");
    let said = |text: &str| {
        std::fs::write(&path, text).unwrap();
        resolver_warning(&path)
    };
    assert_eq!(said("search x\nnameserver 127.0.0.1\n"), None);
    assert!(said("nameserver 8.8.8.8\nnameserver 127.0.0.1\n").is_some());
    assert!(said("").is_some());
}
