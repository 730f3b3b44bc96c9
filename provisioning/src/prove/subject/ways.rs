//! Ways that a configuration opens or leads: exceptions, and flows that go to the gate.

use std::net::IpAddr;

/// A user who may reach one place that nobody else may.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Excepted {
    pub uid: u32,
    pub address: IpAddr,
    pub prefix: u8,
    pub port: u16,
}

impl Excepted {
    /// Whether it names that place.
    #[must_use]
    pub fn opens(&self, uid: u32, address: IpAddr, port: u16) -> bool {
        let within = match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let kept = 32_u32.saturating_sub(self.prefix.into());
                (own.to_bits() ^ other.to_bits()).checked_shr(kept) == Some(0) || kept == 32
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let kept = 128_u32.saturating_sub(self.prefix.into());
                (own.to_bits() ^ other.to_bits()).checked_shr(kept) == Some(0) || kept == 128
            }
            _ => false,
        };
        self.uid == uid && self.port == port && within
    }
}

/// Flows that are led to the gate although they were meant for others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Led {
    /// TCP to these ports; to all where the list is empty.
    pub ports: Option<Vec<u16>>,
    /// DNS, whoever it is that is asked.
    pub names: bool,
}

impl Led {
    /// Whether the gate may answer in the place of whom a flow was meant for.
    #[must_use]
    pub fn takes(&self, tcp: bool, port: u16) -> bool {
        let ports = self.ports.as_ref().filter(|_| tcp);
        self.names && port == 53
            || ports.is_some_and(|ports| ports.is_empty() || ports.contains(&port))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exception_opens_its_place_and_no_other() {
        let of = |address: &str, prefix| Excepted {
            uid: 7,
            address: address.parse().unwrap(),
            prefix,
            port: 443,
        };
        let opens = |exception: &Excepted, uid, address: &str, port| {
            exception.opens(uid, address.parse().unwrap(), port)
        };
        let host = of("192.0.2.9", 32);
        assert!(opens(&host, 7, "192.0.2.9", 443));
        for (uid, address, port) in [
            (8, "192.0.2.9", 443),
            (7, "192.0.2.8", 443),
            (7, "192.0.2.9", 80),
            (7, "2001:db8::9", 443),
        ] {
            assert!(!opens(&host, uid, address, port), "{uid} {address} {port}");
        }
        assert!(opens(&of("192.0.2.0", 24), 7, "192.0.2.200", 443));
        assert!(!opens(&of("192.0.2.0", 24), 7, "192.0.3.200", 443));
        assert!(opens(&of("0.0.0.0", 0), 7, "203.0.113.1", 443));
        assert!(opens(&of("2001:db8::", 32), 7, "2001:db8:5::1", 443));
        assert!(!opens(&of("2001:db8::", 32), 7, "2001:db9:5::1", 443));
        assert!(opens(&of("::", 0), 7, "2001:db9:5::1", 443));
    }

    #[test]
    fn what_is_led_is_known_by_its_port() {
        let led = |ports: Option<&[u16]>, names| Led {
            ports: ports.map(<[u16]>::to_vec),
            names,
        };
        assert!(!led(None, false).takes(true, 443));
        assert!(led(Some(&[]), false).takes(true, 443));
        assert!(!led(Some(&[80]), false).takes(true, 443));
        assert!(!led(Some(&[]), false).takes(false, 443));
        assert!(led(None, true).takes(false, 53) && led(None, true).takes(true, 53));
    }
}
