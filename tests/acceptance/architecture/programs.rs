//! What the product starts, and what it never does: a firewall's own program. And it hands no descriptor on.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use super::{ROOMS, is_test, relative, sources};

/// Programs that change or list what the kernel filters and routes.
const TOOLS: [&str; 10] = [
    "nft",
    "iptables",
    "ip6tables",
    "iptables-restore",
    "ip6tables-restore",
    "ebtables",
    "ipset",
    "conntrack",
    "tc",
    "ip",
];
/// It makes the wires and namespaces in which `portcullis prove` tries things, and has no part in a boundary.
const LAYS_WIRES: (&str, &str) = ("provisioning/src/prove", "ip");
const STARTS: [&str; 3] = ["Command::new", "Call::new", "Call::bounded"];
/// How a descriptor is handed to another process.
const HANDS_ON: [&str; 6] = [
    "SCM_RIGHTS",
    "ScmRights",
    "ControlMessage",
    "sendmsg",
    "SocketAncillary",
    "pidfd_getfd",
];

#[test]
fn the_product_starts_no_firewall_s_program() {
    let mut seen = BTreeSet::new();
    for (name, text) in shipped() {
        let literals = literals(&text);
        let starts = STARTS.iter().any(|start| text.contains(start));
        for literal in &literals {
            let program = literal.rsplit('/').next().unwrap_or(literal);
            seen.insert(program.to_owned());
            // Where no program is started it is a family of addresses.
            let lays = program == LAYS_WIRES.1 && (!starts || name.starts_with(LAYS_WIRES.0));
            assert!(
                lays || !TOOLS.contains(&program),
                "{name} names the program {literal}"
            );
        }
        assert!(
            !starts || !name.starts_with("nftables/"),
            "{name}: the boundary starts a program"
        );
        // People are told which command shows what; a file that tells them starts none.
        for literal in literals.iter().filter(|_| starts) {
            let said = literal.split(|c: char| !c.is_ascii_alphanumeric() && c != '-' && c != '_');
            let tool = said.into_iter().find(|word| TOOLS[..9].contains(word));
            assert!(tool.is_none(), "{name}: {tool:?} in {literal:?}");
        }
    }
    // The scan sees those that are started.
    for known in ["systemctl", "git", "lxc-start", "useradd", "ip"] {
        assert!(seen.contains(known), "{known}");
    }
    let written = "Command::new(\n\"/usr/sbin/nft\", // a \" and \"nft\"\n).arg('\"').args([\"https://x\", \"say \\\"nft\"])";
    assert_eq!(
        literals(written),
        ["/usr/sbin/nft", "https://x", "say \"nft"]
    );
}

/// A socket keeps the user who made it: one of the gate's would be let out in anybody's hands.
#[test]
fn the_product_hands_no_descriptor_on() {
    let way = |text: &str| HANDS_ON.into_iter().find(|way| text.contains(way));
    let mut read = 0;
    for (name, text) in shipped() {
        read += 1;
        assert_eq!(way(&text), None, "{name}");
    }
    assert!(read > 100, "{read} files");
    let sends = "sendmsg::<()>(fd, &[io], &[ControlMessage::ScmRights(&[gate])], flags, None)";
    assert_eq!(way(sends), Some("ScmRights"));
}

/// Name and text of every file of the product, without its tests.
fn shipped() -> impl Iterator<Item = (String, String)> {
    let product = |file: &PathBuf| {
        let name = relative(file);
        !name.starts_with("tests/")
            && !name.contains("/benches/")
            && !name.contains("/fuzz/")
            && !is_test(file)
    };
    sources(&ROOMS).filter(product).map(|file| {
        let text = fs::read_to_string(&file).unwrap();
        let shipped = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
        (relative(&file), shipped.to_owned())
    })
}

/// The text literals of a file in order, those of its comments left out.
fn literals(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(letter) = rest.chars().next() {
        let skipped = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if let Some(raw) = rest.strip_prefix("r#\"") {
            let length = raw.find("\"#").unwrap_or(raw.len());
            found.push(raw[..length].to_owned());
            (3 + length + 2).min(rest.len())
        } else if letter == '"' {
            let (literal, length) = quoted(&rest[1..]);
            found.push(literal);
            1 + length
        } else if let Some(character) = ["'\"'", "'\\\"'", "'\\''", "'\\\\'"]
            .iter()
            .find(|quote| rest.starts_with(**quote))
        {
            // A quotation mark as a character opens nothing.
            character.len()
        } else {
            letter.len_utf8()
        };
        rest = &rest[skipped..];
    }
    found
}

/// What stands before the closing quotation mark, and the length with it.
fn quoted(rest: &str) -> (String, usize) {
    let mut literal = String::new();
    let mut letters = rest.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return (literal, at + 1),
            '\\' => literal.extend(letters.next().map(|(_, escaped)| escaped)),
            other => literal.push(other),
        }
    }
    (literal, rest.len())
}
