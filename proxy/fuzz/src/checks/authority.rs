//! Authorities and hosts.

use policy::authority::{Authority, Host, Scheme};

/// What is taken is canonical, and reads back as itself in every form it is written in.
pub(crate) fn check(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    if let Ok(authority) = Authority::parse(text) {
        reads_back(&authority);
        let stated = Authority::with_default_port(text, 1);
        assert_eq!(stated.ok(), Some(authority), "a port that is stated counts");
    }
    if let Ok(authority) = Authority::with_default_port(text, 8443) {
        reads_back(&authority);
    }
    if let Ok(host) = Host::parse(text) {
        let shown = host.to_string();
        assert_eq!(Host::parse(&shown).as_ref(), Ok(&host));
        if let Some(name) = host.as_name() {
            let plain = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.');
            assert!(name.bytes().all(plain) && name.len() <= 253);
            assert!(name.split('.').all(|label| (1..=63).contains(&label.len())));
            let last = name.rsplit('.').next().unwrap_or_default();
            let hexadecimal = |rest: &str| rest.bytes().all(|byte| byte.is_ascii_hexdigit());
            let number = last.bytes().all(|byte| byte.is_ascii_digit())
                || last.strip_prefix("0x").is_some_and(hexadecimal);
            assert!(!number, "an address in disguise");
        }
    }
}

fn reads_back(authority: &Authority) {
    let shown = authority.to_string();
    assert_eq!(Authority::parse(&shown).as_ref(), Ok(authority));
    assert_eq!(Authority::parse(&shown).map(|it| it.to_string()), Ok(shown));
    for scheme in [Scheme::Http, Scheme::Https] {
        let header = authority.host_header(scheme);
        let read = Authority::with_default_port(&header, scheme.default_port());
        assert_eq!(read.as_ref(), Ok(authority));
    }
}
