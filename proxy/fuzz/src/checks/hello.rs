//! TLS hellos.

use policy::authority::Host;
use rustls::server::Acceptor;

use crate::tunnel::hello::{Hello, read};

/// The first byte says how the rest is meant: as the connection's first bytes, or as the content of
/// the server name extension of a hello that is well-formed otherwise.
pub(crate) fn check(bytes: &[u8]) {
    match bytes.split_first() {
        Some((b'n', list)) if list.len() < 4096 => {
            let whole = around(list);
            let verdict = read(&whole);
            assert!(!matches!(verdict, Hello::More(_)), "all of it is there");
            let said = library(&whole);
            match &said {
                // What the library takes for no name at all is not let through as none.
                Some(None) | None => assert_eq!(verdict, Hello::Odd, "{list:?}"),
                Some(Some(name)) => {
                    agrees(verdict, name);
                    let written = name.to_ascii_lowercase();
                    let good = is_comparable(name) && list.ends_with(written.as_bytes());
                    if good && list.len() == name.len() + 5 {
                        assert_eq!(verdict, Hello::Fine, "{name:?} was refused");
                    }
                }
            }
            for cut in [whole.len() / 2, whole.len() - 1] {
                let more = read(&whole[..cut]);
                assert!(matches!(more, Hello::More(needed) if needed > cut));
            }
        }
        Some((_, bytes)) => raw(bytes),
        None => raw(bytes),
    }
}

fn raw(bytes: &[u8]) {
    let verdict = read(bytes);
    if let Hello::More(needed) = verdict {
        assert!(needed > bytes.len() && needed <= bytes.len() + 5 + 65_535);
    }
    if let Some(Some(name)) = library(bytes) {
        agrees(verdict, &name);
    }
}

/// Where the library finds a name, it is one that can be compared, or found odd.
fn agrees(verdict: Hello, name: &str) {
    match verdict {
        Hello::Fine => assert!(is_comparable(name), "{name:?} was let through"),
        Hello::Odd => {}
        Hello::More(needed) => panic!("{needed} bytes are asked for behind the hello"),
    }
}

fn is_comparable(name: &str) -> bool {
    let host = Host::parse(name).ok();
    host.is_some_and(|host| {
        host.as_name()
            .is_some_and(|ours| ours.eq_ignore_ascii_case(name))
    })
}

/// The server name that the library reads in a whole hello.
fn library(mut bytes: &[u8]) -> Option<Option<String>> {
    let mut acceptor = Acceptor::default();
    while !bytes.is_empty() {
        acceptor.read_tls(&mut bytes).ok()?;
        match acceptor.accept() {
            Ok(Some(hello)) => return Some(hello.client_hello().server_name().map(str::to_owned)),
            Ok(None) => {}
            Err(_) => return None,
        }
    }
    None
}

/// A hello with this server name extension.
fn around(list: &[u8]) -> Vec<u8> {
    let long = |bytes: &[u8]| {
        let length = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
        [&length.to_be_bytes(), bytes].concat()
    };
    let mut extensions = Vec::new();
    for (kind, content) in [
        (0_u16, list),
        (10, &[0, 2, 0, 0x1d]),
        (11, &[1, 0]),
        (13, &[0, 2, 4, 3]),
        (43, &[2, 3, 3]),
    ] {
        extensions.extend(kind.to_be_bytes());
        extensions.extend(long(content));
    }
    let mut body = vec![3, 3];
    body.extend([7; 32]);
    body.push(0);
    body.extend(long(&[0xc0, 0x2b]));
    body.extend([1, 0]);
    body.extend(long(&extensions));
    let length = u32::try_from(body.len()).unwrap_or_default().to_be_bytes();
    let message = [&[1, length[1], length[2], length[3]], body.as_slice()].concat();
    [&[22, 3, 1], long(&message).as_slice()].concat()
}
