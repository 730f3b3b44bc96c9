use super::*;

fn status(flag: &str, uids: &str, state: &str) -> Status {
    let text = format!("Name:\tbash\nState:\t{state}\nUid:\t{uids}\nNoNewPrivs:\t{flag}\n");
    Status::of(text)
}

#[test]
fn any_uid_of_an_agent_without_the_flag_counts() {
    let agent = |uid: u32| uid == 1500;
    let judged = |flag, uids, state| judge(&status(flag, uids, state), &agent);
    let gains = Rights {
        may_gain: true,
        held: Vec::new(),
    };
    let found = Some((1500, "bash".to_owned(), gains));
    assert_eq!(judged("0", "1500\t1500\t1500\t1500", "S (sleeping)"), found);
    assert_eq!(
        judged("0", "1500\t0\t0\t0", "R (running)"),
        found,
        "set-user-id"
    );
    assert_eq!(judged("0", "0\t1500\t0\t1500", "R (running)"), found);
    assert_eq!(judged("1", "1500\t1500\t1500\t1500", "S (sleeping)"), None);
    assert_eq!(judged("0", "1501\t1501\t1501\t1501", "S (sleeping)"), None);
    assert_eq!(judged("0", "1500\t1500\t1500\t1500", "Z (zombie)"), None);
    assert_eq!(judge(&Status::of(""), &agent), None);
}

#[test]
fn a_program_may_be_called_anything() {
    let mut stat = "7 (a) b (c) R".to_owned();
    for field in 4..=24 {
        stat.push_str(&format!(" {field}"));
    }
    assert_eq!(started(&stat), Some("22"));
    assert_eq!(started(""), None);
}

fn process(pid: u32, started: &str, uid: u32, name: &str) -> Process {
    Process {
        pid,
        started: started.to_owned(),
        uid,
        name: name.to_owned(),
        rights: Rights::default(),
        unread: false,
    }
}

#[test]
fn nobody_hides_behind_another_name_user_or_child() {
    let first = [process(7, "100", 1500, "sh")];
    let told = |second: &[Process]| {
        let (stayed, followed) = seen_twice(&first, second.to_vec());
        let pids = |found: &[Process]| found.iter().map(|process| process.pid).collect();
        (pids(&stayed), pids(&followed))
    };
    let same = (vec![7], Vec::<u32>::new());
    assert_eq!(told(&[process(7, "100", 1500, "sh")]), same);
    assert_eq!(told(&[process(7, "100", 1500, "another")]), same);
    assert_eq!(told(&[process(7, "100", 1501, "sh")]), same);
    let child = (Vec::new(), vec![8]);
    let [next, last] = ["8", "9"].map(|pid| process(pid.parse().unwrap(), "101", 1500, "sh"));
    assert_eq!(told(&[next.clone(), last]), child, "once for each uid");
    assert_eq!(
        told(&[process(7, "102", 1500, "sh")]),
        (Vec::new(), vec![7])
    );
    // Of a uid with one that stayed, that one is told.
    assert_eq!(told(&[next, process(7, "100", 1500, "sh")]), same);
    // Controls: it gave up its rights in between; somebody else's came.
    assert_eq!(told(&[]), (Vec::new(), Vec::new()));
    assert_eq!(
        told(&[process(8, "101", 1501, "sh")]),
        (Vec::new(), Vec::new())
    );
}

#[test]
fn where_a_process_is_decides_and_what_cannot_be_read_counts() {
    let failed = |code: i32| Err(io::Error::from_raw_os_error(code));
    let here = [Ok(1), Ok(2)];
    let counts = |net, user| shared(&here, &[net, user]);
    assert_eq!(counts(Ok(1), Ok(2)), Some(false));
    assert_eq!(counts(Ok(3), Ok(2)), None, "another network");
    assert_eq!(counts(Ok(1), Ok(3)), None, "another user namespace");
    assert_eq!(
        counts(failed(libc::EACCES), failed(libc::EACCES)),
        Some(true)
    );
    assert_eq!(counts(failed(libc::EPERM), Ok(2)), Some(true));
    assert_eq!(counts(failed(libc::EACCES), Ok(3)), None);
    assert_eq!(counts(failed(libc::ENOENT), failed(libc::ENOENT)), None);
    assert_eq!(counts(failed(libc::ESRCH), failed(libc::EACCES)), None);
}

#[test]
fn our_own_process_is_found_by_its_uid() {
    let me = nix::unistd::getuid().as_raw();
    let own = || look(Path::new("/proc"), &|uid| uid == me);
    let ours = |found: Vec<Process>| {
        found
            .iter()
            .any(|process| process.pid == std::process::id())
    };
    let flagged = nix::sys::prctl::get_no_new_privs().unwrap();
    assert_eq!(ours(own()), !flagged);
    assert!(look(Path::new("/proc"), &|_| false).is_empty());
}
