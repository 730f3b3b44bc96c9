//! The methods that the gate knows.

/// A method that the gate knows. TRACE, CONNECT and everything else have no value here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Method {
    Get,
    Head,
    Post,
    Put,
    Patch,
    Delete,
    Options,
}

impl Method {
    const ALL: [(Self, &'static str); 7] = [
        (Self::Get, "GET"),
        (Self::Head, "HEAD"),
        (Self::Post, "POST"),
        (Self::Put, "PUT"),
        (Self::Patch, "PATCH"),
        (Self::Delete, "DELETE"),
        (Self::Options, "OPTIONS"),
    ];

    /// The method with exactly this name.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::ALL
            .iter()
            .find(|(_, name)| *name == text)
            .map(|(method, _)| *method)
    }

    /// All names, for messages and nearest-name hints.
    pub(crate) fn names() -> impl Iterator<Item = &'static str> {
        Self::ALL.iter().map(|(_, name)| *name)
    }

    pub(super) fn bit(self) -> u8 {
        match self {
            Self::Get => 1,
            Self::Head => 2,
            Self::Post => 4,
            Self::Put => 8,
            Self::Patch => 16,
            Self::Delete => 32,
            Self::Options => 64,
        }
    }
}

/// Every bit of [`Method::bit`].
pub(super) const ALL_METHODS: u8 = 0x7f;

/// Reads `GET`, `GET,POST` or `*` as a set of bits; the problem and its remedy otherwise.
pub(super) fn parse_set(text: &str) -> Result<u8, (String, String)> {
    if text == "*" {
        return Ok(ALL_METHODS);
    }
    let mut bits = 0;
    for name in text.split(',') {
        let Some(method) = Method::parse(name) else {
            let known = Method::names().collect::<Vec<_>>().join(", ");
            let upper = name.to_ascii_uppercase();
            let remedy = if Method::parse(&upper).is_some() {
                format!("write `{upper}`")
            } else {
                format!("the gate knows {known}, and `*` for all of them")
            };
            return Err((
                format!("`{name}` is not a method the gate lets through"),
                remedy,
            ));
        };
        bits |= method.bit();
    }
    Ok(bits)
}

/// A set of bits as it is written: `*`, or the names with commas.
pub(crate) fn text(bits: u8) -> String {
    if bits == ALL_METHODS {
        return String::from("*");
    }
    let named = Method::ALL
        .iter()
        .filter(|(method, _)| bits & method.bit() != 0);
    named.map(|(_, name)| *name).collect::<Vec<_>>().join(",")
}
