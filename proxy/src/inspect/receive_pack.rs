//! The commands of a git push, read from the pkt-lines that precede the pack (gitprotocol-pack,
//! "Reference Update Request"). Only the section up to the first flush is read here; the pack behind it
//! streams, unless it must be shown that refs move forward (`crate::history`).
//!
//! ```text
//! 00a8<old> <new> refs/heads/agent/x\0 report-status side-band-64k ...   first command, with capabilities
//! 0068<old> <new> refs/heads/agent/y                                     further commands
//! 0000                                                                   flush; the pack follows
//! ```
//! A lone `0000` is git's probe before a large push: no command at all, and that is what is
//! reported.

use bytes::Bytes;
use policy::{History, RefUpdate};

/// What the bytes seen so far amount to.
#[derive(Debug)]
pub enum Progress {
    /// The flush has not arrived yet.
    More,
    /// The command section is complete.
    Done(Commands),
    /// The bytes are not a command section the gate understands; the text says why.
    Unreadable(String),
}

/// A complete command section.
#[derive(Debug)]
pub struct Commands {
    pub updates: Vec<RefUpdate>,
    /// Capabilities the client asked for with its first command.
    pub capabilities: Vec<String>,
    /// How many bytes they take, with their flush.
    pub length: usize,
}

/// The pack of a push that was read whole: behind the commands, and behind the options that are sent if both sides
/// agreed on them (gitprotocol-pack, "push-options"). Empty where nothing is to be brought.
pub fn pack_of(body: &Bytes, commands: &Commands) -> Option<Bytes> {
    let mut at = commands.length;
    if commands
        .capabilities
        .iter()
        .any(|word| word == "push-options")
    {
        loop {
            let length = pkt_length(body.get(at..at + 4)?)?;
            match length {
                0 => break at += 4,
                5.. => at += length,
                _ => return None,
            }
        }
    }
    (at <= body.len()).then(|| body.slice(at..))
}

impl Commands {
    /// Whether the client reads a status report, in which a refusal can be told per reference.
    pub fn reports_status(&self) -> bool {
        self.capabilities
            .iter()
            .any(|word| word == "report-status" || word == "report-status-v2")
    }

    /// Whether the client wants its answers multiplexed on the side band.
    pub fn side_band(&self) -> bool {
        self.capabilities.iter().any(|word| word == "side-band-64k")
    }
}

/// Where in the certificate of a signed push the reader is (gitprotocol-pack, "Push Certificate").
/// What it says it updates is what the server does.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Certificate {
    /// There is none, or it is over.
    #[default]
    Outside,
    /// Version, pusher, nonce and options, up to an empty line.
    Head,
    /// The commands.
    Commands,
    /// The signature, up to `push-cert-end`.
    Signature,
}

/// Incremental reader of the command section. Feed it the whole prefix received so far; parsing
/// resumes where it stopped.
#[derive(Debug, Default)]
pub struct Reader {
    parsed: usize,
    certificate: Certificate,
    updates: Vec<RefUpdate>,
    capabilities: Vec<String>,
    /// A command or a certificate has begun.
    begun: bool,
}

impl Reader {
    /// Reads as far as `prefix` (all bytes of the body so far) reaches.
    pub fn advance(&mut self, prefix: &[u8]) -> Progress {
        loop {
            let rest = prefix.get(self.parsed..).unwrap_or_default();
            let Some(digits) = rest.get(..4) else {
                return Progress::More;
            };
            let Some(length) = pkt_length(digits) else {
                return unreadable("a pkt-line does not begin with four hexadecimal digits");
            };
            if length == 0 && self.certificate != Certificate::Outside {
                return unreadable("the certificate of a signed push does not end");
            }
            if length == 0 {
                return Progress::Done(Commands {
                    updates: std::mem::take(&mut self.updates),
                    capabilities: std::mem::take(&mut self.capabilities),
                    length: self.parsed + 4,
                });
            }
            if length <= 4 {
                return unreadable("the command section contains a special or empty pkt-line");
            }
            let Some(line) = rest.get(4..length) else {
                return Progress::More;
            };
            if let Err(problem) = self.line(line) {
                return unreadable(problem);
            }
            self.parsed += length;
        }
    }

    fn line(&mut self, line: &[u8]) -> Result<(), &'static str> {
        if self.certificate != Certificate::Outside {
            return self.certified(line);
        }
        let (command, capabilities) = match line.iter().position(|byte| *byte == 0) {
            Some(nul) => (&line[..nul], Some(&line[nul + 1..])),
            None => (line, None),
        };
        let command = command.strip_suffix(b"\n").unwrap_or(command);
        let command = std::str::from_utf8(command).map_err(|_| "a reference name is not UTF-8")?;
        if let Some(words) = capabilities {
            if self.begun {
                return Err("capabilities appear behind a command that is not the first");
            }
            let words = std::str::from_utf8(words).map_err(|_| "capabilities are not UTF-8")?;
            self.capabilities = words.split_whitespace().map(str::to_owned).collect();
        }
        if let Some(object) = command.strip_prefix("shallow ") {
            return if is_object_id(object) {
                Ok(())
            } else {
                Err("a shallow line names no object")
            };
        }
        if command == "push-cert" && self.updates.is_empty() {
            self.begun = true;
            self.certificate = Certificate::Head;
            return Ok(());
        }
        self.command(command)
    }

    /// One line of a certificate, with its end.
    fn certified(&mut self, line: &[u8]) -> Result<(), &'static str> {
        const BEGIN: &str = "-----BEGIN ";
        let line = std::str::from_utf8(line).map_err(|_| "a push certificate is not UTF-8")?;
        let text = line.strip_suffix('\n');
        let text = text.ok_or("a line of a push certificate does not end")?;
        if text.contains(|c: char| c.is_control() && c != '\t') {
            return Err("a push certificate has a control character");
        }
        if text == "push-cert-end" {
            if self.certificate != Certificate::Signature {
                return Err("a push certificate has no signature");
            }
            self.certificate = Certificate::Outside;
            return Ok(());
        }
        match self.certificate {
            Certificate::Head if text.is_empty() => self.certificate = Certificate::Commands,
            Certificate::Head if text.starts_with(BEGIN) => {
                return Err("a push certificate has no commands");
            }
            Certificate::Commands if text.starts_with(BEGIN) => {
                self.certificate = Certificate::Signature;
            }
            Certificate::Commands => return self.command(text),
            // Git looks for the last one.
            Certificate::Signature if text.starts_with(BEGIN) => {
                return Err("a push certificate has two signatures");
            }
            Certificate::Outside | Certificate::Head | Certificate::Signature => {}
        }
        Ok(())
    }

    fn command(&mut self, command: &str) -> Result<(), &'static str> {
        self.begun = true;
        let mut words = command.splitn(3, ' ');
        let (Some(old), Some(new), Some(name)) = (words.next(), words.next(), words.next()) else {
            return Err("a command is not of the form OLD NEW REF");
        };
        if !is_object_id(old) || !is_object_id(new) || old.len() != new.len() {
            return Err("a command does not name two objects");
        }
        if name.is_empty() || name.chars().any(|c| c.is_control() || c == ' ') {
            return Err("a reference name contains a blank or a control character");
        }
        self.updates.push(RefUpdate {
            old: old.to_owned(),
            new: new.to_owned(),
            name: name.to_owned(),
            history: History::NotAsked,
        });
        Ok(())
    }
}

fn unreadable(problem: &str) -> Progress {
    Progress::Unreadable(problem.to_owned())
}

fn is_object_id(text: &str) -> bool {
    (text.len() == 40 || text.len() == 64)
        && text
            .bytes()
            .all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

/// The length that four hexadecimal digits state, themselves included.
fn pkt_length(digits: &[u8]) -> Option<usize> {
    digits.iter().try_fold(0_usize, |length, digit| {
        let value = char::from(*digit).to_digit(16)?;
        Some(length * 16 + usize::try_from(value).ok()?)
    })
}

/// A status report that rejects every update with what `reason` says of its reference, as git shows it: `! [remote rejected] x
/// -> x (reason)`, preceded by `message` as `remote:` lines where the client reads a side band.
pub fn rejection(commands: &Commands, reason: impl Fn(&str) -> String, message: &str) -> Vec<u8> {
    let mut report = Vec::new();
    pkt(&mut report, b"unpack ok\n");
    for update in &commands.updates {
        let reason: String = reason(&update.name)
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect();
        // A pkt-line holds 65,516 bytes; reference names come from pkt-lines of that size, so the
        // reason is what is cut.
        let room = 60_000_usize.saturating_sub(update.name.len());
        let short: String = reason.chars().take(room.min(400)).collect();
        let mut line = format!("ng {} {short}\n", update.name);
        if line.len() > 65_000 {
            line = format!("ng {} refused\n", update.name);
        }
        pkt(&mut report, line.as_bytes());
    }
    report.extend_from_slice(b"0000");
    if !commands.side_band() {
        return report;
    }
    let mut banded = Vec::new();
    for line in message.lines() {
        let mut band = vec![2];
        band.extend(line.bytes().take(900));
        band.push(b'\n');
        pkt(&mut banded, &band);
    }
    for chunk in report.chunks(65_000) {
        let mut band = vec![1];
        band.extend_from_slice(chunk);
        pkt(&mut banded, &band);
    }
    banded.extend_from_slice(b"0000");
    banded
}

fn pkt(out: &mut Vec<u8>, payload: &[u8]) {
    out.extend_from_slice(format!("{:04x}", payload.len() + 4).as_bytes());
    out.extend_from_slice(payload);
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "1111111111111111111111111111111111111111";
    const Z: &str = "0000000000000000000000000000000000000000";

    fn section(lines: &[String]) -> Vec<u8> {
        let mut out = Vec::new();
        for line in lines {
            pkt(&mut out, line.as_bytes());
        }
        out.extend_from_slice(b"0000");
        out
    }

    fn read(bytes: &[u8]) -> Progress {
        Reader::default().advance(bytes)
    }

    #[test]
    fn commands_are_read_up_to_the_flush_and_the_pack_is_left_alone() {
        let mut bytes = section(&[
            format!("{Z} {A} refs/heads/agent/x\0 report-status side-band-64k agent=git/2.47"),
            format!("{A} {Z} refs/heads/old\n"),
        ]);
        bytes.extend_from_slice(b"PACK\x00\x00garbage");
        let Progress::Done(commands) = read(&bytes) else {
            panic!("not read")
        };
        assert_eq!(commands.updates.len(), 2);
        assert_eq!(commands.updates[0].name, "refs/heads/agent/x");
        assert_eq!(commands.updates[1].new, Z);
        assert!(commands.reports_status() && commands.side_band());
    }

    #[test]
    fn one_byte_at_a_time_gives_the_same_commands() {
        let bytes = section(&[format!("{Z} {A} refs/heads/agent/x\0 report-status")]);
        let mut reader = Reader::default();
        for end in 0..bytes.len() {
            assert!(
                matches!(reader.advance(&bytes[..end]), Progress::More),
                "at {end}"
            );
        }
        let Progress::Done(commands) = reader.advance(&bytes) else {
            panic!("not read")
        };
        assert_eq!(commands.updates.len(), 1);
    }

    #[test]
    fn the_probe_of_a_large_push_is_a_section_without_commands() {
        let Progress::Done(commands) = read(b"0000") else {
            panic!("not read")
        };
        assert!(commands.updates.is_empty());
    }

    #[test]
    fn what_is_not_understood_is_said_to_be_unreadable() {
        let cases: Vec<Vec<u8>> = vec![
            b"zzzz".to_vec(),
            b"0001".to_vec(),
            b"0004".to_vec(),
            b"\x1f\x8b\x08\x00gzip".to_vec(),
            section(&[format!("{Z} {A}")]),
            section(&[format!("{Z} short refs/heads/x")]),
            section(&[format!("{Z} {A} refs/heads/a b")]),
            section(&["push-cert\0 report-status".to_owned()]),
            section(&[format!("{Z} {A} refs/a"), "push-cert".to_owned()]),
            section(&[format!("{Z} {A} refs/a"), format!("{Z} {A} refs/b\0 late")]),
        ];
        for bytes in cases {
            assert!(matches!(read(&bytes), Progress::Unreadable(_)), "{bytes:?}");
        }
    }

    /// A signed push, with these lines for commands and these behind its signature's first.
    fn signed(commands: &[String], behind: &[&str]) -> Vec<u8> {
        let mut lines = vec!["push-cert\0 report-status side-band-64k".to_owned()];
        for line in [
            "certificate version 0.1",
            "pusher A <a@b> 1 +0000",
            "nonce 1-2",
            "",
        ] {
            lines.push(format!("{line}\n"));
        }
        lines.extend(commands.iter().map(|line| format!("{line}\n")));
        lines.push("-----BEGIN PGP SIGNATURE-----\n".to_owned());
        lines.extend(behind.iter().map(|line| format!("{line}\n")));
        section(&lines)
    }

    const END: &[&str] = &["", "abc=", "-----END PGP SIGNATURE-----", "push-cert-end"];

    #[test]
    fn the_commands_of_a_signed_push_are_read_from_its_certificate() {
        let commands = [
            format!("{Z} {A} refs/heads/agent/x"),
            format!("{A} {Z} refs/heads/main"),
        ];
        let Progress::Done(read_commands) = read(&signed(&commands, END)) else {
            panic!("not read")
        };
        let names: Vec<_> = read_commands.updates.iter().map(|one| &one.name).collect();
        assert_eq!(names, ["refs/heads/agent/x", "refs/heads/main"]);
        assert!(read_commands.reports_status() && read_commands.side_band());

        let hidden = format!("{Z} {A} refs/heads/main");
        let twice = ["-----BEGIN PGP SIGNATURE-----", "push-cert-end"];
        let after = ["push-cert-end", &hidden];
        for bytes in [
            signed(&commands, &[]),
            signed(&commands, &twice),
            signed(&["not a command".to_owned()], END),
            signed(&[format!("{Z} {A} refs/heads/x\u{1}")], END),
        ] {
            assert!(matches!(read(&bytes), Progress::Unreadable(_)), "{bytes:?}");
        }
        // What a server takes behind a certificate is judged with the rest.
        let Progress::Done(more) = read(&signed(&commands, &after)) else {
            panic!("not read")
        };
        assert_eq!(more.updates.len(), 3);
    }

    #[test]
    fn a_rejection_names_every_reference() {
        let bytes = section(&[
            format!("{Z} {A} refs/heads/main\0 report-status"),
            format!("{Z} {A} refs/heads/other"),
        ]);
        let Progress::Done(commands) = read(&bytes) else {
            panic!("not read")
        };
        let report =
            String::from_utf8(rejection(&commands, |_| "not\nhere".to_owned(), "text")).unwrap();
        assert!(report.contains("ng refs/heads/main not here\n"), "{report}");
        assert!(
            report.contains("ng refs/heads/other not here\n"),
            "{report}"
        );
    }
}
