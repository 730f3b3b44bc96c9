use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use flate2::Compression;
use flate2::write::ZlibEncoder;

use super::*;

const TREE: &str = "4b825dc642cb6eb9a060e54bf8d69288fbee4904";

fn zlib(bytes: &[u8]) -> Vec<u8> {
    let mut to = ZlibEncoder::new(Vec::new(), Compression::default());
    to.write_all(bytes).unwrap();
    to.finish().unwrap()
}

/// Kind and size as they stand before an object.
fn head(kind: u8, mut size: u64) -> Vec<u8> {
    let mut out = vec![kind << 4 | u8::try_from(size & 15).unwrap()];
    size >>= 4;
    while size > 0 {
        *out.last_mut().unwrap() |= 0x80;
        out.push(u8::try_from(size & 0x7f).unwrap());
        size >>= 7;
    }
    out
}

fn object(kind: u8, bytes: &[u8]) -> Vec<u8> {
    let size = u64::try_from(bytes.len()).unwrap();
    [head(kind, size), zlib(bytes)].concat()
}

fn back(mut offset: usize) -> Vec<u8> {
    let mut out = vec![u8::try_from(offset & 0x7f).unwrap()];
    loop {
        offset >>= 7;
        if offset == 0 {
            break;
        }
        offset -= 1;
        out.insert(0, 0x80 | u8::try_from(offset & 0x7f).unwrap());
    }
    out
}

/// A delta against what stands so many bytes before it.
fn against_place(offset: usize, delta: &[u8]) -> Vec<u8> {
    let size = u64::try_from(delta.len()).unwrap();
    [head(6, size), back(offset), zlib(delta)].concat()
}

fn against_name(id: &str, delta: &[u8]) -> Vec<u8> {
    let size = u64::try_from(delta.len()).unwrap();
    let id: Vec<u8> = (0..id.len() / 2)
        .map(|at| u8::from_str_radix(&id[at * 2..at * 2 + 2], 16).unwrap())
        .collect();
    [head(7, size), id, zlib(delta)].concat()
}

fn number(mut number: usize) -> Vec<u8> {
    let mut out = Vec::new();
    loop {
        let low = u8::try_from(number & 0x7f).unwrap();
        number >>= 7;
        if number == 0 {
            out.push(low);
            return out;
        }
        out.push(low | 0x80);
    }
}

/// The sizes that a delta states, and its operations.
fn delta(from: usize, to: usize, operations: &[u8]) -> Vec<u8> {
    [number(from), number(to), operations.to_vec()].concat()
}

/// All of a base of less than 64 KiB, and then this.
fn more(base: &[u8], text: &[u8]) -> Vec<u8> {
    let [low, high] = u16::try_from(base.len()).unwrap().to_le_bytes();
    let length = u8::try_from(text.len()).unwrap();
    let operations = [&[0xb0, low, high, length][..], text].concat();
    delta(base.len(), base.len() + text.len(), &operations)
}

fn packed(count: usize, body: &[u8]) -> Vec<u8> {
    let count = u32::try_from(count).unwrap().to_be_bytes();
    signed([b"PACK\0\0\0\x02", &count[..], body].concat(), Format::Sha1)
}

fn signed(mut pack: Vec<u8>, format: Format) -> Vec<u8> {
    let sum = format.hash(&[&pack]).unwrap().to_string();
    let sum =
        (0..format.bytes()).map(|at| u8::from_str_radix(&sum[at * 2..at * 2 + 2], 16).unwrap());
    pack.extend(sum.collect::<Vec<u8>>());
    pack
}

fn pack(objects: &[Vec<u8>]) -> Vec<u8> {
    packed(objects.len(), &objects.concat())
}

fn commit(parents: &[&str], message: &str) -> Vec<u8> {
    let parents: String = parents.iter().map(|id| format!("parent {id}\n")).collect();
    format!("tree {TREE}\n{parents}author a <a> 0 +0000\n\n{message}").into_bytes()
}

fn name(commit: &[u8]) -> String {
    Format::Sha1.commit(commit).unwrap().to_string()
}

fn read_of(pack: &[u8], format: Format) -> Result<Commits, String> {
    let mut found = Commits::new();
    commits(pack, format, &mut found)?;
    Ok(found)
}

fn read(pack: &[u8]) -> Result<Commits, String> {
    read_of(pack, Format::Sha1)
}

/// Small ones, which show the same at less expense.
const SMALL: Bounds = Bounds {
    commit: 4096,
    unpacked: 1 << 20,
    live: 32 << 10,
    candidates: 500,
    commits: 450,
    parents: 2000,
};

fn read_small(pack: &[u8]) -> Result<Commits, String> {
    let mut found = Commits::new();
    within(SMALL, pack, Format::Sha1, &mut found)?;
    Ok(found)
}

#[track_caller]
fn refused(pack: &[u8], why: &str) {
    assert_eq!(read(pack).unwrap_err(), why);
}

fn git(at: &Path, words: &[&str], input: &[u8]) -> Vec<u8> {
    let mut git = Command::new("git");
    git.current_dir(at).args(words).env_clear();
    git.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    for key in [
        "GIT_AUTHOR_NAME",
        "GIT_AUTHOR_EMAIL",
        "GIT_COMMITTER_NAME",
        "GIT_COMMITTER_EMAIL",
    ] {
        git.env(key, "somebody");
    }
    git.env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_SYSTEM", "/dev/null");
    git.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut git = git.spawn().unwrap();
    git.stdin.take().unwrap().write_all(input).unwrap();
    let mut out = Vec::new();
    git.stdout.take().unwrap().read_to_end(&mut out).unwrap();
    assert!(git.wait().unwrap().success(), "{words:?}");
    out
}

/// What git makes is read as git reads it: branches and merges, deltas by place and by name, either hash.
#[test]
fn packs_of_git_are_read_as_git_reads_them() {
    for format in [Format::Sha1, Format::Sha256] {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path();
        let word = match format {
            Format::Sha1 => "--object-format=sha1",
            Format::Sha256 => "--object-format=sha256",
        };
        git(at, &["init", "--quiet", word, "."], b"");
        // Long messages that are nearly the same, so that commits are deltas of each other.
        let text: String = (0..90)
            .map(|n| format!("line {} of a message\n", n * n))
            .collect();
        let make = |n: usize| {
            let message = format!("{text}{n}\n");
            git(
                at,
                &["commit", "--quiet", "--allow-empty", "--file=-"],
                message.as_bytes(),
            );
        };
        (0..20).for_each(&make);
        git(at, &["checkout", "--quiet", "-b", "side", "HEAD~7"], b"");
        (20..30).for_each(&make);
        git(at, &["merge", "--quiet", "--no-edit", "-"], b"");
        std::fs::write(at.join("file"), &text).unwrap();
        git(at, &["add", "file"], b"");
        make(30);
        git(at, &["tag", "--annotate", "-m", "one", "v1"], b"");
        let listed = git(at, &["rev-list", "--all", "--parents"], b"");
        let line = |line: &str| {
            let mut ids = line.split(' ').map(|id| Id::parse(id).unwrap());
            (ids.next().unwrap(), ids.collect())
        };
        let wanted: Commits = std::str::from_utf8(&listed)
            .unwrap()
            .lines()
            .map(line)
            .collect();
        assert_eq!(wanted.len(), 32);
        for more in [
            &[][..],
            &["--delta-base-offset"],
            &["--delta-base-offset", "--thin"],
        ] {
            let words = [
                &["pack-objects", "--quiet", "--all", "--revs", "--stdout"],
                more,
            ]
            .concat();
            let pack = git(at, &words, b"");
            let deltas = reading::objects(&pack, format, &BOUNDS, &mut Left(1 << 30));
            assert!(
                deltas.unwrap().commits.len() < 20,
                "some commits are deltas"
            );
            assert_eq!(
                read_of(&pack, format),
                Ok(wanted.clone()),
                "{format:?} {more:?}"
            );
        }
        // Of what a push brings, one with a base that the other side has.
        let words = [
            "pack-objects",
            "--quiet",
            "--revs",
            "--stdout",
            "--thin",
            "--delta-base-offset",
        ];
        let pack = git(at, &words, b"HEAD\n^HEAD~2\n");
        let brought = read_of(&pack, format).unwrap();
        assert!(!brought.is_empty());
        assert!(
            brought
                .iter()
                .all(|(id, parents)| wanted.get(id) == Some(parents))
        );
    }
}

#[test]
fn what_is_no_whole_pack_is_refused() {
    let one = commit(&[], "one");
    let two = commit(&[&name(&one)], "two");
    let good = pack(&[object(1, &one), object(3, b"blob"), object(1, &two)]);
    assert_eq!(read(&good).unwrap().len(), 2, "the control");
    for length in 0..good.len() {
        assert!(read(&good[..length]).is_err(), "cut at {length}");
    }
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 1;
        assert!(read(&bad).is_err(), "another bit at {at}");
    }
    refused(
        &[&good[..], b"x"].concat(),
        "the pack does not end where it should",
    );
    let all = [object(1, &one), object(1, &two)].concat();
    assert_eq!(read(&packed(2, &all)).unwrap().len(), 2);
    refused(&packed(1, &all), "the pack does not end where it should");
    assert!(
        read(&packed(3, &all)).is_err(),
        "more are stated than there are"
    );
    refused(&packed(1_000_001, &all), "the pack has too many objects");
    refused(
        &packed(usize::try_from(u32::MAX).unwrap(), b""),
        "the pack has too many objects",
    );
    assert_eq!(read(&pack(&[])), Ok(Commits::new()), "none at all");
    let mut other = good.clone();
    other[7] = 4;
    refused(&other, "it does not begin like a pack");
    for kind in [0, 5] {
        refused(
            &pack(&[object(kind, &one)]),
            "the pack has an object of no known kind",
        );
    }
    let mut bad = good.clone();
    *bad.last_mut().unwrap() ^= 1;
    refused(&bad, "the pack's own checksum is another");
    assert!(read_of(&good, Format::Sha256).is_err(), "of the other hash");
}

#[test]
fn sizes_are_those_that_are_stated() {
    let wrong = "an object of the pack is not packed as it says";
    let one = commit(&[], "one");
    let length = u64::try_from(one.len()).unwrap();
    let stated = |kind: u8, size: u64| pack(&[[head(kind, size), zlib(&one)].concat()]);
    for kind in [1, 3] {
        assert!(read(&stated(kind, length)).is_ok(), "the control");
        for size in [0, length - 1, length + 1] {
            refused(&stated(kind, size), wrong);
        }
    }
    let much = "the pack unpacks to more than is looked into";
    for size in [BOUNDS.unpacked + 1, 1 << 40, (1 << 60) - 1] {
        refused(&stated(1, size), much);
        refused(&stated(3, size), much);
    }
    refused(
        &pack(&[[vec![0x9f], vec![0xff; 12], zlib(&one)].concat()]),
        "the pack breaks off",
    );
    // A bomb: its stated size is believed as far as it is unpacked, and counts beforehand.
    let bomb = object(3, &vec![0; 1 << 18]);
    assert!(bomb.len() < 500, "packed well");
    assert_eq!(
        read_small(&pack(&vec![bomb.clone(); 4])),
        Ok(Commits::new())
    );
    assert_eq!(read_small(&pack(&vec![bomb; 5])).unwrap_err(), much);
    let long = commit(&[], &"x".repeat(256 * 1024));
    refused(&pack(&[object(1, &long)]), "a commit is too long");
}

#[test]
fn deltas_are_applied_as_git_applies_them() {
    let one = commit(&[], "one");
    let base = object(1, &one);
    let two = [&one[..], b", two"].concat();
    let good = more(&one, b", two");
    let by_place = |delta: &[u8]| pack(&[base.clone(), against_place(base.len(), delta)]);
    let by_name = |delta: &[u8]| pack(&[against_name(&name(&one), delta), base.clone()]);
    for made in [by_place(&good), by_name(&good)] {
        let found = read(&made).unwrap();
        assert_eq!(found.len(), 2);
        assert!(found.contains_key(&Id::parse(&name(&two)).unwrap()));
    }
    let (from, to) = (one.len(), two.len());
    let short = u8::try_from(from).unwrap();
    for (what, bad) in [
        ("nothing", Vec::new()),
        ("sizes alone", delta(from, to, &[])),
        ("another base", delta(from + 1, to, &good[2..])),
        ("a longer result", delta(from, to + 1, &good[2..])),
        ("a shorter result", delta(from, to - 1, &good[2..])),
        ("a reserved operation", delta(from, from, &[0, 0x90, short])),
        (
            "a copy from behind the end",
            delta(from, 1, &[0x91, short, 1]),
        ),
        ("a copy over the end", delta(from, 2, &[0x91, short - 1, 2])),
        (
            "a copy from far behind",
            delta(from, 1, &[0x9f, 255, 255, 255, 255, 1]),
        ),
        (
            "a copy of much",
            delta(from, 0xff_ffff, &[0xf0, 255, 255, 255]),
        ),
        ("a copy that breaks off", delta(from, from, &[0xff, 0])),
        ("an insertion that breaks off", delta(from, 9, &[9, b'x'])),
        ("a size that does not end", vec![0xff; 12]),
        ("an enormous size", delta(from, usize::MAX >> 4, &good[2..])),
    ] {
        refused(&by_place(&bad), "a delta of the pack is broken");
        refused(&by_name(&bad), "a delta of the pack is broken");
        assert!(!what.is_empty());
    }
    refused(
        &by_place(&delta(from, 4, b"\x04oops")),
        "a commit has no proper head",
    );
}

#[test]
fn deltas_against_what_is_not_there_prove_nothing() {
    let one = commit(&[], "one");
    let base = object(1, &one);
    let only: Commits = [(Id::parse(&name(&one)).unwrap(), Box::default())].into();
    let good = more(&one, b"!");
    for (what, odd) in [
        ("a base that the pack lacks", against_name(TREE, &good)),
        (
            "the middle of an object",
            against_place(base.len() - 3, &good),
        ),
        (
            "the head of the pack",
            against_place(base.len() + 12, &good),
        ),
    ] {
        assert_eq!(
            read(&pack(&[base.clone(), odd])),
            Ok(only.clone()),
            "{what}"
        );
    }
    for far in [base.len() + 13, 1 << 20, 1 << 40] {
        refused(
            &pack(&[base.clone(), against_place(far, &good)]),
            "the pack breaks off",
        );
    }
    refused(
        &pack(&[base.clone(), against_place(0, &good)]),
        "the pack breaks off",
    );
    let endless = [vec![0x61], vec![0xff; 12]].concat();
    refused(&pack(&[base.clone(), endless]), "the pack breaks off");
    // A delta against a blob is none of a commit, whatever it makes.
    let blob = object(3, &one);
    let made = pack(&[blob.clone(), against_place(blob.len(), &more(&one, b"!"))]);
    assert_eq!(read(&made), Ok(Commits::new()));
}

#[test]
fn what_is_there_many_times_is_worked_at_once() {
    let one = commit(&[], "one");
    let base = object(1, &one);
    let only: Commits = [(Id::parse(&name(&one)).unwrap(), Box::default())].into();
    // A delta that makes its own base, by its name: no end, if it were followed.
    let [low, high] = u16::try_from(one.len()).unwrap().to_le_bytes();
    let itself = delta(one.len(), one.len(), &[0xb0, low, high]);
    let circle = against_name(&name(&one), &itself);
    assert_eq!(
        read(&pack(&[base.clone(), circle.clone()])),
        Ok(only.clone())
    );
    // Many copies and many deltas against them: a sum and no product.
    let mut all = vec![base.clone(); 3000];
    all.extend(vec![circle; 3000]);
    assert_eq!(read(&pack(&all)), Ok(only));
    // Two that are against each other have no beginning.
    let two = [&one[..], b"!"].concat();
    let forth = against_name(&name(&one), &more(&one, b"!"));
    let back = delta(two.len(), one.len(), &[0xb0, low, high]);
    let round = [forth, against_name(&name(&two), &back)];
    assert_eq!(read(&pack(&round)), Ok(Commits::new()));
    assert_eq!(
        read(&pack(&[&round[..], &[base]].concat())).unwrap().len(),
        2
    );
}

#[test]
fn what_deltas_make_is_bounded() {
    let mut one = commit(&[], "");
    one.resize(1000, b'x');
    let base = object(1, &one);
    // Few bytes that make many commits of many bytes.
    let whole = [0xb0, 0xe8, 0x03];
    let wide = |count: usize| {
        let mut body = base.clone();
        for n in 0..count {
            let [low, high] = u16::try_from(n).unwrap().to_le_bytes();
            let operations = [&whole[..], &whole, &whole, &[2, low, high]].concat();
            body.extend(against_place(body.len(), &delta(1000, 3002, &operations)));
        }
        packed(count + 1, &body)
    };
    assert_eq!(read_small(&wide(300)).unwrap().len(), 301);
    let bomb = wide(400);
    assert!(bomb.len() < 20_000, "{}", bomb.len());
    let much = "the pack unpacks to more than is looked into";
    assert_eq!(read_small(&bomb).unwrap_err(), much);
    assert_eq!(read(&bomb).unwrap().len(), 401, "the bound alone");
    // Each the base of the next.
    let deep = |count: usize| {
        let mut body = base.clone();
        let (mut before, mut length) = (body.len(), 1000_usize);
        for _ in 0..count {
            let [low, high] = u16::try_from(length).unwrap().to_le_bytes();
            let of = delta(length, length + 1, &[0xb0, low, high, 1, b'!']);
            let of = against_place(before, &of);
            before = of.len();
            body.extend(of);
            length += 1;
        }
        packed(count + 1, &body)
    };
    assert_eq!(read_small(&deep(20)).unwrap().len(), 21);
    let many = "too many deltas of the pack build on each other";
    assert_eq!(read_small(&deep(40)).unwrap_err(), many);
    assert_eq!(read(&deep(40)).unwrap().len(), 41, "the bound alone");
    // Few bytes that name many parents.
    let parents = [TREE; 80];
    let many = |count: usize| {
        let of = |n: usize| object(1, &commit(&parents, &n.to_string()));
        pack(&(0..count).map(of).collect::<Vec<_>>())
    };
    assert_eq!(read_small(&many(25)).unwrap().len(), 25);
    let problem = "the repository has more commits than are kept";
    assert_eq!(read_small(&many(26)).unwrap_err(), problem);
    // Commits, and what may be some.
    let roots = |count: usize| {
        let of = |n: usize| object(1, &commit(&[], &n.to_string()));
        pack(&(0..count).map(of).collect::<Vec<_>>())
    };
    assert_eq!(read_small(&roots(450)).unwrap().len(), 450);
    assert_eq!(read_small(&roots(451)).unwrap_err(), problem);
    assert_eq!(read(&roots(451)).unwrap().len(), 451, "the bound alone");
    let thin = |count: usize| pack(&vec![against_name(TREE, &delta(9, 9, &[0x90, 9])); count]);
    assert_eq!(read_small(&thin(500)), Ok(Commits::new()));
    let problem = "the pack has too many commits and deltas";
    assert_eq!(read_small(&thin(501)).unwrap_err(), problem);
    assert_eq!(read(&thin(501)), Ok(Commits::new()), "the bound alone");
    // Those against a blob are none of them.
    let blob = object(3, &one);
    let mut body = blob.clone();
    for _ in 0..600 {
        body.extend(against_place(body.len(), &delta(one.len(), 9, &[0x90, 9])));
    }
    assert_eq!(read_small(&packed(601, &body)), Ok(Commits::new()));
    // One that is too long for itself.
    let of = delta(1000, 5000, &[whole, whole, whole, whole, whole].concat());
    let long = pack(&[base.clone(), against_place(base.len(), &of)]);
    assert_eq!(
        read_small(&long).unwrap_err(),
        "a delta of the pack is broken"
    );
    assert_eq!(read(&long).unwrap().len(), 2, "the bound alone");
}

/// What was known before counts as well, and deltas against it are applied all the same.
#[test]
fn a_pack_adds_to_what_is_known() {
    let (one, other) = (commit(&[], "one"), commit(&[], "other"));
    let mut known = Commits::new();
    commits(&pack(&[object(1, &one)]), Format::Sha1, &mut known).unwrap();
    let next = pack(&[
        object(1, &one),
        against_name(&name(&one), &more(&one, b"!")),
    ]);
    commits(&next, Format::Sha1, &mut known).unwrap();
    assert_eq!(known.len(), 2);
    let full = Bounds {
        commits: 2,
        ..SMALL
    };
    let again = within(full, &next, Format::Sha1, &mut known);
    assert_eq!(again, Ok(()), "there is nothing new");
    let much = pack(&[object(1, &other)]);
    let problem = within(full, &much, Format::Sha1, &mut known).unwrap_err();
    assert_eq!(problem, "the repository has more commits than are kept");
    assert_eq!(known.len(), 2);
}

#[test]
fn the_head_of_a_commit_is_read_as_git_reads_it() {
    let id = |n: u8| format!("{n:02x}").repeat(20);
    let parents_of = |text: &str| {
        let found = read(&pack(&[object(1, text.as_bytes())]))?;
        let parents = found.into_values().next().unwrap_or_default();
        Ok::<_, String>(parents.iter().map(Id::to_string).collect::<Vec<_>>())
    };
    let (one, two) = (id(1), id(2));
    let tree = format!("tree {TREE}\n");
    let two_of = format!("{tree}parent {one}\nparent {two}\nauthor a\n\n");
    assert_eq!(parents_of(&two_of), Ok(vec![one.clone(), two.clone()]));
    for later in [
        format!("{tree}parent {one}\nauthor a\nparent {two}\n\n"),
        format!("{tree}parent {one}\nauthor a\n\nparent {two}\n"),
        format!("{tree}parent {one}\n parent {two}\n\n"),
        format!("{tree}parent {one}\nParent {two}\n\n"),
    ] {
        assert_eq!(parents_of(&later), Ok(vec![one.clone()]), "{later}");
    }
    for bad in [
        format!("parent {one}\n{tree}\n"),
        format!("{tree}parent {one} \nauthor\n"),
        format!("{tree}parent {}\nauthor\n", &one[1..]),
        format!("{tree}parent  {}\nauthor\n", &one[1..]),
        format!("{tree}parent {}\nauthor\n", "z".repeat(40)),
        format!("{tree}parent {one}\r\nauthor\n"),
        format!("{tree}parent {}\nauthor\n", "ab".repeat(32)),
        format!("{tree}parent {one}"),
        String::new(),
    ] {
        assert_eq!(
            parents_of(&bad).unwrap_err(),
            "a commit has no proper head",
            "{bad}"
        );
    }
}
