//! TOML tables with their lines, and the list of problems.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::diagnostics::{Diagnostics, Problem};

/// A place in the text: a line from 1 and a key path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) line: usize,
    pub(super) path: String,
}

/// A value and where it stands.
#[derive(Debug, Clone)]
pub(super) struct Field<T> {
    pub(super) value: T,
    pub(super) place: Place,
}

/// Collects problems.
pub(super) struct Problems {
    /// The offset at which each line after the first begins.
    lines: Vec<usize>,
    list: Vec<Problem>,
}

/// The whole text.
pub(super) struct Document<'a> {
    pub(super) services: Vec<Table<'a>>,
    /// Each `[[test]]`.
    pub(super) cases: Vec<Table<'a>>,
}

/// One `[[service]]` or `[[test]]`, emptied key by key; what is left at the end is unknown.
pub(super) struct Table<'a> {
    pub(super) place: Place,
    entries: Vec<(String, Range<usize>, Spanned<DeValue<'a>>)>,
}

const TOP_LEVEL: &[&str] = &["version", "service", "test"];
/// A value without parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Scalar {
    Text(String),
    Number(i64),
    Flag(bool),
}

/// A key that is the file's own, with its value or values.
#[derive(Debug, Clone)]
pub(super) struct Member {
    pub(super) name: String,
    pub(super) place: Place,
    pub(super) values: Vec<Scalar>,
}

impl Scalar {
    fn of(value: &DeValue<'_>) -> Option<Self> {
        match value {
            DeValue::String(text) => Some(Self::Text(text.to_string())),
            DeValue::Integer(number) if number.radix() == 10 => {
                number.as_str().parse().ok().map(Self::Number)
            }
            DeValue::Boolean(flag) => Some(Self::Flag(*flag)),
            DeValue::Integer(_)
            | DeValue::Float(_)
            | DeValue::Datetime(_)
            | DeValue::Array(_)
            | DeValue::Table(_) => None,
        }
    }
}

impl Place {
    /// The place of a key of this table, when the key itself is not there.
    pub(super) fn key(&self, key: &str) -> Self {
        Self {
            line: self.line,
            path: format!("{}.{key}", self.path),
        }
    }
}

impl Problems {
    pub(super) fn new(text: &str) -> Self {
        let lines = text.match_indices('\n').map(|(at, _)| at + 1).collect();
        Self {
            lines,
            list: Vec::new(),
        }
    }

    /// Adds a problem. Keys and values come from the file and end on a terminal: controls in them
    /// are escaped.
    pub(super) fn add(&mut self, place: &Place, problem: String, remedy: String) {
        let (line, key) = (place.line, printable(&place.path));
        let (problem, remedy) = (printable(&problem), printable(&remedy));
        self.list.push(Problem {
            line,
            key,
            problem,
            remedy,
        });
    }

    /// Whether anything has been said about a table or its keys.
    pub(super) fn concern(&self, table: &Place) -> bool {
        self.list.iter().any(|problem| {
            problem
                .key
                .strip_prefix(table.path.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        })
    }

    /// Ends the pass: nothing, or everything that was found, by line.
    pub(super) fn finish(mut self, source_name: &str) -> Result<(), Diagnostics> {
        if self.list.is_empty() {
            return Ok(());
        }
        self.list.sort_by_key(|problem| problem.line);
        Err(Diagnostics {
            source_name: source_name.to_owned(),
            problems: self.list,
        })
    }

    fn place(&self, span: &Range<usize>, path: String) -> Place {
        let line = 1 + self.lines.partition_point(|start| *start <= span.start);
        Place { line, path }
    }
}

impl<'a> Document<'a> {
    /// Reads the top level. `None` when the text is not TOML at all.
    pub(super) fn read(text: &'a str, problems: &mut Problems) -> Option<Self> {
        let (root, errors) = DeTable::parse_recoverable(text);
        if !errors.is_empty() {
            // What an error hides cannot be judged, so the syntax comes first.
            let mut told = 0;
            for error in errors {
                let place = problems.place(&error.span().unwrap_or(0..0), String::from("(syntax)"));
                // The parser stumbles more than once over one mistake.
                if place.line != told {
                    told = place.line;
                    let remedy = String::from("see https://toml.io for the grammar");
                    problems.add(&place, error.message().to_owned(), remedy);
                }
            }
            return None;
        }
        let (mut services, mut cases) = (Vec::new(), Vec::new());
        for (key, value) in root.into_inner() {
            let name = key.get_ref().to_string();
            let place = problems.place(&key.span(), as_written(&name));
            match name.as_str() {
                "version" => version(&value, &place, problems),
                "service" => services = read_tables("service", value, &place, problems),
                "test" => cases = read_tables("test", value, &place, problems),
                _ => problems.add(
                    &place,
                    format!("`{name}` is not a key of a policy"),
                    did_you_mean(&name, TOP_LEVEL.iter().copied()),
                ),
            }
        }
        Some(Self { services, cases })
    }
}

fn version(value: &Spanned<DeValue<'_>>, place: &Place, problems: &mut Problems) {
    let one = value
        .get_ref()
        .as_integer()
        .is_some_and(|number| number.radix() == 10 && number.as_str() == "1");
    if !one {
        let problem = String::from("this release reads version 1 of the policy language");
        problems.add(place, problem, String::from("write `version = 1`"));
    }
}

fn read_tables<'a>(
    name: &str,
    value: Spanned<DeValue<'a>>,
    place: &Place,
    problems: &mut Problems,
) -> Vec<Table<'a>> {
    let remedy = || format!("write `[[{name}]]`, with two brackets");
    let DeValue::Array(array) = value.into_inner() else {
        let problem = format!("`{name}` is not a list of tables");
        problems.add(place, problem, remedy());
        return Vec::new();
    };
    let mut tables = Vec::new();
    for (at, item) in array.into_iter().enumerate() {
        let place = problems.place(&item.span(), format!("{name}[{}]", at + 1));
        let DeValue::Table(table) = item.into_inner() else {
            problems.add(&place, String::from("it is not a table"), remedy());
            continue;
        };
        let entries = table
            .into_iter()
            .map(|(key, value)| (key.get_ref().to_string(), key.span(), value))
            .collect();
        tables.push(Table { place, entries });
    }
    tables
}

impl<'a> Table<'a> {
    /// Where a key stands that was not taken yet.
    pub(super) fn find(&self, key: &str, problems: &Problems) -> Option<Place> {
        let (_, span, _) = self.entries.iter().find(|(name, _, _)| name == key)?;
        Some(problems.place(span, format!("{}.{key}", self.place.path)))
    }

    /// Takes a string. A value of another type is a problem and `None`.
    pub(super) fn string(&mut self, key: &str, problems: &mut Problems) -> Option<Field<String>> {
        let (place, value) = self.take(key, problems)?;
        match value.get_ref().as_str() {
            Some(text) => Some(Field {
                value: text.to_owned(),
                place,
            }),
            None => wrong_type(&place, "text in quotes", value.get_ref(), problems),
        }
    }

    /// Takes a list of strings. Members of another type are problems of their own.
    pub(super) fn strings(
        &mut self,
        key: &str,
        problems: &mut Problems,
    ) -> Option<Field<Vec<Field<String>>>> {
        let (place, value) = self.take(key, problems)?;
        let DeValue::Array(array) = value.get_ref() else {
            return wrong_type(
                &place,
                "a list, such as [\"...\"]",
                value.get_ref(),
                problems,
            );
        };
        let mut members = Vec::new();
        for (at, item) in array.iter().enumerate() {
            let place = problems.place(&item.span(), format!("{}[{}]", place.path, at + 1));
            match item.get_ref().as_str() {
                Some(text) => members.push(Field {
                    value: text.to_owned(),
                    place,
                }),
                None => {
                    wrong_type::<()>(&place, "text in quotes", item.get_ref(), problems);
                }
            }
        }
        Some(Field {
            value: members,
            place,
        })
    }

    /// Takes a port, 1 to 65535.
    pub(super) fn port(&mut self, key: &str, problems: &mut Problems) -> Option<Field<u16>> {
        let Field { value, place } = self.number(key, u64::from(u16::MAX), problems)?;
        let value = u16::try_from(value).ok()?;
        Some(Field { value, place })
    }

    /// Takes a whole number, 1 to `most`.
    pub(super) fn number(
        &mut self,
        key: &str,
        most: u64,
        problems: &mut Problems,
    ) -> Option<Field<u64>> {
        let (place, value) = self.take(key, problems)?;
        let number = value
            .get_ref()
            .as_integer()
            .filter(|number| number.radix() == 10);
        match number.and_then(|number| number.as_str().parse::<u64>().ok()) {
            Some(value) if (1..=most).contains(&value) => Some(Field { value, place }),
            Some(_) | None => {
                let wanted = format!("a number from 1 to {most}");
                wrong_type(&place, &wanted, value.get_ref(), problems)
            }
        }
    }

    /// Takes a truth value.
    pub(super) fn flag(&mut self, key: &str, problems: &mut Problems) -> Option<Field<bool>> {
        let (place, value) = self.take(key, problems)?;
        match value.get_ref().as_bool() {
            Some(flag) => Some(Field { value: flag, place }),
            None => wrong_type(&place, "true or false", value.get_ref(), problems),
        }
    }

    /// Takes a list of tables, as `[[service.KEY]]` writes it.
    pub(super) fn tables(&mut self, key: &str, problems: &mut Problems) -> Vec<Table<'a>> {
        let Some((place, value)) = self.take(key, problems) else {
            return Vec::new();
        };
        let wanted = format!("a list of tables, each `[[service.{key}]]`,");
        let DeValue::Array(array) = value.get_ref() else {
            wrong_type::<()>(&place, &wanted, value.get_ref(), problems);
            return Vec::new();
        };
        let mut tables = Vec::new();
        for (at, item) in array.iter().enumerate() {
            let place = problems.place(&item.span(), format!("{}[{}]", place.path, at + 1));
            if let DeValue::Table(table) = item.get_ref() {
                tables.push(Table::of(place, table));
            } else {
                wrong_type::<()>(&place, &wanted, item.get_ref(), problems);
            }
        }
        tables
    }

    /// Takes a table whose keys are the file's own: each with its value or values.
    pub(super) fn map(&mut self, key: &str, problems: &mut Problems) -> Option<Field<Vec<Member>>> {
        let (place, value) = self.take(key, problems)?;
        let DeValue::Table(table) = value.get_ref() else {
            let wanted = "a table, such as { name = \"value\" }";
            return wrong_type(&place, wanted, value.get_ref(), problems);
        };
        let mut members = Vec::new();
        for (name, value) in table {
            let name = name.get_ref().to_string();
            let path = format!("{}.{}", place.path, as_written(&name));
            let place = problems.place(&value.span(), path);
            let items: Vec<&DeValue<'_>> = if let DeValue::Array(array) = value.get_ref() {
                array.iter().map(Spanned::get_ref).collect()
            } else {
                vec![value.get_ref()]
            };
            let mut scalars = Vec::new();
            for item in items {
                match Scalar::of(item) {
                    Some(scalar) => scalars.push(scalar),
                    None => {
                        let wanted = "text, a whole number, true or false, or a list of these,";
                        wrong_type::<()>(&place, wanted, item, problems);
                    }
                }
            }
            members.push(Member {
                name,
                place,
                values: scalars,
            });
        }
        Some(Field {
            value: members,
            place,
        })
    }

    fn of(place: Place, table: &DeTable<'a>) -> Self {
        let entries = table
            .iter()
            .map(|(key, value)| (key.get_ref().to_string(), key.span(), value.clone()))
            .collect();
        Self { place, entries }
    }

    /// The keys that nobody took, each with its place.
    pub(super) fn rest(&self, problems: &Problems) -> Vec<Field<String>> {
        self.entries
            .iter()
            .map(|(key, span, _)| {
                let path = format!("{}.{}", self.place.path, as_written(key));
                let place = problems.place(span, path);
                Field {
                    value: key.clone(),
                    place,
                }
            })
            .collect()
    }

    fn take(&mut self, key: &str, problems: &Problems) -> Option<(Place, Spanned<DeValue<'a>>)> {
        let at = self.entries.iter().position(|(name, _, _)| name == key)?;
        let (_, span, value) = self.entries.remove(at);
        Some((
            problems.place(&span, format!("{}.{key}", self.place.path)),
            value,
        ))
    }
}

/// A key as TOML has it: bare where that is possible, else in quotes, the empty one too.
fn as_written(key: &str) -> String {
    let bare = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    if !key.is_empty() && key.bytes().all(bare) {
        key.to_owned()
    } else {
        format!("\"{key}\"")
    }
}

fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

fn wrong_type<T>(
    place: &Place,
    wanted: &str,
    got: &DeValue<'_>,
    problems: &mut Problems,
) -> Option<T> {
    let got = match got {
        DeValue::Integer(number) => format!("the number {number}"),
        DeValue::String(text) => format!("\"{text}\""),
        DeValue::Float(_)
        | DeValue::Boolean(_)
        | DeValue::Datetime(_)
        | DeValue::Array(_)
        | DeValue::Table(_) => format!("a value of type {}", got.type_str()),
    };
    problems.add(
        place,
        format!("{got} stands where {wanted} is wanted"),
        format!("write {wanted}"),
    );
    None
}

/// A hint with the nearest known name, or all of them.
pub(super) fn did_you_mean<'n>(name: &str, known: impl Iterator<Item = &'n str> + Clone) -> String {
    let nearest = known
        .clone()
        .map(|candidate| (strsim::jaro_winkler(name, candidate), candidate))
        .filter(|(score, _)| *score > 0.75)
        .max_by(|(a, x), (b, y)| a.total_cmp(b).then_with(|| y.cmp(x)));
    match nearest {
        Some((_, candidate)) => format!("did you mean `{candidate}`?"),
        None => format!("one of: {}", known.collect::<Vec<_>>().join(", ")),
    }
}
