//! Whatever somebody does to a byte or a line of a log is found, in files of any form.

use proptest::prelude::*;

use super::*;

/// What somebody may do to a file.
#[derive(Debug, Clone)]
enum Mutation {
    Change(usize, u8),
    Remove(usize),
    Insert(usize, u8),
    SwapBytes(usize, usize),
    RemoveLine(usize),
    RepeatLine(usize),
    SwapLines(usize, usize),
    /// To another file.
    MoveLine(usize, usize),
    /// Two files in each other's place.
    SwapFiles,
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let at = any::<u32>().prop_map(|at| usize::try_from(at).unwrap());
    let two = (at.clone(), at.clone());
    prop_oneof![
        4 => (at.clone(), 1..=255_u8).prop_map(|(at, by)| Mutation::Change(at, by)),
        4 => at.clone().prop_map(Mutation::Remove),
        4 => (at.clone(), any::<u8>()).prop_map(|(at, byte)| Mutation::Insert(at, byte)),
        3 => two.clone().prop_map(|(a, b)| Mutation::SwapBytes(a, b)),
        1 => at.clone().prop_map(|a| Mutation::SwapBytes(a, a.wrapping_add(1))),
        1 => at.clone().prop_map(Mutation::RemoveLine),
        1 => at.clone().prop_map(Mutation::RepeatLine),
        2 => two.clone().prop_map(|(a, b)| Mutation::SwapLines(a, b)),
        1 => two.prop_map(|(a, b)| Mutation::MoveLine(a, b)),
        1 => Just(Mutation::SwapFiles),
    ]
}

impl Mutation {
    /// The two files as they are afterwards; they may be one and the same, which is `text` then.
    fn apply(&self, text: &[u8], other: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let (mut bytes, mut there) = (text.to_vec(), other.to_vec());
        let split = |text: &[u8]| -> Vec<Vec<u8>> {
            text.split_inclusive(|byte| *byte == b'\n')
                .map(<[u8]>::to_vec)
                .collect()
        };
        let mut lines = split(text);
        let count = lines.len();
        match *self {
            Self::Change(at, by) => bytes[at % text.len()] ^= by,
            Self::Remove(at) => drop(bytes.remove(at % text.len())),
            Self::Insert(at, byte) => bytes.insert(at % (text.len() + 1), byte),
            Self::SwapBytes(a, b) => bytes.swap(a % text.len(), b % text.len()),
            Self::RemoveLine(at) => {
                lines.remove(at % count);
                bytes = lines.concat();
            }
            Self::RepeatLine(at) => {
                lines.insert(at % count, lines[at % count].clone());
                bytes = lines.concat();
            }
            Self::SwapLines(a, b) => {
                lines.swap(a % count, b % count);
                bytes = lines.concat();
            }
            Self::MoveLine(from, to) => {
                let mut others = split(other);
                others.insert(to % (others.len() + 1), lines.remove(from % count));
                (bytes, there) = (lines.concat(), others.concat());
            }
            Self::SwapFiles => std::mem::swap(&mut bytes, &mut there),
        }
        (bytes, there)
    }
}

/// The bytes of all files, one behind the other.
fn whole(segments: &[Segment]) -> Vec<u8> {
    let read = |file: &Segment| std::fs::read(&file.path).unwrap();
    segments.iter().flat_map(read).collect()
}

/// What is checked: the chain alone, or the signatures of a key too.
fn is_intact(folder: &Path, key: Option<&crate::openpgp::PublicKey>) -> Report {
    let judge =
        key.map(|key| move |text: &str, signature: &str| signing::judge(key, text, signature));
    let arguments = Check {
        key: judge.as_ref().map(|judge| judge as &Judge<'_>),
        ..Check::default()
    };
    verify(&segment::list(folder).unwrap(), &arguments).unwrap()
}

/// A closed log of several files; with `packed`, all but the last are compressed.
fn prepared(
    folder: &Path,
    starts: usize,
    lines: usize,
    bytes: u64,
    key: Option<&Path>,
    packed: bool,
) {
    for start in 0..starts {
        let settings = Settings {
            segment_bytes: bytes,
            checkpoint_records: 7,
            compress_after: if packed {
                Duration::ZERO
            } else {
                Duration::MAX
            },
            signer: key.map(|key| std::sync::Arc::new(signing::Signer::load(key).unwrap())),
            ..Settings::default()
        };
        let audit = Audit::open_with(folder, settings).unwrap();
        fill(&audit, start, lines);
        // A file that became full with these is closed before this one is on the disk.
        fill(&audit, 100 + start, 1);
        let deadline = std::time::Instant::now() + Duration::from_secs(30);
        let pending = || {
            let files = segment::list(folder).unwrap();
            let waits = |file: &Segment| !file.is_open() && !file.is_compressed();
            packed && files.iter().any(waits)
        };
        while pending() {
            assert!(std::time::Instant::now() < deadline, "it is not compressed");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn any_single_change_to_any_log_is_found(
        starts in 1..3_usize,
        lines in 1..12_usize,
        bytes in prop_oneof![Just(2048_u64), Just(u64::MAX)],
        signed in any::<bool>(),
        packed in any::<bool>(),
        mutations in proptest::collection::vec((any::<u32>(), any::<u32>(), mutation()), 60),
    ) {
        let (keep, folder) = log();
        let (_, public) = signer(keep.path());
        let (secret, key) = (keep.path().join("audit.key"), crate::openpgp::PublicKey::load(&public).unwrap());
        let (secret, key) = if signed { (Some(secret.as_path()), Some(&key)) } else { (None, None) };
        prepared(&folder, starts, lines, bytes, secret, packed);
        let report = is_intact(&folder, key);
        prop_assert!(report.intact, "control: {report}");
        prop_assert!(report.notes.is_empty(), "control: {report}");
        let segments: Vec<Segment> = segment::list(&folder).unwrap();
        let before = whole(&segments);
        for (one, two, mutation) in mutations {
            let pick = |which: u32| &segments[usize::try_from(which).unwrap() % segments.len()].path;
            let (file, other) = (pick(one), pick(two));
            let (text, beside) = (std::fs::read(file).unwrap(), std::fs::read(other).unwrap());
            if text.is_empty() {
                continue;
            }
            let (changed, there) = mutation.apply(&text, &beside);
            if changed == text || (file == other && there != beside) {
                continue;
            }
            // Of one file and itself, the first counts.
            std::fs::write(other, &there).unwrap();
            std::fs::write(file, &changed).unwrap();
            let report = is_intact(&folder, key);
            // The last file has no name that says with which line it begins: a line that goes over its border
            // and stays where it was among the others is no change of the log.
            let last = &segments[segments.len() - 1].path;
            let same = (file == last || other == last) && whole(&segments) == before;
            prop_assert!(!report.intact || same, "{mutation:?} in {}: {report}", file.display());
            std::fs::write(file, &text).unwrap();
            std::fs::write(other, &beside).unwrap();
        }
    }
}

/// Not a sample: each bit, each byte left out, each byte twice, of a log that is signed, over a compressed
/// file, a closed one and the last one.
#[test]
fn each_bit_of_a_signed_log_counts_in_files_of_every_form() {
    let (keep, folder) = log();
    let (_, public) = signer(keep.path());
    let key = crate::openpgp::PublicKey::load(&public).unwrap();
    let secret = keep.path().join("audit.key");
    prepared(&folder, 1, 4, 1024, Some(&secret), true);
    prepared(&folder, 1, 2, 1024, Some(&secret), false);
    let segments = segment::list(&folder).unwrap();
    let packed = segments.iter().filter(|file| file.is_compressed()).count();
    assert!(packed > 0 && packed + 1 < segments.len(), "{segments:?}");
    assert!(is_intact(&folder, Some(&key)).intact, "control");
    // Signatures take long; what the chain alone finds is found with them too.
    let found = |file: &Path, bytes: &[u8], what: &str, at: usize| {
        std::fs::write(file, bytes).unwrap();
        assert!(!check(&folder).intact, "{what} {at} of {}", file.display());
    };
    let of_each_form = [
        segments.iter().find(|file| file.is_compressed()),
        segments.iter().find(|file| !file.is_compressed()),
        segments.last(),
    ];
    for segment in of_each_form.into_iter().flatten() {
        let text = std::fs::read(&segment.path).unwrap();
        for at in 0..text.len() {
            let mut changed = text.clone();
            changed[at] ^= 1 << (at % 8);
            found(&segment.path, &changed, "a bit of byte", at);
            if at % 7 == 0 {
                let mut changed = text.clone();
                changed.remove(at);
                found(&segment.path, &changed, "without byte", at);
                changed = text.clone();
                changed.insert(at, b' ');
                found(&segment.path, &changed, "more before byte", at);
            }
        }
        std::fs::write(&segment.path, text).unwrap();
    }
    assert!(is_intact(&folder, Some(&key)).intact, "control");
}

/// A window that another encoder would have asked for gives the same lines.
#[test]
fn a_compressed_file_made_anew_of_the_same_lines_is_another_file() {
    let (_keep, folder) = log();
    prepared(&folder, 1, 30, 2048, None, true);
    let file = segment::list(&folder).unwrap()[0].path.clone();
    let packed = std::fs::read(&file).unwrap();
    let lines = zstd::decode_all(packed.as_slice()).unwrap();
    for (what, bytes) in [
        (
            "another level",
            zstd::encode_all(lines.as_slice(), 19).unwrap(),
        ),
        // A frame that decoders skip.
        (
            "more behind",
            [&packed[..], b"\x50\x2a\x4d\x18\x01\0\0\0x"].concat(),
        ),
        (
            "an empty frame",
            [&packed[..], &zstd::encode_all(&b""[..], 1).unwrap()].concat(),
        ),
    ] {
        assert_eq!(zstd::decode_all(bytes.as_slice()).unwrap(), lines, "{what}");
        std::fs::write(&file, bytes).unwrap();
        let report = check(&folder);
        assert!(!report.intact, "{what}: {report}");
        assert!(
            report.findings[0].problem.contains("its bytes are others"),
            "{report}"
        );
    }
    std::fs::write(&file, packed).unwrap();
    assert!(check(&folder).intact, "control");
}

/// A line over the border between two files, and a closed file of which nothing is left.
#[test]
fn a_line_that_left_its_file_is_found_by_the_files_names() {
    let (_keep, folder) = log();
    prepared(&folder, 1, 12, 1024, None, false);
    let segments = segment::list(&folder).unwrap();
    assert!(segments.len() > 3, "{segments:?}");
    let lines = |at: usize| -> Vec<Vec<u8>> {
        let text = std::fs::read(&segments[at].path).unwrap();
        text.split_inclusive(|byte| *byte == b'\n')
            .map(<[u8]>::to_vec)
            .collect()
    };
    let (first, second) = (lines(0), lines(1));
    let write =
        |at: usize, lines: &[Vec<u8>]| std::fs::write(&segments[at].path, lines.concat()).unwrap();
    let over = |back: usize| {
        let (mut one, mut two) = (first.clone(), second.clone());
        one.extend(two.drain(..back));
        write(0, &one);
        write(1, &two);
        check(&folder)
    };
    assert!(over(0).intact, "control");
    for back in 1..=second.len() {
        let report = over(back);
        assert!(!report.intact, "{back} of {}: {report}", second.len());
    }
}
