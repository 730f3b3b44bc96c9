//! TOML text to [`Config`], collecting every problem with its line.

use std::path::PathBuf;

use toml::de::{DeTable, DeValue};

use super::{Agents, At, Config, Exception, Forward, Protocol, Redirect, Scope, User};
use crate::accounts::UidRange;
use crate::diagnostics::Diagnostics;
use crate::reader::{Reader, Value};

const KEYS: &[&str] = &[
    "scope",
    "table",
    "gate_port",
    "proxy",
    "agents",
    "reserves",
    "status",
    "forward",
    "exception",
    "redirect",
    "resolver",
    "guest",
];
const EXCEPTION_KEYS: &[&str] = &["user", "destination", "protocol", "reason", "expires"];

pub(super) fn config(text: &str, file: &str) -> Result<Config, Diagnostics> {
    Reader::read(text, file, |reader, table| reader.config(table, file))
}

impl Reader<'_> {
    fn config(&mut self, table: &DeTable<'_>, file: &str) -> Option<Config> {
        self.known(table, "", KEYS);
        let scope = self.scope(table);
        let name = self.table_name(table);
        let gate_port = self
            .required(table, "gate_port", PORT_HINT)
            .and_then(|value| self.port(value, "gate_port"));
        let redirect = self.redirect(table);
        let resolver = self.resolver(table);
        self.distinct(table);
        let proxy = self.required(table, "proxy", "name the user the gate runs as");
        let proxy = proxy.and_then(|value| self.user(value, "proxy"));
        let agents = self.agents(table, scope);
        let reserves = self.reserves(table, &agents);
        let status = self.status(table);
        let exceptions = self.exceptions(table);
        let forward = self.forward(table, scope);
        let guest = self.guest(table, scope);
        match (scope, name, gate_port, proxy, status) {
            (Some(scope), Some(table), Some(gate_port), Some(proxy), Some(status)) => {
                Some(Config {
                    file: file.to_owned(),
                    scope,
                    table,
                    gate_port,
                    redirect,
                    resolver,
                    proxy,
                    agents,
                    reserves,
                    status,
                    exceptions,
                    forward,
                    guest,
                })
            }
            _ => None,
        }
    }

    fn required<'a, 'i>(
        &mut self,
        table: &'a DeTable<'i>,
        key: &str,
        hint: &str,
    ) -> Option<Value<'a, 'i>> {
        let value = table.get(key);
        if value.is_none() {
            self.problems.add(0, key, "missing", hint);
        }
        value
    }

    pub(super) fn string<'a>(
        &mut self,
        value: Value<'a, '_>,
        key: &str,
        hint: &str,
    ) -> Option<&'a str> {
        let text = value.get_ref().as_str();
        if text.is_none() {
            let kind = value.get_ref().type_str();
            self.problem(value, key, format!("must be a string, not {kind}"), hint);
        }
        text
    }

    fn scope(&mut self, table: &DeTable<'_>) -> Option<Scope> {
        let hint = "\"agents\" shuts the listed users only, \"guest\" everything but the gate";
        let value = self.required(table, "scope", hint)?;
        match self.string(value, "scope", hint)? {
            "agents" => Some(Scope::Agents),
            "guest" => Some(Scope::Guest),
            other => {
                self.problem(value, "scope", format!("unknown scope {other:?}"), hint);
                None
            }
        }
    }

    fn table_name(&mut self, table: &DeTable<'_>) -> Option<String> {
        let hint = "a name such as \"portcullis\": letters, digits, - and _, a letter first, at \
                    most 31, not ending in -guard";
        let Some(value) = table.get("table") else {
            return Some("portcullis".to_owned());
        };
        let name = self.string(value, "table", hint)?;
        let good = name.len() <= 31
            && name.starts_with(|c: char| c.is_ascii_alphabetic())
            && name
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
            // That is what stands in while another table is replaced, and is removed afterwards.
            && !name.ends_with(crate::netlink::GUARD);
        if !good {
            self.problem(
                value,
                "table",
                format!("{name:?} cannot name a table"),
                hint,
            );
            return None;
        }
        Some(name.to_owned())
    }

    pub(super) fn port(&mut self, value: Value<'_, '_>, key: &str) -> Option<u16> {
        match integer(value).and_then(|number| u16::try_from(number).ok()) {
            Some(port) if port != 0 => Some(port),
            _ => {
                self.problem(value, key, "not a port", PORT_HINT);
                None
            }
        }
    }

    /// A list of ports, sorted, each once.
    pub(super) fn ports(&mut self, value: Value<'_, '_>, key: &str) -> Vec<u16> {
        let Some(list) = value.get_ref().as_array() else {
            self.problem(value, key, "must be a list of ports", "[80, 443]");
            return Vec::new();
        };
        if list.is_empty() {
            self.problem(value, key, "empty", "name at least one port");
        }
        let mut ports: Vec<u16> = list
            .iter()
            .enumerate()
            .filter_map(|(index, entry)| self.port(entry, &format!("{key}[{index}]")))
            .collect();
        ports.sort_unstable();
        ports.dedup();
        ports
    }

    /// A table under this key, its keys checked.
    pub(super) fn section<'a, 'i>(
        &mut self,
        table: &'a DeTable<'i>,
        key: &str,
        prefix: &str,
        keys: &[&str],
    ) -> Option<(Value<'a, 'i>, &'a DeTable<'i>)> {
        let value = table.get(key)?;
        let Some(section) = value.get_ref().as_table() else {
            let hint = format!("write it as [{prefix}{key}]");
            self.problem(value, &format!("{prefix}{key}"), "must be a table", &hint);
            return None;
        };
        self.known(section, &format!("{prefix}{key}."), keys);
        Some((value, section))
    }

    /// A value that a section must have.
    pub(super) fn field<'a, 'i>(
        &mut self,
        (section, table): (Value<'_, '_>, &'a DeTable<'i>),
        key: &str,
        name: &str,
        hint: &str,
    ) -> Option<Value<'a, 'i>> {
        let value = table.get(name);
        if value.is_none() {
            self.problem(section, key, "missing", hint);
        }
        value
    }

    fn redirect(&mut self, table: &DeTable<'_>) -> Option<Redirect> {
        let section = self.section(table, "redirect", "", &["port", "ports"])?;
        let port = self.field(section, "redirect.port", "port", PORT_HINT);
        let port = port.and_then(|value| self.port(value, "redirect.port"));
        let ports = section.1.get("ports");
        let ports = ports.map(|value| self.ports(value, "redirect.ports"));
        Some(Redirect {
            port: port?,
            ports: ports.unwrap_or_default(),
        })
    }

    fn resolver(&mut self, table: &DeTable<'_>) -> Option<u16> {
        let section = self.section(table, "resolver", "", &["port"])?;
        let port = self.field(section, "resolver.port", "port", PORT_HINT);
        port.and_then(|value| self.port(value, "resolver.port"))
    }

    /// The gate needs a port of its own for each purpose.
    fn distinct(&mut self, table: &DeTable<'_>) {
        let port = |section: &str| table.get(section)?.get_ref().as_table()?.get("port");
        let ports = [
            ("gate_port", table.get("gate_port")),
            ("redirect.port", port("redirect")),
            ("resolver.port", port("resolver")),
        ];
        for (index, (key, value)) in ports.iter().enumerate() {
            let Some((value, number)) = value.and_then(|value| Some((value, integer(value)?)))
            else {
                continue;
            };
            let same = |(_, other): &&(&str, Option<Value<'_, '_>>)| {
                other.and_then(integer) == Some(number)
            };
            if let Some((other, _)) = ports[..index].iter().find(same) {
                let hint = "the gate needs a port of its own for each";
                self.problem(value, key, format!("{number} is {other} too"), hint);
            }
        }
    }

    fn forward(&mut self, table: &DeTable<'_>, scope: Option<Scope>) -> Option<Forward> {
        let hint = "\"refuse\" (the default) passes nothing on, \"host\" leaves it to the host's own rules";
        let value = table.get("forward")?;
        match self.string(value, "forward", hint)? {
            "refuse" => Some(Forward::Refuse),
            "host" if scope == Some(Scope::Guest) => {
                let text = "a guest passes nothing on".to_owned();
                self.problem(value, "forward", text, "remove the line, or say \"refuse\"");
                None
            }
            "host" => Some(Forward::Host),
            other => {
                self.problem(value, "forward", format!("unknown word {other:?}"), hint);
                None
            }
        }
    }

    fn status(&mut self, table: &DeTable<'_>) -> Option<PathBuf> {
        let hint = "an absolute path, the same as [boundary] status in proxy.toml";
        let Some(value) = table.get("status") else {
            return Some(PathBuf::from("/run/portcullis/boundary/status.json"));
        };
        let path = PathBuf::from(self.string(value, "status", hint)?);
        if !path.is_absolute() {
            self.problem(value, "status", "must be an absolute path", hint);
            return None;
        }
        Some(path)
    }

    pub(super) fn user(&mut self, value: Value<'_, '_>, key: &str) -> Option<At<User>> {
        let hint = "a user name or a uid";
        let line = self.line(&value.span());
        let user = match value.get_ref() {
            DeValue::Integer(_) => integer(value).map(User::Uid),
            DeValue::String(text) if !text.is_empty() => match text.parse() {
                Ok(uid) => Some(User::Uid(uid)),
                Err(_) if user_name(text) => Some(User::Name(text.to_string())),
                Err(_) => None,
            },
            _ => None,
        };
        if user.is_none() {
            self.problem(value, key, "not a user", hint);
        }
        user.map(|value| At { line, value })
    }

    fn agents(&mut self, table: &DeTable<'_>, scope: Option<Scope>) -> Vec<At<Agents>> {
        let hint = "a list of user names, uids or ranges: [\"portcullis-exec\", \"1500-1599\"]";
        let Some(value) = table.get("agents") else {
            if scope == Some(Scope::Agents) {
                self.problems
                    .add(0, "agents", "missing: nobody would be shut", hint);
            }
            return Vec::new();
        };
        let Some(list) = value.get_ref().as_array() else {
            self.problem(value, "agents", "must be a list", hint);
            return Vec::new();
        };
        if list.is_empty() {
            self.problem(value, "agents", "empty: nobody would be shut", hint);
        }
        let mut found = Vec::new();
        for (index, entry) in list.iter().enumerate() {
            let key = format!("agents[{index}]");
            let line = self.line(&entry.span());
            let range = entry.get_ref().as_str().and_then(range);
            match range {
                Some(Ok(range)) => found.push(At {
                    line,
                    value: Agents::Range(range),
                }),
                Some(Err(text)) => self.problem(entry, &key, text, hint),
                None => {
                    if let Some(At { line, value }) = self.user(entry, &key) {
                        found.push(At {
                            line,
                            value: Agents::User(value),
                        });
                    }
                }
            }
        }
        found
    }

    /// Users that `agents` lists as users.
    fn reserves(&mut self, table: &DeTable<'_>, agents: &[At<Agents>]) -> Vec<At<User>> {
        let hint = "a list of users that stand under agents as well: [\"portcullis-exec\"]";
        let Some(value) = table.get("reserves") else {
            return Vec::new();
        };
        let Some(list) = value.get_ref().as_array() else {
            self.problem(value, "reserves", "must be a list", hint);
            return Vec::new();
        };
        let mut found = Vec::new();
        for (index, entry) in list.iter().enumerate() {
            let key = format!("reserves[{index}]");
            let Some(user) = self.user(entry, &key) else {
                continue;
            };
            if agents
                .iter()
                .any(|agent| agent.value == Agents::User(user.value.clone()))
            {
                found.push(user);
            } else {
                let text = "no user under agents: its subordinate ids would not be shut";
                self.problem(entry, &key, text, hint);
            }
        }
        found
    }

    /// What becomes part of a rule's comment, which the kernel limits.
    pub(super) fn reason(
        &mut self,
        value: Value<'_, '_>,
        key: &str,
        most: usize,
    ) -> Option<String> {
        let hint = format!("say why in at most {most} plain ASCII characters, without quotes");
        let text = self.string(value, key, &hint)?.trim();
        let printable = text.chars().all(|c| (' '..='~').contains(&c) && c != '"');
        if text.is_empty() || text.len() > most || !printable {
            self.problem(value, key, "not a reason", &hint);
            return None;
        }
        Some(text.to_owned())
    }

    fn exceptions(&mut self, table: &DeTable<'_>) -> Vec<At<Exception>> {
        let mut found = Vec::new();
        for (entry, table, name) in self.tables(table, "", "exception") {
            let line = self.line(&entry.span());
            if let Some(value) = self.exception(table, &format!("{name}.")) {
                found.push(At { line, value });
            }
        }
        found
    }

    fn exception(&mut self, table: &DeTable<'_>, prefix: &str) -> Option<Exception> {
        let key = |name: &str| format!("{prefix}{name}");
        self.known(table, prefix, EXCEPTION_KEYS);
        let mut field = |name: &str, hint: &str| {
            let value = table.get(name);
            if value.is_none() {
                self.problems.add(0, key(name), "missing", hint);
            }
            value
        };
        let user = field("user", "who may leave: a user name or a uid");
        let destination = field("destination", DESTINATION_HINT);
        let reason = field("reason", "say why, in plain ASCII characters");
        let expires = field("expires", EXPIRES_HINT);
        let user = user.and_then(|value| self.user(value, &key("user")));
        let destination = destination.and_then(|value| {
            let text = self.string(value, &key("destination"), DESTINATION_HINT)?;
            let parsed = super::destination::with_port(text);
            if let Err(why) = &parsed {
                self.problem(value, &key("destination"), why.as_str(), DESTINATION_HINT);
            }
            parsed.ok()
        });
        let protocol = match table.get("protocol") {
            None => Some(Protocol::Tcp),
            Some(value) => match self.string(value, &key("protocol"), PROTOCOL_HINT) {
                Some("tcp") => Some(Protocol::Tcp),
                Some("udp") => Some(Protocol::Udp),
                Some(other) => {
                    let text = format!("unknown protocol {other:?}");
                    self.problem(value, &key("protocol"), text, PROTOCOL_HINT);
                    None
                }
                None => None,
            },
        };
        let reason = reason.and_then(|value| self.reason(value, &key("reason"), 90));
        let expires = expires.and_then(|value| {
            let text = match value.get_ref() {
                DeValue::String(text) => text.to_string(),
                DeValue::Datetime(date) => date.to_string(),
                _ => String::new(),
            };
            let parsed = text.parse::<jiff::Timestamp>();
            if parsed.is_err() {
                self.problem(value, &key("expires"), "not a date", EXPIRES_HINT);
            }
            parsed.ok()
        });
        let (address, prefix, port) = destination?;
        Some(Exception {
            user: user?.value,
            address,
            prefix,
            port,
            protocol: protocol?,
            reason: reason?,
            expires: expires?,
        })
    }
}

const PORT_HINT: &str = "a port the gate listens on at loopback, 1 to 65535";
const DESTINATION_HINT: &str = "an address or network and a port: \"192.0.2.10:443\", \"10.0.0.0/8:53\", \"[2001:db8::/32]:443\"";
const EXPIRES_HINT: &str = "RFC 3339 with an offset, such as \"2027-01-01T00:00:00Z\"";
const PROTOCOL_HINT: &str = "\"tcp\" or \"udp\"";

fn integer(value: Value<'_, '_>) -> Option<u32> {
    let number = value.get_ref().as_integer()?;
    u32::from_str_radix(number.as_str(), number.radix()).ok()
}

fn user_name(text: &str) -> bool {
    text.len() <= 64
        && text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "_-.$@".contains(c))
}

/// `None` when the text does not look like a range at all.
fn range(text: &str) -> Option<Result<UidRange, String>> {
    let (first, last) = text.split_once('-')?;
    if !first.trim().chars().all(|c| c.is_ascii_digit()) || first.is_empty() {
        return None;
    }
    let parsed = (first.trim().parse(), last.trim().parse());
    Some(match parsed {
        (Ok(first), Ok(last)) if first <= last => Ok(UidRange { first, last }),
        (Ok(_), Ok(_)) => Err(format!("{text:?} ends before it starts")),
        _ => Err(format!("{text:?} is not a uid range")),
    })
}
