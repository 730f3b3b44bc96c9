//! The system calls that have no business in a run, one by one, beside the same call outside.

use super::*;

/// One call per line: a name, and what `perl` evaluates; it prints the error number, 0 for none.
fn calls() -> Vec<(&'static str, String, &'static [i32])> {
    const EPERM: &[i32] = &[libc::EPERM];
    const ENOSYS: &[i32] = &[libc::ENOSYS];
    const FAMILY: &[i32] = &[libc::EAFNOSUPPORT];
    let call = |number: libc::c_long, arguments: &str| format!("syscall({number}, {arguments})");
    vec![
        ("mount", call(libc::SYS_mount, "0, 0, 0, 0, 0"), EPERM),
        ("umount2", call(libc::SYS_umount2, "0, 0"), EPERM),
        ("pivot_root", call(libc::SYS_pivot_root, "0, 0"), EPERM),
        ("fsopen", call(libc::SYS_fsopen, "0, 0"), EPERM),
        ("open_tree", call(libc::SYS_open_tree, "-1, 0, 0"), EPERM),
        (
            "move_mount",
            call(libc::SYS_move_mount, "-1, 0, -1, 0, 0"),
            EPERM,
        ),
        ("bpf", call(libc::SYS_bpf, "0, 0, 0"), EPERM),
        ("keyctl", call(libc::SYS_keyctl, "0, -1, 0, 0, 0"), EPERM),
        ("add_key", call(libc::SYS_add_key, "0, 0, 0, 0, 0"), EPERM),
        (
            "request_key",
            call(libc::SYS_request_key, "0, 0, 0, 0"),
            EPERM,
        ),
        ("setns", call(libc::SYS_setns, "-1, 0"), EPERM),
        ("clone3", call(libc::SYS_clone3, "0, 0"), ENOSYS),
        (
            "process_vm_readv",
            call(libc::SYS_process_vm_readv, "1, 0, 0, 0, 0, 0"),
            EPERM,
        ),
        (
            "perf_event_open",
            call(libc::SYS_perf_event_open, "0, 0, -1, -1, 0"),
            EPERM,
        ),
        (
            "finit_module",
            call(libc::SYS_finit_module, "-1, 0, 0"),
            EPERM,
        ),
        (
            "open_by_handle_at",
            call(libc::SYS_open_by_handle_at, "-1, 0, 0"),
            EPERM,
        ),
        (
            "io_uring_setup",
            call(libc::SYS_io_uring_setup, "1, 0"),
            EPERM,
        ),
        ("userfaultfd", call(libc::SYS_userfaultfd, "-1"), EPERM),
        ("fchmodat2", call(452, "-1, 0, 0, 0"), ENOSYS),
        ("openat2", call(libc::SYS_openat2, "-1, 0, 0, 0"), ENOSYS),
        ("packet socket", call(libc::SYS_socket, "17, 3, 0"), FAMILY),
        ("chmod 4755", "chmod(04755, $f) ? 0 : -1".into(), EPERM),
        ("chmod 2755", "chmod(02755, $f) ? 0 : -1".into(), EPERM),
        (
            "mknod 4755",
            call(libc::SYS_mknodat, "-100, \"$f.n\", 0104755, 0"),
            EPERM,
        ),
        (
            "open 4755",
            call(libc::SYS_openat, "-100, \"$f.o\", 0101, 04755"),
            EPERM,
        ),
        (
            "clone with a new user namespace",
            call(libc::SYS_clone, "0x10000011, 0, 0, 0, 0"),
            EPERM,
        ),
        (
            "new user namespace",
            call(libc::SYS_unshare, "0x10000000"),
            EPERM,
        ),
        ("ptrace", call(libc::SYS_ptrace, "0, 0, 0, 0"), EPERM),
    ]
}

fn errors(output: &Finished) -> Vec<i32> {
    output
        .stdout
        .lines()
        .map(|line| line.parse().unwrap())
        .collect()
}

#[test]
fn system_calls_without_business_in_a_run_are_refused() {
    let bench = Bench::new();
    let getpid = libc::SYS_getpid;
    let mut program =
        String::from("$f = \"$ARGV[0]/f\"; open(F, \">\", $f); close F; $| = 1; $me = $$; ");
    for (_, call, _) in calls() {
        // A clone that was granted must not print a second copy of the rest.
        program.push_str(&format!(
            "$! = 0; $r = {call}; exit 0 if syscall({getpid}) != $me; \
             print $r == -1 ? $!+0 : 0, \"\\n\"; "
        ));
    }
    let inside = bench.run(&[], &format!("perl -e '{program}' /work"));
    let inside_errors = errors(&inside);
    assert_eq!(inside_errors.len(), calls().len(), "{}", inside.shown());
    // The control: root outside, in a mount namespace to throw away; each call gets further there.
    let outside = Program::new("unshare")
        .args(["--mount", "perl", "-e", &program])
        .arg(bench.directory.path())
        .run();
    let outside_errors = errors(&outside);
    for (index, (name, _, expected)) in calls().iter().enumerate() {
        let got = inside_errors[index];
        assert!(
            expected.contains(&got),
            "{name} answered error {got} inside"
        );
        if let Some(control) = outside_errors.get(index) {
            assert!(
                !expected.contains(control),
                "{name} is refused outside as well ({control})"
            );
        }
    }
    assert!(outside_errors.len() > 20, "{}", outside.shown());

    // What tools need goes on working.
    let tools = bench.run(
        &[],
        "set -e; touch f; chmod 1777 f; chmod 755 f; mkfifo p; \
         git init -q r; cd r; echo x > x; git add x; git commit -qm x; git log --oneline | wc -l; \
         perl -e 'print fork() ? \"\" : \"child\\n\"; wait'; curl -s http://a.example/ | head -1",
    );
    assert_eq!(
        tools.stdout,
        "1\nchild\nportcullis: the gate is not answering, so nothing leaves; try again shortly\n",
        "{}",
        tools.shown()
    );
}
