//! What systemd starts and after what, as it says itself: a boot cannot be tried on a machine that is at work.

use super::Run;
use super::local::not_applicable;
use crate::process::Call;
use crate::prove::verdict::{Judged, Status, none_of};

/// Of these units (`{}` is the instance's name) this property names that one.
const WANTED: [(&str, &str, &str, &str); 8] = [
    (
        "{}-proxy.service",
        "Requires",
        "{}-boundary-proof.service",
        "starts without a proven boundary",
    ),
    (
        "{}-proxy.service",
        "After",
        "{}-boundary-proof.service",
        "does not wait for the proof",
    ),
    (
        "{}-orchestrator.service",
        "Requires",
        "{}-boundary-proof.service",
        "starts without a proven boundary",
    ),
    (
        "{}-orchestrator.service",
        "After",
        "{}-boundary-proof.service",
        "does not wait for the proof",
    ),
    (
        "{}-boundary-proof.service",
        "After",
        "{}-boundary.service",
        "looks before the rules are loaded",
    ),
    (
        "{}-boundary.service",
        "Before",
        "network-pre.target",
        "does not come before the network",
    ),
    (
        "{}-boundary.service",
        "Before",
        "sysinit.target",
        "does not come before what starts agents",
    ),
    (
        "{}-boundary.service",
        "UnitFileState",
        "enabled",
        "is not started at boot",
    ),
];
const PROPERTIES: &str = "--property=Id,Requires,After,Before,UnitFileState";
/// A unit of systemd's own, which requires no proof of ours.
const OTHER: &str = "sysinit.target";

impl Run<'_> {
    pub(super) fn boot_order(&self) -> Judged {
        let Some(instance) = &self.subject.instance else {
            return not_applicable("no instance of Portcullis is here");
        };
        if !self.subject.by_systemd {
            return not_applicable("systemd does not start it here");
        }
        let name = instance.layout.name();
        let mut units: Vec<String> = WANTED.map(|(unit, ..)| unit.replace("{}", name)).to_vec();
        units.dedup();
        units.push(OTHER.to_owned());
        let shown = Call::new("systemctl")
            .args(["show", PROPERTIES])
            .args(units)
            .run();
        match shown {
            Ok(text) => judged(&text, name),
            Err(error) => (Status::CouldNotTell, crate::output::chain(&error)),
        }
    }
}

fn judged(text: &str, name: &str) -> Judged {
    let missing: Vec<String> = WANTED
        .iter()
        .map(|wanted| (wanted.0.replace("{}", name), wanted))
        .filter(|(unit, (_, property, other, _))| {
            !says(text, unit, property, &other.replace("{}", name))
        })
        .map(|(unit, (_, property, other, what))| {
            let other = other.replace("{}", name);
            format!("{unit} {what} (its {property}= lacks {other})")
        })
        .collect();
    // The same look has to see that a unit requires nothing of the kind.
    let proof = WANTED[0].2.replace("{}", name);
    let is_there = says(text, OTHER, "Id", OTHER);
    if missing.is_empty() && (!is_there || says(text, OTHER, "Requires", &proof)) {
        let text = format!("systemd does not tell {OTHER} from what requires the proof");
        return (Status::CouldNotTell, text);
    }
    let good = format!(
        "{} dependencies are as they must be; control: {OTHER} has none of them",
        WANTED.len()
    );
    none_of(&missing, good, "at boot")
}

/// Whether that property of that unit names `other`, in what `systemctl show` prints: a block of lines for each unit.
fn says(text: &str, unit: &str, property: &str, other: &str) -> bool {
    let id = format!("Id={unit}");
    let mut blocks = text.split("\n\n");
    let Some(block) = blocks.find(|block| block.lines().any(|line| line == id)) else {
        return false;
    };
    block
        .lines()
        .filter_map(|line| line.strip_prefix(property)?.strip_prefix('='))
        .any(|names| names.split(' ').any(|name| name == other))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "Id=p-proxy.service\nRequires=system.slice p-boundary-proof.service\nAfter=p-boundary-proof.service\n\n\
        Id=p-orchestrator.service\nRequires=p-boundary-proof.service\nAfter=a p-boundary-proof.service b\n\n\
        Id=p-boundary-proof.service\nAfter=p-boundary.service\n\n\
        Id=p-boundary.service\nBefore=sysinit.target network-pre.target\nUnitFileState=enabled\n\n\
        Id=sysinit.target\nRequires=\nAfter=local-fs.target\n";

    #[test]
    fn each_dependency_that_is_missing_is_named() {
        assert_eq!(
            judged(GOOD, "p").0,
            Status::Holds,
            "{}",
            judged(GOOD, "p").1
        );
        for (from, to, says) in [
            (
                "system.slice p-boundary-proof.service",
                "system.slice",
                "p-proxy.service starts without",
            ),
            (
                "a p-boundary-proof.service b",
                "a b",
                "p-orchestrator.service does not wait",
            ),
            (
                "After=p-boundary.service",
                "After=",
                "looks before the rules",
            ),
            (
                "sysinit.target network-pre.target",
                "sysinit.target",
                "before the network",
            ),
            ("=enabled", "=disabled", "not started at boot"),
            (
                "Id=p-proxy.service",
                "Id=q-proxy.service",
                "p-proxy.service starts without",
            ),
            // A unit of a like name is another.
            (
                "After=p-boundary.service",
                "After=p-boundary.service.d",
                "looks before the rules",
            ),
        ] {
            let (status, saw) = judged(&GOOD.replacen(from, to, 1), "p");
            assert_eq!(status, Status::Broken, "{from}");
            assert!(saw.contains(says), "{saw}");
        }
    }

    #[test]
    fn without_a_unit_that_has_none_of_it_nothing_is_told() {
        for (from, to) in [
            ("Id=sysinit.target", "Id=other.target"),
            ("Requires=\n", "Requires=p-boundary-proof.service\n"),
        ] {
            let (status, saw) = judged(&GOOD.replacen(from, to, 1), "p");
            assert_eq!(status, Status::CouldNotTell, "{from}: {saw}");
        }
    }
}
