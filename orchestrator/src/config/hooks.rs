//! `[hooks]` of `orchestrator.toml`: the entrance of webhooks. Without it there is none.

use std::net::SocketAddr;
use std::path::PathBuf;

use toml::de::{DeTable, DeValue};

use super::document::{Document, kind};

const KEYS: [&str; 2] = ["socket", "listen"];

/// Where deliveries come in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hooks {
    /// A unix socket that a server in front connects to.
    Socket(PathBuf),
    /// A port of this machine's own.
    Loopback(SocketAddr),
}

pub(super) fn read(document: &mut Document<'_>, table: &DeTable<'_>) -> Option<Hooks> {
    let value = table.get("hooks")?;
    let DeValue::Table(section) = value.get_ref() else {
        let problem = format!("is {}, must be a table", kind(value.get_ref()));
        document.say(
            value.span(),
            "hooks",
            problem,
            "write [hooks] on a line of its own",
        );
        return None;
    };
    document.unknown("hooks.", section, &KEYS);
    let (socket, listen) = (section.get("socket"), section.get("listen"));
    if socket.is_some() == listen.is_some() {
        let problem = "must have one of socket and listen";
        let hint = "write socket = \"/run/portcullis/hooks.sock\" or listen = \"127.0.0.1:3129\"";
        document.say(value.span(), "hooks", problem, hint);
        return None;
    }
    if socket.is_some() {
        return Some(Hooks::Socket(document.path(section, "socket", None)));
    }
    let text = document.text(section, "listen")?;
    match text.get_ref().parse::<SocketAddr>() {
        Ok(address) if address.ip().is_loopback() => Some(Hooks::Loopback(address)),
        Ok(_) | Err(_) => {
            let problem = format!("`{}` is no loopback address with a port", text.get_ref());
            let hint = "write 127.0.0.1:PORT; a server with TLS in front of it brings what comes from outside";
            document.say(text.span(), "hooks.listen", problem, hint);
            None
        }
    }
}
