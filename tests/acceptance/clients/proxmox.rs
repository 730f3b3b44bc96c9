//! proxmoxer, on Proxmox VE's own port, against a certificate that only its pin vouches for.

use tests::clients::{Clients, RULE, Upstream, credential};
use tests::matrix::{self, Row};

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
