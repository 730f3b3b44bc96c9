//! A log that is right in itself but not the one that was anchored, with the orchestrator's journal.

use tests::instance::Instance;

use super::*;

#[test]
fn a_log_cut_back_or_begun_anew_is_found_by_the_orchestrator_s_anchors() {
    let instance = Instance::up();
    let log = instance.path("var/lib/portcullis/proxy/audit");
    let socket = instance.path("run/portcullis/orchestrator/api.sock");
    let public = instance.path("var/lib/portcullis/trust/audit.asc");
    let verify = |file: &Path, anchors: Option<&Path>| -> Finished {
        let program = proxy(&["audit", "verify", "--file"])
            .arg(file)
            .arg("--key")
            .arg(&public);
        match anchors {
            Some(anchors) => program.arg("--anchors").arg(anchors),
            None => program,
        }
        .run()
    };
    let cycle = || {
        instance.run_down(&[]).ok();
        let closed = fs::read(log.join("audit.jsonl")).unwrap();
        instance.run_up(&["--no-gate-test"]).ok();
        closed
    };
    let earlier = cycle();
    cycle();
    let cut = instance.prefix.join("cut");
    fs::create_dir(&cut).unwrap();
    fs::write(cut.join("audit.jsonl"), &earlier).unwrap();
    verify(&cut, None).ok();
    let found = wait::until("the later close is anchored, and missed", || {
        let told = verify(&cut, Some(&socket));
        (told.code() == 1).then_some(told)
    });
    assert!(found.output().contains("anchor"), "{}", found.shown());
    // Control: what was not cut holds against the same anchors.
    verify(&log, Some(&socket)).ok();
    // Whoever keeps the anchors only asks for them.
    let account = format!("{}-orchestrator", instance.name);
    let uid = Program::new("id").args(["-u", &account]).run().ok().stdout;
    assert_eq!(attempt(uid.trim().parse().unwrap(), &log), "0\n");
    fs::remove_dir_all(&cut).unwrap();

    // Deleted, and begun anew by the gate itself: right in itself, and not the log that was anchored.
    instance.run_down(&[]).ok();
    let kept = instance.prefix.join("kept");
    fs::create_dir(&kept).unwrap();
    for entry in fs::read_dir(&log).unwrap() {
        let path = entry.unwrap().path();
        fs::rename(&path, kept.join(path.file_name().unwrap())).unwrap();
    }
    instance.run_up(&["--no-gate-test"]).ok();
    cycle();
    let with_log = |file: &Path, number: &str| {
        proxy(&["audit", "verify", "--file"])
            .arg(file)
            .arg("--key")
            .arg(&public)
            .arg("--anchors")
            .arg(&socket)
            .args(["--log", number])
            .run()
    };
    wait::until_true("the new log is anchored as another one", || {
        with_log(&log, "2").code() == 0
    });
    verify(&log, None).ok();
    let found = verify(&log, Some(&socket));
    assert_eq!(found.code(), 1, "{}", found.shown());
    assert!(found.output().contains("begun anew"), "{}", found.shown());
    // Control: the former one is whole, and is told from the present one.
    with_log(&kept, "1").ok();
    assert_eq!(with_log(&kept, "2").code(), 1);
    fs::remove_dir_all(&kept).unwrap();
}
