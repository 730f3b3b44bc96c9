//! The server name in a TLS hello, as it stands there. The TLS library takes a name that is none (an
//! address, an empty or overlong one) for no name at all; here the difference is seen, so that such
//! a hello can be refused. Nothing else of a hello is judged: what cannot be followed is left to the
//! library, which refuses it with the right alert.

/// A TLS handshake record begins so, and so does a hello in it.
const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
/// The extension that carries the server name, and the kind of name that there is.
const SERVER_NAME: u16 = 0;
const HOST_NAME: u8 = 0;
/// The longest name of the internet.
const LONGEST: usize = 253;

/// What is known of a hello so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hello {
    /// As many bytes must be there before more can be said.
    More(usize),
    /// It has no server name, or one that can be compared.
    Fine,
    /// It has a server name that is none.
    Odd,
}

/// Reads the beginning of a connection.
pub(crate) fn read(bytes: &[u8]) -> Hello {
    let mut message = Vec::new();
    let mut at = 0;
    loop {
        let Some(head) = bytes.get(at..at + 5) else {
            return Hello::More(at + 5);
        };
        if head[0] != HANDSHAKE {
            return Hello::Fine;
        }
        let length = usize::from(u16::from_be_bytes([head[3], head[4]]));
        let Some(payload) = bytes.get(at + 5..at + 5 + length) else {
            return Hello::More(at + 5 + length);
        };
        message.extend_from_slice(payload);
        at += 5 + length;
        if let [kind, high, middle, low, rest @ ..] = message.as_slice() {
            let length = usize::from(*high) << 16 | usize::from(*middle) << 8 | usize::from(*low);
            if *kind != CLIENT_HELLO {
                return Hello::Fine;
            }
            if let Some(body) = rest.get(..length) {
                return judge(body);
            }
        }
        // A record without content would let this go on without end.
        if length == 0 {
            return Hello::Fine;
        }
    }
}

fn judge(body: &[u8]) -> Hello {
    match server_names(body) {
        Some(list) if !is_one_name(list) => Hello::Odd,
        Some(_) | None => Hello::Fine,
    }
}

/// The content of the server name extension; `None` when there is none, or none can be found.
fn server_names(body: &[u8]) -> Option<&[u8]> {
    // Version and random come first, then the session, the cipher suites and the compressions.
    let (_, rest) = body.split_at_checked(34)?;
    let (_, rest) = short(rest)?;
    let (_, rest) = long(rest)?;
    let (_, rest) = short(rest)?;
    let (mut extensions, _) = long(rest)?;
    while let Some((kind, rest)) = extensions.split_first_chunk::<2>() {
        let (content, rest) = long(rest)?;
        if u16::from_be_bytes(*kind) == SERVER_NAME {
            return Some(content);
        }
        extensions = rest;
    }
    None
}

/// Whether the list holds one host name, which is neither an address nor written in an odd way.
fn is_one_name(list: &[u8]) -> bool {
    let Some((list, [])) = long(list) else {
        return false;
    };
    let Some((&HOST_NAME, rest)) = list.split_first() else {
        return false;
    };
    let Some((name, [])) = long(rest) else {
        return false;
    };
    let text = std::str::from_utf8(name).unwrap_or_default();
    !text.is_empty()
        && text.len() <= LONGEST
        && !text.ends_with('.')
        && policy::authority::Host::parse(text).is_ok_and(|host| host.as_name().is_some())
}

/// A field behind its length of one byte, and what follows.
fn short(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first()?;
    rest.split_at_checked(usize::from(*length))
}

/// The same with a length of two bytes.
fn long(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<2>()?;
    rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn no_beginning_is_too_odd(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..300)) {
            let mut hello = vec![22, 3, 1];
            hello.extend_from_slice(&u16::try_from(bytes.len()).unwrap().to_be_bytes());
            hello.extend_from_slice(&bytes);
            for bytes in [&bytes, &hello] {
                if let Hello::More(needed) = read(bytes) {
                    proptest::prop_assert!(needed > bytes.len());
                }
            }
        }
    }
}
