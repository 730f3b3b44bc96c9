//! A run at the live gate for the time of the proof: a policy of our own that lists the outside peer and nothing else.

use std::io::{self, Read as _, Write as _};
use std::net::IpAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use super::kind::Kind;
use super::task::Task;
use crate::instance::Instance;

/// Where the peer listens for what the gate forwards.
pub const PORT: u16 = 80;
const HOST: &str = "prove.portcullis.test";
/// A place that the policy lists and where nobody listens.
const DOWN: &str = "prove-down.portcullis.test";
const DOWN_PORT: u16 = 81;
const PATIENCE: Duration = Duration::from_secs(10);

/// An open run. Dropping it closes it.
#[derive(Debug)]
pub struct GateRun {
    control: PathBuf,
    socket: PathBuf,
    id: String,
    /// The address of the peer that the policy lists.
    pub at: IpAddr,
}

impl GateRun {
    /// Opens a run for that uid.
    ///
    /// # Errors
    /// Why the gate did not open it, in words.
    pub fn open(instance: &Instance, uid: u32, at: IpAddr) -> Result<Self, String> {
        let control = instance.layout.control_socket();
        let id = format!("prove-{}", std::process::id());
        let opened = put(&control, &id, uid, &policy(at, ""))?;
        let socket = serde_json::from_str::<Value>(&opened.1)
            .ok()
            .filter(|_| opened.0 == 200)
            .and_then(|answer| answer["socket"].as_str().map(PathBuf::from));
        let Some(socket) = socket else {
            return Err(format!(
                "the gate opened no run: {} {}",
                opened.0,
                opened.1.trim()
            ));
        };
        Ok(Self {
            control,
            socket,
            id,
            at,
        })
    }

    /// What the gate says to a second run whose policy differs from this one's by a credential on plain HTTP: status and words.
    ///
    /// # Errors
    /// Why nothing was said.
    pub fn with_plain_credential(&self, uid: u32) -> Result<(u16, String), String> {
        let id = format!("{}-plain", self.id);
        let said = put(
            &self.control,
            &id,
            uid,
            &policy(self.at, "credential = \"prove\"\n"),
        )?;
        if said.0 == 200 {
            // Its lease ends it otherwise.
            let _ = call(
                &self.control,
                "DELETE",
                &format!("/v1/runs/{id}?epoch=1"),
                "",
            );
        }
        Ok(said)
    }

    /// The URL of a listed place.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        format!("http://{HOST}/{path}")
    }

    /// The URL of a listed place that is down.
    #[must_use]
    pub fn down(&self, path: &str) -> String {
        format!("http://{DOWN}:{DOWN_PORT}/{path}")
    }

    /// A request through the run's socket.
    #[must_use]
    pub fn request(&self, url: &str, headers: &[String]) -> Task {
        self.request_by("GET", url, headers)
    }

    /// The same by another method.
    #[must_use]
    pub fn request_by(&self, method: &str, url: &str, headers: &[String]) -> Task {
        let authority = url
            .trim_start_matches("http://")
            .split('/')
            .next()
            .unwrap_or_default();
        let mut names = vec![format!("{method} {url}"), format!("Host: {authority}")];
        names.extend(headers.iter().cloned());
        Task {
            paths: vec![self.socket.clone()],
            names,
            ..Task::new(Kind::GateListed, 10_000)
        }
    }
}

impl Drop for GateRun {
    fn drop(&mut self) {
        // A gate that is gone has forgotten the run; otherwise its lease ends it.
        let _ = call(
            &self.control,
            "DELETE",
            &format!("/v1/runs/{}?epoch=1", self.id),
            "",
        );
    }
}

/// The policy of such a run: two places of plain HTTP, `more` in the first.
fn policy(at: IpAddr, more: &str) -> String {
    format!(
        "version = 1\n\n[[service]]\nid = \"prove\"\nkind = \"http\"\nhost = \"{HOST}\"\nscheme = \"http\"\n{more}\
         port = {PORT}\naddress = \"{at}:{PORT}\"\nallow = [\"* /**\"]\nwhy = \"portcullis prove\"\n\n\
         [[service]]\nid = \"prove-down\"\nkind = \"http\"\nhost = \"{DOWN}\"\nscheme = \"http\"\n\
         port = {DOWN_PORT}\naddress = \"{at}:{DOWN_PORT}\"\nallow = [\"GET /**\"]\nwhy = \"portcullis prove\"\n"
    )
}

fn put(control: &Path, id: &str, uid: u32, policy: &str) -> Result<(u16, String), String> {
    let body = json!({
        "grant": {"company": "local", "agent": "prove", "ticket": null, "run": id, "profile": "default"},
        "epoch": 1,
        "peer_uids": {"first": uid, "count": 1},
        "lease_seconds": 300,
        "policy": policy,
    });
    let path = format!("/v1/runs/{id}");
    call(control, "PUT", &path, &body.to_string())
        .map_err(|error| format!("the gate's control socket: {error}"))
}

/// Status and body of one request to the control socket.
fn call(socket: &Path, method: &str, path: &str, body: &str) -> io::Result<(u16, String)> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: gate\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer
        .split_once("\r\n\r\n")
        .unwrap_or((answer.as_str(), ""));
    let code = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    Ok((code.unwrap_or(0), body.to_owned()))
}
