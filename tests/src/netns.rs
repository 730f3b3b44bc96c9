//! Network namespaces of a test's own: a whole internet on one loopback interface.
//!
//! The namespace has no way out at all. Addresses that look public are added to its loopback, so
//! that a gate which refuses private addresses can be tested without a packet on a real wire.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::command::Program;

/// A namespace that is removed when dropped.
#[derive(Debug)]
pub struct Netns {
    name: String,
}

impl Netns {
    /// A new namespace with loopback up.
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::SeqCst);
        let netns = Self {
            name: format!("pt-{}-{number}", std::process::id()),
        };
        Program::new("ip")
            .args(["netns", "add", &netns.name])
            .run()
            .ok();
        netns.ip(&["link", "set", "lo", "up"]);
        // Begun with the host's own setting, which is not the test's.
        Program::new("sh")
            .args(["-c", "echo 0 >/proc/sys/net/ipv4/ip_forward"])
            .in_netns(&netns)
            .run()
            .ok();
        netns
    }

    /// Its name, as `ip netns` knows it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Gives loopback one more address.
    pub fn add_address(&self, address: IpAddr) {
        let prefix = if address.is_ipv4() { 32 } else { 128 };
        let address = format!("{address}/{prefix}");
        self.ip(&["address", "add", &address, "dev", "lo"]);
    }

    /// A wire to `other`: IPv4 and IPv6 addresses of the same last number on either side, and nothing
    /// beyond it. One for each pair.
    pub fn wire(&self, other: &Self) {
        self.ip(&[
            "link",
            "add",
            "wire",
            "type",
            "veth",
            "peer",
            "name",
            "wire",
            "netns",
            &other.name,
        ]);
        for (end, last) in [(self, 1), (other, 2)] {
            for address in [format!("10.20.0.{last}/24"), format!("fd20::{last}/64")] {
                let mut words = vec!["address", "add", &address, "dev", "wire"];
                if address.contains("::") {
                    words.push("nodad");
                }
                end.ip(&words);
            }
            end.ip(&["link", "set", "wire", "up"]);
        }
    }

    /// Lets programs started in the namespace see this resolver in `/etc/resolv.conf`.
    pub fn set_resolver(&self, address: IpAddr) {
        fs::create_dir_all(self.etc()).expect("/etc/netns is writable");
        let text = format!("nameserver {address}\noptions timeout:1 attempts:1\n");
        fs::write(self.etc().join("resolv.conf"), text).expect("/etc/netns is writable");
    }

    /// Lets programs started in the namespace know `uid` as an account.
    ///
    /// Some clients ask the account database who they are and end when nobody knows.
    pub fn set_account(&self, uid: u32, name: &str, home: &Path) {
        fs::create_dir_all(self.etc()).expect("/etc/netns is writable");
        let mut text = fs::read_to_string("/etc/passwd").expect("every system has accounts");
        text.push_str(&format!(
            "{name}:x:{uid}:{uid}::{}:/bin/sh\n",
            home.display()
        ));
        fs::write(self.etc().join("passwd"), text).expect("/etc/netns is writable");
    }

    /// Runs `ip` inside.
    pub fn ip(&self, args: &[&str]) -> String {
        Program::new("ip")
            .args(["-n", &self.name])
            .args(args)
            .run()
            .ok()
            .stdout
    }

    /// Loads an nft script inside.
    pub fn nft(&self, script: &str) {
        Program::new("nft")
            .args(["-f", "-"])
            .input(script)
            .in_netns(self)
            .run()
            .ok();
    }

    /// Counts, from now on, the TCP connections `uid` begins to any address but 127.0.0.0/8.
    pub fn count_dials(&self, uid: u32) -> Dials<'_> {
        self.count(uid, "ip daddr != 127.0.0.0/8")
    }

    /// The same, to any address at all.
    pub fn count_all_dials(&self, uid: u32) -> Dials<'_> {
        self.count(uid, "")
    }

    fn count(&self, uid: u32, to: &str) -> Dials<'_> {
        self.nft(&format!(
            "table inet dials_{uid} {{
                counter dials {{ }}
                chain out {{
                    type filter hook output priority -10; policy accept;
                    meta skuid {uid} {to} tcp flags & (syn | ack) == syn counter name dials
                }}
            }}"
        ));
        Dials { netns: self, uid }
    }

    /// Runs `work` on a thread of its own inside the namespace; sockets it makes belong there.
    pub fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> std::thread::JoinHandle<T> {
        let handle = fs::File::open(format!("/run/netns/{}", self.name)).expect("it exists");
        std::thread::spawn(move || {
            nix::sched::setns(handle, nix::sched::CloneFlags::CLONE_NEWNET)
                .expect("root may enter a namespace");
            work()
        })
    }

    fn etc(&self) -> PathBuf {
        PathBuf::from("/etc/netns").join(&self.name)
    }
}

impl Default for Netns {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Netns {
    fn drop(&mut self) {
        Program::new("ip")
            .args(["netns", "delete", &self.name])
            .run();
        let _absent = fs::remove_dir_all(self.etc());
    }
}

/// A counter of connections begun by one uid.
#[derive(Debug)]
pub struct Dials<'a> {
    netns: &'a Netns,
    uid: u32,
}

impl Dials<'_> {
    /// How many so far.
    pub fn count(&self) -> u64 {
        let table = format!("dials_{}", self.uid);
        let args = ["-j", "list", "counter", "inet", &table, "dials"];
        let listed = Program::new("nft")
            .args(args)
            .in_netns(self.netns)
            .run()
            .ok()
            .stdout;
        let listed: serde_json::Value = serde_json::from_str(&listed).expect("nft speaks JSON");
        listed["nftables"]
            .as_array()
            .and_then(|objects| {
                objects
                    .iter()
                    .find_map(|object| object["counter"]["packets"].as_u64())
            })
            .expect("the counter exists")
    }
}
