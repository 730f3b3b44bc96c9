//! The matrix of real clients: each works where policy allows it, says clearly what was refused, and
//! never hangs. Versions are printed; verdicts are compared with `docs/clients.md`.

mod curl;
mod git;
mod python;

use tests::clients::{Clients, Upstream, closed, open};

/// The web server of most rows.
const WEB: &str = "web.portcullis.test";

/// A world with one web server that answers GET and POST, `/closed/` apart.
fn web() -> Clients {
    let policy = open(WEB, &["GET,HEAD /**", "POST,PUT /**"]) + &closed(&[WEB]);
    Clients::new(&[web_server()], &policy, &[])
}

fn web_server() -> Upstream {
    Upstream::new(&[WEB], &["https", "--record", "{dir}/record"])
}

fn url(path: &str) -> String {
    format!("https://{WEB}{path}")
}
