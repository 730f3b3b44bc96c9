//! A list of proofs unfolded: one case per protocol, port and user.

use std::sync::Arc;

use super::identity::{Identity, Keeps};
use super::kind::{Families, Kind, Must, OnlyIn, Service, Who, Word as _};
use super::list::Proof;
use super::subject::Subject;

/// One attempt to be made.
#[derive(Debug, Clone)]
pub struct Case {
    /// The proof's id with what is varied.
    pub id: String,
    pub proof: Arc<Proof>,
    pub six: bool,
    pub port: u16,
    /// Which service is asked.
    pub service: Option<Service>,
    /// `None` is root, as we are, or whoever we are without root.
    pub identity: Option<Identity>,
}

/// The cases of a list for a subject. Proofs of the other scope are left out.
#[must_use]
pub fn unfold(proofs: &[Proof], subject: &Subject) -> Vec<Case> {
    let mut cases = Vec::new();
    for proof in proofs {
        if proof.only_in.is_some_and(|scope| scope != subject.scope) {
            continue;
        }
        let users: Vec<Option<Identity>> = match proof.who {
            Who::Agent => vec![Some(subject.agent)],
            Who::EveryAgent => subject
                .edges()
                .into_iter()
                .map(|uid| Some(Identity::of(uid)))
                .collect(),
            Who::EveryAccount => subject.every_account().into_iter().map(Some).collect(),
            Who::Excepted => match subject.excepted_users() {
                // One case says that there is none.
                none if none.is_empty() => vec![Some(subject.agent)],
                some => some,
            },
            Who::Stranger => vec![Some(subject.stranger)],
            Who::Gate => vec![Some(subject.gate)],
            Who::Root => vec![None],
        };
        let keeping = |user: Option<Identity>| user.map(|user| keeping(user, proof.kind));
        let users: Vec<Option<Identity>> = users.into_iter().map(keeping).collect();
        push(&mut cases, proof, &users);
    }
    cases
}

/// The cases of a list for a process that is nobody but itself.
#[must_use]
pub fn unfold_alone(proofs: &[Proof], scope: Option<OnlyIn>) -> Vec<Case> {
    let mut cases = Vec::new();
    for proof in proofs {
        let mine = matches!(proof.who, Who::Agent | Who::EveryAgent | Who::EveryAccount);
        let here = proof.only_in.is_none() || proof.only_in == scope;
        if mine && here {
            push(&mut cases, proof, &[None]);
        }
    }
    cases
}

/// What is tried whatever the list names: a list of files alone would hold where there is no boundary at all.
pub const PRESENT: &str = "BND-present";

/// The cases to add to these so that the agent aims at the peer over each protocol: none where such a case that must fail
/// is there already. `kinds` are those that count, the first of them is the one that is added.
#[must_use]
pub fn missing(cases: &[Case], kinds: &[Kind], identity: Option<Identity>) -> Vec<Case> {
    let Some(kind) = kinds.first() else {
        return Vec::new();
    };
    let counts = |case: &&Case| {
        case.proof.must == Must::Fail
            && case.proof.who == Who::Agent
            && case.proof.inside.is_none()
            && kinds.contains(&case.proof.kind)
    };
    let mut added = Vec::new();
    let proof = Proof {
        id: PRESENT.to_owned(),
        must: Must::Fail,
        kind: *kind,
        who: Who::Agent,
        families: Families::Both,
        ports: vec![443],
        paths: Vec::new(),
        names: Vec::new(),
        headers: Vec::new(),
        inside: None,
        only_in: None,
        answer: None,
        without_gate: true,
        reason: "no list holds where there is no boundary".to_owned(),
    };
    push(&mut added, &proof, &[identity]);
    added.retain(|new| !cases.iter().filter(counts).any(|case| case.six == new.six));
    added
}

/// What whoever tries this keeps, the control as well: they differ by the user alone, and a weaker one would fail for
/// another reason than the boundary. Except where it is the weakness itself that is proven.
#[must_use]
pub fn keeping(identity: Identity, kind: Kind) -> Identity {
    match kind {
        Kind::Raw => identity.keeping(Keeps::RawSockets),
        Kind::Ping | Kind::NewUidMap | Kind::NewGidMap | Kind::Elevate | Kind::Later => {
            identity.keeping(Keeps::NewPrivileges)
        }
        _ => identity,
    }
}

fn push(cases: &mut Vec<Case>, proof: &Proof, users: &[Option<Identity>]) {
    let families: &[bool] = match (proof.kind.has_family(), proof.families) {
        (false, _) | (true, Families::Ipv4) => &[false],
        (true, Families::Ipv6) => &[true],
        (true, Families::Both) => &[false, true],
    };
    let families = if proof.kind == Kind::LinkLocal {
        &[true][..]
    } else {
        families
    };
    let ports: &[u16] = if proof.ports.is_empty() {
        &[0]
    } else {
        &proof.ports
    };
    let services: Vec<Option<Service>> = if proof.kind == Kind::NameService {
        let known = proof.names.iter().filter_map(|name| Service::of(name));
        known.map(Some).collect()
    } else {
        vec![None]
    };
    let shared = Arc::new(proof.clone());
    for identity in users {
        for six in families {
            for (port, service) in product(ports, &services) {
                let mut id = proof.id.clone();
                if proof.kind.has_family() {
                    id.push_str(if *six { "/ipv6" } else { "/ipv4" });
                }
                if port != 0 {
                    id.push_str(&format!("/{port}"));
                }
                if let Some(service) = service {
                    id.push_str(&format!("/{}", service.word()));
                }
                if let (Some(identity), true) = (identity, users.len() > 1) {
                    id.push_str(&format!("/uid{}", identity.uid));
                }
                cases.push(Case {
                    id,
                    proof: Arc::clone(&shared),
                    six: *six,
                    port,
                    service,
                    identity: *identity,
                });
            }
        }
    }
}

fn product<'a, A: Copy, B: Copy>(
    one: &'a [A],
    other: &'a [B],
) -> impl Iterator<Item = (A, B)> + 'a {
    one.iter()
        .flat_map(|one| other.iter().map(|other| (*one, *other)))
}

impl Case {
    /// `uid 1500 tries tcp to port 443 over IPv6 as root of a user namespace`.
    #[must_use]
    pub fn tried(&self) -> String {
        let who = match self.identity {
            Some(identity) => format!("uid {}", identity.uid),
            None => format!("uid {}", nix::unistd::geteuid()),
        };
        let mut text = format!("{who} tries {}", self.proof.kind.word());
        if let Some(service) = self.service {
            text.push_str(&format!(" {}", service.word()));
        }
        if self.port != 0 {
            text.push_str(&format!(" to port {}", self.port));
        }
        if self.proof.kind.has_family() {
            text.push_str(if self.six { " over IPv6" } else { " over IPv4" });
        }
        if let Some(inside) = self.proof.inside {
            text.push_str(&format!(
                " as root of a {}",
                inside.word().replace('-', " ")
            ));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prove::list::List;

    #[test]
    fn a_list_that_aims_elsewhere_gets_what_it_lacks() {
        let built_in = List::built_in().unwrap().proofs;
        let of = |change: &dyn Fn(&mut Proof)| {
            let mut proof = built_in[0].clone();
            assert_eq!((proof.kind, proof.who), (Kind::Tcp, Who::Agent));
            change(&mut proof);
            let cases = unfold_alone(&[proof], None);
            let added = missing(&cases, &[Kind::Tcp], None);
            added.into_iter().map(|case| case.id).collect::<Vec<_>>()
        };
        let both = ["BND-present/ipv4/443", "BND-present/ipv6/443"];
        assert!(of(&|_| ()).is_empty());
        assert_eq!(of(&|proof| proof.families = Families::Ipv4), both[1..]);
        assert_eq!(of(&|proof| proof.must = Must::Succeed), both);
        assert_eq!(of(&|proof| proof.kind = Kind::FileReadable), both);
        assert_eq!(of(&|proof| proof.who = Who::Stranger), both);
        assert_eq!(of(&|proof| proof.only_in = Some(OnlyIn::Guest)), both);
        let inside = Some(super::super::kind::Inside::UserNamespace);
        assert_eq!(of(&|proof| proof.inside = inside), both);
    }
}
