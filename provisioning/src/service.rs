//! The long-running services of an instance: what is started, as whom, with which rights, and what has to run first.

use std::path::PathBuf;

use caps::Capability;

use crate::instance::Instance;

/// One service as systemd or [`crate::supervise`] starts it.
#[derive(Debug, Clone)]
pub struct Service {
    /// `boundary`, `stand-in`, `proxy` or `orchestrator`; also the stem of its unit, record and log.
    pub key: &'static str,
    pub program: PathBuf,
    pub arguments: Vec<String>,
    /// The account it runs as; `None` is root with the capabilities of `bounding` and no others.
    pub user: Option<String>,
    /// The capability bounding set it is started with.
    pub bounding: Vec<Capability>,
    /// Whether it can never gain rights by executing a file. The orchestrator starts `newuidmap` and needs that.
    pub no_new_privileges: bool,
    /// Whether it runs inside the control groups handed to its account.
    pub delegated_cgroup: bool,
    /// What it executes: a replaced one means that it has to be started anew.
    pub programs: Vec<PathBuf>,
    /// Files whose content decides how it runs, likewise.
    pub inputs: Vec<PathBuf>,
}

/// The order they start in; they stop in reverse.
pub const ORDER: [&str; 4] = ["boundary", "stand-in", "proxy", "orchestrator"];

/// Every service of the instance, in starting order. `portcullis-stand-in` is one only where there is no repository
/// of the person's own.
#[must_use]
pub fn services(instance: &Instance) -> Vec<Service> {
    ORDER
        .iter()
        .filter_map(|key| service(instance, key))
        .collect()
}

/// The service of that key, if this instance has it.
#[must_use]
pub fn service(instance: &Instance, key: &str) -> Option<Service> {
    match key {
        "boundary" => Some(boundary(instance)),
        "stand-in" => stand_in(instance),
        "proxy" => Some(proxy(instance)),
        "orchestrator" => Some(orchestrator(instance)),
        _ => None,
    }
}

fn config_argument(path: PathBuf) -> Vec<String> {
    vec!["--config".to_owned(), path.display().to_string()]
}

fn boundary(instance: &Instance) -> Service {
    let layout = &instance.layout;
    let config = layout.config("boundary");
    let program = layout.binary("portcullis-boundary");
    let mut arguments = vec!["watch".to_owned()];
    arguments.extend(config_argument(config.clone()));
    Service {
        key: "boundary",
        programs: vec![program.clone()],
        inputs: vec![config],
        program,
        arguments,
        user: None,
        bounding: vec![Capability::CAP_NET_ADMIN],
        no_new_privileges: true,
        delegated_cgroup: false,
    }
}

fn stand_in(instance: &Instance) -> Option<Service> {
    let layout = &instance.layout;
    let port = instance.record.stand_in_port?;
    let home = layout.stand_in();
    let program = layout.binary("portcullis-stand-in");
    let at = |path: &str| home.join(path).display().to_string();
    Some(Service {
        key: "stand-in",
        programs: vec![program.clone()],
        inputs: vec![home.join("password"), home.join("pki/leaf.pem")],
        program,
        arguments: vec![
            "git".to_owned(),
            "--root".to_owned(),
            at("git"),
            "--repo".to_owned(),
            instance.record.repo.clone(),
            "--listen".to_owned(),
            format!("127.0.0.1:{port}"),
            "--cert".to_owned(),
            at("pki/leaf.pem"),
            "--key".to_owned(),
            at("pki/leaf.key"),
            "--user".to_owned(),
            "x-access-token".to_owned(),
            "--password-file".to_owned(),
            at("password"),
            "--log".to_owned(),
            at("requests.jsonl"),
        ],
        user: Some(layout.user("standin")),
        bounding: Vec::new(),
        no_new_privileges: true,
        delegated_cgroup: false,
    })
}

fn proxy(instance: &Instance) -> Service {
    let layout = &instance.layout;
    let config = layout.config("proxy");
    let program = layout.binary("portcullis-proxy");
    let mut arguments = vec!["run".to_owned()];
    arguments.extend(config_argument(config.clone()));
    Service {
        key: "proxy",
        programs: vec![program.clone()],
        inputs: vec![config],
        program,
        arguments,
        user: Some(layout.user("proxy")),
        bounding: Vec::new(),
        no_new_privileges: true,
        delegated_cgroup: false,
    }
}

fn orchestrator(instance: &Instance) -> Service {
    let layout = &instance.layout;
    let config = layout.config("orchestrator");
    let program = layout.binary("portcullis-orchestrator");
    let mut arguments = vec!["serve".to_owned()];
    arguments.extend(config_argument(config.clone()));
    Service {
        key: "orchestrator",
        programs: vec![program.clone(), layout.binary("portcullis-relay")],
        inputs: vec![config],
        program,
        arguments,
        user: Some(layout.user("orchestrator")),
        // newuidmap and newgidmap are set-user-id programs: they open the maps of a run's namespace (DAC_OVERRIDE), and
        // the kernel takes what they write only with the other three. Measured: without any one no run starts.
        bounding: vec![
            Capability::CAP_SETUID,
            Capability::CAP_SETGID,
            Capability::CAP_DAC_OVERRIDE,
            Capability::CAP_SYS_ADMIN,
        ],
        no_new_privileges: false,
        delegated_cgroup: true,
    }
}
