//! What is judged: one request, and the facts read from it.

use std::sync::Arc;

use serde_json::Value;

use crate::authority::{Authority, Scheme};

/// One request as it will be judged. Nothing here is repaired: the target is the raw origin form.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The scheme.
    pub scheme: Scheme,
    /// The one authority that everything about this request agrees on.
    pub authority: &'a Authority,
    /// The method, exactly as sent.
    pub method: &'a str,
    /// The raw origin-form target: `/path?query`.
    pub target: &'a str,
}

/// What the gate read from a request because [`Inspection`] asked for it. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Facts {
    /// Nothing was read.
    None,
    /// The commands of a `git push`, in order; empty for a flush-only probe.
    Push(Vec<RefUpdate>),
    /// What stands in a request's head and whole body.
    Content(Arc<Content>),
    /// The body could not be read as what it should be; says why.
    Unreadable(String),
}

/// One command of a push. `old` and `new` are object ids in hex, all zero for "does not exist".
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefUpdate {
    /// The id that the client believes the ref has.
    pub old: String,
    /// The id that the ref shall have.
    pub new: String,
    /// The full ref name.
    pub name: String,
    /// Whether the ref moves forward, where that was asked.
    pub history: History,
}

/// Whether what a ref shall have descends from what it has.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum History {
    /// Nobody asked.
    #[default]
    NotAsked,
    /// It does.
    Forward,
    /// It does not, or it could not be proven; says why.
    Unproven(String),
}

/// What a rule needs to know before it can judge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Inspection {
    /// The command list of a `git-receive-pack` request body.
    ReceivePack,
    /// For each ref that a push moves, whether it moves forward; of the push at most so many bytes are read.
    History(u64),
    /// Fields of the head, and the whole body.
    Content(Wanted),
}

/// What rules ask about a request beside its method and target.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Wanted {
    /// The fields of the head that are asked about, by lower-case name, each once.
    pub headers: Vec<String>,
    /// How the body is asked about, if it is at all.
    pub body: Option<Spool>,
    /// The task that the path names, if it is asked whose it is.
    pub task: Option<String>,
}

/// How a body is asked about. The gate reads it whole, before anything of it leaves, and sends the
/// very bytes that it read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spool {
    /// The most bytes, as sent and once more as unpacked, that any rule has the gate read.
    pub most: u64,
    /// Read as JSON.
    pub json: bool,
    /// Read as a form.
    pub form: bool,
    /// Read as a GraphQL request.
    pub graphql: bool,
    /// Read as parameters: a form, or one JSON object of plain values.
    pub parameters: bool,
}

/// What was read of a request.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Content {
    /// The fields that were asked about, in order, each value as sent; a value that is no visible
    /// ASCII is [`None`].
    pub headers: Vec<(String, Option<String>)>,
    /// The body, if it was asked about.
    pub body: Option<Body>,
    /// Whether the task that was asked about is the asker's.
    pub task: Option<bool>,
}

/// A body that was read whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Body {
    /// Its bytes as sent, or as unpacked if those are more. `None`: more than any rule has read.
    pub bytes: Option<u64>,
    /// The SHA-256 of the bytes as sent, in hex; empty where they were not read.
    pub sha256: String,
    /// As JSON. No object on the way to a value has a member twice.
    pub json: Reading<Value>,
    /// As a form: decoded names and values, in order.
    pub form: Reading<Vec<(String, String)>>,
    /// As a GraphQL request: what it would execute, one of each member of a batch.
    pub graphql: Reading<Vec<Operation>>,
    /// As parameters: names and values, in order.
    pub parameters: Reading<Vec<(String, String)>>,
}

/// What came of reading a body in one way.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Reading<T> {
    /// Nobody asked.
    #[default]
    NotAsked,
    /// It is this.
    Read(T),
    /// It could not be inspected; says why.
    Unreadable(String),
}

/// A GraphQL operation that would be executed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    /// Its type.
    pub kind: OperationKind,
    /// Its name, if it has one.
    pub name: Option<String>,
    /// The names of the fields that it selects from the root, behind aliases and fragments; each
    /// once.
    pub fields: Vec<String>,
}

/// The type of a GraphQL operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OperationKind {
    /// Reads.
    Query,
    /// Writes.
    Mutation,
    /// Streams.
    Subscription,
}

impl OperationKind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Query, Self::Mutation, Self::Subscription];

    /// As GraphQL has it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Query => "query",
            Self::Mutation => "mutation",
            Self::Subscription => "subscription",
        }
    }
}

impl Wanted {
    /// Whether anything is asked about.
    #[must_use]
    pub fn is_some(&self) -> bool {
        !self.headers.is_empty() || self.body.is_some() || self.task.is_some()
    }
}

impl Spool {
    /// What both ask about.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            most: self.most.max(other.most),
            json: self.json || other.json,
            form: self.form || other.form,
            graphql: self.graphql || other.graphql,
            parameters: self.parameters || other.parameters,
        }
    }

    /// Whether the body is read in any way, and not just hashed.
    #[must_use]
    pub fn reads(self) -> bool {
        self.json || self.form || self.graphql || self.parameters
    }
}

impl Body {
    /// A body that is longer than any rule has read.
    #[must_use]
    pub fn beyond() -> Self {
        Self {
            bytes: None,
            sha256: String::new(),
            json: Reading::NotAsked,
            form: Reading::NotAsked,
            graphql: Reading::NotAsked,
            parameters: Reading::NotAsked,
        }
    }
}
