//! The disk a machine boots: a Debian, and on it an instance that `portcullis up` made under systemd.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use nix::fcntl::{Flock, FlockArg};

use super::{Machine, kept, script};
use crate::binaries;
use crate::command::Program;

/// What the instance inside consists of, and what the tests send with.
const PROGRAMS: [&str; 7] = [
    "portcullis",
    "portcullis-boundary",
    "portcullis-orchestrator",
    "portcullis-probe",
    "portcullis-proxy",
    "portcullis-relay",
    "portcullis-stand-in",
];

/// Making the first disk fetches a Debian.
const MAKING_SECONDS: u32 = 1800;

/// A disk with what belongs to it.
#[derive(Debug)]
pub struct Disk {
    pub(super) path: PathBuf,
    /// A second disk: the programs under test in `/`, for `/mnt` inside.
    pub(super) programs: PathBuf,
    directory: PathBuf,
}

impl Disk {
    /// The disk with an instance on it. `prepare` is what is run in the machine after `up`, once; the disk is kept until
    /// that, the programs or `tests/boot` change.
    pub fn provisioned(prepare: &str) -> &'static Self {
        static DISK: OnceLock<Disk> = OnceLock::new();
        DISK.get_or_init(|| Self::provision(prepare))
    }

    fn provision(prepare: &str) -> Self {
        let directory = kept();
        let mut boot = script("boot").arg(&directory).limit(MAKING_SECONDS);
        for name in ["BOOT_SUITE", "DEBIAN_MIRROR"] {
            if let Some(value) = std::env::var_os(name) {
                boot = boot.env(name, value);
            }
        }
        boot.run().ok();
        let at = |name: &str| directory.join(name);
        // Another run of the tests may be at it.
        let lock = File::create(at("provisioning")).expect("a writable target folder");
        let _turn = Flock::lock(lock, FlockArg::LockExclusive).expect("the lock");
        let disk = Self {
            path: at("provisioned.img"),
            programs: at("programs.img"),
            directory: directory.clone(),
        };
        let made = format!(
            "{}\n{}{prepare}",
            fs::read_to_string(at("made")).expect("tests/boot says what it made"),
            PROGRAMS.map(identity).concat()
        );
        if fs::read_to_string(at("provisioned")).is_ok_and(|before| before == made) {
            return disk;
        }
        let _absent = fs::remove_file(at("provisioned"));
        pack_programs(&disk.programs);
        Program::new("cp")
            // A machine may still run on the former one.
            .args(["--sparse=always", "--remove-destination"])
            .args([&at("disk.img"), &disk.path])
            .run()
            .ok();
        let mut machine = Machine::start(&disk, &[], "off");
        let up = "mount -o ro /dev/vdb /mnt && /mnt/portcullis up --binaries /mnt --no-gate-test";
        machine.run(up).ok();
        machine.run(prepare).ok();
        machine.power_off();
        fs::write(at("provisioned"), made).expect("a writable target folder");
        disk
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// The host's qemu, or the one that `tests/boot` brought. That one is started by its own loader, with its own
    /// libraries, so that it sees the host's files.
    pub(super) fn qemu(&self) -> Program {
        let tools = self.file("tools");
        if !tools.is_dir() {
            return Program::new("qemu-system-x86_64");
        }
        let libraries = tools.join("usr/lib/x86_64-linux-gnu");
        let mut program = Program::new(tools.join("lib64/ld-linux-x86-64.so.2"))
            .env("QEMU_MODULE_DIR", libraries.join("qemu"))
            .arg("--library-path")
            .arg(&libraries)
            .arg(tools.join("usr/bin/qemu-system-x86_64"));
        for share in ["usr/share/qemu", "usr/share/seabios"] {
            program = program.arg("-L").arg(tools.join(share));
        }
        program
    }
}

/// Changes whenever the program is built anew.
fn identity(name: &str) -> String {
    let found = fs::metadata(binaries::path(name)).expect("a built program");
    format!(
        "{name} {} {}.{}\n",
        found.len(),
        found.mtime(),
        found.mtime_nsec()
    )
}

fn pack_programs(image: &Path) {
    let folder = tempfile::tempdir().expect("room in /tmp");
    for name in PROGRAMS {
        Program::new("strip")
            .arg("--strip-debug")
            .arg("-o")
            .arg(folder.path().join(name))
            .arg(binaries::path(name))
            .run()
            .ok();
    }
    let _absent = fs::remove_file(image);
    Program::new("mke2fs")
        .args(["-q", "-t", "ext4", "-O", "^has_journal", "-m", "0", "-d"])
        .args([folder.path(), image])
        .arg("256M")
        .run()
        .ok();
}
