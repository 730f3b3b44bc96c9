//! Frames recorded outside the machine, in the pcap form that qemu writes.

use std::fs;
use std::path::Path;

const FILE_HEADER: usize = 24;
const RECORD_HEADER: usize = 16;
const ETHERNET: usize = 14;
const IPV6_HEADER: usize = 40;
const TCP: u8 = 6;
const UDP: u8 = 17;

/// A TCP or UDP packet on the wire.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Frame {
    /// 4 or 6.
    pub family: u8,
    pub tcp: bool,
    /// The port it is for.
    pub port: u16,
}

/// The TCP and UDP packets in a record that may still be written to; none when there is no record yet.
pub fn read(path: &Path) -> Vec<Frame> {
    parse(&fs::read(path).unwrap_or_default())
}

fn parse(record: &[u8]) -> Vec<Frame> {
    let mut frames = Vec::new();
    let mut rest = record.get(FILE_HEADER..).unwrap_or_default();
    while let Some(header) = rest.get(..RECORD_HEADER) {
        let length = u32::from_le_bytes([header[8], header[9], header[10], header[11]]);
        let end = RECORD_HEADER + usize::try_from(length).unwrap_or(usize::MAX - RECORD_HEADER);
        // One that is being written is for the next look.
        let Some(frame) = rest.get(RECORD_HEADER..end) else {
            break;
        };
        frames.extend(packet(frame));
        rest = &rest[end..];
    }
    frames
}

fn packet(frame: &[u8]) -> Option<Frame> {
    let packet = frame.get(ETHERNET..)?;
    let (family, protocol, header) = match (frame[12], frame[13]) {
        (0x08, 0x00) => (4, *packet.get(9)?, usize::from(packet[0] & 0x0f) * 4),
        // The senders of the tests add no extension header.
        (0x86, 0xdd) => (6, *packet.get(6)?, IPV6_HEADER),
        _ => return None,
    };
    if ![TCP, UDP].contains(&protocol) {
        return None;
    }
    let ports = packet.get(header..header + 4)?;
    Some(Frame {
        family,
        tcp: protocol == TCP,
        port: u16::from_be_bytes([ports[2], ports[3]]),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded(frame: &[u8]) -> Vec<u8> {
        let mut record = vec![0; FILE_HEADER + 8];
        let length = u32::try_from(frame.len()).unwrap().to_le_bytes();
        record.extend(length);
        record.extend(length);
        record.extend(frame);
        record
    }

    #[test]
    fn ports_are_read_of_both_families_and_half_a_frame_is_left() {
        let mut v4 = vec![0; ETHERNET + 28];
        v4[12..14].copy_from_slice(&[0x08, 0x00]);
        v4[ETHERNET] = 0x45;
        v4[ETHERNET + 9] = UDP;
        v4[ETHERNET + 22..ETHERNET + 24].copy_from_slice(&4100_u16.to_be_bytes());
        let mut v6 = vec![0; ETHERNET + 60];
        v6[12..14].copy_from_slice(&[0x86, 0xdd]);
        v6[ETHERNET + 6] = TCP;
        v6[ETHERNET + 42..ETHERNET + 44].copy_from_slice(&4200_u16.to_be_bytes());
        let mut record = recorded(&v4);
        record.extend(&recorded(&v6)[FILE_HEADER..]);
        let both = parse(&record);
        let ports: Vec<u16> = both.iter().map(|frame| frame.port).collect();
        assert_eq!(ports, [4100, 4200]);
        assert_eq!((both[0].family, both[1].family), (4, 6));
        assert!(!both[0].tcp && both[1].tcp);
        assert_eq!(parse(&record[..record.len() - 1]), both[..1]);
        assert!(parse(b"").is_empty());
        // Something else than IP.
        v4[12..14].copy_from_slice(&[0x08, 0x06]);
        assert!(parse(&recorded(&v4)).is_empty());
    }
}
