//! What rules ask about a request's head and whole body, read as they ask.

use bytes::Bytes;
use http::Method;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use policy::{Body, Content, Reading, Spool, Wanted};

use super::packed::{self, Unpacked};
use super::{form, graphql, json, parameters};
use crate::digest::sha256;
use crate::{classify, strip};

/// The facts of a request whose body, if it is asked about, is `bytes`; none if it is longer than
/// anybody reads.
pub fn read(parts: &Parts, wanted: &Wanted, bytes: Option<&Bytes>) -> Content {
    Content {
        headers: fields(&parts.headers, &wanted.headers),
        body: wanted.body.map(|spool| match bytes {
            Some(bytes) => body(parts, spool, bytes),
            None => Body::beyond(),
        }),
        task: None,
    }
}

/// The fields that are asked about, as they will leave.
fn fields(headers: &HeaderMap, names: &[String]) -> Vec<(String, Option<String>)> {
    if names.is_empty() {
        return Vec::new();
    }
    let mut left = headers.clone();
    strip::request(&mut left);
    let text = |value: &HeaderValue| value.to_str().ok().map(str::to_owned);
    names
        .iter()
        .flat_map(|name| {
            let values = left.get_all(name.as_str()).iter();
            values.map(|value| (name.clone(), text(value)))
        })
        .collect()
}

fn body(parts: &Parts, spool: Spool, bytes: &Bytes) -> Body {
    let wide = |length: usize| u64::try_from(length).unwrap_or(u64::MAX);
    let mut body = Body {
        bytes: Some(wide(bytes.len())),
        sha256: sha256(bytes),
        ..Body::beyond()
    };
    let text = match unpacked(&parts.headers, bytes, spool.most) {
        Unpacked::Text(text) => text,
        Unpacked::Beyond => return Body::beyond(),
        Unpacked::Unreadable(problem) => return unreadable(body, spool, problem),
    };
    body.bytes = Some(wide(bytes.len().max(text.len())));
    let kind = match kind(&parts.headers) {
        Ok(kind) => kind,
        Err(problem) => return unreadable(body, spool, problem),
    };
    if spool.json {
        body.json = reading(match kind {
            Kind::Json => json::read(&text),
            Kind::Form | Kind::None | Kind::Other => Err("its content type is not JSON".to_owned()),
        });
    }
    if spool.form {
        body.form = reading(match kind {
            Kind::Form => form::read(&text),
            Kind::Json | Kind::None | Kind::Other => Err("its content type is no form".to_owned()),
        });
    }
    if spool.parameters {
        body.parameters = reading(match kind {
            _ if text.is_empty() => Ok(Vec::new()),
            Kind::Form => parameters::of_form(&text),
            Kind::Json => parameters::of_json(&text),
            Kind::None | Kind::Other => {
                Err("its content type is neither a form nor JSON".to_owned())
            }
        });
    }
    if spool.graphql {
        let query = classify::target(&parts.uri)
            .split_once('?')
            .map(|(_, query)| query);
        body.graphql = reading(match (&parts.method, kind) {
            (&Method::POST, Kind::Json) => graphql::posted(&text, query),
            (&Method::GET | &Method::HEAD, _) if text.is_empty() => graphql::got(query),
            _ => Err("a GraphQL request is a POST of JSON, or a GET without a body".to_owned()),
        });
    }
    body
}

fn unreadable(mut body: Body, spool: Spool, problem: &str) -> Body {
    fn as_asked<T>(asked: bool, problem: &str) -> Reading<T> {
        match asked {
            true => Reading::Unreadable(problem.to_owned()),
            false => Reading::NotAsked,
        }
    }
    body.json = as_asked(spool.json, problem);
    body.form = as_asked(spool.form, problem);
    body.graphql = as_asked(spool.graphql, problem);
    body.parameters = as_asked(spool.parameters, problem);
    body
}

fn reading<T>(read: Result<T, String>) -> Reading<T> {
    match read {
        Ok(read) => Reading::Read(read),
        Err(problem) => Reading::Unreadable(problem),
    }
}

/// The body's text.
fn unpacked(headers: &HeaderMap, bytes: &Bytes, most: u64) -> Unpacked {
    match only(headers, &header::CONTENT_ENCODING) {
        Ok(None) => Unpacked::Text(bytes.to_vec()),
        Ok(Some(encoding)) if encoding.eq_ignore_ascii_case(b"identity") => {
            Unpacked::Text(bytes.to_vec())
        }
        Ok(Some(encoding)) => packed::unpack(encoding, bytes, most),
        Err(()) => Unpacked::Unreadable("it says more than once how it is packed"),
    }
}

/// What a body says it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Json,
    Form,
    Other,
    None,
}

fn kind(headers: &HeaderMap) -> Result<Kind, &'static str> {
    let Ok(value) = only(headers, &header::CONTENT_TYPE) else {
        return Err("it has more than one content type");
    };
    let Some(value) = value else {
        return Ok(Kind::None);
    };
    let Ok(text) = std::str::from_utf8(value) else {
        return Err("its content type is no text");
    };
    let mut parts = text.split(';').map(str::trim);
    let essence = parts.next().unwrap_or_default().to_ascii_lowercase();
    for parameter in parts.filter(|part| !part.is_empty()) {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        let charset = name.trim().eq_ignore_ascii_case("charset");
        if charset && !value.trim().trim_matches('"').eq_ignore_ascii_case("utf-8") {
            return Err("it is in another charset than UTF-8");
        }
    }
    Ok(match essence.as_str() {
        "application/json" => Kind::Json,
        "application/x-www-form-urlencoded" => Kind::Form,
        other if other.starts_with("application/") && other.ends_with("+json") => Kind::Json,
        _ => Kind::Other,
    })
}

/// The one value of a field; `Err` where it stands there more than once.
fn only<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Result<Option<&'h [u8]>, ()> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (value, None) => Ok(value.map(HeaderValue::as_bytes)),
        (_, Some(_)) => Err(()),
    }
}
