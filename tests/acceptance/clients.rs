//! The matrix of real clients: each works where policy allows it, says clearly what was refused, and
//! never hangs. Versions are printed; verdicts are compared with `docs/clients.md`.

mod agents;
pub(crate) mod crowds;
mod curl;
mod git;
mod github;
mod packages;
mod presets;
mod protocols;
mod proxmox;
mod python;
mod runtimes;
mod streams;
mod tokens;

use tests::clients::{Clients, Upstream, closed, open};

/// The web server of most rows.
const WEB: &str = "web.portcullis.test";

/// A world with one web server that speaks both versions of HTTP and keeps nothing.
fn plain_web() -> Clients {
    Clients::new(&[plain_server()], &plain_policy(), &[])
}

/// The same for an agent whose own connections are led to the gate.
fn led_web() -> Clients {
    Clients::led(&[plain_server()], &plain_policy())
}

fn plain_policy() -> String {
    open(WEB, &["GET,HEAD /**", "POST,PUT /**"]) + &closed(&[WEB])
}

fn plain_server() -> Upstream {
    Upstream::new(&[WEB], &["plain", "--http2", "--root", "{dir}"])
}

fn web_server() -> Upstream {
    Upstream::new(&[WEB], &["https", "--record", "{dir}/record"])
}

fn url(path: &str) -> String {
    format!("https://{WEB}{path}")
}
