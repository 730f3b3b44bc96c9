//! Where a flow really goes: what connection tracking knows of its translation.
//!
//! Messages of ctnetlink (linux/netfilter/nfnetlink_conntrack.h), built and read as bytes.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::changes::attribute;
use super::{NetlinkError, ask};

const DOING: &str = "looking where a connection was led";
const SUBSYSTEM: u16 = 1;
const GET: u16 = 1;
const NESTED: u16 = 1 << 15;
const TUPLE_ORIGINAL: u16 = 1;
const TUPLE_REPLY: u16 = 2;
const TUPLE_ADDRESSES: u16 = 1;
const TUPLE_PROTOCOL: u16 = 2;
const V4: [u16; 2] = [1, 2];
const V6: [u16; 2] = [3, 4];
const PROTOCOL_NUMBER: u16 = 1;
const SOURCE_PORT: u16 = 2;
const DESTINATION_PORT: u16 = 3;

/// Who answers the TCP flow that one socket sees between these two; `None` when no flow is known. Differs from
/// `destination` when it was led elsewhere.
pub(crate) fn answers(
    source: SocketAddr,
    destination: SocketAddr,
) -> Result<Option<IpAddr>, NetlinkError> {
    let Some(body) = question(source, destination) else {
        return Ok(None);
    };
    match ask(mnl::Bus::Netfilter, SUBSYSTEM << 8 | GET, 0, &body, DOING) {
        Ok(found) => Ok(found.iter().find_map(|answer| replier(answer))),
        Err(NetlinkError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// `struct nfgenmsg` and the flow's tuple; none for addresses of two families.
fn question(source: SocketAddr, destination: SocketAddr) -> Option<Vec<u8>> {
    let (family, [from, to], source_address, destination_address) =
        match (source.ip().to_canonical(), destination.ip().to_canonical()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => (
                libc::AF_INET,
                V4,
                from.octets().to_vec(),
                to.octets().to_vec(),
            ),
            (IpAddr::V6(from), IpAddr::V6(to)) => (
                libc::AF_INET6,
                V6,
                from.octets().to_vec(),
                to.octets().to_vec(),
            ),
            _ => return None,
        };
    let [family, ..] = family.to_le_bytes();
    let [tcp, ..] = libc::IPPROTO_TCP.to_le_bytes();
    let addresses = [
        encoded(from, &source_address),
        encoded(to, &destination_address),
    ];
    let protocol = [
        encoded(PROTOCOL_NUMBER, &[tcp]),
        encoded(SOURCE_PORT, &source.port().to_be_bytes()),
        encoded(DESTINATION_PORT, &destination.port().to_be_bytes()),
    ];
    let tuple = [
        encoded(TUPLE_ADDRESSES | NESTED, &addresses.concat()),
        encoded(TUPLE_PROTOCOL | NESTED, &protocol.concat()),
    ];
    let mut body = vec![family, 0, 0, 0];
    body.extend(encoded(TUPLE_ORIGINAL | NESTED, &tuple.concat()));
    Some(body)
}

/// The source of the flow's answers.
fn replier(answer: &[u8]) -> Option<IpAddr> {
    let tuple = attribute(answer.get(4..)?, TUPLE_REPLY)?;
    let addresses = attribute(tuple, TUPLE_ADDRESSES)?;
    if let Some(four) = attribute(addresses, V4[0]) {
        return <[u8; 4]>::try_from(four)
            .ok()
            .map(|four| Ipv4Addr::from(four).into());
    }
    let six = attribute(addresses, V6[0])?;
    <[u8; 16]>::try_from(six)
        .ok()
        .map(|six| Ipv6Addr::from(six).into())
}

/// One attribute, padded.
fn encoded(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(4 + value.len()).expect("tuples are some dozen bytes");
    let mut bytes = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tuple_is_written_and_a_reply_is_read_from_the_same_form() {
        for (source, destination) in [
            ("192.0.2.1:4000", "203.0.113.9:443"),
            ("[2001:db8::1]:4000", "[2001:db8::9]:443"),
            ("[::ffff:192.0.2.1]:4000", "[::ffff:203.0.113.9]:443"),
        ] {
            let (source, destination) = (source.parse().unwrap(), destination.parse().unwrap());
            let mut body = question(source, destination).unwrap();
            assert_eq!(body.len() % 4, 0);
            assert_eq!(replier(&body), None);
            // The same tuple under the reply's name: its source is who answers.
            let [low, high] = (TUPLE_REPLY | NESTED).to_ne_bytes();
            (body[6], body[7]) = (low, high);
            assert_eq!(replier(&body), Some(source.ip().to_canonical()));
        }
        let mixed = question(
            "192.0.2.1:1".parse().unwrap(),
            "[2001:db8::9]:1".parse().unwrap(),
        );
        assert_eq!(mixed, None);
        assert_eq!(replier(&[]), None);
    }
}
