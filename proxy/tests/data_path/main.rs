//! The data path as clients meet it: a gate in this process, raw bytes on the client's side, and an
//! upstream that keeps every byte it receives. Each refusal stands beside a clean request that
//! passes.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod agreement;
mod attacks;
mod authorities;
mod behind;
mod caps;
mod certificates;
mod curl;
mod destinations;
mod durability;
mod early;
mod far_side;
mod features;
mod floods;
mod frames;
mod heads;
mod held;
mod hostile;
mod http2;
mod injection;
mod inspected;
mod interim;
mod limits;
mod minted;
mod minted_answers;
mod models;
mod modern;
mod names;
mod oracle;
mod panics;
mod pressure;
mod priced;
mod ranges;
mod reflected;
mod refused;
mod spellings;
mod stand;
mod streams;
mod tls;
mod tokens;
mod unchanged;
mod under_load;
mod upstream;

use stand::{Stand, connect, peer, usual};
use upstream::Upstream;

const HOST: &str = "api.example.com";
const BARE: &str = "bare.example.com";

async fn usual_stand() -> (Upstream, Stand) {
    let upstream = Upstream::start(HOST).await;
    let stand = Stand::new(&upstream, &usual(&upstream));
    (upstream, stand)
}

fn code(answer: &str) -> &str {
    let rest = answer
        .split("x-portcullis-code: ")
        .nth(1)
        .unwrap_or("none\r\n");
    rest.split("\r\n").next().unwrap()
}
