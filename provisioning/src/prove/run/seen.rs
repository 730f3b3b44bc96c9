//! What root sees by looking: processes of the gate and of agents, accounts, and credentials where none should be.

use super::Run;
use super::local::{not_applicable, owned_ids};
use crate::prove::attempt;
use crate::prove::case::Case;
use crate::prove::kind::Kind;
use crate::prove::process::{self, Process};
use crate::prove::verdict::{Judged, Status, none_of};

impl Run<'_> {
    pub(super) fn seen(&self, case: &Case) -> Judged {
        let uid = case.identity.map_or(0, |identity| identity.uid);
        match case.proof.kind {
            Kind::ProcessEnvironment => self.credentials_in_processes(),
            Kind::Environment => self.environments(case),
            Kind::SubordinateIds => self.subordinate_ids(uid),
            Kind::NewPrivileges => self.new_privileges(),
            Kind::GateNeighbour => self.gate_neighbour(),
            Kind::CoreDump => self.core_dump(),
            Kind::InheritedSocket => self.inherited_socket(),
            _ => groups(uid),
        }
    }

    /// No credential stands in the environment or the arguments of any process, not even for root to see.
    fn credentials_in_processes(&self) -> Judged {
        let Some(instance) = &self.subject.instance else {
            return not_applicable(
                "no instance of Portcullis is here, and so no credential of its is known",
            );
        };
        let needles = process::Needles::read(&instance.layout.credentials());
        if needles.is_empty() {
            return not_applicable("no credential file is here");
        }
        match needles.find() {
            Err(why) => (Status::CouldNotTell, why),
            Ok(found) => {
                let good = format!(
                    "{} credentials, in no environment and no argument; control: a word of ours was found",
                    needles.len()
                );
                none_of(&found, good, "a credential stands in")
            }
        }
    }

    fn environments(&self, case: &Case) -> Judged {
        let Some(agents) = self.agent_processes() else {
            return not_applicable("no agent runs now");
        };
        let mut found = Vec::new();
        let mut looked_at = 0;
        for agent in &agents {
            let Some(variables) = agent.environment() else {
                continue;
            };
            looked_at += 1;
            let telling = attempt::telling(&variables, &case.proof.names);
            let shown = |name| format!("{name} of {}", agent.shown());
            found.extend(telling.into_iter().map(shown));
        }
        if looked_at == 0 {
            return not_applicable("no agent runs any more");
        }
        none_of(
            &found,
            format!("looked at {looked_at} processes of agents"),
            "there is",
        )
    }

    fn subordinate_ids(&self, uid: u32) -> Judged {
        let mut owned = owned_ids(self.subject, uid, true);
        owned.extend(owned_ids(self.subject, uid, false));
        let list: Vec<String> = owned.iter().map(ToString::to_string).collect();
        none_of(
            &list,
            format!("uid {uid} owns none"),
            &format!("uid {uid} owns"),
        )
    }

    /// What runs as an agent can never gain rights by executing a file. The service that starts runs needs that itself.
    fn new_privileges(&self) -> Judged {
        let Some(agents) = self.agent_processes() else {
            return not_applicable("no agent runs now");
        };
        let able = shown(&agents, |process| {
            process.no_new_privileges() == Some(false)
        });
        let good = format!("{} processes of agents have no_new_privs", agents.len());
        none_of(&able, good, "no_new_privs is not set for")
    }

    fn gate_neighbour(&self) -> Judged {
        let Some(all) = self.gate_processes() else {
            return not_applicable("nothing runs as the gate's user now");
        };
        let strange = shown(&all, |process| {
            let program = process.program();
            let name = program.as_deref().and_then(|path| path.file_name());
            // A program that was replaced on disk by an upgrade runs on until it is restarted.
            !name.is_some_and(|name| {
                name.to_string_lossy().trim_end_matches(" (deleted)") == "portcullis-proxy"
            })
        });
        let good = "only the gate runs as the gate's user";
        none_of(&strange, good, "as the gate's user there run")
    }

    fn core_dump(&self) -> Judged {
        let Some(gates) = self.gate_processes() else {
            return not_applicable("nothing runs as the gate's user now");
        };
        let dumping = shown(&gates, |gate| gate.dumps_core() != Some(false));
        let good = "the gate's limit for core files is 0";
        none_of(&dumping, good, "the limit for core files is not 0 for")
    }

    /// A socket keeps the user who made it, whoever uses it.
    fn inherited_socket(&self) -> Judged {
        let Some(agents) = self.agent_processes() else {
            return not_applicable("no agent runs now");
        };
        let found: Vec<String> = agents
            .iter()
            .flat_map(|agent| {
                let sockets = agent.sockets_of(|uid| !self.subject.is_agent(uid));
                let shown = |socket| format!("{socket} held by {}", agent.shown());
                sockets.into_iter().map(shown).collect::<Vec<_>>()
            })
            .collect();
        let good = format!("looked at {} processes of agents", agents.len());
        none_of(&found, good, "there is a")
    }

    /// Processes of agents, but for our own parts; `None` where there are none.
    fn agent_processes(&self) -> Option<Vec<Process>> {
        some_of(|process| self.subject.is_agent(process.uid) && !self.is_ours(process))
    }

    /// What runs as the gate's user; `None` where nothing does.
    fn gate_processes(&self) -> Option<Vec<Process>> {
        some_of(|process| process.uid == self.subject.gate.uid)
    }
}

fn some_of(which: impl Fn(&Process) -> bool) -> Option<Vec<Process>> {
    let mut found = process::others();
    found.retain(|process| which(process));
    (!found.is_empty()).then_some(found)
}

fn shown(all: &[Process], which: impl Fn(&Process) -> bool) -> Vec<String> {
    let offenders = all.iter().filter(|process| which(process));
    offenders.map(Process::shown).collect()
}

/// The groups of an account; root's own are the control of the look-up.
fn groups(uid: u32) -> Judged {
    if attempt::groups_as_good_as_root(0).is_empty() {
        return (
            Status::CouldNotTell,
            "not even root's groups were found".to_owned(),
        );
    }
    let found = attempt::groups_as_good_as_root(uid);
    let good = format!("uid {uid} is in no such group; control: root is");
    none_of(&found, good, &format!("uid {uid} is in"))
}
