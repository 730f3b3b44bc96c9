//! A gRPC server without a schema: every message is bytes, and each method answers in its own way.
//!
//! | method | answer |
//! |---|---|
//! | `/echo.Echo/Unary` | the message |
//! | `/echo.Echo/ServerStream` | the message, three times |
//! | `/echo.Echo/ClientStream` | how many messages came |
//! | `/echo.Echo/Both` | each message as it comes |
//! | `/echo.Echo/Fails` | status 5, in the trailers alone |

use std::io;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Request, Response, header};
use http_body_util::BodyExt;
use hyper::body::{Frame, Incoming};
use tokio::sync::mpsc::Sender;

use super::server::{self, Body};

/// Answers one call.
pub async fn answer(request: Request<Incoming>) -> Response<Body> {
    let method = request.uri().path().rsplit('/').next().unwrap_or_default();
    let method = method.to_owned();
    let (sender, body) = server::channel();
    tokio::spawn(async move { call(&method, request.into_body(), sender).await });
    let mut response = Response::new(body);
    let kind = HeaderValue::from_static("application/grpc");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

/// One call; a client that goes away ends it.
async fn call(method: &str, mut body: Incoming, sender: Sender<io::Result<Frame<Bytes>>>) {
    let (mut buffer, mut count) = (BytesMut::new(), 0);
    while let Some(Ok(frame)) = body.frame().await {
        let Ok(data) = frame.into_data() else {
            continue;
        };
        buffer.extend_from_slice(&data);
        while let Some(message) = message(&mut buffer) {
            count += 1;
            let times = match method {
                "Unary" | "Both" => 1,
                "ServerStream" => 3,
                _ => 0,
            };
            for _ in 0..times {
                if sender
                    .send(Ok(Frame::data(framed(&message))))
                    .await
                    .is_err()
                {
                    return;
                }
            }
        }
    }
    if method == "ClientStream" {
        let counted = framed(count.to_string().as_bytes());
        if sender.send(Ok(Frame::data(counted))).await.is_err() {
            return;
        }
    }
    let mut trailers = HeaderMap::new();
    let (status, text) = match method {
        "Fails" => ("5", "not found, as asked"),
        _ => ("0", ""),
    };
    trailers.insert("grpc-status", HeaderValue::from_static(status));
    trailers.insert("grpc-message", HeaderValue::from_static(text));
    // Nobody is left to be told.
    let _gone = sender.send(Ok(Frame::trailers(trailers))).await;
}

/// Takes one length-prefixed message off `buffer` once all of it is there.
fn message(buffer: &mut BytesMut) -> Option<Bytes> {
    let length = buffer.get(1..5)?.get_u32();
    let end = usize::try_from(length).ok()?.checked_add(5)?;
    if buffer.len() < end {
        return None;
    }
    Some(buffer.split_to(end).freeze().slice(5..))
}

fn framed(message: &[u8]) -> Bytes {
    let mut bytes = BytesMut::with_capacity(message.len() + 5);
    bytes.put_u8(0);
    bytes.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    bytes.put_slice(message);
    bytes.freeze()
}
