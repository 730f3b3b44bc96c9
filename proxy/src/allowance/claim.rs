//! Whose counter a request is counted in, and what that counter is held to.

use std::fmt::Write as _;
use std::sync::Arc;

use policy::grant::{Grant, Limit, Scope};

/// `[[allowance.limit]]`: a limit, and for whom it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfiguredLimit {
    /// What is limited.
    pub limit: Limit,
    /// For this agent alone.
    pub agent: Option<String>,
    /// For this company alone.
    pub company: Option<String>,
    /// For this project alone.
    pub project: Option<String>,
    /// For this ticket alone.
    pub ticket: Option<String>,
}

/// One limit of one asker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The counter: `agent/COMPANY/AGENT` and the like; `@SECONDS` behind it where it is renewed.
    pub key: Arc<str>,
    /// What it is held to.
    pub limit: Limit,
}

impl ConfiguredLimit {
    fn is_for(&self, grant: &Grant) -> bool {
        let is = |wanted: &Option<String>, found: Option<&String>| {
            wanted.is_none() || wanted.as_ref() == found
        };
        is(&self.agent, Some(&grant.agent))
            && is(&self.company, Some(&grant.company))
            && is(&self.project, grant.project.as_ref())
            && is(&self.ticket, grant.ticket.as_ref())
    }
}

/// Every limit of an asker: what the configuration says, and what its grant does.
pub(super) fn claims(
    configured: &[ConfiguredLimit],
    grant: &Grant,
    granted: &[Limit],
) -> Vec<Claim> {
    let configured = configured.iter().filter(|one| one.is_for(grant));
    let limits = configured.map(|one| &one.limit).chain(granted);
    limits
        .filter_map(|limit| {
            Some(Claim {
                key: key(limit, grant)?.into(),
                limit: limit.clone(),
            })
        })
        .collect()
}

/// The counter's name; none where the asker has no such thing as a ticket.
fn key(limit: &Limit, grant: &Grant) -> Option<String> {
    let company = Some(grant.company.as_str());
    let parts = match limit.per {
        Scope::Run => [Some(grant.run.as_str()), Some("")],
        Scope::Ticket => [company, grant.ticket.as_deref()],
        Scope::Agent => [company, Some(grant.agent.as_str())],
        Scope::Project => [company, grant.project.as_deref()],
        Scope::Company => [company, Some("")],
    };
    let mut key = limit.per.as_str().to_owned();
    for part in parts {
        let part = part?;
        if !part.is_empty() {
            key.push('/');
            key.push_str(&escaped(part));
        }
    }
    if let Some(seconds) = limit.window_seconds {
        // Writing to a String cannot fail.
        let _ = write!(key, "@{seconds}");
    }
    Some(key)
}

/// A label without what parts a key's labels.
pub fn escaped(label: &str) -> String {
    label
        .replace('%', "%25")
        .replace('/', "%2F")
        .replace('@', "%40")
}

/// After how many seconds the counter of this name is renewed; never, if it has none.
pub(super) fn window(key: &str) -> Option<u64> {
    let (_, seconds) = key.rsplit_once('@')?;
    seconds.parse().ok().filter(|seconds| *seconds > 0)
}

#[cfg(test)]
mod tests {
    use policy::grant::RunId;

    use super::*;

    #[test]
    fn a_request_is_counted_for_everybody_it_belongs_to_and_nobody_else() {
        let limit = |per, window_seconds| Limit {
            per,
            usd: None,
            tokens: Some(1),
            requests: None,
            bytes: None,
            seconds: None,
            window_seconds,
        };
        let run = RunId::parse("r-1").unwrap();
        let grant = Grant::new("a/b", "c", Some("T@1"), run, "default").unwrap();
        let all: Vec<Limit> = Scope::ALL.into_iter().map(|per| limit(per, None)).collect();
        let keys = |grant: &Grant| -> Vec<String> {
            let claims = claims(&[], grant, &all);
            claims.iter().map(|claim| claim.key.to_string()).collect()
        };
        let wanted = [
            "run/r-1",
            "ticket/a%2Fb/T%401",
            "agent/a%2Fb/c",
            "company/a%2Fb",
        ];
        assert_eq!(keys(&grant), wanted);
        let inside = grant.clone().in_project(Some("web")).unwrap();
        assert_eq!(keys(&inside)[3], "project/a%2Fb/web");
        let mut configured = ConfiguredLimit {
            limit: limit(Scope::Agent, Some(86_400)),
            agent: Some("c".to_owned()),
            company: None,
            project: None,
            ticket: None,
        };
        let found = claims(std::slice::from_ref(&configured), &grant, &[]);
        assert_eq!(&*found[0].key, "agent/a%2Fb/c@86400");
        assert_eq!(window(&found[0].key), Some(86_400));
        assert_eq!(window("ticket/a%2Fb/T%401"), None);
        configured.agent = Some("d".to_owned());
        assert!(claims(&[configured], &grant, &[]).is_empty(), "control");
    }
}
