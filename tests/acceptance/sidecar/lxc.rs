//! A plain LXC container beside the gate's container, by the shipped configuration and hook.

use std::fs;
use std::path::PathBuf;

use tests::command::{Finished, Program};
use tests::engine::agent_root;
use tests::netns::Netns;
use tests::{binaries, host};

use super::lab::Project;

const COUNT: &str = "https://api.anthropic.com/v1/messages/count_tokens";
const COUNTED: &str = "\"input_tokens\":5";
/// The container's root on the host; the gate sees uid 1000 of it as 1000 more.
const FIRST: u32 = 3_200_000;

/// Containers' roots and configurations, and the gate's volume where LXC finds it.
struct Guests<'a> {
    netns: &'a Netns,
    directory: tempfile::TempDir,
}

impl<'a> Guests<'a> {
    fn new(project: &Project, netns: &'a Netns) -> Self {
        let directory = host::scratch();
        for name in ["root", "share", "none", "containers"] {
            host::directory(&directory.path().join(name), 0, 0o755);
        }
        let guests = Self { netns, directory };
        let tar = Program::new("tar").args(["--extract", "--numeric-owner", "--file"]);
        tar.arg(agent_root())
            .arg("-C")
            .arg(guests.at("root"))
            .run()
            .ok();
        fs::write(guests.at("root/etc/resolv.conf"), "nameserver 127.0.0.1\n").unwrap();
        host::directory(&guests.at("root/portcullis"), 0, 0o755);
        let volume = project.volume("portcullis");
        let found = project.docker(&["volume", "inspect", "--format={{.Mountpoint}}", &volume]);
        let mount = Program::new("mount").args(["--bind", found.run().ok().stdout.trim()]);
        mount.arg(guests.at("share")).run().ok();
        guests
    }

    fn at(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Runs `command` in the foreground, by the shipped file with `change` made to it; what it said, and LXC's log.
    fn start(
        &self,
        name: &str,
        command: &str,
        change: impl Fn(&str) -> String,
    ) -> (Finished, String) {
        let shipped = binaries::repository().join("provisioning/sidecar");
        let hook = shipped.join("lxc-pre-start");
        let text = fs::read_to_string(shipped.join("lxc.conf")).unwrap();
        let text = text
            .replace("VOLUME", &self.at("share").display().to_string())
            .replace("COMMAND", command)
            .replace(
                "/usr/local/lib/portcullis/lxc-pre-start",
                &hook.display().to_string(),
            );
        let own = format!(
            "lxc.uts.name = {name}\nlxc.rootfs.path = dir:{}\nlxc.idmap = u 0 {FIRST} 65536\nlxc.idmap = g 0 {FIRST} 65536\nlxc.console.path = none\nlxc.log.file = {}\n",
            self.at("root").display(),
            self.at(&format!("{name}.log")).display()
        );
        let config = self.at(&format!("{name}.conf"));
        fs::write(&config, change(&(text + &own))).unwrap();
        let log = self.at(&format!("{name}.log"));
        // Whoever takes the host's network has the engine's, which leads nowhere either.
        let ran = Program::new("nsenter")
            .arg(format!("--net=/run/netns/{}", self.netns.name()))
            .arg("lxc-start")
            .args(["--foreground", "--name", name, "--lxcpath"])
            .arg(self.at("containers"))
            .arg("--rcfile")
            .arg(config)
            .run();
        (ran, fs::read_to_string(log).unwrap_or_default())
    }
}

impl Drop for Guests<'_> {
    fn drop(&mut self) {
        Program::new("umount")
            .arg("--lazy")
            .arg(self.at("share"))
            .run();
    }
}

fn as_it_is(text: &str) -> String {
    text.to_owned()
}

#[test]
fn a_plain_container_is_behind_the_gate_or_does_not_start() {
    let project = Project::new(&["compose.yaml"]);
    let config = project.path("proxy.toml");
    let shipped = fs::read_to_string(&config).unwrap();
    let uid = FIRST + 1000;
    fs::write(
        &config,
        shipped.replace("uid = 1000", &format!("uid = {uid}")),
    )
    .unwrap();
    project.compose(&["up", "--detach", "gate"]).run().ok();
    project.until_healthy("gate");
    let guests = Guests::new(&project, &project.lab.engine.netns);
    let curl = format!("curl --silent --show-error --max-time 20 --data {{}} {COUNT}");
    let (served, log) = guests.start("served", &curl, as_it_is);
    assert!(served.stdout.contains(COUNTED), "{}\n{log}", served.shown());
    let untold = format!("env -i PATH=/usr/bin CURL_CA_BUNDLE=/portcullis/bundle.pem {curl}");
    let (untold, log) = guests.start("untold", &untold, as_it_is);
    assert!(untold.stdout.contains(COUNTED), "{}\n{log}", untold.shown());
    let query = ["portcullis", "audit", "query", "--json"];
    let query = project.exec("gate", &query).run().ok().stdout;
    assert!(query.contains(&format!("\"peer_uid\":{uid}")), "{query}");
    let (proven, log) = guests.start("proven", "/portcullis/portcullis prove", as_it_is);
    assert_eq!(proven.code(), 0, "{}\n{log}", proven.shown());
    // The same without the wall, which the hook and the entrypoint would not let start.
    let (broken, log) = guests.start("broken", "/portcullis/portcullis prove", |text| {
        let entry = "/portcullis/portcullis-relay sidecar -- ";
        let hook = text.lines().filter(|line| !line.contains("lxc.hook.pre"));
        let text = hook.fold(String::new(), |all, line| all + line + "\n");
        text.replace("net.0.type = empty\n", "net.0.type = none\n")
            .replace("lxc.net.0.flags = up\n", "")
            .replace("lxc.sysctl", "# lxc.sysctl")
            .replace(entry, "")
    });
    assert_eq!(broken.code(), 1, "{}\n{log}", broken.shown());

    type Change<'c> = Box<dyn Fn(&str) -> String + 'c>;
    let swap = |old: &'static str, new: &'static str| -> Change<'_> {
        Box::new(move |text| {
            assert!(text.contains(old), "{old}");
            text.replace(old, new)
        })
    };
    let none = guests.at("none").display().to_string();
    let share = guests.at("share").display().to_string();
    let cases: [(&str, Change<'_>, &str); 9] = [
        (
            "veth",
            swap("net.0.type = empty", "net.0.type = veth"),
            "it has a network (lxc.net: veth)",
        ),
        (
            "host",
            swap("net.0.type = empty", "net.0.type = none"),
            "it has a network (lxc.net: none)",
        ),
        (
            "unsaid",
            swap("lxc.net.0.type = empty\nlxc.net.0.flags = up\n", ""),
            "in the host's network",
        ),
        (
            "second",
            swap("lxc.cap.keep", "lxc.net.1.type = phys\nlxc.cap.keep"),
            "it has a network (lxc.net: phys)",
        ),
        (
            "root",
            swap("init.uid = 1000", "init.uid = 0"),
            "its first process is root",
        ),
        (
            "other",
            swap("/portcullis/portcullis-relay sidecar -- ", "/usr/bin/"),
            "does not go through the entrypoint",
        ),
        (
            "writable",
            swap("none bind,ro,", "none bind,"),
            "is not mounted read-only",
        ),
        (
            "gateless",
            Box::new(|text| text.replace(&share, &none)),
            "there is no gate at",
        ),
        (
            "privileged",
            Box::new(|text| {
                text.lines()
                    .filter(|line| !line.starts_with("lxc.idmap"))
                    .fold(String::new(), |all, line| all + line + "\n")
            }),
            "its root is the host's root",
        ),
    ];
    for (name, change, problem) in cases {
        let (refused, log) = guests.start(name, "echo started", change);
        assert_ne!(refused.code(), 0, "{name}: {}", refused.shown());
        assert!(
            !refused.stdout.contains("started"),
            "{name}: {}",
            refused.shown()
        );
        assert!(log.contains(problem), "{name}: {log}");
    }
    // What only the inside shows is the entrypoint's to refuse: a capability that was kept.
    let (kept, log) = guests.start("kept", "echo started", |text| {
        text.replace("lxc.cap.keep = none", "lxc.cap.keep = net_admin")
    });
    assert!(
        kept.output().contains("NET_ADMIN") && !kept.stdout.contains("started"),
        "{}\n{log}",
        kept.shown()
    );
    let (started, log) = guests.start("last", "echo started", as_it_is);
    assert!(
        started.stdout.contains("started"),
        "{}\n{log}",
        started.shown()
    );
}
