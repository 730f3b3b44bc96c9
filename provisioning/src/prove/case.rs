//! A list of proofs unfolded: one case per protocol, port and user.

use std::sync::Arc;

use super::identity::{Identity, Keeps};
use super::kind::{Families, Kind, OnlyIn, Service, Who, Word as _};
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

/// What whoever tries this keeps, the control as well: they differ by the user alone, and a weaker one would fail for
/// another reason than the boundary. Except where it is the weakness itself that is proven.
#[must_use]
pub fn keeping(identity: Identity, kind: Kind) -> Identity {
    match kind {
        Kind::Raw => identity.keeping(Keeps::RawSockets),
        Kind::Ping | Kind::NewUidMap | Kind::NewGidMap | Kind::Elevate => {
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
