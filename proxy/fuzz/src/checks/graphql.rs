//! GraphQL requests.

use policy::Operation;

use crate::inspect::graphql::{got, posted};

/// What is read does not depend on how the request is sent, nor on comments and commas; nothing is
/// read that selects nothing.
pub(crate) fn check(bytes: &[u8]) {
    if let Ok(read) = posted(bytes, None) {
        holds(&read);
    }
    let Ok(document) = std::str::from_utf8(bytes) else {
        return;
    };
    let post = |document: &str| {
        let request = serde_json::json!({ "query": document }).to_string();
        posted(request.as_bytes(), None)
    };
    let plain = post(document);
    if let Ok(read) = &plain {
        holds(read);
        assert_eq!(read.len(), 1);
    }
    let batch = serde_json::json!([{ "query": document }]).to_string();
    assert_eq!(plain.is_ok(), posted(batch.as_bytes(), None).is_ok());
    let escaped: String = bytes.iter().map(|byte| format!("%{byte:02x}")).collect();
    assert_eq!(plain, got(Some(&format!("query={escaped}"))));
    assert_eq!(plain, post(&format!("# {{ other }}\n,,{document}")));
}

fn holds(read: &[Operation]) {
    for operation in read {
        let name = |text: &String| {
            let byte = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
            !text.is_empty() && text.bytes().all(byte)
        };
        assert!(!operation.fields.is_empty());
        assert!(operation.fields.iter().chain(&operation.name).all(name));
    }
}
