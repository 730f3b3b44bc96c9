//! The configuration files of the three components, generated once and then the person's.

use std::path::{Path, PathBuf};

use super::{State, Step, StepError, doing};
use crate::file::Access;
use crate::instance::Instance;
use crate::manifest::{Manifest, Standing};
use crate::site::Site;

/// `proxy.toml`, `orchestrator.toml`, `boundary.toml`.
#[derive(Debug)]
pub struct Configuration;

/// What the standing of a generated file means for a step.
///
/// # Errors
/// Never; the type is that of the checks it ends.
pub fn judge(standing: Standing, path: &Path) -> Result<State, StepError> {
    Ok(match standing {
        Standing::Right => State::Right(Vec::new()),
        Standing::Absent => State::Needs(format!("{} is missing", path.display())),
        Standing::Outdated => {
            State::Needs(format!("{} is to be brought up to date", path.display()))
        }
        Standing::Edited => State::Right(vec![format!(
            "{} was edited by hand and stays",
            path.display()
        )]),
    })
}

fn files(instance: &Instance) -> Vec<(PathBuf, String)> {
    let layout = &instance.layout;
    vec![
        (layout.config("boundary"), boundary(instance)),
        (layout.config("proxy"), proxy(instance)),
        (layout.config("orchestrator"), orchestrator(instance)),
    ]
}

/// The text of `boundary.toml`.
#[must_use]
pub fn boundary(instance: &Instance) -> String {
    let layout = &instance.layout;
    format!(
        "# Who may reach the network. `portcullis boundary verify` compares this with the kernel's rules.\n\
         # scope \"agents\" shuts in the accounts below and every subordinate id they own; \"guest\" shuts in\n\
         # everything but the gate and belongs on a machine that exists only for agents.\n\
         scope = \"{scope}\"\n\
         table = \"{name}\"\n\
         gate_port = {port}\n\
         proxy = \"{proxy}\"\n\
         # Accounts and uid ranges of your own agents go here too; `verify` holds them to owning no subordinate ids,\n\
         # which useradd gives unasked. Only those under reserves own some, a slice of which each run gets.\n\
         agents = [\"{orchestrator}\", \"{exec}\"]\n\
         reserves = [\"{orchestrator}\", \"{exec}\"]\n\
         # What this machine passes on for others (containers and virtual machines behind a bridge or a veth) has no uid, and is\n\
         # refused; forward = \"host\" leaves it to the host's own rules.\n\
         status = \"{status}\"\n\
         \n\
         # Programs that know no proxy are led to the gate (proxy.toml: [listen] redirected):\n\
         #   [redirect]\n\
         #   port = {redirect}\n\
         #   ports = [80, 443]   # every TCP port when absent\n\
         # Their DNS questions are answered by the gate (proxy.toml: [listen] resolver):\n\
         #   [resolver]\n\
         #   port = {resolver}\n\
         # Somebody may reach one place for a while; it lapses by itself:\n\
         #   [[exception]]\n\
         #   user = \"_apt\"\n\
         #   destination = \"192.0.2.10:443\"   # IP or CIDR, and a port\n\
         #   reason = \"package downloads while provisioning\"\n\
         #   expires = \"2027-01-01T00:00:00Z\"\n\
         # Scope \"guest\" knows [guest.dhcp], [guest.resolver] and [[guest.administration]] as well.\n",
        scope = instance.record.scope.as_str(),
        name = layout.name(),
        port = instance.record.gate_port,
        redirect = beside(instance.record.gate_port, 1),
        resolver = beside(instance.record.gate_port, 25),
        proxy = layout.user("proxy"),
        orchestrator = layout.user("orchestrator"),
        exec = layout.user("exec"),
        status = layout.boundary_status().display(),
    )
}

/// The text of `proxy.toml`.
#[must_use]
pub fn proxy(instance: &Instance) -> String {
    let layout = &instance.layout;
    format!(
        "# The gate. `portcullis gate check` judges this file before it is used.\n\
         # Runs come in by a socket of their own. For other accounts of this host, each of which stands under agents in\n\
         # boundary.toml as well, there are loopback ports: for programs that know of a proxy, for those that do not\n\
         # ([redirect] there), and for their look-ups ([resolver] there).\n\
         #   [listen]\n\
         #   tcp = \"127.0.0.1:{port}\"\n\
         #   redirected = [\"127.0.0.1:{redirect}\", \"[::1]:{redirect}\"]\n\
         #   resolver = [\"127.0.0.1:{resolver}\", \"[::1]:{resolver}\"]\n\
         #   [[listen.identity]]\n\
         #   uid = 1500\n\
         #   agent = \"ci\"\n\
         #   company = \"local\"\n\
         #   profile = \"default\"\n\
         \n\
         [control]\n\
         socket = \"{control}\"\n\
         \n\
         [[control.peer]]\n\
         user = \"{orchestrator}\"\n\
         profiles = [\"default\"]\n\
         inline = false\n\
         \n\
         # root: `portcullis reload`, `portcullis audit`, and `portcullis exec`, which brings a policy of its own.\n\
         [[control.peer]]\n\
         user = \"root\"\n\
         profiles = [\"default\"]\n\
         inline = true\n\
         admin = true\n\
         \n\
         [runs]\n\
         directory = \"{runs}\"\n\
         \n\
         [board]\n\
         socket = \"{board}\"\n\
         \n\
         [ca]\n\
         directory = \"{state}/ca\"\n\
         \n\
         [audit]\n\
         directory = \"{state}/audit\"\n\
         signing_key = \"{audit_key}\"\n\
         \n\
         [boundary]\n\
         status = \"{boundary}\"\n\
         \n\
         [profile.default]\n\
         policy = \"{policy}\"\n\
         \n\
         [credential.github]\n\
         kind = \"github-token\"\n\
         file = \"{credential}\"\n\
         hosts = [\"{host}\"]   # it can go nowhere else, whatever a policy says\n",
        port = instance.record.gate_port,
        redirect = beside(instance.record.gate_port, 1),
        resolver = beside(instance.record.gate_port, 25),
        control = layout.control_socket().display(),
        orchestrator = layout.user("orchestrator"),
        runs = layout.runs().display(),
        board = layout.board_socket().display(),
        state = layout.proxy_state().display(),
        audit_key = layout.audit_key().display(),
        boundary = layout.boundary_status().display(),
        policy = layout.policies().join("default.toml").display(),
        credential = layout.credentials().join("github").display(),
        host = instance.upstream_host(),
    )
}

/// Another port, by which this one is known too: 3129 and 3153 beside 3128.
fn beside(port: u16, by: u16) -> u16 {
    port.checked_add(by).unwrap_or(port.saturating_sub(by))
}

/// The text of `orchestrator.toml`.
#[must_use]
pub fn orchestrator(instance: &Instance) -> String {
    let layout = &instance.layout;
    format!(
        "# Who works on what, when.\n\
         state = \"{state}\"\n\
         board_socket = \"{board}\"\n\
         api_socket = \"{api}\"\n\
         control_socket = \"{control}\"\n\
         trust = \"{trust}\"\n\
         relay = \"{relay}\"\n\
         proxy_user = \"{proxy}\"   # who may bring the agents' requests to the board\n\
         operators = []   # accounts beside root that may use `portcullis ticket` and the like\n",
        state = layout.orchestrator_state().display(),
        board = layout.board_socket().display(),
        api = layout.api_socket().display(),
        control = layout.control_socket().display(),
        trust = layout.trust().display(),
        relay = layout.binary("portcullis-relay").display(),
        proxy = layout.user("proxy"),
    )
}

impl Step for Configuration {
    fn name(&self) -> String {
        "configuration".to_owned()
    }

    fn check(&self, site: &Site) -> Result<State, StepError> {
        let manifest = Manifest::load(&site.instance.layout.manifest())?;
        let (mut needs, mut notes) = (Vec::new(), Vec::new());
        for (path, text) in files(&site.instance) {
            match judge(manifest.standing(&path, &text)?, &path)? {
                State::Needs(why) => needs.push(why),
                State::Right(kept) => notes.extend(kept),
            }
        }
        Ok(if needs.is_empty() {
            State::Right(notes)
        } else {
            State::Needs(needs.join("; "))
        })
    }

    fn apply(&self, site: &Site) -> Result<(), StepError> {
        let mut manifest = Manifest::load(&site.instance.layout.manifest())?;
        for (path, text) in files(&site.instance) {
            match manifest.put(&path, &text, Access::root(0o644))? {
                Standing::Right => {}
                Standing::Edited => {
                    doing(&format!("{} was edited by hand and stays", path.display()))
                }
                Standing::Absent | Standing::Outdated => {
                    doing(&format!("write {}", path.display()))
                }
            }
        }
        Ok(())
    }

    fn repair(&self, site: &Site) -> String {
        format!("ls -l {}", site.instance.layout.etc().display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instance::Record;
    use crate::layout::Layout;

    #[test]
    fn the_boundary_s_own_reader_takes_what_we_write() {
        let record = Record {
            name: "ptx".into(),
            repo: "a/b".into(),
            stand_in_port: None,
            gate_port: 3128,
            scope: crate::instance::Scope::Agents,
        };
        let layout = Layout::new(Path::new("/srv"), "ptx").unwrap();
        let text = boundary(&Instance { layout, record });
        let config = nftables::config::Config::parse(&text, "boundary.toml").unwrap();
        assert_eq!((config.table.as_str(), config.gate_port), ("ptx", 3128));
        assert_eq!((config.agents.len(), config.reserves.len()), (2, 2));
        // What stands there as a comment is right when it is taken out of it.
        let more = text.replace("#   ", "");
        let config = nftables::config::Config::parse(&more, "boundary.toml").unwrap();
        assert_eq!((config.resolver, config.exceptions.len()), (Some(3153), 1));
    }
}
