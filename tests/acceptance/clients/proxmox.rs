//! proxmoxer, on Proxmox VE's own port, against a certificate that only its pin vouches for.

use std::collections::BTreeMap;

use tests::clients::{Clients, RULE, Upstream, credential};
use tests::matrix::{self, Row};
use tests::stand_in::proxmox::FOREIGN;

const HOST: &str = "pve.portcullis.test";

#[test]
fn proxmoxer_works_and_is_told() {
    let credential = credential("pve", "proxmox-token", HOST);
    let policy = format!(
        "[[service]]\nid = \"{RULE}\"\nkind = \"proxmox\"\nhost = \"{HOST}\"\npin = \"{{pin}}\"\ncredential = \"pve\"\n\
         allow = [\"GET /api2/json/version\", \"GET /api2/json/nodes/**\", \
         \"POST /api2/json/nodes/pve/lxc/101/status/reboot\"]\n\
         deny = [\"* /api2/json/nodes/pve/lxc/102/**\"]\n"
    );
    let words = ["proxmox", "--credential", &credential.canary.secret];
    let host = Upstream::new(&[HOST], &words).on_port(8006);
    let clients = Clients::new(&[host], &policy, &[credential]);
    let script = matrix::directory().join("src/python/proxmox.py");
    let reboot = |container: &str| {
        let python = clients.agent("python3").arg(&script);
        python.args([HOST, container]).run()
    };
    let print = "from importlib.metadata import version; print(version('proxmoxer'))";
    let row = Row {
        client: "proxmoxer",
        way: "API token",
        version: clients.version("python3", &["-c", print]),
    };
    clients.judge(&row, reboot("101"), "UPID:", reboot("102"));
}

/// What each preset opens for the real client, and what it refuses beside that.
#[test]
fn proxmoxer_operates_within_its_preset() {
    const HOSTS: [&[&str]; 4] = [
        &["read.portcullis.test"],
        &["power.portcullis.test"],
        &["operator.portcullis.test"],
        &["words.portcullis.test"],
    ];
    const NAMES: [&str; 4] = ["pve-read", "pve-power", "pve-operator", "pve-words"];
    let credentials: Vec<_> = (0..HOSTS.len())
        .map(|at| credential(NAMES[at], "proxmox-token", HOSTS[at][0]))
        .collect();
    let scope = "vmids = [\"100-199\"]\nnodes = [\"pve\"]\nstorages = [\"local\"]\nbridges = [\"vmbr1\"]\nfeatures = [\"nesting\"]";
    let service = |at: usize, keys: &str| {
        let (host, credential) = (HOSTS[at][0], NAMES[at]);
        format!(
            "[[service]]\nkind = \"proxmox\"\nhost = \"{host}\"\nca_file = \"{{ca}}\"\ncredential = \"{credential}\"\n{keys}\n{scope}\n"
        )
    };
    let keys = [
        "api = \"read\"",
        "api = \"power\"",
        "api = \"operator\"",
        "api = \"operator\"\nalso = [\"console\", \"agent-exec\"]",
    ];
    let policy: String = keys
        .iter()
        .enumerate()
        .map(|(at, keys)| service(at, keys))
        .collect();
    let hosts: Vec<Upstream> = HOSTS
        .iter()
        .zip(&credentials)
        .map(|(host, credential)| {
            let words = ["proxmox", "--credential", &credential.canary.secret];
            Upstream::new(host, &words).on_port(8006)
        })
        .collect();
    let clients = Clients::new(&hosts, &policy, &credentials);
    let script = matrix::directory().join("src/python/proxmox_operations.py");
    let never = [
        "read another",
        "reboot another",
        "follow another",
        "make another",
        "make privileged",
        "make with a path",
        "make with a hook",
        "make with keyctl",
        "make elsewhere",
        "clone to another",
        "clone twice",
        "change arguments",
        "users",
    ];
    let power = ["reboot", "reboot and follow"];
    let operator = ["make", "clone", "snapshot", "change", "delete"];
    let words = ["console", "execute"];
    for (rank, [host]) in HOSTS
        .into_iter()
        .enumerate()
        .filter_map(|(rank, host)| Some((rank, host.first_chunk::<1>()?)))
    {
        let run = clients
            .agent("python3")
            .arg(&script)
            .args([host, FOREIGN])
            .run()
            .ok();
        let said: BTreeMap<String, String> = serde_json::from_str(&run.output())
            .unwrap_or_else(|error| panic!("{error}: {}", run.shown()));
        let opened = |name: &str| match name {
            "read" => true,
            name if never.contains(&name) => false,
            name if power.contains(&name) => rank >= 1,
            name if operator.contains(&name) => rank >= 2,
            name => words.contains(&name) && rank == 3,
        };
        assert_eq!(
            said.len(),
            1 + never.len() + power.len() + operator.len() + words.len()
        );
        for (name, became) in &said {
            if opened(name) {
                assert_eq!(became, "done", "{host} {name}");
            } else {
                assert!(became.contains("Portcullis: "), "{host} {name}: {became}");
            }
        }
        if rank >= 2 {
            for (name, why) in [
                ("clone twice", "`newid` stands there more than once"),
                ("make with a hook", "`hookscript` is there"),
                ("make privileged", "`unprivileged` has another value"),
                ("make elsewhere", "`rootfs` is on another storage"),
            ] {
                assert!(said[name].contains(why), "{name}: {}", said[name]);
            }
        }
    }
}
