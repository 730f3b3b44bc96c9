//! Which uids this process can tell apart.
//!
//! In a user namespace of its own (a unit with `PrivateUsers=`, say) the kernel answers 65534 for
//! everybody it does not map, and a gate that judges uids would judge nobody. What is mapped is
//! read once, and a uid outside of it is refused where it is configured, not where it is met.

/// The uids that the kernel can name to this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VisibleUids {
    ranges: Vec<(u64, u64)>,
}

impl VisibleUids {
    /// What `/proc/self/uid_map` says.
    ///
    /// # Errors
    /// What the system said about the file.
    pub fn read() -> std::io::Result<Self> {
        Ok(Self::parse(&std::fs::read_to_string("/proc/self/uid_map")?))
    }

    /// Lines of `FIRST OUTSIDE COUNT`.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let ranges = text
            .lines()
            .filter_map(|line| {
                let mut fields = line.split_whitespace();
                let first: u64 = fields.next()?.parse().ok()?;
                let count: u64 = fields.nth(1)?.parse().ok()?;
                Some((first, first + count))
            })
            .collect();
        Self { ranges }
    }

    /// Whether every one of `count` uids from `first` can be told apart.
    #[must_use]
    pub fn cover(&self, first: u32, count: u32) -> bool {
        let (mut at, end) = (u64::from(first), u64::from(first) + u64::from(count));
        // Ranges are few and may lie in any order: go on from wherever one ends.
        while at < end {
            match self
                .ranges
                .iter()
                .find(|(from, to)| (*from..*to).contains(&at))
            {
                Some((_, to)) => at = *to,
                None => return false,
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_map_covers_everybody() {
        let all = VisibleUids::parse("         0          0 4294967295\n");
        assert!(all.cover(0, 1) && all.cover(100_000, 65_536));
        assert!(
            VisibleUids::read()
                .unwrap()
                .cover(nix::unistd::Uid::current().as_raw(), 1)
        );
    }

    #[test]
    fn a_map_with_holes_covers_what_it_names() {
        let map = VisibleUids::parse("0 100000 1000\n2000 200000 10\n1000 300000 1000\n");
        assert!(map.cover(0, 2010), "three ranges side by side");
        assert!(!map.cover(0, 2011) && !map.cover(2010, 1) && !map.cover(65_534, 1));
        assert!(!VisibleUids::parse("").cover(0, 1));
        assert!(!VisibleUids::parse("nonsense").cover(0, 1));
    }
}
