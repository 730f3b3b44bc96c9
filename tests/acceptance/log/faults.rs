//! Disks that fail in earnest: a file system that turns read-only under an open file, a sync whose data
//! the disk did not take, a directory that was moved away. Each is refused with a code, told in red, and
//! over once the place can be written again.

use super::*;

/// An ext4 file system in a file, over the gate's audit directory.
struct Disk {
    folder: PathBuf,
    image: PathBuf,
    /// What bounds the image, if anything.
    backing: Option<PathBuf>,
}

impl Disk {
    /// For a gate that is not started yet. With `backing`, on a file system of so many MiB.
    fn under(world: &World, options: &str, backing: Option<u32>) -> Self {
        let folder = world.gate.dir.join("audit");
        let place = world.path().join("disk");
        fs::create_dir(&place).unwrap();
        if let Some(mib) = backing {
            mount(
                &["-t", "tmpfs", "-o", &format!("size={mib}m"), "none"],
                &place,
            );
        }
        let image = place.join("image");
        fs::File::create(&image).unwrap().set_len(16 << 20).unwrap();
        Program::new("mkfs.ext4")
            .args(["-q", "-O", "^has_journal", "-b", "1024"])
            .arg(&image)
            .run()
            .ok();
        let disk = Self {
            folder,
            backing: backing.map(|_| place),
            image,
        };
        let options = format!("loop,{options}");
        mount(
            &["-o", &options, disk.image.to_str().unwrap()],
            &disk.folder,
        );
        host::directory(&disk.folder, world.gate.uid, 0o700);
        disk
    }

    /// The block device, as the system names it.
    fn device(&self) -> String {
        let told = Program::new("findmnt")
            .args(["--noheadings", "--output", "SOURCE", "--target"])
            .arg(&self.folder)
            .run()
            .ok();
        told.stdout.trim().trim_start_matches("/dev/").to_owned()
    }

    /// Takes every block that the image could still get.
    fn starve(&self) {
        Program::new("sh")
            .in_directory(self.backing.as_ref().unwrap())
            .args(["-c", "cat /dev/zero > filler; true"])
            .run();
    }

    fn feed(&self) {
        fs::remove_file(self.backing.as_ref().unwrap().join("filler")).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // More than one may lie there; a lazy unmount waits for nobody.
        while Program::new("umount")
            .arg("--lazy")
            .arg(&self.folder)
            .run()
            .code()
            == 0
        {}
        if let Some(backing) = &self.backing {
            Program::new("umount").arg("--lazy").arg(backing).run();
        }
    }
}

fn mount(arguments: &[&str], at: &Path) {
    Program::new("mount").args(arguments).arg(at).run().ok();
}

/// Asks until the log is refused, and says how status puts it.
fn refused_in_red(world: &World, url: &str) -> String {
    wait::until_true("the gate notices", || {
        let answer = world.curl(&["--include", url]).ok();
        answer.stdout.contains("audit_unavailable") && answer.stdout.ends_with("\n503")
    });
    let before = world.web.received().len();
    for _ in 0..3 {
        assert!(world.curl(&[url]).ok().stdout.ends_with("\n503"));
    }
    assert_eq!(world.web.received().len(), before, "no record, no action");
    let told = proxy(&["status", "--config"])
        .arg(world.gate.config())
        .as_uid(world.gate.operator)
        .run();
    assert_eq!(told.code(), 1, "{}", told.shown());
    assert!(told.stdout.contains("NOT OK"), "{}", told.shown());
    let status = world.control().status();
    assert_eq!(status["ready"], false);
    status["audit"]["problem"].as_str().unwrap().to_owned()
}

fn recovers(world: &World, url: &str) {
    wait::until_true("the gate recovers by itself", || {
        world.curl(&[url]).ok().stdout.ends_with("\n200")
    });
    assert_eq!(world.control().status()["audit"]["ok"], true);
}

/// Waits until what was asked for has ended in the log.
fn settled(world: &World, url: &str) {
    assert!(world.curl(&[url]).ok().stdout.ends_with("\n200"));
    wait::until_true("each request has its end", || {
        let count = |kind: &str| {
            let records = world.gate.audit().into_iter();
            records.filter(|it| it["kind"] == kind).count()
        };
        count("request") == count("response")
    });
}

#[test]
fn a_disk_that_turns_read_only_stops_everything_until_it_is_mounted_anew() {
    let mut world = World::prepared(None, Boundary::External);
    let disk = Disk::under(&world, "errors=remount-ro", None);
    world.start();
    let url = format!("https://{WEB}/x");
    settled(&world, &url);
    Program::new("sync").arg("-f").arg(&disk.folder).run().ok();
    // As an error of the disk makes it: also under files that are open for writing.
    let trigger = format!("/sys/fs/ext4/{}/trigger_fs_error", disk.device());
    fs::write(trigger, "x").unwrap();
    let problem = refused_in_red(&world, &url);
    assert!(problem.contains("Read-only"), "{problem}");

    // What somebody does about it: the disk is copied, checked, and mounted in its place.
    let copy = world.path().join("copy");
    fs::copy(&disk.image, &copy).unwrap();
    let checked = Program::new("e2fsck").args(["-f", "-y"]).arg(&copy).run();
    assert!(checked.code() <= 1, "{}", checked.shown());
    let (folder, copy) = (disk.folder.to_str().unwrap(), copy.to_str().unwrap());
    let found = Program::new("losetup")
        .args(["--find", "--show", copy])
        .run()
        .ok();
    let device = found.stdout.trim().to_owned();
    // Over the broken one: what lies beneath it is another directory, which the gate would take.
    mount(&[&device], Path::new(folder));
    beside_the_gate(&world, &["mount", &device, folder]);
    // It goes once nobody has it mounted.
    Program::new("losetup")
        .args(["--detach", &device])
        .run()
        .ok();
    recovers(&world, &url);
    let report = verified(&world);
    assert_eq!(report["intact"], true, "{report}");
    assert_eq!(report["first"], 1, "what the disk had is part of it");
    world.gate.stop();
}

#[test]
fn a_file_whose_sync_failed_is_abandoned_and_a_new_one_begun() {
    let mut world = World::prepared(None, Boundary::External);
    let disk = Disk::under(&world, "errors=continue", Some(6));
    world.start();
    let url = format!("https://{WEB}/x");
    settled(&world, &url);
    disk.starve();
    let problem = refused_in_red(&world, &url);
    disk.feed();
    recovers(&world, &url);
    let files = |world: &World| -> Vec<String> {
        let names = fs::read_dir(world.gate.audit_file().parent().unwrap()).unwrap();
        let mut names: Vec<_> = names
            .map(|it| it.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.ends_with(".jsonl"))
            .collect();
        names.sort();
        names
    };
    assert!(
        files(&world).len() >= 2,
        "{:?} after {problem}",
        files(&world)
    );
    let lines = fs::read_to_string(world.gate.audit_file()).unwrap();
    let first: Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    assert_eq!(first["log"]["what"], "abandoned", "{first}");
    let (durable, last) = (&first["log"]["durable"], &first["log"]["last"]);
    assert!(
        durable.as_u64() <= last.as_u64() && durable.as_u64() >= Some(2),
        "{first}"
    );
    assert_eq!(first["seq"].as_u64(), last.as_u64().map(|last| last + 1));
    // Either every line is still there, or those that are not are named as the log names them.
    let report = verified(&world);
    for finding in report["findings"].as_array().unwrap() {
        let problem = finding["problem"].as_str().unwrap();
        assert!(
            problem.contains("lost when a sync failed") || problem.contains("is not whole"),
            "{report}"
        );
    }
    assert_eq!(
        report["open"],
        serde_json::json!([]),
        "what did not leave has its end"
    );
    world.gate.stop();
}

#[test]
fn a_directory_that_was_moved_away_stops_everything_until_there_is_one_again() {
    let mut world = World::new();
    let url = format!("https://{WEB}/x");
    settled(&world, &url);
    let folder = world.gate.audit_file().parent().unwrap().to_owned();
    let away = world.gate.dir.join("away");
    fs::rename(&folder, &away).unwrap();
    let problem = refused_in_red(&world, &url);
    assert!(problem.contains("No such file"), "{problem}");
    assert!(!folder.exists(), "the gate makes none by itself");
    fs::rename(&away, &folder).unwrap();
    recovers(&world, &url);
    assert_eq!(verified(&world)["intact"], true, "{}", verified(&world));

    // Another directory will do; the files of the former belong before it.
    fs::rename(&folder, &away).unwrap();
    refused_in_red(&world, &url);
    host::directory(&folder, world.gate.uid, 0o700);
    recovers(&world, &url);
    let moved = |it: &Value| it["log"]["what"] == "moved";
    assert!(
        world.gate.audit().iter().any(moved),
        "{:?}",
        world.gate.audit()
    );
    assert_eq!(world.gate.stop(), Some(0));
    assert_eq!(
        verified(&world)["intact"],
        false,
        "control: lines are elsewhere"
    );
    for entry in fs::read_dir(&away).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if name == "audit.jsonl" {
            let text = fs::read_to_string(&path).unwrap();
            let first: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
            let closed = format!("audit-{:020}.jsonl", first["seq"].as_u64().unwrap());
            fs::rename(&path, folder.join(closed)).unwrap();
        } else {
            fs::rename(&path, folder.join(name)).unwrap();
        }
    }
    let report = verified(&world);
    assert_eq!(report["intact"], true, "{report}");
    assert_eq!(report["end"], "closed");
}
