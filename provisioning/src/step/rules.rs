//! The demo policy: push to one repository on the agents' own branches, and talk to the board. Nothing else.

use std::fs;

use serde_json::Value;

use super::{State, Step, StepError, doing};
use crate::control;
use crate::file::{self, Access};
use crate::instance::Instance;
use crate::manifest::{Manifest, Standing};
use crate::site::Site;

/// `policies/default.toml`.
#[derive(Debug)]
pub struct Rules;

/// The text of the policy.
#[must_use]
pub fn policy(instance: &Instance) -> String {
    let repo = &instance.record.repo;
    let upstream = match instance.record.stand_in_port {
        None => String::new(),
        Some(port) => format!(
            "host       = \"{}\"\naddress    = \"127.0.0.1:{port}\"   # where it is dialled, whatever the name resolves to\n\
             ca_file    = \"{}\"\n",
            instance.upstream_host(),
            instance.layout.etc().join("stand-in-ca.pem").display()
        ),
    };
    format!(
        "# What agents of the profile \"default\" may do. Everything that is not written here is refused.\n\
         # Yours to edit: `portcullis policy check FILE` judges it, `portcullis reload` puts it to work.\n\
         version = 1\n\
         \n\
         [[service]]\n\
         id         = \"demo-repository\"\n\
         kind       = \"github\"\n\
         {upstream}\
         repos      = [\"{repo}\"]\n\
         git        = \"push\"\n\
         refs       = [\"refs/heads/agent/*\"]\n\
         credential = \"github\"\n\
         why        = \"agents work on branches of their own; a person merges them\"\n\
         \n\
         [[service]]\n\
         id   = \"board\"\n\
         kind = \"board\"\n"
    )
}

impl Step for Rules {
    fn name(&self) -> String {
        "policy".to_owned()
    }

    fn check(&self, site: &Site) -> Result<State, StepError> {
        let layout = &site.instance.layout;
        let path = layout.policies().join("default.toml");
        let manifest = Manifest::load(&layout.manifest())?;
        super::configuration::judge(manifest.standing(&path, &policy(&site.instance))?, &path)
    }

    fn apply(&self, site: &Site) -> Result<(), StepError> {
        let layout = &site.instance.layout;
        let path = layout.policies().join("default.toml");
        let before = Manifest::load(&layout.manifest())?.put(
            &path,
            &policy(&site.instance),
            Access::root(0o644),
        )?;
        if before != Standing::Edited {
            doing(&format!("write {}", path.display()));
        }
        Ok(())
    }

    fn repair(&self, site: &Site) -> String {
        format!(
            "portcullis policy check {}",
            site.instance
                .layout
                .policies()
                .join("default.toml")
                .display()
        )
    }
}

/// The running gate uses the policy file as it is now.
#[derive(Debug)]
pub struct Loaded;

impl Step for Loaded {
    fn name(&self) -> String {
        "policy in use".to_owned()
    }

    fn check(&self, site: &Site) -> Result<State, StepError> {
        let path = site.instance.layout.policies().join("default.toml");
        let wanted = file::hash(&fs::read(&path).map_err(file::FileError::new("read", &path))?);
        let answer = control::gate(&site.instance, &["status", "--json"]).run()?;
        let status: Value = serde_json::from_str(&answer)
            .map_err(|_| StepError::Said(format!("the gate's status is not JSON: {answer}")))?;
        Ok(State::from_problems(
            if status["policies"]["default"]["hash"] == wanted {
                Vec::new()
            } else {
                vec![format!(
                    "the gate does not use {} as it is now",
                    path.display()
                )]
            },
        ))
    }

    fn apply(&self, site: &Site) -> Result<(), StepError> {
        doing("tell the gate to read it again");
        control::gate(&site.instance, &["reload"]).run()?;
        Ok(())
    }

    fn repair(&self, _: &Site) -> String {
        "portcullis gate status; portcullis reload".to_owned()
    }
}
