//! One check: fact, verdict, and the command that repairs it.

use serde::Serialize;

/// What a check says, from good to bad.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Ok,
    /// Nothing is wrong, and yet somebody should know.
    Note,
    /// It could not be told.
    Unknown,
    Bad,
}

impl Verdict {
    /// The exit status it stands for.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Self::Ok | Self::Note => 0,
            Self::Bad => 1,
            Self::Unknown => 2,
        }
    }

    /// What is known to be wrong outweighs what is not known.
    #[must_use]
    pub fn worst(all: impl Iterator<Item = Self>) -> Self {
        let rank = |verdict: &Self| match verdict {
            Self::Ok => 0,
            Self::Note => 1,
            Self::Unknown => 2,
            Self::Bad => 3,
        };
        all.max_by_key(rank).unwrap_or(Self::Unknown)
    }

    fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Unknown => "???",
            Self::Bad => "BAD",
        }
    }
}

/// What one check found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Which check: a stable word.
    pub check: &'static str,
    /// Of which service, credential or account, where there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    pub verdict: Verdict,
    /// What is so, in one line.
    pub fact: String,
    /// The command that repairs it, or that shows more.
    pub repair: String,
}

impl Finding {
    pub(super) fn new(
        check: &'static str,
        verdict: Verdict,
        fact: impl Into<String>,
        repair: impl Into<String>,
    ) -> Self {
        Self {
            check,
            subject: None,
            verdict,
            fact: fact.into(),
            repair: repair.into(),
        }
    }

    pub(super) fn of(mut self, subject: impl Into<String>) -> Self {
        self.subject = Some(subject.into());
        self
    }

    /// ```text
    ///   ok    boundary      the kernel's rules are the configured ones
    ///   BAD   credential    github: 401 Unauthorized with it, 401 Unauthorized without
    ///                       portcullis secret rotate agents/github
    /// ```
    pub(super) fn text(&self) -> String {
        let subject = self.subject.as_deref();
        let subject = subject.map_or_else(String::new, |subject| format!("{subject}: "));
        let (word, check, fact) = (self.verdict.word(), self.check, &self.fact);
        let mut text = format!("  {word:<5} {check:<12} {subject}{fact}\n");
        if self.verdict != Verdict::Ok {
            text.push_str(&format!("  {:<5} {:<12} > {}\n", "", "", self.repair));
        }
        text
    }
}
