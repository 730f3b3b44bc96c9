//! Capabilities that a process has in its hands, as its status tells.

/// Sets of capabilities that a thread can use or hand on, and the one that only bounds them.
const SETS: [(&str, &str); 5] = [
    ("effective", "CapEff:"),
    ("permitted", "CapPrm:"),
    ("inheritable", "CapInh:"),
    ("ambient", "CapAmb:"),
    (BOUNDING, "CapBnd:"),
];
const BOUNDING: &str = "bounding";
/// As many as fit into the kernel's sets.
const CAPABILITIES: u8 = 64;

/// Each capability of a `/proc/PID/status` with the sets that it is in, `CAP_NET_RAW (effective, permitted)`. None that only the
/// bounding set has: it is nobody's yet, and only a file could give it.
#[must_use]
pub fn held(status: &str) -> Vec<String> {
    let sets = SETS.map(|(name, key)| {
        let line = status.lines().find_map(|line| line.strip_prefix(key));
        let bits = line.and_then(|text| u64::from_str_radix(text.trim(), 16).ok());
        (name, bits.unwrap_or_default())
    });
    let of_one = |number: u8| {
        let within = sets.iter().filter(|(_, bits)| bits >> number & 1 == 1);
        let within: Vec<&str> = within.map(|(name, _)| *name).collect();
        let usable = within.iter().any(|name| *name != BOUNDING);
        usable.then(|| format!("{} ({})", name_of(number), within.join(", ")))
    };
    (0..CAPABILITIES).filter_map(of_one).collect()
}

fn name_of(number: u8) -> String {
    let known = caps::all()
        .into_iter()
        .find(|known| known.index() == number);
    known.map_or_else(|| format!("capability {number}"), |known| known.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capability_in_any_set_that_can_be_used_counts() {
        let raw = "0000000000002000";
        for (set, key) in &SETS[..4] {
            let named = [format!("CAP_NET_RAW ({set})")];
            assert_eq!(held(&format!("Name:\tx\n{key}\t{raw}\n")), named, "{set}");
        }
        let both = format!("CapPrm:\t{raw}\nCapEff:\t{raw}\nCapBnd:\t000001ffffffffff\n");
        assert_eq!(
            held(&both),
            ["CAP_NET_RAW (effective, permitted, bounding)"]
        );
        assert_eq!(
            held("CapAmb:\t8000000000000000\n"),
            ["capability 63 (ambient)"]
        );
        // Controls: what the bounding set keeps nobody has; and there are none.
        assert_eq!(held("CapBnd:\t000001ffffffffff\n"), [""; 0]);
        assert_eq!(held("CapPrm:\t0000000000000000\n"), [""; 0]);
    }
}
