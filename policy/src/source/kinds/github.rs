//! Kind `github`: smart HTTP of named repositories, and what is opened of the API.

use super::api::{self, Access, Also};
use super::lines::refs;
use super::when::graphql;
use super::{Beside, Rules};
use crate::condition::{Conditional, OperationWord};
use crate::pattern::{Entry, RefGlob};
use crate::service::{Destination, Refs};
use crate::source::document::{Field, Place, Problems, Table, did_you_mean};

/// The one host whose API is at hosts of its own.
const HOSTED: &str = "github.com";

/// What git may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Git {
    None,
    Fetch,
    Push,
}

/// Reads every key of the kind. `at` is where the service leads, if that could be read.
pub(super) fn read(
    table: &mut Table<'_>,
    at: Option<&[Destination]>,
    problems: &mut Problems,
) -> Rules {
    let repos = table.strings("repos", problems);
    let git = git(table, problems);
    let refs = pushed(table, git, problems);
    let access = access(table, problems);
    let also = also(table, problems);
    let operations = operations(table, access, problems);
    one_place(table, at, access, &also, problems);
    let repos = repositories(repos, &table.place.key("repos"), git, access, problems);
    let mut rules = Rules {
        ignore_case: true,
        refs: refs.unwrap_or_default(),
        ..Rules::default()
    };
    if git >= Git::Fetch {
        for repository in &repos {
            add_repository(&mut rules, repository, git == Git::Push);
        }
    }
    if also.contains(&Also::Lfs) {
        add_large_files(&mut rules, &repos, git == Git::Push);
    }
    add_api(&mut rules, &repos, at, access, &also, operations);
    rules.inspected =
        super::inspected(table, &all_conditions(&rules), rules.refs.forward, problems);
    rules
}

fn all_conditions(rules: &Rules) -> Vec<Conditional> {
    let beside = rules.beside.iter().flat_map(|beside| &beside.when);
    rules.when.iter().chain(beside).cloned().collect()
}

fn git(table: &mut Table<'_>, problems: &mut Problems) -> Git {
    let Some(field) = table.string("git", problems) else {
        return Git::Fetch;
    };
    match field.value.as_str() {
        "none" => Git::None,
        "fetch" => Git::Fetch,
        "push" => Git::Push,
        other => {
            let remedy = did_you_mean(other, ["none", "fetch", "push"].into_iter());
            problems.add(
                &field.place,
                format!("`{other}` is not a way to use git"),
                remedy,
            );
            // Unknown: judge the other keys as if it were the most, so that no second-hand problems
            // are told.
            Git::Push
        }
    }
}

/// Reads what a push may do to which refs.
fn pushed(table: &mut Table<'_>, git: Git, problems: &mut Problems) -> Option<Refs> {
    let told = problems.concern(&table.place);
    let tags = tags(table, problems);
    let refs = refs(table, problems);
    let place = refs.as_ref().map(|field| field.place.clone());
    let first = place.or_else(|| tags.as_ref().map(|field| field.place.clone()));
    match first {
        Some(place) if git < Git::Push => {
            let key = place.path.rsplit('.').next().unwrap_or("refs").to_owned();
            problems.add(
                &place,
                format!("`{key}` has no effect without `git = \"push\"`"),
                format!("add `git = \"push\"`, or remove `{key}`"),
            );
        }
        None if git == Git::Push && !told => problems.add(
            &table.place.key("refs"),
            String::from("`git = \"push\"` permits no push without `refs`"),
            String::from("add `refs = [\"refs/heads/agent/*\"]`"),
        ),
        Some(_) | None => {}
    }
    let mut all = refs.map(|field| field.value).unwrap_or_default();
    all.create
        .extend(tags.into_iter().flat_map(|field| field.value));
    Some(all)
}

/// Reads `tags`: names of tags that may be created.
fn tags(table: &mut Table<'_>, problems: &mut Problems) -> Option<Field<Vec<RefGlob>>> {
    let list = table.strings("tags", problems)?;
    if list.value.is_empty() {
        let remedy = String::from("fill it, or remove the key");
        problems.add(
            &list.place,
            String::from("an empty list has no effect"),
            remedy,
        );
    }
    let mut globs = Vec::new();
    for line in &list.value {
        match RefGlob::parse(&format!("refs/tags/{}", line.value)) {
            Ok(glob) => globs.push(glob),
            Err((problem, _)) => {
                let remedy = String::from("write names of tags, such as \"agent-*\"");
                problems.add(&line.place, problem, remedy);
            }
        }
    }
    Some(Field {
        value: globs,
        place: list.place,
    })
}

/// Reads `api`.
fn access(table: &mut Table<'_>, problems: &mut Problems) -> Access {
    let Some(field) = table.string("api", problems) else {
        return Access::None;
    };
    let names = || Access::ALL.iter().map(|access| access.as_str());
    let found = Access::ALL
        .into_iter()
        .find(|access| access.as_str() == field.value);
    if found.is_none() {
        let problem = format!("`{}` is not a way to use the API", field.value);
        problems.add(&field.place, problem, did_you_mean(&field.value, names()));
    }
    found.unwrap_or(Access::None)
}

/// Reads `also`.
fn also(table: &mut Table<'_>, problems: &mut Problems) -> Vec<Also> {
    let Some(list) = table.strings("also", problems) else {
        return Vec::new();
    };
    let mut words = Vec::new();
    for line in &list.value {
        match Also::ALL
            .into_iter()
            .find(|word| word.as_str() == line.value)
        {
            Some(word) => words.push(word),
            None => {
                let names = Also::ALL.iter().map(|word| word.as_str());
                let problem = format!("`{}` is nothing that can be opened", line.value);
                problems.add(&line.place, problem, did_you_mean(&line.value, names));
            }
        }
    }
    words
}

/// The API of github.com is at hosts of its own, that of a server of one's own is not: no service opens
/// both.
fn one_place(
    table: &Table<'_>,
    at: Option<&[Destination]>,
    access: Access,
    also: &[Also],
    problems: &mut Problems,
) {
    let hosted = |to: &&Destination| to.host.to_string() == HOSTED;
    let at = at.unwrap_or_default();
    let found = at.iter().filter(hosted).count();
    let beyond_git = access > Access::None || also.iter().any(|word| *word != Also::Lfs);
    if beyond_git && found > 0 && found < at.len() {
        problems.add(
            &table.place.key("hosts"),
            String::from("the API of github.com is elsewhere than that of another host beside it"),
            String::from("write a [[service]] for github.com and one for each other host"),
        );
    }
}

/// Reads `graphql`, which takes the place of what goes with `api`.
fn operations(
    table: &mut Table<'_>,
    access: Access,
    problems: &mut Problems,
) -> Vec<OperationWord> {
    let words = graphql(table, problems);
    if words.is_empty() {
        access.operations()
    } else {
        words
    }
}

fn repositories(
    list: Option<Field<Vec<Field<String>>>>,
    place: &Place,
    git: Git,
    access: Access,
    problems: &mut Problems,
) -> Vec<String> {
    let Some(list) = list else {
        problems.add(
            place,
            String::from("the service names no repository"),
            String::from("add `repos = [\"owner/name\"]`"),
        );
        return Vec::new();
    };
    if list.value.is_empty() {
        problems.add(
            &list.place,
            String::from("an empty list of repositories permits nothing"),
            String::from("list a repository, or remove the service"),
        );
    }
    let writes = git == Git::Push || access >= Access::Contribute;
    let mut names = Vec::new();
    for repository in list.value {
        match check_repository(&repository.value, writes) {
            Ok(()) => names.push(repository.value),
            Err((problem, remedy)) => problems.add(&repository.place, problem, remedy),
        }
    }
    names
}

/// Smart HTTP, with and without `.git`: what a git client asks for, and nothing else.
fn add_repository(rules: &mut Rules, repository: &str, push: bool) {
    let mut allow = Vec::new();
    let mut pushes = Vec::new();
    for path in [format!("/{repository}"), format!("/{repository}.git")] {
        allow.push(format!("GET {path}/info/refs?service=git-upload-pack"));
        allow.push(format!("POST {path}/git-upload-pack"));
        if push {
            allow.push(format!("GET {path}/info/refs?service=git-receive-pack"));
            pushes.push(format!("POST {path}/git-receive-pack"));
        }
    }
    rules.allow.extend(entries(&allow));
    rules.push.extend(entries(&pushes));
}

/// Git LFS as far as it goes by the git host: who may only fetch may ask for downloads only.
fn add_large_files(rules: &mut Rules, repos: &[String], push: bool) {
    let paths = |rest: &str, methods: &str| -> Vec<String> {
        let both = repos.iter().flat_map(|repo| {
            [format!("/{repo}"), format!("/{repo}.git")]
                .map(|path| format!("{methods} {path}{rest}"))
        });
        both.collect()
    };
    let batch = entries(&paths("/info/lfs/objects/batch", "POST"));
    if push {
        rules.allow.extend(batch);
        rules
            .allow
            .extend(entries(&paths("/info/lfs/locks", "GET,POST")));
        rules
            .allow
            .extend(entries(&paths("/info/lfs/locks/verify", "POST")));
        rules
            .allow
            .extend(entries(&paths("/info/lfs/locks/*/unlock", "POST")));
    } else if !batch.is_empty() {
        rules.when.push(api::downloads(batch));
    }
}

/// The API: at hosts of its own for github.com, at the same host else.
fn add_api(
    rules: &mut Rules,
    repos: &[String],
    at: Option<&[Destination]>,
    access: Access,
    also: &[Also],
    operations: Vec<OperationWord>,
) {
    let hosted = at.is_some_and(|at| at.iter().any(|to| to.host.to_string() == HOSTED));
    let place = if hosted { api::HOSTED } else { api::OWN };
    let allow = api::rest(&place, repos, access, also);
    let when = api::graphql(&place, operations);
    let uploads = if also.contains(&Also::Releases) {
        api::uploads(if hosted { "" } else { "/api/uploads" }, repos)
    } else {
        Vec::new()
    };
    if !hosted {
        rules.allow.extend(allow);
        rules.allow.extend(uploads);
        rules.when.extend(when);
        return;
    }
    let beside = [
        ("api", "api.github.com", allow, when),
        ("uploads", "uploads.github.com", uploads, Vec::new()),
    ];
    for (word, host, allow, when) in beside {
        if !allow.is_empty() || !when.is_empty() {
            rules.beside.push(Beside {
                word,
                host,
                allow,
                when,
            });
        }
    }
}

/// A checked repository name makes a well-formed entry.
fn entries(lines: &[String]) -> Vec<Entry> {
    lines
        .iter()
        .filter_map(|line| Entry::parse(line).ok())
        .collect()
}

pub(super) fn check_repository(text: &str, writes: bool) -> Result<(), (String, String)> {
    let form = || String::from("write \"owner/name\"; `*` stands for a part of either");
    let good = |part: &str| {
        let byte = |byte: u8| byte.is_ascii_alphanumeric() || b"._-*".contains(&byte);
        !part.is_empty()
            && part.bytes().all(byte)
            && part != "."
            && part != ".."
            && !part.contains("**")
    };
    let Some((owner, name)) = text.split_once('/') else {
        return Err((format!("`{text}` is not a repository"), form()));
    };
    if !good(owner) || !good(name) {
        return Err((format!("`{text}` is not a repository"), form()));
    }
    if name.to_ascii_lowercase().ends_with(".git") {
        let plain = &text[..text.len() - 4];
        return Err((
            format!("`{text}` ends in .git"),
            format!("write \"{plain}\"; it covers both spellings"),
        ));
    }
    if writes && owner.contains('*') {
        let remedy = String::from("name the owner whose repositories may be written to");
        return Err((
            format!("`{text}` would permit writing to repositories of anybody"),
            remedy,
        ));
    }
    Ok(())
}
