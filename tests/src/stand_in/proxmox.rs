//! As much of the API of Proxmox VE as its Python client needs: one node, one container.

use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use serde_json::json;

use super::server::{self, Body};

/// Answers one request; 401 unless it carries the API token `token` (`USER@REALM!ID=SECRET`).
pub async fn answer(token: String, request: Request<Incoming>) -> Response<Body> {
    let sent = request.headers().get("authorization");
    if sent.is_none_or(|sent| sent.as_bytes() != format!("PVEAPIToken={token}").as_bytes()) {
        return server::json(StatusCode::UNAUTHORIZED, &json!({"data": null}));
    }
    let status = json!({"status": "running", "vmid": 101, "name": "web", "uptime": 7});
    let data = match (request.method(), request.uri().path()) {
        (&Method::GET, "/api2/json/version") => json!({"version": "8.4.1", "release": "8.4"}),
        (&Method::GET, "/api2/json/nodes") => json!([{"node": "pve", "status": "online"}]),
        (&Method::GET, "/api2/json/nodes/pve/lxc") => json!([status]),
        (&Method::GET, "/api2/json/nodes/pve/lxc/101/status/current") => status,
        (&Method::POST, "/api2/json/nodes/pve/lxc/101/status/reboot") => {
            json!("UPID:pve:00001:00001:00000001:vzreboot:101:root@pam:")
        }
        _ => return server::json(StatusCode::NOT_IMPLEMENTED, &json!({"data": null})),
    };
    server::json(StatusCode::OK, &json!({"data": data}))
}
