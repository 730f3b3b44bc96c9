//! DNS messages: reading a question with suspicion, writing one of four answers.
//!
//! The relay resolves nothing and knows no zone. A name that the gate lists has one address of the
//! container's own loopback (type A) and no data of any other type; a name that it does not list
//! does not exist; what cannot be answered now fails. The name is repeated letter by letter, for
//! clients that mix its case against forgery.

use std::net::Ipv4Addr;

use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::A;
use hickory_proto::rr::rdata::opt::EdnsOption;
use hickory_proto::rr::{DNSClass, RData, Record, RecordType};

/// How long a client may keep an answer, in seconds. The address stays the name's for the whole
/// run; the policy may not.
const TTL: u32 = 30;
/// The payload that we say we take, and the most that we send in a datagram.
const PAYLOAD: u16 = 1232;
/// Without EDNS a datagram is no longer than this.
const CLASSIC: u16 = 512;
/// "Extended DNS Error" (RFC 8914).
const EDE: u16 = 15;
/// Its codes: other error, blocked.
const OTHER: u16 = 0;
const BLOCKED: u16 = 15;

/// What came of reading a packet.
#[derive(Debug)]
pub(crate) enum Asked {
    /// A question about one name of the internet.
    Question(Box<Question>),
    /// Something else, which has this answer.
    Answer(Vec<u8>),
    /// Nothing that is worth an answer.
    Nothing,
}

/// A question about one name.
#[derive(Debug)]
pub(crate) struct Question {
    request: Message,
    query: Query,
}

/// What is known of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Found {
    /// It is listed, and this address is its own.
    At(Ipv4Addr),
    /// It is not.
    Unlisted,
    /// That cannot be said now, for this reason.
    Failed(&'static str),
}

/// Reads one packet.
pub(crate) fn read(packet: &[u8]) -> Asked {
    let Ok(request) = Message::from_vec(packet) else {
        return unreadable(packet);
    };
    if request.metadata.message_type != MessageType::Query {
        return Asked::Nothing;
    }
    if request.metadata.op_code != OpCode::Query {
        return Asked::Answer(plain(&request, None, ResponseCode::NotImp));
    }
    let query = match request.queries.as_slice() {
        [query] => query.clone(),
        _ => return Asked::Answer(plain(&request, None, ResponseCode::FormErr)),
    };
    if request.edns.as_ref().is_some_and(|edns| edns.version() > 0) {
        return Asked::Answer(plain(&request, Some(&query), ResponseCode::BADVERS));
    }
    let transfer = matches!(query.query_type(), RecordType::AXFR | RecordType::IXFR);
    if query.query_class() != DNSClass::IN || transfer {
        return Asked::Answer(plain(&request, Some(&query), ResponseCode::Refused));
    }
    Asked::Question(Box::new(Question { request, query }))
}

impl Question {
    /// The name as it stands in a request to the gate: lower case, without the last dot, and with
    /// everything percent-escaped that a host name has not.
    pub(crate) fn name(&self) -> String {
        let mut name = String::new();
        for (at, label) in self.query.name().iter().enumerate() {
            if at > 0 {
                name.push('.');
            }
            for byte in label {
                match byte.to_ascii_lowercase() {
                    byte @ (b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_') => name.push(char::from(byte)),
                    byte => name.push_str(&format!("%{byte:02x}")),
                }
            }
        }
        name
    }

    /// The answer, of at most `most` bytes or what the client takes.
    pub(crate) fn answer(&self, found: &Found, datagram: bool) -> Vec<u8> {
        let (code, error) = match found {
            Found::At(_) => (ResponseCode::NoError, None),
            Found::Unlisted => (
                ResponseCode::NXDomain,
                Some((BLOCKED, "portcullis: no policy lists this name")),
            ),
            Found::Failed(why) => (ResponseCode::ServFail, Some((OTHER, *why))),
        };
        let mut message = reply(&self.request, Some(&self.query), code);
        if let Found::At(address) = found
            && self.query.query_type() == RecordType::A
        {
            let data = RData::A(A(*address));
            message.add_answer(Record::from_rdata(self.query.name().clone(), TTL, data));
        }
        let bare = encode(&message);
        let (Some(edns), Some((kind, text))) = (message.edns.as_mut(), error) else {
            return bare;
        };
        let mut option = kind.to_be_bytes().to_vec();
        option.extend_from_slice(text.as_bytes());
        edns.options_mut().insert(EdnsOption::Unknown(EDE, option));
        let told = encode(&message);
        if told.len() <= self.most(datagram) {
            told
        } else {
            bare
        }
    }

    fn most(&self, datagram: bool) -> usize {
        let most = match &self.request.edns {
            _ if !datagram => u16::MAX,
            Some(edns) => edns.max_payload().clamp(CLASSIC, PAYLOAD),
            None => CLASSIC,
        };
        usize::from(most)
    }
}

/// An answer without data.
fn plain(request: &Message, query: Option<&Query>, code: ResponseCode) -> Vec<u8> {
    encode(&reply(request, query, code))
}

fn reply(request: &Message, query: Option<&Query>, code: ResponseCode) -> Message {
    let mut message = Message::response(request.metadata.id, request.metadata.op_code);
    message.metadata.recursion_desired = request.metadata.recursion_desired;
    message.metadata.recursion_available = true;
    message.metadata.checking_disabled = request.metadata.checking_disabled;
    message.metadata.response_code = code;
    if let Some(query) = query {
        message.add_query(query.clone());
    }
    if request.edns.is_some() {
        let mut edns = Edns::new();
        edns.set_max_payload(PAYLOAD).set_rcode_high(code.high());
        message.set_edns(edns);
    }
    message
}

/// What cannot be read at all has one answer: that it cannot be read. A packet without a header has
/// none, and neither has one that says that it is an answer.
fn unreadable(packet: &[u8]) -> Asked {
    match packet {
        [high, low, flags, _, _, _, _, _, _, _, _, _, ..] if flags & 0x80 == 0 => {
            let id = u16::from_be_bytes([*high, *low]);
            let error = Message::error_msg(id, OpCode::Query, ResponseCode::FormErr);
            Asked::Answer(encode(&error))
        }
        _ => Asked::Nothing,
    }
}

/// An answer that cannot be written is not sent; none of ours is such.
fn encode(message: &Message) -> Vec<u8> {
    message.to_vec().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hickory_proto::rr::Name;

    fn packet(name: &str, kind: RecordType, edns: bool) -> Vec<u8> {
        let mut message = Message::new(7, MessageType::Query, OpCode::Query);
        message.metadata.recursion_desired = true;
        let mut query = Query::query(Name::from_ascii(name).unwrap(), kind);
        query.set_query_class(DNSClass::IN);
        message.add_query(query);
        if edns {
            message.set_edns(Edns::new());
        }
        message.to_vec().unwrap()
    }

    fn question(packet: &[u8]) -> Box<Question> {
        match read(packet) {
            Asked::Question(question) => question,
            other => panic!("{other:?}"),
        }
    }

    fn code(answer: &[u8]) -> ResponseCode {
        Message::from_vec(answer).unwrap().metadata.response_code
    }

    #[test]
    fn a_listed_name_has_an_address_and_no_other_data() {
        let at = Found::At(Ipv4Addr::new(127, 64, 0, 1));
        let asked = question(&packet("aPi.ExAmPlE.com.", RecordType::A, false));
        assert_eq!(asked.name(), "api.example.com");
        let answer = asked.answer(&at, true);
        let answer = Message::from_vec(&answer).unwrap();
        assert_eq!(answer.metadata.id, 7);
        assert_eq!(answer.answers.len(), 1);
        assert_eq!(answer.answers[0].data, RData::A(A::new(127, 64, 0, 1)));
        let name = answer.queries[0].name().to_ascii();
        assert_eq!(name, "aPi.ExAmPlE.com.", "as it was asked");
        for kind in [
            RecordType::AAAA,
            RecordType::HTTPS,
            RecordType::SVCB,
            RecordType::TXT,
            RecordType::MX,
            RecordType::ANY,
        ] {
            let answer = question(&packet("api.example.com.", kind, true)).answer(&at, true);
            let answer = Message::from_vec(&answer).unwrap();
            assert_eq!(answer.metadata.response_code, ResponseCode::NoError);
            assert!(answer.answers.is_empty(), "{kind}");
        }
    }

    #[test]
    fn an_unlisted_name_does_not_exist_and_the_reason_is_there_for_whoever_reads_it() {
        for kind in [RecordType::A, RecordType::AAAA, RecordType::TXT] {
            let answer = question(&packet("evil.example.", kind, true));
            let answer = answer.answer(&Found::Unlisted, true);
            assert_eq!(code(&answer), ResponseCode::NXDomain);
            let text = String::from_utf8_lossy(&answer).into_owned();
            assert!(text.contains("no policy lists this name"), "{text}");
        }
        let bare = question(&packet("evil.example.", RecordType::A, false));
        let bare = bare.answer(&Found::Unlisted, true);
        assert!(Message::from_vec(&bare).unwrap().edns.is_none());
        let failed = question(&packet("a.example.", RecordType::A, true));
        let failed = failed.answer(&Found::Failed("the gate is away"), true);
        assert_eq!(code(&failed), ResponseCode::ServFail);
    }

    #[test]
    fn the_longest_name_fits_a_classic_datagram() {
        let name = format!("{0}.{0}.{0}.{1}.", "a".repeat(63), "b".repeat(61));
        for edns in [false, true] {
            let asked = question(&packet(&name, RecordType::A, edns));
            assert_eq!(asked.name().len(), 253);
            for found in [
                Found::At(Ipv4Addr::LOCALHOST),
                Found::Unlisted,
                Found::Failed("x"),
            ] {
                let length = asked.answer(&found, true).len();
                assert!(length <= usize::from(CLASSIC), "{length}");
            }
        }
    }

    #[test]
    fn a_name_cannot_become_another_line_of_the_request_to_the_gate() {
        let mut packet = packet("xxxxxxxxxxxx.example.", RecordType::A, false);
        packet[13..25].copy_from_slice(b"a HTTP\r\n.%&?");
        let name = question(&packet).name();
        assert_eq!(name, "a%20http%0d%0a%2e%25%26%3f.example");
    }

    #[test]
    fn what_is_no_question_is_refused_or_left_alone() {
        let good = packet("a.example.", RecordType::A, false);
        let answered = |packet: &[u8]| match read(packet) {
            Asked::Answer(answer) => code(&answer),
            other => panic!("{other:?}"),
        };
        let mut answer = good.clone();
        answer[2] |= 0x80;
        assert!(matches!(read(&answer), Asked::Nothing), "an answer");
        assert!(matches!(read(&good[..11]), Asked::Nothing), "no header");
        assert_eq!(answered(&good[..20]), ResponseCode::FormErr);
        let mut none = good.clone();
        none[5] = 0;
        assert_eq!(answered(&none[..12]), ResponseCode::FormErr);
        let mut update = good.clone();
        update[2] = 5 << 3;
        assert_ne!(answered(&update), ResponseCode::NoError);
        let mut chaos = good.clone();
        let last = chaos.len() - 1;
        chaos[last] = 3;
        assert_eq!(answered(&chaos), ResponseCode::Refused);
        let transfer = packet("a.example.", RecordType::AXFR, false);
        assert_eq!(answered(&transfer), ResponseCode::Refused);
        // A name that points at itself must end.
        let mut looping = good[..12].to_vec();
        looping.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1]);
        assert_eq!(answered(&looping), ResponseCode::FormErr);
        assert!(matches!(read(&good), Asked::Question(_)), "control");
    }

    proptest::proptest! {
        #[test]
        fn no_packet_is_too_odd(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..600)) {
            match read(&bytes) {
                Asked::Question(question) => {
                    let name = question.name();
                    proptest::prop_assert!(name.bytes().all(|byte| byte.is_ascii_graphic()));
                    question.answer(&Found::Unlisted, true);
                }
                Asked::Answer(answer) => proptest::prop_assert!(answer.len() <= 512),
                Asked::Nothing => {}
            }
        }
    }
}
