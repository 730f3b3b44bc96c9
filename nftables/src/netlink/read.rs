//! Everything the kernel holds in one table, read back.

use std::collections::BTreeMap;
use std::ffi::{CString, c_char, c_int};
use std::io;

use nftnl_sys as sys;
use nftnl_sys::libc::nlmsghdr;

use super::frames::{self, Buffer, Frame};
use super::parse::{Place, chain_of, collect_element, object_of, rule_of, set_of};
use super::write::{allocated, text};
use super::{Connection, NetlinkError};
use crate::encode::Node;

/// One table as the kernel has it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObservedTable {
    /// `NFT_TABLE_F_*`; 1 is "dormant", which means that no rule of the table is in force.
    pub flags: u32,
    /// Name to (packets, bytes).
    pub counters: BTreeMap<String, (u64, u64)>,
    /// Names of objects that are not counters.
    pub other_objects: Vec<String>,
    pub sets: BTreeMap<String, ObservedSet>,
    pub chains: BTreeMap<String, ObservedChain>,
    /// In the order of evaluation within each chain.
    pub rules: Vec<ObservedRule>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObservedSet {
    pub key_type: u32,
    pub key_len: u32,
    pub flags: u32,
    pub size: u32,
    pub elements: Vec<Element>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Element {
    /// As stored: network order in interval sets, host order otherwise.
    pub key: Vec<u8>,
    pub flags: u32,
    /// (packets, bytes) of the element's own counter, 0 without one.
    pub counted: (u64, u64),
    /// Milliseconds until the kernel takes it out, if ever.
    pub lapses_in: Option<u64>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObservedChain {
    /// (hook number, priority, policy, type) of a base chain.
    pub hook: Option<(u32, i32, u32, String)>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObservedRule {
    pub chain: String,
    pub comment: Option<String>,
    pub nodes: Vec<Node>,
    /// The kernel's expressions in libnftnl's notation, for people.
    pub text: String,
}

/// What everybody else has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Others {
    /// Place, name, and where it begins.
    pub chains: Vec<(Place, String, ObservedChain)>,
    pub rules: Vec<(Place, ObservedRule)>,
}

/// Makes a request ask for every protocol family.
fn everywhere(header: *mut nlmsghdr) {
    // SAFETY: `ask` gives the header of a message with its `nfgenmsg` behind it; the first byte of
    // that is the family.
    unsafe {
        let body = header.cast::<u8>().add(size_of::<nlmsghdr>());
        *body = libc::NFPROTO_UNSPEC as u8;
    }
}

impl Connection {
    /// A token that changes with every transaction in this network namespace.
    pub(super) fn generation(&mut self) -> Result<Vec<u8>, NetlinkError> {
        let frames = self.ask(
            libc::NFT_MSG_GETGEN,
            0,
            "reading nftables' generation",
            |_| {},
        )?;
        Ok(frames
            .first()
            .map(|frame| frame.payload().to_vec())
            .unwrap_or_default())
    }

    /// The table's flags, or `None` when there is no such table.
    pub(super) fn table_flags(&mut self, table: &str) -> Result<Option<u32>, NetlinkError> {
        let name = text(table)?;
        let answer = self.ask(
            libc::NFT_MSG_GETTABLE,
            libc::NLM_F_ACK,
            "reading nftables",
            // SAFETY: `header` is the message being built; the table is freed after use.
            |header| unsafe {
                let request = allocated(sys::nftnl_table_alloc());
                sys::nftnl_table_set_str(
                    request.as_ptr(),
                    sys::NFTNL_TABLE_NAME as u16,
                    name.as_ptr(),
                );
                sys::nftnl_table_nlmsg_build_payload(header, request.as_ptr());
                sys::nftnl_table_free(request.as_ptr());
            },
        );
        let frames = match answer {
            Err(NetlinkError::Io { source, .. }) if source.raw_os_error() == Some(libc::ENOENT) => {
                return Ok(None);
            }
            other => other?,
        };
        let Some(frame) = frames.first() else {
            return Ok(None);
        };
        // SAFETY: the frame's length was checked; the table is freed after use.
        let flags = unsafe {
            let parsed = allocated(sys::nftnl_table_alloc());
            let status = sys::nftnl_table_nlmsg_parse(frame.header(), parsed.as_ptr());
            let flags = sys::nftnl_table_get_u32(parsed.as_ptr(), sys::NFTNL_TABLE_FLAGS as u16);
            sys::nftnl_table_free(parsed.as_ptr());
            if status < 0 { None } else { Some(flags) }
        };
        flags.map(Some).ok_or_else(|| NetlinkError::Malformed {
            doing: "reading nftables".into(),
        })
    }

    pub(super) fn observe(&mut self, table: &str) -> Result<Option<ObservedTable>, NetlinkError> {
        let Some(flags) = self.table_flags(table)? else {
            return Ok(None);
        };
        let mut observed = ObservedTable {
            flags,
            ..ObservedTable::default()
        };
        let name = text(table)?;
        let doing = "reading nftables";
        for frame in self.dump(libc::NFT_MSG_GETCHAIN, doing, |_| {})? {
            if let Some((place, name, chain)) = chain_of(&frame)
                && place.is(table)
            {
                observed.chains.insert(name, chain);
            }
        }
        // SAFETY: the header is the message being built; the rule is freed after use.
        let rules = self.dump(libc::NFT_MSG_GETRULE, doing, |header| unsafe {
            let request = allocated(sys::nftnl_rule_alloc());
            sys::nftnl_rule_set_str(
                request.as_ptr(),
                sys::NFTNL_RULE_TABLE as u16,
                name.as_ptr(),
            );
            sys::nftnl_rule_nlmsg_build_payload(header, request.as_ptr());
            sys::nftnl_rule_free(request.as_ptr());
        })?;
        observed.rules = rules
            .iter()
            .filter_map(rule_of)
            .filter(|(place, _)| place.is(table))
            .map(|(_, rule)| rule)
            .collect();
        for frame in self.dump(libc::NFT_MSG_GETSET, doing, |_| {})? {
            if let Some((name, set)) = set_of(&frame, table) {
                observed.sets.insert(name, set);
            }
        }
        for (set_name, set) in &mut observed.sets {
            set.elements = self.elements(&name, set_name)?;
        }
        for frame in self.dump(libc::NFT_MSG_GETOBJ, doing, |_| {})? {
            match object_of(&frame, table) {
                Some((name, Some(counted))) => {
                    observed.counters.insert(name, counted);
                }
                Some((name, None)) => observed.other_objects.push(name),
                None => {}
            }
        }
        Ok(Some(observed))
    }

    /// Chains and rules of all other tables, whatever their family.
    pub(super) fn others(&mut self, mine: &[String]) -> Result<Others, NetlinkError> {
        let doing = "reading other tables";
        let foreign = |place: &Place| !mine.iter().any(|name| place.is(name));
        let mut others = Others::default();
        for frame in self.dump(libc::NFT_MSG_GETCHAIN, doing, everywhere)? {
            if let Some((place, name, chain)) = chain_of(&frame)
                && foreign(&place)
            {
                others.chains.push((place, name, chain));
            }
        }
        for frame in self.dump(libc::NFT_MSG_GETRULE, doing, everywhere)? {
            if let Some((place, rule)) = rule_of(&frame)
                && foreign(&place)
            {
                others.rules.push((place, rule));
            }
        }
        Ok(others)
    }

    fn elements(&mut self, table: &CString, set: &str) -> Result<Vec<Element>, NetlinkError> {
        let set = text(set)?;
        // SAFETY: the header is the message being built; the set is freed after use.
        let frames = self.dump(libc::NFT_MSG_GETSETELEM, "reading a set", |header| unsafe {
            let request = allocated(sys::nftnl_set_alloc());
            let raw = request.as_ptr();
            sys::nftnl_set_set_str(raw, sys::NFTNL_SET_TABLE as u16, table.as_ptr());
            sys::nftnl_set_set_str(raw, sys::NFTNL_SET_NAME as u16, set.as_ptr());
            sys::nftnl_set_elems_nlmsg_build_payload(header, raw);
            sys::nftnl_set_free(raw);
        })?;
        let mut elements: Vec<Element> = Vec::new();
        for frame in &frames {
            // SAFETY: the frame's length was checked; the callback gets a pointer to `elements`,
            // which lives through the call; the set is freed after use.
            unsafe {
                let parsed = allocated(sys::nftnl_set_alloc());
                if sys::nftnl_set_elems_nlmsg_parse(frame.header(), parsed.as_ptr()) >= 0 {
                    sys::nftnl_set_elem_foreach(
                        parsed.as_ptr(),
                        Some(collect_element),
                        (&raw mut elements).cast(),
                    );
                }
                sys::nftnl_set_free(parsed.as_ptr());
            }
        }
        Ok(elements)
    }

    fn dump(
        &mut self,
        kind: c_int,
        doing: &str,
        build: impl FnOnce(*mut nlmsghdr),
    ) -> Result<Vec<Frame>, NetlinkError> {
        self.ask(kind, libc::NLM_F_DUMP, doing, build)
    }

    /// One request and all its answers.
    fn ask(
        &mut self,
        kind: c_int,
        flags: c_int,
        doing: &str,
        build: impl FnOnce(*mut nlmsghdr),
    ) -> Result<Vec<Frame>, NetlinkError> {
        self.sequence += 1;
        let mut buffer = Buffer::of_size(nftnl::nft_nlmsg_maxsize() as usize);
        // SAFETY: the buffer holds the largest message and is aligned for a header; `build`
        // appends attributes to that header through libnftnl; the length is read back from it.
        let len = unsafe {
            let header = sys::nftnl_nlmsg_build_hdr(
                buffer.bytes_mut().as_mut_ptr().cast::<c_char>(),
                kind as u16,
                libc::NFPROTO_INET as u16,
                (flags | libc::NLM_F_ACK) as u16,
                self.sequence,
            );
            build(header);
            (*header).nlmsg_len as usize
        };
        self.socket
            .send(&buffer.bytes()[..len])
            .map_err(|error| NetlinkError::new(doing, error))?;
        let mut answers = Vec::new();
        loop {
            for frame in frames::receive(&self.socket, doing)? {
                if frame.sequence != self.sequence {
                    continue;
                }
                if let Some(code) = frame.error_code() {
                    if code != 0 {
                        let error = io::Error::from_raw_os_error(code);
                        return Err(NetlinkError::new(doing, error));
                    }
                    return Ok(answers);
                }
                if i32::from(frame.kind) == libc::NLMSG_DONE {
                    return Ok(answers);
                }
                // An interrupted dump shows in the generation, which `observe` compares.
                answers.push(frame);
            }
        }
    }
}
