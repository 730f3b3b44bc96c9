use super::*;

fn config(control: &str, state: &str, socket: &str) -> Config {
    parsed(control, state, socket).unwrap()
}

fn parsed(control: &str, state: &str, socket: &str) -> Result<Config, crate::config::ConfigError> {
    listening(control, state, &format!("unix = [\"{socket}\"]"))
}

fn listening(
    control: &str,
    state: &str,
    listen: &str,
) -> Result<Config, crate::config::ConfigError> {
    let text = format!(
        "[listen]\n{listen}\n[[listen.identity]]\nuid = 1000\nagent = \"a\"\ncompany = \"c\"\n\
         profile = \"default\"\n[control]\nsocket = \"{control}\"\n[runs]\ndirectory = \"/tmpfs/runs\"\n\
         [ca]\ndirectory = \"{state}/ca\"\n[audit]\ndirectory = \"{state}/audit\"\n[boundary]\nexternal = \"none\"\n\
         [profile.default]\npolicy = \"/etc/p.toml\"\n"
    );
    Config::parse(&text, Path::new("proxy.toml"))
}

fn share(directory: &str) -> Share {
    Share {
        directory: directory.into(),
        from: "/nonexistent".into(),
    }
}

#[test]
fn nothing_of_the_gates_own_lies_on_the_agents_volume() {
    let mounts = ["/", "/tmpfs", "/state", "/nope/agents"].map(PathBuf::from);
    let good = config("/tmpfs/control.sock", "/state", "/nope/agents/gate.sock");
    share("/nope/agents").check_mounts(&good, &mounts).unwrap();
    let said = |share: Share, config: &Config, mounts: &[PathBuf]| {
        share.check_mounts(config, mounts).unwrap_err().to_string()
    };
    let no_volume = said(share("/nope/agents"), &good, &mounts[..3]);
    assert!(no_volume.contains("not a volume of its own"), "{no_volume}");
    let elsewhere = config("/tmpfs/control.sock", "/state", "/nope/other/gate.sock");
    let no_socket = said(share("/nope/agents"), &elsewhere, &mounts);
    assert!(no_socket.contains("/nope/agents/gate.sock"), "{no_socket}");
    // Who comes by a network needs no socket there.
    let both = "unix = [\"/nope/other/gate.sock\"]\ntoken = [\"10.20.0.1:3128\"]";
    let network = listening("/tmpfs/control.sock", "/state", both).unwrap();
    share("/nope/agents")
        .check_mounts(&network, &mounts)
        .unwrap();
}

/// By its path the configuration already tells; by a link only the mounts do.
#[test]
fn what_lies_on_it_is_named_with_its_key() {
    for (control, state, key) in [
        ("/nope/private/control.sock", "/state", "control.socket"),
        ("/run/control.sock", "/nope/state", "ca.directory"),
    ] {
        let said = parsed(control, state, "/nope/gate.sock").unwrap_err();
        assert!(said.to_string().contains(key), "{said}");
    }
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name).display().to_string();
    for name in ["volume", "own"] {
        fs::create_dir(place(name)).unwrap();
    }
    std::os::unix::fs::symlink(place("volume"), place("link")).unwrap();
    let mounts = ["/".into(), PathBuf::from(place("volume"))];
    let said = |state: &str| {
        let control = place("own/control.sock");
        let config = config(&control, &place(state), &place("volume/gate.sock"));
        share(&place("volume")).check_mounts(&config, &mounts)
    };
    said("own").unwrap();
    let exposed = said("link").unwrap_err().to_string();
    assert!(exposed.starts_with("ca.directory: "), "{exposed}");
}

#[test]
fn mount_points_are_read_with_their_escapes() {
    let table = "22 1 8:1 / / rw - ext4 /dev/a rw\n\
                 30 22 0:5 /x /with\\040space rw,nosuid shared:1 - tmpfs tmpfs rw\n";
    assert_eq!(mount_points(table), ["/", "/with space"].map(PathBuf::from));
    let mounts = ["/", "/nope", "/nope/deep"].map(PathBuf::from);
    assert_eq!(
        mount_of(Path::new("/nope/deep/er/file"), &mounts),
        mounts[2]
    );
    assert_eq!(mount_of(Path::new("/nope/deeper"), &mounts), mounts[1]);
    assert_eq!(mount_of(Path::new("/nopes"), &mounts), mounts[0]);
}

#[test]
fn a_copy_replaces_what_differs_and_leaves_the_rest() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::create_dir(from.path().join("lib")).unwrap();
    fs::write(from.path().join("lib/one"), "1").unwrap();
    fs::write(from.path().join("program"), "#!").unwrap();
    fs::set_permissions(
        from.path().join("program"),
        fs::Permissions::from_mode(0o755),
    )
    .unwrap();
    copy(from.path(), to.path()).unwrap();
    let inode = |name: &str| fs::metadata(to.path().join(name)).unwrap().ino();
    let mode = |name: &str| fs::metadata(to.path().join(name)).unwrap().mode() & 0o777;
    assert_eq!((mode("program"), mode("lib/one")), (0o755, 0o644));
    let before = (inode("program"), inode("lib/one"));
    fs::write(from.path().join("lib/one"), "2").unwrap();
    copy(from.path(), to.path()).unwrap();
    assert_eq!(inode("program"), before.0);
    assert_ne!(inode("lib/one"), before.1);
    assert_eq!(fs::read_to_string(to.path().join("lib/one")).unwrap(), "2");
    // A link that somebody put there is replaced, not followed.
    let outside = to.path().join("outside");
    fs::write(&outside, "mine").unwrap();
    fs::remove_file(to.path().join("program")).unwrap();
    std::os::unix::fs::symlink(&outside, to.path().join("program")).unwrap();
    copy(from.path(), to.path()).unwrap();
    assert_eq!(fs::read_to_string(&outside).unwrap(), "mine");
}
