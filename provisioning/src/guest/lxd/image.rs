//! What an instance is made of: an image that is there, one that a remote has, or a root file system that becomes one.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use http::HeaderValue;
use serde_json::{Value, json};

use super::api::Api;
use crate::guest::error::GuestError;
use crate::guest::http::Part;
use crate::process::Call;

/// Where images are that are not here: `images:debian/12`.
const REMOTE: &str = "https://images.linuxcontainers.org";
const PREFIX: &str = "images:";
/// The image's property by which a root file system that was imported before is known.
const MADE_OF: &str = "portcullis.rootfs";
const BOUNDARY: &str = "portcullis-2f9c1e";

/// The `source` of an instance made of an image by its alias or fingerprint. `images:ALIAS` is fetched by the server.
pub(super) fn named(api: &Api, name: &str) -> Result<Value, GuestError> {
    if let Some(alias) = name.strip_prefix(PREFIX) {
        return Ok(json!({
            "type": "image", "mode": "pull", "server": REMOTE, "protocol": "simplestreams", "alias": alias,
        }));
    }
    let images = api.get("/1.0/images?recursion=1")?;
    let images = images.as_array().map(Vec::as_slice).unwrap_or_default();
    let is = |image: &&Value| {
        let by_alias = image["aliases"].as_array().into_iter().flatten();
        let fingerprint = image["fingerprint"].as_str().unwrap_or_default();
        by_alias.into_iter().any(|alias| alias["name"] == name)
            || (name.len() >= 12 && fingerprint.starts_with(name))
    };
    let image = images.iter().find(is).ok_or_else(|| {
        GuestError::Said(format!(
            "there is no image {name:?} here\n  hint: `--image {PREFIX}debian/12` is fetched by the server, `--rootfs FILE` takes a root file system of yours"
        ))
    })?;
    if image["type"] == "virtual-machine" {
        return Err(GuestError::Said(format!(
            "the image {name:?} is a virtual machine's, and guests are containers\n  hint: choose the container image of that distribution"
        )));
    }
    Ok(json!({"type": "image", "fingerprint": image["fingerprint"]}))
}

/// The `source` of an instance made of a root file system: a tar file, packed or not, or a directory. The image is made
/// once for a file as it is.
pub(super) fn imported(api: &Api, rootfs: &Path) -> Result<Value, GuestError> {
    let read = |source| GuestError::Read {
        path: rootfs.to_path_buf(),
        source,
    };
    let found = fs::metadata(rootfs).map_err(read)?;
    let folder = tempfile::tempdir().map_err(read)?;
    let (file, known_as) = if found.is_dir() {
        let file = folder.path().join("rootfs.tar");
        Call::new("tar")
            .args([
                "--create",
                "--numeric-owner",
                "--xattrs",
                "--xattrs-include=*",
                "--file",
            ])
            .arg(&file)
            .arg("--directory")
            .arg(rootfs)
            .arg(".")
            .run()?;
        (file, None)
    } else {
        let known_as = format!(
            "{}:{}:{}",
            rootfs.display(),
            found.len(),
            found.mtime_nsec()
        );
        (rootfs.to_path_buf(), Some(known_as))
    };
    if let Some(known_as) = &known_as {
        let images = api.get("/1.0/images?recursion=1")?;
        let mut images = images.as_array().into_iter().flatten();
        if let Some(image) = images.find(|image| image["properties"][MADE_OF] == *known_as) {
            return Ok(json!({"type": "image", "fingerprint": image["fingerprint"]}));
        }
    }
    let description = description(folder.path(), known_as.as_deref().unwrap_or_default())?;
    let made = api.post(
        "/1.0/images",
        vec![(
            http::header::CONTENT_TYPE,
            HeaderValue::from_static(concat!(
                "multipart/form-data; boundary=",
                "portcullis-2f9c1e"
            )),
        )],
        vec![
            part("metadata"),
            Part::Bytes(description),
            part("rootfs"),
            Part::File(file),
            Part::Bytes(format!("\r\n--{BOUNDARY}--\r\n").into_bytes()),
        ],
    )?;
    match made["metadata"]["fingerprint"].as_str() {
        Some(fingerprint) => Ok(json!({"type": "image", "fingerprint": fingerprint})),
        None => Err(GuestError::Shape {
            asked: "POST /1.0/images".to_owned(),
            what: "no fingerprint".to_owned(),
        }),
    }
}

fn part(name: &str) -> Part {
    Part::Bytes(
        format!(
            "\r\n--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"{name}\"; filename=\"{name}.tar\"\r\n\
             Content-Type: application/octet-stream\r\n\r\n"
        )
        .into_bytes(),
    )
}

/// The tar file with `metadata.yaml` that goes with a root file system.
fn description(folder: &Path, known_as: &str) -> Result<Vec<u8>, GuestError> {
    let read = |source| GuestError::Read {
        path: folder.to_path_buf(),
        source,
    };
    // JSON is YAML, and quotes whatever a path holds.
    let text = json!({
        "architecture": std::env::consts::ARCH,
        "creation_date": 1,
        "properties": {"description": "a root file system given to portcullis", MADE_OF: known_as},
    });
    fs::write(folder.join("metadata.yaml"), text.to_string()).map_err(read)?;
    let tar = folder.join("metadata.tar");
    Call::new("tar")
        .args(["--create", "--numeric-owner", "--file"])
        .arg(&tar)
        .arg("--directory")
        .arg(folder)
        .arg("metadata.yaml")
        .run()?;
    fs::read(&tar).map_err(read)
}
