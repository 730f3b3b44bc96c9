//! The payload of an answer: server-sent events, lines of JSON or one JSON text, told apart by how the
//! answer begins.

use super::scan::{Scalar, Scanner};

/// What begins a text in UTF-8 that says so.
const MARK: [u8; 3] = [0xef, 0xbb, 0xbf];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Nothing has been seen but blanks.
    Unknown,
    Json,
    Events(Line),
}

/// Where in a line of an event stream it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Line {
    /// So many bytes of `data` have been seen, and nothing else.
    Name(usize),
    /// Behind `data:`.
    Data,
    /// Of another field.
    Other,
}

const NAME: &[u8] = b"data";

/// Gives a [`Scanner`] what is JSON of an answer, in any pieces.
#[derive(Debug)]
pub struct Events {
    form: Form,
    scanner: Scanner,
    /// The last byte was a carriage return: a line feed behind it ends no further line.
    returned: bool,
    /// The mark's bytes so far.
    marked: usize,
}

impl Default for Events {
    fn default() -> Self {
        Self {
            form: Form::Unknown,
            scanner: Scanner::default(),
            returned: false,
            marked: 0,
        }
    }
}

impl Events {
    /// Reads more of the answer's text.
    pub fn push(&mut self, bytes: &[u8], found: &mut dyn FnMut(&str, Scalar<'_>)) {
        let mut rest = bytes;
        while let Some((&byte, behind)) = rest.split_first() {
            match self.form {
                Form::Json => {
                    self.scanner.push(rest, found);
                    return;
                }
                Form::Unknown => {
                    if MARK.get(self.marked) == Some(&byte) {
                        self.marked += 1;
                        rest = behind;
                    } else if byte.is_ascii_whitespace() {
                        rest = behind;
                    } else if matches!(byte, b'{' | b'[') {
                        self.form = Form::Json;
                    } else {
                        self.form = Form::Events(Line::Name(0));
                    }
                }
                Form::Events(line) => rest = self.event(line, byte, rest, found),
            }
        }
    }

    /// Nothing more comes.
    pub fn end(&mut self, found: &mut dyn FnMut(&str, Scalar<'_>)) {
        self.scanner.end(found);
    }

    fn event<'b>(
        &mut self,
        line: Line,
        byte: u8,
        rest: &'b [u8],
        found: &mut dyn FnMut(&str, Scalar<'_>),
    ) -> &'b [u8] {
        let returned = std::mem::take(&mut self.returned);
        if matches!(byte, b'\r' | b'\n') {
            if byte == b'\n' && returned {
                return &rest[1..];
            }
            self.returned = byte == b'\r';
            match line {
                // An empty line ends the event.
                Line::Name(0) => self.scanner.end(found),
                // Two lines of data are one text with a line's end between.
                Line::Data => self.scanner.push(b"\n", found),
                Line::Name(_) | Line::Other => {}
            }
            self.form = Form::Events(Line::Name(0));
            return &rest[1..];
        }
        match line {
            Line::Name(seen) => {
                let next = if NAME.get(seen) == Some(&byte) {
                    Line::Name(seen + 1)
                } else if seen == NAME.len() && byte == b':' {
                    Line::Data
                } else {
                    Line::Other
                };
                self.form = Form::Events(next);
                &rest[1..]
            }
            Line::Data | Line::Other => {
                let end = rest
                    .iter()
                    .position(|byte| matches!(byte, b'\r' | b'\n'))
                    .unwrap_or(rest.len());
                if line == Line::Data {
                    self.scanner.push(&rest[..end], found);
                }
                &rest[end..]
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(pieces: &[&[u8]]) -> Vec<String> {
        let mut events = Events::default();
        let mut all = Vec::new();
        let mut found = |path: &str, scalar: Scalar<'_>| {
            if let Scalar::Number(text) = scalar {
                all.push(format!("{path}={text}"));
            }
        };
        for piece in pieces {
            events.push(piece, &mut found);
        }
        events.end(&mut found);
        all
    }

    #[test]
    fn events_are_read_with_any_end_of_line_however_they_are_cut() {
        for end in ["\n", "\r\n", "\r"] {
            let text = format!(
                "\u{feff}: a comment{end}event: x{end}data: {{\"a\":{end}data:1}}{end}{end}data:{{\"b\":2{end}{end}\
                 data: {{\"c\":3}}{end}datum: {{\"d\":4}}{end}id: 5{end}{end}data: [DONE]{end}{end}"
            );
            let wanted = ["a=1", "b=2", "c=3"];
            let text = text.as_bytes();
            for at in 0..text.len() {
                assert_eq!(numbers(&[&text[..at], &text[at..]]), wanted, "{end:?} {at}");
            }
        }
    }

    #[test]
    fn lines_of_json_and_one_text_are_read_as_they_are() {
        assert_eq!(numbers(&[b" \n{\"a\":1}\n{\"a\":2}\n"]), ["a=1", "a=2"]);
        assert_eq!(numbers(&[b"[{\"a\":1},{\"a\":2}]"]), ["a=1", "a=2"]);
        assert_eq!(numbers(&[b"<html>{\"a\":1}"]), [""; 0]);
    }
}
