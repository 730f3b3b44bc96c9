//! Git LFS of the git stand-in: the batch API and the transfers, all behind the host's credential.
//!
//! `POST …/info/lfs/objects/batch` names `https://HOST/lfs/OID` for each object; `PUT` and `GET`
//! there write and read `ROOT/lfs/OID`. Locks are answered with none.

use std::fs;
use std::path::{Path, PathBuf};

use http::{Method, Response, StatusCode, header};
use hyper::body::Incoming;
use serde_json::{Value, json};

use super::server::{self, Body};

/// Whether the request is LFS's own.
pub fn is_ours(path: &str) -> bool {
    path.contains("/info/lfs/") || path.starts_with("/lfs/")
}

/// Answers one request of an authorised client.
pub async fn answer(root: &Path, parts: &http::request::Parts, body: Incoming) -> Response<Body> {
    let host = parts.headers.get(header::HOST);
    let host = host.and_then(|host| host.to_str().ok()).unwrap_or_default();
    let host = parts.uri.host().unwrap_or(host).to_owned();
    let path = parts.uri.path();
    let bytes = server::collect(body).await;
    let Some(oid) = path.strip_prefix("/lfs/") else {
        let wanted: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        return lfs_json(&if path.ends_with("/objects/batch") {
            batch(root, &host, &wanted)
        } else {
            json!({"ours": [], "theirs": [], "locks": []})
        });
    };
    let Some(file) = object(root, oid) else {
        return server::text(StatusCode::BAD_REQUEST, "that is no object\n");
    };
    if parts.method == Method::PUT {
        let made = file.parent().map_or(Ok(()), fs::create_dir_all);
        return match made.and_then(|()| fs::write(&file, &bytes)) {
            Ok(()) => server::text(StatusCode::OK, ""),
            Err(error) => server::text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
        };
    }
    match fs::read(&file) {
        Ok(bytes) => server::whole(StatusCode::OK, "application/octet-stream", bytes.into()),
        Err(_) => server::text(StatusCode::NOT_FOUND, "there is no such object\n"),
    }
}

/// The file of an object; `None` unless `oid` is a SHA-256 in hex.
fn object(root: &Path, oid: &str) -> Option<PathBuf> {
    let plain = oid.len() == 64 && oid.bytes().all(|byte| byte.is_ascii_hexdigit());
    plain.then(|| root.join("lfs").join(oid))
}

fn batch(root: &Path, host: &str, wanted: &Value) -> Value {
    let upload = wanted["operation"] == json!("upload");
    let objects = wanted["objects"].as_array().cloned().unwrap_or_default();
    let objects: Vec<Value> = objects
        .iter()
        .map(|wanted| {
            let oid = wanted["oid"].as_str().unwrap_or_default();
            let there = object(root, oid).is_some_and(|file| file.exists());
            let mut found = json!({"oid": oid, "size": wanted["size"], "authenticated": true});
            let link = json!({"href": format!("https://{host}/lfs/{oid}")});
            match (upload, there) {
                (true, true) => {}
                (true, false) => found["actions"] = json!({"upload": link}),
                (false, true) => found["actions"] = json!({"download": link}),
                (false, false) => {
                    found["error"] = json!({"code": 404, "message": "there is no such object"});
                }
            }
            found
        })
        .collect();
    json!({"transfer": "basic", "objects": objects})
}

fn lfs_json(value: &Value) -> Response<Body> {
    let kind = "application/vnd.git-lfs+json";
    server::whole(StatusCode::OK, kind, value.to_string().into())
}
