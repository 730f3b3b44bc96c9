//! JSON as it comes, in any pieces: scalars and where they stand, without a tree and without a copy of
//! the text.
//!
//! It is not a judge of JSON: what is malformed is passed over. What it keeps is bounded, whatever is
//! sent: names to a depth, and one short scalar.

/// Members are told apart to this depth; what lies deeper is passed over.
const DEPTH: usize = 6;
/// A name or a scalar longer than this is none that anybody asks about.
const TEXT_BYTES_MAX: usize = 96;
/// What stands in a path for a name that is too long.
const LONG: &str = "?";

/// A scalar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scalar<'a> {
    /// A number as written.
    Number(&'a str),
    /// A text: as written between its quotes, empty if it is long, and its length in bytes.
    Text(&'a str, u64),
    /// `true`, `false`, `null`.
    Word(&'a str),
    /// None: a root that is an object has ended.
    Root,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Between tokens.
    Between,
    /// Inside a text; of a member's name or of a value.
    Text { name: bool, escaped: bool },
    /// Inside a number or a word.
    Bare,
}

#[derive(Debug, Clone, Copy)]
struct Frame {
    object: bool,
    /// The path's length without this container's member.
    base: usize,
}

/// Reads values that follow one another, or the elements of one list, each as a root of its own.
#[derive(Debug)]
pub struct Scanner {
    state: State,
    frames: Vec<Frame>,
    /// Containers that are open below those in `frames`.
    below: u64,
    /// Where the current value stands: names with dots between, `[]` for a list.
    path: String,
    /// A name comes next, if it is an object that is open.
    naming: bool,
    text: Vec<u8>,
    long: bool,
    length: u64,
}

impl Default for Scanner {
    fn default() -> Self {
        Self {
            state: State::Between,
            frames: Vec::with_capacity(DEPTH),
            below: 0,
            path: String::new(),
            naming: false,
            text: Vec::new(),
            long: false,
            length: 0,
        }
    }
}

impl Scanner {
    /// Reads more; `found` is told of each scalar and where it stands.
    pub fn push(&mut self, bytes: &[u8], found: &mut dyn FnMut(&str, Scalar<'_>)) {
        let mut rest = bytes;
        while let Some((&byte, behind)) = rest.split_first() {
            match self.state {
                State::Text { name, escaped } => {
                    if escaped {
                        self.keep(&rest[..1]);
                        self.state = State::Text {
                            name,
                            escaped: false,
                        };
                        rest = behind;
                        continue;
                    }
                    let plain = rest
                        .iter()
                        .position(|byte| matches!(byte, b'"' | b'\\'))
                        .unwrap_or(rest.len());
                    self.keep(&rest[..plain]);
                    rest = &rest[plain..];
                    match rest.split_first() {
                        Some((b'\\', behind)) => {
                            self.keep(b"\\");
                            self.state = State::Text {
                                name,
                                escaped: true,
                            };
                            rest = behind;
                        }
                        Some((_, behind)) => {
                            self.text_ends(name, found);
                            rest = behind;
                        }
                        None => {}
                    }
                }
                State::Bare if is_bare(byte) => {
                    self.keep(&rest[..1]);
                    rest = behind;
                }
                State::Bare => self.bare_ends(found),
                State::Between => {
                    self.token(byte, found);
                    rest = behind;
                }
            }
        }
    }

    /// What comes is another text; a number that nothing followed is told.
    pub fn end(&mut self, found: &mut dyn FnMut(&str, Scalar<'_>)) {
        if self.state == State::Bare {
            self.bare_ends(found);
        }
        self.state = State::Between;
        self.frames.clear();
        self.below = 0;
        self.path.clear();
        self.naming = false;
    }

    fn token(&mut self, byte: u8, found: &mut dyn FnMut(&str, Scalar<'_>)) {
        match byte {
            b'{' => self.open(true),
            b'[' => self.open(false),
            b'}' | b']' => self.close(found),
            b'"' => {
                let name = self.naming && self.below == 0;
                self.begin(State::Text {
                    name,
                    escaped: false,
                });
            }
            b',' if self.below == 0 => {
                self.naming = self.frames.last().is_some_and(|frame| frame.object);
            }
            byte if is_bare(byte) => {
                self.begin(State::Bare);
                self.keep(&[byte]);
            }
            _ => {}
        }
    }

    fn begin(&mut self, state: State) {
        self.state = state;
        self.text.clear();
        self.long = false;
        self.length = 0;
    }

    fn keep(&mut self, bytes: &[u8]) {
        let more = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        self.length = self.length.saturating_add(more);
        if self.below > 0 || self.text.len() + bytes.len() > TEXT_BYTES_MAX {
            self.long = true;
        }
        if !self.long {
            self.text.extend_from_slice(bytes);
        }
    }

    fn open(&mut self, object: bool) {
        if self.below > 0 || self.frames.len() == DEPTH {
            self.below = self.below.saturating_add(1);
            return;
        }
        // A list at the root is but a way to send several roots.
        if !object && !self.frames.is_empty() {
            self.path.push_str("[]");
        }
        let base = self.path.len();
        self.frames.push(Frame { object, base });
        self.naming = object;
    }

    fn close(&mut self, found: &mut dyn FnMut(&str, Scalar<'_>)) {
        if self.below > 0 {
            self.below -= 1;
            return;
        }
        let closed = self.frames.pop();
        let inside = self.frames.iter().any(|frame| frame.object);
        if closed.is_some_and(|frame| frame.object) && !inside && self.frames.len() < 2 {
            found("", Scalar::Root);
        }
        match self.frames.last() {
            // Its member has ended; a list's element has the list's own path.
            Some(frame) => self.path.truncate(frame.base),
            None => self.path.clear(),
        }
        self.naming = false;
    }

    fn text_ends(&mut self, name: bool, found: &mut dyn FnMut(&str, Scalar<'_>)) {
        self.state = State::Between;
        if !name {
            if self.below == 0 {
                let text = std::str::from_utf8(&self.text).ok();
                let text = text.filter(|_| !self.long).unwrap_or_default();
                found(&self.path, Scalar::Text(text, self.length));
            }
            self.value_ends();
            return;
        }
        self.naming = false;
        let base = self.frames.last().map_or(0, |frame| frame.base);
        self.path.truncate(base);
        if base > 0 {
            self.path.push('.');
        }
        let name = std::str::from_utf8(&self.text).ok();
        self.path
            .push_str(name.filter(|_| !self.long).unwrap_or(LONG));
    }

    fn bare_ends(&mut self, found: &mut dyn FnMut(&str, Scalar<'_>)) {
        self.state = State::Between;
        if self.below == 0
            && !self.long
            && let Ok(text) = std::str::from_utf8(&self.text)
        {
            let number = text.starts_with(|c: char| c == '-' || c.is_ascii_digit());
            let scalar = if number {
                Scalar::Number(text)
            } else {
                Scalar::Word(text)
            };
            found(&self.path, scalar);
        }
        self.value_ends();
    }

    fn value_ends(&mut self) {
        if self.below == 0 {
            let base = self.frames.last().map_or(0, |frame| frame.base);
            self.path.truncate(base);
        }
    }
}

fn is_bare(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scalars(pieces: &[&[u8]]) -> Vec<String> {
        let mut scanner = Scanner::default();
        let mut all = Vec::new();
        let mut found = |path: &str, scalar: Scalar<'_>| {
            all.push(match scalar {
                Scalar::Number(text) | Scalar::Word(text) => format!("{path}={text}"),
                Scalar::Text(text, length) => format!("{path}=\"{text}\"{length}"),
                Scalar::Root => "end".to_owned(),
            });
        };
        for piece in pieces {
            scanner.push(piece, &mut found);
        }
        scanner.end(&mut found);
        all
    }

    #[test]
    fn scalars_are_told_with_their_places_however_the_text_is_cut() {
        let text = br#"{"a":{"b":[1,{"c":-2.5}],"d":"x\"y"},"e":null,"f":[[true]]} {"a":7} 8"#;
        let wanted = [
            "a.b[]=1",
            "a.b[].c=-2.5",
            "a.d=\"x\\\"y\"4",
            "e=null",
            "f[][]=true",
            "end",
            "a=7",
            "end",
            "=8",
        ];
        assert_eq!(scalars(&[text]), wanted);
        for at in 0..text.len() {
            assert_eq!(scalars(&[&text[..at], &text[at..]]), wanted, "{at}");
        }
        let bytes: Vec<&[u8]> = text.chunks(1).collect();
        assert_eq!(scalars(&bytes), wanted);
    }

    #[test]
    fn the_elements_of_a_list_are_roots_and_what_lies_deep_or_is_long_is_passed_over() {
        assert_eq!(
            scalars(&[b"[{\"a\":1},\n{\"a\":2}]"]),
            ["a=1", "end", "a=2", "end"]
        );
        let deep = format!("{}1{}", "{\"k\":".repeat(9), "}".repeat(9));
        assert_eq!(scalars(&[deep.as_bytes()]), ["end"]);
        let behind = format!("{{\"x\":{deep},\"y\":2}}");
        assert_eq!(scalars(&[behind.as_bytes()]), ["y=2", "end"]);
        let long = format!(
            "{{\"{}\":1,\"s\":\"{}\"}}",
            "n".repeat(200),
            "v".repeat(300)
        );
        assert_eq!(scalars(&[long.as_bytes()]), ["?=1", "s=\"\"300", "end"]);
    }

    #[test]
    fn what_is_no_json_is_passed_over() {
        for text in [
            "}}]]\"",
            "{\"a\" 1}",
            "[DONE]",
            "{{{{{{{{{{",
            "\"\\",
            "{\"a\":}",
        ] {
            scalars(&[text.as_bytes()]);
        }
        assert_eq!(scalars(&[b"]}{\"a\":1}"]), ["a=1", "end"], "control");
    }
}
