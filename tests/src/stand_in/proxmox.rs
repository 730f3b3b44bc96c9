//! As much of the API of Proxmox VE as its Python client needs: one node, its guests, and a task for whatever is done
//! with them.

use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use serde_json::json;

use super::server::{self, Body};

/// A task that somebody else began.
pub const FOREIGN: &str = "UPID:pve:00001:00001:00000001:vzstart:500:root@pam:";

/// Answers one request; 401 unless it carries the API token `token` (`USER@REALM!ID=SECRET`).
pub async fn answer(token: String, request: Request<Incoming>) -> Response<Body> {
    let sent = request.headers().get("authorization");
    if sent.is_none_or(|sent| sent.as_bytes() != format!("PVEAPIToken={token}").as_bytes()) {
        return server::json(StatusCode::UNAUTHORIZED, &json!({"data": null}));
    }
    let status = json!({"status": "running", "vmid": 101, "name": "web", "uptime": 7});
    let path = request.uri().path().to_owned();
    let segments: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let data = match (request.method(), segments.as_slice()) {
        (&Method::GET, ["api2", "json", "version"]) => {
            json!({"version": "8.4.1", "release": "8.4"})
        }
        (&Method::GET, ["api2", "json", "nodes"]) => json!([{"node": "pve", "status": "online"}]),
        (&Method::GET, ["api2", "json", "nodes", "pve", "lxc" | "qemu"]) => json!([status]),
        (&Method::GET, ["api2", "json", "nodes", "pve", "tasks", _, "status"]) => {
            json!({"status": "stopped", "exitstatus": "OK"})
        }
        (&Method::GET, ["api2", "json", "nodes", "pve", "lxc" | "qemu", _, ..]) => status,
        (
            &Method::POST,
            [
                "api2",
                "json",
                "nodes",
                "pve",
                "lxc" | "qemu",
                vmid,
                "vncproxy",
            ],
        ) => {
            json!({"port": "5900", "ticket": "PVEVNC:1", "upid": task("vncproxy", vmid)})
        }
        (&Method::PUT, ["api2", "json", "nodes", "pve", "lxc" | "qemu", _, "config"]) => {
            json!(null)
        }
        (&Method::POST, ["api2", "json", "nodes", "pve", "qemu", _, "agent", "exec"]) => {
            json!({"pid": 7})
        }
        (
            &Method::POST | &Method::DELETE,
            ["api2", "json", "nodes", "pve", "lxc" | "qemu", rest @ ..],
        ) => {
            let vmid = rest.first().copied().unwrap_or("0");
            let does = rest.last().copied().filter(|_| rest.len() > 1);
            json!(task(does.unwrap_or("create"), vmid))
        }
        _ => return server::json(StatusCode::NOT_IMPLEMENTED, &json!({"data": null})),
    };
    server::json(StatusCode::OK, &json!({"data": data}))
}

fn task(does: &str, vmid: &str) -> String {
    format!("UPID:pve:00001:00001:00000001:vz{does}:{vmid}:agent@pve!agent:")
}
