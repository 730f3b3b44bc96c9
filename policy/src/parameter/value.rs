//! What a value may be, as a policy writes it: `TYPE`, or `TYPE:` and what belongs to it.

use std::fmt;
use std::ops::RangeInclusive;

use super::is_number;
use crate::pattern::text_matches;

/// A text of more bytes is not looked at.
const MOST_BYTES: usize = 256 * 1024;

/// What a value may be.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Value {
    /// `text`: one line.
    Text,
    /// `prose`: any lines.
    Prose,
    /// `number`: a decimal number that is not below zero.
    Number,
    /// `whole`, `whole:0-1,100-199`: a whole number, in the one form in which computers write it.
    Whole(Ranges),
    /// `one:pve,pve-*`: a word that is listed.
    One(Words),
    /// `names:mp#,description`: names with commas, each listed.
    Names(Words),
    /// `flags:nesting`: `NAME=0` or `NAME=1` with commas, each name listed.
    Flags(Words),
    /// `volume:STORAGES@GUESTS`: a disk of Proxmox, to be made, or one of a guest's own; never a path.
    Volume(Words, Ranges),
    /// `template:STORAGES`: a template of Proxmox on a storage.
    Template(Words),
    /// `net:BRIDGES`: a network card of Proxmox at a bridge.
    Net(Words),
}

/// Whole numbers; none for every one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Ranges(Vec<(u64, u64)>);

/// Words that are listed, `*` for any characters in one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Words(Vec<String>);

impl Ranges {
    /// Parses `100-199,300`, or `*` for every number; the problem otherwise.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if text == "*" {
            return Ok(Self::default());
        }
        let one = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let number = |text: &str| is_number(text).then(|| text.parse::<u64>().ok())?;
            let range = number(first).zip(number(last));
            range.filter(|(first, last)| first <= last)
        };
        let read: Option<Vec<_>> = text.split(',').map(one).collect();
        let mut ranges = read.ok_or_else(|| {
            format!("`{text}` is no list of numbers and ranges, such as `100-199,300`")
        })?;
        ranges.sort_unstable();
        ranges.dedup();
        Ok(Self(ranges))
    }

    fn hold(&self, text: &str) -> bool {
        let number = is_number(text).then(|| text.parse::<u64>().ok()).flatten();
        let within = |(first, last): &(u64, u64)| {
            number.is_some_and(|number| RangeInclusive::new(*first, *last).contains(&number))
        };
        number.is_some() && (self.0.is_empty() || self.0.iter().any(within))
    }
}

impl Words {
    /// Parses `local,local-*`; the problem otherwise.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let good = |word: &str| {
            let byte = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.*#".contains(&byte);
            !word.is_empty() && word.bytes().all(byte)
        };
        let mut words: Vec<String> = text.split(',').map(str::to_owned).collect();
        if !words.iter().all(|word| good(word)) {
            return Err(format!("`{text}` is no list of words with commas"));
        }
        words.sort_unstable();
        words.dedup();
        Ok(Self(words))
    }

    /// Whether a word is listed. What is no plain word never is, whatever `*` stands for.
    fn list(&self, text: &str) -> bool {
        is_word(text) && self.0.iter().any(|word| text_matches(word, text))
    }

    /// The same where `#` stands for a number.
    fn name(&self, text: &str) -> bool {
        let listed = |word: &String| match word.strip_suffix('#') {
            Some(stem) => text.strip_prefix(stem).is_some_and(is_number),
            None => text_matches(word, text),
        };
        is_word(text) && self.0.iter().any(listed)
    }
}

impl Value {
    /// Parses a value as a policy writes it; the problem and its remedy otherwise.
    pub(crate) fn parse(text: &str) -> Result<Self, (String, String)> {
        let remedy = || {
            String::from(
                "write text, prose, number, whole:100-199, one:a,b, names:a,b, flags:a, volume:STORAGES@GUESTS, \
                 template:STORAGES or net:BRIDGES",
            )
        };
        let (kind, of) = match text.split_once(':') {
            Some((kind, of)) => (kind, Some(of)),
            None => (text, None),
        };
        let read = match (kind, of) {
            ("text", None) => Ok(Self::Text),
            ("prose", None) => Ok(Self::Prose),
            ("number", None) => Ok(Self::Number),
            ("whole", None) => Ok(Self::Whole(Ranges::default())),
            ("whole", Some(of)) => Ranges::parse(of).map(Self::Whole),
            ("one", Some(of)) => Words::parse(of).map(Self::One),
            ("names", Some(of)) => Words::parse(of).map(Self::Names),
            // None may be on.
            ("flags", Some("")) => Ok(Self::Flags(Words::default())),
            ("flags", Some(of)) => Words::parse(of).map(Self::Flags),
            ("template", Some(of)) => Words::parse(of).map(Self::Template),
            ("net", Some(of)) => Words::parse(of).map(Self::Net),
            ("volume", Some(of)) => match of.split_once('@') {
                Some((storages, guests)) => Words::parse(storages).and_then(|storages| {
                    Ranges::parse(guests).map(|guests| Self::Volume(storages, guests))
                }),
                None => Err(format!("`{text}` does not say whose disks it means")),
            },
            _ => Err(format!("`{text}` is no type of value")),
        };
        read.map_err(|problem| (problem, remedy()))
    }

    /// Whether a value is of this type; what is wrong with it otherwise, without repeating it.
    pub(crate) fn judge(&self, text: &str) -> Result<(), String> {
        if text.len() > MOST_BYTES {
            return Err(String::from("is longer than any value should be"));
        }
        let line = |c: char| matches!(c, '\n' | '\r' | '\t');
        let control = |c: char| c.is_control() && !(*self == Self::Prose && line(c));
        if text.contains(control) {
            return Err(String::from("has a control character"));
        }
        let other = |good: bool| {
            if good {
                Ok(())
            } else {
                Err(String::from("has another value"))
            }
        };
        match self {
            Self::Text | Self::Prose => Ok(()),
            Self::Number => other(is_decimal(text)),
            Self::Whole(ranges) => other(ranges.hold(text)),
            Self::One(words) => other(words.list(text)),
            Self::Names(words) => other(text.split(',').all(|name| words.name(name))),
            Self::Flags(words) => other(is_flags(words, text)),
            Self::Template(storages) => {
                let name = text.split_once(":vztmpl/");
                other(name.is_some_and(|(storage, name)| storages.list(storage) && is_file(name)))
            }
            Self::Volume(storages, guests) => volume(storages, guests, text),
            Self::Net(bridges) => net(bridges, text),
        }
    }
}

/// A decimal number that is not below zero.
fn is_decimal(text: &str) -> bool {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number(whole) && digits(part) && part.len() <= 18
}

fn is_word(text: &str) -> bool {
    let byte = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    !text.is_empty() && text.len() <= 256 && text.bytes().all(byte)
}

/// A name of a file, without a directory.
fn is_file(text: &str) -> bool {
    let byte = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.+~".contains(&byte);
    !text.is_empty() && text.bytes().all(byte) && !text.starts_with('.')
}

fn is_flags(words: &Words, text: &str) -> bool {
    let mut seen = Vec::new();
    text.split(',').all(|part| {
        let Some((name, "0" | "1")) = part.split_once('=') else {
            return false;
        };
        let new = !seen.contains(&name);
        seen.push(name);
        new && words.list(name)
    })
}

/// The parts of `first,key=value,...`; the first may have no key. `Err` where a key stands there twice.
fn properties(text: &str) -> Result<Vec<(Option<&str>, &str)>, String> {
    let mut parts: Vec<(Option<&str>, &str)> = Vec::new();
    for (at, part) in text.split(',').enumerate() {
        let part = match part.split_once('=') {
            Some((key, value)) => (Some(key), value),
            None if at == 0 => (None, part),
            None => return Err(String::from("has a part without a key")),
        };
        if parts.iter().any(|(key, _)| *key == part.0) {
            return Err(String::from("has a part twice"));
        }
        parts.push(part);
    }
    Ok(parts)
}

/// Keys of a disk that say nothing about where its bytes are.
const DISK_KEYS: &[&str] = &[
    "mp",
    "size",
    "backup",
    "ro",
    "acl",
    "quota",
    "replicate",
    "mountoptions",
    "media",
    "format",
    "cache",
    "discard",
    "iothread",
    "ssd",
    "efitype",
    "pre-enrolled-keys",
    "version",
];

/// Source: the formats `pve-volume-id`, `pve-ct-mountpoint` and `pve-qm-*` of the schema of Proxmox VE's API.
fn volume(storages: &Words, guests: &Ranges, text: &str) -> Result<(), String> {
    let parts = properties(text)?;
    let named = |key: Option<&str>| matches!(key, None | Some("volume" | "file"));
    let mut volumes = parts.iter().filter(|(key, _)| named(*key));
    let (Some((_, at)), None) = (volumes.next(), volumes.next()) else {
        return Err(String::from("does not name one volume"));
    };
    let rest = parts
        .iter()
        .filter_map(|(key, _)| key.filter(|key| !named(Some(key))));
    for key in rest {
        if !DISK_KEYS.contains(&key) {
            return Err(format!(
                "has a part `{}` that is not known",
                crate::refusal::clip(key)
            ));
        }
    }
    let disc = parts.contains(&(Some("media"), "cdrom"));
    if disc && *at == "none" {
        return Ok(());
    }
    let Some((storage, volume)) = at.split_once(':') else {
        return Err(String::from("is no volume on a storage"));
    };
    if !storages.list(storage) {
        return Err(String::from("is on another storage"));
    }
    let iso = |volume: &str| volume.strip_prefix("iso/").is_some_and(is_file);
    if is_decimal(volume) || volume == "cloudinit" || (disc && iso(volume)) {
        return Ok(());
    }
    if is_a_guests(guests, volume) {
        return Ok(());
    }
    Err(String::from(
        "is neither a new disk nor one of a guest's own",
    ))
}

/// `vm-101-disk-0`, `subvol-101-disk-0`, `101/vm-101-disk-0.qcow2`: a disk that carries the number of its guest.
fn is_a_guests(guests: &Ranges, volume: &str) -> bool {
    let name = match volume.split_once('/') {
        Some((guest, name)) if guests.hold(guest) => name,
        Some(_) => return false,
        None => volume,
    };
    let (name, suffix) = name.split_once('.').unwrap_or((name, "raw"));
    let parts: Vec<&str> = name.split('-').collect();
    let owned = match parts.as_slice() {
        ["vm" | "subvol", guest, "disk", number] => guests.hold(guest) && is_number(number),
        ["vm", guest, "cloudinit"] => guests.hold(guest),
        _ => false,
    };
    owned && matches!(suffix, "raw" | "qcow2" | "vmdk" | "subvol")
}

/// Keys of a network card; `tag` and `trunks` are none of them, since they lead into other networks.
const NET_KEYS: &[&str] = &[
    "name",
    "bridge",
    "hwaddr",
    "ip",
    "gw",
    "ip6",
    "gw6",
    "mtu",
    "rate",
    "firewall",
    "type",
    "link_down",
    "model",
    "macaddr",
    "queues",
    "virtio",
    "e1000",
    "e1000e",
    "rtl8139",
    "vmxnet3",
];

fn net(bridges: &Words, text: &str) -> Result<(), String> {
    let parts = properties(text)?;
    if let Some((Some(key), _)) = parts
        .iter()
        .find(|(key, _)| key.is_some_and(|key| !NET_KEYS.contains(&key)))
    {
        return Err(format!(
            "has a part `{}` that is not known",
            crate::refusal::clip(key)
        ));
    }
    // Without a bridge a machine would share the network of its node.
    let bridge = parts.iter().find(|(key, _)| *key == Some("bridge"));
    match bridge {
        Some((_, bridge)) if bridges.list(bridge) => Ok(()),
        Some(_) | None => Err(String::from("is at no bridge that is listed")),
    }
}

impl fmt::Display for Ranges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("*");
        }
        for (at, (first, last)) in self.0.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            if first == last {
                write!(f, "{comma}{first}")?;
            } else {
                write!(f, "{comma}{first}-{last}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(","))
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text => f.write_str("text"),
            Self::Prose => f.write_str("prose"),
            Self::Number => f.write_str("number"),
            Self::Whole(ranges) => write!(f, "whole:{ranges}"),
            Self::One(words) => write!(f, "one:{words}"),
            Self::Names(words) => write!(f, "names:{words}"),
            Self::Flags(words) => write!(f, "flags:{words}"),
            Self::Volume(storages, guests) => write!(f, "volume:{storages}@{guests}"),
            Self::Template(storages) => write!(f, "template:{storages}"),
            Self::Net(bridges) => write!(f, "net:{bridges}"),
        }
    }
}
