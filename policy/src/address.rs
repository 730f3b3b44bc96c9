//! Which addresses the gate may dial: public ones by name, others only by an `address` key,
//! metadata services never.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::metadata;

/// Whether an address belongs to the public Internet. Everything that the IANA special-purpose
/// registries reserve is not, nor is any IPv6 form that carries an IPv4 address inside.
#[must_use]
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => is_public_v4(v4),
        IpAddr::V6(v6) => is_public_v6(v6),
    }
}

/// Whether an address can never be dialled, whatever a policy says: cloud metadata services,
/// unspecified, multicast and broadcast addresses.
#[must_use]
pub fn is_forbidden(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            v4.octets()[0] == 0 || v4.is_multicast() || v4.is_broadcast() || metadata::is_v4(v4)
        }
        IpAddr::V6(v6) => {
            v6.is_unspecified()
                || v6.is_multicast()
                || v6.is_unicast_link_local()
                || metadata::is_v6(v6)
                || embedded_v4(v6).is_some_and(|v4| is_forbidden(IpAddr::V4(v4)))
        }
    }
}

/// The IPv4 address inside a mapped, translated, NAT64 or 6to4 form, or a compatible one other than
/// `::1`.
fn embedded_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let pack = |high: u16, low: u16| {
        let [a, b] = high.to_be_bytes();
        let [c, d] = low.to_be_bytes();
        Ipv4Addr::new(a, b, c, d)
    };
    match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 1] => None,
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low]
        | [0, 0, 0, 0, 0xffff, 0, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => Some(pack(high, low)),
        [0x2002, high, low, ..] => Some(pack(high, low)),
        _ => None,
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    !matches!(
        (a, b, c),
        (0 | 10 | 127 | 224..=255, _, _)
            | (100, 64..=127, _)
            | (169, 254, _)
            | (172, 16..=31, _)
            | (192, 0, 0 | 2)
            | (192, 88, 99)
            | (192, 168, _)
            | (198, 18..=19, _)
            | (198, 51, 100)
            | (203, 0, 113)
    ) && !is_forbidden(IpAddr::V4(address))
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let [a, b, ..] = address.segments();
    // Global unicast is 2000::/3; inside it 2001::/23 (Teredo and kin), documentation and 6to4
    // are not.
    (0x2000..0x4000).contains(&a)
        && !(a == 0x2001 && b < 0x0200)
        && !(a == 0x2001 && b == 0x0db8)
        && a != 0x2002
        && !(a == 0x3fff && b < 0x1000)
        && !is_forbidden(IpAddr::V6(address))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Attack: SSR-01, SSR-05, SSR-06, SSR-07, SSR-15
    #[test]
    fn special_addresses_are_not_public() {
        for text in [
            "0.0.0.0",
            "10.0.0.5",
            "100.64.0.1",
            "127.0.0.1",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.1",
            "192.0.2.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.19.255.1",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "255.255.255.255",
            "168.63.129.16",
            "::",
            "::1",
            "::ffff:8.8.8.8",
            "64:ff9b::808:808",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "2001::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "3fff::1",
            "4000::1",
        ] {
            assert!(!is_public(text.parse().unwrap()), "{text}");
        }
        for text in [
            "8.8.8.8",
            "140.82.121.4",
            "172.32.0.1",
            "100.128.0.1",
            "192.0.1.1",
            "2606:50c0:8000::153",
            "2001:4860:4860::8888",
            "2a00:1450::1",
        ] {
            assert!(is_public(text.parse().unwrap()), "{text}");
        }
    }

    /// Attack: SSR-05, SSR-06
    #[test]
    fn metadata_is_forbidden_but_private_ranges_are_not() {
        for text in [
            "169.254.169.254",
            "fd00:ec2::254",
            "100.100.100.200",
            "0.0.0.0",
            "::",
            "::ffff:169.254.169.254",
            "::169.254.169.254",
            "64:ff9b::a9fe:a9fe",
            "2002:a9fe:a9fe::1",
            "169.254.170.2",
            "fe80::1",
            "224.0.0.1",
        ] {
            assert!(is_forbidden(text.parse().unwrap()), "{text}");
        }
        for text in ["10.0.0.5", "127.0.0.1", "::1", "fd12::1", "8.8.8.8"] {
            assert!(!is_forbidden(text.parse().unwrap()), "{text}");
        }
    }
}
