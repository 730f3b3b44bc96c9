//! `policy fmt`: one way to write a policy, with its comments kept.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use clap::Args;
use policy::Policy;
use toml_edit::{Array, DocumentMut, Item, RawString, Table, Value};

use super::super::output::{Exit, say, tell};
use crate::policies::{self, PolicyError};

/// Lines of this length stay one line.
const WIDTH: usize = 100;
/// The order of a service's keys, and of a test's.
const ORDER: &[&str] = &[
    "name",
    "id",
    "kind",
    "scheme",
    "host",
    "hosts",
    "port",
    "address",
    "ca_file",
    "pin",
    "provider",
    "base_url",
    "models",
    "max_tokens",
    "tools",
    "endpoints",
    "repos",
    "git",
    "api",
    "also",
    "nodes",
    "pools",
    "vmids",
    "templates",
    "storages",
    "bridges",
    "features",
    "request",
    "allow",
    "deny",
    "push",
    "refs",
];

#[derive(Debug, Args)]
pub(in crate::cli) struct FmtArgs {
    /// Policy files
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Write nothing; exit 1 when a file would be written differently
    #[arg(long)]
    check: bool,
}

/// 0 when every file is written so, 1 with `--check` when one is not, 2 when one is no policy.
pub(super) fn fmt(args: &FmtArgs) -> Exit {
    let mut exit = Exit::Yes;
    for file in &args.files {
        let text = match policies::read_text(file) {
            Ok(text) => text,
            Err(problem) => {
                tell(&problem.to_string());
                exit = Exit::CouldNotTell;
                continue;
            }
        };
        let formatted = match formatted(&text, file) {
            Ok(formatted) => formatted,
            Err(problem) => {
                tell(&problem.to_string());
                exit = Exit::CouldNotTell;
                continue;
            }
        };
        if formatted == text {
            continue;
        }
        if args.check {
            say(&format!("{}: would be written differently", file.display()));
            if exit == Exit::Yes {
                exit = Exit::No;
            }
        } else if let Err(problem) = replace(file, &formatted) {
            tell(&format!(
                "error: {}: {problem}; it is as it was",
                file.display()
            ));
            exit = Exit::CouldNotTell;
        }
    }
    exit
}

/// The text in its one form. What is no policy is left alone.
fn formatted(text: &str, file: &Path) -> Result<String, PolicyError> {
    let shown = file.display().to_string();
    let before = Policy::parse(text, &shown).map_err(PolicyError::Invalid)?;
    let unchanged = || Ok(text.to_owned());
    let Ok(mut document) = text.parse::<DocumentMut>() else {
        // The loader reads it; how it is written stays its author's.
        return unchanged();
    };
    for (_, item) in document.iter_mut() {
        if let Item::ArrayOfTables(tables) = item {
            for table in tables.iter_mut() {
                tidy(table);
                // An empty line before each; what is too many is taken away at the end.
                let above = table
                    .decor()
                    .prefix()
                    .and_then(RawString::as_str)
                    .unwrap_or_default();
                let above = format!("\n{above}");
                table.decor_mut().set_prefix(above);
            }
        }
    }
    let mut out = String::new();
    for line in document.to_string().lines() {
        let line = line.trim_end();
        // One empty line between things is enough.
        if !line.is_empty() || !(out.is_empty() || out.ends_with("\n\n")) {
            out.push_str(line);
            out.push('\n');
        }
    }
    let out = out.trim_end().to_owned() + if out.trim_end().is_empty() { "" } else { "\n" };
    match Policy::parse(&out, &shown) {
        Ok(after) if after.expanded() == before.expanded() => Ok(out),
        Ok(_) | Err(_) => unchanged(),
    }
}

fn tidy(table: &mut Table) {
    let rank = |key: &str| {
        ORDER
            .iter()
            .position(|known| *known == key)
            .unwrap_or(ORDER.len())
    };
    // Stable: what has no place of its own stays in its order behind the rest.
    table.sort_values_by(|one, _, other, _| rank(one.get()).cmp(&rank(other.get())));
    for (mut key, item) in table.iter_mut() {
        key.leaf_decor_mut().set_suffix(" ");
        let width = key.get().len();
        let Item::Value(value) = item else { continue };
        let decor = value.decor_mut();
        decor.set_prefix(" ");
        if let Value::Array(array) = value {
            lay_out(array, width);
        }
    }
}

/// On one line if it fits there and nothing is said about its members, else one member on each.
fn lay_out(array: &mut Array, key: usize) {
    let commented = |array: &Array| {
        let said = |text: Option<&RawString>| {
            text.and_then(RawString::as_str)
                .is_some_and(|text| text.contains('#'))
        };
        said(Some(array.trailing()))
            || array
                .iter()
                .any(|value| said(value.decor().prefix()) || said(value.decor().suffix()))
    };
    if commented(array) {
        return;
    }
    let text = |value: &Value| value.clone().decorated("", "").to_string().len();
    let length: usize = array.iter().map(|value| text(value) + 2).sum();
    let one_line = key + 5 + length <= WIDTH;
    for (at, value) in array.iter_mut().enumerate() {
        let prefix = match (one_line, at) {
            (true, 0) => "",
            (true, _) => " ",
            (false, _) => "\n    ",
        };
        value.decor_mut().set_prefix(prefix);
        value.decor_mut().set_suffix("");
    }
    array.set_trailing(if one_line { "" } else { "\n" });
    array.set_trailing_comma(!one_line && !array.is_empty());
}

/// In one step: whoever reads the file finds the old text or the new one. Mode and owner stay.
fn replace(file: &Path, text: &str) -> std::io::Result<()> {
    let file = fs::canonicalize(file)?;
    let metadata = fs::metadata(&file)?;
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let path = file.with_file_name(name);
    let mut options = fs::OpenOptions::new();
    let mut new = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)?;
    let written = new
        .write_all(text.as_bytes())
        .and_then(|()| fchown(&new, Some(metadata.uid()), Some(metadata.gid())))
        .and_then(|()| new.set_permissions(metadata.permissions()))
        .and_then(|()| new.sync_all())
        .and_then(|()| fs::rename(&path, &file));
    if written.is_err() {
        // What went wrong is told; that half a file stays beside it would be no better.
        let _ = fs::remove_file(&path);
    }
    written
}

#[cfg(test)]
mod tests;
