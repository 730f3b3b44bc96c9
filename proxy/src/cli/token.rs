//! `token`: a new token for the token entrance, and what the gate is to be told of it.

use clap::Args;

use super::output::{Exit, fail, say};
use crate::token::generate;

#[derive(Debug, Args)]
#[command(after_help = "\
The agent gets the token, as http://run:TOKEN@ADDRESS:PORT in HTTPS_PROXY and HTTP_PROXY. The gate gets the
digest: as token_sha256 in a [[listen.identity]] of proxy.toml, or in the request that opens a run.

Examples:
  portcullis-proxy token
  portcullis-proxy token --json")]
pub(super) struct TokenArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn token(args: &TokenArgs) -> Exit {
    let Some((token, digest)) = generate() else {
        return fail(&std::io::Error::other("the system gave no random bytes"));
    };
    if args.json {
        let both = serde_json::json!({ "token": token.as_str(), "token_sha256": digest });
        say(&both.to_string());
    } else {
        say(&format!("token         {}", token.as_str()));
        say(&format!("token_sha256  {digest}"));
    }
    Exit::Yes
}
