//! Reading what arrived: network layer packets, as a packet socket gives them without their link header.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::Arrival;

const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP6: u8 = 58;
const UDP_LITE: u8 = 136;

/// What a packet is to us.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::prove) enum Seen {
    /// A neighbour advertisement of that address.
    Advertisement(IpAddr),
    Arrival(Arrival),
}

/// `None` for what is no IP, or part of how two kernels find each other.
pub(in crate::prove) fn read(packet: &[u8]) -> Option<Seen> {
    match packet.first()? >> 4 {
        4 => four(packet),
        6 => six(packet),
        _ => None,
    }
}

fn four(packet: &[u8]) -> Option<Seen> {
    let head = usize::from(packet[0] & 0x0f) * 4;
    let address = |at: usize| -> Option<Ipv4Addr> {
        let bytes: [u8; 4] = packet.get(at..at + 4)?.try_into().ok()?;
        Some(bytes.into())
    };
    let (from, to) = (address(12)?, address(16)?);
    if to.is_multicast() || to.is_broadcast() {
        return None;
    }
    arrival(from.into(), to.into(), *packet.get(9)?, packet.get(head..)?)
}

fn six(packet: &[u8]) -> Option<Seen> {
    let address = |at: usize| -> Option<Ipv6Addr> {
        let bytes: [u8; 16] = packet.get(at..at + 16)?.try_into().ok()?;
        Some(bytes.into())
    };
    let (from, to) = (address(8)?, address(24)?);
    let (mut next, mut at) = (*packet.get(6)?, 40);
    // Hop-by-hop, routing and destination options are as long as their second byte says.
    while matches!(next, 0 | 43 | 60) {
        let option = packet.get(at..)?;
        next = *option.first()?;
        at += (usize::from(*option.get(1)?) + 1) * 8;
    }
    let body = packet.get(at..)?;
    if next == ICMP6 {
        match body.first()? {
            136 => return Some(Seen::Advertisement(from.into())),
            130..=137 | 143 => return None,
            _ => {}
        }
    }
    if to.is_multicast() {
        return None;
    }
    arrival(from.into(), to.into(), next, body)
}

fn arrival(from: IpAddr, to: IpAddr, protocol: u8, body: &[u8]) -> Option<Seen> {
    let port = match protocol {
        TCP | UDP | UDP_LITE => u16::from_be_bytes(body.get(2..4)?.try_into().ok()?),
        _ => 0,
    };
    Some(Seen::Arrival(Arrival {
        to,
        from,
        protocol,
        port,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet4(protocol: u8, body: &[u8]) -> Vec<u8> {
        let mut packet = vec![
            0x45, 0, 0, 0, 0, 0, 0, 0, 64, protocol, 0, 0, 192, 0, 2, 1, 192, 0, 2, 130,
        ];
        packet.extend(body);
        packet
    }

    fn packet6(next: u8, body: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x60, 0, 0, 0, 0, 0, next, 64];
        packet.extend("2001:db8::1".parse::<Ipv6Addr>().unwrap().octets());
        packet.extend("2001:db8::2".parse::<Ipv6Addr>().unwrap().octets());
        packet.extend(body);
        packet
    }

    #[test]
    fn a_datagram_and_a_segment_are_read_with_their_ports() {
        for (protocol, packet) in [
            (UDP, packet4(UDP, &[0x12, 0x34, 1, 187, 0, 8, 0, 0])),
            (TCP, packet6(TCP, &[0x12, 0x34, 1, 187, 0, 0, 0, 0])),
            (
                UDP,
                packet6(
                    60,
                    &[UDP, 0, 0, 0, 0, 0, 0, 0, 0x12, 0x34, 1, 187, 0, 8, 0, 0],
                ),
            ),
        ] {
            let Some(Seen::Arrival(arrival)) = read(&packet) else {
                panic!("{packet:?}");
            };
            assert_eq!((arrival.protocol, arrival.port), (protocol, 443));
        }
    }

    #[test]
    fn neighbours_are_no_arrivals_and_an_error_message_is_one() {
        assert_eq!(read(&packet6(ICMP6, &[135, 0, 0, 0])), None);
        assert!(matches!(
            read(&packet6(ICMP6, &[136, 0, 0, 0])),
            Some(Seen::Advertisement(_))
        ));
        assert!(matches!(
            read(&packet6(ICMP6, &[1, 1, 0, 0])),
            Some(Seen::Arrival(_))
        ));
        assert!(matches!(
            read(&packet4(1, &[3, 13, 0, 0])),
            Some(Seen::Arrival(_))
        ));
        for broken in [&[][..], &[0x45], &[0x60, 0], &[0x10; 60]] {
            assert_eq!(read(broken), None);
        }
    }
}
