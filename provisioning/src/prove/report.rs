//! What a run says, for people and for machines.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::json;

use super::verdict::{Status, Verdict, exit_code};

/// How a report is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For people: what is broken or could not be told, and a summary
    Text,
    /// Test Anything Protocol, version 13
    Tap,
    /// JUnit XML, as CI systems read it
    Junit,
    /// One JSON object
    Json,
}

/// A finished run.
#[derive(Debug)]
pub struct Report<'a> {
    pub verdicts: &'a [Verdict],
    /// By whom and where, in a sentence.
    pub by: String,
    pub seconds: f64,
}

impl Report<'_> {
    /// The whole text.
    #[must_use]
    pub fn render(&self, format: Format, all: bool) -> String {
        match format {
            Format::Text => self.text(all),
            Format::Tap => self.tap(),
            Format::Junit => self.junit(),
            Format::Json => self.json(),
        }
    }

    /// `holds`, `broken` or `could-not-tell`.
    #[must_use]
    pub fn result(&self) -> &'static str {
        match exit_code(self.verdicts) {
            0 => "holds",
            1 => "broken",
            _ => "could-not-tell",
        }
    }

    fn count(&self, status: Status) -> usize {
        self.verdicts
            .iter()
            .filter(|verdict| verdict.status == status)
            .count()
    }

    fn text(&self, all: bool) -> String {
        let mut out = String::new();
        // Writing to a String cannot fail.
        for verdict in self.verdicts {
            let mark = match verdict.status {
                Status::Holds if all => "holds",
                Status::NotApplicable if all => "nothing here",
                Status::Holds | Status::NotApplicable => continue,
                Status::Broken => "BROKEN",
                Status::CouldNotTell => "could not tell",
            };
            let must = verdict.must.word();
            let _ = writeln!(
                out,
                "{mark:>14}  {}: {} (must {must})",
                verdict.id, verdict.tried
            );
            let _ = writeln!(out, "{:>14}  saw: {}", "", verdict.saw);
            if verdict.status != Status::Holds {
                let _ = writeln!(out, "{:>14}  why it matters: {}", "", verdict.reason);
            }
        }
        let _ = writeln!(out, "{}", self.by);
        let _ = writeln!(
            out,
            "{} proofs in {:.1} s: {} hold, {} broken, {} could not be told, {} have nothing to be tried on here",
            self.verdicts.len(),
            self.seconds,
            self.count(Status::Holds),
            self.count(Status::Broken),
            self.count(Status::CouldNotTell),
            self.count(Status::NotApplicable)
        );
        let _ = writeln!(
            out,
            "{}",
            match self.result() {
                "holds" => "The boundary holds.",
                "broken" => "THE BOUNDARY IS BROKEN.",
                _ => "Whether the boundary holds could not be told.",
            }
        );
        out
    }

    fn tap(&self) -> String {
        let mut out = format!(
            "TAP version 13\n1..{}\n# {}\n",
            self.verdicts.len(),
            plain(&self.by)
        );
        for (index, verdict) in self.verdicts.iter().enumerate() {
            let number = index + 1;
            let ok = matches!(verdict.status, Status::Holds | Status::NotApplicable);
            let word = if ok { "ok" } else { "not ok" };
            let tried = plain(&verdict.tried);
            let skip = match verdict.status {
                Status::NotApplicable => format!(" # SKIP {}", plain(&verdict.saw)),
                _ => String::new(),
            };
            let _ = writeln!(
                out,
                "{word} {number} - {} must {}: {tried}{skip}",
                verdict.id,
                verdict.must.word()
            );
            if !ok {
                let status = if verdict.status == Status::Broken {
                    "broken"
                } else {
                    "could not tell"
                };
                let _ = writeln!(out, "# {status}: {}", plain(&verdict.saw));
                let _ = writeln!(out, "# why it matters: {}", plain(&verdict.reason));
            }
        }
        out
    }

    fn junit(&self) -> String {
        let mut suites: BTreeMap<String, Vec<&Verdict>> = BTreeMap::new();
        for verdict in self.verdicts {
            suites.entry(group(&verdict.id)).or_default().push(verdict);
        }
        let of = |verdicts: &[&Verdict], status| {
            verdicts
                .iter()
                .filter(|verdict| verdict.status == status)
                .count()
        };
        let seconds = |ms: u64| format!("{}.{:03}", ms / 1000, ms % 1000);
        let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
        let _ = writeln!(
            out,
            "<testsuites name=\"portcullis prove\" tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\" time=\"{:.3}\">",
            self.verdicts.len(),
            self.count(Status::Broken),
            self.count(Status::CouldNotTell),
            self.count(Status::NotApplicable),
            self.seconds
        );
        for (name, verdicts) in &suites {
            let time = seconds(verdicts.iter().map(|verdict| verdict.ms).sum());
            let _ = writeln!(
                out,
                "  <testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\" time=\"{time}\">",
                xml(name),
                verdicts.len(),
                of(verdicts, Status::Broken),
                of(verdicts, Status::CouldNotTell),
                of(verdicts, Status::NotApplicable)
            );
            for verdict in verdicts {
                let _ = writeln!(
                    out,
                    "    <testcase classname=\"portcullis.{}\" name=\"{}\" time=\"{}\">",
                    xml(name),
                    xml(&format!(
                        "{} must {}: {}",
                        verdict.id,
                        verdict.must.word(),
                        verdict.tried
                    )),
                    seconds(verdict.ms)
                );
                let (saw, reason) = (xml(&verdict.saw), xml(&verdict.reason));
                let _ = match verdict.status {
                    Status::Holds => writeln!(out, "      <system-out>{saw}</system-out>"),
                    Status::Broken => writeln!(
                        out,
                        "      <failure type=\"broken\" message=\"{saw}\">{reason}</failure>"
                    ),
                    Status::CouldNotTell => {
                        writeln!(
                            out,
                            "      <error type=\"could-not-tell\" message=\"{saw}\">{reason}</error>"
                        )
                    }
                    Status::NotApplicable => writeln!(out, "      <skipped message=\"{saw}\"/>"),
                };
                out.push_str("    </testcase>\n");
            }
            out.push_str("  </testsuite>\n");
        }
        out.push_str("</testsuites>\n");
        out
    }

    fn json(&self) -> String {
        let report = json!({
            "version": 1,
            "result": self.result(),
            "by": self.by,
            "seconds": self.seconds,
            "counts": {
                "holds": self.count(Status::Holds),
                "broken": self.count(Status::Broken),
                "could_not_tell": self.count(Status::CouldNotTell),
                "not_applicable": self.count(Status::NotApplicable),
            },
            "proofs": self.verdicts,
        });
        serde_json::to_string_pretty(&report).unwrap_or_default()
    }
}

/// `KRN` of `KRN-03-quic/ipv4/443`.
fn group(id: &str) -> String {
    id.split('-').next().unwrap_or(id).to_owned()
}

/// One line, without what TAP reads as a directive.
fn plain(text: &str) -> String {
    text.replace(['\n', '\r'], " ").replace('#', "")
}

fn xml(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&apos;"),
            '\n' | '\t' => out.push(' '),
            // XML 1.0 has no way to write these.
            letter if letter.is_control() || matches!(letter, '\u{fffe}' | '\u{ffff}') => {
                out.push('?')
            }
            letter => out.push(letter),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prove::kind::Must;

    fn verdict(id: &str, status: Status) -> Verdict {
        Verdict {
            id: id.into(),
            must: Must::Fail,
            status,
            tried: "uid 7 tries \"x\" <&> # SKIP".into(),
            reason: "because\nit is".into(),
            saw: "a\u{1}b '".into(),
            gate_down: false,
            ms: 1234,
        }
    }

    fn render(format: Format) -> String {
        let verdicts = [
            verdict("KRN-01/ipv4", Status::Holds),
            verdict("KRN-02", Status::Broken),
            verdict("CRD-01", Status::CouldNotTell),
            verdict("CRD-02", Status::NotApplicable),
        ];
        let report = Report {
            verdicts: &verdicts,
            by: "root".into(),
            seconds: 1.5,
        };
        report.render(format, false)
    }

    #[test]
    fn each_form_says_each_status() {
        let tap = render(Format::Tap);
        assert!(tap.starts_with("TAP version 13\n1..4\n"), "{tap}");
        for line in [
            "ok 1 - KRN-01/ipv4",
            "not ok 2 - KRN-02",
            "not ok 3 - CRD-01",
            "ok 4 - CRD-02",
        ] {
            assert!(tap.contains(&format!("\n{line}")), "{tap}");
        }
        assert_eq!(tap.matches("# SKIP").count(), 1, "{tap}");
        let junit = render(Format::Junit);
        for part in [
            "tests=\"4\" failures=\"1\" errors=\"1\" skipped=\"1\"",
            "&lt;&amp;&gt;",
            "message=\"a?b &apos;\"",
            "time=\"1.234\"",
        ] {
            assert!(junit.contains(part), "{part}: {junit}");
        }
        let json: serde_json::Value = serde_json::from_str(&render(Format::Json)).unwrap();
        assert_eq!(json["result"], "broken");
        assert_eq!(json["proofs"][3]["status"], "not-applicable");
        let text = render(Format::Text);
        assert!(
            text.contains("BROKEN  KRN-02") && !text.contains("KRN-01/ipv4"),
            "{text}"
        );
        assert!(text.contains("THE BOUNDARY IS BROKEN."), "{text}");
    }
}
