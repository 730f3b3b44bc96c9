//! What root sees by looking: processes of the gate and of agents, accounts, and credentials where none should be.

use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use super::Run;
use super::local::{not_applicable, owned_ids};
use super::look::{beside, bound, look, shown, sleeping, some_of};
use crate::prove::attempt;
use crate::prove::case::Case;
use crate::prove::kind::Kind;
use crate::prove::needles::Needles;
use crate::prove::process::{Marked, Process};
use crate::prove::programs;
use crate::prove::sockets;
use crate::prove::verdict::{Judged, Status, none_of};

impl Run<'_> {
    pub(super) fn seen(&self, case: &Case) -> Judged {
        let uid = case.identity.map_or(0, |identity| identity.uid);
        match case.proof.kind {
            Kind::ProcessEnvironment => self.credentials_in_processes(),
            Kind::Environment => self.environments(case),
            Kind::SubordinateIds => self.subordinate_ids(uid),
            Kind::NewPrivileges => self.new_privileges(),
            Kind::Capabilities => self.capabilities(),
            Kind::SetUserId => self.set_user_id(),
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
        let needles = Needles::read(&instance.layout.credentials());
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
        let name = case.proof.names.first().map_or("", String::as_str);
        let name = name.replace('*', "PROVE");
        let mut command = self.as_agent();
        command.env(&name, "prove");
        let seen = look(&mut command, |process| {
            let variables = process.environment().unwrap_or_default();
            !attempt::telling(&variables, &case.proof.names).is_empty()
        });
        let judged = none_of(
            &found,
            format!("looked at {looked_at} processes of agents"),
            "there is",
        );
        beside(judged, seen, "a variable of ours in a process of ours")
    }

    fn subordinate_ids(&self, uid: u32) -> Judged {
        let owned = |uid| {
            let mut owned = owned_ids(self.subject, uid, true);
            owned.extend(owned_ids(self.subject, uid, false));
            owned
        };
        let list: Vec<String> = owned(uid).iter().map(ToString::to_string).collect();
        let judged = none_of(
            &list,
            format!("uid {uid} owns none"),
            &format!("uid {uid} owns"),
        );
        let mut owners = self.subject.accounts.owned().map(|(_, _, uid)| uid);
        match owners.find(|owner| *owner != uid) {
            // Whoever owns some, by the same look.
            Some(owner) => {
                let what = format!("what uid {owner} owns");
                beside(judged, Ok(!owned(owner).is_empty()), &what)
            }
            None => (judged.0, format!("{}; nobody here does", judged.1)),
        }
    }

    /// What runs as an agent can never gain rights by executing a file. The service that starts runs needs that itself.
    fn new_privileges(&self) -> Judged {
        let Some(agents) = self.agent_processes() else {
            return not_applicable("no agent runs now");
        };
        let able = shown(&agents, gains);
        let good = format!("{} processes of agents have no_new_privs", agents.len());
        let judged = none_of(&able, good, "no_new_privs is not set for");
        beside(
            judged,
            look(&mut self.as_agent(), gains),
            "a process of ours without it",
        )
    }

    /// With a capability a process can go past the rules.
    fn capabilities(&self) -> Judged {
        let Some(agents) = self.agent_processes() else {
            return not_applicable("no agent runs now");
        };
        let held = |process: &Process| process.capabilities().unwrap_or_default();
        let found: Vec<String> = agents
            .iter()
            .filter(|agent| !held(agent).is_empty())
            .map(|agent| format!("{} of {}", held(agent).join(", "), agent.shown()))
            .collect();
        let good = format!("{} processes of agents have no capability", agents.len());
        let judged = none_of(&found, good, "there is");
        let seen = look(sleeping().gid(0), |process| !held(process).is_empty());
        beside(judged, seen, "those of a process of root's")
    }

    /// Whoever has no_new_privs is made nobody else by a set-user-id file; of others it is told which files are here.
    fn set_user_id(&self) -> Judged {
        let files = programs::set_user_id(&programs::directories());
        let list: Vec<String> = files
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        let here = format!(
            "{} set-user-id and set-group-id programs ({})",
            list.len(),
            list.join(", ")
        );
        let Some(agents) = self.agent_processes() else {
            return (
                Status::NotApplicable,
                format!("no agent runs now; here are {here}"),
            );
        };
        let able = shown(&agents, gains);
        let judged = if list.is_empty() {
            (Status::Holds, "there is none here".to_owned())
        } else {
            let good = format!(
                "{here}, which do nothing for {} processes of agents",
                agents.len()
            );
            none_of(
                &able,
                good,
                &format!("{here}, and without no_new_privs there run"),
            )
        };
        let seen = programs::sees_its_own().map_err(|error| error.to_string());
        let judged = beside(judged, seen, "a set-user-id file of ours");
        beside(
            judged,
            look(&mut self.as_agent(), gains),
            "a process of ours without no_new_privs",
        )
    }

    fn gate_neighbour(&self) -> Judged {
        let Some(all) = self.gate_processes() else {
            return not_applicable("nothing runs as the gate's user now");
        };
        let strange = |process: &Process| {
            let program = process.program();
            let name = program.as_deref().and_then(|path| path.file_name());
            // A program that was replaced on disk by an upgrade runs on until it is restarted.
            !name.is_some_and(|name| {
                name.to_string_lossy().trim_end_matches(" (deleted)") == "portcullis-proxy"
            })
        };
        let good = "only the gate runs as the gate's user";
        let judged = none_of(&shown(&all, strange), good, "as the gate's user there run");
        let gate = self.subject.gate;
        let seen = look(sleeping().uid(gate.uid).gid(gate.gid), |process| {
            process.uid == gate.uid && strange(process)
        });
        beside(judged, seen, "a neighbour of ours")
    }

    fn core_dump(&self) -> Judged {
        let Some(all) = self.gate_processes() else {
            return not_applicable("nothing runs as the gate's user now");
        };
        let dumps = |process: &Process| process.dumps_core() == Some(true);
        let good = "the gate's limit for core files is 0";
        let judged = none_of(
            &shown(&all, dumps),
            good,
            "the limit for core files is not 0 for",
        );
        let mut command = Marked::program("sh");
        // Only root may raise a limit that was lowered.
        command.args([
            "-c",
            "ulimit -H -c unlimited; ulimit -S -c unlimited; exec sleep 60",
        ]);
        beside(
            judged,
            look(&mut command, dumps),
            "a process of ours that dumps",
        )
    }

    /// A socket keeps the user who made it, whoever uses it.
    fn inherited_socket(&self) -> Judged {
        let Some(agents) = self.agent_processes() else {
            return not_applicable("no agent runs now");
        };
        let foreign = |uid: u32| !self.subject.is_agent(uid);
        let mut found = Vec::new();
        for agent in &agents {
            match sockets::of_others(agent, foreign) {
                Ok(held) => {
                    let shown = |socket| format!("{socket} held by {}", agent.shown());
                    found.extend(held.into_iter().map(shown));
                }
                Err(why) => return (Status::CouldNotTell, why),
            }
        }
        let good = format!("looked at {} processes of agents", agents.len());
        let judged = none_of(&found, good, "there is a");
        let seen = match bound() {
            Ok(ours) => look(
                self.as_agent().stdin(Stdio::from(OwnedFd::from(ours))),
                |process| sockets::of_others(process, foreign).is_ok_and(|held| !held.is_empty()),
            ),
            Err(error) => Err(error.to_string()),
        };
        beside(
            judged,
            seen,
            "a socket of root's in the hands of a process of ours",
        )
    }

    /// A process of ours as the agent, without `no_new_privs`.
    fn as_agent(&self) -> Command {
        let agent = self.subject.agent;
        let mut command = sleeping();
        command.uid(agent.uid).gid(agent.gid);
        command
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

fn gains(process: &Process) -> bool {
    process.no_new_privileges() == Some(false)
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
