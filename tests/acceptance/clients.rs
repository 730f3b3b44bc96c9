//! The matrix of real clients: each works where policy allows it, says clearly what was refused, and
//! never hangs. Versions are printed; verdicts are compared with `docs/clients.md`.

mod agents;
pub(crate) mod crowds;
mod curl;
mod git;
mod github;
mod packages;
mod proxmox;
mod python;
mod runtimes;
mod streams;

use tests::clients::{Clients, Upstream, closed, open};

/// The web server of most rows.
const WEB: &str = "web.portcullis.test";

/// A world with one web server that speaks both versions of HTTP and keeps nothing.
fn plain_web() -> Clients {
    let policy = open(WEB, &["GET,HEAD /**", "POST,PUT /**"]) + &closed(&[WEB]);
    let words = ["plain", "--http2", "--root", "{dir}"];
    Clients::new(&[Upstream::new(&[WEB], &words)], &policy, &[])
}

fn web_server() -> Upstream {
    Upstream::new(&[WEB], &["https", "--record", "{dir}/record"])
}

fn url(path: &str) -> String {
    format!("https://{WEB}{path}")
}
