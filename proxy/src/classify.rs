//! What a request asks for, and whether everything in it agrees on the destination. One authority
//! value comes out: the CONNECT target or the absolute-form target, to which `Host` must be equal.
//! Disagreement is refused, never repaired.

use http::header::{self, HeaderMap};
use http::request::Parts;
use http::{Method, Uri, Version};
use policy::authority::{Authority, AuthorityError, Scheme};
use policy::{Code, Refusal};

/// What a request on an entrance asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// A tunnel, in which TLS will be terminated.
    Connect(Authority),
    /// A plain HTTP request in absolute form.
    Absolute(Authority),
}

/// Classifies a request on an entrance.
pub fn entry(parts: &Parts) -> Result<Entry, Refusal> {
    if parts.method == Method::CONNECT {
        return connect(parts).map(Entry::Connect);
    }
    match (parts.uri.scheme_str(), parts.uri.authority()) {
        (Some("http"), Some(stated)) => {
            let authority =
                Authority::with_default_port(stated.as_str(), Scheme::Http.default_port())
                    .map_err(|error| malformed_authority(&error))?;
            agree(&parts.headers, Scheme::Http, &authority).map_err(two_names)?;
            Ok(Entry::Absolute(authority))
        }
        (Some("https"), _) => Err(Refusal::new(
            Code::MalformedRequest,
            "https is reached through CONNECT, not by an absolute-form request",
            "let the client use HTTPS_PROXY as an ordinary CONNECT proxy",
        )),
        _ => Err(Refusal::new(
            Code::MalformedRequest,
            "this is a proxy, and the request names no destination",
            "send CONNECT host:port or an absolute http:// target",
        )),
    }
}

/// Checks one request inside a tunnel against the tunnel's authority.
pub fn inside(parts: &Parts, scheme: Scheme, authority: &Authority) -> Result<(), Refusal> {
    method(&parts.method)?;
    let uri = &parts.uri;
    if parts.version == Version::HTTP_2 {
        return inside_http2(parts, scheme, authority);
    }
    if uri.scheme().is_some() || uri.authority().is_some() {
        let same_scheme = uri.scheme_str() == Some(scheme.as_str());
        let stated = uri.authority().and_then(|stated| {
            Authority::with_default_port(stated.as_str(), scheme.default_port()).ok()
        });
        if !same_scheme || stated.as_ref() != Some(authority) {
            return Err(Refusal::new(
                Code::MalformedRequest,
                &format!("the absolute-form target is not {authority}, to which this tunnel leads"),
                "open a tunnel to the host that is meant",
            ));
        }
    }
    agree(&parts.headers, scheme, authority)
}

/// The same over HTTP/2, where `:authority` is what `Host` is elsewhere, and must be there; `Host` may
/// be there too.
fn inside_http2(parts: &Parts, scheme: Scheme, authority: &Authority) -> Result<(), Refusal> {
    let malformed = |sentence| {
        let remedy = "send a well-formed HTTP/2 request";
        Err(Refusal::new(Code::MalformedRequest, sentence, remedy))
    };
    let uri = &parts.uri;
    if uri.scheme_str() != Some(scheme.as_str()) {
        return malformed(":scheme is not the one of this connection");
    }
    let Some(stated) = uri.authority() else {
        return malformed("the request has no :authority");
    };
    let stated = Authority::with_default_port(stated.as_str(), scheme.default_port())
        .map_err(|error| malformed_authority(&error))?;
    if stated != *authority {
        return Err(mismatch(":authority", authority));
    }
    if parts.headers.contains_key(header::HOST) {
        agree(&parts.headers, scheme, authority)?;
    }
    if parts.headers.get_all(header::CONTENT_LENGTH).iter().count() > 1 {
        return malformed("the request states its length twice");
    }
    // The library refuses these as well; a request that carries one has no meaning here.
    let of_a_connection = [
        "connection",
        "keep-alive",
        "proxy-connection",
        "transfer-encoding",
        "upgrade",
    ];
    if of_a_connection
        .iter()
        .any(|name| parts.headers.contains_key(*name))
    {
        return malformed("the request has fields that belong to an HTTP/1 connection");
    }
    Ok(())
}

/// The origin form that is judged and sent: path and query, raw.
pub fn target(uri: &Uri) -> &str {
    uri.path_and_query()
        .map_or("/", http::uri::PathAndQuery::as_str)
}

/// Whether a request asks for a WebSocket, which some rules open. Any other upgrade is refused inside
/// TLS. In plain HTTP an offer of `h2c` is dropped with the other fields of this hop, as RFC 9110, 7.8
/// has it: some clients make it with every request, and none depends on it.
pub fn upgrade(parts: &Parts, scheme: Scheme) -> Result<bool, Refusal> {
    let headers = &parts.headers;
    if !headers.contains_key(header::UPGRADE) {
        return Ok(false);
    }
    let refuse = |sentence: &str, remedy| Err(Refusal::new(Code::FeatureRefused, sentence, remedy));
    let offers: Vec<&[u8]> = headers
        .get_all(header::UPGRADE)
        .iter()
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        .map(<[u8]>::trim_ascii)
        .collect();
    match offers.as_slice() {
        [only] if only.eq_ignore_ascii_case(b"websocket") => {}
        [only] if only.eq_ignore_ascii_case(b"h2c") && scheme == Scheme::Http => return Ok(false),
        _ => {
            return refuse(
                "an upgrade to another protocol is not served",
                "ask for HTTP/2 with the TLS handshake, and for a WebSocket with `Upgrade: websocket` alone",
            );
        }
    }
    let connection = headers
        .get_all(header::CONNECTION)
        .iter()
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        .any(|token| token.trim_ascii().eq_ignore_ascii_case(b"upgrade"));
    let sole = |name| headers.get_all(name).iter().count() == 1;
    let body = headers.contains_key(header::TRANSFER_ENCODING)
        || headers
            .get(header::CONTENT_LENGTH)
            .is_some_and(|length| length != "0");
    let good = parts.method == Method::GET
        && parts.version == Version::HTTP_11
        && connection
        && sole(header::SEC_WEBSOCKET_KEY)
        && sole(header::SEC_WEBSOCKET_VERSION)
        && !body;
    if parts.uri.scheme().is_some() {
        return refuse(
            "a WebSocket is not opened by an absolute-form request",
            "let the client open a CONNECT tunnel for it",
        );
    }
    if good {
        Ok(true)
    } else {
        refuse(
            "the request for a WebSocket is not a well-formed one",
            "send GET over HTTP/1.1 with Connection: upgrade, one Sec-WebSocket-Key and one Sec-WebSocket-Version",
        )
    }
}

/// Whether a request asks to leave HTTP: whoever sends it may already have sent something else behind
/// it, so that its connection serves no other request once it is refused. An `Upgrade` counts that
/// begins like one to WebSocket, whatever else is wrong with it.
pub fn leaves_http(method: &Method, headers: &HeaderMap) -> bool {
    let names_websocket = headers.get_all(header::UPGRADE).iter().any(|value| {
        let start = value.as_bytes().get(..9).unwrap_or_default();
        start.eq_ignore_ascii_case(b"websocket")
    });
    names_websocket || *method == Method::CONNECT
}

/// Whether the sender of a request waits to be told that its body is wanted (RFC 9110, 10.1.1). In
/// HTTP/1.0 that has no meaning.
///
/// # Errors
/// It expects something else, which nobody here can promise.
pub fn waits_for_continue(parts: &Parts) -> Result<bool, Refusal> {
    let mut expected = parts.headers.get_all(header::EXPECT).iter();
    match (expected.next(), expected.next()) {
        (None, _) => Ok(false),
        (Some(only), None) if only.as_bytes().eq_ignore_ascii_case(b"100-continue") => {
            Ok(parts.version != Version::HTTP_10)
        }
        _ => Err(Refusal::new(
            Code::ExpectationRefused,
            "the request expects something else than `100-continue`",
            "send it without Expect",
        )),
    }
}

/// Methods that no rule can open: TRACE would echo the injected credential, and there is no tunnel
/// in a tunnel.
pub fn method(method: &Method) -> Result<(), Refusal> {
    let name = method.as_str();
    if matches!(name, "TRACE" | "TRACK" | "CONNECT") {
        return Err(Refusal::new(
            Code::MethodRefused,
            &format!("{name} is never sent to a server"),
            "use another method",
        ));
    }
    Ok(())
}

fn connect(parts: &Parts) -> Result<Authority, Refusal> {
    let uri = &parts.uri;
    let stated = match (uri.scheme(), uri.authority(), uri.path_and_query()) {
        (None, Some(stated), None) => stated.as_str(),
        (None, Some(stated), Some(rest)) if rest.as_str().is_empty() => stated.as_str(),
        _ => {
            return Err(Refusal::new(
                Code::MalformedAuthority,
                "the CONNECT target is not host:port",
                "send CONNECT host:port",
            ));
        }
    };
    let authority = Authority::parse(stated).map_err(|error| malformed_authority(&error))?;
    if parts.headers.contains_key(header::CONTENT_LENGTH)
        || parts.headers.contains_key(header::TRANSFER_ENCODING)
    {
        return Err(Refusal::new(
            Code::MalformedRequest,
            "a CONNECT with a body is ambiguous",
            "send CONNECT without Content-Length and Transfer-Encoding",
        ));
    }
    // Clients of HTTP/1.0 send no Host here; where there is one, it must not say anything else.
    if parts.headers.contains_key(header::HOST) {
        let host = sole_host(&parts.headers)?;
        let same = Authority::with_default_port(host, authority.port()).ok();
        if same.as_ref() != Some(&authority) {
            return Err(mismatch("the Host of the CONNECT", &authority));
        }
    }
    Ok(authority)
}

/// `Host` exactly once, and equal to `authority` with the scheme's default port filled in.
fn agree(headers: &HeaderMap, scheme: Scheme, authority: &Authority) -> Result<(), Refusal> {
    let host = sole_host(headers)?;
    // The usual spelling, which reads as nothing else.
    if authority.port() == scheme.default_port() && authority.host().as_name() == Some(host) {
        return Ok(());
    }
    let stated = Authority::with_default_port(host, scheme.default_port())
        .map_err(|error| malformed_authority(&error))?;
    if stated == *authority {
        Ok(())
    } else {
        Err(mismatch("Host", authority))
    }
}

fn sole_host(headers: &HeaderMap) -> Result<&str, Refusal> {
    let mut values = headers.get_all(header::HOST).iter();
    let refuse = |sentence| {
        Err(Refusal::new(
            Code::MalformedRequest,
            sentence,
            "send exactly one Host field",
        ))
    };
    match (values.next().map(|value| value.to_str()), values.next()) {
        (Some(Ok(host)), None) => Ok(host),
        (Some(Err(_)), _) => refuse("the Host field is not readable"),
        (_, Some(_)) => refuse("the request has several Host fields"),
        (None, None) => refuse("the request has no Host field"),
    }
}

fn malformed_authority(error: &AuthorityError) -> Refusal {
    Refusal::new(
        Code::MalformedAuthority,
        &error.to_string(),
        "name the destination as host:port",
    )
}

/// Target and `Host` of one plain request that name two destinations are no misdirected request
/// but a malformed one (RFC 9112, 3.2.2).
fn two_names(refusal: Refusal) -> Refusal {
    if refusal.code != Code::AuthorityMismatch {
        return refusal;
    }
    Refusal::new(
        Code::MalformedRequest,
        "the absolute-form target and Host name different destinations",
        "send one destination in both",
    )
}

fn mismatch(what: &str, authority: &Authority) -> Refusal {
    Refusal::new(
        Code::AuthorityMismatch,
        &format!("{what} names another destination than {authority}"),
        "target, TLS server name and Host must name the same host and port",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    fn parts(method: &str, uri: &str, hosts: &[&str]) -> Parts {
        let mut request = Request::builder().method(method).uri(uri);
        for host in hosts {
            request = request.header("host", *host);
        }
        request.body(()).unwrap().into_parts().0
    }

    fn code<T: std::fmt::Debug>(result: Result<T, Refusal>) -> Code {
        result.unwrap_err().code
    }

    #[test]
    fn connect_targets_are_host_and_port_and_nothing_else() {
        let good = parts("CONNECT", "Example.COM:443", &["example.com:443"]);
        let expected = Authority::parse("example.com:443").unwrap();
        assert_eq!(entry(&good).unwrap(), Entry::Connect(expected));
        assert!(entry(&parts("CONNECT", "example.com:443", &[])).is_ok());
        for uri in [
            "example.com",
            "u@example.com:443",
            "http://example.com:443/",
        ] {
            assert_eq!(
                code(entry(&parts("CONNECT", uri, &[]))),
                Code::MalformedAuthority,
                "{uri}"
            );
        }
        let other = parts("CONNECT", "example.com:443", &["other.example:443"]);
        assert_eq!(code(entry(&other)), Code::AuthorityMismatch);
        let mut body = parts("CONNECT", "example.com:443", &[]);
        body.headers.insert("content-length", "3".parse().unwrap());
        assert_eq!(code(entry(&body)), Code::MalformedRequest);
    }

    #[test]
    fn absolute_form_must_agree_with_host() {
        assert!(entry(&parts("GET", "http://a.example/x", &["a.example"])).is_ok());
        assert!(entry(&parts("GET", "http://a.example/x", &["a.example:80"])).is_ok());
        let cases = [
            (
                "http://a.example/x",
                vec!["b.example"],
                Code::MalformedRequest,
            ),
            (
                "http://a.example/x",
                vec!["a.example:8080"],
                Code::MalformedRequest,
            ),
            ("http://a.example/x", vec![], Code::MalformedRequest),
            (
                "https://a.example/x",
                vec!["a.example"],
                Code::MalformedRequest,
            ),
            ("/x", vec!["a.example"], Code::MalformedRequest),
        ];
        for (uri, hosts, expected) in cases {
            assert_eq!(
                code(entry(&parts("GET", uri, &hosts))),
                expected,
                "{uri} {hosts:?}"
            );
        }
    }

    #[test]
    fn requests_in_a_tunnel_agree_with_it() {
        let authority = Authority::parse("a.example:443").unwrap();
        let check = |method: &str, uri: &str, hosts: &[&str]| {
            inside(&parts(method, uri, hosts), Scheme::Https, &authority)
        };
        assert!(check("GET", "/x", &["a.example"]).is_ok());
        assert!(check("GET", "/x", &["A.example:443"]).is_ok());
        assert!(check("GET", "https://a.example/x", &["a.example"]).is_ok());
        let cases: [(&str, &str, &[&str], Code); 8] = [
            ("GET", "/x", &["b.example"], Code::AuthorityMismatch),
            ("GET", "/x", &["a.example:8443"], Code::AuthorityMismatch),
            (
                "GET",
                "/x",
                &["a.example", "b.example"],
                Code::MalformedRequest,
            ),
            (
                "GET",
                "/x",
                &["a.example", "a.example"],
                Code::MalformedRequest,
            ),
            ("GET", "/x", &[], Code::MalformedRequest),
            (
                "GET",
                "https://b.example/x",
                &["a.example"],
                Code::MalformedRequest,
            ),
            (
                "GET",
                "http://a.example/x",
                &["a.example"],
                Code::MalformedRequest,
            ),
            ("TRACE", "/x", &["a.example"], Code::MethodRefused),
        ];
        for (method, uri, hosts, expected) in cases {
            assert_eq!(
                code(check(method, uri, hosts)),
                expected,
                "{method} {uri} {hosts:?}"
            );
        }
    }
}
