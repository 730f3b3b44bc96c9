//! The matrix of real clients: what a test saw of one client over one protocol, kept as a line.
//!
//! Every row is judged by what the client itself printed. It is compared with the committed table in
//! `docs/clients.md`, and written to `target/clients/rows/CLIENT--WAY.json`, from which
//! `tests/clients/table` makes that table. Versions are told and never compared.

use std::fs;
use std::path::PathBuf;

use serde_json::json;

use crate::binaries;
use crate::command::Finished;

/// How much of a refusal the person or agent behind a client gets to read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Shown {
    /// What was refused, by which rule or code, and what would help.
    Reason,
    /// That it is the gate that refuses, in one line that may be cut; no remedy.
    Sentence,
    /// The status, nothing of what it is about.
    Status,
    /// That it failed.
    Failure,
}

impl Shown {
    /// Reads a client's output.
    ///
    /// `remedy` is a part of the refusal's hint that must be there for [`Shown::Reason`].
    pub fn in_output(output: &str, rule: &str, remedy: &str) -> Self {
        // Clients wrap, indent and escape what they show.
        let plain: String = output
            .replace("\\n", " ")
            .replace("remote: ", " ")
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ");
        let named = plain.contains("Portcullis");
        if named && plain.contains(rule) && plain.contains(remedy) {
            Self::Reason
        } else if named {
            Self::Sentence
        } else if ["403", "Forbidden", "PERMISSION_DENIED"]
            .iter()
            .any(|word| plain.contains(word))
        {
            Self::Status
        } else {
            Self::Failure
        }
    }

    /// As the table says it.
    pub fn words(self) -> &'static str {
        match self {
            Self::Reason => "rule and remedy",
            Self::Sentence => "one line of the gate's",
            Self::Status => "the status",
            Self::Failure => "that it failed",
        }
    }
}

/// One row: a client, and the way it goes.
#[derive(Clone, Debug)]
pub struct Row {
    /// `curl`, `pip`, ...
    pub client: &'static str,
    /// `HTTP/2`, `push of 3 MiB`, ...
    pub way: &'static str,
    /// What the client says its version is.
    pub version: String,
}

impl Row {
    /// Keeps the row and compares it: the client works where policy allows it, and shows a refusal
    /// as `shown` (`None`: another row of the same client tells). The error is what differs.
    pub fn keep(&self, shown: Option<Shown>) -> Result<(), String> {
        let refused = shown.map_or("-", Shown::words);
        let row = json!({
            "client": self.client,
            "way": self.way,
            "version": self.version,
            "allowed": "works",
            "refused": refused,
        });
        let rows = directory().join("rows");
        fs::create_dir_all(&rows).expect("the target folder is writable");
        let name = format!("{}--{}.json", self.client, self.way).replace([' ', '/', ','], "_");
        fs::write(rows.join(name), format!("{row}\n")).expect("the target folder is writable");
        tell(&row.to_string());
        let found = committed()
            .into_iter()
            .find(|cells| cells[0] == self.client && cells[1] == self.way);
        match found {
            None => Err(format!("no row for {}, {}", self.client, self.way)),
            Some(cells) if cells[2] == "works" && cells[3] == refused => Ok(()),
            Some(cells) => Err(format!(
                "{}, {}: `{}` and `{}` there, `works` and `{refused}` here",
                self.client, self.way, cells[2], cells[3]
            )),
        }
    }
}

/// Client, way, allowed and refused of every row in `docs/clients.md`.
pub fn committed() -> Vec<[String; 4]> {
    let text = fs::read_to_string(binaries::repository().join("docs/clients.md"))
        .expect("docs/clients.md is part of the repository");
    text.lines()
        .skip_while(|line| !line.starts_with("| client | way |"))
        .skip(2)
        .take_while(|line| line.starts_with('|'))
        .filter_map(|line| {
            let cells: Vec<_> = line
                .trim_matches('|')
                .split('|')
                .map(|cell| cell.trim().to_owned())
                .collect();
            cells.try_into().ok().map(|cells: [String; 5]| {
                let [client, way, allowed, refused, _] = cells;
                [client, way, allowed, refused]
            })
        })
        .collect()
}

/// Where `tests/clients/install` puts the clients.
pub fn directory() -> PathBuf {
    let profile = binaries::directory();
    profile
        .parent()
        .expect("a profile lies in the target folder")
        .join("clients")
}

/// The first number of a version in what `finished` printed: `8.5.0` of `curl 8.5.0 (x86_64)`.
pub fn version(finished: &Finished) -> String {
    version_in(&finished.output())
}

/// The same of what was printed.
pub fn version_in(output: &str) -> String {
    let mut numbers = output
        .split(|c: char| c.is_whitespace() || c == '/' || c == '"' || c == ',')
        .map(|word| word.trim_start_matches(|c: char| c.is_ascii_lowercase()))
        .filter(|word| word.contains('.') && word.starts_with(|c: char| c.is_ascii_digit()));
    // A colour may follow.
    let part = |c: char| c.is_ascii_alphanumeric() || "._+~-".contains(c);
    let number = numbers.next().unwrap_or("unknown");
    number.chars().take_while(|&c| part(c)).collect()
}

/// Puts a line into the test's output.
#[allow(
    clippy::print_stdout,
    reason = "versions and figures belong into the test's output"
)]
pub fn tell(line: &str) {
    println!("{line}");
}
