//! Whether this machine passes on packets for others, and what this table has to do with it.
//!
//! Passed-on packets have no uid. Refusing them is the default, because a container of an agent's account behind a bridge or
//! a veth would otherwise get out by them; but on a host that runs other containers nobody should have to guess why these
//! have no network, nor believe that agents' are covered where the host's own rules decide.

use std::fs;
use std::path::Path;

use crate::config::{Config, Forward, Scope};
use crate::warning::{About, Warning};

/// What a person should know of it, as a warning; none where nothing is passed on.
pub(crate) fn warning(config: &Config) -> Option<Warning> {
    let text = told(config, &switched_on(Path::new("/proc/sys/net")))?;
    Some(Warning {
        about: About::Forwarding,
        text,
    })
}

fn told(config: &Config, on: &[String]) -> Option<String> {
    let [first, others @ ..] = on else {
        return None;
    };
    let which = match others.len() {
        0 => first.clone(),
        more => format!("{first} and {more} more settings"),
    };
    match (config.scope, config.forward) {
        (Scope::Guest, _) | (Scope::Agents, Some(Forward::Refuse)) => None,
        (Scope::Agents, Some(Forward::Host)) => Some(format!(
            "this machine passes on packets for others ({which}), and forward = \"host\" leaves them to the host's own \
             rules: a container of an agent's account behind a bridge or a veth is not shut by this table\n  \
             hint: forward = \"refuse\", or rules of the host's own that refuse what such containers send"
        )),
        (Scope::Agents, None) => Some(format!(
            "this machine passes on packets for others ({which}), and this table refuses all of them: containers and \
             virtual machines of this host have no network through it\n  hint: forward = \"refuse\" in {} says that this \
             is meant, forward = \"host\" leaves them to the host's own rules",
            config.file
        )),
    }
}

/// The settings of this network namespace that are on, the one for all interfaces first.
fn switched_on(net: &Path) -> Vec<String> {
    let mut on = Vec::new();
    for family in ["ipv4", "ipv6"] {
        let interfaces = net.join(family).join("conf");
        let entries = fs::read_dir(&interfaces).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries
            .filter_map(|entry| entry.file_name().into_string().ok())
            // What interfaces to come begin with.
            .filter(|name| name != "default")
            .collect();
        names.sort_by_key(|name| (name != "all", name.clone()));
        for name in names {
            for setting in ["forwarding", "force_forwarding"] {
                let value = fs::read_to_string(interfaces.join(&name).join(setting));
                if value.is_ok_and(|value| value.trim() != "0") {
                    on.push(format!("net.{family}.conf.{name}.{setting}"));
                }
            }
        }
    }
    on
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(scope: &str, forward: &str) -> Config {
        let agents = if scope == "agents" {
            "agents = [1500]\n"
        } else {
            ""
        };
        let text =
            format!("scope = \"{scope}\"\ngate_port = 3128\nproxy = 990\n{agents}{forward}\n");
        Config::parse(&text, "boundary.toml").unwrap()
    }

    #[test]
    fn whoever_forwards_hears_what_becomes_of_it() {
        let on = ["net.ipv4.conf.all.forwarding".to_owned()];
        let said = |scope, forward| told(&config(scope, forward), &on);
        let unsaid = said("agents", "").unwrap();
        assert!(unsaid.contains("refuses all of them") && unsaid.contains("hint: "));
        let open = said("agents", "forward = \"host\"").unwrap();
        assert!(open.contains("is not shut by this table"), "{open}");
        // Controls: it was decided; a guest is for nothing else; nothing is passed on.
        assert_eq!(said("agents", "forward = \"refuse\""), None);
        assert_eq!(said("guest", ""), None);
        for forward in ["", "forward = \"host\""] {
            assert_eq!(told(&config("agents", forward), &[]), None);
        }
    }

    #[test]
    fn every_interface_is_asked() {
        let net = tempfile::tempdir().unwrap();
        let set = |path: &str, value: &str| {
            let file = net.path().join(path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, value).unwrap();
        };
        for interface in ["all", "default", "br0"] {
            set(&format!("ipv4/conf/{interface}/forwarding"), "0\n");
        }
        set("ipv4/conf/default/forwarding", "1\n");
        set("ipv6/conf/br0/force_forwarding", "0\n");
        assert_eq!(switched_on(net.path()), Vec::<String>::new());
        set("ipv4/conf/br0/forwarding", "1\n");
        set("ipv6/conf/br0/force_forwarding", "1\n");
        let on = [
            "net.ipv4.conf.br0.forwarding",
            "net.ipv6.conf.br0.force_forwarding",
        ];
        assert_eq!(switched_on(net.path()), on);
        set("ipv4/conf/all/forwarding", "1\n");
        assert_eq!(switched_on(net.path())[0], "net.ipv4.conf.all.forwarding");
    }
}
