//! The forms in which a secret may come back, and a window that finds them across chunks.

use std::ops::Range;

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

/// The search looks at so many bytes at once, or as many as the shortest form has.
const WINDOW_MOST: usize = 32;
/// How many kinds of two neighbouring bytes are told apart.
const PAIRS: usize = 8192;
/// For each byte the forms that have it first, and those that have it second: a bit each, and there
/// are 34 at most.
const MASKS: usize = 2 * 256 * size_of::<u64>();
const NONE: [u8; 8] = [0; 8];

/// Everything that is looked for.
///
/// Two bytes at the end of a window that stand nowhere in the first bytes of any form move it on by
/// almost its length (Wu and Manber's search). What that takes tells about as much as the forms
/// themselves, so that all of it lies in one piece of memory: the jumps, the masks, and the forms one
/// behind the other.
#[allow(
    missing_debug_implementations,
    reason = "made of a secret, which is never printed"
)]
pub struct Forms {
    memory: Memory,
    /// What each form is called, and where it lies.
    places: Vec<(&'static str, Range<usize>)>,
    /// Which of them is what was sent itself.
    sent: usize,
    window: usize,
    longest: usize,
}

/// Memory of somebody else's that holds what it was given.
pub type Keeping = Box<dyn AsRef<[u8]> + Send + Sync>;

enum Memory {
    Elsewhere(Keeping),
    Wiped(Zeroizing<Vec<u8>>),
}

impl Forms {
    /// Those of `secret` where it goes out as `value`; none of a secret shorter than eight bytes.
    #[must_use]
    pub fn of(secret: &[u8], value: &[u8]) -> Option<Self> {
        let mut forms: Vec<Form> = Vec::new();
        let mut sent = 0;
        for one in [secret, bare(value)] {
            if one.len() >= SECRET_BYTES_MIN
                && forms.get(sent).is_none_or(|(_, known)| **known != one)
            {
                add(&mut forms, one);
                // It may be one of the secret's, as where it is percent-encoded.
                sent = forms.iter().position(|(_, known)| **known == *one)?;
            }
        }
        let shortest = forms.iter().map(|(_, bytes)| bytes.len()).min()?;
        let longest = forms.iter().map(|(_, bytes)| bytes.len()).max()?;
        let window = shortest.min(WINDOW_MOST);
        let texts: usize = forms.iter().map(|(_, bytes)| bytes.len()).sum();
        // As long as it gets, so that nothing of it is left behind in a shorter one.
        let mut memory = Zeroizing::new(Vec::with_capacity(PAIRS + MASKS + texts));
        memory.resize(PAIRS, u8::try_from(window - 1).ok()?);
        memory.resize(PAIRS + MASKS, 0);
        let mut places = Vec::with_capacity(forms.len());
        for (at, (name, bytes)) in forms.iter().enumerate() {
            for (ends, two) in bytes.windows(2).take(window - 1).enumerate() {
                let jump = &mut memory[pair(two[0], two[1])];
                *jump = (*jump).min(u8::try_from(window - 2 - ends).ok()?);
            }
            for (table, byte) in bytes.iter().take(2).enumerate() {
                let place = mask(table, *byte);
                let old = u64::from_le_bytes(memory[place.clone()].try_into().ok()?);
                memory[place].copy_from_slice(&(old | 1 << at).to_le_bytes());
            }
            let begins = memory.len();
            memory.extend_from_slice(bytes);
            places.push((*name, begins..memory.len()));
        }
        Some(Self {
            memory: Memory::Wiped(memory),
            places,
            sent,
            window,
            longest,
        })
    }

    /// The same in other memory, into which `put` moves it; nothing where there is none, or where it
    /// is not as long.
    pub fn moved(self, put: impl FnOnce(&mut Vec<u8>) -> Option<Keeping>) -> Option<Self> {
        let Memory::Wiped(mut bytes) = self.memory else {
            return Some(self);
        };
        let length = bytes.len();
        let keeping = put(&mut bytes)?;
        let memory = ((*keeping).as_ref().len() == length).then_some(Memory::Elsewhere(keeping))?;
        Some(Self { memory, ..self })
    }

    /// So much memory they take.
    #[must_use]
    pub fn bytes_len(&self) -> usize {
        self.bytes().len()
    }

    /// Whether these are the forms of their secret where it goes out as `value`.
    #[must_use]
    pub fn are_of(&self, value: &[u8]) -> bool {
        let bare = bare(value);
        bare.len() >= SECRET_BYTES_MIN && self.form(self.sent) == bare
    }

    fn bytes(&self) -> &[u8] {
        match &self.memory {
            Memory::Elsewhere(bytes) => (**bytes).as_ref(),
            Memory::Wiped(bytes) => bytes,
        }
    }

    fn form(&self, at: usize) -> &[u8] {
        &self.bytes()[self.places[at].1.clone()]
    }

    /// The name of a form that stands in `bytes`.
    pub(super) fn find(&self, bytes: &[u8]) -> Option<&'static str> {
        let jumps: &[u8; PAIRS] = self.bytes().first_chunk()?;
        let mut last = self.window - 1;
        while last < bytes.len() {
            let jump = jumps[pair(bytes[last - 1], bytes[last])];
            if jump == 0 {
                let rest = &bytes[last + 1 - self.window..];
                if let Some(name) = self.begins(rest) {
                    return Some(name);
                }
            }
            last += usize::from(jump.max(1));
        }
        None
    }

    /// The name of a form that `bytes` begin with.
    fn begins(&self, bytes: &[u8]) -> Option<&'static str> {
        self.candidates(bytes)
            .find(|at| bytes.starts_with(self.form(*at)))
            .map(|at| self.places[at].0)
    }

    /// The forms whose first two bytes are those of `bytes`, or whose first is where there is one.
    fn candidates(&self, bytes: &[u8]) -> impl Iterator<Item = usize> + use<> {
        let mut left = match (self.masks(), bytes) {
            (Some([first, second]), [one, other, ..]) => {
                let both = first[usize::from(*one)];
                if both == NONE {
                    0
                } else {
                    u64::from_le_bytes(both) & u64::from_le_bytes(second[usize::from(*other)])
                }
            }
            (Some([first, _]), [one]) => u64::from_le_bytes(first[usize::from(*one)]),
            (Some(_), []) | (None, _) => 0,
        };
        std::iter::from_fn(move || {
            let at = left.trailing_zeros();
            left &= left.wrapping_sub(1);
            (at < u64::BITS).then_some(usize::try_from(at).unwrap_or(0))
        })
    }

    /// For each byte the forms that have it first, and those that have it second.
    fn masks(&self) -> Option<[&[[u8; 8]; 256]; 2]> {
        let masks = self.bytes().get(PAIRS..PAIRS + MASKS)?.as_chunks().0;
        let (first, second) = masks.split_at_checked(256)?;
        Some([first.try_into().ok()?, second.try_into().ok()?])
    }

    /// How many of the last bytes may be the beginning of a form.
    fn begun(&self, bytes: &[u8]) -> usize {
        let Some([first, _]) = self.masks() else {
            return 0;
        };
        let most = bytes.len().min(self.longest.saturating_sub(1));
        let end = &bytes[bytes.len() - most..];
        for (at, byte) in end.iter().enumerate() {
            let tail = &end[at..];
            if first[usize::from(*byte)] != NONE
                && self.candidates(tail).any(|at| {
                    let form = self.form(at);
                    form.len() > tail.len() && form.starts_with(tail)
                })
            {
                return tail.len();
            }
        }
        0
    }
}

/// The scheme's word in front of a field's value is no secret.
fn bare(value: &[u8]) -> &[u8] {
    match value.iter().position(|byte| *byte == b' ') {
        Some(space) => &value[space + 1..],
        None => value,
    }
}

/// Where two neighbouring bytes are told apart.
fn pair(first: u8, second: u8) -> usize {
    (usize::from(first) << 5 ^ usize::from(second)) % PAIRS
}

/// Where the forms are noted that have this byte first, or second.
fn mask(table: usize, byte: u8) -> Range<usize> {
    let at = PAIRS + (table * 256 + usize::from(byte)) * size_of::<u64>();
    at..at + size_of::<u64>()
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
            text.extend(hex_pair(*byte, digits));
        } else {
            text.push(*byte);
        }
    }
    text
}

fn hex(secret: &[u8], digits: &str) -> Vec<u8> {
    secret
        .iter()
        .flat_map(|byte| hex_pair(*byte, digits))
        .collect()
}

/// Every character as `\u00XX`.
fn escaped(secret: &[u8], digits: &str) -> Vec<u8> {
    let mut text = Vec::with_capacity(secret.len() * 6);
    for byte in secret {
        text.extend_from_slice(b"\\u00");
        text.extend(hex_pair(*byte, digits));
    }
    text
}

fn hex_pair(byte: u8, digits: &str) -> [u8; 2] {
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

#[cfg(test)]
mod tests;
