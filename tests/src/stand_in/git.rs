//! A git host: the real `git http-backend` as CGI, behind TLS and Basic authentication.
//!
//! Every request needs the one credential; without it the answer is 401 with a Basic challenge, as
//! a forge gives. Bodies stream both ways. One JSON line per request goes to the log:
//! `{"method":"POST","path":"/acme/web.git/git-receive-pack","query":"","headers":["host",…],
//! "credential":"right","status":200}`. Header names are logged, values never.

use std::convert::Infallible;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode, header};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdout};

use super::lfs;
use super::listener::Listen;

/// What the git stand-in needs to know.
#[allow(missing_debug_implementations, reason = "holds a password")]
pub struct GitHost {
    /// Holds the bare repositories, `OWNER/NAME.git`.
    pub root: PathBuf,
    /// The one user name that is let in.
    pub user: String,
    /// Its password.
    pub password: String,
    /// Where the JSON lines go; none when absent.
    pub log: Option<PathBuf>,
}

/// While a file of this name is in the root, no other version of the protocol is spoken than the first.
const FIRST: &str = "speaks-version-0";

struct Shared {
    password: String,
    root: PathBuf,
    backend: PathBuf,
    user: String,
    expected: String,
    log: Option<Mutex<File>>,
}

type Body = BoxBody<Bytes, io::Error>;

/// Serves until the process ends. Errors are those of binding, of the log and of a missing backend.
pub async fn serve(host: GitHost, listen: &Listen) -> io::Result<()> {
    let log = match &host.log {
        Some(path) => Some(Mutex::new(
            OpenOptions::new().create(true).append(true).open(path)?,
        )),
        None => None,
    };
    let shared = Arc::new(Shared {
        root: fs::canonicalize(&host.root)?,
        backend: backend()?,
        expected: format!(
            "Basic {}",
            STANDARD.encode(format!("{}:{}", host.user, host.password))
        ),
        user: host.user,
        password: host.password,
        log,
    });
    let bound = listen.bind().await?;
    loop {
        let Ok((stream, _)) = bound.tcp.accept().await else {
            continue;
        };
        let (tls, shared) = (bound.tls.clone(), Arc::clone(&shared));
        tokio::spawn(async move {
            let Ok(stream) = tls.accept(stream).await else {
                return;
            };
            let service = service_fn(move |request| {
                let shared = Arc::clone(&shared);
                async move { Ok::<_, Infallible>(answer(&shared, request).await) }
            });
            // A client that goes away in mid-request is none of our business.
            let _gone = http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

/// Makes `ROOT/OWNER/NAME.git` with one commit on `main` unless it exists.
/// `name` is `OWNER/NAME`; anything else is [`io::ErrorKind::InvalidInput`].
pub fn make_repository(root: &Path, name: &str) -> io::Result<bool> {
    let plain = |part: &str| {
        !part.is_empty()
            && !part.starts_with('.')
            && part
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
    };
    match name.split_once('/') {
        Some((owner, repo)) if plain(owner) && plain(repo) => {}
        _ => {
            let text = format!("`{name}` is not of the form OWNER/NAME");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
    }
    let bare = root.join(format!("{name}.git"));
    if bare.join("HEAD").exists() {
        return Ok(false);
    }
    fs::create_dir_all(&bare)?;
    git(
        &bare,
        &["init", "--quiet", "--bare", "--initial-branch=main"],
        None,
    )?;
    let readme = format!("# {name}\n\nA repository of the stand-in.\n");
    let blob = git(&bare, &["hash-object", "-w", "--stdin"], Some(&readme))?;
    let tree = git(
        &bare,
        &["mktree"],
        Some(&format!("100644 blob {blob}\tREADME.md\n")),
    )?;
    let commit = git(&bare, &["commit-tree", "-m", "Begin", &tree], None)?;
    git(&bare, &["update-ref", "refs/heads/main", &commit], None)?;
    Ok(true)
}

/// Runs git in `dir` with a fixed identity and without the caller's configuration; returns its
/// trimmed standard output.
fn git(dir: &Path, args: &[&str], input: Option<&str>) -> io::Result<String> {
    let mut child = Command::new("git")
        .args(args)
        .current_dir(dir)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_AUTHOR_NAME", "Stand-in")
        .env("GIT_AUTHOR_EMAIL", "stand-in@portcullis.test")
        .env("GIT_COMMITTER_NAME", "Stand-in")
        .env("GIT_COMMITTER_EMAIL", "stand-in@portcullis.test")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(input.unwrap_or_default().as_bytes())?;
    }
    let output = child.wait_with_output()?;
    if !output.status.success() {
        return Err(io::Error::other(format!(
            "git {}: {}",
            args.join(" "),
            output.status
        )));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Finds `git-http-backend`: beside the git in use, then where distributions put it.
fn backend() -> io::Result<PathBuf> {
    let own = Command::new("git").arg("--exec-path").output()?;
    let own = PathBuf::from(String::from_utf8_lossy(&own.stdout).trim());
    [
        own,
        "/usr/lib/git-core".into(),
        "/usr/local/libexec/git-core".into(),
    ]
    .into_iter()
    .map(|dir| dir.join("git-http-backend"))
    .find(|path| path.exists())
    .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "git-http-backend is not installed"))
}

async fn answer(shared: &Shared, request: Request<Incoming>) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let credential = match parts.headers.get(header::AUTHORIZATION) {
        None => "missing",
        Some(value) if value.as_bytes() == shared.expected.as_bytes() => "right",
        Some(value) if is_bearer(value, shared) && parts.uri.path().starts_with("/lfs/") => "right",
        Some(_) => "wrong",
    };
    let response = if credential == "right" && lfs::is_ours(parts.uri.path()) {
        lfs::answer(&shared.root, &parts, body).await
    } else if credential == "right" {
        run_backend(shared, &parts, body)
            .await
            .unwrap_or_else(|error| {
                plain(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    &format!("stand-in: {error}\n"),
                )
            })
    } else {
        let mut response = plain(StatusCode::UNAUTHORIZED, "stand-in: credential required\n");
        let challenge = header::HeaderValue::from_static("Basic realm=\"stand-in\"");
        response
            .headers_mut()
            .insert(header::WWW_AUTHENTICATE, challenge);
        response
    };
    record(shared, &parts, credential, response.status());
    response
}

/// Transfers are no paths of git's own, and get the token as APIs do.
fn is_bearer(value: &header::HeaderValue, shared: &Shared) -> bool {
    value.as_bytes() == format!("Bearer {}", shared.password).as_bytes()
}

fn record(shared: &Shared, parts: &http::request::Parts, credential: &str, status: StatusCode) {
    let Some(log) = &shared.log else { return };
    let line = serde_json::json!({
        "method": parts.method.as_str(),
        "path": parts.uri.path(),
        "query": parts.uri.query().unwrap_or_default(),
        "headers": parts.headers.keys().map(header::HeaderName::as_str).collect::<Vec<_>>(),
        "credential": credential,
        "status": status.as_u16(),
    });
    if let Ok(mut log) = log.lock() {
        // A full disk must not change what the client sees; the reader misses the line and says so.
        let _lost = log.write_all(format!("{line}\n").as_bytes());
    }
}

/// One CGI exchange: streams the body in, reads the head, and streams the rest out.
async fn run_backend(
    shared: &Shared,
    parts: &http::request::Parts,
    body: Incoming,
) -> io::Result<Response<Body>> {
    let text = |name: &str| text(&parts.headers, name);
    let protocol = match shared.root.join(FIRST).exists() {
        true => String::new(),
        false => text("git-protocol").to_owned(),
    };
    let mut command = tokio::process::Command::new(&shared.backend);
    command
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("GIT_PROJECT_ROOT", &shared.root)
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_COUNT", "2")
        .env("GIT_CONFIG_KEY_0", "http.receivepack")
        .env("GIT_CONFIG_VALUE_0", "true")
        .env("GIT_CONFIG_KEY_1", "safe.directory")
        .env("GIT_CONFIG_VALUE_1", "*")
        .env("REMOTE_USER", &shared.user)
        .env("REQUEST_METHOD", parts.method.as_str())
        .env("PATH_INFO", parts.uri.path())
        .env("QUERY_STRING", parts.uri.query().unwrap_or_default())
        .env("CONTENT_TYPE", text("content-type"))
        .env("HTTP_CONTENT_ENCODING", text("content-encoding"))
        .env("GIT_PROTOCOL", protocol)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true);
    // Absent for a chunked body: the backend then reads to the end.
    let length = text("content-length");
    if !length.is_empty() {
        command.env("CONTENT_LENGTH", length);
    }
    let mut child = command.spawn()?;
    if let Some(stdin) = child.stdin.take() {
        tokio::spawn(feed(stdin, body));
    }
    let stdout = child
        .stdout
        .take()
        .ok_or_else(|| io::Error::other("no output pipe"))?;
    let mut stdout = BufReader::new(stdout);
    let mut response = Response::builder();
    let mut line = String::new();
    loop {
        line.clear();
        if stdout.read_line(&mut line).await? == 0 {
            return Err(io::Error::other("the backend ended before its head did"));
        }
        let Some((name, value)) = line.trim_end().split_once(':') else {
            break;
        };
        let value = value.trim();
        response = if name.eq_ignore_ascii_case("status") {
            let code = value.split(' ').next().unwrap_or_default();
            response.status(code.parse::<u16>().map_err(io::Error::other)?)
        } else {
            response.header(name, value)
        };
    }
    response
        .body(stream(child, stdout))
        .map_err(io::Error::other)
}

async fn feed(mut stdin: tokio::process::ChildStdin, mut body: Incoming) {
    while let Some(Ok(frame)) = body.frame().await {
        let Ok(data) = frame.into_data() else {
            continue;
        };
        // The backend may refuse before it has read everything; it answers all the same.
        if stdin.write_all(&data).await.is_err() {
            return;
        }
    }
}

/// The rest of the backend's output; the child lives as long as somebody reads.
fn stream(child: Child, stdout: BufReader<ChildStdout>) -> Body {
    let (sender, receiver) = tokio::sync::mpsc::channel::<io::Result<Frame<Bytes>>>(4);
    tokio::spawn(async move {
        let (mut child, mut stdout) = (child, stdout);
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let frame = match stdout.read(&mut buffer).await {
                Ok(0) => break,
                Ok(count) => Ok(Frame::data(Bytes::copy_from_slice(&buffer[..count]))),
                Err(error) => Err(error),
            };
            if sender.send(frame).await.is_err() {
                return;
            }
        }
        let _status = child.wait().await;
    });
    Receiver(receiver).boxed()
}

/// A channel's receiving half as a body.
struct Receiver(tokio::sync::mpsc::Receiver<io::Result<Frame<Bytes>>>);

impl hyper::body::Body for Receiver {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        self.0.poll_recv(context)
    }
}

fn text(headers: &HeaderMap, name: &str) -> String {
    headers
        .get(name)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default()
        .to_owned()
}

fn plain(status: StatusCode, text: &str) -> Response<Body> {
    let body = Full::new(Bytes::copy_from_slice(text.as_bytes()));
    let mut response = Response::new(body.map_err(|never| match never {}).boxed());
    *response.status_mut() = status;
    let kind = header::HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}
