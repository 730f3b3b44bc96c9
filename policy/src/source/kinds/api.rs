//! What a service of kind `github` opens of the REST and GraphQL APIs.

use serde_json::Value;

use crate::condition::{Conditional, Conditions, OperationWord, Pointer};
use crate::path::Target;
use crate::pattern::{Case, Entry, Method};

/// How much of the API a service opens; each includes the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Access {
    None,
    Read,
    Contribute,
    Maintain,
}

/// Further things that a service opens, each by its word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Also {
    /// Git LFS: the batch that says where large files are, and locks.
    Lfs,
    /// Releases and their assets.
    Releases,
    /// Runs of workflows: start, stop, repeat.
    Actions,
    /// Gists of whoever the credential belongs to.
    Gists,
    /// Packages of the owners of `repos`, to read.
    Packages,
}

/// Where the API is.
pub(super) struct Place {
    /// `""` on api.github.com, `/api/v3` on a server of one's own.
    pub(super) rest: &'static str,
    /// `/graphql`, `/api/graphql`.
    pub(super) graphql: &'static str,
}

pub(super) const HOSTED: Place = Place {
    rest: "",
    graphql: "/graphql",
};
pub(super) const OWN: Place = Place {
    rest: "/api/v3",
    graphql: "/api/graphql",
};

/// Of the API itself.
const READ_ROOT: &[&str] = &[
    "/",
    "/meta",
    "/rate_limit",
    "/user",
    "/users/*",
    "/versions",
];

/// Of a repository; neither its settings, hooks, keys and secrets nor its alerts.
const READ: &[&str] = &[
    "",
    "/actions/artifacts/**",
    "/actions/jobs/**",
    "/actions/runs/**",
    "/actions/workflows/**",
    "/assignees/**",
    "/branches/**",
    "/check-runs/**",
    "/check-suites/**",
    "/comments/**",
    "/commits/**",
    "/compare/**",
    "/contents/**",
    "/contributors",
    "/deployments/**",
    "/events",
    "/forks",
    "/git/**",
    "/issues/**",
    "/labels/**",
    "/languages",
    "/license",
    "/milestones/**",
    "/pulls/**",
    "/readme/**",
    "/releases/**",
    "/stats/**",
    "/statuses/**",
    "/tags",
    "/topics",
];

/// Issues, pull requests, comments and reviews.
const CONTRIBUTE: &[&str] = &[
    "POST /issues",
    "PATCH /issues/*",
    "POST /issues/*/comments",
    "PATCH,DELETE /issues/comments/*",
    "POST,PUT,DELETE /issues/*/labels",
    "DELETE /issues/*/labels/*",
    "POST,DELETE /issues/*/assignees",
    "POST /issues/*/reactions",
    "DELETE /issues/*/reactions/*",
    "POST /issues/comments/*/reactions",
    "DELETE /issues/comments/*/reactions/*",
    "POST /pulls",
    "PATCH /pulls/*",
    "POST /pulls/*/comments",
    "POST /pulls/*/comments/*/replies",
    "PATCH,DELETE /pulls/comments/*",
    "POST /pulls/comments/*/reactions",
    "DELETE /pulls/comments/*/reactions/*",
    "POST /pulls/*/reviews",
    "PUT,DELETE /pulls/*/reviews/*",
    "POST /pulls/*/reviews/*/events",
    "POST,DELETE /pulls/*/requested_reviewers",
    "POST /commits/*/comments",
    "PATCH,DELETE /comments/*",
];

/// Merging, labels, milestones, locks and statuses; neither settings nor secrets.
const MAINTAIN: &[&str] = &[
    "PUT /pulls/*/merge",
    "PUT /pulls/*/update-branch",
    "PUT /pulls/*/reviews/*/dismissals",
    "PUT,DELETE /issues/*/lock",
    "POST /labels",
    "PATCH,DELETE /labels/*",
    "POST /milestones",
    "PATCH,DELETE /milestones/*",
    "POST /statuses/*",
    "POST /check-runs",
    "PATCH /check-runs/*",
];

const RELEASES: &[&str] = &[
    "GET,HEAD /releases/**",
    "POST /releases",
    "POST /releases/generate-notes",
    "PATCH,DELETE /releases/*",
    "PATCH,DELETE /releases/assets/*",
];

const ACTIONS: &[&str] = &[
    "GET,HEAD /actions/runs/**",
    "GET,HEAD /actions/jobs/**",
    "GET,HEAD /actions/workflows/**",
    "POST /actions/workflows/*/dispatches",
    "POST /actions/runs/*/cancel",
    "POST /actions/runs/*/rerun",
    "POST /actions/runs/*/rerun-failed-jobs",
    "POST /actions/jobs/*/rerun",
];

const CONTRIBUTE_MUTATIONS: &[&str] = &[
    "addAssigneesToAssignable",
    "addComment",
    "addLabelsToLabelable",
    "addPullRequestReview",
    "addPullRequestReviewComment",
    "addPullRequestReviewThread",
    "addPullRequestReviewThreadReply",
    "addReaction",
    "clearLabelsFromLabelable",
    "closeIssue",
    "closePullRequest",
    "convertPullRequestToDraft",
    "createIssue",
    "createPullRequest",
    "deleteIssueComment",
    "deletePullRequestReview",
    "deletePullRequestReviewComment",
    "markPullRequestReadyForReview",
    "removeAssigneesFromAssignable",
    "removeLabelsFromLabelable",
    "removeReaction",
    "reopenIssue",
    "reopenPullRequest",
    "replaceActorsForAssignable",
    "requestReviews",
    "requestReviewsByLogin",
    "resolveReviewThread",
    "submitPullRequestReview",
    "unresolveReviewThread",
    "updateIssue",
    "updateIssueComment",
    "updatePullRequest",
    "updatePullRequestReview",
    "updatePullRequestReviewComment",
];

const MAINTAIN_MUTATIONS: &[&str] = &[
    "createLabel",
    "deleteLabel",
    "disablePullRequestAutoMerge",
    "dismissPullRequestReview",
    "enablePullRequestAutoMerge",
    "lockLockable",
    "mergePullRequest",
    "unlockLockable",
    "updateLabel",
    "updatePullRequestBranch",
];

impl Access {
    pub(super) const ALL: [Self; 4] = [Self::None, Self::Read, Self::Contribute, Self::Maintain];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Read => "read",
            Self::Contribute => "contribute",
            Self::Maintain => "maintain",
        }
    }

    /// The operations of GraphQL that go with it.
    pub(super) fn operations(self) -> Vec<OperationWord> {
        let mut words = Vec::new();
        if self >= Self::Read {
            words.push(String::from("query"));
        }
        let mutations: [(Self, &[&str]); 2] = [
            (Self::Contribute, CONTRIBUTE_MUTATIONS),
            (Self::Maintain, MAINTAIN_MUTATIONS),
        ];
        for (access, names) in mutations {
            if self >= access {
                words.extend(names.iter().map(|name| format!("mutation:{name}")));
            }
        }
        words
            .iter()
            .filter_map(|word| OperationWord::parse(word).ok())
            .collect()
    }
}

impl Also {
    pub(super) const ALL: [Self; 5] = [
        Self::Lfs,
        Self::Releases,
        Self::Actions,
        Self::Gists,
        Self::Packages,
    ];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Lfs => "lfs",
            Self::Releases => "releases",
            Self::Actions => "actions",
            Self::Gists => "gists",
            Self::Packages => "packages",
        }
    }
}

/// The entries of the REST API for these repositories.
pub(super) fn rest(place: &Place, repos: &[String], access: Access, also: &[Also]) -> Vec<Entry> {
    let base = place.rest;
    let mut lines = Vec::new();
    if access >= Access::Read {
        lines.extend(
            READ_ROOT
                .iter()
                .map(|path| format!("GET,HEAD {base}{path}")),
        );
    }
    if also.contains(&Also::Gists) {
        lines.push(format!("GET,HEAD,POST {base}/gists"));
        lines.push(format!("GET,HEAD,PATCH,DELETE {base}/gists/*"));
        lines.push(format!("GET,HEAD,POST {base}/gists/*/comments"));
    }
    for repo in repos {
        let under = format!("{base}/repos/{repo}");
        if access >= Access::Read {
            lines.extend(READ.iter().map(|path| format!("GET,HEAD {under}{path}")));
        }
        let lists: [(bool, &[&str]); 4] = [
            (access >= Access::Contribute, CONTRIBUTE),
            (access >= Access::Maintain, MAINTAIN),
            (also.contains(&Also::Releases), RELEASES),
            (also.contains(&Also::Actions), ACTIONS),
        ];
        for (_, list) in lists.into_iter().filter(|(open, _)| *open) {
            lines.extend(list.iter().filter_map(|line| {
                let (methods, path) = line.split_once(' ')?;
                Some(format!("{methods} {under}{path}"))
            }));
        }
        if also.contains(&Also::Packages) {
            let owner = repo.split('/').next().unwrap_or_default();
            for owners in ["users", "orgs"] {
                lines.push(format!("GET,HEAD {base}/{owners}/{owner}/packages"));
                lines.push(format!("GET,HEAD {base}/{owners}/{owner}/packages/**"));
            }
        }
    }
    lines.sort();
    lines.dedup();
    // Each is well-formed, as the repository's name is.
    lines
        .iter()
        .filter_map(|line| Entry::parse(line).ok())
        .collect()
}

/// What would open a request, in words of the kind.
pub(crate) enum Opening {
    /// The repository in `repos`.
    Repository(String),
    /// This line, which opens these entries for the service's repositories.
    Line(&'static str, Vec<Entry>),
}

/// What would open a request that a service with these entries does not permit; `None` where nothing of
/// the kind opens it.
pub(crate) fn opening(allow: &[Entry], method: Method, target: &Target<'_>) -> Option<Opening> {
    let segments: Vec<&str> = target.segments().collect();
    let (place, inner) = match segments.as_slice() {
        ["api", "v3", inner @ ..] => (&OWN, inner),
        inner => (&HOSTED, inner),
    };
    let repo = match inner {
        ["repos", owner, name, ..] => format!("{owner}/{name}"),
        _ => String::from("owner/name"),
    };
    super::github::check_repository(&repo, false).ok()?;
    let repos = [repo.clone()];
    let covers =
        |entry: &Entry| entry.covers_method(method) && entry.covers_target(target, Case::Ignore);
    let ways: [(&str, Access, &[Also]); 7] = [
        ("api = \"read\"", Access::Read, &[]),
        ("api = \"contribute\"", Access::Contribute, &[]),
        ("also = [\"releases\"]", Access::None, &[Also::Releases]),
        ("also = [\"actions\"]", Access::None, &[Also::Actions]),
        ("also = [\"gists\"]", Access::None, &[Also::Gists]),
        ("also = [\"packages\"]", Access::None, &[Also::Packages]),
        ("api = \"maintain\"", Access::Maintain, &[]),
    ];
    let mut ways = ways.into_iter();
    let (line, access, also) =
        ways.find(|(_, access, also)| rest(place, &repos, *access, also).iter().any(covers))?;
    let known = ["", "/releases"].iter().any(|under| {
        let path = format!("{}/repos/{repo}{under}", place.rest);
        Target::parse(&path).is_ok_and(|path| {
            let covers = |entry: &Entry| entry.covers_target(&path, Case::Ignore);
            allow.iter().any(covers)
        })
    });
    if known || !matches!(inner, ["repos", ..]) {
        Some(Opening::Line(
            line,
            rest(place, &repositories(place, allow), access, also),
        ))
    } else {
        Some(Opening::Repository(repo))
    }
}

/// The repositories that these entries speak of.
fn repositories(place: &Place, allow: &[Entry]) -> Vec<String> {
    let under = format!("{}/repos/", place.rest);
    let of = |entry: &Entry| {
        let mut parts = entry.pattern().strip_prefix(&under)?.split('/');
        Some(format!("{}/{}", parts.next()?, parts.next()?))
    };
    let mut repos: Vec<String> = allow.iter().filter_map(of).collect();
    repos.sort();
    repos.dedup();
    repos
}

/// The assets of releases, where they are sent to.
pub(super) fn uploads(base: &str, repos: &[String]) -> Vec<Entry> {
    repos
        .iter()
        .filter_map(|repo| {
            Entry::parse(&format!("POST {base}/repos/{repo}/releases/*/assets")).ok()
        })
        .collect()
}

/// The GraphQL API, for these operations.
pub(super) fn graphql(place: &Place, operations: Vec<OperationWord>) -> Vec<Conditional> {
    if operations.is_empty() {
        return Vec::new();
    }
    let entries = Entry::parse(&format!("POST {}", place.graphql));
    vec![Conditional {
        entries: entries.into_iter().collect(),
        conditions: Conditions {
            graphql: operations,
            ..Conditions::default()
        },
    }]
}

/// Batches of Git LFS that ask for downloads.
pub(super) fn downloads(entries: Vec<Entry>) -> Conditional {
    let pointer = Pointer::parse("/operation").ok();
    Conditional {
        entries,
        conditions: Conditions {
            json: pointer
                .map(|pointer| (pointer, vec![Value::from("download")]))
                .into_iter()
                .collect(),
            ..Conditions::default()
        },
    }
}
