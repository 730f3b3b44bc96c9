//! No request is injected without an allow for exactly that request, over random policies and requests.
//!
//! What should become of each is said by an oracle of its own: it knows rules and requests as they were
//! drawn, never as text, and shares no line with the product's reading or matching. The gate gets the policy
//! as a file and the request as bytes; what the upstream saw is what counts.

use std::fmt::Write as _;

use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use super::HOST;
use super::stand::{CANARY, Stand, ask};
use super::upstream::Upstream;

/// Requests that each policy is asked.
const REQUESTS: usize = 12;
const PUSH: &str = "/v1/r.git/git-receive-pack";

#[derive(Debug, Clone)]
struct Rule {
    credential: bool,
    allow: Vec<Line>,
    deny: Vec<Line>,
    tables: Vec<Table>,
    /// Refs that a push to [`PUSH`] may create.
    refs: Vec<&'static str>,
}

/// Methods and a path, whose last segment may be `*` (one) or `**` (any number).
type Line = (&'static [&'static str], &'static str);

#[derive(Debug, Clone)]
struct Table {
    line: Line,
    asks: Ask,
}

#[derive(Debug, Clone)]
enum Ask {
    Query(&'static str),
    State(Vec<&'static str>),
    Form(&'static str),
    Graphql(Vec<(&'static str, Option<&'static str>)>),
    Model {
        starts: &'static str,
        most: Option<u32>,
        tools: bool,
    },
}

#[derive(Debug, Clone)]
struct Asked {
    method: &'static str,
    path: &'static str,
    query: Option<&'static str>,
    body: Body,
    spoilt: Spoilt,
}

#[derive(Debug, Clone)]
enum Body {
    None,
    State(&'static str),
    Form(&'static str),
    /// Kind of the operation and its root fields, some behind an alias, the last in a fragment.
    Graphql(&'static str, Vec<&'static str>),
    Model(&'static str, Option<u32>, bool),
    Push(Vec<&'static str>),
}

/// What is wrong with a body that says what a rule wants to hear.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Spoilt {
    No,
    /// It says it is something else.
    Type,
    /// Something stands behind it.
    Behind,
    /// The member that counts stands there again, or in other letters.
    Twice,
}

/// What becomes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Fate {
    Refused,
    Bare,
    Injected,
}

// The oracle.

fn covers(line: &Line, method: &str, path: &str) -> bool {
    line.0.contains(&method) && leads_to(line.1, path)
}

fn leads_to(pattern: &str, path: &str) -> bool {
    if let Some(head) = pattern.strip_suffix("/**") {
        path == head || path.starts_with(&format!("{head}/"))
    } else if let Some(head) = pattern.strip_suffix("/*") {
        let rest = path.strip_prefix(&format!("{head}/"));
        rest.is_some_and(|rest| !rest.contains('/'))
    } else {
        pattern == path
    }
}

fn met(ask: &Ask, asked: &Asked) -> bool {
    let whole = asked.spoilt == Spoilt::No;
    match (ask, &asked.body) {
        (Ask::Query(value), _) => asked.query == Some(*value),
        (Ask::State(values), Body::State(state)) => whole && values.contains(state),
        (Ask::Form(value), Body::Form(sent)) => whole && value == sent,
        (Ask::Graphql(words), Body::Graphql(kind, fields)) => {
            let listed = |field: &&str| {
                words
                    .iter()
                    .any(|(of, name)| of == kind && name.is_none_or(|name| name == *field))
            };
            // A query in the target of a POST might be another document.
            let posted = asked.method == "POST" && asked.query.is_none();
            whole && posted && fields.iter().all(listed)
        }
        (
            Ask::Model {
                starts,
                most,
                tools,
            },
            Body::Model(name, bound, given),
        ) => {
            whole
                && name.starts_with(starts)
                && most.is_none_or(|most| bound.is_some_and(|bound| bound <= most))
                && (*tools || !given)
        }
        _ => false,
    }
}

fn fate(rules: &[Rule], asked: &Asked) -> Fate {
    let (method, path) = (asked.method, asked.path);
    let any = |lines: &[Line]| lines.iter().any(|line| covers(line, method, path));
    if rules.iter().any(|rule| any(&rule.deny)) {
        return Fate::Refused;
    }
    let claims = |table: &Table| {
        let graphql = matches!(table.asks, Ask::Graphql(_));
        leads_to(table.line.1, path) && (graphql || table.line.0.contains(&method))
    };
    let allowing: Vec<&Rule> = if path == PUSH {
        let Body::Push(refs) = &asked.body else {
            return Fate::Refused;
        };
        let creates = |rule: &&Rule| {
            let may = |name: &&str| rule.refs.iter().any(|glob| matches_ref(glob, name));
            method == "POST" && !rule.refs.is_empty() && refs.iter().all(may)
        };
        rules.iter().filter(creates).collect()
    } else if rules.iter().any(|rule| rule.tables.iter().any(claims)) {
        let opens = |rule: &&Rule| {
            let mut tables = rule.tables.iter();
            tables.any(|table| covers(&table.line, method, path) && met(&table.asks, asked))
        };
        rules.iter().filter(opens).collect()
    } else {
        rules.iter().filter(|rule| any(&rule.allow)).collect()
    };
    match allowing.iter().any(|rule| rule.credential) {
        true => Fate::Injected,
        false if allowing.is_empty() => Fate::Refused,
        false => Fate::Bare,
    }
}

fn matches_ref(glob: &str, name: &str) -> bool {
    match glob.strip_suffix('*') {
        Some(head) => name.starts_with(head),
        None => glob == name,
    }
}

// What is drawn.

const GET: &[&str] = &["GET"];
const POST: &[&str] = &["POST"];
const BOTH: &[&str] = &["GET", "POST"];
const LINES: &[Line] = &[
    (GET, "/v1/a"),
    (POST, "/v1/a"),
    (BOTH, "/v1/**"),
    (POST, "/v1/*"),
    (GET, "/v1/a/**"),
    (POST, "/v1/q/g"),
];
const DENIED: &[Line] = &[(GET, "/v1/a/b"), (POST, "/v1/b"), (BOTH, "/v1/a/**")];
const STATES: &[&str] = &["draft", "idea", "done"];
const FIELDS: &[&str] = &["createIssue", "mergeIt", "viewer"];
const MODELS: &[&str] = &["small-1", "small-2", "large-1"];
const REFS: &[&str] = &["refs/heads/a/1", "refs/heads/b", "refs/tags/v1"];

fn asks() -> impl Strategy<Value = Ask> {
    let words = vec![
        ("query", None),
        ("mutation", Some("createIssue")),
        ("mutation", None),
        ("query", Some("viewer")),
    ];
    prop_oneof![
        select(vec!["1", "2"]).prop_map(Ask::Query),
        subsequence(STATES, 1..3).prop_map(Ask::State),
        select(STATES).prop_map(Ask::Form),
        subsequence(words, 1..3).prop_map(Ask::Graphql),
        (
            select(vec!["small-", "large-"]),
            proptest::option::of(select(vec![10, 20])),
            any::<bool>()
        )
            .prop_map(|(starts, most, tools)| Ask::Model {
                starts,
                most,
                tools
            }),
    ]
}

fn rule() -> impl Strategy<Value = Rule> {
    let table = (select(LINES), asks()).prop_map(|(line, asks)| Table { line, asks });
    (
        any::<bool>(),
        subsequence(LINES, 0..3),
        proptest::option::weighted(0.3, select(DENIED)),
        proptest::collection::vec(table, 0..3),
        subsequence(vec!["refs/heads/a/*", "refs/heads/b", "refs/tags/*"], 0..3),
    )
        .prop_map(|(credential, allow, deny, tables, refs)| Rule {
            credential,
            allow,
            deny: deny.into_iter().collect(),
            tables,
            refs,
        })
        .prop_filter("a rule that does nothing", |rule| {
            !(rule.allow.is_empty() && rule.tables.is_empty() && rule.refs.is_empty())
        })
}

fn asked() -> impl Strategy<Value = Asked> {
    let body = prop_oneof![
        Just(Body::None),
        select(STATES).prop_map(Body::State),
        select(STATES).prop_map(Body::Form),
        (select(vec!["query", "mutation"]), subsequence(FIELDS, 1..3))
            .prop_map(|(kind, fields)| Body::Graphql(kind, fields)),
        (
            select(MODELS),
            proptest::option::of(select(vec![5, 15, 25])),
            any::<bool>()
        )
            .prop_map(|(name, bound, tools)| Body::Model(name, bound, tools)),
    ];
    let spoilt = vec![
        Spoilt::No,
        Spoilt::No,
        Spoilt::No,
        Spoilt::No,
        Spoilt::Type,
        Spoilt::Behind,
        Spoilt::Twice,
    ];
    let plain = (
        select(vec!["GET", "POST", "POST", "POST", "PUT"]),
        select(vec![
            "/v1/a", "/v1/a", "/v1/b", "/v1/a/b", "/v1/q/g", "/v1", "/v2",
        ]),
        select(vec![None, Some("1"), Some("2")]),
        body,
        select(spoilt),
    )
        .prop_map(|(method, path, query, body, spoilt)| Asked {
            method,
            path,
            query,
            body,
            spoilt,
        });
    let push = subsequence(REFS, 1..3).prop_map(|refs| Asked {
        method: "POST",
        path: PUSH,
        query: None,
        body: Body::Push(refs),
        spoilt: Spoilt::No,
    });
    prop_oneof![5 => plain, 1 => push]
}

/// The request, changed to what a table asks for, or nearly so; what is spoilt about it stays.
fn aimed(table: &Table, asked: Asked, nearly: Option<usize>) -> Asked {
    let path = match table.line.1 {
        "/v1/**" => "/v1/q",
        "/v1/*" => "/v1/z",
        "/v1/a/**" => "/v1/a/c",
        path => path,
    };
    let aimed = Asked {
        method: table.line.0.last().copied().unwrap_or("POST"),
        path,
        ..asked
    };
    let body = match (&table.asks, nearly) {
        (Ask::Query(value), _) => {
            return Asked {
                query: Some(if nearly.is_some() { "3" } else { value }),
                ..aimed
            };
        }
        (Ask::State(values), None) => Body::State(values[0]),
        (Ask::State(_), Some(_)) => Body::State("final"),
        (Ask::Form(value), None) => Body::Form(value),
        (Ask::Form(_), Some(_)) => Body::Form("final"),
        (Ask::Graphql(words), None) => {
            Body::Graphql(words[0].0, vec![words[0].1.unwrap_or("viewer")])
        }
        // Alone, as the first beside one that is listed, as the last, and of the other type.
        (Ask::Graphql(words), Some(way)) => {
            let (kind, listed) = (words[0].0, words[0].1.unwrap_or("viewer"));
            let other = if kind == "query" { "mutation" } else { "query" };
            match way % 4 {
                0 => Body::Graphql(kind, vec!["deleteIt"]),
                1 => Body::Graphql(kind, vec!["deleteIt", listed]),
                2 => Body::Graphql(kind, vec![listed, "deleteIt"]),
                _ => Body::Graphql(other, vec!["deleteIt"]),
            }
        }
        (Ask::Model { starts, most, .. }, nearly) => {
            let small = *starts == "small-";
            let (right, wrong) = if small {
                ("small-2", "large-1")
            } else {
                ("large-1", "small-2")
            };
            match nearly.map(|way| way % 4) {
                None => Body::Model(right, *most, false),
                Some(0) => Body::Model(wrong, *most, false),
                Some(1) => Body::Model(right, most.map(|most| most + 1), false),
                Some(2) => Body::Model(right, None, false),
                Some(_) => Body::Model(right, *most, true),
            }
        }
    };
    Asked {
        body,
        query: None,
        ..aimed
    }
}

// How it is written.

fn policy(rules: &[Rule], address: std::net::SocketAddr) -> String {
    let list = |lines: &[Line]| {
        let lines: Vec<String> = lines
            .iter()
            .map(|(methods, path)| format!("{} {path}", methods.join(",")))
            .collect();
        format!("{lines:?}")
    };
    let mut text = String::from("version = 1\n");
    for (number, rule) in rules.iter().enumerate() {
        write!(
            text,
            "[[service]]\nid = \"r{number}\"\nkind = \"http\"\nhost = \"{HOST}\"\naddress = \"{address}\"\nca_file = \"CA_FILE\"\n"
        )
        .unwrap();
        if rule.credential {
            text.push_str("credential = \"api\"\n");
        }
        if !rule.allow.is_empty() {
            writeln!(text, "allow = {}", list(&rule.allow)).unwrap();
        }
        if !rule.deny.is_empty() {
            writeln!(text, "deny = {}", list(&rule.deny)).unwrap();
        }
        if !rule.refs.is_empty() {
            writeln!(
                text,
                "push = [\"POST {PUSH}\"]\ncreate_refs = {:?}",
                rule.refs
            )
            .unwrap();
        }
        for table in &rule.tables {
            let asks = match &table.asks {
                Ask::Query(value) => format!("query = {{ x = \"{value}\" }}"),
                Ask::State(values) => format!("json = {{ \"/state\" = {values:?} }}"),
                Ask::Form(value) => format!("form = {{ state = \"{value}\" }}"),
                Ask::Graphql(words) => {
                    let word = |(kind, name): &(&str, Option<&str>)| match name {
                        Some(name) => format!("{kind}:{name}"),
                        None => (*kind).to_owned(),
                    };
                    format!("graphql = {:?}", words.iter().map(word).collect::<Vec<_>>())
                }
                Ask::Model {
                    starts,
                    most,
                    tools,
                } => {
                    let most = most.map_or(String::new(), |most| format!("max_tokens = {most}\n"));
                    format!("models = [\"{starts}*\"]\n{most}tools = {tools}")
                }
            };
            let line = list(&[table.line]);
            writeln!(text, "[[service.when]]\nallow = {line}\n{asks}").unwrap();
        }
    }
    text
}

fn request(asked: &Asked, marker: usize) -> String {
    let json = "application/json";
    let (mut kind, mut body) = match &asked.body {
        Body::None => ("", String::new()),
        Body::State(state) => (json, format!("{{\"state\": \"{state}\"}}")),
        Body::Form(state) => (
            "application/x-www-form-urlencoded",
            format!("state={state}&y=1"),
        ),
        Body::Graphql(kind, fields) => {
            let (last, rest) = fields.split_last().unwrap();
            let mut inner: String = rest
                .iter()
                .map(|field| format!("viewer: {field} {{ id }} "))
                .collect();
            inner.push_str("...F");
            let of = if *kind == "query" {
                "Query"
            } else {
                "Mutation"
            };
            let text = format!("fragment F on {of} {{ {last} {{ id }} }} {kind} {{ {inner} }}");
            (json, format!("{{\"query\": {text:?}}}"))
        }
        Body::Model(name, bound, tools) => {
            let bound = bound.map_or(String::new(), |bound| format!(", \"max_tokens\": {bound}"));
            let tools = if *tools {
                ", \"tools\": [{\"name\": \"x\"}]"
            } else {
                ""
            };
            (json, format!("{{\"model\": \"{name}\"{bound}{tools}}}"))
        }
        Body::Push(refs) => {
            let mut text = String::new();
            for (number, name) in refs.iter().enumerate() {
                let words = if number == 0 { "\0report-status" } else { "" };
                let line = format!("{} {} {name}{words}\n", "0".repeat(40), "1".repeat(40));
                write!(text, "{:04x}{line}", line.len() + 4).unwrap();
            }
            ("application/x-git-receive-pack-request", text + "0000PACK")
        }
    };
    match (asked.spoilt, &asked.body) {
        (Spoilt::No, _) | (_, Body::None | Body::Push(_)) => {}
        (Spoilt::Type, _) => kind = "text/plain",
        (Spoilt::Behind, Body::Form(_)) => body.push_str("&state=idea"),
        (Spoilt::Behind, _) => body.push_str("{}"),
        (Spoilt::Twice, Body::Form(_)) => body.push_str("&STATE=idea"),
        (Spoilt::Twice, Body::State(_)) => {
            body = body.replacen('{', "{\"State\": \"idea\", ", 1);
        }
        (Spoilt::Twice, Body::Graphql(..)) => {
            body = body.replacen('{', "{\"query\": \"{ viewer }\", ", 1);
        }
        (Spoilt::Twice, Body::Model(..)) => {
            body = body.replacen('{', "{\"Model\": \"small-1\", ", 1);
        }
    }
    let query = asked
        .query
        .map_or(String::new(), |value| format!("?x={value}"));
    let kind = if kind.is_empty() {
        String::new()
    } else {
        format!("Content-Type: {kind}\r\n")
    };
    format!(
        "{} {}{query} HTTP/1.1\r\nHost: {HOST}\r\nX-Marker: {marker};\r\n{kind}Content-Length: {}\r\n\r\n{body}",
        asked.method,
        asked.path,
        body.len()
    )
}

#[tokio::test]
async fn nothing_is_injected_without_an_allow_for_exactly_that_request() {
    let upstream = Upstream::start(HOST).await;
    let stand = Stand::new(&upstream, "version = 1\n");
    let mut runner = TestRunner::default();
    // `PROPTEST_CASES` makes it longer.
    let policies = runner.config().cases / 8;
    let mut fates = std::collections::BTreeMap::new();
    let mut judged_by_tables = 0;
    for number in 0..policies {
        let rules = proptest::collection::vec(rule(), 1..4);
        let rules = rules.new_tree(&mut runner).unwrap().current();
        let text = policy(&rules, upstream.address);
        stand.reload(&text);
        for place in 0..REQUESTS {
            let mut asked = asked().new_tree(&mut runner).unwrap().current();
            let mut tables = rules.iter().flat_map(|rule| &rule.tables);
            // Every second one is aimed at a condition, or hardly any would come near one.
            if place % 2 == 1
                && let Some(table) = tables.nth(place / 2 % rules.len())
            {
                // Half of these miss it by a little.
                let way = usize::try_from(number).unwrap() + place / 4;
                asked = aimed(table, asked, (place % 4 == 3).then_some(way));
            }
            let expected = fate(&rules, &asked);
            let marker = usize::try_from(number).unwrap() * REQUESTS + place;
            let bytes = request(&asked, marker);
            let before = upstream.text().matches(CANARY).count();
            let mut tls = stand.tunnel(HOST).await;
            let answer = ask(&mut tls, &bytes).await;
            let seen = upstream.text();
            let found = match seen.matches(CANARY).count() - before {
                0 if !seen.contains(&format!("x-marker: {marker};")) => Fate::Refused,
                0 => Fate::Bare,
                _ => Fate::Injected,
            };
            assert_eq!(found, expected, "{text}\n{bytes}\n{asked:?}\n{answer}");
            *fates.entry(found).or_insert(0) += 1;
            let table = |rule: &Rule| {
                let mut tables = rule.tables.iter();
                tables.any(|table| covers(&table.line, asked.method, asked.path))
            };
            judged_by_tables += usize::from(found == Fate::Injected && rules.iter().any(table));
        }
    }
    // Each of them happened often enough that the test says something.
    for fate in [Fate::Refused, Fate::Bare, Fate::Injected] {
        assert!(
            fates.get(&fate).is_some_and(|count| *count >= 10),
            "{fates:?}"
        );
    }
    assert!(judged_by_tables >= 10, "{judged_by_tables} by conditions");
}
