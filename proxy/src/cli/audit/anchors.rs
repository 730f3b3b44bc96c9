//! Anchors: checkpoints that somebody keeps elsewhere.

use std::io::{Error, Read, Write};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use crate::audit::checkpoint::Statement;
use crate::audit::verify::{Anchor, Anchors};

/// How long to wait for whoever keeps them.
const PATIENCE: Duration = Duration::from_secs(30);

/// Reads anchors from a file or from the orchestrator's socket: JSON objects, one a line or in a
/// list, that have a checkpoint's `statement`, at the top or under `checkpoint`, and where they are of
/// more than one log, the number of theirs (`log`). With `only`, those of that log. It is an error if
/// there is none.
///
/// # Errors
/// What the system said, or what is wrong with the content.
pub(super) fn read(path: &Path, only: Option<u64>) -> std::io::Result<Anchors> {
    let text = if std::fs::metadata(path)?.file_type().is_socket() {
        ask(path)?
    } else {
        std::fs::read_to_string(path)?
    };
    let wrong = |what: &str| Error::other(format!("{}: {what}", path.display()));
    let mut anchors = Anchors::default();
    for value in serde_json::Deserializer::from_str(&text).into_iter::<serde_json::Value>() {
        let value = value.map_err(|problem| wrong(&problem.to_string()))?;
        let one = std::slice::from_ref(&value);
        for anchor in value.as_array().map_or(one, Vec::as_slice) {
            let statement = [&anchor["checkpoint"]["statement"], &anchor["statement"]]
                .into_iter()
                .find_map(serde_json::Value::as_str)
                .and_then(Statement::parse)
                .ok_or_else(|| wrong("holds something that is no checkpoint"))?;
            let log = anchor["log"].as_u64().unwrap_or(1);
            if only.is_some_and(|only| only != log) {
                continue;
            }
            anchors.0.push(Anchor {
                seq: statement.seq,
                head: statement.head,
                log,
                at: anchor["anchoredAt"].as_str().map(str::to_owned),
            });
        }
    }
    if anchors.0.is_empty() {
        return Err(wrong(match only {
            Some(_) => "holds no anchor of that log",
            None => "holds no anchor at all",
        }));
    }
    Ok(anchors)
}

fn ask(socket: &Path) -> std::io::Result<String> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    // HTTP/1.0, so that the answer ends with the connection and has no chunks.
    stream.write_all(b"GET /api/anchors HTTP/1.0\r\nHost: orchestrator\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer
        .split_once("\r\n\r\n")
        .ok_or_else(|| Error::other("the answer about anchors is no HTTP"))?;
    let status = head.lines().next().unwrap_or_default();
    if status.split(' ').nth(1) != Some("200") {
        return Err(Error::other(format!(
            "asked for anchors, got: {status} {body}"
        )));
    }
    Ok(body.to_owned())
}
