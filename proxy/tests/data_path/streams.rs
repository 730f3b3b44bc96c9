//! Bodies stream, and end with their run or their rule.

use proxy::entrance::client::Client;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::stand::{ask, connect, get, peer, read_until, response, until, usual};
use super::{HOST, code, usual_stand};

#[tokio::test]
async fn bodies_stream_both_ways() {
    let (_upstream, stand) = usual_stand().await;
    let size = 20 * 1024 * 1024;
    let mut tls = stand.tunnel(HOST).await;
    tls.write_all(get(HOST, "/v1/large").as_bytes())
        .await
        .unwrap();
    assert!(response(&mut tls, false).await.len() > size);
    let head = format!("POST /v1/x HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: {size}\r\n\r\n");
    tls.write_all(head.as_bytes()).await.unwrap();
    let block = vec![b'y'; 64 * 1024];
    for _ in 0..size / block.len() {
        tls.write_all(&block).await.unwrap();
    }
    tls.flush().await.unwrap();
    let answer = response(&mut tls, false).await;
    assert!(answer.ends_with(format!("received {size}").as_bytes()));
    let chunked = format!(
        "POST /v1/x HTTP/1.1\r\nHost: {HOST}\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n"
    );
    assert!(ask(&mut tls, &chunked).await.ends_with("received 7"));
    until("both are metered", || {
        let lines = stand.audit();
        let ends = lines.iter().filter(|line| line["kind"] == "response");
        let metered = ends
            .map(|line| line["bytes_in"].as_u64().unwrap() + line["bytes_out"].as_u64().unwrap());
        metered.filter(|bytes| *bytes >= size as u64).count() == 2
    })
    .await;
}

#[tokio::test]
async fn the_first_chunk_arrives_before_the_last_is_made_and_a_closed_run_is_cut() {
    let (_upstream, mut stand) = usual_stand().await;
    let open = stand.run("run-1", None).await;
    let run = open.id().clone();
    let stream = stand.open_as(Client::of_run(open, 200_001));
    let stream = connect(stream, "api.example.com:443").await;
    let mut tls = stand.tls(stream, HOST).await.unwrap();
    tls.write_all(get(HOST, "/v1/hang").as_bytes())
        .await
        .unwrap();
    read_until(&mut tls, "first").await;
    assert!(stand.gate.runs.close(&run, 1, &peer()).unwrap());
    let mut rest = Vec::new();
    // A cut is an end without goodbye.
    let _ = tls.read_to_end(&mut rest).await;
    until("the cut is recorded", || {
        stand
            .audit()
            .iter()
            .any(|line| line["kind"] == "response" && line["reason"] == "cut before the end")
    })
    .await;
}

/// Attack: LIF-16
#[tokio::test]
async fn a_reload_judges_the_next_request_of_an_open_tunnel() {
    let (upstream, stand) = usual_stand().await;
    let mut tls = stand.tunnel(HOST).await;
    assert!(
        ask(&mut tls, &get(HOST, "/v1/x"))
            .await
            .starts_with("HTTP/1.1 200")
    );
    stand.reload("version = 1\n[[service]]\nkind = \"http\"\nhost = \"else.example.com\"\nallow = [\"GET /**\"]\n");
    assert_eq!(
        code(&ask(&mut tls, &get(HOST, "/v1/x")).await),
        "destination_not_listed"
    );
    stand.reload(&usual(&upstream));
    assert!(
        ask(&mut tls, &get(HOST, "/v1/x"))
            .await
            .starts_with("HTTP/1.1 200")
    );
}

/// Attack: LIF-16
#[tokio::test]
async fn a_reload_cuts_a_stream_that_is_no_longer_permitted() {
    let (upstream, stand) = usual_stand().await;
    let mut streams = Vec::new();
    for path in ["/v1/hang", "/v1/hang"] {
        let mut tls = stand.tunnel(HOST).await;
        tls.write_all(get(HOST, path).as_bytes()).await.unwrap();
        read_until(&mut tls, "first").await;
        streams.push(tls);
    }
    let usual = usual(&upstream);
    stand.reload(&format!("{usual}\n# another text that permits the same\n"));
    let none =
        tokio::time::timeout(std::time::Duration::from_millis(200), streams[0].read_u8()).await;
    assert!(none.is_err(), "the stream goes on");
    stand.reload(&usual.replace("* /v1/**", "* /v2/**"));
    for mut stream in streams {
        let mut rest = Vec::new();
        // A cut is an end without goodbye.
        let _ = stream.read_to_end(&mut rest).await;
    }
    until("both cuts are recorded", || {
        let log = stand.audit();
        log.iter()
            .filter(|line| line["reason"] == "cut before the end")
            .count()
            == 2
    })
    .await;
}
