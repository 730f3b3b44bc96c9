//! What is judged: one request, and the facts read from its body.

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

/// What the gate read from a request's body because [`Inspection`] asked for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Facts {
    /// Nothing was read.
    None,
    /// The commands of a `git push`, in order; empty for a flush-only probe.
    Push(Vec<RefUpdate>),
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
}

/// What a rule needs to know before it can judge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inspection {
    /// The command list of a `git-receive-pack` request body.
    ReceivePack,
}
