//! Blocks of several sizes, taken, touched and given back; and whole exchanges through a gate in this process, whose
//! client and upstream use the same allocator and so cost as much again. With `TMPDIR` on a tmpfs no disk is waited for.

use std::hint::black_box;
use std::time::{Duration, Instant};

use crate::stand::{Stand, ask, get, usual};
use crate::upstream::Upstream;

const BATCHES: usize = 21;
const SIZES: [usize; 6] = [64, 256, 1024, 4096, 16 * 1024, 64 * 1024];

pub(crate) fn print(how: &str) {
    println!(
        "{:<58}{:>12}",
        format!("memory is given back {how}"),
        "median"
    );
    for size in SIZES {
        let pairs = 20_000;
        let median = median(|| {
            let begun = Instant::now();
            for _ in 0..pairs {
                let mut block: Vec<u8> = Vec::with_capacity(size);
                block.push(1);
                drop(black_box(block));
            }
            begun.elapsed() / pairs
        });
        println!(
            "{:<58}{median:>12.2?}",
            format!("{size} bytes taken and given back")
        );
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(exchanges());
}

async fn exchanges() {
    let upstream = Upstream::start("api.example.com").await;
    let stand = Stand::new(&upstream, &usual(&upstream));
    for (what, host) in [
        ("without a credential", "bare.example.com"),
        ("with one", "api.example.com"),
    ] {
        let mut tls = stand.tunnel(host).await;
        let mut times = Vec::new();
        for _ in 0..BATCHES {
            let exchanges = 200;
            let begun = Instant::now();
            for _ in 0..exchanges {
                let answer = ask(&mut tls, &get(host, "/v1/x")).await;
                assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
            }
            times.push(begun.elapsed() / exchanges);
        }
        times.sort_unstable();
        let median = times[times.len() / 2];
        println!("{:<58}{median:>12.2?}", format!("an exchange, {what}"));
    }
}

fn median(mut batch: impl FnMut() -> Duration) -> Duration {
    let mut times: Vec<Duration> = (0..BATCHES).map(|_| batch()).collect();
    times.sort_unstable();
    times[times.len() / 2]
}
