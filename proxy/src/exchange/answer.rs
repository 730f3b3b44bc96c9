//! An upstream's answers as the client gets them: the interim ones and the final one, without what
//! must not come back.

use http::header::{self, HeaderMap, HeaderValue};
use http::{Response, StatusCode};
use hyper::body::Body;
use policy::Refusal;

use super::Channel;
use super::body::{Cut, ResponseBody};
use super::ending::Ending;
use crate::framing::Exchanging;
use crate::inject::Injected;
use crate::scrub::Scrubber;
use crate::strip;
use crate::upstream::{Answer, Interim};

/// Said on a credentialed answer that the upstream refused, where its challenge was taken away.
const UPSTREAM: &str = "x-portcullis-upstream";

/// The upstream's answer as the client gets it.
pub(super) fn deliver(
    answer: Answer,
    mut sought: Sought,
    mut ending: Ending,
    trailers: bool,
    to_head: bool,
    exchanging: Exchanging,
) -> Result<Response<ResponseBody>, Refusal> {
    let (mut head, incoming) = answer.response.into_parts();
    let trailer = head.headers.remove(header::TRAILER).filter(|_| trailers);
    sought.strip(&mut head.headers, &mut ending)?;
    if let Some(scrubber) = sought
        .scrubber
        .as_mut()
        .filter(|_| !incoming.is_end_stream())
        && let Err(how) = scrubber.expect_body(&head.headers)
    {
        let refusal = ending.reflected(how, "body");
        ending.refused(&refusal);
        return Err(refusal);
    }
    ending
        .account()
        .expect(&head.headers, sought.scrubber.is_some());
    // An answer to HEAD states the length of what is not sent.
    let sent = !matches!(
        head.status,
        StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED
    ) && !incoming.is_end_stream()
        && !to_head;
    if sent && incoming.size_hint().lower() > ending.meter().most_received() {
        ending.meter().cut(Cut::Answer);
    }
    if let Some(refusal) = ending.meter().is_cut().then(|| ending.cut()).flatten() {
        return Err(refusal);
    }
    let Sought { injected, scrubber } = sought;
    if let Some(trailer) = trailer {
        head.headers.insert(header::TRAILER, trailer);
    }
    if head.status == StatusCode::UNAUTHORIZED && injected.is_some() {
        head.headers.insert(
            UPSTREAM,
            HeaderValue::from_static("credential-refused-by-upstream"),
        );
    }
    ending.answered(head.status, answer.lease.address());
    let trailers = trailers.then_some(injected);
    let body = ResponseBody::upstream(
        incoming,
        answer.lease,
        ending,
        trailers,
        scrubber,
        Some(exchanging),
    );
    let mut response = Response::new(body);
    *response.status_mut() = head.status;
    *response.headers_mut() = head.headers;
    Ok(response)
}

/// What must not come back.
#[derive(Default)]
pub(super) struct Sought {
    pub(super) injected: Option<HeaderValue>,
    /// Absent where nothing was injected, or so little that it stands everywhere.
    pub(super) scrubber: Option<Box<Scrubber>>,
}

impl Sought {
    pub(super) fn of(injected: Option<&Injected>) -> Self {
        Self {
            scrubber: injected.and_then(Injected::scrubber),
            injected: injected.map(|injected| injected.value.clone()),
        }
    }

    /// Passes on the interim answers that have come, judged as the final one is.
    pub(super) fn pass(
        &self,
        interim: &Interim,
        channel: &Channel,
        ending: &mut Ending,
    ) -> Result<(), Refusal> {
        for (status, mut fields) in interim.take() {
            self.strip(&mut fields, ending)?;
            channel.framing.interim(&interim_head(status, &mut fields));
        }
        Ok(())
    }

    /// Strips an answer's fields; refuses those that repeat what was injected.
    pub(super) fn strip(&self, fields: &mut HeaderMap, ending: &mut Ending) -> Result<(), Refusal> {
        strip::response_names(fields, self.injected.is_some());
        if let Some(Err(how)) = self
            .scrubber
            .as_ref()
            .map(|scrubber| scrubber.fields(fields))
        {
            let refusal = ending.reflected(how, "fields");
            ending.refused(&refusal);
            return Err(refusal);
        }
        strip::response(fields, self.injected.as_ref());
        Ok(())
    }
}

/// An interim answer as it stands on HTTP/1.1. It has no body, so that none is framed or described.
fn interim_head(status: StatusCode, fields: &mut HeaderMap) -> Vec<u8> {
    fields.remove(header::CONTENT_LENGTH);
    let reason = status.canonical_reason().unwrap_or("Interim");
    let mut head = format!("HTTP/1.1 {} {reason}\r\n", status.as_str()).into_bytes();
    for (name, value) in fields.iter() {
        head.extend_from_slice(name.as_str().as_bytes());
        head.extend_from_slice(b": ");
        head.extend_from_slice(value.as_bytes());
        head.extend_from_slice(b"\r\n");
    }
    head.extend_from_slice(b"\r\n");
    head
}
