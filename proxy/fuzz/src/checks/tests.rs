use std::collections::BTreeSet;
use std::path::Path;

type Check = fn(&[u8]);

const CHECKS: [(&str, Check); 19] = [
    ("audit", super::audit),
    ("authority", super::authority),
    ("control", super::control),
    ("dns", super::dns),
    ("frames", super::frames),
    ("graphql", super::graphql),
    ("head", super::head),
    ("hello", super::hello),
    ("history", super::history),
    ("path", super::path),
    ("peek", super::peek),
    ("policy", super::policy),
    ("proxmox", super::proxmox),
    ("receive_pack", super::receive_pack),
    ("scrub", super::scrub),
    ("store", super::store),
    ("strip", super::strip),
    ("token", super::token),
    ("usage", super::usage),
];

fn names(folder: &Path) -> BTreeSet<String> {
    std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

/// What a fuzzer has found once is looked at on every change, without a fuzzer.
#[test]
fn what_holds_of_every_parser_holds_of_the_corpus() {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz");
    for (name, check) in CHECKS {
        let folder = fuzz.join("corpus").join(name);
        let seeds = names(&folder);
        assert!(!seeds.is_empty(), "{name} has no corpus");
        for seed in seeds {
            let bytes = std::fs::read(folder.join(&seed)).unwrap();
            let held = std::panic::catch_unwind(|| check(&bytes));
            assert!(held.is_ok(), "corpus/{name}/{seed}");
            // Nearly the same must hold as well: the beginnings, and single bytes changed.
            for at in 0..bytes.len().min(512) {
                let mut near = bytes.clone();
                near[at] = near[at].wrapping_add(1);
                for near in [&near, &bytes[..at]] {
                    let held = std::panic::catch_unwind(|| check(near));
                    assert!(held.is_ok(), "corpus/{name}/{seed} cut or changed at {at}");
                }
            }
        }
    }
}

#[test]
fn every_check_has_a_fuzz_target_and_a_corpus() {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz");
    let mut expected: BTreeSet<String> = CHECKS.map(|(name, _)| name.to_owned()).into();
    // The relay's end of DNS belongs to another room; the fuzzer alone looks at both.
    expected.insert("relay_dns".to_owned());
    assert_eq!(names(&fuzz.join("corpus")), expected);
    let targets = names(&fuzz.join("targets"));
    let targets: BTreeSet<_> = targets
        .iter()
        .filter_map(|file| file.strip_suffix(".rs"))
        .map(str::to_owned)
        .collect();
    assert_eq!(targets, expected);
    let manifest = std::fs::read_to_string(fuzz.join("Cargo.toml")).unwrap();
    for name in expected {
        let bin = format!("[[bin]]\nname = \"{name}\"\n");
        assert!(manifest.contains(&bin), "{name} is not built");
    }
}
