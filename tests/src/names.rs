//! A resolver that answers from a table and remembers every question.

#![allow(clippy::disallowed_methods, reason = "a resolver is a datagram server")]

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use crate::netns::Netns;

/// The resolver; it stops when dropped.
#[derive(Debug)]
pub struct Names {
    table: Arc<Mutex<BTreeMap<String, Ipv4Addr>>>,
    questions: Arc<Mutex<Vec<String>>>,
    stop: Arc<AtomicBool>,
}

impl Names {
    /// Serves 127.0.0.1:53 of `netns` and makes it that namespace's resolver.
    pub fn serve(netns: &Netns) -> Self {
        let names = Self::serve_at(netns, Ipv4Addr::LOCALHOST);
        netns.set_resolver(Ipv4Addr::LOCALHOST.into());
        names
    }

    /// Serves port 53 of an address that `netns` has.
    pub fn serve_at(netns: &Netns, at: Ipv4Addr) -> Self {
        let names = Self {
            table: Arc::default(),
            questions: Arc::default(),
            stop: Arc::default(),
        };
        let (table, questions) = (Arc::clone(&names.table), Arc::clone(&names.questions));
        let stop = Arc::clone(&names.stop);
        let (ready, is_ready) = mpsc::channel();
        netns.run(move || {
            let socket = UdpSocket::bind((at, 53)).expect("port 53 is free");
            let tick = Some(Duration::from_millis(100));
            socket
                .set_read_timeout(tick)
                .expect("a time-out may be set");
            ready.send(()).expect("somebody waits");
            let mut packet = [0; 1500];
            while !stop.load(Ordering::SeqCst) {
                let Ok((length, peer)) = socket.recv_from(&mut packet) else {
                    continue;
                };
                let Some((name, kind, end)) = question(&packet[..length]) else {
                    continue;
                };
                questions
                    .lock()
                    .expect("no holder panics")
                    .push(name.clone());
                let address = table.lock().expect("no holder panics").get(&name).copied();
                let reply = answer(&packet[..end], address, kind);
                // The asker may have gone; it will ask again if it cares.
                let _gone = socket.send_to(&reply, peer);
            }
        });
        is_ready.recv().expect("the resolver starts");
        names
    }

    /// Lets `name` resolve to `address`.
    pub fn set(&self, name: &str, address: Ipv4Addr) {
        self.table
            .lock()
            .expect("no holder panics")
            .insert(name.to_owned(), address);
    }

    /// Every name asked for so far, lower case, without the trailing dot.
    pub fn questions(&self) -> Vec<String> {
        self.questions.lock().expect("no holder panics").clone()
    }
}

impl Drop for Names {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
    }
}

/// Name, type and end of the first question.
fn question(packet: &[u8]) -> Option<(String, u16, usize)> {
    let mut labels = Vec::new();
    let mut at = 12;
    loop {
        let length = usize::from(*packet.get(at)?);
        at += 1;
        if length == 0 {
            break;
        }
        let label = packet.get(at..at + length)?;
        labels.push(String::from_utf8_lossy(label).to_ascii_lowercase());
        at += length;
    }
    let kind = u16::from_be_bytes([*packet.get(at)?, *packet.get(at + 1)?]);
    (packet.len() >= at + 4).then(|| (labels.join("."), kind, at + 4))
}

/// A reply to the question in `asked`: the address for type A, no data for other types of a known
/// name, and "no such name" for an unknown one.
fn answer(asked: &[u8], address: Option<Ipv4Addr>, kind: u16) -> Vec<u8> {
    let mut reply = asked.to_vec();
    let code = if address.is_some() { 0 } else { 3 };
    reply[2..4].copy_from_slice(&[0x84, code]);
    reply[6..12].fill(0);
    if let Some(address) = address.filter(|_| kind == 1) {
        reply[7] = 1;
        reply.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4]);
        reply.extend_from_slice(&address.octets());
    }
    reply
}
