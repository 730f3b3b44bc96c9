//! The little of git's protocol that asks for commits: version 2, and what servers speak that do not know of it
//! (gitprotocol-v2, gitprotocol-pack).

use super::graph::{Commits, Id, MOST_MISSING};
use super::pack::Format;

/// What a server says of itself is short, but for its refs.
const MOST_LINES: usize = 1_000_000;

/// How a server can be asked.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Offer {
    /// In version 2 anything can be asked for; before, what is named by a ref.
    second: bool,
    /// It can leave out what is no commit.
    filters: bool,
    wants: Vec<Id>,
}

/// Reads what a server advertises, and finds what to ask it for: what is missing, or where that has no name there all
/// branches and other refs that are not known, since one of them may lead to it.
///
/// # Errors
/// Why there is nothing to ask.
pub(super) fn offered(mut bytes: &[u8], missing: &[Id], known: &Commits) -> Result<Offer, String> {
    let mut second = false;
    let mut capabilities = String::new();
    let (mut named, mut branches, mut others) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..MOST_LINES {
        let Some((line, rest)) = next(bytes) else {
            break;
        };
        bytes = rest;
        let Line::Data(data) = line else {
            continue;
        };
        let text = std::str::from_utf8(data).unwrap_or_default().trim_end();
        second |= text == "version 2";
        if second {
            if let Some(words) = text.strip_prefix("fetch=") {
                words.clone_into(&mut capabilities);
            }
            continue;
        }
        let (text, words) = text.split_once('\0').unwrap_or((text, ""));
        if !words.is_empty() && capabilities.is_empty() {
            words.clone_into(&mut capabilities);
        }
        let Some((id, name)) = text.split_once(' ') else {
            continue;
        };
        let Some(id) = Id::parse(id).filter(|_| !name.ends_with("^{}")) else {
            continue;
        };
        let list = match missing.contains(&id) {
            true => &mut named,
            false if known.contains_key(&id) => continue,
            false if name.starts_with("refs/heads/") => &mut branches,
            false => &mut others,
        };
        if list.len() < MOST_MISSING && !list.contains(&id) {
            list.push(id);
        }
    }
    let says = |word: &str| capabilities.split(' ').any(|said| said == word);
    if !second && !says("side-band-64k") {
        return Err("what the repository advertises is not understood".to_owned());
    }
    let any = second || says("allow-any-sha1-in-want") || says("allow-reachable-sha1-in-want");
    let wants = if any {
        missing.to_vec()
    } else if missing.iter().all(|id| named.contains(id)) {
        named
    } else {
        for id in branches.into_iter().chain(others) {
            if named.len() < MOST_MISSING && !named.contains(&id) {
                named.push(id);
            }
        }
        named
    };
    if wants.is_empty() {
        return Err(unknown());
    }
    Ok(Offer {
        second,
        filters: says("filter"),
        wants,
    })
}

impl Offer {
    /// The request for the pack of all that the wanted descend from and `haves` do not.
    pub(super) fn request(&self, haves: &[Id], format: Format) -> Vec<u8> {
        const FILTER: &str = "filter tree:0";
        let mut body = Lines(Vec::new());
        let hash = match format {
            Format::Sha1 => "",
            Format::Sha256 => "object-format=sha256",
        };
        let wants = self.wants.iter().map(|id| format!("want {id}"));
        if self.second {
            body.add("command=fetch");
            if !hash.is_empty() {
                body.add(hash);
            }
            body.0.extend_from_slice(b"0001");
            body.add("no-progress");
            body.add("ofs-delta");
            if self.filters {
                body.add(FILTER);
            }
            wants.for_each(|want| body.add(&want));
        } else {
            let filter = if self.filters { "filter" } else { "" };
            let mut words = format!(" side-band-64k no-progress ofs-delta {filter} {hash}");
            for want in wants {
                body.add(&format!("{want}{}", words.trim_end()));
                words.clear();
            }
            if self.filters {
                body.add(FILTER);
            }
            body.0.extend_from_slice(b"0000");
        }
        for have in haves {
            body.add(&format!("have {have}"));
        }
        body.add("done");
        if self.second {
            body.0.extend_from_slice(b"0000");
        }
        body.0
    }
}

fn unknown() -> String {
    "the repository does not have what the push builds on".to_owned()
}

/// A request as it grows.
struct Lines(Vec<u8>);

impl Lines {
    fn add(&mut self, text: &str) {
        let line = format!("{:04x}{text}\n", text.len() + 5);
        self.0.extend_from_slice(line.as_bytes());
    }
}

/// One pkt-line.
#[derive(Debug, PartialEq, Eq)]
enum Line<'l> {
    /// `0000`, `0001` or `0002`.
    Mark,
    Data(&'l [u8]),
}

/// The next line, and the rest.
fn next(bytes: &[u8]) -> Option<(Line<'_>, &[u8])> {
    let digits = std::str::from_utf8(bytes.get(..4)?).ok()?;
    let length = usize::from_str_radix(digits, 16).ok()?;
    match length {
        0..=2 => Some((Line::Mark, bytes.get(4..)?)),
        3 => None,
        length => Some((Line::Data(bytes.get(4..length)?), bytes.get(length..)?)),
    }
}

/// The pack in an answer, in the place where the answer stood. What comes before it is text; then the first byte of
/// each line says what it is of.
///
/// # Errors
/// Why there is none.
pub(super) fn packfile(mut answer: Vec<u8>) -> Result<Vec<u8>, String> {
    let broken = || "what the repository answers is no pack".to_owned();
    let mut within = false;
    let (mut at, mut end) = (0, 0);
    loop {
        let rest = answer.get(at..).unwrap_or_default();
        let (line, after) = next(rest).ok_or_else(broken)?;
        let before = answer.len() - after.len();
        match line {
            Line::Mark if within => break,
            Line::Mark => {}
            Line::Data(data) => match data.split_first() {
                Some((1, more)) => {
                    let length = more.len();
                    answer.copy_within(before - length..before, end);
                    end += length;
                    within = true;
                }
                Some((2, _)) => within = true,
                Some((3, _)) => return Err("the repository broke off its answer".to_owned()),
                Some(_) if !within && data.starts_with(b"ERR ") => return Err(unknown()),
                Some(_) if !within => {}
                Some(_) | None => return Err(broken()),
            },
        }
        at = before;
    }
    answer.truncate(end);
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(lines: &[&[u8]]) -> Vec<u8> {
        let mut out = Vec::new();
        for line in lines {
            out.extend_from_slice(format!("{:04x}", line.len() + 4).as_bytes());
            out.extend_from_slice(line);
        }
        out
    }

    fn id(n: u8) -> Id {
        Id::of(&[n; 20]).unwrap()
    }

    #[test]
    fn in_version_2_what_is_missing_is_asked_for() {
        let second = |fetch: &[u8]| {
            let service = lines(&[b"# service=git-upload-pack\n"]);
            let said = lines(&[b"version 2\n", b"agent=git/2.39\n", fetch]);
            [&service, &b"0000"[..], &said, b"0000"].concat()
        };
        let ask = |fetch: &[u8]| offered(&second(fetch), &[id(7)], &Commits::new()).unwrap();
        let offer = ask(b"fetch=shallow filter\n");
        assert!(offer.second && offer.filters);
        assert_eq!(offer.wants, [id(7)]);
        assert!(!ask(b"fetch=shallow\n").filters);
        let asked =
            |offer: &Offer, format| String::from_utf8(offer.request(&[id(3)], format)).unwrap();
        let text = asked(&offer, Format::Sha1);
        let (seven, three) = ("07".repeat(20), "03".repeat(20));
        assert_eq!(
            text,
            format!(
                "0012command=fetch\n00010010no-progress\n000eofs-delta\n0012filter tree:0\n\
                 0032want {seven}\n0032have {three}\n0009done\n0000"
            )
        );
        let text = asked(&offer, Format::Sha256);
        assert!(text.starts_with("0012command=fetch\n0019object-format=sha256\n0001"));
    }

    #[test]
    fn before_version_2_what_has_a_name_is_asked_for() {
        let refs = |words: &str| {
            let line = |n: u8, name: &str| format!("{} {name}", id(n));
            let first = format!("{}\0{words} agent=git/1.8\n", line(1, "HEAD"));
            let service = lines(&[b"# service=git-upload-pack\n"]);
            let more = lines(&[
                first.as_bytes(),
                line(8, "refs/pull/1/head\n").as_bytes(),
                line(1, "refs/heads/main\n").as_bytes(),
                line(2, "refs/heads/x\n").as_bytes(),
                line(9, "refs/heads/y\n").as_bytes(),
                line(3, "refs/tags/v1\n").as_bytes(),
                line(4, "refs/tags/v1^{}\n").as_bytes(),
            ]);
            [&service, &b"0000"[..], &more, b"0000"].concat()
        };
        let known: Commits = [(id(9), [].into())].into();
        let wants = |words: &str, missing: &[Id]| {
            offered(&refs(words), missing, &known).map(|offer| offer.wants)
        };
        let band = "multi_ack side-band-64k ofs-delta";
        assert_eq!(wants(band, &[id(2)]), Ok(vec![id(2)]));
        // What has no name is looked for behind all that have, branches first.
        let all = vec![id(2), id(1), id(8), id(3)];
        assert_eq!(wants(band, &[id(2), id(7)]), Ok(all));
        for any in ["allow-any-sha1-in-want", "allow-reachable-sha1-in-want"] {
            assert_eq!(wants(&format!("{band} {any}"), &[id(7)]), Ok(vec![id(7)]));
        }
        assert!(wants("multi_ack", &[id(2)]).is_err(), "without bands");
        assert!(offered(b"<html>", &[id(2)], &known).is_err());
        let nothing = [&lines(&[b"# service=git-upload-pack\n"]), &b"0000"[..]].concat();
        assert!(offered(&nothing, &[id(2)], &known).is_err());

        let offer = offered(&refs(&format!("{band} filter")), &[id(1), id(2)], &known).unwrap();
        let text = String::from_utf8(offer.request(&[id(9)], Format::Sha256)).unwrap();
        let of = |n: u8| format!("{n:02x}").repeat(20);
        assert_eq!(
            text,
            format!(
                "0072want {} side-band-64k no-progress ofs-delta filter object-format=sha256\n0032want {}\n\
                 0012filter tree:0\n00000032have {}\n0009done\n",
                of(1),
                of(2),
                of(9)
            )
        );
    }

    #[test]
    fn the_pack_is_what_stands_in_the_first_band() {
        let heads: [&[&[u8]]; 3] = [
            &[b"packfile\n"],
            &[b"NAK\n"],
            &[
                b"ACK 0101010101010101010101010101010101010101 common\n",
                b"NAK\n",
            ],
        ];
        for head in heads {
            let answer = |end: &[u8]| {
                let bands = lines(&[b"\x01PA", b"\x02Counting", b"\x01CK"]);
                [&lines(head)[..], &bands, end].concat()
            };
            assert_eq!(packfile(answer(b"0000")), Ok(b"PACK".to_vec()));
            assert!(packfile(answer(b"")).is_err());
            assert!(packfile(answer(&lines(&[b"\x03died"]))).is_err());
            assert!(packfile(answer(&lines(&[b"more"]))).is_err());
        }
        assert!(packfile(lines(&[b"ERR upload-pack: not our ref"])).is_err());
        assert!(packfile(Vec::new()).is_err());
    }
}
