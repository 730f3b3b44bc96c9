//! Cloud metadata services: their addresses in every form that leads to one, and their names.
//! Whoever reaches one holds the machine's own credentials, so no rule opens any.

use std::net::{Ipv4Addr, Ipv6Addr};

/// Metadata services that have an address outside 169.254.0.0/16, and the well-known ones inside.
/// Of these alone any IPv6 address that ends in one is taken for a translation, whatever the
/// prefix: an operator may choose that (RFC 6052, 2.2).
const V4: &[Ipv4Addr] = &[
    Ipv4Addr::new(169, 254, 169, 254), // AWS, Azure, Google, Oracle, OpenStack, ...
    Ipv4Addr::new(169, 254, 169, 253), // AWS, names
    Ipv4Addr::new(169, 254, 169, 252), // Google, GKE
    Ipv4Addr::new(169, 254, 169, 250), // Rancher
    Ipv4Addr::new(169, 254, 170, 2),   // AWS, credentials of ECS tasks
    Ipv4Addr::new(169, 254, 170, 23),  // AWS, credentials of EKS pods
    Ipv4Addr::new(169, 254, 0, 23),    // Tencent
    Ipv4Addr::new(100, 100, 100, 200), // Alibaba
    Ipv4Addr::new(168, 63, 129, 16),   // Azure, the host's agent
    Ipv4Addr::new(192, 0, 0, 192),     // Oracle Classic
];

/// IPv6 prefixes that clouds keep for such services: prefix and its length in bits.
const V6: &[(Ipv6Addr, u32)] = &[
    (Ipv6Addr::new(0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0), 32), // AWS
    (Ipv6Addr::new(0xfd20, 0x00ce, 0, 0, 0, 0, 0, 0), 64), // Google
    (Ipv6Addr::new(0xfd00, 0x00c1, 0, 0, 0, 0, 0, 0), 32), // Oracle
    (Ipv6Addr::new(0xfd00, 0x0042, 0, 0, 0, 0, 0, 0), 64), // Scaleway
    (Ipv6Addr::new(0xfd00, 0xa9fe, 0xa9fe, 0, 0, 0, 0, 0), 48), // Akamai
];

/// First labels of such names where nothing, or only a private domain, follows.
const LABELS: &[&str] = &[
    "imds",
    "instance-data",
    "metadata",
    "metadata-server",
    "metadataserver",
    "rancher-metadata",
];

/// Top labels of domains that no registry sells.
const PRIVATE: &[&str] = &["internal", "intranet", "lan", "local", "localdomain"];

/// Such names in public domains.
const NAMES: &[&str] = &[
    "api.metadata.cloud.ibm.com",
    "metadata.goog",
    "metadata.packet.net",
    "metadata.platformequinix.com",
    "metadata.tencentyun.com",
];

/// Whether an IPv4 address is a metadata service's. 169.254.0.0/16 is one whole: they use more than
/// one address of it.
pub(crate) fn is_v4(address: Ipv4Addr) -> bool {
    address.is_link_local() || V4.contains(&address)
}

/// Whether an IPv6 address is a metadata service's, or leads to one's IPv4 address.
pub(crate) fn is_v6(address: Ipv6Addr) -> bool {
    let within = |(prefix, length): &(Ipv6Addr, u32)| {
        let differs = u128::from(*prefix) ^ u128::from(address);
        differs.leading_zeros() >= *length
    };
    V6.iter().any(within)
        || V4.contains(&low_v4(address))
        || carried(address).into_iter().any(is_v4)
}

/// Whether a name (canonical form) is a metadata service's.
pub(crate) fn is_name(name: &str) -> bool {
    let (first, rest) = match name.split_once('.') {
        Some((first, rest)) => (first, Some(rest)),
        None => (name, None),
    };
    let private = rest.is_none_or(|rest| {
        let top = rest.rsplit('.').next().unwrap_or(rest);
        PRIVATE.contains(&top)
    });
    (private && LABELS.contains(&first)) || NAMES.contains(&name)
}

/// Every IPv4 address that some transition mechanism would read out of an IPv6 one.
fn carried(address: Ipv6Addr) -> Vec<Ipv4Addr> {
    let octets = address.octets();
    let at = |places: [usize; 4]| Ipv4Addr::from(places.map(|place| octets[place]));
    match address.segments() {
        // Compatible, mapped and translated (RFC 4291, 2.5.5; RFC 2765, 2.1).
        [0, 0, 0, 0, 0, 0 | 0xffff, ..] | [0, 0, 0, 0, 0xffff, 0, ..] => vec![low_v4(address)],
        // NAT64, well-known and local, where RFC 6052 (2.2) puts the address behind a prefix of 96,
        // 64, 56 and 48 bits.
        [0x64, 0xff9b, ..] => vec![
            low_v4(address),
            at([9, 10, 11, 12]),
            at([7, 9, 10, 11]),
            at([6, 7, 9, 10]),
        ],
        // 6to4 (RFC 3056, 2).
        [0x2002, ..] => vec![at([2, 3, 4, 5])],
        // Teredo (RFC 4380, 4): the server, and the client with its bits turned.
        [0x2001, 0, ..] => vec![
            at([4, 5, 6, 7]),
            Ipv4Addr::from(!u32::from(low_v4(address))),
        ],
        // ISATAP (RFC 5214, 6.1).
        [_, _, _, _, 0 | 0x200, 0x5efe, ..] => vec![low_v4(address)],
        _ => Vec::new(),
    }
}

/// The last four bytes.
fn low_v4(address: Ipv6Addr) -> Ipv4Addr {
    let [.., a, b, c, d] = address.octets();
    Ipv4Addr::new(a, b, c, d)
}

#[cfg(test)]
mod tests {
    use crate::address::{is_forbidden, is_public};
    use crate::policy::Policy;

    const SERVICES: [[u8; 4]; 9] = [
        [169, 254, 169, 254],
        [169, 254, 170, 2],
        [169, 254, 170, 23],
        [169, 254, 0, 23],
        [169, 254, 1, 1],
        [169, 254, 255, 255],
        [100, 100, 100, 200],
        [168, 63, 129, 16],
        [192, 0, 0, 192],
    ];

    /// Every form in which an IPv6 address carries an IPv4 one.
    fn forms([a, b, c, d]: [u8; 4]) -> Vec<String> {
        let (high, low) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        let dotted = format!("{a}.{b}.{c}.{d}");
        let mut forms = vec![
            format!("::ffff:{dotted}"),
            format!("::ffff:0:{dotted}"),
            format!("::{dotted}"),
            format!("64:ff9b::{dotted}"),
            format!("64:ff9b:1::{dotted}"),
            format!("64:ff9b:1:2:3:4:{high:x}:{low:x}"),
            // RFC 6052, 2.2: /48, /56 and /64.
            format!("64:ff9b:1:{high:x}:{c:x}:{d:02x}00::"),
            format!("64:ff9b:1:{a:x}:{b:x}:{low:x}::"),
            format!("64:ff9b:1:0:{a:x}:{b:02x}{c:02x}:{d:02x}00:0"),
            format!("2002:{high:x}:{low:x}::1"),
            format!("2002:{high:x}:{low:x}:1:2:3:4:5"),
            format!("2001:0:{high:x}:{low:x}:8000:1:2:3"),
            format!("2001:0:0102:0304:8000:1:{:x}:{:x}", !high, !low),
            format!("fd12:3456::5efe:{dotted}"),
            format!("fd12:3456::200:5efe:{dotted}"),
        ];
        forms.push(dotted);
        forms
    }

    fn loads(host: &str, address: &str) -> Result<(), String> {
        let text = format!(
            "[[service]]\nkind = \"http\"\nscheme = \"http\"\nhost = \"{host}\"\n\
             address = \"{address}\"\nallow = [\"GET /\"]\n"
        );
        let read = Policy::parse(&text, "test.toml");
        read.map(|_| ()).map_err(|problems| problems.to_string())
    }

    /// Attack: SSR-05, SSR-06
    #[test]
    fn no_form_of_a_metadata_address_loads_or_is_dialled_and_neighbours_are() {
        let bracketed = |text: &str| match text.contains(':') {
            true => format!("[{text}]:80"),
            false => format!("{text}:80"),
        };
        let refused = |text: &str| {
            assert!(is_forbidden(text.parse().unwrap()), "{text}");
            assert!(!is_public(text.parse().unwrap()), "{text}");
            let told = loads("inside.example.com", &bracketed(text)).unwrap_err();
            assert!(told.contains("never dialled"), "{text}: {told}");
        };
        for service in SERVICES {
            forms(service).iter().for_each(|text| refused(text));
        }
        for text in [
            "fd20:ce::254",
            "fd20:ce::1",
            "fd00:ec2::23",
            "fd00:ec2::253",
            "fd00:ec2::254",
            "fd00:ec2:0:1::254",
            "fd00:42::42",
            "fd00:a9fe:a9fe::1",
            "fd00:c1::a9fe:a9fe",
            "fe80::a9fe:a9fe",
            "fd12::a9fe:a9fe",
            "2a01:db8::a9fe:a9fe",
            "2a01:db8::a9fe:aa17",
            "fd12::6464:64c8",
        ] {
            refused(text);
        }
        for text in forms([10, 0, 0, 5]).iter().map(String::as_str).chain([
            "100.100.100.201",
            "168.63.129.17",
            "192.0.0.193",
            "169.253.169.254",
            "fd00:ec3::254",
            "fd20:cf::254",
            "fd00:43::42",
            "fd00:a9fe:a9ff::1",
            "fd12::a9fe:a9fa:1",
            "2a01:db8::a9fe:1",
        ]) {
            assert!(!is_forbidden(text.parse().unwrap()), "control: {text}");
            assert_eq!(
                loads("inside.example.com", &bracketed(text)),
                Ok(()),
                "control: {text}"
            );
        }
        assert!(is_public("2a01:db8::a9fe:1".parse().unwrap()), "control");
    }

    /// Attack: SSR-05
    #[test]
    fn no_name_of_a_metadata_service_loads_even_with_an_address() {
        for name in [
            "metadata",
            "Metadata.",
            "metadata.google.internal",
            "METADATA.google.internal.",
            "metadata.goog",
            "metadata.internal",
            "metadata.azure.internal",
            "metadata.tencentyun.com",
            "metadata.platformequinix.com",
            "api.metadata.cloud.ibm.com",
            "instance-data",
            "instance-data.ec2.internal",
            "instance-data.eu-west-1.compute.internal",
            "rancher-metadata",
            "metadata.local",
        ] {
            let told = loads(name, "10.0.0.5:80").unwrap_err();
            assert!(told.contains("never reached"), "{name}: {told}");
        }
        for name in [
            "metadata.example.com",
            "a.metadata.example.com",
            "tencentyun.com",
            "metadata-api.internal",
            "instance-database.ec2.internal",
            "ip-10-0-0-5.ec2.internal",
            "google.internal",
        ] {
            assert_eq!(loads(name, "10.0.0.5:80"), Ok(()), "control: {name}");
        }
    }

    /// Attack: SSR-05
    #[test]
    fn no_pattern_covers_the_name_of_a_metadata_service() {
        use crate::authority::{Authority, Scheme};
        let text = "[[service]]\nkind = \"http\"\nscheme = \"http\"\n\
                    hosts = [\"*.google.internal\", \"*.ec2.internal\", \"*.tencentyun.com\"]\n\
                    allow = [\"GET /**\"]\n";
        let policy = Policy::parse(text, "test.toml").unwrap();
        let listed = |name: &str| {
            let authority = Authority::with_default_port(name, 80).unwrap();
            let host = authority.host().clone();
            let routed = matches!(
                policy.route(Scheme::Http, &authority),
                crate::policy::Routing::Route(_)
            );
            assert_eq!(routed, !policy.ports(&host).is_empty(), "{name}");
            routed
        };
        for name in [
            "metadata.google.internal",
            "instance-data.ec2.internal",
            "metadata.tencentyun.com",
        ] {
            assert!(!listed(name), "{name}");
        }
        for name in [
            "db.google.internal",
            "a.ec2.internal",
            "mirrors.tencentyun.com",
        ] {
            assert!(listed(name), "control: {name}");
        }
    }
}
