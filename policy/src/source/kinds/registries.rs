//! Kinds `npm`, `pypi`, `crates` and `debian`: reading packages from registries, and publishing to them.
//!
//! Each is read-only; publishing is a service of its own, so that a credential goes to the one host that takes
//! packages. What a registry redirects to is among its hosts. Layouts: the registries' own documentation
//! (npm's registry API, PEP 503 and 691, cargo's registry index, Debian's repository format).

use super::Rules;
use super::lines::refuse_empty;
use crate::path::Slashes;
use crate::pattern::Entry;
use crate::service::Kind;
use crate::source::document::{Field, Problems, Table};

/// The hosts of a registry where a service names none.
pub(super) fn hosts(kind: Kind, publishes: bool) -> &'static [&'static str] {
    match (kind, publishes) {
        (Kind::Npm, _) => &["registry.npmjs.org"],
        (Kind::Pypi, false) => &["pypi.org", "files.pythonhosted.org"],
        (Kind::Pypi, true) => &["upload.pypi.org"],
        (Kind::Crates, false) => &["index.crates.io", "static.crates.io", "crates.io"],
        (Kind::Crates, true) => &["crates.io"],
        (Kind::Debian, _) => &["deb.debian.org", "security.debian.org"],
        (Kind::Http | Kind::Github | Kind::Proxmox | Kind::Llm | Kind::Board, _) => &[],
    }
}

/// Reads a service of kind `npm`.
pub(super) fn npm(table: &mut Table<'_>, publishes: bool, problems: &mut Problems) -> Rules {
    let good = |name: &str| {
        let part = |part: &str| is_name(part, "._-*");
        match name.strip_prefix('@') {
            None => part(name),
            Some(scoped) => scoped
                .split_once('/')
                .is_some_and(|(scope, name)| part(scope) && part(name)),
        }
    };
    let form = "write \"name\", \"@scope/name\" or \"@scope/*\"";
    let lists = Lists::read(table, form, good, problems);
    // A scoped name is one segment with an encoded slash where it is asked about, and two where it lies.
    let asked = |name: &str| name.replace('/', "%2f");
    let reads = |name: &str| {
        let (asked, lies) = (asked(name), name);
        vec![
            format!("GET,HEAD /{asked}"),
            format!("GET,HEAD /{asked}/*"),
            format!("GET,HEAD /{lies}/-/*"),
        ]
    };
    let allow = match (&lists.packages, publishes) {
        (None, false) => {
            let everything = ["GET,HEAD /*", "GET,HEAD /*/-/*", "GET,HEAD /@*/*/-/*"];
            everything.map(str::to_owned).to_vec()
        }
        (Some(names), false) => names.iter().flat_map(|name| reads(name)).collect(),
        (names, true) => {
            let names = must_name(names.as_deref(), table, problems);
            let writes = |name: &String| {
                let asked = asked(name);
                vec![
                    format!("GET,PUT /{asked}"),
                    format!("GET,PUT /-/package/{asked}/dist-tags/*"),
                    format!("GET /-/package/{asked}/dist-tags"),
                ]
            };
            names.iter().flat_map(writes).collect()
        }
    };
    let denies = |name: &str| {
        let asked = asked(name);
        vec![
            format!("* /{asked}"),
            format!("* /{asked}/**"),
            format!("* /{name}/-/**"),
            format!("* /-/package/{asked}/**"),
        ]
    };
    Rules {
        slashes: Slashes::Segment,
        ..lists.rules(allow, denies)
    }
}

/// Reads a service of kind `pypi`. Names are those that the index has: lower case, parted by `-`.
pub(super) fn pypi(table: &mut Table<'_>, publishes: bool, problems: &mut Problems) -> Rules {
    let good =
        |name: &str| is_name(name, "-*") && !name.bytes().any(|byte| byte.is_ascii_uppercase());
    let form = "write the name as the index has it: lower case, with `-` and neither `_` nor `.`";
    let lists = Lists::read(table, form, good, problems);
    let allow = match (&lists.packages, publishes) {
        (None, false) => {
            let everything = [
                "GET,HEAD /simple",
                "GET,HEAD /simple/**",
                "GET,HEAD /pypi/*/json",
                "GET,HEAD /pypi/*/*/json",
                "GET,HEAD /packages/**",
            ];
            everything.map(str::to_owned).to_vec()
        }
        (Some(names), false) => names.iter().flat_map(|name| pypi_reads(name)).collect(),
        (names, true) => {
            if names.is_some() {
                let place = table.place.key("packages");
                let problem = String::from(
                    "which package is published stands in a form that is not looked at",
                );
                problems.add(
                    &place,
                    problem,
                    String::from("remove `packages`: the token itself names a project"),
                );
            }
            vec![String::from("POST /legacy/")]
        }
    };
    let denies = |name: &str| {
        let mut lines = vec![
            format!("* /simple/{name}"),
            format!("* /simple/{name}/**"),
            format!("* /pypi/{name}/**"),
        ];
        lines.extend(files(name).map(|file| format!("* /packages/**/{file}")));
        lines
    };
    Rules {
        ignore_case: true,
        ..lists.rules(allow, denies)
    }
}

fn pypi_reads(name: &str) -> Vec<String> {
    let mut lines = vec![
        format!("GET,HEAD /simple/{name}"),
        format!("GET,HEAD /simple/{name}/"),
        format!("GET,HEAD /pypi/{name}/json"),
        format!("GET,HEAD /pypi/{name}/*/json"),
    ];
    lines.extend(files(name).map(|file| format!("GET,HEAD /packages/**/{file}")));
    lines
}

/// How the files of a project begin: wheels part the name by `_`, older source packages by any of three.
fn files(name: &str) -> impl Iterator<Item = String> {
    let mut names = vec![
        name.replace('-', "_"),
        name.to_owned(),
        name.replace('-', "."),
    ];
    names.dedup();
    // The version begins with a digit: `left-1.0` is `left`, and `left-pad-1.0` is not.
    names
        .into_iter()
        .flat_map(|name| (0..10).map(move |digit| format!("{name}-{digit}*")))
}

/// Reads a service of kind `crates`.
pub(super) fn crates(table: &mut Table<'_>, publishes: bool, problems: &mut Problems) -> Rules {
    let good = |name: &str| is_name(name, "_-*");
    let lists = Lists::read(table, "write the name of a crate", good, problems);
    let allow = match (&lists.packages, publishes) {
        (None, false) => {
            let everything = [
                "GET,HEAD /config.json",
                "GET,HEAD /*/*",
                "GET,HEAD /*/*/*",
                "GET,HEAD /crates/*/*/download",
                "GET,HEAD /api/v1/crates/*/*/download",
            ];
            everything.map(str::to_owned).to_vec()
        }
        (Some(names), false) => {
            let mut lines = vec![String::from("GET,HEAD /config.json")];
            for name in names {
                lines.extend(index(name).map(|path| format!("GET,HEAD {path}")));
                lines.push(format!("GET,HEAD /crates/{name}/*"));
                lines.push(format!("GET,HEAD /crates/{name}/*/download"));
                lines.push(format!("GET,HEAD /api/v1/crates/{name}/*/download"));
            }
            lines
        }
        (names, true) => {
            if names.is_some() {
                let place = table.place.key("packages");
                let problem =
                    String::from("which crate is published stands in a body that is not looked at");
                problems.add(
                    &place,
                    problem,
                    String::from("remove `packages`: the token itself names crates"),
                );
            }
            vec![String::from("PUT /api/v1/crates/new")]
        }
    };
    let denies = |name: &str| {
        let mut lines: Vec<String> = index(name).map(|path| format!("* {path}")).collect();
        lines.push(format!("* /crates/{name}/**"));
        lines.push(format!("* /api/v1/crates/{name}/**"));
        lines
    };
    let mut rules = lists.rules(allow, denies);
    if !publishes {
        // The index is told from the site's own API by nothing but its names, none of which lies there.
        rules
            .deny
            .extend(Entry::parse("* /api/v1/*").map(Entry::loosened));
    }
    Rules {
        ignore_case: true,
        ..rules
    }
}

/// Where the index keeps a crate, by the length of its name; of a pattern, everywhere it may be.
fn index(name: &str) -> impl Iterator<Item = String> {
    let bytes = name.as_bytes();
    let wild = name.contains('*');
    let part = |from: usize, to: usize| -> String {
        let part: String = name.chars().skip(from).take(to - from).collect();
        // What a `*` stands for may be longer or shorter than it.
        if name.find('*').is_some_and(|at| at < to) {
            String::from("*")
        } else {
            part
        }
    };
    let short = match bytes.len() {
        1 => Some(format!("/1/{name}")),
        2 => Some(format!("/2/{name}")),
        3 => Some(format!("/3/{}/{name}", part(0, 1))),
        _ => None,
    };
    let long = (bytes.len() > 3 || wild).then(|| format!("/{}/{}/{name}", part(0, 2), part(2, 4)));
    let any = wild.then(|| format!("/*/{name}"));
    let three = wild.then(|| format!("/3/*/{name}"));
    short
        .filter(|_| !wild)
        .into_iter()
        .chain(long)
        .chain(any)
        .chain(three)
}

/// Reads a service of kind `debian`.
pub(super) fn debian(table: &mut Table<'_>, problems: &mut Problems) -> Rules {
    let good =
        |name: &str| is_name(name, "+.-*") && !name.bytes().any(|byte| byte.is_ascii_uppercase());
    let lists = Lists::read(table, "write the name of a binary package", good, problems);
    let roots = ["/debian", "/debian-security", "/ubuntu"];
    let mut allow: Vec<String> = roots
        .iter()
        .map(|root| format!("GET,HEAD {root}/dists/**"))
        .collect();
    match &lists.packages {
        None => allow.extend(roots.iter().map(|root| format!("GET,HEAD {root}/pool/**"))),
        Some(names) => {
            for root in roots {
                allow.extend(
                    names
                        .iter()
                        .map(|name| format!("GET,HEAD {root}/pool/**/{name}_*")),
                );
            }
        }
    }
    let denies = |name: &str| -> Vec<String> {
        roots
            .iter()
            .map(|root| format!("* {root}/pool/**/{name}_*"))
            .collect()
    };
    lists.rules(allow, denies)
}

/// `packages` and `deny_packages`.
struct Lists {
    packages: Option<Vec<String>>,
    denied: Vec<String>,
}

impl Lists {
    fn read(
        table: &mut Table<'_>,
        form: &str,
        good: impl Fn(&str) -> bool,
        problems: &mut Problems,
    ) -> Self {
        let mut names = |key: &str| {
            let list = table.strings(key, problems)?;
            refuse_empty(&list, problems);
            let check = |name: Field<String>| {
                if good(&name.value) {
                    return Some(name.value);
                }
                let problem = format!("`{}` is no name of a package here", name.value);
                problems.add(&name.place, problem, form.to_owned());
                None
            };
            Some(list.value.into_iter().filter_map(check).collect::<Vec<_>>())
        };
        Self {
            packages: names("packages"),
            denied: names("deny_packages").unwrap_or_default(),
        }
    }

    fn rules(self, allow: Vec<String>, denies: impl Fn(&str) -> Vec<String>) -> Rules {
        // Checked names make well-formed entries.
        let entry = |line: &String| Entry::parse(line).ok();
        let denied: Vec<String> = self.denied.iter().flat_map(|name| denies(name)).collect();
        Rules {
            allow: allow.iter().filter_map(entry).collect(),
            deny: denied
                .iter()
                .filter_map(entry)
                .map(Entry::loosened)
                .collect(),
            ..Rules::default()
        }
    }
}

/// What may be published must be named, where the path says it.
fn must_name<'n>(
    names: Option<&'n [String]>,
    table: &Table<'_>,
    problems: &mut Problems,
) -> &'n [String] {
    if names.is_none() {
        problems.add(
            &table.place.key("packages"),
            String::from("`publish` would permit every package that the credential may write"),
            String::from("add `packages = [\"@scope/name\"]`"),
        );
    }
    names.unwrap_or_default()
}

fn is_name(text: &str, beside: &str) -> bool {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || beside.as_bytes().contains(&byte);
    !text.is_empty()
        && text.len() <= 214
        && text.bytes().all(good)
        && !text.starts_with('.')
        && !text.contains("**")
}

#[cfg(test)]
mod tests;
