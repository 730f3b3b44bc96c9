//! What models take: read from their answers, recorded, and held to what their askers may take.

use std::io::Write as _;
use std::sync::{Arc, Mutex};

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::stand::{CANARY, Stand, until};
use super::upstream::{Log, Upstream, identity};
use super::{HOST, code};

/// A model API that answers each request with the next of these.
pub(super) struct Model {
    upstream: Upstream,
    answers: Arc<Mutex<Vec<Answer>>>,
    again: Arc<Mutex<Option<Answer>>>,
}

/// One answer: fields, and the body in pieces. Without an end it is left open, or broken off.
#[derive(Clone)]
pub(super) struct Answer {
    fields: &'static str,
    pieces: Vec<Vec<u8>>,
    end: End,
}

#[derive(Clone, Copy, PartialEq)]
pub(super) enum End {
    Whole,
    Open,
    Broken,
}

impl Answer {
    pub(super) fn events(text: &str) -> Self {
        Self {
            fields: "Content-Type: text/event-stream\r\n",
            pieces: text.as_bytes().chunks(7).map(<[u8]>::to_vec).collect(),
            end: End::Whole,
        }
    }

    pub(super) fn ending(mut self, end: End) -> Self {
        self.end = end;
        self
    }
}

impl Model {
    pub(super) async fn start() -> Self {
        let made = identity(HOST);
        let acceptor = TlsAcceptor::from(Arc::new(made.config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let upstream = Upstream {
            address: listener.local_addr().unwrap(),
            log: Log::default(),
            ca: made.ca,
            pin: made.pin,
        };
        let answers: Arc<Mutex<Vec<Answer>>> = Arc::default();
        let again: Arc<Mutex<Option<Answer>>> = Arc::default();
        let (queue, usual) = (Arc::clone(&answers), Arc::clone(&again));
        let log = Arc::clone(&upstream.log);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, queue, usual) = (acceptor.clone(), queue.clone(), usual.clone());
                let log = Arc::clone(&log);
                tokio::spawn(async move {
                    let Ok(mut stream) = acceptor.accept(stream).await else {
                        return;
                    };
                    let mut seen = Vec::new();
                    while !seen.ends_with(b"{}") && !seen.ends_with(b"{}}") {
                        if stream.read_buf(&mut seen).await.unwrap_or(0) == 0 {
                            return;
                        }
                    }
                    log.lock().unwrap().push(seen);
                    let next = queue.lock().unwrap().pop();
                    let answer = next.or_else(|| usual.lock().unwrap().clone());
                    reply(&mut stream, answer.expect("an answer")).await;
                });
            }
        });
        Self {
            upstream,
            answers,
            again,
        }
    }

    /// A gate before it, with these keys in its service and these lines in `[allowance]`.
    pub(super) fn stand(&self, keys: &str, allowance: &str) -> Stand {
        let policy = format!(
            "version = 1\n[[service]]\nid = \"model\"\nkind = \"http\"\nhost = \"{HOST}\"\n\
             address = \"{}\"\nca_file = \"CA_FILE\"\nallow = [\"POST /v1/**\"]\n{keys}\n",
            self.upstream.address
        );
        let limits = format!("idle_timeout_seconds = 60\n[allowance]\n{allowance}\n");
        Stand::with_limits(&self.upstream, &policy, &limits)
    }

    fn answer(&self, answer: Answer) {
        self.answers.lock().unwrap().push(answer);
    }

    pub(super) fn always(&self, answer: Answer) {
        *self.again.lock().unwrap() = Some(answer);
    }

    pub(super) fn asked(&self) -> usize {
        self.upstream.connections()
    }
}

async fn reply(stream: &mut (impl AsyncWriteExt + AsyncReadExt + Unpin), answer: Answer) {
    let head = format!(
        "HTTP/1.1 200 OK\r\n{}Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n",
        answer.fields
    );
    // A gate that has cut the stream is what some of these are about.
    let _ = stream.write_all(head.as_bytes()).await;
    for piece in answer.pieces {
        let _ = stream
            .write_all(format!("{:x}\r\n", piece.len()).as_bytes())
            .await;
        let _ = stream.write_all(&piece).await;
        let _ = stream.write_all(b"\r\n").await;
        let _ = stream.flush().await;
    }
    match answer.end {
        End::Whole => {
            let _ = stream.write_all(b"0\r\n\r\n").await;
            let _ = stream.flush().await;
            let _ = stream.shutdown().await;
        }
        End::Open => {
            let _ = stream.read_u8().await;
        }
        End::Broken => {}
    }
}

/// Asks once, and reads to the end of the connection.
pub(super) async fn ask(stand: &Stand) -> String {
    post(stand, "{}").await
}

/// The same with a body.
pub(super) async fn post(stand: &Stand, body: &str) -> String {
    let mut tls = stand.tunnel(HOST).await;
    let request = format!(
        "POST /v1/x HTTP/1.1\r\nHost: {HOST}\r\nAccept-Encoding: gzip, compress\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    tls.write_all(request.as_bytes()).await.unwrap();
    tls.flush().await.unwrap();
    let mut all = Vec::new();
    // What is cut ends without a goodbye.
    let _ = tls.read_to_end(&mut all).await;
    let told = String::from_utf8_lossy(&all).into_owned();
    match told.split_once("\r\n\r\n") {
        Some((head, body))
            if head
                .to_ascii_lowercase()
                .contains("transfer-encoding: chunked") =>
        {
            format!("{head}\r\n\r\n{}", joined(body))
        }
        _ => told,
    }
}

/// A body without the lines that part it; [`WHOLE`] behind one that came to its end.
fn joined(body: &str) -> String {
    let (mut rest, mut out) = (body, String::new());
    while let Some((size, behind)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap_or(0);
        if size == 0 {
            return out + WHOLE;
        }
        out.push_str(behind.get(..size).unwrap_or(behind));
        rest = behind.get(size + 2..).unwrap_or_default();
    }
    out
}

const WHOLE: &str = "(whole)";

/// The ends of permitted requests.
fn ends(stand: &Stand) -> Vec<Value> {
    let log = stand.audit().into_iter();
    log.filter(|line| line["kind"] == "response").collect()
}

pub(super) async fn ended(stand: &Stand, count: usize) -> Vec<Value> {
    until("every request has ended", || ends(stand).len() >= count).await;
    ends(stand)
}

pub(super) fn openai(input: u64, output: u64) -> String {
    format!(
        "data: {{\"model\":\"gpt-5\",\"choices\":[{{\"delta\":{{\"content\":\"Hi\"}}}}]}}\n\n\
         data: {{\"model\":\"gpt-5\",\"choices\":[],\"usage\":{{\"prompt_tokens\":{input},\"completion_tokens\":{output},\
         \"prompt_tokens_details\":{{\"cached_tokens\":10}}}}}}\n\ndata: [DONE]\n\n"
    )
}

fn packed(kind: &str, text: &str) -> Vec<u8> {
    let text = text.as_bytes();
    match kind {
        "gzip" => {
            let mut to = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            to.write_all(text).unwrap();
            to.finish().unwrap()
        }
        "br" => {
            let mut to = brotli::CompressorWriter::new(Vec::new(), 4096, 1, 18);
            to.write_all(text).unwrap();
            to.into_inner()
        }
        _ => zstd::stream::encode_all(text, 1).unwrap(),
    }
}

#[tokio::test]
async fn what_an_answer_took_is_recorded_packed_or_not_with_a_credential_or_without() {
    for credential in ["", "credential = \"api\""] {
        for kind in ["", "gzip", "br", "zstd"] {
            let case = format!("{credential:?} {kind:?}");
            let model = Model::start().await;
            let stand = model.stand(&format!("usage = \"openai\"\n{credential}"), "");
            let mut answer = Answer::events(&openai(110, 20));
            if !kind.is_empty() {
                answer.fields = match kind {
                    "gzip" => "Content-Encoding: gzip\r\n",
                    "br" => "Content-Encoding: br\r\n",
                    _ => "Content-Encoding: zstd\r\n",
                };
                let body = packed(kind, &openai(110, 20));
                answer.pieces = body.chunks(7).map(<[u8]>::to_vec).collect();
            }
            model.answer(answer);
            let told = ask(&stand).await;
            assert!(told.starts_with("HTTP/1.1 200"), "{case}: {told}");
            let end = &ended(&stand, 1).await[0];
            assert_eq!(
                (&end["tokens_in"], &end["tokens_out"]),
                (&110.into(), &20.into()),
                "{case}"
            );
            // 100 at 1.25, 10 at 0.125 and 20 at 10 dollars a million.
            assert_eq!(end["cost_microusd"], 327, "{case}: {end}");
            let sent = model.upstream.text().to_ascii_lowercase();
            assert!(sent.contains("accept-encoding: gzip\r\n"), "{case}: {sent}");
        }
    }
    let model = Model::start().await;
    let stand = model.stand("", "");
    model.answer(Answer::events(&openai(110, 20)));
    ask(&stand).await;
    assert!(
        ended(&stand, 1).await[0].get("tokens_in").is_none(),
        "control"
    );
}

/// The name is the upstream's own word: that of an answer which was cut for what it says is not kept.
#[tokio::test]
async fn the_model_that_answered_is_recorded_and_no_secret_by_its_name() {
    let named = |name: &str| openai(110, 20).replace("gpt-5", name);
    for (name, kept) in [("gpt-5-mini", true), (CANARY, false)] {
        let model = Model::start().await;
        let stand = model.stand("usage = \"openai\"\ncredential = \"api\"", "");
        model.answer(Answer::events(&named(name)));
        ask(&stand).await;
        let end = &ended(&stand, 1).await[0];
        let told = end["facts"]["model"].as_str();
        assert_eq!(told, kept.then_some(name), "{end}");
        let lines = serde_json::to_string(&stand.audit()).unwrap();
        assert!(!lines.contains(CANARY), "{lines}");
    }
}

#[tokio::test]
async fn what_is_spent_is_refused_for_good_and_says_what_was_spent() {
    let model = Model::start().await;
    model.always(Answer::events(&openai(30, 30)));
    let limit = "[[allowance.limit]]\nper = \"agent\"\ntokens = 100";
    let stand = model.stand("usage = \"openai\"", limit);
    for _ in 0..2 {
        let told = ask(&stand).await;
        assert!(
            told.starts_with("HTTP/1.1 200") && told.contains("[DONE]"),
            "{told}"
        );
    }
    ended(&stand, 2).await;
    let told = ask(&stand).await;
    assert!(told.starts_with("HTTP/1.1 403"), "{told}");
    assert_eq!(code(&told), "allowance_spent");
    assert!(
        told.contains("agent/acme/coder is spent: 120 tokens of 100 tokens"),
        "{told}"
    );
    assert!(
        told.contains("hint") && told.contains("x-portcullis-rule: model"),
        "{told}"
    );
    assert!(!told.to_ascii_lowercase().contains("retry-after"), "{told}");
    assert_eq!(model.asked(), 2, "nothing left");
    assert_eq!(stand.refusals(), ["allowance_spent"]);
    let view = stand.gate.allowance_view();
    let coder = view
        .iter()
        .find(|one| one.name == "agent/acme/coder")
        .unwrap();
    assert_eq!((coder.spent.tokens, coder.spent.requests), (120, 2));
    assert_eq!(coder.reserved.tokens, 0);
}

/// A budget that is overrun while its answer is under way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_streams_at_once_never_take_more_than_one_reservation_over() {
    let model = Model::start().await;
    // Each takes exactly what is reserved for it: ten read and 4,086 written.
    model.always(Answer::events(&openai(10, 4086)));
    let limit = "[[allowance.limit]]\nper = \"agent\"\nusd = \"100\"\ntokens = 50000";
    let stand = Arc::new(model.stand("usage = \"openai\"", limit));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..64 {
        let stand = Arc::clone(&stand);
        tasks.spawn(async move { ask(&stand).await });
    }
    let told = tasks.join_all().await;
    let served = told
        .iter()
        .filter(|told| told.starts_with("HTTP/1.1 200"))
        .count();
    let refused = told
        .iter()
        .filter(|told| code(told) == "allowance_spent")
        .count();
    assert_eq!(served + refused, 64, "{told:?}");
    assert!(served >= 10, "{served} were served");
    ended(&stand, served).await;
    let view = stand.gate.allowance_view();
    let coder = view
        .iter()
        .find(|one| one.name == "agent/acme/coder")
        .unwrap();
    assert!(coder.spent.tokens <= 50_000 + 4_096, "{coder:?}");
    assert_eq!(coder.reserved.tokens, 0, "all is settled");
}

#[tokio::test]
async fn a_stream_that_takes_more_than_is_left_is_cut_and_the_next_request_is_told() {
    let part = |count: u64| {
        format!(
            "data: {{\"candidates\":[{{}}],\"usageMetadata\":{{\"promptTokenCount\":10,\"candidatesTokenCount\":{count}}},\"modelVersion\":\"gemini-2.5-flash\"}}\n\n"
        )
    };
    let model = Model::start().await;
    let text: String = [10, 4_000, 9_000, 90_000].into_iter().map(part).collect();
    model.answer(Answer::events(&text).ending(End::Open));
    let limit = "[[allowance.limit]]\nper = \"run\"\ntokens = 8000";
    let stand = model.stand("usage = \"google\"", limit);
    let told = ask(&stand).await;
    assert!(told.starts_with("HTTP/1.1 200"), "{told}");
    assert!(
        told.contains("\"candidatesTokenCount\":4000"),
        "it went by: {told}"
    );
    assert!(!told.ends_with(WHOLE), "it ends as if it were whole");
    let end = &ended(&stand, 1).await[0];
    assert_eq!(end["code"], "allowance_spent", "{end}");
    assert!(
        end["reason"]
            .as_str()
            .unwrap()
            .contains("run/uid-1500 is spent"),
        "{end}"
    );
    let told = ask(&stand).await;
    assert_eq!(code(&told), "allowance_spent", "{told}");
    assert!(told.contains("of 8000 tokens"), "{told}");
}

#[tokio::test]
async fn a_stream_that_says_nothing_or_breaks_off_costs_what_was_reserved() {
    let silent = "data: {\"model\":\"gpt-5\",\"choices\":[{\"delta\":{\"content\":\"Hi\"}}]}\n\n";
    for end in [End::Whole, End::Broken] {
        let model = Model::start().await;
        model.answer(Answer::events(silent).ending(end));
        let limit = "[[allowance.limit]]\nper = \"company\"\ntokens = 100000\nusd = \"5\"";
        let stand = model.stand("usage = \"openai\"", limit);
        ask(&stand).await;
        let line = &ended(&stand, 1).await[0];
        let view = stand.gate.allowance_view();
        let acme = view.iter().find(|one| one.name == "company/acme").unwrap();
        assert_eq!(acme.spent.tokens, 4096, "{line}");
        assert!(
            line["cost_microusd"].as_u64().unwrap() > 0,
            "never nothing: {line}"
        );
        // The control: one that says so costs what it says.
        model.answer(Answer::events(&openai(10, 5)));
        ask(&stand).await;
        ended(&stand, 2).await;
        let view = stand.gate.allowance_view();
        let acme = view.iter().find(|one| one.name == "company/acme").unwrap();
        assert_eq!(acme.spent.tokens, 4096 + 15);
    }
}

#[tokio::test]
async fn requests_bytes_and_rates_are_held_to_as_well() {
    let model = Model::start().await;
    let mut answer = Answer::events("x");
    answer.pieces = vec![vec![b'x'; 64 * 1024]; 64];
    model.always(answer);
    let limit = "[[allowance.limit]]\nper = \"agent\"\nbytes = 1000000\n\
                 [[allowance.limit]]\nper = \"company\"\nrequests = 2\nwindow = \"minute\"";
    let stand = model.stand("", limit);
    let told = ask(&stand).await;
    assert!(told.starts_with("HTTP/1.1 200"), "{}", told.len());
    assert!(told.len() < 2_000_000, "{} bytes went by", told.len());
    let end = &ended(&stand, 1).await[0];
    assert_eq!(end["code"], "allowance_spent", "{end}");
    let told = ask(&stand).await;
    assert!(
        code(&told) == "allowance_spent" && told.contains("of 1000000 bytes"),
        "{told}"
    );

    let model = Model::start().await;
    model.always(Answer::events(&openai(10, 1)));
    let limit = "[[allowance.limit]]\nper = \"company\"\nrequests = 2\nwindow = \"minute\"";
    let stand = model.stand("", limit);
    let mut refused = 0;
    // The minute may end between two of them, but not between all.
    for _ in 0..6 {
        let told = ask(&stand).await;
        if told.starts_with("HTTP/1.1 429") {
            assert_eq!(code(&told), "allowance_waits", "{told}");
            assert!(
                told.to_ascii_lowercase().contains("\r\nretry-after: "),
                "{told}"
            );
            refused += 1;
        }
    }
    assert!((2..=4).contains(&refused), "{refused}");

    let stand = model.stand("rate = \"2/hour\"", "");
    for _ in 0..2 {
        assert!(ask(&stand).await.starts_with("HTTP/1.1 200"));
    }
    let told = ask(&stand).await;
    assert_eq!(code(&told), "rate_limited", "{told}");
    assert!(told.starts_with("HTTP/1.1 429"), "{told}");
    let lower = told.to_ascii_lowercase();
    let seconds = lower.split("retry-after: ").nth(1).unwrap();
    let seconds: u64 = seconds.split("\r\n").next().unwrap().parse().unwrap();
    assert!((1700..=1800).contains(&seconds), "{seconds}");
}
