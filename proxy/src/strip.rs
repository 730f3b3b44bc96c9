//! What never crosses the gate. Requests lose everything that could carry a client's own
//! credential, re-route the request behind the gate, or speak to this hop only; responses lose what
//! would hand the agent a session or steer it around the gate. Stripping happens before injection,
//! so that a client cannot nominate the injected field away.

use std::borrow::Cow;

use http::HeaderMap;
use http::header::{self, HeaderName, HeaderValue};

/// Fields that carry credentials or sessions. Removed from every request, whether or not the gate
/// injects its own, and from every response on a credentialed route. Names are compared in their
/// [plain] form.
const CREDENTIALS: &[&str] = &[
    "auth",
    "cookie2",
    "dpop",
    "jsessionid",
    "jwt",
    "key",
    "phpsessid",
    "x-auth-email",
    "x-auth-user",
    "x-honeycomb-team",
    "x-key",
    "x-session",
    "x-session-id",
];

/// What the names of such fields end in, whoever invented them, also without a hyphen before.
const CREDENTIAL_ENDINGS: &[&str] = &[
    "accesskey",
    "api-key",
    "apikey",
    "authentication",
    "authkey",
    "authorization",
    "cookie",
    "credential",
    "credentials",
    "oauth",
    "passphrase",
    "passwd",
    "password",
    "secret",
    "secretkey",
    "token",
    // These are whole words only.
    "-auth",
    "-bearer",
    "-jwt",
    "-jwt-assertion",
    "-otp",
    "-pass",
    "-pat",
    "-pwd",
    // Keys of services, users, subscriptions, functions, ...: whatever is not one of `KEYS_OF_DATA`.
    "-key",
];

/// What ends in `-key` and names a datum, an attempt or a cipher, and no caller.
const KEYS_OF_DATA: &[&str] = &[
    "cache-key",
    "customer-key",
    "dedup-key",
    "deduplication-key",
    "encryption-key",
    "idempotency-key",
    "object-key",
    "partition-key",
    "request-key",
    "routing-key",
    "row-key",
    "sort-key",
    "surrogate-key",
    "websocket-key",
];

/// Fields by which a server behind the gate could be told another host, path, method or client than
/// the one judged.
const ROUTING: &[&str] = &[
    "base-url",
    "client-cert",
    "client-ip",
    "destination",
    "forwarded",
    "http-host",
    "http-url",
    "max-forwards",
    "real-ip",
    "request-uri",
    "sudo",
    "uri",
    "url",
    "user",
    "username",
    "via",
    "x-http-destinationurl",
    "x-http-method",
    "x-method",
    "x-original",
    "x-request-uri",
    "x-sudo",
    "x-uri",
    "x-url",
    "x-user-email",
    "x-user-id",
];

/// What the names of such fields end in.
const ROUTING_ENDINGS: &[&str] = &[
    "-addr",
    "-base-url",
    "-clientip",
    "-host",
    "-ip",
    "-ip-address",
    "-ipv6",
    "-override",
    "-proxy-url",
    "-remote-address",
    "-target-url",
    "-upstream-url",
    "-user",
    "-username",
];

/// Fields of this hop (RFC 9110, 7.6.1). `expect` is among them because the gate answers it itself.
const HOP: &[&str] = &[
    "connection",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "http2-settings",
    "expect",
];

/// The fields of almost every request, which none of the lists means; so that these are not gone
/// through for nothing.
const ORDINARY: &[&str] = &[
    "accept",
    "accept-encoding",
    "accept-language",
    "cache-control",
    "content-length",
    "content-type",
    "git-protocol",
    "host",
    "origin",
    "referer",
    "user-agent",
];

/// Fields that say what a request is. They cross, but not a second time in another spelling.
const SINGLE: &[&str] = &[
    "host",
    "content-length",
    "content-type",
    "content-encoding",
    "range",
    "accept",
];

/// What the names of fields begin with that proxies in front of a server set for it: whom they know
/// the caller to be, by which certificate, from where and for which address.
const REQUEST_PREFIXES: &[&str] = &[
    "cf-access-",
    "client-cert-",
    "impersonate-",
    "php-auth-",
    "proxy-",
    "remote-",
    "ssl-client-",
    "tailscale-",
    "wl-proxy-",
    "x-amzn-oidc-",
    "x-appengine-",
    "x-arr-",
    "x-auth-request-",
    "x-authenticated-",
    "x-authentik-",
    "x-client-cert",
    "x-consumer-",
    "x-envoy-",
    "x-forward",
    "x-goog-authenticated-",
    "x-middleware-",
    "x-ms-client-principal",
    "x-original-",
    "x-override-",
    "x-pomerium-",
    "x-portcullis-",
    "x-proxy-",
    "x-remote-",
    "x-rewrite-",
    "x-ssl-",
    "x-vouch-",
    "x-webauth-",
];

/// Response fields that open a session, steer to another transport, or belong to this hop.
const RESPONSE: &[&str] = &[
    "set-cookie",
    "set-cookie2",
    "alt-svc",
    "alternate-protocol",
    "authentication-info",
    "public-key-pins",
];

const RESPONSE_PREFIXES: &[&str] = &["proxy-", "x-portcullis-"];

/// Strips a request in place: credentials, routing overrides, hop-by-hop fields and everything that
/// `Connection` names. `Host` is removed too: the exchange writes its own from the authority it
/// judged.
pub fn request(headers: &mut HeaderMap) {
    nominated(headers);
    remove(headers, &[], &|name| {
        !ORDINARY.contains(&name) && is_foreign(name)
    });
    headers.remove(header::HOST);
    let doubles: Vec<HeaderName> = headers
        .keys()
        .filter(|name| {
            let plain = plain(name.as_str());
            plain != name.as_str() && SINGLE.contains(&&*plain)
        })
        .cloned()
        .collect();
    for name in doubles {
        headers.remove(name);
    }
}

/// Strips the fields behind a request's body in place, as [`request`] does those in front of it; what
/// frames or describes the body has no business there either.
pub fn request_trailers(headers: &mut HeaderMap) {
    request(headers);
    framing(headers);
}

/// Removes fields that frame or describe a body, which trailers must not carry (RFC 9110, 6.5.1).
pub fn framing(headers: &mut HeaderMap) {
    remove(headers, &[], &|name| SINGLE.contains(&name));
}

/// Removes every field that a server could take for `name`, before the gate sets its own.
pub fn like(headers: &mut HeaderMap, name: &HeaderName) {
    let wanted = plain(name.as_str());
    remove(headers, &[], &|name| name == wanted);
}

/// Whether a field of a request carries a credential, routes it or belongs to this hop.
fn is_foreign(name: &str) -> bool {
    is_credential(name)
        || ROUTING.contains(&name)
        || ends_in(name, ROUTING_ENDINGS)
        || HOP.contains(&name)
        || begins_with(name, REQUEST_PREFIXES)
}

fn is_credential(name: &str) -> bool {
    CREDENTIALS.contains(&name)
        || (ends_in(name, CREDENTIAL_ENDINGS) && !ends_in(name, KEYS_OF_DATA))
}

/// Most names differ from most endings in the last byte already.
fn ends_in(name: &str, endings: &[&str]) -> bool {
    let last = name.as_bytes().last();
    endings
        .iter()
        .any(|ending| ending.as_bytes().last() == last && name.ends_with(ending))
}

fn begins_with(name: &str, prefixes: &[&str]) -> bool {
    let first = name.as_bytes().first();
    prefixes
        .iter()
        .any(|prefix| prefix.as_bytes().first() == first && name.starts_with(prefix))
}

/// A field's name as many servers read it: CGI and its heirs (WSGI, Rack, PHP) know letters and
/// digits only, so that `x_api_key` and `x-api-key` are one field to them.
fn plain(name: &str) -> Cow<'_, str> {
    let odd = |byte: u8| !byte.is_ascii_alphanumeric() && byte != b'-';
    if name.bytes().any(odd) {
        let letter = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
        Cow::Owned(name.chars().map(letter).collect())
    } else {
        Cow::Borrowed(name)
    }
}

/// Strips a response in place. On a credentialed route (`injected` is the value that went out)
/// challenges and credential fields go as well, and so does any field that echoes the injected
/// value.
pub fn response(headers: &mut HeaderMap, injected: Option<&HeaderValue>) {
    response_names(headers, injected.is_some());
    if let Some(secret) = injected {
        let echoes: Vec<HeaderName> = headers
            .iter()
            .filter(|(_, value)| echoes(value.as_bytes(), secret.as_bytes()))
            .map(|(name, _)| name.clone())
            .collect();
        for name in echoes {
            headers.remove(name);
        }
    }
}

/// Of [`response`], what goes by its name alone.
pub fn response_names(headers: &mut HeaderMap, credentialed: bool) {
    nominated(headers);
    remove(headers, RESPONSE_PREFIXES, &|name| {
        RESPONSE.contains(&name)
            || HOP.contains(&name)
            || (credentialed && (name == "www-authenticate" || is_credential(name)))
    });
}

/// Whether a header value contains the injected one, whole or without its scheme word ("Bearer ",
/// "Basic ").
fn echoes(value: &[u8], secret: &[u8]) -> bool {
    let bare = match secret.iter().position(|byte| *byte == b' ') {
        Some(space) => secret.get(space + 1..).unwrap_or(secret),
        None => secret,
    };
    !bare.is_empty() && value.windows(bare.len()).any(|window| window == bare)
}

fn remove(headers: &mut HeaderMap, prefixes: &[&str], unwanted: &dyn Fn(&str) -> bool) {
    let doomed: Vec<HeaderName> = headers
        .keys()
        .filter(|name| {
            let name = &*plain(name.as_str());
            unwanted(name) || begins_with(name, prefixes)
        })
        .cloned()
        .collect();
    for name in doomed {
        headers.remove(name);
    }
}

/// Removes every field that `Connection` nominates as belonging to this hop. Framing fields are not
/// the peer's to nominate: hyper has already used them, and dropping them here only lets our own
/// framing stand.
fn nominated(headers: &mut HeaderMap) {
    if !headers.contains_key(header::CONNECTION) {
        return;
    }
    let names: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|token| HeaderName::from_bytes(token.trim().as_bytes()).ok())
        .collect();
    for name in names {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(
                HeaderName::from_bytes(name.as_bytes()).unwrap(),
                HeaderValue::from_static(value),
            );
        }
        headers
    }

    /// Attack: CRD-03
    #[test]
    fn every_carrier_of_a_client_credential_goes_and_ordinary_fields_stay() {
        let mut headers = map(&[
            ("Authorization", "Bearer own"),
            ("authorization", "Basic own"),
            ("Cookie", "a=b"),
            ("PRIVATE-TOKEN", "own"),
            ("X-Api-Key", "own"),
            ("PVEAuthCookie", "own"),
            ("CSRFPreventionToken", "own"),
            ("X-GitHub-OTP", "123"),
            ("Proxy-Authorization", "Basic own"),
            ("Proxy-Connection", "keep-alive"),
            ("X-Forwarded-Host", "evil.example"),
            ("X-Forwarded-For", "10.0.0.1"),
            ("Forwarded", "host=evil.example"),
            ("X-Original-URL", "/admin"),
            ("X-Rewrite-URL", "/admin"),
            ("X-Host", "evil.example"),
            ("X-HTTP-Method-Override", "DELETE"),
            ("Via", "1.1 x"),
            ("TE", "trailers"),
            ("Trailer", "X-Late"),
            ("Upgrade", "h2c"),
            ("Keep-Alive", "timeout=5"),
            ("Host", "api.example.com"),
            ("Accept", "*/*"),
            ("Git-Protocol", "version=2"),
            ("Content-Length", "3"),
        ]);
        request(&mut headers);
        let mut left: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["accept", "content-length", "git-protocol"]);
    }

    /// Attack: AUT-13, CRD-03
    #[test]
    fn every_kind_of_credential_and_of_identity_goes_and_what_only_looks_alike_stays() {
        let crosses = |name: &str| {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            let mut headers = HeaderMap::new();
            headers.insert(name.clone(), HeaderValue::from_static("own"));
            request(&mut headers);
            headers.contains_key(name)
        };
        let credentials = "Ocp-Apim-Subscription-Key X-Functions-Key X-Auth X-Key X-Session-Id \
            Authentication DPoP X-Credentials X-Passphrase Credentials Passphrase Secret Token Key \
            X-RapidAPI-Key X-ClickHouse-Key X-Appwrite-Key X-Parse-Master-Key X-License-Key \
            X-Insert-Key aeg-sas-key X-MBX-APIKEY X-Client-Secret X-AuthToken AccessToken X-OAuth \
            CB-ACCESS-PASSPHRASE X-Registry-Auth X-Sentry-Auth X-User-Password X-Db-Passwd X-Db-Pwd \
            Cf-Access-Client-Secret Cf-Access-Jwt-Assertion X-Goog-Iap-Jwt-Assertion X-Jwt X-Bearer \
            X-Session Key X-Amz-Credential X-Custom-IP-Authorization Proxy-Authentication Cookie \
            PVEAuthCookie X-Auth-User X-Auth-Email Php-Auth-Pw X-Honeycomb-Team X-Secret-Key";
        let identities = "X-Remote-User Remote-User Remote-Groups Remote-Email X-WebAuth-User \
            X-Remote-IP X-Remote-Addr X-Originating-IP X-True-IP X-Source-IP Client-IP Real-IP \
            Cluster-Client-IP X-ProxyUser-IP CF-Connecting-IP CF-Connecting-IPv6 WL-Proxy-Client-IP \
            X-Azure-ClientIP X-Forward-For X-Forwarder-For X-Forwarded X-Forwarded-User \
            X-Auth-Request-Email X-Authenticated-Userid X-Goog-Authenticated-User-Email \
            X-Ms-Client-Principal X-Ms-Client-Principal-Name X-Amzn-Oidc-Data X-Authentik-Groups \
            X-Pomerium-Claim-Email Tailscale-User-Login Impersonate-User Impersonate-Group Sudo \
            X-Consumer-Username X-ClickHouse-User X-Trino-User X-User-Id X-Username X-User \
            Ssl-Client-Cert X-SSL-Client-Verify X-Client-Cert Client-Cert Client-Cert-Chain \
            X-ARR-ClientCert X-Proxy-URL Base-Url X-Base-Url Http-Url Request-Uri Uri Url \
            X-Original X-Original-URL X-Override-URL X-HTTP-DestinationURL X-HTTP-Host X-Backend-Host \
            X-HTTP-Host-Override X-Target-Url X-Rewrite-Path X-Method-Override";
        for name in credentials
            .split_whitespace()
            .chain(identities.split_whitespace())
        {
            assert!(!crosses(name), "{name}");
            assert!(!crosses(&name.replace('-', "_")), "{name} with underscores");
        }
        let harmless = "Idempotency-Key X-Idempotency-Key Sec-WebSocket-Key Surrogate-Key X-Cache-Key \
            X-Amz-Server-Side-Encryption-Customer-Key x-goog-encryption-key X-Partition-Key \
            Mcp-Session-Id session_id conversation_id X-Claude-Code-Session-Id npm-session npm-command \
            anthropic-version anthropic-beta openai-organization OpenAI-Project X-Stainless-Lang \
            X-GitHub-Api-Version Git-Protocol Grpc-Timeout X-Requested-With X-Request-Id \
            X-Correlation-Id traceparent User-Agent Referer Origin If-None-Match If-Range Range Accept \
            Accept-Language Cache-Control Content-MD5 Content-Type X-Amz-Date X-Amz-Content-Sha256 \
            X-Amz-Target X-Goog-Api-Client X-Ms-Version X-Ms-Client-Request-Id Depth X-Author \
            X-Authoring X-Monkey X-Tokenizer X-Ghost X-Clip X-Users X-Compass X-Remoteness X-Cookies \
            X-Keyboard X-Userland X-Urls Prefer Link From DNT Docker-Upload-Uuid X-ClickHouse-Database \
            X-Redirect-Count Last-Event-Id Client-Version Client-Timeout X-Client-Version";
        for name in harmless.split_whitespace() {
            assert!(crosses(name), "control: {name}");
        }
        for name in ORDINARY {
            assert!(!is_foreign(name), "{name} is skipped and stands in a list");
        }
    }

    #[test]
    fn every_spelling_that_a_server_reads_as_such_a_field_goes_too() {
        let kinds: &[&str] = &[
            "authorization",
            "x-api-key",
            "private-token",
            "x-shopify-access-token",
            "dd-application-key",
            "x-amz-security-token",
            "npm-otp",
            "proxy-authorization",
            "x-http-method-override",
            "x-method-override",
            "x-http-path-override",
            "x-original-uri",
            "x-rewrite-url",
            "x-forwarded-host",
            "transfer-encoding",
            "destination",
        ];
        for kind in kinds {
            for separator in ["-", "_", ".", "~"] {
                let name = HeaderName::from_bytes(kind.replace('-', separator).as_bytes()).unwrap();
                let mut headers = HeaderMap::new();
                headers.insert(name.clone(), HeaderValue::from_static("own"));
                request(&mut headers);
                assert!(headers.is_empty(), "{name}");
            }
        }
        for double in ["content_length", "content.type", "content_encoding"] {
            let mut headers = HeaderMap::new();
            headers.insert(double, HeaderValue::from_static("own"));
            request(&mut headers);
            assert!(headers.is_empty(), "{double}");
        }
        let plain_fields = [
            ("content-length", "0"),
            ("content-type", "x"),
            ("idempotency-key", "1"),
            ("x_trace", "1"),
            ("mcp-session-id", "1"),
            ("anthropic-version", "1"),
            ("if-none-match", "1"),
        ];
        let mut headers = map(&plain_fields);
        request(&mut headers);
        assert_eq!(headers.len(), plain_fields.len(), "control: {headers:?}");
    }

    #[test]
    fn a_field_of_the_gates_own_has_no_double_in_another_spelling() {
        let mut headers = map(&[("X_Own_Key", "a"), ("x-own_key", "b"), ("X-Own-Key", "c")]);
        headers.insert("x-own-keys", HeaderValue::from_static("control"));
        like(&mut headers, &HeaderName::from_static("x-own-key"));
        let left: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
        assert_eq!(left, ["x-own-keys"]);
    }

    /// Attack: CRD-05
    #[test]
    fn a_connection_nomination_is_spent_before_anything_is_injected() {
        let mut headers = map(&[
            ("Connection", "authorization, X-Mine"),
            ("Connection", "close"),
            ("X-Mine", "1"),
            ("Accept", "*/*"),
        ]);
        request(&mut headers);
        headers.insert(
            header::AUTHORIZATION,
            HeaderValue::from_static("Bearer ours"),
        );
        assert!(!headers.contains_key("connection"));
        assert!(!headers.contains_key("x-mine"));
        assert_eq!(headers["authorization"], "Bearer ours");
        assert!(headers.contains_key("accept"));
    }

    #[test]
    fn responses_lose_sessions_and_steering_and_keep_the_rest() {
        let pairs = [
            ("Set-Cookie", "s=1"),
            ("Alt-Svc", "h3=\":443\""),
            ("Authentication-Info", "x"),
            ("WWW-Authenticate", "Basic realm=\"x\""),
            ("Connection", "keep-alive"),
            ("X-Portcullis-Code", "forged"),
            ("Content-Type", "text/plain"),
            ("X-Echo", "got Bearer canary-of-the-rule back"),
        ];
        let mut plain = map(&pairs);
        response(&mut plain, None);
        assert!(plain.contains_key("www-authenticate"));
        assert!(plain.contains_key("x-echo"));
        assert!(!plain.contains_key("set-cookie"));
        assert!(!plain.contains_key("alt-svc"));
        assert!(!plain.contains_key("x-portcullis-code"));

        let mut credentialed = map(&pairs);
        response(
            &mut credentialed,
            Some(&HeaderValue::from_static("Bearer canary-of-the-rule")),
        );
        assert!(!credentialed.contains_key("www-authenticate"));
        assert!(
            !credentialed.contains_key("x-echo"),
            "an echo of the injected value is dropped"
        );
        assert_eq!(credentialed["content-type"], "text/plain");
    }
}
