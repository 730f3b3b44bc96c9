//! Incus and LXD, which have one API: its REST interface over its unix socket, and nothing else of either is needed.
//!
//! A guest is a `container` with `security.privileged=false` and `security.nesting=true` in its own configuration, no
//! profile, a root disk, one interface, and the data volume as a disk device named `data`. What it was made of is written
//! down in its `user.portcullis.*` keys, from which `recreate` makes the next one.

mod api;
mod image;

use std::path::{Path, PathBuf};

use http::{HeaderName, HeaderValue, Method};
use serde_json::{Value, json};

use super::DATA;
use super::driver::{Driver, Ended, Guest, Source, Wanted};
use super::error::GuestError;
use super::http::Part;
use super::name::Name;
use crate::process;
use api::Api;

/// Where Incus and LXD listen, as Debian, Ubuntu and the snap have it.
const SOCKETS: [&str; 3] = [
    "/var/lib/incus/unix.socket",
    "/var/lib/lxd/unix.socket",
    "/var/snap/lxd/common/lxd/unix.socket",
];
/// How long a guest may take to stop by itself, in seconds.
const STOPPING: u32 = 30;
const MADE_BY: &str = "user.portcullis.guest";
const IMAGE: &str = "user.portcullis.image";
const ROOTFS: &str = "user.portcullis.rootfs";
const NETWORK: &str = "user.portcullis.network";
/// The name of the data volume's device.
const DEVICE: &str = "data";

/// One Incus or LXD.
#[derive(Debug)]
pub struct Lxd {
    api: Api,
    pool: String,
}

impl Lxd {
    /// The one at `socket`, or the first that is here.
    ///
    /// # Errors
    /// When there is none.
    pub fn find(socket: Option<PathBuf>, pool: &str) -> Result<Self, GuestError> {
        let socket = match socket {
            Some(socket) => socket,
            None => SOCKETS
                .iter()
                .map(PathBuf::from)
                .find(|socket| socket.exists())
                .ok_or_else(|| GuestError::NoSocket(SOCKETS.join(", ")))?,
        };
        Ok(Self {
            api: Api { socket },
            pool: pool.to_owned(),
        })
    }

    fn instance(&self, name: &str) -> Result<Value, GuestError> {
        self.api.get(&format!("/1.0/instances/{name}"))
    }

    fn state(&self, guest: &str, state: &Value) -> Result<(), GuestError> {
        let target = format!("/1.0/instances/{guest}/state");
        self.api.send(Method::PUT, &target, state).map(drop)
    }

    /// The image of a source: its alias or fingerprint, as an instance's `source`.
    fn image(&self, source: &Source) -> Result<Value, GuestError> {
        match source {
            Source::Image(name) => image::named(&self.api, name),
            Source::Rootfs(path) => image::imported(&self.api, path),
        }
    }

    fn configuration(&self, wanted: &Wanted) -> Value {
        let (of, from) = match &wanted.source {
            Source::Image(name) => (IMAGE, name.clone()),
            Source::Rootfs(path) => (ROOTFS, path.display().to_string()),
        };
        let mut config = json!({
            "security.privileged": "false",
            "security.nesting": "true",
            MADE_BY: "true",
            of: from,
        });
        let mut interface = json!({"type": "nic", "name": "eth0"});
        match &wanted.network {
            Some(network) => {
                config[NETWORK] = json!(network);
                interface["nictype"] = json!("bridged");
                interface["parent"] = json!(network);
            }
            // Of no network: it leads to the host, and the host passes nothing on.
            None => interface["nictype"] = json!("p2p"),
        }
        json!({
            "name": wanted.name.as_str(),
            "type": "container",
            "profiles": [],
            "config": config,
            "devices": {
                "root": {"type": "disk", "pool": self.pool, "path": "/"},
                "eth0": interface,
            },
        })
    }
}

impl Driver for Lxd {
    fn shown(&self) -> String {
        format!("the API at {}", self.api.socket.display())
    }

    fn list(&self) -> Result<Vec<Guest>, GuestError> {
        let found = self.api.get("/1.0/instances?recursion=1")?;
        Ok(found.as_array().into_iter().flatten().map(guest).collect())
    }

    fn volume(&self, name: &str) -> Result<Option<Vec<String>>, GuestError> {
        let target = format!(
            "/1.0/storage-pools/{}/volumes/custom?recursion=1",
            self.pool
        );
        let found = self.api.get(&target)?;
        let volume = found
            .as_array()
            .into_iter()
            .flatten()
            .find(|volume| volume["name"] == name);
        Ok(volume.map(|volume| {
            let users = volume["used_by"].as_array().into_iter().flatten();
            users
                .filter_map(Value::as_str)
                .filter_map(|user| user.strip_prefix("/1.0/instances/"))
                .map(str::to_owned)
                .collect()
        }))
    }

    fn make_volume(&self, name: &Name) -> Result<(), GuestError> {
        let target = format!("/1.0/storage-pools/{}/volumes/custom", self.pool);
        let volume = json!({
            "name": name.as_str(),
            "description": "what a guest of Portcullis keeps",
            "content_type": "filesystem",
            "config": {},
        });
        self.api.send(Method::POST, &target, &volume).map(drop)
    }

    fn make(&self, wanted: &Wanted) -> Result<(), GuestError> {
        let mut instance = self.configuration(wanted);
        instance["source"] = self.image(&wanted.source)?;
        self.api
            .send(Method::POST, "/1.0/instances", &instance)
            .map(drop)
    }

    fn attach(&self, guest: &str, volume: &str) -> Result<(), GuestError> {
        let mut devices = self.instance(guest)?["devices"].clone();
        devices[DEVICE] =
            json!({"type": "disk", "pool": self.pool, "source": volume, "path": DATA});
        self.devices(guest, &devices)
    }

    fn detach(&self, guest: &str, volume: &str) -> Result<(), GuestError> {
        let mut devices = self.instance(guest)?["devices"].clone();
        if let Some(devices) = devices.as_object_mut() {
            devices.retain(|_, device| device["source"] != volume);
        }
        self.devices(guest, &devices)
    }

    fn start(&self, guest: &str) -> Result<(), GuestError> {
        self.state(guest, &json!({"action": "start", "timeout": 60}))
    }

    fn stop(&self, guest: &str) -> Result<(), GuestError> {
        let gently = self.state(guest, &json!({"action": "stop", "timeout": STOPPING}));
        gently.or_else(|_| {
            self.state(
                guest,
                &json!({"action": "stop", "timeout": 10, "force": true}),
            )
        })
    }

    fn remove(&self, guest: &str) -> Result<(), GuestError> {
        let target = format!("/1.0/instances/{guest}");
        self.api
            .send(Method::DELETE, &target, &Value::Null)
            .map(drop)
    }

    fn run(&self, guest: &str, command: &[&str]) -> Result<Ended, GuestError> {
        let asked = json!({
            "command": command,
            "environment": {
                "PATH": process::SEARCH_PATH,
                "HOME": "/root",
                "LC_ALL": "C.UTF-8",
            },
            "record-output": true,
            "wait-for-websocket": false,
            "interactive": false,
        });
        let target = format!("/1.0/instances/{guest}/exec");
        let ended = self.api.send(Method::POST, &target, &asked)?;
        let code = ended["metadata"]["return"].as_i64();
        let code = code.ok_or_else(|| GuestError::Shape {
            asked: format!("POST {target}"),
            what: "no exit status".to_owned(),
        })?;
        let written = |stream: &str| -> Result<String, GuestError> {
            let Some(log) = ended["metadata"]["output"][stream].as_str() else {
                return Ok(String::new());
            };
            let text = self.api.raw(log)?;
            // What was recorded is read once; a log that stays is not worth a failure.
            let _ = self.api.send(Method::DELETE, log, &Value::Null);
            Ok(text)
        };
        Ok(Ended {
            code,
            output: written("1")?,
            error: written("2")?,
        })
    }

    fn put(&self, guest: &str, path: &str, from: &Path, mode: u32) -> Result<(), GuestError> {
        let mut fields = Vec::new();
        // The one reads these, the other those.
        for family in ["x-lxd", "x-incus"] {
            let said = [
                ("uid", "0".to_owned()),
                ("gid", "0".to_owned()),
                ("mode", format!("{mode:04o}")),
                ("type", "file".to_owned()),
                ("write", "overwrite".to_owned()),
            ];
            for (key, value) in said {
                let name = HeaderName::try_from(format!("{family}-{key}"));
                if let (Ok(name), Ok(value)) = (name, HeaderValue::try_from(value)) {
                    fields.push((name, value));
                }
            }
        }
        let target = format!("/1.0/instances/{guest}/files?path={path}");
        let body = vec![Part::File(from.to_path_buf())];
        self.api.post(&target, fields, body).map(drop)
    }

    fn shell(&self, guest: &str) -> Result<Vec<String>, GuestError> {
        let (program, variable) = if self.api.server()? == "incus" {
            ("incus", "INCUS_SOCKET")
        } else {
            ("lxc", "LXD_SOCKET")
        };
        if !process::is_installed(program) {
            return Err(GuestError::Said(format!(
                "a shell for a person needs the client `{program}`, which is not here\n  hint: `portcullis guest shell {guest} -- COMMAND` runs one command without it"
            )));
        }
        Ok(vec![
            "env".to_owned(),
            format!("{variable}={}", self.api.socket.display()),
            program.to_owned(),
            "exec".to_owned(),
            guest.to_owned(),
            "--".to_owned(),
            "/bin/bash".to_owned(),
            "-l".to_owned(),
        ])
    }
}

impl Lxd {
    /// Replaces the devices of a guest; what else it is stays.
    fn devices(&self, guest: &str, devices: &Value) -> Result<(), GuestError> {
        let before = self.instance(guest)?;
        let after = json!({
            "architecture": before["architecture"],
            "config": before["config"],
            "devices": devices,
            "ephemeral": before["ephemeral"],
            "profiles": before["profiles"],
            "description": before["description"],
        });
        let target = format!("/1.0/instances/{guest}");
        self.api.send(Method::PUT, &target, &after).map(drop)
    }
}

/// An instance of the API's.
fn guest(instance: &Value) -> Guest {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    // What profiles and the instance itself come to.
    let config = &instance["expanded_config"];
    let devices = instance["expanded_devices"].as_object();
    let disks = devices.into_iter().flat_map(serde_json::Map::values);
    let source = match (
        instance["config"][IMAGE].as_str(),
        instance["config"][ROOTFS].as_str(),
    ) {
        (Some(image), _) => Some(Source::Image(image.to_owned())),
        (None, Some(rootfs)) => Some(Source::Rootfs(rootfs.into())),
        (None, None) => None,
    };
    let network = instance["config"][NETWORK].as_str().map(str::to_owned);
    Guest {
        name: text(&instance["name"]),
        is_container: instance["type"] == "container",
        is_unprivileged: config["security.privileged"] != "true",
        is_running: instance["status"] == "Running",
        is_ours: instance["config"][MADE_BY] == "true",
        volume: disks
            .filter(|device| device["path"] == DATA)
            .find_map(|device| device["source"].as_str())
            .map(str::to_owned),
        wanted: source.map(|source| (source, network)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_is_an_unprivileged_container_whatever_profiles_say() {
        let lxd = Lxd {
            api: Api {
                socket: "/nowhere".into(),
            },
            pool: "fast".to_owned(),
        };
        let wanted = |network: Option<&str>| Wanted {
            name: "agents".parse().unwrap(),
            source: Source::Image("debian/12".to_owned()),
            volume: "agents-data".parse().unwrap(),
            network: network.map(str::to_owned),
        };
        let made = lxd.configuration(&wanted(None));
        assert_eq!(made["type"], "container");
        assert_eq!(made["profiles"], json!([]));
        assert_eq!(made["config"]["security.privileged"], "false");
        assert_eq!(made["config"]["security.nesting"], "true");
        assert_eq!(made["devices"]["eth0"]["nictype"], "p2p");
        assert_eq!(made["devices"]["root"]["pool"], "fast");
        let made = lxd.configuration(&wanted(Some("br0")));
        assert_eq!(made["devices"]["eth0"]["parent"], "br0");
    }

    #[test]
    fn what_a_profile_adds_is_seen() {
        let mut instance = json!({
            "name": "agents", "type": "container", "status": "Running",
            "config": {MADE_BY: "true", IMAGE: "debian/12", NETWORK: "br0"},
            "expanded_config": {"security.privileged": "false"},
            "expanded_devices": {"data": {"type": "disk", "path": DATA, "source": "agents-data"}},
        });
        let seen = guest(&instance);
        assert!(seen.is_container && seen.is_unprivileged && seen.is_running && seen.is_ours);
        assert_eq!(seen.volume.as_deref(), Some("agents-data"));
        let network = Some("br0".to_owned());
        assert_eq!(
            seen.wanted,
            Some((Source::Image("debian/12".into()), network))
        );
        instance["expanded_config"]["security.privileged"] = json!("true");
        instance["type"] = json!("virtual-machine");
        instance["config"] = json!({});
        let seen = guest(&instance);
        assert!(!seen.is_container && !seen.is_unprivileged && !seen.is_ours);
        assert_eq!(seen.wanted, None);
    }
}
