//! Bodies that are read whole before they are judged: what is inspected is what leaves, with its
//! framing; what cannot be inspected does not, over either protocol and from every entrance.

use std::io::Write as _;

use bytes::Bytes;
use http::StatusCode;
use hyper::body::Frame;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::modern::{Client, Modern, full, sent, whole};
use super::stand::{CANARY, Stand, ask, response, until};
use super::upstream::Upstream;
use super::{HOST, code};

const NEW: &[&str] = &["h2"];
const OLD: &[&str] = &["http/1.1"];
/// Client and upstream.
const PAIRS: [(&[&str], &[&str]); 4] = [(OLD, OLD), (OLD, NEW), (NEW, OLD), (NEW, NEW)];

/// A condition on what is posted to `/v1/echo/64` and `/v1/jobs`, beside a broad rule.
const JOBS: &str = "max_inspected_bytes = 4096\n[[service.when]]\n\
    allow = [\"POST /v1/echo/64\", \"POST /v1/jobs\"]\njson = { \"/state\" = [\"draft\", \"idea\"] }\n";

const GOOD: &str = r#"{ "state" : "draft",  "text":"x"  }"#;

/// A body with what is said of it, and the code of its refusal.
struct Posted {
    what: &'static str,
    body: Vec<u8>,
    kind: &'static str,
    encoding: Option<&'static str>,
    code: &'static str,
}

fn posted(
    what: &'static str,
    body: Vec<u8>,
    kind: &'static str,
    encoding: Option<&'static str>,
    code: &'static str,
) -> Posted {
    Posted {
        what,
        body,
        kind,
        encoding,
        code,
    }
}

fn packed(text: &[u8]) -> Vec<u8> {
    let mut to = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    to.write_all(text).unwrap();
    to.finish().unwrap()
}

fn raw(policy: &str, upstream: &Upstream) -> String {
    format!(
        "version = 1\n[[service]]\nid = \"api\"\nkind = \"http\"\nhost = \"{HOST}\"\naddress = \"{}\"\n\
         ca_file = \"CA_FILE\"\ncredential = \"api\"\nallow = [\"* /v1/**\"]\n{policy}\n",
        upstream.address
    )
}

async fn old_stand(limits: &str) -> (Upstream, Stand) {
    let upstream = Upstream::start(HOST).await;
    let stand = Stand::with_limits(&upstream, &raw(JOBS, &upstream), limits);
    (upstream, stand)
}

#[tokio::test]
async fn the_very_bytes_that_were_inspected_leave_and_others_do_not() {
    let gzip = packed(GOOD.as_bytes());
    let json = "application/json";
    let good: Vec<Posted> = vec![
        posted("plain", GOOD.into(), json, None, ""),
        posted(
            "with a charset",
            GOOD.into(),
            "application/json; charset=\"UTF-8\"",
            None,
            "",
        ),
        posted(
            "another value",
            br#"{"state":"idea"}"#.to_vec(),
            "application/vnd.x+json",
            None,
            "",
        ),
        posted("packed", gzip.clone(), json, Some("gzip"), ""),
        posted("identity", GOOD.into(), json, Some("identity"), ""),
    ];
    let long = format!("{{\"state\":\"draft\",\"x\":\"{}\"}}", "a".repeat(5000));
    let bomb =
        packed(format!("{{\"state\":\"draft\",\"x\":\"{}\"}}", "a".repeat(1 << 20)).as_bytes());
    let mut two = gzip.clone();
    two.extend(&gzip);
    let mut cut = gzip.clone();
    cut.truncate(gzip.len() - 4);
    let (unmet, opaque, beyond) = (
        "condition_not_met",
        "could_not_inspect",
        "inspection_too_large",
    );
    let bad: Vec<Posted> = vec![
        posted(
            "another state",
            br#"{"state":"final"}"#.to_vec(),
            json,
            None,
            unmet,
        ),
        posted("no state", b"{}".to_vec(), json, None, unmet),
        posted(
            "a state within",
            br#"{"x":{"state":"draft"}}"#.to_vec(),
            json,
            None,
            unmet,
        ),
        posted(
            "a list of it",
            br#"{"state":["draft"]}"#.to_vec(),
            json,
            None,
            unmet,
        ),
        posted(
            "a list",
            br#"[{"state":"draft"}]"#.to_vec(),
            json,
            None,
            unmet,
        ),
        posted(
            "twice",
            br#"{"state":"draft","state":"final"}"#.to_vec(),
            json,
            None,
            opaque,
        ),
        posted(
            "in other letters too",
            br#"{"state":"draft","State":"final"}"#.to_vec(),
            json,
            None,
            opaque,
        ),
        posted(
            "in other letters",
            br#"{"STATE":"draft"}"#.to_vec(),
            json,
            None,
            unmet,
        ),
        posted(
            "something behind",
            format!("{GOOD}x").into(),
            json,
            None,
            opaque,
        ),
        posted(
            "not UTF-8",
            b"{\"state\":\"draft\",\"x\":\"\xff\"}".to_vec(),
            json,
            None,
            opaque,
        ),
        posted(
            "nested",
            ("[".repeat(2000) + &"]".repeat(2000)).into(),
            json,
            None,
            opaque,
        ),
        posted("nothing", Vec::new(), json, None, opaque),
        posted("another type", GOOD.into(), "text/plain", None, opaque),
        posted(
            "another charset",
            GOOD.into(),
            "application/json; charset=utf-7",
            None,
            opaque,
        ),
        posted(
            "a form",
            b"state=draft".to_vec(),
            "application/x-www-form-urlencoded",
            None,
            opaque,
        ),
        posted("packed and not said", gzip.clone(), json, None, opaque),
        posted(
            "said and not packed",
            GOOD.into(),
            json,
            Some("gzip"),
            opaque,
        ),
        posted(
            "packed in no known way",
            GOOD.into(),
            json,
            Some("compress"),
            opaque,
        ),
        posted(
            "packed twice",
            packed(&gzip),
            json,
            Some("gzip, gzip"),
            opaque,
        ),
        posted("two of them", two, json, Some("gzip"), opaque),
        posted("cut", cut, json, Some("gzip"), opaque),
        posted("long", long.into(), json, None, beyond),
        posted("a bomb", bomb, json, Some("gzip"), beyond),
    ];
    for (offered, served) in PAIRS {
        let upstream = Modern::start(HOST, served).await;
        let stand = upstream.stand(&upstream.policy(HOST, JOBS));
        let mut client = Client::open(&stand, 1500, HOST, offered).await;
        for Posted {
            what,
            body,
            kind,
            encoding,
            ..
        } in &good
        {
            let case = format!("{what}, {offered:?} to {served:?}");
            let mut request = client
                .request("POST", HOST, "/v1/echo/64")
                .header("content-type", *kind);
            if let Some(encoding) = encoding {
                request = request.header("content-encoding", *encoding);
            }
            let request = request.body(full(body.clone())).unwrap();
            let answer = client.send(request).await.unwrap();
            assert_eq!(answer.status(), StatusCode::OK, "{case}");
            use http_body_util::BodyExt as _;
            let echoed = answer.into_body().collect().await.unwrap().to_bytes();
            assert_eq!(echoed, body.as_slice(), "{case}");
            let seen = upstream.seen().pop().unwrap();
            assert_eq!(
                seen.headers["authorization"],
                format!("Bearer {CANARY}"),
                "{case}"
            );
            assert_eq!(
                seen.headers["content-length"],
                body.len().to_string(),
                "{case}"
            );
        }
        if offered != served {
            continue;
        }
        let before = upstream.seen().len();
        for Posted {
            what,
            body,
            kind,
            encoding,
            code: expected,
        } in &bad
        {
            let case = format!("{what}, {offered:?} to {served:?}");
            if !client.is_http2() {
                // It closes behind a body that was not read to its end.
                client = Client::open(&stand, 1500, HOST, offered).await;
            }
            let mut request = client
                .request("POST", HOST, "/v1/echo/64")
                .header("content-type", *kind);
            if let Some(encoding) = encoding {
                request = request.header("content-encoding", *encoding);
            }
            let request = request.body(full(body.clone())).unwrap();
            let (_, fields, text) = whole(client.send(request).await.unwrap()).await;
            assert_eq!(fields["x-portcullis-code"], *expected, "{case}: {text}");
            assert_eq!(fields["x-portcullis-rule"], "api", "{case}");
            assert!(
                text.contains("hint: ") && !text.contains("final"),
                "{case}: {text}"
            );
        }
        assert_eq!(
            upstream.seen().len(),
            before,
            "{offered:?} to {served:?}: nothing left"
        );
        let log = stand.audit();
        let sent = log.iter().find(|line| line["kind"] == "request").unwrap();
        assert_eq!(sent["facts"]["body"]["bytes"], GOOD.len());
        assert_eq!(sent["facts"]["body"]["sha256"].as_str().unwrap().len(), 64);
        let refused = log.iter().find(|line| line["kind"] == "refusal").unwrap();
        assert_eq!(
            refused["facts"]["body"]["bytes"],
            r#"{"state":"final"}"#.len()
        );
    }
}

/// A broad `allow` beside a condition, and a spelling that only an upstream takes for the same path,
/// are no way round.
#[tokio::test]
async fn a_broad_rule_is_no_way_round_a_condition() {
    let (upstream, stand) = old_stand("idle_timeout_seconds = 60").await;
    let post = |path: &str| {
        format!(
            "POST {path} HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: application/json\r\n\
             Content-Length: 17\r\n\r\n{{\"state\":\"final\"}}"
        )
    };
    for (path, expected) in [
        ("/v1/jobs", "condition_not_met"),
        ("/v1/job%73", "condition_not_met"),
        ("/v1/jobs?x=1", "condition_not_met"),
        ("/v1/jobs/", "ambiguous_path"),
        ("/v1//jobs", "ambiguous_path"),
        ("/v1/JOBS", "ambiguous_path"),
        ("/v1/jobs;a=1", "ambiguous_path"),
    ] {
        let answer = ask(&mut stand.tunnel(HOST).await, &post(path)).await;
        assert_eq!(code(&answer), expected, "{path}: {answer}");
    }
    assert!(upstream.is_untouched());
    let answer = ask(&mut stand.tunnel(HOST).await, &post("/v1/other")).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "control: {answer}");
    let get = format!("GET /v1/jobs HTTP/1.1\r\nHost: {HOST}\r\n\r\n");
    let answer = ask(&mut stand.tunnel(HOST).await, &get).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "control: {answer}");
}

/// Chunked stays chunked, and `Expect` is answered by the gate where it wants to read.
#[tokio::test]
async fn framing_is_kept_and_a_body_that_waits_is_asked_for() {
    let (upstream, stand) = old_stand("idle_timeout_seconds = 60").await;
    let head =
        format!("POST /v1/jobs HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: application/json\r\n");
    let chunked = format!(
        "{head}Transfer-Encoding: chunked\r\n\r\n9\r\n{{\"state\":\r\n8\r\n\"draft\"}}\r\n0\r\n\r\n"
    );
    let answer = ask(&mut stand.tunnel(HOST).await, &chunked).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let text = upstream.text().to_ascii_lowercase();
    assert!(text.contains("transfer-encoding: chunked"), "{text}");
    assert!(!text.contains("content-length"), "{text}");
    assert!(text.contains("\"draft\"}"), "{text}");

    let body = r#"{"state":"idea"}"#;
    let waiting =
        |length: usize| format!("{head}Expect: 100-continue\r\nContent-Length: {length}\r\n\r\n");
    let mut stream = stand.tunnel(HOST).await;
    stream
        .write_all(waiting(body.len()).as_bytes())
        .await
        .unwrap();
    let interim = response(&mut stream, true).await;
    assert!(interim.starts_with(b"HTTP/1.1 100"), "{interim:?}");
    let answer = ask(&mut stream, body).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(!upstream.text().to_ascii_lowercase().contains("expect"));

    // One that says that it is too long is not asked for.
    let mut stream = stand.tunnel(HOST).await;
    stream.write_all(waiting(5000).as_bytes()).await.unwrap();
    let answer = String::from_utf8(response(&mut stream, false).await).unwrap();
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    assert_eq!(code(&answer), "inspection_too_large");
}

/// Whoever leaves early, sends slowly or more than there is room for has sent nothing upstream.
#[tokio::test]
async fn a_body_that_never_comes_whole_never_leaves() {
    let limits = "inspect_seconds = 1\ninspected_bytes = 1024";
    let (upstream, stand) = old_stand(limits).await;
    let head =
        format!("POST /v1/jobs HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: application/json\r\n");
    // Leaves.
    let mut stream = stand.tunnel(HOST).await;
    let part = format!("{head}Content-Length: 16\r\n\r\n{{\"state\":");
    stream.write_all(part.as_bytes()).await.unwrap();
    drop(stream);
    // Is slow.
    let mut stream = stand.tunnel(HOST).await;
    stream.write_all(part.as_bytes()).await.unwrap();
    let answer = String::from_utf8(response(&mut stream, false).await).unwrap();
    assert_eq!(code(&answer), "client_timeout", "{answer}");
    // There is room for one kibibyte in all.
    let long = format!("{{\"state\":\"draft\",\"x\":\"{}\"}}", "a".repeat(2000));
    let request = format!("{head}Content-Length: {}\r\n\r\n{long}", long.len());
    let answer = ask(&mut stand.tunnel(HOST).await, &request).await;
    assert!(answer.starts_with("HTTP/1.1 429"), "{answer}");
    assert_eq!(code(&answer), "limit_reached");
    // Fields behind it.
    let behind = format!(
        "{head}Transfer-Encoding: chunked\r\nTrailer: x-a\r\n\r\n11\r\n{{\"state\":\"draft\"}}\r\n0\r\nx-a: 1\r\n\r\n"
    );
    let answer = ask(&mut stand.tunnel(HOST).await, &behind).await;
    assert_eq!(code(&answer), "could_not_inspect", "{answer}");
    assert!(upstream.is_untouched());
    // The room is given back: the same request passes again and again.
    for _ in 0..4 {
        let request = format!("{head}Content-Length: {}\r\n\r\n{GOOD}", GOOD.len());
        let answer = ask(&mut stand.tunnel(HOST).await, &request).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "control: {answer}");
    }
}

/// HTTP/2 has no 100 to send here: the body is read as it comes.
#[tokio::test]
async fn a_body_over_http2_is_read_to_its_end_before_anything_leaves() {
    let upstream = Modern::start(HOST, NEW).await;
    let stand = upstream.stand(&upstream.policy(HOST, JOBS));
    let mut client = Client::open(&stand, 1500, HOST, NEW).await;
    let (sender, body) = sent();
    let request = client
        .request("POST", HOST, "/v1/jobs")
        .header("content-type", "application/json");
    let request = request.header("expect", "100-continue").body(body).unwrap();
    let halves = async {
        let half = |text: &'static str| Frame::data(Bytes::from(text));
        sender.send(half("{\"state\":")).await.unwrap();
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        assert!(upstream.seen().is_empty(), "half of it is inspected yet");
        sender.send(half("\"draft\"}")).await.unwrap();
        drop(sender);
    };
    let (answer, ()) = tokio::join!(client.send(request), halves);
    assert_eq!(answer.unwrap().status(), StatusCode::OK);
    until("it arrives whole", || {
        upstream.seen().last().is_some_and(|seen| seen.body == 17)
    })
    .await;
}

#[tokio::test]
async fn conditions_on_query_and_fields_are_met_by_what_leaves() {
    let upstream = Upstream::start(HOST).await;
    let more = "[[service.when]]\nallow = [\"GET /v1/search\"]\nquery = { kind = [\"a*\", \"b\"], dry_run = true }\n\
        headers = { x-api-version = \"2024-*\" }\n";
    let stand = Stand::new(&upstream, &raw(more, &upstream));
    let (good, field) = ("kind=abc&dry_run=true", "X-Api-Version: 2024-05\r\n");
    let ask_for = async |query: &str, fields: &str| {
        let request = format!("GET /v1/search?{query} HTTP/1.1\r\nHost: {HOST}\r\n{fields}\r\n");
        ask(&mut stand.tunnel(HOST).await, &request).await
    };
    for query in [
        good,
        "dry_run=true&kind=b&other=1",
        "%6bind=%61&dry_run=true",
    ] {
        let answer = ask_for(query, field).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{query}: {answer}");
    }
    let before = upstream.connections();
    let twice = format!("{field}X-Api-Version: 2024-06\r\n");
    let nominated = format!("{field}Connection: x-api-version\r\n");
    let (unmet, opaque) = ("condition_not_met", "could_not_inspect");
    for (query, fields, expected) in [
        ("", field, unmet),
        ("kind=abc", field, unmet),
        ("kind=c&dry_run=true", field, unmet),
        ("kind=abc&dry_run=false", field, unmet),
        ("kind=abc&dry_run=true&dry_run=false", field, opaque),
        ("kind=abc&dry_run=true&dry_run[]=false", field, opaque),
        ("kind=abc&dry_run=true&DRY_RUN=false", field, opaque),
        ("kind=abc&dry_run=true;dry_run=false", field, opaque),
        ("kind=abc&dry_run=true&dry%5Frun=false", field, opaque),
        ("kind=abc&dry_run=true&x=%zz", field, opaque),
        (good, "", unmet),
        (good, "X-Api-Version: 2023-05\r\n", unmet),
        (good, &twice, opaque),
        (good, &nominated, unmet),
        (good, "X-Api-Version: 2024-\u{e4}\r\n", opaque),
    ] {
        let answer = ask_for(query, fields).await;
        assert_eq!(code(&answer), expected, "{query} {fields}: {answer}");
    }
    assert_eq!(upstream.connections(), before, "nothing left");
}

#[tokio::test]
async fn a_policy_that_comes_judges_what_was_inspected_again() {
    let upstream = Modern::start(HOST, OLD).await;
    let hang = JOBS.replace("/v1/jobs", "/v1/hang");
    let stand = upstream.stand(&upstream.policy(HOST, &hang));
    let mut client = Client::open(&stand, 1500, HOST, OLD).await;
    let request = client
        .request("POST", HOST, "/v1/hang")
        .header("content-type", "application/json");
    let request = request.body(full(GOOD.into())).unwrap();
    let mut answer = client.send(request).await.unwrap().into_body();
    use http_body_util::BodyExt as _;
    assert!(answer.frame().await.unwrap().is_ok());
    // It still meets what is asked: it goes on.
    let same = upstream.policy(HOST, &hang.replace("\"idea\"", "\"other\""));
    stand.reload(&same);
    assert!(
        tokio::time::timeout(std::time::Duration::from_millis(300), answer.frame())
            .await
            .is_err()
    );
    stand.reload(&upstream.policy(HOST, &hang.replace("\"draft\"", "\"other\"")));
    while let Some(Ok(_)) = answer.frame().await {}
}

/// What an attacker reads of a refusal is never what stood in the body.
#[tokio::test]
async fn a_refusal_does_not_repeat_the_body() {
    let (_upstream, stand) = old_stand("idle_timeout_seconds = 60").await;
    let body = r#"{"state":"s3cret-word"}"#;
    let mut stream = stand.tunnel(HOST).await;
    let request = format!(
        "POST /v1/jobs HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    let answer = String::from_utf8_lossy(&answer).into_owned();
    assert!(
        answer.contains("`/state` of the body has another value"),
        "{answer}"
    );
    let log = format!("{:?}", stand.audit());
    assert!(!answer.contains("s3cret-word") && !log.contains("s3cret-word"));
}
