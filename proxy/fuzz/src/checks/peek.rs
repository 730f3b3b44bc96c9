//! The beginnings of redirected connections.

use policy::authority::{Authority, Host};

use crate::redirected::peek::{Peek, Said, Unsaid, authority};

/// What is said does not depend on the pieces it comes in, is not taken back by what comes behind
/// it, and is what a reader of HTTP finds as well.
pub(crate) fn check(bytes: &[u8]) {
    let whole = Peek::default().look(bytes);
    let step = bytes.len() % 7 + 1;
    let mut peek = Peek::default();
    let mut heard = Ok(None);
    for end in (0..bytes.len()).step_by(step).chain([bytes.len()]) {
        heard = peek.look(&bytes[..end]);
        if !matches!(heard, Ok(None)) {
            break;
        }
    }
    assert_eq!(heard, whole);
    match &whole {
        Ok(None) => {}
        Err(unsaid) => assert_ne!(*unsaid, Unsaid::Left, "something came"),
        Ok(Some(said)) => means(said, bytes),
    }
}

fn means(said: &Said, bytes: &[u8]) {
    if let Said::Host(host) = said {
        let mut fields = [httparse::EMPTY_HEADER; 64];
        let mut head = httparse::Request::new(&mut fields);
        if let Ok(httparse::Status::Complete(_)) = head.parse(bytes) {
            let named = |field: &&httparse::Header<'_>| field.name.eq_ignore_ascii_case("host");
            let found: Vec<_> = head.headers.iter().filter(named).collect();
            assert!(
                matches!(found.as_slice(), [one] if one.value.trim_ascii() == host.as_bytes()),
                "{host:?} of {found:?}"
            );
        }
    }
    for port in [80, 443] {
        let Ok(meant) = authority(said, port) else {
            continue;
        };
        assert_eq!(meant.port(), port);
        let shown = meant.to_string();
        assert_eq!(Authority::parse(&shown).as_ref(), Ok(&meant));
        if let Said::ServerName(name) = said {
            assert_eq!(Host::parse(name).as_ref(), Ok(meant.host()));
            assert!(meant.host().as_name().is_some());
        }
    }
}
