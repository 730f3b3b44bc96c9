//! What a type takes, as a JSON schema: asked of its own `Deserialize`, so that no description has to
//! be kept beside it.
//!
//! A type is asked several times, about one place in it each time. What it asks for there (text, a
//! number, a list, a map with these fields) is written down, and the asking ends with an error.

use std::cell::RefCell;

use serde::de::value::StrDeserializer;
use serde::de::{
    self, DeserializeOwned, DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, SeqAccess,
    Visitor,
};
use serde_json::{Map, Value, json};

/// How deep a type is followed; deeper is anything.
const DEPTH: usize = 6;
/// A list's element, in a path.
const ELEMENT: &str = "[]";
/// A map's value, in a path.
const VALUE: &str = "{}";

/// The schema of what `T` takes.
pub(in crate::api) fn schema<T: DeserializeOwned>() -> Value {
    let ask = |path: &[&'static str], fed: Option<&[&'static str]>| {
        let seen = RefCell::new(Seen::default());
        let probe = Probe {
            path,
            fed,
            seen: &seen,
        };
        // The asking always ends early; what matters is what was seen.
        let _ended = T::deserialize(probe);
        seen.into_inner()
    };
    at(&ask, &mut Vec::new())
}

type Ask<'a> = &'a dyn Fn(&[&'static str], Option<&[&'static str]>) -> Seen;

fn at(ask: Ask<'_>, path: &mut Vec<&'static str>) -> Value {
    let seen = ask(path, None);
    let nullable = seen.nullable;
    let mut inner = |step: &'static str| {
        if path.len() == DEPTH {
            return json!({});
        }
        path.push(step);
        let schema = at(ask, path);
        path.pop();
        schema
    };
    let mut schema = match seen.kind {
        Kind::Anything => return json!({}),
        Kind::Plain(schema) => schema,
        Kind::List => json!({ "type": "array", "items": inner(ELEMENT) }),
        Kind::Map => json!({ "type": "object", "additionalProperties": inner(VALUE) }),
        Kind::Fields(fields) => {
            let shown: Map<String, Value> = fields
                .iter()
                .map(|field| ((*field).to_owned(), inner(field)))
                .collect();
            let mut schema = json!({ "type": "object", "properties": shown });
            let required = required(ask, path);
            if !required.is_empty() {
                schema["required"] = json!(required);
            }
            if matches!(ask(path, Some(&[UNKNOWN])).halt, Some(Halt::Unknown)) {
                schema["additionalProperties"] = json!(false);
            }
            schema
        }
    };
    if nullable {
        if let Some(Value::Array(words)) = schema.get_mut("enum") {
            words.push(Value::Null);
        }
        schema["type"] = json!([schema["type"], "null"]);
    }
    schema
}

/// A name that no type has a field of.
const UNKNOWN: &str = "\u{1}";

/// Which fields a type does not do without: each is given once it was missed.
fn required(ask: Ask<'_>, path: &[&'static str]) -> Vec<&'static str> {
    let mut given = Vec::new();
    while let Some(Halt::Missing(field)) = ask(path, Some(&given)).halt {
        if given.contains(&field) {
            break;
        }
        given.push(field);
    }
    given
}

/// What was asked for at the place.
#[derive(Debug, Default)]
struct Seen {
    kind: Kind,
    nullable: bool,
    /// How a map with given fields ended.
    halt: Option<Halt>,
}

#[derive(Debug, Default)]
enum Kind {
    #[default]
    Anything,
    Plain(Value),
    List,
    Map,
    Fields(&'static [&'static str]),
}

/// How the asking ended.
#[derive(Debug, Clone, Copy)]
enum Halt {
    Missing(&'static str),
    Unknown,
    Other,
}

impl std::fmt::Display for Halt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the asking ends here")
    }
}

impl std::error::Error for Halt {}

impl de::Error for Halt {
    fn custom<T: std::fmt::Display>(_message: T) -> Self {
        Self::Other
    }

    fn missing_field(field: &'static str) -> Self {
        Self::Missing(field)
    }

    fn unknown_field(_field: &str, _expected: &'static [&'static str]) -> Self {
        Self::Unknown
    }
}

/// Follows a path into a type. At its end it writes down what is asked for or, where `fed` says so,
/// gives a map with these fields.
#[derive(Clone, Copy)]
struct Probe<'a> {
    path: &'a [&'static str],
    fed: Option<&'a [&'static str]>,
    seen: &'a RefCell<Seen>,
}

impl Probe<'_> {
    fn is<T>(self, schema: Value) -> Result<T, Halt> {
        self.ends(Kind::Plain(schema))
    }

    fn ends<T>(self, kind: Kind) -> Result<T, Halt> {
        if self.path.is_empty() {
            self.seen.borrow_mut().kind = kind;
        }
        Err(Halt::Other)
    }
}

macro_rules! plain {
    ($($method:ident => $schema:tt)+) => {$(
        fn $method<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, Halt> {
            self.is(json!($schema))
        }
    )+};
}

impl<'de> Deserializer<'de> for Probe<'_> {
    type Error = Halt;

    plain! {
        deserialize_bool => {"type": "boolean"}
        deserialize_i8 => {"type": "integer"}
        deserialize_i16 => {"type": "integer"}
        deserialize_i32 => {"type": "integer", "format": "int32"}
        deserialize_i64 => {"type": "integer", "format": "int64"}
        deserialize_u8 => {"type": "integer", "minimum": 0}
        deserialize_u16 => {"type": "integer", "minimum": 0}
        deserialize_u32 => {"type": "integer", "minimum": 0}
        deserialize_u64 => {"type": "integer", "minimum": 0}
        deserialize_f32 => {"type": "number"}
        deserialize_f64 => {"type": "number"}
        deserialize_char => {"type": "string"}
        deserialize_str => {"type": "string"}
        deserialize_string => {"type": "string"}
        deserialize_identifier => {"type": "string"}
        deserialize_bytes => {"type": "string"}
        deserialize_byte_buf => {"type": "string"}
        deserialize_unit => {"type": "null"}
    }

    fn deserialize_any<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, Halt> {
        self.ends(Kind::Anything)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Halt> {
        visitor.visit_unit()
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Halt> {
        if self.path.is_empty() {
            self.seen.borrow_mut().nullable = true;
        }
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Halt> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _visitor: V,
    ) -> Result<V::Value, Halt> {
        self.is(json!({ "type": "null" }))
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Halt> {
        match self.path {
            [step, rest @ ..] if *step == ELEMENT => {
                visitor.visit_seq(One(Some(Probe { path: rest, ..self })))
            }
            _ => self.ends(Kind::List),
        }
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _len: usize, visitor: V) -> Result<V::Value, Halt> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _len: usize,
        visitor: V,
    ) -> Result<V::Value, Halt> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Halt> {
        match self.path {
            [step, rest @ ..] if *step == VALUE => visitor.visit_map(Few {
                probe: self,
                names: &["key"],
                rest: Some(rest),
            }),
            _ => self.ends(Kind::Map),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Halt> {
        match (self.path, self.fed) {
            ([], None) => self.ends(Kind::Fields(fields)),
            ([], Some(names)) => {
                let probe = self;
                let rest = None;
                let made = visitor.visit_map(Few { probe, names, rest });
                self.seen.borrow_mut().halt = made.as_ref().err().copied();
                made
            }
            ([step, rest @ ..], _) => visitor.visit_map(Few {
                probe: self,
                names: std::slice::from_ref(step),
                rest: Some(rest),
            }),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        variants: &'static [&'static str],
        _visitor: V,
    ) -> Result<V::Value, Halt> {
        self.is(json!({ "type": "string", "enum": variants }))
    }
}

/// A list of one element, which is asked about.
struct One<'a>(Option<Probe<'a>>);

impl<'de> SeqAccess<'de> for One<'_> {
    type Error = Halt;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Halt> {
        let element = self.0.take();
        element.map(|probe| seed.deserialize(probe)).transpose()
    }
}

/// A map with these names: the one that is asked about, or all with values of no content.
struct Few<'a> {
    probe: Probe<'a>,
    names: &'a [&'static str],
    rest: Option<&'a [&'static str]>,
}

impl<'de> MapAccess<'de> for Few<'_> {
    type Error = Halt;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Halt> {
        let Some(name) = self.names.first() else {
            return Ok(None);
        };
        let name: StrDeserializer<'_, Halt> = (*name).into_deserializer();
        seed.deserialize(name).map(Some)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Halt> {
        self.names = self.names.get(1..).unwrap_or_default();
        match self.rest {
            Some(path) => seed.deserialize(Probe { path, ..self.probe }),
            None => seed.deserialize(Nothing),
        }
    }
}

/// The emptiest value of any type.
struct Nothing;

impl<'de> Deserializer<'de> for Nothing {
    type Error = Halt;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Halt> {
        visitor.visit_unit()
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Halt> {
        visitor.visit_none()
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Halt> {
        visitor.visit_bool(false)
    }

    fn deserialize_i64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Halt> {
        visitor.visit_i64(0)
    }

    fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Halt> {
        visitor.visit_u64(0)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Halt> {
        visitor.visit_str("")
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Halt> {
        visitor.visit_str("")
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Halt> {
        let first: StrDeserializer<'_, Halt> = variants
            .first()
            .copied()
            .unwrap_or_default()
            .into_deserializer();
        visitor.visit_enum(first)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Halt> {
        let none: [u8; 0] = [];
        visitor.visit_seq(de::value::SeqDeserializer::new(none.into_iter()))
    }

    serde::forward_to_deserialize_any! {
        i8 i16 i32 u8 u16 u32 f32 f64 char bytes byte_buf unit unit_struct newtype_struct tuple
        tuple_struct map struct identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    #[expect(dead_code, reason = "asked what it takes, never made")]
    struct Outer {
        one_word: String,
        #[serde(default)]
        many: Vec<Inner>,
        #[serde(default)]
        by_name: std::collections::BTreeMap<String, i64>,
        maybe: Option<Colour>,
        free: Value,
        count: u64,
    }

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields, default)]
    #[derive(Default)]
    struct Inner {
        yes: bool,
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Colour {
        Red,
        Blue,
    }

    #[test]
    fn a_type_says_itself_what_it_takes() {
        let _fields = (Inner { yes: true }.yes, Colour::Red, Colour::Blue);
        let expected = json!({
            "type": "object",
            "required": ["oneWord", "free", "count"],
            "properties": {
                "oneWord": { "type": "string" },
                "many": { "type": "array", "items": {
                    "type": "object", "additionalProperties": false,
                    "properties": { "yes": { "type": "boolean" } } } },
                "byName": { "type": "object",
                             "additionalProperties": { "type": "integer", "format": "int64" } },
                "maybe": { "type": ["string", "null"], "enum": ["red", "blue", null] },
                "free": {},
                "count": { "type": "integer", "minimum": 0 },
            },
        });
        assert_eq!(schema::<Outer>(), expected);
        assert_eq!(schema::<Value>(), json!({}));
    }
}
