//! Asking the gate about a name, over one connection that is kept. The relay knows nothing by
//! itself: what the gate does not say does not resolve.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

/// The name that the gate itself answers to.
const GATE: &str = "gate.portcullis.internal";
/// How long the gate may take for one name; clients ask again after five seconds at the latest.
const PATIENCE: Duration = Duration::from_secs(4);
/// Questions waiting for the gate; what comes beyond is not answered.
const WAITING: usize = 128;
/// The longest answer of the gate.
const LONGEST: usize = 32 * 1024;

/// What the gate says about a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Said {
    /// It is listed on these ports.
    Listed(Vec<u16>),
    /// It is not.
    Unlisted,
    /// The gate would not say now: its code, or that it is away.
    Failed(&'static str),
}

/// Asks the gate, one question after the other.
#[derive(Debug, Clone)]
pub(super) struct Asker(mpsc::Sender<(String, oneshot::Sender<Said>)>);

impl Asker {
    /// Starts the task that asks; call within a `LocalSet` or runtime.
    pub(super) fn start(gate: &Path) -> Self {
        let (sender, mut questions) = mpsc::channel::<(String, oneshot::Sender<Said>)>(WAITING);
        let gate = gate.to_owned();
        tokio::spawn(async move {
            let mut kept = None;
            while let Some((name, answer)) = questions.recv().await {
                let said = ask(&gate, &mut kept, &name).await;
                // Whoever asked may have gone.
                let _gone = answer.send(said);
            }
        });
        Self(sender)
    }

    /// What the gate says about `name`, which is written into a request as it is.
    pub(super) async fn ask(&self, name: String) -> Said {
        let (answer, said) = oneshot::channel();
        if self.0.try_send((name, answer)).is_err() {
            return Said::Failed("portcullis: too many names are being looked up");
        }
        said.await
            .unwrap_or(Said::Failed("portcullis: the relay is ending"))
    }
}

async fn ask(gate: &PathBuf, kept: &mut Option<UnixStream>, name: &str) -> Said {
    let asking = async {
        // A kept connection may have been closed meanwhile; a fresh one has not.
        if let Some(stream) = kept.take()
            && let Ok(answer) = exchange(stream, name).await
        {
            return Ok(answer);
        }
        exchange(UnixStream::connect(gate).await?, name).await
    };
    match timeout(PATIENCE, asking).await {
        Ok(Ok((said, stream))) => {
            *kept = stream;
            said
        }
        Ok(Err(_)) | Err(_) => Said::Failed("portcullis: the gate is not answering"),
    }
}

/// One request and its answer, with the connection if it can be used again.
async fn exchange(mut stream: UnixStream, name: &str) -> io::Result<(Said, Option<UnixStream>)> {
    let request = format!(
        "GET http://{GATE}/v1/name?host={name} HTTP/1.1\r\nHost: {GATE}\r\n\
         User-Agent: portcullis-relay\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await?;
    let mut bytes = Vec::new();
    let mut needed = None;
    loop {
        if needed.is_none()
            && let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n")
        {
            let head = Head::read(&bytes[..end]).ok_or_else(odd)?;
            needed = Some((end + 4, head));
        }
        if let Some((start, head)) = &needed
            && bytes.len() >= start + head.length
        {
            let body = bytes.get(*start..start + head.length).unwrap_or_default();
            return Ok((head.said(body), (!head.closes).then_some(stream)));
        }
        if bytes.len() > LONGEST || stream.read_buf(&mut bytes).await? == 0 {
            return Err(odd());
        }
    }
}

fn odd() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "not an answer of the gate")
}

/// What matters of an answer's head.
#[derive(Debug)]
struct Head {
    status: u16,
    length: usize,
    closes: bool,
}

impl Head {
    fn read(head: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(head).ok()?;
        let mut lines = text.split("\r\n");
        let status = lines.next()?.strip_prefix("HTTP/1.1 ")?.get(..3)?;
        let mut this = Self {
            status: status.parse().ok()?,
            length: 0,
            closes: false,
        };
        for line in lines {
            let (name, value) = line.split_once(':')?;
            if name.eq_ignore_ascii_case("content-length") {
                this.length = value.trim().parse().ok()?;
            } else if name.eq_ignore_ascii_case("connection") {
                this.closes = value.trim().eq_ignore_ascii_case("close");
            }
        }
        (this.length <= LONGEST).then_some(this)
    }

    fn said(&self, body: &[u8]) -> Said {
        match self.status {
            200 => {
                let text = std::str::from_utf8(body).unwrap_or_default();
                match text
                    .lines()
                    .map(str::parse)
                    .collect::<Result<Vec<u16>, _>>()
                {
                    Ok(ports) if !ports.is_empty() => Said::Listed(ports),
                    Ok(_) | Err(_) => Said::Failed("portcullis: the gate's answer is odd"),
                }
            }
            // Final refusals, and names that are none.
            400 | 403 => Said::Unlisted,
            429 => Said::Failed("portcullis: limit_reached: too many new names"),
            _ => Said::Failed("portcullis: the gate serves nothing at the moment"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::UnixListener;

    async fn said_to(answer: &'static str) -> Said {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("gate.sock");
        let listener = UnixListener::bind(&path).unwrap();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut buffer = [0; 1024];
            let _request = stream.read(&mut buffer).await.unwrap();
            stream.write_all(answer.as_bytes()).await.unwrap();
        });
        Asker::start(&path).ask("a.example".to_owned()).await
    }

    #[tokio::test]
    async fn answers_are_read_and_odd_ones_fail() {
        let listed = "HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\n80\n443\n";
        assert_eq!(said_to(listed).await, Said::Listed(vec![80, 443]));
        let unlisted = "HTTP/1.1 403 Portcullis: no\r\nContent-Length: 0\r\n\r\n";
        assert_eq!(said_to(unlisted).await, Said::Unlisted);
        for odd in [
            "HTTP/1.1 429 x\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 503 x\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n4x3\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 99999999\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-len",
            "SSH-2.0\r\n\r\n",
        ] {
            assert!(matches!(said_to(odd).await, Said::Failed(_)), "{odd}");
        }
    }

    #[tokio::test]
    async fn a_connection_that_was_closed_meanwhile_is_no_failure() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("gate.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let served = tokio::spawn(async move {
            for _ in 0..2 {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut buffer = [0; 1024];
                let _request = stream.read(&mut buffer).await.unwrap();
                let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n443\n";
                stream.write_all(answer).await.unwrap();
            }
        });
        let asker = Asker::start(&path);
        for _ in 0..2 {
            let said = asker.ask("a.example".to_owned()).await;
            assert_eq!(said, Said::Listed(vec![443]));
        }
        served.await.unwrap();
        let away = asker.ask("a.example".to_owned()).await;
        assert!(matches!(away, Said::Failed(_)), "{away:?}");
    }
}
