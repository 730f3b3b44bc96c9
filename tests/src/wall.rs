//! The real kernel boundary, applied and watched inside a test's namespace.

use std::path::{Path, PathBuf};
use std::process::Child;

use crate::command::Program;
use crate::netns::Netns;
use crate::{binaries, gate, host, upstream, wait};

/// A boundary in force; its rules go with the namespace.
#[derive(Debug)]
pub struct Wall {
    config: PathBuf,
    log: PathBuf,
    status: PathBuf,
    watcher: Option<Child>,
}

impl Wall {
    /// Shuts `agents` in behind the gate's port, applies that, and keeps `status` fresh.
    pub fn raise(netns: &Netns, dir: &Path, proxy: u32, agents: &[u32], status: &Path) -> Self {
        Self::raise_with(netns, dir, proxy, agents, status, "")
    }

    /// The same with more lines at the end of `boundary.toml`.
    pub fn raise_with(
        netns: &Netns,
        dir: &Path,
        proxy: u32,
        agents: &[u32],
        status: &Path,
        more: &str,
    ) -> Self {
        host::directory(dir, 0, 0o755);
        let listed: Vec<_> = agents.iter().map(|uid| format!("\"{uid}\"")).collect();
        let port = gate::ADDRESS
            .rsplit(':')
            .next()
            .expect("an address has a port");
        let text = format!(
            "scope = \"agents\"\ntable = \"portcullis\"\ngate_port = {port}\nproxy = \"{proxy}\"\n\
             agents = [{}]\nstatus = \"{}\"\n{more}",
            listed.join(", "),
            status.display()
        );
        let config = dir.join("boundary.toml");
        host::file(&config, &text, 0, 0o644);
        let mut wall = Self {
            config,
            log: dir.join("log"),
            status: status.to_path_buf(),
            watcher: None,
        };
        wall.command("apply").in_netns(netns).run().ok();
        wall.watch(netns);
        wall
    }

    /// Starts the watcher and waits for a fresh status.
    pub fn watch(&mut self, netns: &Netns) {
        let _absent = std::fs::remove_file(&self.status);
        self.watcher = Some(
            self.command("watch")
                .in_netns(netns)
                .spawn_logging(&self.log),
        );
        wait::until_true("the boundary is watched", || self.status.exists());
    }

    /// Stops the watcher; the rules stay, the status grows stale.
    pub fn abandon(&mut self) {
        if let Some(mut watcher) = self.watcher.take() {
            upstream::stop(&mut watcher);
        }
    }

    fn command(&self, verb: &str) -> Program {
        let program = binaries::path("portcullis-boundary");
        Program::new(program)
            .args([verb, "--config"])
            .arg(&self.config)
    }
}

impl Drop for Wall {
    fn drop(&mut self) {
        self.abandon();
    }
}
