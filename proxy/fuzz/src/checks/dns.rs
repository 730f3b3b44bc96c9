//! DNS messages.

/// What holds of the module `$dns`, given a packet: what is answered is an answer to that packet,
/// and the name that is asked for cannot become anything else in a request.
macro_rules! holds_of_dns {
    ($($dns:ident)::+, $packet:expr) => {{
        use $($dns)::+::{Asked, Found, read};
        let packet: &[u8] = $packet;
        match read(packet) {
            Asked::Nothing => {}
            Asked::Answer(answer) => {
                $crate::checks::dns::answers(packet, &answer, false);
            }
            Asked::Question(question) => {
                let name = question.name();
                let plain = |c: char| c.is_ascii_alphanumeric() || "-_.%".contains(c);
                assert!(name.chars().all(plain), "{name:?}");
                let address = std::net::Ipv4Addr::new(127, 1, 2, 3);
                for found in [Found::At(address), Found::Unlisted, Found::Failed("portcullis: why")] {
                    for datagram in [false, true] {
                        let answer = question.answer(&found, datagram);
                        $crate::checks::dns::answers(packet, &answer, true);
                        assert!(!datagram || answer.len() <= 1232);
                    }
                }
            }
        }
    }};
}
use hickory_proto::op::{Message, MessageType};

/// The gate's.
pub(crate) fn check(packet: &[u8]) {
    holds_of_dns!(crate::resolver::dns, packet);
}

/// Whether this is an answer to that.
pub(crate) fn answers(packet: &[u8], answer: &[u8], asked: bool) {
    let read = Message::from_vec(answer).unwrap_or_else(|problem| panic!("{problem}: {answer:?}"));
    assert_eq!(packet.get(..2), answer.get(..2), "the id");
    assert_eq!(read.metadata.message_type, MessageType::Response);
    assert!(read.answers.len() <= 1);
    if asked && let Ok(request) = Message::from_vec(packet) {
        assert_eq!(read.queries, request.queries);
        for (said, wanted) in read.queries.iter().zip(&request.queries) {
            let letters = |query: &hickory_proto::op::Query| query.name().to_ascii();
            assert_eq!(letters(said), letters(wanted), "letter by letter");
        }
    }
}
