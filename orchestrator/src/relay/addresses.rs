//! Which address stands for which name. An address is given once and never to a second name, for as
//! long as the run lasts; when there are no more, the next name gets none.

use std::collections::HashMap;
use std::net::Ipv4Addr;

/// Names that have an address, at most.
pub(super) const NAMES: usize = 4096;

/// The first address: 127.64.0.1, of loopback's own network, so that nothing of it ever leaves.
const BASE: u32 = 0x7f40_0001;

/// Names and addresses, each leading to the other.
#[derive(Debug, Default)]
pub(super) struct Addresses {
    names: Vec<String>,
    indices: HashMap<String, usize>,
}

impl Addresses {
    /// The address of a name, which is a new one for a new name; `None` when all are given.
    pub(super) fn of(&mut self, name: &str) -> Option<Ipv4Addr> {
        if let Some(index) = self.indices.get(name) {
            return address(*index);
        }
        let index = self.names.len();
        if index >= NAMES {
            return None;
        }
        self.names.push(name.to_owned());
        self.indices.insert(name.to_owned(), index);
        address(index)
    }

    /// The name that an address was given to.
    pub(super) fn name(&self, address: Ipv4Addr) -> Option<&str> {
        let index = address.to_bits().checked_sub(BASE)?;
        let name = self.names.get(usize::try_from(index).ok()?)?;
        Some(name)
    }
}

fn address(index: usize) -> Option<Ipv4Addr> {
    let index = u32::try_from(index).ok()?;
    Some(Ipv4Addr::from_bits(BASE.checked_add(index)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_address_ever_serves_a_second_name() {
        let mut addresses = Addresses::default();
        let mut seen = std::collections::HashSet::new();
        for at in 0..NAMES {
            let name = format!("h{at}.example");
            let address = addresses.of(&name).unwrap();
            assert!(address.is_loopback() && seen.insert(address), "{address}");
            assert_eq!(addresses.name(address), Some(name.as_str()));
        }
        assert_eq!(addresses.of("one.more.example"), None, "exhausted");
        let first = addresses.of("h0.example").unwrap();
        assert_eq!(
            first,
            Ipv4Addr::new(127, 64, 0, 1),
            "control: known ones stay"
        );
        assert_eq!(addresses.name(Ipv4Addr::LOCALHOST), None);
        assert_eq!(addresses.name(Ipv4Addr::new(127, 80, 0, 1)), None);
    }
}
