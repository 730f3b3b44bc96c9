//! JSON that can be read in one way only: no member twice, nothing behind it, bounded depth and
//! number of values.

use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Values within values.
const MOST_DEPTH: usize = 64;
/// Values in one text; each takes memory of its own.
const MOST_VALUES: usize = 200_000;

/// Reads a text.
///
/// # Errors
/// Why it cannot be inspected.
pub fn read(text: &[u8]) -> Result<Value, String> {
    let left = Cell::new(MOST_VALUES);
    let mut from = serde_json::Deserializer::from_slice(text);
    let strict = Strict {
        depth: MOST_DEPTH,
        left: &left,
    };
    let value = strict.deserialize(&mut from).and_then(|value| {
        from.end()?;
        Ok(value)
    });
    value.map_err(|error| {
        // What stands in the text is not repeated.
        let (line, column) = (error.line(), error.column());
        let what = match error.classify() {
            serde_json::error::Category::Data => {
                let text = error.to_string();
                let text = text.split(" at line ").next().unwrap_or_default();
                text.to_owned()
            }
            serde_json::error::Category::Eof => "it ends too early".to_owned(),
            serde_json::error::Category::Io | serde_json::error::Category::Syntax => {
                "it is not JSON".to_owned()
            }
        };
        format!("the body as JSON: {what} (line {line}, column {column})")
    })
}

#[derive(Clone, Copy)]
struct Strict<'c> {
    depth: usize,
    left: &'c Cell<usize>,
}

impl Strict<'_> {
    fn one<E: Error>(&self) -> Result<(), E> {
        match self.left.get().checked_sub(1) {
            Some(left) => {
                self.left.set(left);
                Ok(())
            }
            None => Err(E::custom("it has too many values")),
        }
    }

    fn deeper<E: Error>(self) -> Result<Self, E> {
        match self.depth.checked_sub(1) {
            Some(depth) => Ok(Self { depth, ..self }),
            None => Err(E::custom("it is nested too deeply")),
        }
    }
}

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        self.one().map(|()| Value::Null)
    }

    fn visit_bool<E: Error>(self, flag: bool) -> Result<Value, E> {
        self.one().map(|()| Value::Bool(flag))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Value, E> {
        self.one().map(|()| Value::from(number))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Value, E> {
        self.one().map(|()| Value::from(number))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Value, E> {
        self.one()?;
        let number = Number::from_f64(number);
        number
            .map(Value::Number)
            .ok_or_else(|| E::custom("a number is too large"))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        self.one().map(|()| Value::String(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        self.one()?;
        let deeper = self.deeper()?;
        let mut items = Vec::new();
        while let Some(item) = from.next_element_seed(deeper)? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        self.one()?;
        let deeper = self.deeper()?;
        let mut members = Map::new();
        while let Some(name) = from.next_key::<String>()? {
            let value = from.next_value_seed(deeper)?;
            if members.insert(name, value).is_some() {
                return Err(A::Error::custom("an object has a member twice"));
            }
        }
        Ok(Value::Object(members))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_read_in_one_way_is_read() {
        for text in [
            "null",
            r#"{"a":{"a":[1,-2,1.5,"x",true,null]},"b":""}"#,
            r#"[{"a":1},{"a":2}]"#,
            r#"{"A":1,"a":2}"#,
            " {} \n",
        ] {
            let plain: Value = serde_json::from_str(text).unwrap();
            assert_eq!(read(text.as_bytes()).unwrap(), plain, "{text}");
        }
        let deep = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert!(read(deep(MOST_DEPTH).as_bytes()).is_ok());
    }

    #[test]
    fn what_can_be_read_in_two_ways_or_not_at_all_is_refused() {
        let deep = "[".repeat(MOST_DEPTH + 1) + &"]".repeat(MOST_DEPTH + 1);
        let bomb = "[".repeat(1 << 20);
        let many = format!("[{}0]", "0,".repeat(MOST_VALUES));
        let cases: Vec<(&str, Vec<u8>)> = vec![
            ("a member twice", br#"{"a":1,"a":1}"#.to_vec()),
            ("a member twice, escaped", br#"{"a":1,"\u0061":2}"#.to_vec()),
            ("twice within", br#"{"x":[{"a":1,"a":2}]}"#.to_vec()),
            ("something behind", b"{} {}".to_vec()),
            ("something behind", b"{}x".to_vec()),
            ("not UTF-8", b"\"\xff\"".to_vec()),
            ("an overlong escape", b"{\"\xc0\xae\":1}".to_vec()),
            ("half a surrogate", br#""\ud800""#.to_vec()),
            ("a byte order mark", b"\xef\xbb\xbf{}".to_vec()),
            ("UTF-16", b"{\0}\0".to_vec()),
            ("a comment", b"{}//".to_vec()),
            ("a comma", b"[1,]".to_vec()),
            ("single quotes", b"{'a':1}".to_vec()),
            ("NaN", b"NaN".to_vec()),
            ("nothing", b"".to_vec()),
            ("an end too early", b"{\"a\":".to_vec()),
            ("a number too large", b"1e999".to_vec()),
            ("too deep", deep.into_bytes()),
            ("a bomb of depth", bomb.into_bytes()),
            ("too many values", many.into_bytes()),
        ];
        for (what, text) in cases {
            let problem = read(&text).expect_err(what);
            assert!(
                problem.starts_with("the body as JSON: "),
                "{what}: {problem}"
            );
            assert!(problem.len() < 200, "{what}: {problem}");
        }
    }
}
