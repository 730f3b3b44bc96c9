//! The token entrance: agents on another machine, known by the token of their run. Nothing of them is
//! served before they have shown it, and it is worth nothing anywhere else.

mod beyond;

use std::fs;

use serde_json::json;
use tests::command::Program;
use tests::wait;
use tests::world::{EVIL, GIT, WEB};

use beyond::{AT, Beyond, lines, token};

#[test]
fn who_shows_nothing_is_asked_on_a_connection_that_stays_and_is_served_when_it_shows_its_token() {
    let beyond = Beyond::new();
    let token = beyond.open("run-a", 1);
    let target = format!("{WEB}:443");
    let login = format!("run:{token}");
    for (at, (host, how)) in [
        ("10.20.0.1", "connect"),
        ("fd20::1", "connect"),
        ("10.20.0.1", "split"),
    ]
    .iter()
    .enumerate()
    {
        let said = beyond.talk(&[
            host,
            "3128",
            &format!("{how} {target} -"),
            &format!("{how} {target} -"),
            &format!("HEAD http://{WEB}/head -"),
            &format!("{how} {target} {login}"),
            &format!("tls {WEB} -"),
            &format!("inside {WEB}/asked-{at} {login}"),
        ]);
        let said = lines(&said);
        for asked in &said[..2] {
            assert!(
                asked.starts_with("407 challenge keep token_missing Portcullis: "),
                "{said:?}"
            );
            assert!(asked.contains("http://run:TOKEN@"), "the remedy: {said:?}");
        }
        assert_eq!(said[2], "407 challenge keep token_missing ", "{said:?}");
        assert!(said[3].starts_with("200 - keep -"), "{said:?}");
        assert_eq!(said[4], "200 - keep - recorded", "{said:?}");
    }
    let received = beyond.world.web.received();
    assert!(received.contains("/asked-0 ") && received.contains("/asked-2 "));
    assert!(!received.contains("/head"), "{received}");
    assert!(
        received.contains(&beyond.world.web_secret.secret),
        "injected"
    );
    let served = &beyond.records("path", "/asked-1")[0];
    assert_eq!(served["entrance"], "token");
    assert_eq!(
        (&served["run"], &served["agent"]),
        (&json!("run-a"), &json!("coder"))
    );
    assert_eq!(served.get("peer_uid"), None);
    // Being asked is no refusal when an answer follows, and is one when none does.
    assert!(beyond.records("code", "token_missing").is_empty());
    let said = beyond.talk(&["10.20.0.1", "3128", &format!("connect {target} -")]);
    assert!(said.starts_with("407 "), "{said}");
    wait::until_true("it is on record", || {
        beyond.records("code", "token_missing").len() == 1
    });
    // A connection on which a body follows, or which is for one request, is not kept.
    let said = beyond.talk(&[
        "10.20.0.1",
        "3128",
        &format!("POST http://{WEB}/x -"),
        "end - -",
    ]);
    let said = lines(&said);
    assert!(said[0].starts_with("407 challenge close "), "{said:?}");
    assert_eq!(said[1], "closed");
    let said = beyond.talk(&["10.20.0.1", "3128", &format!("old {target} -"), "end - -"]);
    assert!(said.starts_with("407 challenge close "), "{said}");
    let said = beyond.talk(&[
        "10.20.0.1",
        "3128",
        &format!("old {target} bearer:{token}"),
        &format!("tls {WEB} -"),
        &format!("inside {WEB}/old -"),
    ]);
    assert_eq!(lines(&said)[1], "200 - keep - recorded", "{said}");
    // Whoever says nothing at all does not stay.
    let silent = beyond.talk(&["10.20.0.1", "3128", "end - -"]);
    assert!(
        lines(&silent)[0].starts_with("open") || silent == "closed\n",
        "{silent}"
    );
    wait::until_true("it is on record", || {
        beyond.records("code", "client_timeout").len() == 1
    });
}

#[test]
fn a_wrong_token_is_refused_at_once_and_many_are_held_back_without_shutting_out_the_right_one() {
    let beyond = Beyond::new();
    let token = beyond.open("run-b", 1);
    let (foreign, _) = self::token();
    let url = format!("https://{WEB}/wrong");
    let target = format!("{WEB}:443");
    let twice =
        format!("raw:Proxy-Authorization: Bearer {token}|Proxy-Authorization: Bearer {token}");
    let mut wrong = vec![
        format!("run:{foreign}"),
        format!("bearer:{foreign}"),
        format!("admin:{token}"),
        format!("run:{}", &token[..token.len() - 1]),
        format!("run:{token}x"),
        format!("run:{}", token.to_uppercase()),
        "run:".to_owned(),
        format!("raw:Proxy-Authorization: Digest {token}"),
        "raw:Proxy-Authorization: Basic ****".to_owned(),
        "raw:Proxy-Authorization:".to_owned(),
        twice,
    ];
    for login in &wrong {
        let said = beyond.talk(&[
            "10.20.0.1",
            "3128",
            &format!("connect {target} {login}"),
            "end - -",
        ]);
        let said = lines(&said);
        assert!(
            said[0].starts_with("403 - close token_unknown Portcullis: "),
            "{login}: {said:?}"
        );
        assert_eq!(said[1], "closed", "{login}");
    }
    wrong.truncate(1);
    let last = (0..30)
        .map(|_| {
            beyond
                .curl(&format!("run:{foreign}@"), &["-D", "-", &url])
                .stdout
        })
        .find(|said| said.contains("limit_reached"));
    let last = last.expect("many are answered otherwise");
    assert!(
        last.contains("429") && last.to_lowercase().contains("retry-after"),
        "{last}"
    );
    let right = beyond.curl(&format!("run:{token}@"), &[&url]);
    assert_eq!(right.stdout, "recorded\n\n200 200", "{}", right.shown());
    let received = beyond.world.web.received();
    assert_eq!(received.matches("/wrong").count(), 1, "{received}");
    assert!(!beyond.records("code", "token_unknown").is_empty());
}

#[test]
fn a_token_ends_with_its_run_and_never_leaves_the_gate() {
    let beyond = Beyond::new();
    let (token, digest) = self::token();
    beyond.put("run-c", 1, &digest);
    let login = format!("run:{token}@");
    let url = format!("https://{WEB}/drip/2000");
    let mut stream = Program::new("curl")
        .args(["-sS", "-o", "/dev/null", "--cacert"])
        .arg(beyond.world.trust())
        .args(["-x", &format!("http://{login}{AT}"), &url])
        .as_uid(beyond.outsider)
        .in_netns(&beyond.world.netns)
        .spawn();
    wait::until_true("the stream flows", || {
        beyond.world.web.received().contains("/drip/2000")
    });
    // Nobody else may take the token, and its digest is nothing to show.
    let (status, body) = beyond.put_answer("thief", 1, &digest);
    assert_eq!(status, 409, "{body}");
    assert!(body.contains("token_taken"), "{body}");
    let shown = beyond.curl(&format!("run:{digest}@"), &[&url]);
    assert!(shown.stdout.ends_with("000 403"), "{}", shown.shown());
    let control = beyond.world.control();
    let listed = control.call("GET", "/v1/runs", None).body;
    assert!(listed.contains("\"token\":true"), "{listed}");
    assert!(
        !listed.contains(&token) && !listed.contains(&digest),
        "{listed}"
    );

    control.call("DELETE", "/v1/runs/run-c?epoch=1", None).ok();
    let status = wait::until("the stream is cut", || stream.try_wait().unwrap());
    assert!(!status.success());
    let late = beyond.curl(&login, &[&format!("https://{WEB}/late")]);
    assert!(late.stdout.ends_with("000 403"), "{}", late.shown());
    let (status, body) = beyond.put_answer("run-c", 1, &digest);
    assert_eq!(status, 409, "an ended epoch: {body}");
    beyond.put("run-c", 2, &digest);
    let again = beyond.curl(&login, &[&format!("https://{WEB}/again")]);
    assert_eq!(again.stdout, "recorded\n\n200 200", "{}", again.shown());
    let nobody = json!({
        "grant": { "company": "acme", "agent": "coder", "run": "nobody", "profile": "default" },
        "epoch": 1, "lease_seconds": 600,
    });
    let nobody = control.call("PUT", "/v1/runs/nobody", Some(&nobody));
    assert_eq!(nobody.status, 400, "{}", nobody.body);

    // In no request, record or line of the log: neither the token nor what clients make of it.
    let pair = Program::new("base64")
        .args(["-w0"])
        .input(&format!("run:{token}"))
        .run()
        .ok()
        .stdout;
    let kept = [
        beyond.world.web.received(),
        fs::read_to_string(beyond.world.gate.audit_file()).unwrap(),
        beyond.world.gate.log(),
    ];
    for text in kept {
        assert!(!text.is_empty());
        for form in [&token, &pair, &digest] {
            assert!(!text.contains(form.as_str()), "{form} is in {text}");
        }
    }
    assert!(!beyond.world.web.received().contains("/late"));
}

#[test]
fn a_token_makes_nobody_else_of_whom_the_kernel_vouches_for() {
    let beyond = Beyond::new();
    let wide = beyond.open("run-d", 1);
    let narrow = &beyond.known.0;
    let at = |login: &str| format!("http://{login}127.0.0.1:3128");
    let url = |path: &str| format!("https://{WEB}/{path}");

    // Control: each token is judged by the policy of its own profile.
    let served = beyond.curl(&format!("run:{wide}@"), &[&url("wide")]);
    assert_eq!(served.stdout, "recorded\n\n200 200", "{}", served.shown());
    let served = beyond.curl(&format!("run:{narrow}@"), &[&url("narrow/x")]);
    assert_eq!(served.stdout, "recorded\n\n200 200", "{}", served.shown());
    let refused = beyond.curl(&format!("run:{narrow}@"), &[&url("wide-for-narrow")]);
    assert!(
        refused.stdout.contains("path_not_allowed"),
        "{}",
        refused.shown()
    );
    let unlisted = beyond.curl(&format!("run:{wide}@"), &[&format!("https://{EVIL}/x")]);
    assert!(
        unlisted.stdout.contains("destination_not_listed"),
        "{}",
        unlisted.shown()
    );

    // On the entrance for users it is taken off and means nothing: a known user stays who it is, a
    // stranger stays one.
    let agent = beyond.world.agent;
    let served = beyond.curl_as(agent, &at(&format!("run:{narrow}@")), &[&url("as-user")]);
    assert_eq!(served.stdout, "recorded\n\n200 200", "{}", served.shown());
    let record = &beyond.records("path", "/as-user")[0];
    assert_eq!(
        (&record["entrance"], &record["peer_uid"]),
        (&json!("uid"), &json!(agent))
    );
    let stranger = beyond.curl_as(
        beyond.outsider,
        &at(&format!("run:{wide}@")),
        &[&url("stranger")],
    );
    assert!(stranger.stdout.ends_with("000 403"), "{}", stranger.shown());
    // And a known user is not let in by a token.
    let other = beyond.curl_as(agent, &format!("http://run:{wide}@{AT}"), &[&url("climb")]);
    assert!(other.stdout.ends_with("000 403"), "{}", other.shown());
    let unknown = beyond.records("code", "identity_unknown");
    assert_eq!(unknown.len(), 2, "{unknown:?}");
    assert_eq!(unknown[1]["entrance"], "token");
    let received = beyond.world.web.received();
    for path in ["/stranger", "/climb", "/wide-for-narrow"] {
        assert!(!received.contains(path), "{received}");
    }
    assert!(!beyond.world.names.questions().contains(&EVIL.to_owned()));
}

#[test]
fn each_request_of_a_connection_shows_the_same_token() {
    let beyond = Beyond::new();
    let one = beyond.open("run-e", 1);
    let other = beyond.open("run-f", 1);
    let bind = || std::net::TcpListener::bind(("93.184.215.20", 80)).unwrap();
    let listener = beyond.world.netns.run(bind).join().unwrap();
    std::thread::spawn(move || {
        use std::io::{Read, Write};
        for mut client in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nplain";
                while client.read(&mut [0; 4096]).is_ok_and(|read| read > 0) {
                    let _gone = client.write_all(answer);
                }
            });
        }
    });
    let plain = "http://plain.portcullis.test/open";
    let said = beyond.talk(&[
        "10.20.0.1",
        "3128",
        &format!("GET {plain}/1 run:{one}"),
        &format!("GET {plain}/2 bearer:{one}"),
        &format!("GET {plain}/3 -"),
        &format!("GET {plain}/4 run:{one}"),
        &format!("GET {plain}/5 run:{other}"),
        "end - -",
    ]);
    let said = lines(&said);
    assert_eq!(said[0], "200 - keep - plain", "{said:?}");
    assert_eq!(said[1], "200 - keep - plain", "{said:?}");
    assert!(
        said[2].starts_with("407 challenge keep token_missing"),
        "{said:?}"
    );
    assert_eq!(said[3], "200 - keep - plain", "{said:?}");
    assert!(said[4].starts_with("403 - close token_unknown"), "{said:?}");
    assert_eq!(said[5], "closed");
    let of = |path: &str| beyond.records("path", path).len();
    assert_eq!((of("/open/1"), of("/open/5")), (2, 0));

    // What cannot be read is refused on this side of the door as on the other.
    for (head, code) in [
        (
            format!("GET {plain}/x HTTP/1.1\\nHost: plain.portcullis.test\\n\\n"),
            "malformed_request",
        ),
        (
            "\\x16\\x03\\x01\\x00\\x05hello\\r\\n\\r\\n".to_owned(),
            "malformed_request",
        ),
        (
            format!(
                "GET {plain}/x HTTP/1.1\\r\\nHost: a\\r\\nContent-Length: 3\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n"
            ),
            "malformed_request",
        ),
        (
            format!(
                "GET {plain}/x HTTP/1.1\\r\\nX: {}\\r\\n\\r\\n",
                "a".repeat(100_000)
            ),
            "head_too_large",
        ),
    ] {
        let said = beyond.talk(&["10.20.0.1", "3128", &format!("raw - {head}")]);
        assert!(said.contains(code), "{}: {said}", &head[..40]);
    }
    // A tunnel is as everywhere: it leads where it says, and nowhere else.
    let target = format!("{WEB}:443");
    let said = beyond.talk(&[
        "10.20.0.1",
        "3128",
        &format!("connect {target} run:{one}"),
        &format!("tls {WEB} -"),
        &format!("inside {GIT}/x -"),
    ]);
    assert!(lines(&said)[1].contains("authority_mismatch"), "{said}");
}
