//! What scope `guest` names besides the gate: as written, and with users as uids.

use std::net::IpAddr;

use toml::de::DeTable;

use super::{At, Scope, User, destination};
use crate::reader::{Reader, Value};

/// As written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GuestNames {
    pub dhcp: Option<At<DhcpName>>,
    pub resolver: Option<At<ResolverName>>,
    pub administration: Vec<At<AdministrationName>>,
}

/// Who renews a lease, and from whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DhcpName {
    pub user: User,
    /// Addresses or networks, each with its prefix length.
    pub servers: Vec<(IpAddr, u8)>,
    pub reason: String,
}

/// Who may ask which servers, by UDP and TCP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolverName {
    pub user: User,
    pub servers: Vec<(IpAddr, u8, u16)>,
    pub reason: String,
}

/// Who may come in, from where and to which TCP ports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdministrationName {
    /// Whose socket listens and answers.
    pub user: User,
    pub sources: Vec<(IpAddr, u8)>,
    pub ports: Vec<u16>,
    pub reason: String,
}

/// The same with uids.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Guest {
    pub(crate) dhcp: Option<Dhcp>,
    pub(crate) resolver: Option<Resolver>,
    pub(crate) administration: Vec<Administration>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Dhcp {
    pub(crate) uid: u32,
    pub(crate) servers: Vec<(IpAddr, u8)>,
    pub(crate) reason: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Resolver {
    pub(crate) uid: u32,
    pub(crate) servers: Vec<(IpAddr, u8, u16)>,
    pub(crate) reason: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Administration {
    pub(crate) uid: u32,
    pub(crate) sources: Vec<(IpAddr, u8)>,
    pub(crate) ports: Vec<u16>,
    pub(crate) reason: String,
}

/// A reason stands in a comment beside the rule's own words.
const REASON: usize = 64;
const USER_HINT: &str = "a user name or a uid";
const NETWORKS_HINT: &str = "a list of addresses or networks: [\"192.0.2.1\", \"2001:db8::/64\"]";
const SERVERS_HINT: &str =
    "a list of addresses with ports: [\"192.0.2.53:53\", \"[2001:db8::53]:53\"]";

type Section<'a, 'i> = (Value<'a, 'i>, &'a DeTable<'i>);

impl Reader<'_> {
    pub(super) fn guest(&mut self, table: &DeTable<'_>, scope: Option<Scope>) -> GuestNames {
        let keys = ["dhcp", "resolver", "administration"];
        let Some((value, guest)) = self.section(table, "guest", "", &keys) else {
            return GuestNames::default();
        };
        if scope == Some(Scope::Agents) {
            let text = "has no meaning in scope \"agents\"";
            self.problem(
                value,
                "guest",
                text,
                "remove it: only the listed agents are shut",
            );
        }
        GuestNames {
            dhcp: self.dhcp(guest),
            resolver: self.guest_resolver(guest),
            administration: self.administration(guest),
        }
    }

    fn dhcp(&mut self, guest: &DeTable<'_>) -> Option<At<DhcpName>> {
        let section = self.section(guest, "dhcp", "guest.", &["user", "servers", "reason"])?;
        let user = self.who(section, "guest.dhcp.user");
        let servers = self.list(
            section,
            "guest.dhcp.servers",
            NETWORKS_HINT,
            destination::network,
        );
        let reason = self.why(section, "guest.dhcp.reason");
        Some(At {
            line: self.line(&section.0.span()),
            value: DhcpName {
                user: user?,
                servers,
                reason: reason?,
            },
        })
    }

    fn guest_resolver(&mut self, guest: &DeTable<'_>) -> Option<At<ResolverName>> {
        let section = self.section(guest, "resolver", "guest.", &["user", "servers", "reason"])?;
        let user = self.who(section, "guest.resolver.user");
        let key = "guest.resolver.servers";
        let servers = self.list(section, key, SERVERS_HINT, destination::with_port);
        let reason = self.why(section, "guest.resolver.reason");
        Some(At {
            line: self.line(&section.0.span()),
            value: ResolverName {
                user: user?,
                servers,
                reason: reason?,
            },
        })
    }

    fn administration(&mut self, guest: &DeTable<'_>) -> Vec<At<AdministrationName>> {
        let mut found = Vec::new();
        for (entry, table, key) in self.tables(guest, "guest.", "administration") {
            self.known(
                table,
                &format!("{key}."),
                &["user", "sources", "ports", "reason"],
            );
            let section = (entry, table);
            let user = match table.get("user") {
                None => Some(User::Uid(0)),
                Some(_) => self.who(section, &format!("{key}.user")),
            };
            let sources = format!("{key}.sources");
            let sources = self.list(section, &sources, NETWORKS_HINT, destination::network);
            let name = format!("{key}.ports");
            let ports = self.field(section, &name, "ports", "a list of ports: [22]");
            let ports = ports
                .map(|value| self.ports(value, &name))
                .unwrap_or_default();
            let reason = self.why(section, &format!("{key}.reason"));
            let (Some(user), Some(reason)) = (user, reason) else {
                continue;
            };
            found.push(At {
                line: self.line(&entry.span()),
                value: AdministrationName {
                    user,
                    sources,
                    ports,
                    reason,
                },
            });
        }
        found
    }

    fn who(&mut self, section: Section<'_, '_>, key: &str) -> Option<User> {
        let value = self.field(section, key, "user", USER_HINT)?;
        Some(self.user(value, key)?.value)
    }

    fn why(&mut self, section: Section<'_, '_>, key: &str) -> Option<String> {
        let value = self.field(section, key, "reason", "say why, in plain ASCII characters")?;
        self.reason(value, key, REASON)
    }

    /// A list that holds something.
    fn list<T>(
        &mut self,
        section: Section<'_, '_>,
        key: &str,
        hint: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Vec<T> {
        let name = key.rsplit('.').next().unwrap_or(key);
        let Some(value) = self.field(section, key, name, hint) else {
            return Vec::new();
        };
        let list = value.get_ref().as_array();
        let Some(list) = list.filter(|list| !list.is_empty()) else {
            self.problem(value, key, "must be a list with something in it", hint);
            return Vec::new();
        };
        let mut found = Vec::new();
        for (index, entry) in list.iter().enumerate() {
            let key = format!("{key}[{index}]");
            let Some(text) = self.string(entry, &key, hint) else {
                continue;
            };
            match parse(text) {
                Ok(value) => found.push(value),
                Err(why) => self.problem(entry, &key, why, hint),
            }
        }
        found
    }
}
