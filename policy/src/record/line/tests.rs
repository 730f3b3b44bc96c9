use proptest::option::of;
use proptest::prelude::*;

use super::super::{Checkpoint, LogFact, PushFact, RecordFacts, RefOp, VERSION};
use super::*;
use crate::credential::CredentialName;
use crate::grant::RunId;
use crate::permit::RuleId;
use crate::refusal::Code;

fn written(record: &Record) -> String {
    let mut out = b"before".to_vec();
    record.write_json(&mut out).unwrap();
    String::from_utf8(out.split_off(6)).unwrap()
}

fn facts() -> impl Strategy<Value = RecordFacts> {
    let push = (any::<String>(), any::<bool>()).prop_map(|(name, create)| PushFact {
        name,
        op: if create { RefOp::Create } else { RefOp::Delete },
    });
    let lists = (
        proptest::collection::vec(push, 0..3),
        proptest::collection::vec(any::<String>(), 0..3),
    );
    (lists, of(any::<String>()), any::<u64>()).prop_map(|((push, graphql), model, left_out)| {
        RecordFacts {
            push,
            graphql,
            body: left_out.is_multiple_of(2).then(|| crate::record::BodyFact {
                bytes: left_out,
                sha256: model.clone().unwrap_or_default(),
            }),
            model,
            left_out,
        }
    })
}

/// Any record: of each member any value, or none.
fn record() -> impl Strategy<Value = Record> {
    let kinds = [
        RecordKind::Request,
        RecordKind::Response,
        RecordKind::Refusal,
        RecordKind::Event,
        RecordKind::Checkpoint,
    ];
    let entrances = [
        Entrance::RunSocket,
        Entrance::Uid,
        Entrance::Redirected,
        Entrance::Resolver,
        Entrance::Token,
        Entrance::Address,
    ];
    let words = (
        prop::sample::select(kinds.to_vec()),
        of(prop::sample::select(entrances.to_vec())),
        of(prop::sample::select(vec![Verdict::Allow, Verdict::Refuse])),
        of(prop::sample::select(Code::ALL.to_vec())),
    );
    let names = (
        of("[A-Za-z0-9][A-Za-z0-9-]{0,63}"),
        of("[A-Za-z0-9][A-Za-z0-9._*-]{0,127}"),
        of("[a-z0-9][a-z0-9._-]{0,63}"),
    );
    // Control characters and quotes are rare among all characters.
    let text = || prop_oneof![any::<String>(), "[\u{0}-\u{7f}\u{2028}\"\\\\]{0,24}"];
    let texts = proptest::collection::vec(of(text()), 16);
    let numbers = proptest::collection::vec(of(any::<u64>()), 9);
    let small = (of(any::<u32>()), of(any::<u16>()), any::<u64>());
    let rest = (of(facts()), of(text()), any::<bool>());
    (words, names, texts, numbers, small, (text(), text()), rest).prop_map(
        |(words, names, mut texts, numbers, small, (time, id), (facts, about, closing))| {
            let mut text = || texts.pop().flatten();
            let mut numbers = numbers.into_iter();
            let mut number = || numbers.next().flatten();
            Record {
                v: VERSION,
                seq: small.2,
                time,
                kind: words.0,
                id,
                run: names.0.map(|name| RunId::parse(&name).unwrap()),
                ticket: text(),
                agent: text(),
                company: text(),
                profile: text(),
                entrance: words.1,
                peer_uid: small.0,
                scheme: text(),
                authority: text(),
                method: text(),
                path: text(),
                verdict: words.2,
                code: words.3,
                rule: names.1.map(|name| RuleId::parse(&name).unwrap()),
                policy_hash: text(),
                credential: names.2.map(|name| CredentialName::parse(&name).unwrap()),
                facts,
                address: text(),
                status: small.1,
                bytes_in: number(),
                bytes_out: number(),
                ms: number(),
                ms_head: number(),
                tokens_in: number(),
                tokens_out: number(),
                cost_microusd: number(),
                hold: text(),
                decider: text(),
                reason: text(),
                log: about.clone().map(|file| LogFact::Torn { file }),
                checkpoint: about.map(|statement| Checkpoint {
                    statement,
                    closing,
                    key: text(),
                    signature: text(),
                }),
                prev: text(),
                hash: text(),
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_line_is_what_the_types_say(record in record()) {
        let written = written(&record);
        prop_assert_eq!(&written, &serde_json::to_string(&record).unwrap());
        prop_assert_eq!(serde_json::from_str::<Record>(&written).unwrap(), record);
    }

    #[test]
    fn digits_are_those_of_the_number(value: u64) {
        let mut out = Vec::new();
        digits(&mut out, value);
        prop_assert_eq!(String::from_utf8(out).unwrap(), value.to_string());
    }
}

#[test]
fn each_byte_is_escaped_as_the_library_does() {
    for code in 0..=0xff_u8 {
        let text = char::from(code).to_string();
        let mut out = Vec::new();
        quoted(&mut out, &text);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            serde_json::to_string(&text).unwrap()
        );
    }
    for value in [0, 9, 10, 99, 100, u64::MAX] {
        let mut out = Vec::new();
        digits(&mut out, value);
        assert_eq!(String::from_utf8(out).unwrap(), value.to_string());
    }
}
