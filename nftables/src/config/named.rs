//! Ports, and the users that scope `guest` names as uids.

use super::resolve::{name, uid};
use super::{Administration, Config, Dhcp, Guest, Resolver, User};
use crate::accounts::Accounts;
use crate::diagnostics::Diagnostics;
use crate::ruleset::Ports;

impl Config {
    pub(super) fn ports(&self) -> Ports {
        Ports {
            gate: self.gate_port,
            redirect: self.redirect.clone(),
            resolver: self.resolver,
        }
    }

    pub(super) fn guest_users(
        &self,
        gate: Option<u32>,
        accounts: &Accounts,
        problems: &mut Diagnostics,
    ) -> Guest {
        let mut who = |line, key: String, user: &User| match uid(user, accounts) {
            Some(uid) if Some(uid) == gate => {
                let hint = "remove it: everything the gate sends may leave";
                problems.add(line, key, "the gate needs no rule of its own", hint);
                None
            }
            Some(uid) => Some(uid),
            None => {
                let text = format!("user {} does not exist", name(user));
                problems.add(
                    line,
                    key,
                    text,
                    "create the user first, or correct the name",
                );
                None
            }
        };
        let dhcp = self.guest.dhcp.as_ref().and_then(|entry| {
            Some(Dhcp {
                uid: who(entry.line, "guest.dhcp.user".into(), &entry.value.user)?,
                servers: entry.value.servers.clone(),
                reason: entry.value.reason.clone(),
            })
        });
        let resolver = self.guest.resolver.as_ref().and_then(|entry| {
            Some(Resolver {
                uid: who(entry.line, "guest.resolver.user".into(), &entry.value.user)?,
                servers: entry.value.servers.clone(),
                reason: entry.value.reason.clone(),
            })
        });
        let administration = self
            .guest
            .administration
            .iter()
            .enumerate()
            .filter_map(|(index, entry)| {
                let key = format!("guest.administration[{index}].user");
                Some(Administration {
                    uid: who(entry.line, key, &entry.value.user)?,
                    sources: entry.value.sources.clone(),
                    ports: entry.value.ports.clone(),
                    reason: entry.value.reason.clone(),
                })
            })
            .collect();
        Guest {
            dhcp,
            resolver,
            administration,
        }
    }
}
