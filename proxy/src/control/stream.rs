//! Answers that are many lines: live events, and what the log says about one run.

use std::convert::Infallible;
use std::ops::ControlFlow;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Response;
use http::header::{CONTENT_TYPE, HeaderValue};
use http_body_util::BodyExt;
use hyper::body::{Body, Frame};
use tokio::sync::{broadcast, mpsc};

use super::answer::Answer;
use crate::audit::Audit;
use crate::audit::query::{Filter, Reader};
use crate::audit::snapshot::Snapshot;

/// Lines between a producer and a client that reads slowly.
const QUEUED: usize = 256;

/// A body of lines that arrive through a channel; it ends when the channel does.
struct Lines(mpsc::Receiver<Bytes>);

impl Body for Lines {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0
            .poll_recv(context)
            .map(|line| line.map(|line| Ok(Frame::data(line))))
    }
}

fn answer(lines: mpsc::Receiver<Bytes>) -> Answer {
    let mut answer = Response::new(Lines(lines).boxed_unsync());
    let lines = HeaderValue::from_static("application/x-ndjson");
    answer.headers_mut().insert(CONTENT_TYPE, lines);
    answer
}

/// Every audit line from now on. A client that does not keep up is told so and let go: it must
/// read the log to catch up.
pub(super) fn events(audit: &Audit) -> Answer {
    let (sender, lines) = mpsc::channel(QUEUED);
    let mut live = audit.subscribe();
    tokio::spawn(async move {
        // So that the head is sent before the first event.
        let hello = Bytes::from_static(b"\n");
        if sender.send(hello).await.is_err() {
            return;
        }
        loop {
            let line = tokio::select! {
                line = live.recv() => line,
                () = sender.closed() => return,
            };
            let (text, last) = match line {
                Ok(line) => (format!("{line}\n"), false),
                Err(broadcast::error::RecvError::Lagged(missed)) => (
                    format!("{{\"kind\":\"lagged\",\"missed\":{missed}}}\n"),
                    true,
                ),
                Err(broadcast::error::RecvError::Closed) => return,
            };
            if sender.send(Bytes::from(text)).await.is_err() || last {
                return;
            }
        }
    });
    answer(lines)
}

/// Matching lines of the log, read by a thread that may block.
pub(super) fn log(audit: &Audit, filter: Filter) -> Answer {
    let (sender, lines) = mpsc::channel(QUEUED);
    let path = audit.view().path;
    if let Err(problem) = audit.flush() {
        tracing::warn!("{problem}: the newest lines may be missing from an answer");
    }
    tokio::task::spawn_blocking(move || {
        let say = |line: &str| match sender.blocking_send(Bytes::from(format!("{line}\n"))) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        };
        // What is missing belongs to the answer: its last lines say so.
        let lacking = |why: &str| {
            tracing::warn!("{}: {why}", path.display());
            let line = serde_json::json!({ "kind": "lacking", "reason": why });
            // Whoever went away needs no more.
            let _: ControlFlow<()> = say(&line.to_string());
        };
        let read = Snapshot::at(path.parent().unwrap_or(Path::new("."))).and_then(|files| {
            let mut reader = Reader::new(&files, &filter);
            let read = reader.each(|line, _| say(line));
            for remark in reader.remarks() {
                lacking(&remark);
            }
            read
        });
        if let Err(problem) = read {
            lacking(&format!("the log cannot be read any further: {problem}"));
        }
    });
    answer(lines)
}
