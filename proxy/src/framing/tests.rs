use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

const BOUNDS: Bounds = Bounds {
    bytes: 8192,
    fields: 20,
};

/// What passes of `bytes`, written in pieces of `step`, and what was wrong.
async fn passed(bytes: &[u8], step: usize) -> (Vec<u8>, Option<Fault>) {
    let (mut theirs, ours) = tokio::io::duplex(1 << 20);
    let (mut watched, flag) = Watched::new(ours, BOUNDS);
    let mut seen = Vec::new();
    for piece in bytes.chunks(step) {
        theirs.write_all(piece).await.unwrap();
        // Whatever passes is taken at once, so that each piece is a read of its own.
        let mut buffer = [0; 4096];
        while let Poll::Ready(Ok(read)) = poll_once(watched.read(&mut buffer)).await {
            if read == 0 {
                return (seen, flag.fault());
            }
            seen.extend_from_slice(&buffer[..read]);
        }
    }
    drop(theirs);
    // Nobody answers here: the exchanges are over at once.
    for _ in 0..10 {
        drop(flag.exchanging());
    }
    // A broken body ends in an error.
    let _ = watched.read_to_end(&mut seen).await;
    (seen, flag.fault())
}

async fn poll_once<F: Future>(future: F) -> Poll<F::Output> {
    let mut future = std::pin::pin!(future);
    std::future::poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await
}

const GOOD: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n\
    \r\nPOST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n\n\n\n\n\n\
    POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\na\nb\r\n0\r\nT: 1\r\n\r\n\
    GET /\"{}?q={|}^` HTTP/1.0\r\nHost: a\r\nX:\t\xe9\r\n\r\n";

#[tokio::test]
async fn well_framed_requests_pass_unchanged_in_any_slicing() {
    for step in [1, 2, 7, 1000] {
        let (seen, fault) = passed(GOOD, step).await;
        assert_eq!(fault, None, "step {step}");
        assert_eq!(seen, GOOD, "step {step}");
    }
}

/// What passes of `head` and then `behind` when the gate has answered it, by switching or not.
async fn answered(head: &[u8], behind: &[u8], switches: bool, at_once: bool) -> Vec<u8> {
    let (mut theirs, ours) = tokio::io::duplex(1 << 20);
    let (mut watched, flag) = Watched::new(ours, BOUNDS);
    let mut buffer = [0; 4096];
    theirs.write_all(head).await.unwrap();
    if at_once {
        theirs.write_all(behind).await.unwrap();
    }
    let read = watched.read(&mut buffer).await.unwrap();
    assert_eq!(&buffer[..read], head);
    assert!(
        poll_once(watched.read(&mut buffer)).await.is_pending(),
        "nothing passes before the answer"
    );
    if switches {
        flag.switch();
    }
    drop(flag.exchanging());
    if !at_once {
        theirs.write_all(behind).await.unwrap();
    }
    drop(theirs);
    let mut seen = Vec::new();
    let reading = async {
        loop {
            match watched.read(&mut buffer).await {
                Ok(0) | Err(_) => return,
                Ok(read) => seen.extend_from_slice(&buffer[..read]),
            }
            drop(flag.exchanging());
        }
    };
    let patience = std::time::Duration::from_secs(20);
    tokio::time::timeout(patience, reading).await.unwrap();
    seen
}

/// Attack: FRM-25
#[tokio::test]
async fn what_follows_a_request_to_leave_http_is_followed_unless_the_gate_has_left() {
    let clean = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let both = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    let long = format!("GET / HTTP/1.1\r\nA: {}\r\n\r\n", "b".repeat(9000));
    for head in [
        "CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: WebSocket\r\n\r\n",
    ] {
        for at_once in [true, false] {
            let behind = |bytes: &'static [u8], switches| {
                answered(head.as_bytes(), bytes, switches, at_once)
            };
            let odd = b"\x16\x03\x01\n\n";
            assert_eq!(behind(odd, true).await, odd, "{head}");
            assert_eq!(behind(odd, false).await, STAND_IN, "{head}");
            assert_eq!(behind(both, true).await, both, "{head}");
            assert_eq!(behind(both, false).await, STAND_IN, "{head}");
            assert_eq!(behind(clean, false).await, clean, "control: {head}");
            let seen = answered(head.as_bytes(), long.as_bytes(), false, at_once).await;
            assert_eq!(seen, STAND_IN, "{head}");
        }
    }
    let stated =
        b"CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\nContent-Length: 4\r\n\r\nbodyGET / HTTP/1.1\n";
    let (seen, fault) = passed(stated, 1000).await;
    assert!(fault.is_some(), "its body is a body");
    assert!(seen.ends_with(&[b"body", STAND_IN].concat()));
    let other = b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: h2c\r\n\r\n\x16\x03\x01\n\n";
    let (_, fault) = passed(other, 1000).await;
    assert!(fault.is_some(), "control: any other upgrade is HTTP still");
}

/// Attack: FRM-01, FRM-03, FRM-04, FRM-05, FRM-07, FRM-10, FRM-12, FRM-13, FRM-24, RES-04
#[tokio::test]
async fn nothing_of_a_bad_head_passes_wherever_it_stands() {
    let many = format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(21));
    let long = format!("GET / HTTP/1.1\r\nA: {}\r\n\r\n", "b".repeat(9000));
    let endless = format!("GET /{}", "b".repeat(9000));
    let target = format!("GET /{} HTTP/1.1\r\n\r\n", "b".repeat(9000));
    let bad: &[(&[u8], &str)] = &[
        (
            b"POST / HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
            "ambiguous",
        ),
        (
            b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n",
            "ambiguous",
        ),
        (
            b"POST / HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n",
            "ambiguous",
        ),
        (
            b"POST / HTTP/1.1\r\nContent-Length: +5\r\n\r\n",
            "ambiguous",
        ),
        (
            b"POST / HTTP/1.1\r\nContent-Length: 5,5\r\n\r\n",
            "ambiguous",
        ),
        (
            b"POST / HTTP/1.1\r\nContent-Length: 0x5\r\n\r\n",
            "ambiguous",
        ),
        (
            b"POST / HTTP/1.1\r\nContent-Length: 1 2\r\n\r\n",
            "ambiguous",
        ),
        (b"POST / HTTP/1.1\r\nContent-Length:\r\n\r\n", "ambiguous"),
        (
            b"POST / HTTP/1.1\r\nContent-Length: 18446744073709551615\r\n\r\n",
            "ambiguous",
        ),
        (
            b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
            "ambiguous",
        ),
        (
            b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked, identity\r\n\r\n",
            "ambiguous",
        ),
        (
            b"POST / HTTP/1.1\r\nTransfer-Encoding: xchunked\r\n\r\n",
            "ambiguous",
        ),
        (
            b"POST / HTTP/1.1\r\nTransfer-Encoding: \x0bchunked\r\n\r\n",
            "colon",
        ),
        (
            b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
            "ambiguous",
        ),
        (b"GET / HTTP/1.1\nHost: a\n\n", "bare line feed"),
        (b"GET / HTTP/1.1\r\nHost: a\n\r\n", "bare line feed"),
        (b"\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", "bare line feed"),
        (b"GET / HTTP/1.1\r\nX: a\r\n b\r\n\r\n", "folded"),
        (b"GET / HTTP/1.1\r\n X: a\r\n\r\n", "folded"),
        (b"GET / HTTP/1.1\r\nX : a\r\n\r\n", "colon"),
        (b"GET / HTTP/1.1\r\nX\r\n\r\n", "colon"),
        (b"GET / HTTP/1.1\r\n: a\r\n\r\n", "colon"),
        (b"GET / HTTP/1.1\r\nX: a\rY: b\r\n\r\n", "colon"),
        (b"GET / HTTP/1.1\r\nX: a\0\r\n\r\n", "colon"),
        (b"GET /\r\n\r\n", "first line"),
        (b"GET  / HTTP/1.1\r\n\r\n", "first line"),
        (b"GET / x HTTP/1.1\r\n\r\n", "first line"),
        (b"GET / HTTP/1.2\r\n\r\n", "version"),
        (b"GET / http/1.1\r\n\r\n", "version"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "HTTP/2"),
        (b"G(T / HTTP/1.1\r\n\r\n", "method"),
        (b"GET /\x01 HTTP/1.1\r\n\r\n", "target"),
        (b"GET http:// HTTP/1.1\r\n\r\n", "target"),
        (b"GET /a#b HTTP/1.1\r\n\r\n", "fragment"),
        (b"GET http://a/#b HTTP/1.1\r\n\r\n", "fragment"),
        (b"CONNECT a:443# HTTP/1.1\r\n\r\n", "fragment"),
        (b"\x16\x03\x01\x02", "method"),
        (b"\r\n\r\n\r\n\r\n\r\n\r\n", "empty lines"),
        (many.as_bytes(), "fields"),
        (long.as_bytes(), "bytes"),
        (endless.as_bytes(), "bytes"),
        (target.as_bytes(), "bytes"),
    ];
    let first = b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc";
    for (case, problem) in bad {
        for before in [&b""[..], first] {
            let bytes = [before, case].concat();
            let mut expected = before.to_vec();
            expected.extend_from_slice(STAND_IN);
            for step in [1, 1000, 100_000] {
                let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(120)]);
                let (seen, fault) = passed(&bytes, step).await;
                let text = fault.expect("a fault").refusal().text;
                assert!(text.contains(problem), "{shown}: {text}");
                assert_eq!(
                    String::from_utf8_lossy(&seen),
                    String::from_utf8_lossy(&expected),
                    "{shown}"
                );
            }
        }
    }
}

/// Attack: FRM-08
#[tokio::test]
async fn a_bad_chunk_breaks_its_body_off_and_is_no_head() {
    let head = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
    for chunks in [
        &b"2;a\nxx\r\n0\r\n\r\n"[..],
        b"+2\r\nxx\r\n0\r\n\r\n",
        b"x\r\n",
        b"\r\n",
        b"ffffffffffffffff\r\n",
        b"0\r\nT 1\r\n\r\n",
        b"0\r\nT: 1\n\r\n",
    ] {
        let bytes = [&head[..], chunks].concat();
        for step in [1, 1000] {
            let (seen, fault) = passed(&bytes, step).await;
            assert_eq!(fault, Some(Fault::Ambiguous), "{chunks:?}");
            assert!(
                seen.starts_with(head) && !seen.ends_with(STAND_IN),
                "{chunks:?}"
            );
        }
    }
}

/// Attack: RES-01
#[tokio::test(start_paused = true)]
async fn a_head_that_is_not_finished_in_time_is_told_and_what_never_began_ends() {
    let patience = std::time::Duration::from_secs(30);
    for (begun, expected) in [
        (&b""[..], &b""[..]),
        (b"GET / HTTP/1.1\r\nHost: a\r\n", STAND_IN),
    ] {
        let (mut theirs, ours) = tokio::io::duplex(1024);
        let (watched, flag) = Watched::new(ours, BOUNDS);
        let mut watched = watched.patient(patience);
        // An exchange that takes longer than a head may is none of its affair.
        theirs
            .write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            .await
            .unwrap();
        let mut buffer = [0; 1024];
        assert!(watched.read(&mut buffer).await.unwrap() > 0);
        let long = tokio::time::timeout(patience * 3, watched.read(&mut buffer));
        assert!(long.await.is_err(), "control");
        drop(flag.exchanging());
        let slow = async {
            for byte in begun {
                theirs.write_all(&[*byte]).await.unwrap();
                tokio::time::sleep(std::time::Duration::from_secs(2)).await;
            }
            std::future::pending::<()>().await;
        };
        let began = tokio::time::Instant::now();
        let read = tokio::select! {
            read = watched.read(&mut buffer) => read.unwrap(),
            () = slow => unreachable!(),
        };
        assert_eq!(&buffer[..read], expected);
        assert_eq!(flag.fault(), (read > 0).then_some(Fault::Late));
        assert!(began.elapsed() >= patience);
    }
}

#[tokio::test]
async fn the_end_waits_for_the_exchange_that_is_on() {
    let (mut theirs, ours) = tokio::io::duplex(1024);
    let (mut watched, flag) = Watched::new(ours, BOUNDS);
    let request = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    theirs.write_all(request).await.unwrap();
    let mut buffer = [0; 1024];
    assert_eq!(watched.read(&mut buffer).await.unwrap(), request.len());
    theirs.shutdown().await.unwrap();
    assert!(poll_once(watched.read(&mut buffer)).await.is_pending());
    drop(flag.exchanging());
    assert_eq!(
        watched.read(&mut buffer).await.unwrap(),
        0,
        "and then it comes"
    );
}
