//! The words of the board: companies, agents, projects, tickets, comments, wakes, runs, documents.
//!
//! Plain data with public fields. Ids are UUIDs as text, times are Unix milliseconds (UTC). Nothing
//! here does I/O; `store` keeps these values, `api` renders them, `scheduler` judges them.

pub mod actor;
pub mod adapter;
pub mod agent;
pub mod approval;
pub mod hook;
pub mod interaction;
pub mod mention;
pub mod output;
pub mod profile;
pub mod project;
pub mod quiet;
pub mod refusal;
pub mod routine;
pub mod run;
pub mod text;
pub mod ticket;
pub mod time;
pub mod wake;

pub use actor::Actor;
pub use agent::{Agent, AgentStatus, Company};
pub use profile::Profile;
pub use project::{Goal, Label, Project};
pub use refusal::Refusal;
pub use run::{Run, RunStatus};
pub use ticket::{Comment, Document, Priority, Revision, Status, Ticket};
pub use wake::{Reason, Wake, WakeState};

/// Tells `null` (clear it) from absent (leave it): for `#[serde(default, deserialize_with)]`.
pub(crate) fn given<'de, D, T>(d: D) -> Result<Option<Option<T>>, D::Error>
where
    D: serde::Deserializer<'de>,
    T: serde::Deserialize<'de>,
{
    <Option<T> as serde::Deserialize>::deserialize(d).map(Some)
}

/// Defines an enum whose values are words: in JSON, in the database and in messages alike.
macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($(#[$vmeta:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Deserialize)]
        pub enum $name { $($(#[$vmeta])* #[serde(rename = $word)] $variant,)+ }

        impl $name {
            /// Every value, in declaration order.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The word.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ }
            }

            /// The value of a word, if it is one.
            #[must_use]
            pub fn parse(word: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|v| v.as_str() == word)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.serialize_str(self.as_str())
            }
        }

        impl rusqlite::ToSql for $name {
            fn to_sql(&self) -> rusqlite::Result<rusqlite::types::ToSqlOutput<'_>> {
                Ok(self.as_str().into())
            }
        }

        impl rusqlite::types::FromSql for $name {
            fn column_result(
                value: rusqlite::types::ValueRef<'_>,
            ) -> rusqlite::types::FromSqlResult<Self> {
                let word = value.as_str()?;
                Self::parse(word).ok_or(rusqlite::types::FromSqlError::InvalidType)
            }
        }
    };
}
pub(crate) use words;
