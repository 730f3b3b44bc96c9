//! What of the gate can reach the disk by way of the swap: everything the kernel would like to write out is made to
//! be written out, and the swap is searched. Where this machine lets nobody add swap (a container), the pages that hold
//! secrets are shown to be locked instead, which is what keeps them out of any swap.

use std::fs;
use std::path::{Path, PathBuf};

use tests::command::Program;
use tests::host;
use tests::wait;
use tests::world::{WEB, World};

/// Tells the kernel to write out every private page of a process that it may (`MADV_PAGEOUT`).
const WRITE_OUT: &str = r#"
import ctypes, os, sys
pid = int(sys.argv[1])
libc, fd = ctypes.CDLL(None, use_errno=True), os.pidfd_open(pid)
class Span(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]
for line in open(f"/proc/{pid}/maps"):
    place, mode = line.split()[:2]
    if mode.startswith("rw"):
        begin, end = (int(word, 16) for word in place.split("-"))
        libc.syscall(440, fd, ctypes.byref(Span(begin, end - begin)), 1, 21, 0)
"#;

/// A swap of a test's own, off again when dropped.
struct Swap(PathBuf);

impl Swap {
    fn on(folder: &Path) -> Option<Self> {
        let file = folder.join("swap");
        Program::new("dd")
            .args([
                "if=/dev/zero",
                "bs=1M",
                "count=48",
                "status=none",
                "conv=fsync",
            ])
            .arg(format!("of={}", file.display()))
            .run()
            .ok();
        fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        Program::new("mkswap").arg(&file).run().ok();
        let on = Program::new("swapon").arg(&file).run();
        on.status.success().then(|| Self(file))
    }

    /// What lies in it, as a file in a folder of its own.
    fn copy(&self, to: &Path) {
        fs::create_dir_all(to).unwrap();
        // Past the page cache, which does not know what the kernel swapped.
        Program::new("dd")
            .args(["bs=1M", "iflag=direct", "status=none"])
            .arg(format!("if={}", self.0.display()))
            .arg(format!("of={}", to.join("swapped").display()))
            .run()
            .ok();
    }
}

impl Drop for Swap {
    fn drop(&mut self) {
        let off = Program::new("swapoff").arg(&self.0).run();
        assert!(
            off.status.success() || std::thread::panicking(),
            "{}",
            off.shown()
        );
    }
}

fn write_out(pid: u32) {
    Program::new("python3")
        .args(["-c", WRITE_OUT, &pid.to_string()])
        .run()
        .ok();
}

/// How much of a process is in the swap, in KiB.
fn swapped(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmSwap:"))
        .unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// Mappings of a process that are locked in memory, and those that are not.
fn mappings(pid: u32) -> (usize, usize) {
    let smaps = fs::read_to_string(format!("/proc/{pid}/smaps")).unwrap();
    let flags = smaps
        .lines()
        .filter_map(|line| line.strip_prefix("VmFlags:"));
    let (locked, free): (Vec<&str>, Vec<&str>) =
        flags.partition(|flags| flags.split_whitespace().any(|flag| flag == "lo"));
    (locked.len(), free.len())
}

/// Attack: CRD-20
#[test]
fn nothing_of_a_secret_is_in_the_swap_when_all_of_the_gate_that_can_be_is() {
    let mut world = World::new();
    let secret = world.web_secret.clone();
    assert!(
        world
            .curl(&[&format!("https://{WEB}/one")])
            .output()
            .ends_with("200")
    );
    let pid = world.gate.pid();
    // The gate as it rests: what a connection keeps is told of elsewhere.
    world.web.stop();
    let at_rest = usize::from(!super::sealed(pid));
    wait::until_true("the connection is gone", || {
        super::in_memory(pid, &super::forms(&secret)) <= at_rest
    });
    let (locked, free) = mappings(pid);
    assert!(locked > 0, "secrets lie in locked memory");
    assert!(free > 0, "the control: other memory is not locked");

    let scratch = host::scratch();
    let Some(swap) = Swap::on(scratch.path()) else {
        return;
    };
    // The control: a process that holds the secret without care.
    let careless = "import sys, time; held = [sys.stdin.read() + str(n) for n in range(4096)]; \
                    open(sys.argv[1], 'w').close(); time.sleep(600)";
    let ready = scratch.path().join("ready");
    let given = scratch.path().join("given");
    fs::write(&given, &secret.secret).unwrap();
    let mut control = Program::new("sh")
        .args([
            "-c",
            "exec python3 -c \"$1\" \"$2\" < \"$3\"",
            "sh",
            careless,
        ])
        .arg(&ready)
        .arg(&given)
        .spawn();
    wait::until_true("it holds the secret", || ready.exists());
    write_out(control.id());
    wait::until_true("it is written out", || swapped(control.id()) > 0);
    let (seen, clean) = (scratch.path().join("seen"), scratch.path().join("clean"));
    wait::until_true("the control: the swap shows the secret", || {
        write_out(control.id());
        swap.copy(&seen);
        !secret.search(&seen).is_empty()
    });
    control.kill().unwrap();
    control.wait().unwrap();
    drop(swap);

    let swap = Swap::on(scratch.path()).expect("as before");
    wait::until_true("the gate is written out", || {
        write_out(pid);
        swapped(pid) > 256
    });
    swap.copy(&clean);
    assert_eq!(secret.search(&clean), []);
}
