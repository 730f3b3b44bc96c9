//! Which addresses a name may lead to. A listed name must resolve to the public internet;
//! everything else (loopback, private, link-local, shared, documentation, transition ranges that
//! hide an IPv4 address) is refused unless a service names exactly that address and port. The
//! metadata endpoints of clouds are refused even then.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Why an address is not dialled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forbidden {
    /// A cloud's metadata endpoint: never, whatever a policy says.
    Metadata,
    /// Not a public unicast address: only by a service's own `address`.
    NotPublic,
}

/// Judges an address that a name resolved to.
pub fn resolved(address: IpAddr) -> Result<(), Forbidden> {
    named(address)?;
    let public = match address {
        IpAddr::V4(v4) => is_public_v4(v4),
        IpAddr::V6(v6) => is_public_v6(v6),
    };
    if public {
        Ok(())
    } else {
        Err(Forbidden::NotPublic)
    }
}

/// Judges an address that a service names itself: only metadata endpoints are refused.
pub fn named(address: IpAddr) -> Result<(), Forbidden> {
    let metadata = match address {
        IpAddr::V4(v4) => is_metadata_v4(v4),
        IpAddr::V6(v6) => {
            v6 == Ipv6Addr::new(0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x254)
                || embedded_v4(v6).is_some_and(is_metadata_v4)
        }
    };
    if metadata {
        Err(Forbidden::Metadata)
    } else {
        Ok(())
    }
}

fn is_metadata_v4(address: Ipv4Addr) -> bool {
    address == Ipv4Addr::new(169, 254, 169, 254)
        || address == Ipv4Addr::new(169, 254, 170, 2)
        || address == Ipv4Addr::new(100, 100, 100, 200)
}

/// IANA's special-purpose registry, as of RFC 6890 and its updates.
fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    !matches!(
        (a, b, c),
        (0 | 10 | 127, _, _)
            | (100, 64..=127, _)
            | (169, 254, _)
            | (172, 16..=31, _)
            | (192, 0, 0 | 2)
            | (192, 88, 99)
            | (192, 168, _)
            | (198, 18..=19, _)
            | (198, 51, 100)
            | (203, 0, 113)
            | (224..=255, _, _)
    )
}

/// Global unicast is 2000::/3; inside it documentation, the protocol assignments of 2001::/23
/// (Teredo among them) and 6to4 are not public. Mapped, compatible and NAT64 forms lie outside it.
fn is_public_v6(address: Ipv6Addr) -> bool {
    let [a, b, ..] = address.segments();
    (0x2000..=0x3fff).contains(&a)
        && !(a == 0x2001 && b < 0x0200)
        && !(a == 0x2001 && b == 0x0db8)
        && a != 0x2002
        && !(a == 0x3fff && b < 0x1000)
}

/// The IPv4 address inside a mapped, compatible, NAT64 or 6to4 form.
fn embedded_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let segments = address.segments();
    let pack = |high: u16, low: u16| {
        let [a, b] = high.to_be_bytes();
        let [c, d] = low.to_be_bytes();
        Ipv4Addr::new(a, b, c, d)
    };
    match segments {
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low] => Some(pack(high, low)),
        [0x64, 0xff9b, _, _, _, _, high, low] => Some(pack(high, low)),
        [0x2002, high, low, ..] => Some(pack(high, low)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public_addresses_pass_and_everything_special_does_not() {
        for text in [
            "140.82.121.4",
            "1.1.1.1",
            "2606:4700::1111",
            "2a00:1450:4001::200e",
        ] {
            assert_eq!(resolved(text.parse().unwrap()), Ok(()), "{text}");
        }
        for text in [
            "0.0.0.0",
            "10.0.0.5",
            "100.64.0.1",
            "127.0.0.1",
            "169.254.1.1",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.1",
            "192.168.1.1",
            "198.18.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:8.8.8.8",
            "::ffff:127.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b::808:808",
            "2002:7f00:1::",
            "2001::1",
            "2001:db8::1",
            "fc00::1",
            "fd12::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert_eq!(
                resolved(text.parse().unwrap()),
                Err(Forbidden::NotPublic),
                "{text}"
            );
        }
    }

    #[test]
    fn metadata_is_refused_even_when_a_service_names_it() {
        for text in [
            "169.254.169.254",
            "100.100.100.200",
            "fd00:ec2::254",
            "::ffff:169.254.169.254",
            "64:ff9b::a9fe:a9fe",
        ] {
            assert_eq!(
                named(text.parse().unwrap()),
                Err(Forbidden::Metadata),
                "{text}"
            );
        }
        assert_eq!(
            named("10.0.0.5".parse().unwrap()),
            Ok(()),
            "control: a named private address"
        );
    }
}
