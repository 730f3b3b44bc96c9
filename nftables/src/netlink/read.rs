//! Everything the kernel holds in one table, read back.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io;

use nftnl_sys as sys;
use nftnl_sys::libc::nlmsghdr;

use super::frames::{self, Buffer, Frame};
use super::write::{allocated, text};
use super::{Connection, NetlinkError, OBJECT_COUNTER};
use crate::encode::{Node, SCHEMAS};

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
            if let Some((name, chain)) = chain_of(&frame, table) {
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
            .filter_map(|frame| rule_of(frame, table))
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

fn chain_of(frame: &Frame, table: &str) -> Option<(String, ObservedChain)> {
    // SAFETY: the frame's length was checked; strings are copied before the chain is freed.
    unsafe {
        let parsed = allocated(sys::nftnl_chain_alloc());
        let raw = parsed.as_ptr();
        let mut found = None;
        if sys::nftnl_chain_nlmsg_parse(frame.header(), raw) >= 0
            && sys::nftnl_chain_get_u32(raw, sys::NFTNL_CHAIN_FAMILY as u16)
                == libc::NFPROTO_INET as u32
            && string(sys::nftnl_chain_get_str(raw, sys::NFTNL_CHAIN_TABLE as u16)) == table
        {
            let name = string(sys::nftnl_chain_get_str(raw, sys::NFTNL_CHAIN_NAME as u16));
            let hook = sys::nftnl_chain_is_set(raw, sys::NFTNL_CHAIN_HOOKNUM as u16).then(|| {
                (
                    sys::nftnl_chain_get_u32(raw, sys::NFTNL_CHAIN_HOOKNUM as u16),
                    sys::nftnl_chain_get_s32(raw, sys::NFTNL_CHAIN_PRIO as u16),
                    sys::nftnl_chain_get_u32(raw, sys::NFTNL_CHAIN_POLICY as u16),
                    string(sys::nftnl_chain_get_str(raw, sys::NFTNL_CHAIN_TYPE as u16)),
                )
            });
            found = Some((name, ObservedChain { hook }));
        }
        sys::nftnl_chain_free(raw);
        found
    }
}

fn rule_of(frame: &Frame, table: &str) -> Option<ObservedRule> {
    // SAFETY: the frame's length was checked; the callback gets a pointer to `rule`, which lives
    // through the call; data is copied before the rule is freed.
    unsafe {
        let parsed = allocated(sys::nftnl_rule_alloc());
        let raw = parsed.as_ptr();
        let mut found = None;
        if sys::nftnl_rule_nlmsg_parse(frame.header(), raw) >= 0
            && sys::nftnl_rule_get_u32(raw, sys::NFTNL_RULE_FAMILY as u16)
                == libc::NFPROTO_INET as u32
            && string(sys::nftnl_rule_get_str(raw, sys::NFTNL_RULE_TABLE as u16)) == table
        {
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
            found = Some(rule);
        }
        sys::nftnl_rule_free(raw);
        found
    }
}

fn set_of(frame: &Frame, table: &str) -> Option<(String, ObservedSet)> {
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
fn object_of(frame: &Frame, table: &str) -> Option<(String, Option<(u64, u64)>)> {
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
unsafe extern "C" fn collect_element(
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
