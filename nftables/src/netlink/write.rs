//! A ruleset as one nftnl batch.

use std::ffi::{CString, c_char, c_void};
use std::ptr::NonNull;

use nftnl::expr::Expression;
use nftnl::set::{Set, SetKey};
use nftnl::{
    Batch, Chain, ChainType, FinalizedBatch, Hook, MsgType, NlMsg, ProtoFamily, Rule, Table,
};
use nftnl_sys as sys;

use super::{NetlinkError, OBJECT_COUNTER};
use crate::accounts::UidRange;
use crate::encode::{self, Node};
use crate::render;
use crate::ruleset::{self, Elements, Policy, Ruleset};

/// Create-if-missing, delete, create: the kernel applies all of it or none.
///
/// Also returns a label per message, in order, to name what the kernel refuses.
pub(super) fn replacement(
    ruleset: &Ruleset,
) -> Result<(FinalizedBatch, Vec<String>), NetlinkError> {
    let name = text(&ruleset.table)?;
    let table = Table::new(&name, ProtoFamily::Inet);
    let mut batch = Batch::new();
    let mut labels = Vec::new();
    for kind in [MsgType::Add, MsgType::Del, MsgType::Add] {
        batch.add(&table, kind);
        labels.push(format!("table {}", ruleset.table));
    }
    for counter in &ruleset.counters {
        batch.add(&Counter::new(&name, &text(counter)?), MsgType::Add);
        labels.push(format!("counter {counter}"));
    }
    let mut sets = Vec::new();
    for (id, set) in (1..).zip(&ruleset.sets) {
        sets.push((uid_set(&table, set, id)?, set.name.as_ref()));
    }
    for (set, name) in &sets {
        batch.add(set, MsgType::Add);
        labels.push(format!("set {name}"));
        for message in set.elems_iter() {
            batch.add(&message, MsgType::Add);
            labels.push(format!("elements of set {name}"));
        }
    }
    for (id, described) in (1..).zip(&ruleset.sets) {
        let Elements::Intervals(ranges) = &described.elements else {
            continue;
        };
        for part in boundaries(ranges).chunks(KEYS_PER_MESSAGE) {
            let set = uid_set(&table, described, id)?;
            add_keys(&set, part);
            for message in set.elems_iter() {
                batch.add(&message, MsgType::Add);
                labels.push(format!("elements of set {}", described.name));
            }
        }
    }
    let mut chains = Vec::new();
    for described in &ruleset.chains {
        let mut chain = Chain::new(text(described.name)?, &table);
        if let Some(base) = described.base {
            chain.set_hook(
                match base.hook {
                    ruleset::Hook::Input => Hook::In,
                    ruleset::Hook::Forward => Hook::Forward,
                    ruleset::Hook::Output => Hook::Out,
                },
                base.priority,
            );
            chain.set_type(match base.kind {
                ruleset::Kind::Filter => ChainType::Filter,
                ruleset::Kind::Nat => ChainType::Nat,
            });
            chain.set_policy(match base.policy {
                Policy::Accept => nftnl::Policy::Accept,
                Policy::Drop => nftnl::Policy::Drop,
            });
        }
        batch.add(&chain, MsgType::Add);
        labels.push(format!("chain {}", described.name));
        chains.push((chain, described));
    }
    for (chain, described) in &chains {
        for rule in &described.rules {
            let mut message = Rule::new(chain);
            for node in encode::rule(rule) {
                message.add_expr(&node);
            }
            let label = format!("rule {}/{:?}", described.name, rule.comment);
            message
                .set_comment(text(&rule.comment)?)
                .map_err(|_| NetlinkError::Io {
                    doing: label.clone(),
                    source: std::io::Error::other("the comment is too long"),
                })?;
            batch.add(&message, MsgType::Add);
            labels.push(label);
        }
    }
    Ok((batch.finalize(), labels))
}

/// Deletes the table and all it holds.
pub(super) fn removal(table: &str) -> Result<(FinalizedBatch, Vec<String>), NetlinkError> {
    let table_message = Table::new(text(table)?, ProtoFamily::Inet);
    let mut batch = Batch::new();
    batch.add(&table_message, MsgType::Del);
    Ok((batch.finalize(), vec![format!("table {table}")]))
}

/// nft's datatype "uid": a host-endian 32-bit number.
struct Uid;

impl SetKey for Uid {
    const TYPE: u32 = 24;
    const LEN: u32 = 4;

    fn data(&self) -> Box<[u8]> {
        Box::default()
    }
}

fn uid_set<'t>(
    table: &'t Table,
    described: &ruleset::Set,
    id: u32,
) -> Result<Set<'t, Uid>, NetlinkError> {
    let set = Set::<Uid>::new_named(&text(&described.name)?, id, table, ProtoFamily::Inet);
    let raw = set.as_ptr().as_ptr();
    // Type 0 (key byte order), length 4, value 1 (host): without it nft(8) shows keys swapped.
    let byte_order: [u8; 6] = [0, 4, 1, 0, 0, 0];
    // SAFETY: `raw` is the live set owned by `set`; libnftnl copies the bytes.
    unsafe {
        sys::nftnl_set_set_data(
            raw,
            sys::NFTNL_SET_USERDATA as u16,
            byte_order.as_ptr().cast(),
            6,
        );
    }
    let (flags, size) = match &described.elements {
        Elements::Intervals(_) => (libc::NFT_SET_INTERVAL, None),
        Elements::Dynamic { size } => (libc::NFT_SET_EVAL, Some(*size)),
        Elements::Until { .. } => (libc::NFT_SET_TIMEOUT, None),
    };
    // SAFETY: as above; these setters store plain numbers.
    unsafe {
        sys::nftnl_set_set_u32(raw, sys::NFTNL_SET_FLAGS as u16, flags.cast_unsigned());
        if let Some(size) = size {
            sys::nftnl_set_set_u32(raw, sys::NFTNL_SET_DESC_SIZE as u16, size);
        }
    }
    if let Elements::Until { uid, expires } = &described.elements {
        let left = render::seconds_until(*expires, jiff::Timestamp::now());
        let key = uid.to_ne_bytes();
        // SAFETY: as above: copied by libnftnl, then owned by the set.
        unsafe {
            let element = allocated(sys::nftnl_set_elem_alloc());
            let raw_element = element.as_ptr();
            sys::nftnl_set_elem_set(
                raw_element,
                sys::NFTNL_SET_ELEM_KEY as u16,
                key.as_ptr().cast(),
                4,
            );
            sys::nftnl_set_elem_set_u64(
                raw_element,
                sys::NFTNL_SET_ELEM_TIMEOUT as u16,
                left * 1000,
            );
            sys::nftnl_set_elem_add(raw, raw_element);
        }
    }
    Ok(set)
}

/// The attribute that holds a message's elements counts its bytes in 16 bits.
const KEYS_PER_MESSAGE: usize = 1_000;

/// Gives a set these keys, which a message of its own carries.
fn add_keys(set: &Set<'_, Uid>, keys: &[(u32, u32)]) {
    let raw = set.as_ptr().as_ptr();
    for (key, flags) in keys {
        // SAFETY: the element is fresh; libnftnl copies the key; `nftnl_set_elem_add` hands the
        // element to the live set, which frees it.
        unsafe {
            let element = allocated(sys::nftnl_set_elem_alloc());
            let key = key.to_be_bytes();
            sys::nftnl_set_elem_set(
                element.as_ptr(),
                sys::NFTNL_SET_ELEM_KEY as u16,
                key.as_ptr().cast(),
                4,
            );
            if *flags != 0 {
                sys::nftnl_set_elem_set_u32(
                    element.as_ptr(),
                    sys::NFTNL_SET_ELEM_FLAGS as u16,
                    *flags,
                );
            }
            sys::nftnl_set_elem_add(raw, element.as_ptr());
        }
    }
}

/// How an interval set is stored: each range is its first key and, flagged as an end, the key
/// after its last; a first end at zero closes what lies below.
pub(crate) fn boundaries(ranges: &[UidRange]) -> Vec<(u32, u32)> {
    const END: u32 = libc::NFT_SET_ELEM_INTERVAL_END as u32;
    let mut keys = Vec::with_capacity(ranges.len() * 2 + 1);
    if ranges.first().is_some_and(|range| range.first > 0) {
        keys.push((0, END));
    }
    for range in ranges {
        keys.push((range.first, 0));
        if let Some(after) = range.last.checked_add(1) {
            keys.push((after, END));
        }
    }
    keys
}

/// A named counter object, which nftnl has no type for.
struct Counter(NonNull<sys::nftnl_obj>);

impl Counter {
    fn new(table: &CString, name: &CString) -> Self {
        // SAFETY: the object is fresh and owned here; libnftnl copies the strings.
        unsafe {
            let object = allocated(sys::nftnl_obj_alloc());
            let raw = object.as_ptr();
            sys::nftnl_obj_set_str(raw, sys::NFTNL_OBJ_TABLE as u16, table.as_ptr());
            sys::nftnl_obj_set_str(raw, sys::NFTNL_OBJ_NAME as u16, name.as_ptr());
            sys::nftnl_obj_set_u32(raw, sys::NFTNL_OBJ_FAMILY as u16, libc::NFPROTO_INET as u32);
            sys::nftnl_obj_set_u32(raw, sys::NFTNL_OBJ_TYPE as u16, OBJECT_COUNTER);
            Self(object)
        }
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        // SAFETY: allocated in `new`, freed once.
        unsafe { sys::nftnl_obj_free(self.0.as_ptr()) }
    }
}

// SAFETY: a counter object is far smaller than the largest netlink message.
unsafe impl NlMsg for Counter {
    unsafe fn write(&self, buffer: *mut c_void, sequence: u32, _kind: MsgType) {
        // SAFETY: the caller gives a buffer for the largest message; the object is live.
        unsafe {
            let header = sys::nftnl_nlmsg_build_hdr(
                buffer.cast::<c_char>(),
                libc::NFT_MSG_NEWOBJ as u16,
                libc::NFPROTO_INET as u16,
                (libc::NLM_F_CREATE | libc::NLM_F_ACK) as u16,
                sequence,
            );
            sys::nftnl_obj_nlmsg_build_payload(header, self.0.as_ptr());
        }
    }
}

impl Expression for Node {
    fn to_expr(&self, _rule: &Rule<'_>) -> NonNull<sys::nftnl_expr> {
        expression(self)
    }
}

fn expression(node: &Node) -> NonNull<sys::nftnl_expr> {
    let kind = CString::new(node.kind).expect("kinds are literals without NUL");
    // SAFETY: `kind` lives through the call; libnftnl copies attribute values by the length given,
    // and takes over the inner expressions.
    unsafe {
        let made = allocated(sys::nftnl_expr_alloc(kind.as_ptr()));
        for (attribute, value) in &node.fields {
            let len = u32::try_from(value.len()).expect("attributes are a few bytes");
            sys::nftnl_expr_set(made.as_ptr(), *attribute, value.as_ptr().cast(), len);
        }
        for inner in &node.inner {
            sys::nftnl_expr_add_expr(
                made.as_ptr(),
                sys::NFTNL_EXPR_DYNSET_EXPR,
                expression(inner).as_ptr(),
            );
        }
        made
    }
}

/// The same answer to exhausted memory as the standard library's: stop.
pub(super) fn allocated<T>(pointer: *mut T) -> NonNull<T> {
    NonNull::new(pointer).unwrap_or_else(|| std::process::abort())
}

pub(super) fn text(name: &str) -> Result<CString, NetlinkError> {
    CString::new(name).map_err(|error| NetlinkError::Io {
        doing: format!("naming {name:?}"),
        source: error.into(),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Membership as the kernel's interval set decides it: by the greatest key not above the uid.
    fn contains(keys: &[(u32, u32)], uid: u32) -> bool {
        let below = keys.iter().rev().find(|(key, _)| *key <= uid);
        below.is_some_and(|(_, flags)| *flags == 0)
    }

    proptest! {
        #[test]
        fn boundaries_hold_exactly_the_ranges(
            ranges in prop::collection::vec((1u32..5000, 0u32..300), 0..12),
            uids in prop::collection::vec(0u32..6000, 32),
        ) {
            let ranges: Vec<UidRange> = ranges
                .into_iter()
                .map(|(first, more)| UidRange { first, last: first + more })
                .collect();
            let keys = boundaries(&UidRange::merge(ranges.clone()));
            prop_assert!(keys.is_sorted());
            for uid in uids {
                let wanted = ranges.iter().any(|range| range.contains(uid));
                prop_assert_eq!(contains(&keys, uid), wanted, "uid {}", uid);
            }
        }
    }
}
