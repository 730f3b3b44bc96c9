//! Parameters in a body, as the API of Proxmox VE takes them: a form, or one JSON object of plain values.
//!
//! Source: `extract_params` and `decode_urlencoded` of pve-http-server. What is not JSON it reads as a form; it
//! parts a form at `&` and at `;`, and ends a value at a second `=`. Whatever it would read in another way than it is
//! written is not inspected.

use serde_json::Value;

use super::{form, json};

/// Parameters by name and value, in order.
pub type Pairs = Vec<(String, String)>;

/// Reads a form.
///
/// # Errors
/// Why it cannot be inspected.
pub fn of_form(text: &[u8]) -> Result<Pairs, String> {
    for part in text.split(|byte| *byte == b'&') {
        match part.iter().filter(|byte| **byte == b'=').count() {
            0 if part.is_empty() => {}
            1 => {}
            0 => return Err("a field of the form has no value".to_owned()),
            _ => {
                return Err(
                    "a field of the form has a second `=`, at which some servers end it".to_owned(),
                );
            }
        }
    }
    form::read(text)
}

/// Reads a JSON object. A list stands for a parameter that is repeated.
///
/// # Errors
/// Why it cannot be inspected.
pub fn of_json(text: &[u8]) -> Result<Pairs, String> {
    let Value::Object(members) = json::read(text)? else {
        return Err("the body as JSON: it is no object".to_owned());
    };
    let mut pairs = Pairs::new();
    for (name, value) in members {
        match value {
            Value::Array(items) => {
                for item in items {
                    pairs.push((name.clone(), plain(item)?));
                }
            }
            one @ (Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Object(_)) => pairs.push((name, plain(one)?)),
        }
    }
    Ok(pairs)
}

/// A value as the form would have it.
fn plain(value: Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text),
        Value::Number(number) => Ok(number.to_string()),
        Value::Bool(flag) => Ok(if flag { "1" } else { "0" }.to_owned()),
        Value::Null | Value::Array(_) | Value::Object(_) => {
            Err("the body as JSON: a parameter is neither text nor a number".to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(pairs: &[(&str, &str)]) -> Pairs {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        pairs.iter().map(own).collect()
    }

    #[test]
    fn both_forms_say_the_same() {
        let form = of_form(b"newid=101&unprivileged=1&rootfs=local%3A8%2Csize%3D8G").unwrap();
        let json =
            of_json(br#"{"newid":101,"unprivileged":true,"rootfs":"local:8,size=8G"}"#).unwrap();
        assert_eq!(
            form,
            pairs(&[
                ("newid", "101"),
                ("unprivileged", "1"),
                ("rootfs", "local:8,size=8G")
            ])
        );
        let sorted = |mut pairs: Pairs| {
            pairs.sort();
            pairs
        };
        assert_eq!(sorted(form), sorted(json));
        assert_eq!(of_form(b"").unwrap(), pairs(&[]));
        let list = of_json(br#"{"command":["ls","-l"]}"#).unwrap();
        assert_eq!(list, of_form(b"command=ls&command=-l").unwrap());
    }

    #[test]
    fn what_is_written_in_another_way_than_it_is_read_is_not_inspected() {
        for text in [
            "a=1=2", "a=1;b=2", "a", "a=%zz", "a=1&b", "a==1", "mp0=x%ff",
        ] {
            assert!(of_form(text.as_bytes()).is_err(), "{text}");
        }
        for text in [
            "[]",
            "null",
            "\"a\"",
            r#"{"a":null}"#,
            r#"{"a":{"b":1}}"#,
            r#"{"a":[["b"]]}"#,
            r#"{"a":1,"a":2}"#,
            r#"{"a":1}{"b":2}"#,
            "",
        ] {
            assert!(of_json(text.as_bytes()).is_err(), "{text}");
        }
        // A number that is no whole one stays what it is.
        let number = of_json(br#"{"a":100.0,"b":1e2}"#).unwrap();
        assert_eq!(number, pairs(&[("a", "100.0"), ("b", "100.0")]));
    }
}
