//! A web server for both versions of HTTP that keeps nothing: files of a folder, and streams of any
//! length.
//!
//! | path | answer |
//! |---|---|
//! | `/stream/N` | N bytes, with a length, made as they are sent |
//! | `/sink` | reads the body and answers how many bytes it had |
//! | `/echo` | the request's body, as it arrives |
//! | `/version` | the version of HTTP that the request came by |
//! | a file of the folder | its bytes; a folder answers with its `index.html` |
//! | anything else | 404 |

use std::fs;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::BodyExt;
use hyper::body::{Frame, Incoming};

use super::server::{self, Body};

/// Bytes of one frame of `/stream/N`.
const FRAME: usize = 64 * 1024;

/// Answers one request from the files below `root`.
pub async fn answer(root: PathBuf, request: Request<Incoming>) -> Response<Body> {
    let path = request.uri().path().to_owned();
    let head = request.method() == Method::HEAD;
    match path.trim_start_matches('/').split_once('/') {
        Some(("stream", length)) => stream(length.parse().unwrap_or(0)),
        _ if path == "/sink" => sink(request.into_body()).await,
        _ if path == "/echo" => {
            Response::new(request.into_body().map_err(std::io::Error::other).boxed())
        }
        _ if path == "/version" => {
            server::text(StatusCode::OK, format!("{:?}\n", request.version()))
        }
        _ => file(&root, &path, head),
    }
}

fn stream(length: usize) -> Response<Body> {
    let (sender, body) = server::channel();
    tokio::spawn(async move {
        let block = Bytes::from(vec![b'x'; FRAME]);
        let mut left = length;
        while left > 0 {
            let next = block.slice(..left.min(FRAME));
            left -= next.len();
            if sender.send(Ok(Frame::data(next))).await.is_err() {
                return;
            }
        }
    });
    let mut response = Response::new(body);
    response
        .headers_mut()
        .insert(header::CONTENT_LENGTH, length.into());
    response
}

async fn sink(mut body: Incoming) -> Response<Body> {
    let mut length = 0;
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else {
            return server::text(StatusCode::BAD_REQUEST, "the body broke off\n");
        };
        length += frame.data_ref().map_or(0, Bytes::len);
    }
    server::text(StatusCode::OK, format!("{length} bytes\n"))
}

fn file(root: &Path, path: &str, head: bool) -> Response<Body> {
    let relative = path.trim_start_matches('/');
    let plain = !relative.split('/').any(|part| part == "..");
    let mut found = root.join(relative);
    if found.is_dir() {
        found = found.join("index.html");
    }
    let Some(bytes) = fs::read(&found).ok().filter(|_| plain) else {
        return server::text(StatusCode::NOT_FOUND, "there is no such file\n");
    };
    let kind = match found.extension().and_then(|extension| extension.to_str()) {
        Some("html") => "text/html",
        Some("json") => "application/json",
        _ => "application/octet-stream",
    };
    let length = bytes.len();
    let bytes = if head { Vec::new() } else { bytes };
    let mut response = server::whole(StatusCode::OK, kind, bytes.into());
    response
        .headers_mut()
        .insert(header::CONTENT_LENGTH, length.into());
    response
}
