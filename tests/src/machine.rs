//! A whole machine: a real Debian kernel and systemd under qemu (software emulation), for what only a boot can show.
//!
//! `tests/boot` makes the disk, once; [`Disk::provisioned`] adds an instance that `portcullis up` made inside. A test
//! boots that disk as often as it likes: what it changes is thrown away with the machine. Commands go in over the second
//! serial port. What the machine sends is recorded outside of it, frame by frame, and the test is the outside that comes in
//! by [`Machine::dial`].

pub mod wire;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use crate::command::Program;
use wire::Frame;

mod disk;

pub use disk::Disk;

/// How long a boot or one command may take on a loaded machine without a processor of its own.
pub const PATIENCE: Duration = Duration::from_secs(400);

/// The machine's ports that are reached from outside, where it sees 10.0.2.2 dial.
pub const WAYS_IN: [u16; 3] = [2222, 2323, 2424];

/// A machine that has booted.
#[derive(Debug)]
pub struct Machine {
    qemu: Child,
    /// Which of this process's machines it is.
    number: u16,
    shell: BufReader<UnixStream>,
    directory: tempfile::TempDir,
}

/// What a command inside left.
#[derive(Debug)]
pub struct Answer {
    /// Its exit status.
    pub code: i32,
    /// Both its streams.
    pub output: String,
}

impl Answer {
    /// The output without the last line break; panics unless the command succeeded.
    #[track_caller]
    pub fn ok(self) -> String {
        assert_eq!(self.code, 0, "{}", self.output);
        self.output.trim_end().to_owned()
    }
}

impl Machine {
    /// Boots `disk`, with `words` added to the kernel's command line. What is written is forgotten afterwards.
    pub fn boot(disk: &Disk, words: &[&str]) -> Self {
        Self::start(disk, words, "on")
    }

    fn start(disk: &Disk, words: &[&str], snapshot: &str) -> Self {
        let directory = tempfile::Builder::new()
            .prefix("portcullis-machine-")
            .tempdir()
            .expect("room in /tmp");
        let at = |name: &str| directory.path().join(name).display().to_string();
        static NUMBER: AtomicU16 = AtomicU16::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        // On a loaded host an emulated timer is late, and the kernel's check of it would end in a panic.
        let words = format!(
            "root=/dev/vda rw console=ttyS0 quiet no_timer_check systemd.show_status=yes \
             module_blacklist=kvm,kvm_amd,kvm_intel,powernow_k8 {}",
            words.join(" ")
        );
        let drive = |path: &Path, snapshot: &str| {
            format!(
                "file={},if=virtio,format=raw,snapshot={snapshot},cache=unsafe",
                path.display()
            )
        };
        let qemu = disk
            .qemu()
            // A processor of the host's may be offered and not work; an emulated one is the same everywhere. It has a
            // source of randomness, for which a boot would wait otherwise; a fifth level of page tables is only work.
            .args(["-accel", "tcg,thread=multi", "-cpu", "max,la57=off"])
            .args(["-smp", "2", "-m", "1024"])
            .args(["-nodefaults", "-display", "none"])
            .arg("-kernel")
            .arg(disk.file("kernel"))
            .arg("-initrd")
            .arg(disk.file("initrd"))
            .args(["-append", &words])
            .args(["-drive", &drive(&disk.path, snapshot)])
            .args(["-drive", &drive(&disk.programs, "on")])
            .args(["-serial", &format!("file:{}", at("console"))])
            .args(["-chardev"])
            .arg(format!(
                "socket,id=shell,path={},server=on,wait=on",
                at("shell")
            ))
            .args(["-serial", "chardev:shell"])
            // Nobody outside answers, but for addresses: a frame that gets there is recorded, and goes no further.
            .arg("-netdev")
            .arg(format!("user,id=net,restrict=on{}", forwards(number)))
            .args(["-device", "virtio-net-pci,netdev=net,romfile="])
            .arg("-object")
            .arg(format!(
                "filter-dump,id=dump,netdev=net,file={}",
                at("frames")
            ))
            .spawn_logging(&directory.path().join("qemu.log"));
        let mut machine = Self {
            qemu,
            number,
            shell: BufReader::new(UnixStream::pair().expect("a pair of sockets").0),
            directory,
        };
        machine.connect();
        machine.wait_until_up();
        machine
    }

    fn connect(&mut self) {
        let path = self.directory.path().join("shell");
        let deadline = Instant::now() + PATIENCE;
        let stream = loop {
            match UnixStream::connect(&path) {
                Ok(stream) => break stream,
                Err(error) => {
                    let ended = self.qemu.try_wait().expect("our own child");
                    assert!(
                        ended.is_none() && Instant::now() < deadline,
                        "{error}: {}",
                        self.read("qemu.log")
                    );
                    std::thread::sleep(Duration::from_millis(20));
                }
            }
        };
        let patience = Some(PATIENCE);
        stream.set_read_timeout(patience).expect("a socket");
        self.shell = BufReader::new(stream);
    }

    /// Waits for the shell, and then until every unit has started or failed.
    #[track_caller]
    fn wait_until_up(&mut self) {
        while self.line() != "ready" {}
        self.run("systemctl is-system-running --wait");
    }

    #[track_caller]
    fn line(&mut self) -> String {
        let mut line = String::new();
        let read = self.shell.read_line(&mut line);
        match read {
            Ok(count) if count > 0 => line.trim().to_owned(),
            other => {
                let console = self.console();
                let lines: Vec<&str> = console.lines().collect();
                let end = lines[lines.len().saturating_sub(40)..].join("\n");
                panic!(
                    "the machine does not answer: {other:?}\n{}\n{end}",
                    self.read("qemu.log")
                )
            }
        }
    }

    /// Runs a line, or a script, as root in the machine.
    #[track_caller]
    pub fn run(&mut self, script: &str) -> Answer {
        self.send(script);
        let answer = self.line();
        let (code, output) = answer.split_once(' ').unwrap_or((&answer, ""));
        let output = BASE64.decode(output).expect("base64 from the shell");
        Answer {
            code: code
                .parse()
                .unwrap_or_else(|_| panic!("the shell answered {answer:?}")),
            output: String::from_utf8_lossy(&output).into_owned(),
        }
    }

    fn send(&mut self, script: &str) {
        let line = format!("{}\n", BASE64.encode(script));
        self.shell
            .get_mut()
            .write_all(line.as_bytes())
            .expect("the machine's serial port");
    }

    /// The trimmed value of one property of a unit.
    #[track_caller]
    pub fn property(&mut self, unit: &str, property: &str) -> String {
        self.run(&format!("systemctl show --value -p {property} {unit}"))
            .ok()
    }

    /// Waits until a command succeeds.
    #[track_caller]
    pub fn until(&mut self, what: &str, command: &str) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let answer = self.run(command);
            if answer.code == 0 {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "waited in vain for: {what}\n{}",
                answer.output
            );
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Boots again, in the ordinary way.
    #[track_caller]
    pub fn reboot(&mut self) {
        // The shell may end before it has answered.
        self.send("systemctl --no-block reboot");
        self.wait_until_up();
    }

    fn power_off(mut self) {
        // The shell may end before it has answered.
        self.send("systemctl --no-block poweroff");
        let status = self.qemu.wait().expect("our own child");
        assert!(status.success(), "{}", self.read("qemu.log"));
    }

    /// Dials one of [`WAYS_IN`]. The other end of what is returned is qemu, which dials the machine then: only what
    /// can be read tells whether it was let in.
    #[allow(clippy::disallowed_methods, reason = "this is a client, not the gate")]
    pub fn dial(&self, port: u16) -> TcpStream {
        TcpStream::connect(way_in(self.number, port)).expect("qemu listens")
    }

    /// What was printed on the machine's console, of every boot so far.
    pub fn console(&self) -> String {
        self.read("console")
    }

    /// Every frame the machine has sent or been sent.
    pub fn frames(&self) -> Vec<Frame> {
        wire::read(&self.directory.path().join("frames"))
    }

    /// How many packets to that port have left the machine.
    pub fn left_for(&self, port: u16) -> usize {
        let frames = self.frames();
        frames.iter().filter(|frame| frame.port == port).count()
    }

    /// Waits until another packet to that port leaves.
    pub fn wait_for_one_more(&self, port: u16) {
        let before = self.left_for(port);
        crate::wait::until_within(PATIENCE, &format!("a packet to port {port}"), || {
            (self.left_for(port) > before).then_some(())
        });
    }

    fn read(&self, name: &str) -> String {
        let bytes = fs::read(self.directory.path().join(name)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to kill and only its status is left.
        let _ended = self.qemu.kill();
        let _status = self.qemu.wait();
    }
}

/// Where on loopback qemu takes what is for a port of the machine: an address of this process's own, so that nobody else
/// can have taken it.
fn way_in(number: u16, port: u16) -> SocketAddr {
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    let address = Ipv4Addr::new(127, 64 | (high & 63), middle, low);
    SocketAddr::from((address, port + number * 1000))
}

fn forwards(number: u16) -> String {
    WAYS_IN
        .map(|port| format!(",hostfwd=tcp:{}-:{port}", way_in(number, port)))
        .concat()
}

/// Where the machine's own files are kept between runs: beside what cargo keeps. A release other than the usual one, which
/// `BOOT_SUITE` names for `tests/boot`, has a place of its own.
pub(crate) fn kept() -> PathBuf {
    let profile = crate::binaries::directory();
    let target = profile.parent().expect("a profile lies in a target folder");
    let suite = std::env::var("BOOT_SUITE").unwrap_or_default();
    target.join(match suite.as_str() {
        "" | "bookworm" => "boot".to_owned(),
        other => format!("boot-{other}"),
    })
}

/// A program of this repository's own scripts.
pub(crate) fn script(name: &str) -> Program {
    Program::new(crate::binaries::repository().join("tests").join(name))
}
