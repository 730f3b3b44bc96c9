//! The wire between this network namespace and the peer's, and the addresses on it.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::PeerError;
use crate::process::Call;

/// Link-local addresses of the peer, from fe80::10 on.
pub(super) const LINK_LOCALS: u8 = 16;

/// Our end.
#[derive(Debug, Default)]
pub(super) struct Wire {
    link: String,
    network: [u8; 3],
    six: u16,
    pub(super) index: u32,
    pub(super) host4: Option<IpAddr>,
    pub(super) host6: Option<IpAddr>,
    pub(super) without_six: Option<String>,
}

impl Wire {
    /// Lays it to the network namespace of a process.
    pub(super) fn lay(pid: u32) -> Result<Self, PeerError> {
        let link = format!("prove{pid}");
        let mut wire = Self {
            link: link.clone(),
            network: free_network()?,
            six: free_six(pid),
            ..Self::default()
        };
        let end = other_link(&link);
        let number = pid.to_string();
        ip(&[
            "link", "add", &link, "type", "veth", "peer", "name", &end, "netns", &number,
        ])?;
        // Link addresses of our own choice: the kernel's would have to be tried for duplicates first.
        ip(&["link", "set", &link, "addrgenmode", "none"])?;
        ip(&["link", "set", &link, "up"])?;
        let host = wire.address4(1);
        ip(&["address", "add", &format!("{host}/25"), "dev", &link])?;
        let [a, b, c] = wire.network;
        let (net, via) = (format!("{a}.{b}.{c}.128/25"), wire.address4(2).to_string());
        ip(&["route", "add", &net, "via", &via, "dev", &link])?;
        wire.host4 = Some(host.into());
        match wire.add_six() {
            Ok(()) => wire.host6 = Some(wire.address6(0, 1).into()),
            Err(error) => wire.without_six = Some(crate::output::chain(&error)),
        }
        let index = fs::read_to_string(format!("/proc/sys/net/ipv6/neigh/{link}/app_solicit"));
        // Only link-local addresses need the number, and there are none without IPv6.
        wire.index = index.map_or(0, |_| {
            nix::net::if_::if_nametoindex(link.as_str()).unwrap_or(0)
        });
        Ok(wire)
    }

    fn add_six(&self) -> Result<(), PeerError> {
        let link = &self.link;
        for address in [
            format!("{}/64", self.address6(0, 1)),
            "fe80::1/64".to_owned(),
        ] {
            ip(&["-6", "address", "add", &address, "dev", link, "nodad"])?;
        }
        let (net, via) = (
            format!("{}/64", self.address6(1, 0)),
            self.address6(0, 2).to_string(),
        );
        ip(&["-6", "route", "add", &net, "via", &via, "dev", link])
    }

    /// The name of the other end, and what `ip` has to be told there. Commands about IPv6 may fail where there is none.
    pub(super) fn other_end(&self) -> (String, Vec<Vec<String>>) {
        let link = other_link(&self.link);
        let [a, b, c] = self.network;
        let mut lines = vec![
            "link set lo up".to_owned(),
            format!("link set {link} addrgenmode none"),
            format!("link set {link} up"),
            format!("address add {}/25 dev {link}", self.address4(2)),
            format!("route add local {a}.{b}.{c}.128/25 dev lo"),
        ];
        if self.without_six.is_none() {
            lines.extend([
                format!("-6 address add {}/64 dev {link} nodad", self.address6(0, 2)),
                format!("-6 route add local {}/64 dev lo", self.address6(1, 0)),
            ]);
            lines.extend(
                (16..16 + LINK_LOCALS)
                    .map(|index| format!("-6 address add fe80::{index:x}/64 dev {link} nodad")),
            );
        }
        let split = |line: &String| line.split(' ').map(str::to_owned).collect();
        (link, lines.iter().map(split).collect())
    }

    pub(super) fn target4(&self, last: u8) -> Ipv4Addr {
        self.address4(last)
    }

    pub(super) fn target6(&self, last: u16) -> Ipv6Addr {
        self.address6(1, last)
    }

    /// Removes our end, if it is there still.
    pub(super) fn cut(&self) {
        if !self.link.is_empty() {
            // Gone with its namespace already, most of the time.
            let _ = ip(&["link", "delete", &self.link]);
        }
    }

    fn address4(&self, last: u8) -> Ipv4Addr {
        let [a, b, c] = self.network;
        Ipv4Addr::new(a, b, c, last)
    }

    fn address6(&self, subnet: u16, last: u16) -> Ipv6Addr {
        Ipv6Addr::new(0x2001, 0xdb8, self.six, subnet, 0, 0, 0, last)
    }
}

/// What `ip` has to be told at the two ends of a wire to a namespace without rules.
pub(super) struct Ends {
    pub(super) there: Vec<Vec<String>>,
    pub(super) here: Vec<Vec<String>>,
}

/// A wire between two namespaces that nobody else is in, with a network of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Beyond {
    pub(super) number: u8,
    pub(super) six: bool,
}

impl Beyond {
    /// The address of whoever listens there.
    #[must_use]
    pub fn host(self) -> IpAddr {
        self.address(2)
    }

    fn address(self, last: u8) -> IpAddr {
        if self.six {
            Ipv6Addr::new(0x2001, 0xdb8, 1, self.number.into(), 0, 0, 0, last.into()).into()
        } else {
            Ipv4Addr::new(198, 18, self.number, last).into()
        }
    }

    /// Lays it between the network namespaces of two processes.
    pub(super) fn lay(self, peer: u32, pid: u32) -> Result<Ends, PeerError> {
        let (link, end) = (format!("bare{pid}"), format!("bare{pid}p"));
        let (one, other) = (pid.to_string(), peer.to_string());
        ip(&[
            "link", "add", &link, "netns", &one, "type", "veth", "peer", "name", &end, "netns",
            &other,
        ])?;
        let words = |link: &str, last: u8| -> Vec<Vec<String>> {
            let (bits, more) = if self.six { (64, " nodad") } else { (24, "") };
            let lines = [
                format!("address add {}/{bits} dev {link}{more}", self.address(last)),
                format!("link set {link} up"),
            ];
            let split = |line: &String| line.split(' ').map(str::to_owned).collect();
            lines.iter().map(split).collect()
        };
        Ok(Ends {
            there: words(&end, 1),
            here: words(&link, 2),
        })
    }
}

fn other_link(link: &str) -> String {
    format!("{link}p")
}

fn ip(words: &[&str]) -> Result<(), PeerError> {
    let call = Call::new("ip").args(words.iter().copied());
    call.run().map(drop).map_err(PeerError::Wire)
}

/// A network that no route of ours leads to: the three of the documentation (RFC 5737), then those for benchmarks
/// (RFC 2544). None of them is anybody's on the internet.
fn free_network() -> Result<[u8; 3], PeerError> {
    let routes = Call::new("ip")
        .args(["-4", "route", "show", "table", "all"])
        .run()
        .map_err(PeerError::Wire)?;
    let documentation = [[192, 0, 2], [198, 51, 100], [203, 0, 113]];
    let benchmarks = (0..=255).map(|third| [198, 19, third]);
    documentation
        .into_iter()
        .chain(benchmarks)
        .find(|network| is_free(&routes, *network))
        .ok_or(PeerError::NoNetwork)
}

/// Whether no line of `ip route` but a default one touches the network.
fn is_free(routes: &str, network: [u8; 3]) -> bool {
    let low = u32::from(Ipv4Addr::new(network[0], network[1], network[2], 0));
    !routes.lines().any(|line| {
        let words = line.split_whitespace();
        let Some(found) = words
            .into_iter()
            .find(|word| word.starts_with(|c: char| c.is_ascii_digit()))
        else {
            return false;
        };
        if line.starts_with("default") {
            return false;
        }
        let (address, bits) = found.split_once('/').unwrap_or((found, "32"));
        let (Ok(address), Ok(bits @ 0..=32)) = (address.parse::<Ipv4Addr>(), bits.parse::<u32>())
        else {
            return false;
        };
        // A shorter prefix than /8 is a default route in two halves, as tunnels write it.
        let mask = u32::MAX.checked_shl(32 - bits.min(24)).unwrap_or(0);
        bits >= 8 && u32::from(address) & mask == low & mask
    })
}

/// The third group of our addresses in 2001:db8::/32 (RFC 3849), different for every process that runs now.
fn free_six(pid: u32) -> u16 {
    u16::try_from(pid & 0x7fff).unwrap_or(0) | 0x8000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_with_a_route_into_it_is_not_free() {
        let routes = "default via 10.0.0.1 dev eth0\n0.0.0.0/1 via 10.8.0.1 dev tun0\n192.0.2.0/24 dev wire scope link\n\
                      local 198.51.100.1 dev lo table local\nbroadcast 203.0.113.255 dev x table local\n198.18.0.0/15 via 192.0.2.9\n";
        for network in [[192, 0, 2], [198, 51, 100], [203, 0, 113], [198, 19, 7]] {
            assert!(!is_free(routes, network), "{network:?}");
        }
        assert!(is_free(
            "default via 192.0.2.1 dev eth0\n10.0.0.0/8 dev a\n",
            [192, 0, 2]
        ));
    }
}
