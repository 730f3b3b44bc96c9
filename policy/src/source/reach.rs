//! Where a service leads: hosts, port, scheme, fixed address, trust.

use std::net::{IpAddr, SocketAddr};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::document::{Field, Problems, Table, did_you_mean};
use crate::address;
use crate::authority::{Host, Scheme};
use crate::metadata;
use crate::pattern::HostPattern;
use crate::permit::{Reach, SpkiPin, UpstreamTls};
use crate::service::{Destination, Kind};

/// What a kind assumes when a key is missing.
#[derive(Debug, Clone)]
pub(super) struct Defaults {
    pub(super) hosts: Vec<String>,
    /// For https; plain http starts from 80.
    pub(super) port: u16,
    pub(super) scheme: Scheme,
}

/// Reads `host`, `hosts`, `port`, `scheme`, `address`, `ca_file` and `pin`; `None` when something
/// essential is missing (said so).
pub(super) fn read(
    table: &mut Table<'_>,
    kind: Kind,
    defaults: &Defaults,
    problems: &mut Problems,
) -> Option<(Vec<Destination>, Reach)> {
    let patterns = hosts(table, &defaults.hosts, problems);
    let scheme = match kind {
        Kind::Http | Kind::Debian => scheme(table, problems).unwrap_or(defaults.scheme),
        Kind::Github
        | Kind::Proxmox
        | Kind::Npm
        | Kind::Pypi
        | Kind::Crates
        | Kind::Llm
        | Kind::Board => defaults.scheme,
    };
    if kind == Kind::Board {
        let patterns = patterns?;
        patterns
            .iter()
            .for_each(|field| refuse_wide_board(field, problems));
        let destination = |field: Field<HostPattern>| Destination {
            scheme,
            host: field.value,
            port: defaults.port,
        };
        let destinations = patterns.into_iter().map(destination).collect();
        return Some((
            destinations,
            Reach {
                board: true,
                ..Reach::default()
            },
        ));
    }
    let port = table.port("port", problems).map(|field| field.value);
    let port = port.unwrap_or(match scheme {
        Scheme::Https => defaults.port,
        Scheme::Http if kind == Kind::Llm => defaults.port,
        Scheme::Http => Scheme::Http.default_port(),
    });
    let address = fixed_address(table, patterns.as_deref(), problems);
    let tls = trust(table, scheme, problems);
    let patterns = patterns?;
    if address.is_none() {
        patterns
            .iter()
            .for_each(|field| refuse_private(field, port, problems));
    }
    let destinations = patterns
        .into_iter()
        .map(|field| Destination {
            scheme,
            host: field.value,
            port,
        })
        .collect();
    Some((
        destinations,
        Reach {
            tls,
            address,
            board: false,
        },
    ))
}

fn hosts(
    table: &mut Table<'_>,
    default: &[String],
    problems: &mut Problems,
) -> Option<Vec<Field<HostPattern>>> {
    let host = table.string("host", problems);
    let hosts = table.strings("hosts", problems);
    if let (Some(one), Some(_)) = (&host, &hosts) {
        let problem = String::from("`host` and `hosts` both say where the service leads");
        problems.add(&one.place, problem, String::from("keep `hosts`"));
    }
    let fields = match (host, hosts) {
        (_, Some(list)) if list.value.is_empty() => {
            let problem = String::from("an empty list of hosts leads nowhere");
            problems.add(
                &list.place,
                problem,
                String::from("list a host, or remove the service"),
            );
            return None;
        }
        (_, Some(list)) => list.value,
        (Some(one), None) => vec![one],
        (None, None) if default.is_empty() => {
            let problem = String::from("the service does not say where it leads");
            problems.add(
                &table.place.key("host"),
                problem,
                String::from("add `host = \"api.example.com\"`"),
            );
            return None;
        }
        (None, None) => {
            let field = |name: &String| Field {
                value: name.clone(),
                place: table.place.key("host"),
            };
            default.iter().map(field).collect()
        }
    };
    let mut patterns = Vec::new();
    for Field { value, place } in fields {
        match HostPattern::parse(&value) {
            Ok(pattern) => patterns.push(Field {
                value: pattern,
                place,
            }),
            Err(problem) => {
                let remedy = if value.contains("://") || value.contains('/') {
                    "write the host alone: no scheme, no path"
                } else if value.contains(':') && !value.contains('[') {
                    "write the port under `port`"
                } else {
                    "list hosts one by one, or `*.your-domain.example` for a domain of your own"
                };
                problems.add(&place, problem, remedy.to_owned());
            }
        }
    }
    patterns
        .iter()
        .for_each(|field| refuse_metadata(field, problems));
    // A broken host has been told; what else the service says is still worth checking.
    (!patterns.is_empty()).then_some(patterns)
}

fn scheme(table: &mut Table<'_>, problems: &mut Problems) -> Option<Scheme> {
    let field = table.string("scheme", problems)?;
    match field.value.as_str() {
        "https" => Some(Scheme::Https),
        "http" => Some(Scheme::Http),
        other => {
            let remedy = did_you_mean(other, ["https", "http"].into_iter());
            problems.add(&field.place, format!("`{other}` is not a scheme"), remedy);
            None
        }
    }
}

fn fixed_address(
    table: &mut Table<'_>,
    patterns: Option<&[Field<HostPattern>]>,
    problems: &mut Problems,
) -> Option<SocketAddr> {
    let field = table.string("address", problems)?;
    let Ok(address) = field.value.parse::<SocketAddr>() else {
        problems.add(
            &field.place,
            format!("`{}` is not an address and a port", field.value),
            String::from("write \"10.0.0.5:8006\" or \"[fd00::5]:8006\""),
        );
        return None;
    };
    if address.port() == 0 {
        let problem = String::from("port 0 cannot be dialled");
        problems.add(
            &field.place,
            problem,
            String::from("write the port that the service has"),
        );
    }
    if address::is_forbidden(address.ip()) {
        problems.add(
            &field.place,
            format!(
                "{} is never dialled: it is a metadata, unspecified or multicast address",
                address.ip()
            ),
            String::from("write the address of the service itself"),
        );
    }
    let exact = |field: &Field<HostPattern>| match &field.value {
        HostPattern::Exact(_) => true,
        HostPattern::Below(_) => false,
    };
    if patterns.is_some_and(|patterns| !patterns.iter().all(exact)) {
        let problem = String::from("one address for every name below a suffix");
        problems.add(
            &field.place,
            problem,
            String::from("name the hosts that live at this address"),
        );
    }
    let literal = patterns
        .into_iter()
        .flatten()
        .find_map(|field| match &field.value {
            HostPattern::Exact(Host::V4(v4)) => Some(IpAddr::V4(*v4)),
            HostPattern::Exact(Host::V6(v6)) => Some(IpAddr::V6(*v6)),
            HostPattern::Exact(Host::Name(_)) | HostPattern::Below(_) => None,
        });
    if let Some(host) = literal
        && host != address.ip()
    {
        problems.add(
            &field.place,
            format!(
                "the host is {host} and the address is another one, {}",
                address.ip()
            ),
            String::from("name the service, or write the same address twice"),
        );
    }
    Some(address)
}

fn trust(table: &mut Table<'_>, scheme: Scheme, problems: &mut Problems) -> UpstreamTls {
    let ca_file = table.string("ca_file", problems);
    let pin = table.string("pin", problems);
    if scheme == Scheme::Http {
        for field in [&ca_file, &pin].into_iter().flatten() {
            let problem = String::from("plain http has no certificate to check");
            problems.add(
                &field.place,
                problem,
                String::from("remove it, or use https"),
            );
        }
    }
    if let (Some(field), Some(_)) = (&ca_file, &pin) {
        let problem = String::from("with a `pin` the CA certificates are not looked at");
        problems.add(&field.place, problem, String::from("keep one of the two"));
    }
    let ca_file = ca_file.and_then(|field| {
        if field.value.starts_with('/') && !field.value.contains('\0') {
            return Some(field.value);
        }
        problems.add(
            &field.place,
            format!("`{}` is not an absolute path", field.value),
            String::from("write the whole path, such as \"/etc/portcullis/pve-root-ca.pem\""),
        );
        None
    });
    let pin = pin.and_then(|field| {
        let bytes = field
            .value
            .strip_prefix("sha256/")
            .and_then(|text| STANDARD.decode(text).ok());
        match bytes.and_then(|bytes| <[u8; 32]>::try_from(bytes).ok()) {
            Some(digest) => Some(SpkiPin(digest)),
            None => {
                problems.add(
                    &field.place,
                    format!("`{}` is not a pin", field.value),
                    String::from(
                        "write \"sha256/\" and the base64 of the key's SHA-256 (44 characters)",
                    ),
                );
                None
            }
        }
    });
    UpstreamTls { ca_file, pin }
}

/// A private address is reached by `address` alone, so that no rule reaches one by accident.
fn refuse_private(field: &Field<HostPattern>, port: u16, problems: &mut Problems) {
    let literal = match &field.value {
        HostPattern::Exact(Host::V4(v4)) => IpAddr::V4(*v4),
        HostPattern::Exact(Host::V6(v6)) => IpAddr::V6(*v6),
        HostPattern::Exact(Host::Name(name)) => {
            if name.as_str() == "localhost" || name.as_str().ends_with(".localhost") {
                problems.add(
                    &field.place,
                    format!(
                        "`{name}` is an address of this machine, which is dialled by `address` only"
                    ),
                    format!("add address = \"127.0.0.1:{port}\""),
                );
            }
            return;
        }
        HostPattern::Below(_) => return,
    };
    if !address::is_public(literal) && !address::is_forbidden(literal) {
        let address = SocketAddr::new(literal, port);
        problems.add(
            &field.place,
            format!("{literal} is not a public address, and such are dialled by `address` only"),
            format!("add address = \"{address}\""),
        );
    }
}

/// Runs' tokens go to whatever the board's name covers, so it covers one name.
fn refuse_wide_board(field: &Field<HostPattern>, problems: &mut Problems) {
    match &field.value {
        HostPattern::Exact(_) => {}
        HostPattern::Below(_) => problems.add(
            &field.place,
            format!("the board is one host, and `{}` is many", field.value),
            String::from("name the board's host"),
        ),
    }
}

fn refuse_metadata(field: &Field<HostPattern>, problems: &mut Problems) {
    let bad = match &field.value {
        HostPattern::Exact(Host::V4(v4)) => address::is_forbidden(IpAddr::V4(*v4)),
        HostPattern::Exact(Host::V6(v6)) => address::is_forbidden(IpAddr::V6(*v6)),
        HostPattern::Exact(Host::Name(name)) => metadata::is_name(name.as_str()),
        HostPattern::Below(_) => false,
    };
    if bad {
        problems.add(
            &field.place,
            format!(
                "{} is never reached: it is a metadata, unspecified or multicast address",
                field.value
            ),
            String::from("remove it"),
        );
    }
}
