//! Which address stands for which name. An address is given once and never to a second name, as
//! long as the gate runs; an asker gets so many new ones and no more.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::Arc;

/// New addresses for one asker.
const FOR_ONE: usize = 4096;
/// Addresses of 198.18.0.0/15 (RFC 2544: for tests of devices, never routed) but the first and last.
const ALL: usize = 131_070;
const BASE: u32 = 0xc612_0001;

/// Names and the addresses given to them.
#[derive(Debug, Default)]
pub(super) struct Addresses {
    given: HashMap<String, Ipv4Addr>,
    by_asker: HashMap<Arc<str>, usize>,
}

impl Addresses {
    /// The address of a name, which is a new one for a new name; `None` when there are no more.
    pub(super) fn of(&mut self, name: &str, asker: &Arc<str>) -> Option<Ipv4Addr> {
        if let Some(address) = self.given.get(name) {
            return Some(*address);
        }
        let count = self.by_asker.entry(Arc::clone(asker)).or_insert(0);
        if *count >= FOR_ONE || self.given.len() >= ALL {
            return None;
        }
        let index = u32::try_from(self.given.len()).ok()?;
        let address = Ipv4Addr::from_bits(BASE.checked_add(index)?);
        *count += 1;
        self.given.insert(name.to_owned(), address);
        Some(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_address_serves_a_second_name_and_one_asker_cannot_use_them_up() {
        let mut addresses = Addresses::default();
        let (one, two) = (Arc::from("uid:1"), Arc::from("uid:2"));
        let mut seen = std::collections::HashSet::new();
        for at in 0..FOR_ONE {
            let address = addresses.of(&format!("h{at}.example"), &one).unwrap();
            assert!(seen.insert(address));
            assert!(
                matches!(address.octets(), [198, 18 | 19, _, _]),
                "{address}"
            );
        }
        assert_eq!(addresses.of("more.example", &one), None);
        let known = addresses.of("h0.example", &one);
        assert_eq!(known, Some(Ipv4Addr::new(198, 18, 0, 1)), "control");
        assert!(addresses.of("more.example", &two).is_some(), "control");
        let last = Ipv4Addr::from_bits(BASE + u32::try_from(ALL).unwrap() - 1);
        assert_eq!(last, Ipv4Addr::new(198, 19, 255, 254));
    }
}
