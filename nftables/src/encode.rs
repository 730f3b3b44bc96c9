//! The ruleset as kernel expressions: data only, nothing is sent here.
//!
//! A [`Node`] is one nftables expression: its kind and the attributes that libnftnl knows for it,
//! as raw bytes. What is written and what is read back have the same form, so `verify` compares
//! like with like. The order of nodes is the one nft(8) itself produces for the same text.

use std::collections::BTreeMap;
use std::net::IpAddr;

use nftnl_sys as sys;

use crate::config::Protocol;
use crate::ruleset::{Rule, State, Term};

/// Index of the loopback interface: 1 in every network namespace.
const LOOPBACK_INDEX: u32 = 1;
const REG: u32 = libc::NFT_REG_1 as u32;

/// One expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    pub kind: &'static str,
    /// libnftnl attribute number to value: native-endian integers, data, NUL-terminated strings.
    pub fields: BTreeMap<u16, Vec<u8>>,
    /// Expressions carried inside (the counter of a set update).
    pub inner: Vec<Node>,
}

/// What is read back for an expression kind: attributes that matter, and whether zero is the same
/// as absent (the kernel reports defaults that were never sent).
#[derive(Debug)]
pub struct Schema {
    pub kind: &'static str,
    pub fields: &'static [(u32, bool)],
}

/// Every kind this room writes. Any other kind in our table is a difference by itself.
pub const SCHEMAS: &[Schema] = &[
    Schema {
        kind: "meta",
        fields: &[
            (sys::NFTNL_EXPR_META_KEY, false),
            (sys::NFTNL_EXPR_META_DREG, false),
            (sys::NFTNL_EXPR_META_SREG, false),
        ],
    },
    Schema {
        kind: "cmp",
        fields: &[
            (sys::NFTNL_EXPR_CMP_SREG, false),
            (sys::NFTNL_EXPR_CMP_OP, false),
            (sys::NFTNL_EXPR_CMP_DATA, false),
        ],
    },
    Schema {
        kind: "lookup",
        fields: &[
            (sys::NFTNL_EXPR_LOOKUP_SREG, false),
            (sys::NFTNL_EXPR_LOOKUP_DREG, false),
            (sys::NFTNL_EXPR_LOOKUP_SET, false),
            (sys::NFTNL_EXPR_LOOKUP_FLAGS, true),
        ],
    },
    Schema {
        kind: "ct",
        fields: &[
            (sys::NFTNL_EXPR_CT_KEY, false),
            (sys::NFTNL_EXPR_CT_DREG, false),
            (sys::NFTNL_EXPR_CT_SREG, false),
            (sys::NFTNL_EXPR_CT_DIR, false),
        ],
    },
    Schema {
        kind: "payload",
        fields: &[
            (sys::NFTNL_EXPR_PAYLOAD_DREG, false),
            (sys::NFTNL_EXPR_PAYLOAD_BASE, false),
            (sys::NFTNL_EXPR_PAYLOAD_OFFSET, false),
            (sys::NFTNL_EXPR_PAYLOAD_LEN, false),
            (sys::NFTNL_EXPR_PAYLOAD_SREG, false),
        ],
    },
    Schema {
        kind: "bitwise",
        fields: &[
            (sys::NFTNL_EXPR_BITWISE_SREG, false),
            (sys::NFTNL_EXPR_BITWISE_DREG, false),
            (sys::NFTNL_EXPR_BITWISE_LEN, false),
            (sys::NFTNL_EXPR_BITWISE_MASK, false),
            (sys::NFTNL_EXPR_BITWISE_XOR, false),
            (sys::NFTNL_EXPR_BITWISE_OP, true),
        ],
    },
    Schema {
        kind: "byteorder",
        fields: &[
            (sys::NFTNL_EXPR_BYTEORDER_DREG, false),
            (sys::NFTNL_EXPR_BYTEORDER_SREG, false),
            (sys::NFTNL_EXPR_BYTEORDER_OP, false),
            (sys::NFTNL_EXPR_BYTEORDER_LEN, false),
            (sys::NFTNL_EXPR_BYTEORDER_SIZE, false),
        ],
    },
    Schema {
        kind: "immediate",
        fields: &[
            (sys::NFTNL_EXPR_IMM_DREG, false),
            (sys::NFTNL_EXPR_IMM_DATA, false),
            (sys::NFTNL_EXPR_IMM_VERDICT, false),
            (sys::NFTNL_EXPR_IMM_CHAIN, false),
        ],
    },
    Schema {
        kind: "fib",
        fields: &[
            (sys::NFTNL_EXPR_FIB_DREG, false),
            (sys::NFTNL_EXPR_FIB_RESULT, false),
            (sys::NFTNL_EXPR_FIB_FLAGS, false),
        ],
    },
    Schema {
        kind: "objref",
        fields: &[
            (sys::NFTNL_EXPR_OBJREF_IMM_TYPE, false),
            (sys::NFTNL_EXPR_OBJREF_IMM_NAME, false),
        ],
    },
    Schema {
        kind: "redir",
        fields: &[
            (sys::NFTNL_EXPR_REDIR_REG_PROTO_MIN, false),
            (sys::NFTNL_EXPR_REDIR_REG_PROTO_MAX, false),
            (sys::NFTNL_EXPR_REDIR_FLAGS, false),
        ],
    },
    Schema {
        kind: "reject",
        fields: &[
            (sys::NFTNL_EXPR_REJECT_TYPE, false),
            (sys::NFTNL_EXPR_REJECT_CODE, true),
        ],
    },
    Schema {
        kind: "dynset",
        fields: &[
            (sys::NFTNL_EXPR_DYNSET_SREG_KEY, false),
            (sys::NFTNL_EXPR_DYNSET_SREG_DATA, false),
            (sys::NFTNL_EXPR_DYNSET_OP, false),
            (sys::NFTNL_EXPR_DYNSET_SET_NAME, false),
            (sys::NFTNL_EXPR_DYNSET_TIMEOUT, true),
        ],
    },
    Schema {
        kind: "counter",
        fields: &[],
    },
];

/// Kinds that this room never writes and recognises in other tables.
pub const OTHER_KINDS: &[&str] = &["nat", "masq", "dup", "fwd", "queue", "tproxy"];

impl Node {
    fn new(kind: &'static str) -> Self {
        Self {
            kind,
            fields: BTreeMap::new(),
            inner: Vec::new(),
        }
    }

    fn with(mut self, attribute: u32, value: impl Into<Vec<u8>>) -> Self {
        let attribute = u16::try_from(attribute).expect("libnftnl attributes are small numbers");
        self.fields.insert(attribute, value.into());
        self
    }

    fn number(self, attribute: u32, value: u32) -> Self {
        self.with(attribute, value.to_ne_bytes())
    }

    fn string(self, attribute: u32, value: &str) -> Self {
        let mut bytes = value.as_bytes().to_vec();
        bytes.push(0);
        self.with(attribute, bytes)
    }
}

/// The expressions of one rule, in order.
pub fn rule(rule: &Rule) -> Vec<Node> {
    let mut encoder = Encoder::default();
    for term in &rule.terms {
        encoder.term(term);
    }
    encoder.nodes
}

/// Remembers which protocol was matched already: nft(8) writes each dependency once.
#[derive(Default)]
struct Encoder {
    nodes: Vec<Node>,
    family: Option<i32>,
    protocol: Option<u8>,
}

impl Encoder {
    fn term(&mut self, term: &Term) {
        match term {
            Term::OutLoopback => self.meta_is(libc::NFT_META_OIF, &LOOPBACK_INDEX.to_ne_bytes()),
            Term::InLoopback => self.meta_is(libc::NFT_META_IIF, &LOOPBACK_INDEX.to_ne_bytes()),
            Term::UserIs(uid) => self.meta_is(libc::NFT_META_SKUID, &uid.to_ne_bytes()),
            Term::UserIsNot(uid) => {
                self.meta(libc::NFT_META_SKUID);
                self.compare(libc::NFT_CMP_NEQ, &uid.to_ne_bytes());
            }
            Term::UserIn(set) => {
                self.meta(libc::NFT_META_SKUID);
                self.nodes.push(to_network_order());
                self.lookup(set);
            }
            Term::UserUntil(set) => {
                self.meta(libc::NFT_META_SKUID);
                self.lookup(set);
            }
            Term::Source(address, prefix) => self.address(*address, *prefix, SOURCE),
            Term::Destination(address, prefix) => self.address(*address, *prefix, DESTINATION),
            Term::SourcePort(protocol, port) => self.port(*protocol, 0, &port.to_be_bytes()),
            Term::SourcePortFrom(protocol, port) => {
                self.port_that(libc::NFT_CMP_GTE, *protocol, 0, &port.to_be_bytes());
            }
            Term::DestinationPort(protocol, port) => self.port(*protocol, 2, &port.to_be_bytes()),
            Term::Ports(protocol, source, destination) => {
                // Side by side in the header: nft(8) loads both at once.
                let both = [source.to_be_bytes(), destination.to_be_bytes()].concat();
                self.port(*protocol, 0, &both);
            }
            Term::Tcp => self.protocol(libc::IPPROTO_TCP),
            Term::Reset => {
                self.protocol(libc::IPPROTO_TCP);
                self.payload(libc::NFT_PAYLOAD_TRANSPORT_HEADER, 13, 1);
                self.nodes.push(mask(&[0x04]));
                self.compare(libc::NFT_CMP_EQ, &[0x04]);
            }
            Term::Handshake => self.handshake(libc::NFT_CMP_EQ),
            Term::NotHandshake => self.handshake(libc::NFT_CMP_NEQ),
            Term::HopLimit255 => {
                self.family(libc::NFPROTO_IPV6);
                self.payload(libc::NFT_PAYLOAD_NETWORK_HEADER, 7, 1);
                self.compare(libc::NFT_CMP_EQ, &[255]);
            }
            Term::Icmp4(kind) => {
                self.family(libc::NFPROTO_IPV4);
                self.protocol(libc::IPPROTO_ICMP);
                self.payload(libc::NFT_PAYLOAD_TRANSPORT_HEADER, 0, 1);
                self.compare(libc::NFT_CMP_EQ, &[*kind]);
            }
            Term::Icmp6(kind) => {
                self.family(libc::NFPROTO_IPV6);
                self.protocol(libc::IPPROTO_ICMPV6);
                self.payload(libc::NFT_PAYLOAD_TRANSPORT_HEADER, 0, 1);
                self.compare(libc::NFT_CMP_EQ, &[*kind]);
            }
            Term::MarkIs(mark) => {
                self.ct(libc::NFT_CT_MARK);
                self.compare(libc::NFT_CMP_EQ, &mark.to_ne_bytes());
            }
            Term::Reply => {
                self.ct(libc::NFT_CT_DIRECTION);
                self.compare(libc::NFT_CMP_EQ, &[1]);
            }
            Term::State(states) => {
                self.ct(libc::NFT_CT_STATE);
                let bits = states
                    .iter()
                    .fold(0u32, |bits, state| bits | state_bit(*state));
                self.nodes.push(mask(&bits.to_ne_bytes()));
                self.compare(libc::NFT_CMP_NEQ, &0u32.to_ne_bytes());
            }
            Term::Translated => {
                self.ct(libc::NFT_CT_STATUS);
                self.nodes.push(mask(&DESTINATION_TRANSLATED.to_ne_bytes()));
                self.compare(libc::NFT_CMP_NEQ, &0u32.to_ne_bytes());
            }
            Term::SourceIsLocal => {
                self.fib(FIB_RESULT_ADDRESS_TYPE, FIB_SOURCE);
                self.compare(libc::NFT_CMP_EQ, &u32::from(libc::RTN_LOCAL).to_ne_bytes());
            }
            Term::DestinationIsAway => {
                self.fib(FIB_RESULT_ADDRESS_TYPE, FIB_DESTINATION);
                self.compare(libc::NFT_CMP_NEQ, &u32::from(libc::RTN_LOCAL).to_ne_bytes());
            }
            Term::SourceIsSpoofed => {
                self.fib(FIB_RESULT_INTERFACE, FIB_SOURCE | FIB_INPUT_INTERFACE);
                self.compare(libc::NFT_CMP_EQ, &0u32.to_ne_bytes());
            }
            Term::SetMark(mark) => {
                self.nodes.push(
                    Node::new("immediate")
                        .number(sys::NFTNL_EXPR_IMM_DREG, REG)
                        .with(sys::NFTNL_EXPR_IMM_DATA, mark.to_ne_bytes()),
                );
                self.nodes.push(
                    Node::new("ct")
                        .number(sys::NFTNL_EXPR_CT_KEY, libc::NFT_CT_MARK as u32)
                        .number(sys::NFTNL_EXPR_CT_SREG, REG),
                );
            }
            Term::NoteUser(set) => {
                self.meta(libc::NFT_META_SKUID);
                let mut update = Node::new("dynset")
                    .number(sys::NFTNL_EXPR_DYNSET_SREG_KEY, REG)
                    .number(sys::NFTNL_EXPR_DYNSET_OP, libc::NFT_DYNSET_OP_UPDATE as u32)
                    .string(sys::NFTNL_EXPR_DYNSET_SET_NAME, set);
                update.inner.push(Node::new("counter"));
                self.nodes.push(update);
            }
            Term::Count(counter) => self.nodes.push(
                Node::new("objref")
                    .number(sys::NFTNL_EXPR_OBJREF_IMM_TYPE, 1)
                    .string(sys::NFTNL_EXPR_OBJREF_IMM_NAME, counter),
            ),
            Term::Accept => self.verdict(libc::NF_ACCEPT, None),
            Term::Drop => self.verdict(libc::NF_DROP, None),
            Term::Goto(chain) => self.verdict(libc::NFT_GOTO, Some(chain)),
            Term::Redirect(port) => {
                self.nodes.push(
                    Node::new("immediate")
                        .number(sys::NFTNL_EXPR_IMM_DREG, REG)
                        .with(sys::NFTNL_EXPR_IMM_DATA, port.to_be_bytes()),
                );
                // The kernel reports the upper end and the flag also when only the lower was sent.
                self.nodes.push(
                    Node::new("redir")
                        .number(sys::NFTNL_EXPR_REDIR_REG_PROTO_MIN, REG)
                        .number(sys::NFTNL_EXPR_REDIR_REG_PROTO_MAX, REG)
                        .number(sys::NFTNL_EXPR_REDIR_FLAGS, PORT_SPECIFIED),
                );
            }
            Term::RejectReset => self.reject(libc::NFT_REJECT_TCP_RST, 0),
            Term::RejectProhibited => {
                self.reject(
                    libc::NFT_REJECT_ICMPX_UNREACH,
                    libc::NFT_REJECT_ICMPX_ADMIN_PROHIBITED,
                );
            }
        }
    }

    fn meta_is(&mut self, key: i32, value: &[u8]) {
        self.meta(key);
        self.compare(libc::NFT_CMP_EQ, value);
    }

    fn meta(&mut self, key: i32) {
        self.nodes.push(
            Node::new("meta")
                .with(sys::NFTNL_EXPR_META_KEY, key.to_ne_bytes())
                .number(sys::NFTNL_EXPR_META_DREG, REG),
        );
    }

    fn lookup(&mut self, set: &str) {
        self.nodes.push(
            Node::new("lookup")
                .number(sys::NFTNL_EXPR_LOOKUP_SREG, REG)
                .string(sys::NFTNL_EXPR_LOOKUP_SET, set),
        );
    }

    fn ct(&mut self, key: i32) {
        self.nodes.push(
            Node::new("ct")
                .with(sys::NFTNL_EXPR_CT_KEY, key.to_ne_bytes())
                .number(sys::NFTNL_EXPR_CT_DREG, REG),
        );
    }

    fn compare(&mut self, operator: i32, value: &[u8]) {
        self.nodes.push(
            Node::new("cmp")
                .number(sys::NFTNL_EXPR_CMP_SREG, REG)
                .with(sys::NFTNL_EXPR_CMP_OP, operator.to_ne_bytes())
                .with(sys::NFTNL_EXPR_CMP_DATA, value),
        );
    }

    fn payload(&mut self, base: i32, offset: u32, len: u32) {
        self.nodes.push(
            Node::new("payload")
                .number(sys::NFTNL_EXPR_PAYLOAD_DREG, REG)
                .with(sys::NFTNL_EXPR_PAYLOAD_BASE, base.to_ne_bytes())
                .number(sys::NFTNL_EXPR_PAYLOAD_OFFSET, offset)
                .number(sys::NFTNL_EXPR_PAYLOAD_LEN, len),
        );
    }

    fn family(&mut self, family: i32) {
        if self.family != Some(family) {
            self.family = Some(family);
            let [low, ..] = family.to_le_bytes();
            self.meta_is(libc::NFT_META_NFPROTO, &[low]);
        }
    }

    fn protocol(&mut self, protocol: i32) {
        let [low, ..] = protocol.to_le_bytes();
        if self.protocol != Some(low) {
            self.protocol = Some(low);
            self.meta_is(libc::NFT_META_L4PROTO, &[low]);
        }
    }

    /// SYN and ACK, both set.
    fn handshake(&mut self, operator: i32) {
        self.protocol(libc::IPPROTO_TCP);
        self.payload(libc::NFT_PAYLOAD_TRANSPORT_HEADER, 13, 1);
        self.nodes.push(mask(&[0x12]));
        self.compare(operator, &[0x12]);
    }

    fn port(&mut self, protocol: Protocol, offset: u32, value: &[u8]) {
        self.port_that(libc::NFT_CMP_EQ, protocol, offset, value);
    }

    fn port_that(&mut self, operator: i32, protocol: Protocol, offset: u32, value: &[u8]) {
        self.protocol(match protocol {
            Protocol::Tcp => libc::IPPROTO_TCP,
            Protocol::Udp => libc::IPPROTO_UDP,
        });
        let len = u32::try_from(value.len()).expect("one or two ports");
        self.payload(libc::NFT_PAYLOAD_TRANSPORT_HEADER, offset, len);
        self.compare(operator, value);
    }

    /// A prefix that ends on a byte is a shorter load, any other a mask: as nft(8) does it.
    fn address(&mut self, address: IpAddr, prefix: u8, (four, six): (u32, u32)) {
        let (family, offset, bytes) = match address {
            IpAddr::V4(v4) => (libc::NFPROTO_IPV4, four, v4.octets().to_vec()),
            IpAddr::V6(v6) => (libc::NFPROTO_IPV6, six, v6.octets().to_vec()),
        };
        self.family(family);
        if prefix.is_multiple_of(8) {
            let len = prefix / 8;
            self.payload(libc::NFT_PAYLOAD_NETWORK_HEADER, offset, u32::from(len));
            self.compare(libc::NFT_CMP_EQ, &bytes[..usize::from(len)]);
            return;
        }
        let mut bits = vec![0u8; bytes.len()];
        for bit in 0..usize::from(prefix) {
            bits[bit / 8] |= 0x80 >> (bit % 8);
        }
        let len = u32::from(if address.is_ipv4() { 4u8 } else { 16 });
        self.payload(libc::NFT_PAYLOAD_NETWORK_HEADER, offset, len);
        self.nodes.push(mask(&bits));
        self.compare(libc::NFT_CMP_EQ, &bytes);
    }

    fn fib(&mut self, result: u32, flags: u32) {
        self.nodes.push(
            Node::new("fib")
                .number(sys::NFTNL_EXPR_FIB_DREG, REG)
                .number(sys::NFTNL_EXPR_FIB_RESULT, result)
                .number(sys::NFTNL_EXPR_FIB_FLAGS, flags),
        );
    }

    fn verdict(&mut self, verdict: i32, chain: Option<&str>) {
        let mut node = Node::new("immediate")
            .number(sys::NFTNL_EXPR_IMM_DREG, libc::NFT_REG_VERDICT as u32)
            .with(sys::NFTNL_EXPR_IMM_VERDICT, verdict.to_ne_bytes());
        if let Some(chain) = chain {
            node = node.string(sys::NFTNL_EXPR_IMM_CHAIN, chain);
        }
        self.nodes.push(node);
    }

    fn reject(&mut self, kind: i32, code: i32) {
        let [code, ..] = code.to_le_bytes();
        let mut node = Node::new("reject").with(sys::NFTNL_EXPR_REJECT_TYPE, kind.to_ne_bytes());
        if code != 0 {
            node = node.with(sys::NFTNL_EXPR_REJECT_CODE, [code]);
        }
        self.nodes.push(node);
    }
}

/// Offsets of the addresses in an IPv4 and in an IPv6 header.
const SOURCE: (u32, u32) = (12, 8);
const DESTINATION: (u32, u32) = (16, 24);
/// `IPS_DST_NAT` of linux/netfilter/nf_conntrack_common.h.
const DESTINATION_TRANSLATED: u32 = 1 << 5;
/// `NF_NAT_RANGE_PROTO_SPECIFIED` of linux/netfilter/nf_nat.h.
const PORT_SPECIFIED: u32 = 1 << 1;

// enum nft_fib_result and nft_fib_flags of linux/netfilter/nf_tables.h, which libc does not carry.
const FIB_RESULT_INTERFACE: u32 = 1;
const FIB_RESULT_ADDRESS_TYPE: u32 = 3;
const FIB_SOURCE: u32 = 1;
const FIB_DESTINATION: u32 = 1 << 1;
const FIB_INPUT_INTERFACE: u32 = 1 << 3;

fn state_bit(state: State) -> u32 {
    match state {
        State::Established => 1 << 1,
        State::Related => 1 << 2,
    }
}

/// Interval sets are ordered trees: keys of host-endian types are compared in network order.
fn to_network_order() -> Node {
    Node::new("byteorder")
        .number(sys::NFTNL_EXPR_BYTEORDER_DREG, REG)
        .number(sys::NFTNL_EXPR_BYTEORDER_SREG, REG)
        .with(
            sys::NFTNL_EXPR_BYTEORDER_OP,
            libc::NFT_BYTEORDER_HTON.to_ne_bytes(),
        )
        .number(sys::NFTNL_EXPR_BYTEORDER_LEN, 4)
        .number(sys::NFTNL_EXPR_BYTEORDER_SIZE, 4)
}

fn mask(bits: &[u8]) -> Node {
    let len = u32::try_from(bits.len()).expect("a mask is at most 16 bytes");
    Node::new("bitwise")
        .number(sys::NFTNL_EXPR_BITWISE_SREG, REG)
        .number(sys::NFTNL_EXPR_BITWISE_DREG, REG)
        .number(sys::NFTNL_EXPR_BITWISE_LEN, len)
        .with(sys::NFTNL_EXPR_BITWISE_MASK, bits)
        .with(sys::NFTNL_EXPR_BITWISE_XOR, vec![0; bits.len()])
}
