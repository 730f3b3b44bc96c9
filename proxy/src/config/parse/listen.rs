//! `[listen]`: where clients may come in, and who they are there.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use policy::grant::TokenDigest;

use super::{OVERFLOW_UID, known_profile, label};
use crate::config::document::{At, Section};
use crate::config::{AddressIdentity, Identity, Listen, Profile, TokenIdentity};

pub(super) fn listen(
    mut section: Section<'_, '_>,
    profiles: &BTreeMap<String, Profile>,
) -> Option<Listen> {
    let by_token = section.has("token");
    if section.is_empty_list("token") {
        section.problem(
            section.at(),
            "token",
            "names no address",
            "write token = [\"10.20.0.1:3128\"], or remove it",
        );
    }
    if section.is_empty_list("unix") {
        section.problem(
            section.at(),
            "unix",
            "names no socket",
            "write unix = [\"/portcullis/gate.sock\"], or remove it",
        );
    }
    let token = addresses(&mut section, "token", reachable);
    let by_unix = section.has("unix");
    let unix = sockets(&mut section);
    let tcp = match by_token || by_unix {
        true => section.string("tcp"),
        false => section.required_string("tcp", "\"127.0.0.1:3128\""),
    };
    let without_tcp = tcp.is_none() && by_token;
    let tcp = tcp.and_then(|text| loopback(&section, "tcp", &text));
    let redirected = addresses(&mut section, "redirected", loopback);
    let resolver = addresses(&mut section, "resolver", loopback);
    let twice = |at: &SocketAddr| {
        let others = [&redirected, &resolver, &token];
        let listed = others.iter().filter(|list| list.contains(at)).count();
        listed + usize::from(tcp == Some(*at)) > 1
    };
    let mut all = tcp.iter().chain(&redirected).chain(&resolver).chain(&token);
    if let Some(at) = all.find(|at| twice(at)) {
        section.problem(
            section.at(),
            if tcp == Some(*at) { "tcp" } else { "token" },
            format!("{at} is listed twice"),
            "give each entrance a port of its own",
        );
    }
    let mut known = Everybody::default();
    let (mut by_uid, mut by_address) = (false, false);
    for entry in section.sections("identity") {
        let other = entry.has("token_sha256") || entry.has("address");
        by_uid |= entry.has("uid") || !other;
        by_address |= entry.has("address");
        match identity(entry, profiles, &known) {
            Some(Known::Uid(identity)) => known.uids.push(identity),
            Some(Known::Token(identity)) => known.tokens.push(identity),
            Some(Known::Address(identity)) => known.places.push(identity),
            None => {}
        }
    }
    let Everybody {
        uids: identities,
        tokens,
        places,
    } = known;
    let asks_for_uids = !(without_tcp && redirected.is_empty() && resolver.is_empty() && !by_unix);
    if asks_for_uids && !by_uid {
        section.problem(
            section.at(),
            "identity",
            "is missing: everybody on tcp, unix, redirected and resolver would be refused",
            "add [[listen.identity]] with uid, agent, company and profile, or remove what only users can use",
        );
    }
    if !tokens.is_empty() && !by_token {
        section.problem(
            section.at(),
            "token",
            "is missing: nobody could show the token of an identity",
            "add token = [\"ADDRESS:PORT\"]",
        );
    }
    if by_address && !by_token {
        section.problem(
            section.at(),
            "token",
            "is missing: nobody of another address could come in",
            "add token = [\"ADDRESS:PORT\"]",
        );
    }
    section.close();
    Some(Listen {
        tcp,
        unix,
        token,
        redirected,
        resolver,
        identities,
        tokens,
        places,
    })
    .filter(|listen| listen.tcp.is_some() || !listen.token.is_empty() || !listen.unix.is_empty())
}

enum Known {
    Uid(Identity),
    Token(TokenIdentity),
    Address(AddressIdentity),
}

#[derive(Default)]
struct Everybody {
    uids: Vec<Identity>,
    tokens: Vec<TokenIdentity>,
    places: Vec<AddressIdentity>,
}

/// One `[[listen.identity]]`: by a uid, by a token or by an address.
fn identity(
    mut entry: Section<'_, '_>,
    profiles: &BTreeMap<String, Profile>,
    known: &Everybody,
) -> Option<Known> {
    let keys = ["uid", "token_sha256", "address"];
    let mut has = keys.into_iter().filter(|key| entry.has(key));
    match (has.next(), has.next()) {
        (None, _) => entry.problem(entry.at(), "uid", "is missing", "add uid = 1500"),
        (Some(first), Some(second)) => {
            let article = if first == "uid" { "a" } else { "the" };
            entry.problem(
                entry.at(),
                second,
                format!("stands beside {article} {first}"),
                "make two identities of it: each is known by one thing, its uid, its token or its address",
            );
        }
        (Some(_), None) => {}
    }
    let uid = entry.integer("uid");
    let digest = entry.string("token_sha256");
    let address = entry.string("address");
    let agent = label(&mut entry, "agent");
    let company = label(&mut entry, "company");
    let profile = entry.required_string("profile", "\"default\"");
    if let Some(name) = &profile {
        known_profile(&entry, name, "profile", profiles);
    }
    let uid = uid.and_then(|uid| identity_uid(&entry, &uid));
    if let Some(uid) = uid
        && known.uids.iter().any(|identity| identity.uid == uid)
    {
        let problem = format!("{uid} is listed twice");
        entry.problem(entry.at(), "uid", problem, "keep one of them");
    }
    let digest = digest.and_then(|text| token_digest(&entry, &text));
    if let Some(digest) = digest
        && known
            .tokens
            .iter()
            .any(|identity| identity.digest == digest)
    {
        let hint = "give each agent a token of its own";
        entry.problem(entry.at(), "token_sha256", "is listed twice", hint);
    }
    let address = address.and_then(|text| elsewhere(&entry, &text));
    if let Some(address) = address
        && known
            .places
            .iter()
            .any(|identity| identity.address == address)
    {
        let problem = format!("{address} is listed twice");
        entry.problem(entry.at(), "address", problem, "keep one of them");
    }
    entry.close();
    let (agent, company, profile) = (agent?, company?, profile?.value);
    match (uid, digest, address) {
        (Some(uid), None, None) => Some(Known::Uid(Identity {
            uid,
            agent,
            company,
            profile,
        })),
        (None, Some(digest), None) => Some(Known::Token(TokenIdentity {
            digest,
            agent,
            company,
            profile,
        })),
        (None, None, Some(address)) => Some(Known::Address(AddressIdentity {
            address,
            agent,
            company,
            profile,
        })),
        (_, _, _) => None,
    }
}

/// An address that one other machine or container has.
fn elsewhere(section: &Section<'_, '_>, text: &At<String>) -> Option<IpAddr> {
    let address = text.value.parse::<IpAddr>().map(|it| it.to_canonical());
    let problem = match address {
        Ok(at) if at.is_loopback() => format!("{at} is this machine itself"),
        Ok(at) if at.is_unspecified() || at.is_multicast() => format!("{at} is nobody's address"),
        Ok(at) => return Some(at),
        Err(_) => format!("{} is not one IP address", text.value),
    };
    let hint = "write the one address that the agent's container has and no other can take";
    section.problem(text.at, "address", problem, hint);
    None
}

fn token_digest(section: &Section<'_, '_>, text: &At<String>) -> Option<TokenDigest> {
    let digest = TokenDigest::parse(&text.value).ok();
    if digest.is_none() {
        // The value is not repeated: it may be the token itself.
        section.problem(
            text.at,
            "token_sha256",
            "is not SHA-256 in 64 hexadecimal digits",
            "make a token with `portcullis-proxy token` and write what it says here",
        );
    }
    digest
}

/// An address of this machine that agents of another one can name.
fn reachable(section: &Section<'_, '_>, key: &str, text: &At<String>) -> Option<SocketAddr> {
    let (problem, hint) = match text.value.parse::<SocketAddr>() {
        Ok(at) if at.ip().is_unspecified() => (
            format!("{at} would listen on every side of this machine"),
            "name the address of the side that the agents are on",
        ),
        Ok(at) if at.ip().is_multicast() || at.port() == 0 => (
            format!("{at} is not an address with a port"),
            "write \"10.20.0.1:3128\"",
        ),
        Ok(at) => return Some(at),
        Err(_) => (
            format!("{} is not ADDRESS:PORT", text.value),
            "write \"10.20.0.1:3128\"",
        ),
    };
    section.problem(text.at, key, problem, hint);
    None
}

/// A loopback address with its port.
fn loopback(section: &Section<'_, '_>, key: &str, text: &At<String>) -> Option<SocketAddr> {
    let (problem, hint) = match text.value.parse::<SocketAddr>() {
        Ok(address) if address.ip().is_loopback() && address.port() > 0 => return Some(address),
        Ok(address) => (
            format!("{address} is not a loopback address with a port"),
            "listen on 127.0.0.1 or [::1]: a uid is only known on this machine",
        ),
        Err(_) => (
            format!("{} is not ADDRESS:PORT", text.value),
            "write \"127.0.0.1:3128\"",
        ),
    };
    section.problem(text.at, key, problem, hint);
    None
}

/// A list of addresses, each once.
fn addresses(
    section: &mut Section<'_, '_>,
    key: &'static str,
    read: impl Fn(&Section<'_, '_>, &str, &At<String>) -> Option<SocketAddr>,
) -> Vec<SocketAddr> {
    let mut addresses = Vec::new();
    for text in section
        .strings(key)
        .map(|list| list.value)
        .unwrap_or_default()
    {
        match read(section, key, &text) {
            Some(address) if addresses.contains(&address) => section.problem(
                text.at,
                key,
                format!("{address} is listed twice"),
                "keep one of them",
            ),
            Some(address) => addresses.push(address),
            None => {}
        }
    }
    addresses
}

/// `unix`: absolute paths, each once.
fn sockets(section: &mut Section<'_, '_>) -> Vec<PathBuf> {
    let mut sockets: Vec<PathBuf> = Vec::new();
    for text in section
        .strings("unix")
        .map(|list| list.value)
        .unwrap_or_default()
    {
        let path = PathBuf::from(&text.value);
        let plain = path.is_absolute()
            && path.file_name().is_some()
            && path
                .components()
                .all(|part| !matches!(part, std::path::Component::ParentDir));
        let (problem, hint) = if !plain {
            (
                format!("{} is not an absolute path of a socket", text.value),
                "write \"/portcullis/gate.sock\"",
            )
        } else if text.value.len() > LONGEST_SOCKET {
            (
                format!(
                    "{} is longer than the {LONGEST_SOCKET} bytes that the kernel takes",
                    text.value
                ),
                "put it into a directory with a shorter name",
            )
        } else if sockets.contains(&path) {
            (
                format!("{} is listed twice", text.value),
                "keep one of them",
            )
        } else {
            sockets.push(path);
            continue;
        };
        section.problem(text.at, "unix", problem, hint);
    }
    sockets
}

/// `sun_path` less its end.
const LONGEST_SOCKET: usize = 107;

fn identity_uid(section: &Section<'_, '_>, number: &At<u64>) -> Option<u32> {
    let problem = match u32::try_from(number.value) {
        Ok(0) => "uid 0 is never an agent",
        Ok(OVERFLOW_UID) => "65534 is what the kernel answers for unknown users",
        Ok(u32::MAX) | Err(_) => "is not a uid",
        Ok(uid) => return Some(uid),
    };
    section.problem(
        number.at,
        "uid",
        problem,
        "give the agent a user of its own",
    );
    None
}
