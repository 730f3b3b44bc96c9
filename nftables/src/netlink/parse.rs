//! Messages of the kernel as values: one function per kind of object.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_void};

use nftnl_sys as sys;

use super::OBJECT_COUNTER;
use super::frames::Frame;
use super::read::{Element, ObservedChain, ObservedRule, ObservedSet};
use super::write::allocated;
use crate::encode::{Node, OTHER_KINDS, SCHEMAS};

/// Which table of which protocol family an object is in.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// `NFPROTO_*`.
    pub family: u32,
    pub table: String,
}

impl Place {
    pub(super) fn is(&self, table: &str) -> bool {
        self.family == libc::NFPROTO_INET.cast_unsigned() && self.table == table
    }
}

/// Place, name, and where it begins.
pub(super) fn chain_of(frame: &Frame) -> Option<(Place, String, ObservedChain)> {
    // SAFETY: the frame's length was checked; strings are copied before the chain is freed.
    unsafe {
        let parsed = allocated(sys::nftnl_chain_alloc());
        let raw = parsed.as_ptr();
        let mut found = None;
        if sys::nftnl_chain_nlmsg_parse(frame.header(), raw) >= 0 {
            let place = Place {
                family: sys::nftnl_chain_get_u32(raw, sys::NFTNL_CHAIN_FAMILY as u16),
                table: string(sys::nftnl_chain_get_str(raw, sys::NFTNL_CHAIN_TABLE as u16)),
            };
            let name = string(sys::nftnl_chain_get_str(raw, sys::NFTNL_CHAIN_NAME as u16));
            let hook = sys::nftnl_chain_is_set(raw, sys::NFTNL_CHAIN_HOOKNUM as u16).then(|| {
                (
                    sys::nftnl_chain_get_u32(raw, sys::NFTNL_CHAIN_HOOKNUM as u16),
                    sys::nftnl_chain_get_s32(raw, sys::NFTNL_CHAIN_PRIO as u16),
                    sys::nftnl_chain_get_u32(raw, sys::NFTNL_CHAIN_POLICY as u16),
                    string(sys::nftnl_chain_get_str(raw, sys::NFTNL_CHAIN_TYPE as u16)),
                )
            });
            found = Some((place, name, ObservedChain { hook }));
        }
        sys::nftnl_chain_free(raw);
        found
    }
}

pub(super) fn rule_of(frame: &Frame) -> Option<(Place, ObservedRule)> {
    // SAFETY: the frame's length was checked; the callback gets a pointer to `rule`, which lives
    // through the call; data is copied before the rule is freed.
    unsafe {
        let parsed = allocated(sys::nftnl_rule_alloc());
        let raw = parsed.as_ptr();
        let mut found = None;
        if sys::nftnl_rule_nlmsg_parse(frame.header(), raw) >= 0 {
            let place = Place {
                family: sys::nftnl_rule_get_u32(raw, sys::NFTNL_RULE_FAMILY as u16),
                table: string(sys::nftnl_rule_get_str(raw, sys::NFTNL_RULE_TABLE as u16)),
            };
            let mut rule = ObservedRule {
                chain: string(sys::nftnl_rule_get_str(raw, sys::NFTNL_RULE_CHAIN as u16)),
                ..ObservedRule::default()
            };
            if sys::nftnl_rule_is_set(raw, sys::NFTNL_RULE_USERDATA as u16) {
                let mut len = 0;
                let data =
                    sys::nftnl_rule_get_data(raw, sys::NFTNL_RULE_USERDATA as u16, &raw mut len);
                rule.comment = comment(&bytes(data, len));
            }
            sys::nftnl_expr_foreach(raw, Some(collect_expression), (&raw mut rule).cast());
            found = Some((place, rule));
        }
        sys::nftnl_rule_free(raw);
        found
    }
}

pub(super) fn set_of(frame: &Frame, table: &str) -> Option<(String, ObservedSet)> {
    // SAFETY: the frame's length was checked; strings are copied before the set is freed.
    unsafe {
        let parsed = allocated(sys::nftnl_set_alloc());
        let raw = parsed.as_ptr();
        let mut found = None;
        if sys::nftnl_set_nlmsg_parse(frame.header(), raw) >= 0
            && sys::nftnl_set_get_u32(raw, sys::NFTNL_SET_FAMILY as u16)
                == libc::NFPROTO_INET as u32
            && string(sys::nftnl_set_get_str(raw, sys::NFTNL_SET_TABLE as u16)) == table
        {
            found = Some((
                string(sys::nftnl_set_get_str(raw, sys::NFTNL_SET_NAME as u16)),
                ObservedSet {
                    key_type: sys::nftnl_set_get_u32(raw, sys::NFTNL_SET_KEY_TYPE as u16),
                    key_len: sys::nftnl_set_get_u32(raw, sys::NFTNL_SET_KEY_LEN as u16),
                    flags: sys::nftnl_set_get_u32(raw, sys::NFTNL_SET_FLAGS as u16),
                    size: sys::nftnl_set_get_u32(raw, sys::NFTNL_SET_DESC_SIZE as u16),
                    elements: Vec::new(),
                },
            ));
        }
        sys::nftnl_set_free(raw);
        found
    }
}

/// Name and, for a counter, its (packets, bytes).
pub(super) fn object_of(frame: &Frame, table: &str) -> Option<(String, Option<(u64, u64)>)> {
    // SAFETY: the frame's length was checked; strings are copied before the object is freed;
    // counter values are read only from a counter.
    unsafe {
        let parsed = allocated(sys::nftnl_obj_alloc());
        let raw = parsed.as_ptr();
        let mut found = None;
        if sys::nftnl_obj_nlmsg_parse(frame.header(), raw) >= 0
            && sys::nftnl_obj_get_u32(raw, sys::NFTNL_OBJ_FAMILY as u16)
                == libc::NFPROTO_INET as u32
            && string(sys::nftnl_obj_get_str(raw, sys::NFTNL_OBJ_TABLE as u16)) == table
        {
            let name = string(sys::nftnl_obj_get_str(raw, sys::NFTNL_OBJ_NAME as u16));
            let kind = sys::nftnl_obj_get_u32(raw, sys::NFTNL_OBJ_TYPE as u16);
            let counted = (kind == OBJECT_COUNTER).then(|| {
                (
                    sys::nftnl_obj_get_u64(raw, sys::NFTNL_OBJ_CTR_PKTS as u16),
                    sys::nftnl_obj_get_u64(raw, sys::NFTNL_OBJ_CTR_BYTES as u16),
                )
            });
            found = Some((name, counted));
        }
        sys::nftnl_obj_free(raw);
        found
    }
}

/// # Safety
/// libnftnl calls it with a live element and the `Vec<Element>` given to `foreach`.
pub(super) unsafe extern "C" fn collect_element(
    element: *mut sys::nftnl_set_elem,
    elements: *mut c_void,
) -> c_int {
    // SAFETY: see above; the data is copied at once.
    unsafe {
        let elements = &mut *elements.cast::<Vec<Element>>();
        let mut len = 0;
        let key = sys::nftnl_set_elem_get(element, sys::NFTNL_SET_ELEM_KEY as u16, &raw mut len);
        let mut read = Element {
            key: bytes(key, len),
            ..Element::default()
        };
        if sys::nftnl_set_elem_is_set(element, sys::NFTNL_SET_ELEM_FLAGS as u16) {
            read.flags = sys::nftnl_set_elem_get_u32(element, sys::NFTNL_SET_ELEM_FLAGS as u16);
        }
        if sys::nftnl_set_elem_is_set(element, sys::NFTNL_SET_ELEM_EXPIRATION as u16) {
            let left = sys::nftnl_set_elem_get_u64(element, sys::NFTNL_SET_ELEM_EXPIRATION as u16);
            read.lapses_in = Some(left);
        }
        sys::nftnl_set_elem_expr_foreach(
            element,
            Some(collect_counter),
            (&raw mut read.counted).cast(),
        );
        elements.push(read);
    }
    0
}

/// # Safety
/// libnftnl calls it with a live expression and the `(u64, u64)` given to `foreach`.
unsafe extern "C" fn collect_counter(
    expression: *mut sys::nftnl_expr,
    counted: *mut c_void,
) -> c_int {
    // SAFETY: see above; the attributes are read only from a counter.
    unsafe {
        let name = string(sys::nftnl_expr_get_str(
            expression,
            sys::NFTNL_EXPR_NAME as u16,
        ));
        if name == "counter" {
            *counted.cast::<(u64, u64)>() = (
                sys::nftnl_expr_get_u64(expression, sys::NFTNL_EXPR_CTR_PACKETS as u16),
                sys::nftnl_expr_get_u64(expression, sys::NFTNL_EXPR_CTR_BYTES as u16),
            );
        }
    }
    0
}

/// # Safety
/// libnftnl calls it with a live expression and the `ObservedRule` given to `foreach`.
unsafe extern "C" fn collect_expression(
    expression: *mut sys::nftnl_expr,
    rule: *mut c_void,
) -> c_int {
    // SAFETY: see above.
    unsafe {
        let rule = &mut *rule.cast::<ObservedRule>();
        if !rule.text.is_empty() {
            rule.text.push(' ');
        }
        rule.text.push_str(&notation(expression));
        rule.nodes.push(node(expression));
    }
    0
}

/// # Safety
/// libnftnl calls it with a live expression and the `Vec<Node>` given to `foreach`.
unsafe extern "C" fn collect_inner(expression: *mut sys::nftnl_expr, nodes: *mut c_void) -> c_int {
    // SAFETY: see above.
    unsafe { (*nodes.cast::<Vec<Node>>()).push(node(expression)) };
    0
}

/// # Safety
/// `expression` is live.
unsafe fn node(expression: *mut sys::nftnl_expr) -> Node {
    // SAFETY: given by the caller; values are copied; the callback's target lives on.
    unsafe {
        let kind = string(sys::nftnl_expr_get_str(
            expression,
            sys::NFTNL_EXPR_NAME as u16,
        ));
        let mut node = Node {
            kind: "unknown",
            fields: BTreeMap::new(),
            inner: Vec::new(),
        };
        let Some(schema) = SCHEMAS.iter().find(|schema| schema.kind == kind) else {
            let known = OTHER_KINDS.iter().find(|known| **known == kind);
            node.kind = known.copied().unwrap_or("unknown");
            return node;
        };
        node.kind = schema.kind;
        for (attribute, zero_is_absent) in schema.fields {
            let attribute = *attribute as u16;
            if !sys::nftnl_expr_is_set(expression, attribute) {
                continue;
            }
            let mut len = 0;
            let value = sys::nftnl_expr_get(expression, attribute, &raw mut len);
            let value = bytes(value, len);
            if !(*zero_is_absent && value.iter().all(|byte| *byte == 0)) {
                node.fields.insert(attribute, value);
            }
        }
        if kind == "dynset" {
            sys::nftnl_expr_expr_foreach(
                expression,
                Some(collect_inner),
                (&raw mut node.inner).cast(),
            );
        }
        node
    }
}

/// # Safety
/// `expression` is live.
unsafe fn notation(expression: *mut sys::nftnl_expr) -> String {
    let mut buffer = [0u8; 512];
    // SAFETY: the buffer's size is passed along; the last byte stays NUL.
    let name = unsafe {
        sys::nftnl_expr_snprintf(
            buffer.as_mut_ptr().cast(),
            buffer.len() - 1,
            expression,
            sys::NFTNL_OUTPUT_DEFAULT,
            0,
        );
        string(sys::nftnl_expr_get_str(
            expression,
            sys::NFTNL_EXPR_NAME as u16,
        ))
    };
    let body = CStr::from_bytes_until_nul(&buffer)
        .unwrap_or_default()
        .to_string_lossy();
    format!("[ {name} {}]", body.trim_start())
}

/// # Safety
/// `pointer` is null or a NUL-terminated string that lives through the call.
unsafe fn string(pointer: *const c_char) -> String {
    if pointer.is_null() {
        return String::new();
    }
    // SAFETY: given by the caller.
    unsafe { CStr::from_ptr(pointer) }
        .to_string_lossy()
        .into_owned()
}

/// # Safety
/// `pointer` is null or `len` readable bytes.
unsafe fn bytes(pointer: *const c_void, len: u32) -> Vec<u8> {
    if pointer.is_null() {
        return Vec::new();
    }
    // SAFETY: given by the caller.
    unsafe { std::slice::from_raw_parts(pointer.cast::<u8>(), len as usize) }.to_vec()
}

/// The comment among a rule's user data: type, length, value; a comment has type 0.
fn comment(mut data: &[u8]) -> Option<String> {
    while let [kind, len, rest @ ..] = data {
        let value = rest.get(..usize::from(*len))?;
        if *kind == 0 {
            let text = value.strip_suffix(&[0]).unwrap_or(value);
            return Some(String::from_utf8_lossy(text).into_owned());
        }
        data = &rest[usize::from(*len)..];
    }
    None
}
