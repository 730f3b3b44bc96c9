//! The forms in which a secret may come back, and a window that finds them across chunks.

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind, packed};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use bytes::Bytes;
use zeroize::{Zeroize, Zeroizing};

use super::Reflected;

/// Shorter secrets are not looked for.
const SECRET_BYTES_MIN: usize = 8;

type Form = (&'static str, Zeroizing<Vec<u8>>);

/// An end of this length that may be the beginning of a form is held back; a shorter one leaves, and
/// is remembered. So that an answer which merely ends on a form's first letter does not wait.
pub(super) const SUSPICIOUS: usize = 4;

/// Everything that is looked for.
pub(super) struct Forms {
    forms: Vec<Form>,
    search: Search,
    longest: usize,
    /// Which bytes a form begins with.
    first: [bool; 256],
}

/// Built once for each answer, so that no form outlives it: it must be cheap to build, which an
/// automaton of thousands of states is not.
enum Search {
    Packed(packed::Searcher),
    /// Where the processor has no vectors to search with.
    Automaton(AhoCorasick),
}

impl Search {
    fn of(forms: &[Form]) -> Option<Self> {
        let patterns = || forms.iter().map(|(_, bytes)| bytes.as_slice());
        if let Some(packed) = packed::Searcher::new(patterns()) {
            return Some(Self::Packed(packed));
        }
        let automaton = AhoCorasick::builder()
            .kind(Some(AhoCorasickKind::NoncontiguousNFA))
            .match_kind(MatchKind::LeftmostFirst)
            .build(patterns());
        Some(Self::Automaton(automaton.ok()?))
    }
}

impl Forms {
    pub(super) fn of(secret: &[u8], value: &[u8]) -> Option<Self> {
        // The scheme's word in front of a field's value is no secret.
        let bare = match value.iter().position(|byte| *byte == b' ') {
            Some(space) => &value[space + 1..],
            None => value,
        };
        let mut forms: Vec<Form> = Vec::new();
        for one in [secret, bare] {
            if one.len() >= SECRET_BYTES_MIN {
                add(&mut forms, one);
            }
        }
        if forms.is_empty() {
            return None;
        }
        let search = Search::of(&forms)?;
        let longest = forms.iter().map(|(_, bytes)| bytes.len()).max()?;
        let mut first = [false; 256];
        for byte in forms.iter().filter_map(|(_, bytes)| bytes.first()) {
            first[usize::from(*byte)] = true;
        }
        Some(Self {
            forms,
            search,
            longest,
            first,
        })
    }

    /// The name of a form that stands in `bytes`.
    pub(super) fn find(&self, bytes: &[u8]) -> Option<&'static str> {
        let found = match &self.search {
            Search::Packed(search) => search.find(bytes),
            Search::Automaton(search) => search.find(bytes),
        };
        found.map(|found| self.forms[found.pattern().as_usize()].0)
    }

    /// How many of the last bytes may be the beginning of a form.
    fn begun(&self, bytes: &[u8]) -> usize {
        let most = bytes.len().min(self.longest.saturating_sub(1));
        (1..=most)
            .rev()
            .find(|count| {
                let tail = &bytes[bytes.len() - count..];
                self.first[usize::from(tail[0])]
                    && self
                        .forms
                        .iter()
                        .any(|(_, form)| form.len() > *count && form.starts_with(tail))
            })
            .unwrap_or(0)
    }
}

fn add(forms: &mut Vec<Form>, secret: &[u8]) {
    let mut put = |name, bytes: Vec<u8>| {
        let bytes = Zeroizing::new(bytes);
        if bytes.len() >= SECRET_BYTES_MIN && !forms.iter().any(|(_, known)| *known == bytes) {
            forms.push((name, bytes));
        }
    };
    put("raw", secret.to_vec());
    for shift in 0..3 {
        for engine in [&STANDARD_NO_PAD, &URL_SAFE_NO_PAD] {
            put("base64", aligned(secret, shift, engine));
        }
    }
    let all = |digits: &str| percent(secret, digits, |_| true);
    let some = |digits: &str| percent(secret, digits, |byte| !unreserved(byte));
    for digits in ["0123456789ABCDEF", "0123456789abcdef"] {
        put("percent-encoded", some(digits));
        put("percent-encoded", all(digits));
        put("hex", hex(secret, digits));
        put("escaped", escaped(secret, digits));
    }
    if let Ok(text) = std::str::from_utf8(secret) {
        let quoted = serde_json::Value::from(text).to_string();
        let inner = quoted[1..quoted.len() - 1].to_owned();
        put("escaped", inner.replace('/', "\\/").into_bytes());
        put("escaped", inner.into_bytes());
    }
}

/// The characters of base64 that do not depend on what stands around the secret, when it begins
/// `shift` bytes into a group of three.
fn aligned(
    secret: &[u8],
    shift: usize,
    engine: &base64::engine::general_purpose::GeneralPurpose,
) -> Vec<u8> {
    let mut padded = Zeroizing::new(vec![0; shift]);
    padded.extend_from_slice(secret);
    let encoded = Zeroizing::new(engine.encode(padded.as_slice()));
    // Each byte before it spoils what shares its six bits.
    let front = [0, 2, 3][shift];
    let back = usize::from(!padded.len().is_multiple_of(3));
    encoded.as_bytes()[front..encoded.len() - back].to_vec()
}

fn unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

fn percent(secret: &[u8], digits: &str, encode: impl Fn(u8) -> bool) -> Vec<u8> {
    let mut text = Vec::with_capacity(secret.len() * 3);
    for byte in secret {
        if encode(*byte) {
            text.push(b'%');
            text.extend(pair(*byte, digits));
        } else {
            text.push(*byte);
        }
    }
    text
}

fn hex(secret: &[u8], digits: &str) -> Vec<u8> {
    secret.iter().flat_map(|byte| pair(*byte, digits)).collect()
}

/// Every character as `\u00XX`.
fn escaped(secret: &[u8], digits: &str) -> Vec<u8> {
    let mut text = Vec::with_capacity(secret.len() * 6);
    for byte in secret {
        text.extend_from_slice(b"\\u00");
        text.extend(pair(*byte, digits));
    }
    text
}

fn pair(byte: u8, digits: &str) -> [u8; 2] {
    let digits = digits.as_bytes();
    [
        digits[usize::from(byte >> 4)],
        digits[usize::from(byte & 15)],
    ]
}

/// Finds forms in a stream and holds back what may become one.
#[derive(Default)]
pub(super) struct Window {
    tail: Zeroizing<Vec<u8>>,
    /// How much of the tail's beginning has left already.
    gone: usize,
}

impl Window {
    /// What may leave of everything so far.
    pub(super) fn push(&mut self, forms: &Forms, chunk: &Bytes) -> Result<Bytes, Reflected> {
        if self.tail.is_empty() {
            if let Some(form) = forms.find(chunk) {
                return Err(Reflected::Found(form));
            }
            let begun = forms.begun(chunk);
            self.keep(&chunk[chunk.len() - begun..], 0);
            return Ok(chunk.slice(..chunk.len() - (begun - self.gone)));
        }
        let mut whole = Zeroizing::new(Vec::with_capacity(self.tail.len() + chunk.len()));
        whole.extend_from_slice(&self.tail);
        whole.extend_from_slice(chunk);
        if let Some(form) = forms.find(&whole) {
            return Err(Reflected::Found(form));
        }
        let from = self.gone;
        let rest = whole.len() - forms.begun(&whole);
        self.keep(&whole[rest..], from.saturating_sub(rest));
        Ok(Bytes::copy_from_slice(&whole[from..rest + self.gone]))
    }

    /// Remembers what may be the beginning of a form, of which `gone` bytes have left.
    fn keep(&mut self, begun: &[u8], gone: usize) {
        self.gone = if begun.len() < SUSPICIOUS {
            begun.len()
        } else {
            gone
        };
        self.tail.zeroize();
        self.tail.extend_from_slice(begun);
    }

    /// As [`Window::push`] for bytes that go nowhere.
    pub(super) fn look(&mut self, forms: &Forms, bytes: &[u8]) -> Result<(), Reflected> {
        self.tail.extend_from_slice(bytes);
        if let Some(form) = forms.find(&self.tail) {
            return Err(Reflected::Found(form));
        }
        let gone = self.tail.len() - forms.begun(&self.tail);
        self.tail.drain(..gone);
        Ok(())
    }

    /// How much may be the beginning of a form.
    pub(super) fn pending(&self) -> usize {
        self.tail.len()
    }

    /// How much is held back.
    pub(super) fn held(&self) -> usize {
        self.tail.len() - self.gone
    }

    /// What is left at the end, which has become nothing.
    pub(super) fn finish(&mut self) -> Vec<u8> {
        let tail = std::mem::take(&mut *self.tail);
        let gone = std::mem::take(&mut self.gone);
        tail[gone..].to_vec()
    }
}
