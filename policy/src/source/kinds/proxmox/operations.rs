//! The operations of Proxmox VE's API that a policy can open, each with the parameters that it may carry.
//!
//! Source: the schema of Proxmox VE 8 and 9 as its API viewer publishes it (pve-docs, `apidoc.js`), by the same
//! paths and names, but not compared with it entry by entry. What a guest's owner could reach its node with is left out: `args`, `hookscript`, `hostpci#`,
//! `usb#`, `dev#`, `serial#`, `parallel#`, `cicustom`, `archive`, `restore`, `force` of a create, `skiplock`, `lock`,
//! `import-from` and bind mounts. So is what nobody has looked at: a name that is not here is refused.

/// What a policy must say to open an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Word {
    /// `api = "read"`.
    Read,
    /// `api = "power"`.
    Power,
    /// `api = "operator"`.
    Operator,
    /// `also = ["console"]`.
    Console,
    /// `also = ["agent-exec"]`.
    AgentExec,
}

/// What an answer or a path has to do with a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum About {
    Nothing,
    /// The answer names one.
    Gives,
    /// The path names one.
    Own,
}

/// One operation. In its path `{node}`, `{vmid}`, `{source}`, `{storage}` and `{pool}` are bound by what the service
/// says of them; `*` is any segment. In parameters `{vmids}` and their kin stand for the same lists.
#[derive(Debug, Clone, Copy)]
pub(super) struct Operation {
    pub(super) word: Word,
    pub(super) method: &'static str,
    /// Below `/api2/json/`.
    pub(super) path: &'static str,
    /// Lists of names and types; none: what a GET carries changes nothing and is not looked at.
    pub(super) parameters: Option<&'static [&'static [(&'static str, &'static str)]]>,
    pub(super) about: About,
}

type List = &'static [(&'static str, &'static str)];

const fn read(path: &'static str) -> Operation {
    Operation {
        word: Word::Read,
        method: "GET",
        path,
        parameters: None,
        about: About::Nothing,
    }
}

const fn task(path: &'static str) -> Operation {
    Operation {
        about: About::Own,
        ..read(path)
    }
}

const fn does(
    word: Word,
    method: &'static str,
    path: &'static str,
    parameters: &'static [List],
) -> Operation {
    Operation {
        word,
        method,
        path,
        parameters: Some(parameters),
        about: About::Gives,
    }
}

const fn power(path: &'static str, parameters: &'static [List]) -> Operation {
    does(Word::Power, "POST", path, parameters)
}

const fn operates(
    method: &'static str,
    path: &'static str,
    parameters: &'static [List],
) -> Operation {
    does(Word::Operator, method, path, parameters)
}

/// What may be set of a container, when it is made and later.
const CONTAINER: List = &[
    ("arch", "one:amd64,arm64,armhf,i386,riscv32,riscv64"),
    ("cmode", "one:shell,console,tty"),
    ("console", "whole:0-1"),
    ("cores", "whole"),
    ("cpulimit", "number"),
    ("cpuunits", "whole"),
    ("description", "prose"),
    ("features", "flags:{features}"),
    ("hostname", "text"),
    ("memory", "whole"),
    ("mp#", "volume:{storages}@{vmids}"),
    ("nameserver", "text"),
    ("net#", "net:{bridges}"),
    ("onboot", "whole:0-1"),
    ("ostype", "one:*"),
    ("protection", "whole:0-1"),
    ("rootfs", "volume:{storages}@{vmids}"),
    ("searchdomain", "text"),
    ("startup", "text"),
    ("swap", "whole"),
    ("tags", "text"),
    ("timezone", "text"),
    ("tty", "whole"),
];

/// What may be taken out of a container's configuration.
const CONTAINER_LESS: List = &[
    (
        "delete",
        "names:arch,cmode,cores,cpulimit,cpuunits,description,features,hostname,memory,mp#,nameserver,net#,onboot,protection,searchdomain,startup,swap,tags,timezone,tty,unused#",
    ),
    ("digest", "one:*"),
];

/// What may be set of a machine, when it is made and later.
const MACHINE: List = &[
    ("acpi", "whole:0-1"),
    ("agent", "text"),
    ("arch", "one:x86_64,aarch64"),
    ("autostart", "whole:0-1"),
    ("balloon", "whole"),
    ("bios", "one:seabios,ovmf"),
    ("boot", "text"),
    ("bootdisk", "one:*"),
    ("cipassword", "text"),
    ("citype", "one:configdrive2,nocloud,opennebula"),
    ("ciupgrade", "whole:0-1"),
    ("ciuser", "text"),
    ("cores", "whole"),
    ("cpu", "text"),
    ("cpulimit", "number"),
    ("cpuunits", "whole"),
    ("description", "prose"),
    ("efidisk0", "volume:{storages}@{vmids}"),
    ("hotplug", "text"),
    ("ide#", "volume:{storages}@{vmids}"),
    ("ipconfig#", "text"),
    ("keyboard", "one:*"),
    ("kvm", "whole:0-1"),
    ("localtime", "whole:0-1"),
    ("machine", "text"),
    ("memory", "whole"),
    ("name", "text"),
    ("nameserver", "text"),
    ("net#", "net:{bridges}"),
    ("numa", "whole:0-1"),
    ("onboot", "whole:0-1"),
    ("ostype", "one:*"),
    ("protection", "whole:0-1"),
    ("sata#", "volume:{storages}@{vmids}"),
    ("scsi#", "volume:{storages}@{vmids}"),
    ("scsihw", "one:*"),
    ("searchdomain", "text"),
    ("shares", "whole"),
    ("sockets", "whole"),
    ("sshkeys", "prose"),
    ("startup", "text"),
    ("tablet", "whole:0-1"),
    ("tags", "text"),
    ("template", "whole:0-1"),
    ("tpmstate0", "volume:{storages}@{vmids}"),
    ("vcpus", "whole"),
    ("vga", "text"),
    ("virtio#", "volume:{storages}@{vmids}"),
];

/// What may be taken out of a machine's configuration.
const MACHINE_LESS: List = &[
    (
        "delete",
        "names:agent,balloon,boot,ciuser,cipassword,cpu,cpulimit,cpuunits,description,hotplug,ide#,ipconfig#,keyboard,machine,nameserver,net#,numa,onboot,protection,sata#,scsi#,searchdomain,shares,sshkeys,startup,tags,unused#,vcpus,vga,virtio#",
    ),
    ("digest", "one:*"),
];

/// What a guest is made with, beside its configuration.
const MADE: List = &[
    ("vmid!", "whole:{vmids}"),
    ("pool{pool!}", "one:{pools}"),
    ("storage", "one:{storages}"),
    ("start", "whole:0-1"),
    ("unique", "whole:0-1"),
    ("bwlimit", "number"),
];

/// What a container is made with.
const MADE_CONTAINER: List = &[
    ("ostemplate!", "template:{storages}"),
    ("unprivileged!", "whole:1"),
    ("password", "text"),
    ("ssh-public-keys", "prose"),
    ("ignore-unpack-errors", "whole:0-1"),
];

/// What a clone is made with.
const CLONED: List = &[
    ("newid!", "whole:{vmids}"),
    ("pool{pool!}", "one:{pools}"),
    ("storage", "one:{storages}"),
    ("target", "one:{nodes}"),
    ("full", "whole:0-1"),
    ("snapname", "one:*"),
    ("description", "prose"),
    ("bwlimit", "number"),
];

const REMOVED: List = &[
    ("force", "whole:0-1"),
    ("purge", "whole:0-1"),
    ("destroy-unreferenced-disks", "whole:0-1"),
];

const RESIZED: List = &[("disk!", "one:*"), ("size!", "text"), ("digest", "one:*")];

const MOVED: List = &[
    ("storage", "one:{storages}"),
    ("delete", "whole:0-1"),
    ("digest", "one:*"),
    ("bwlimit", "number"),
    ("target-vmid", "whole:{vmids}"),
];

const SNAPSHOT: List = &[("snapname!", "one:*"), ("description", "prose")];
const DESCRIBED: List = &[("description", "prose")];
const FORCED: List = &[("force", "whole:0-1")];
const STARTED: List = &[("start", "whole:0-1")];
const TIMEOUT: List = &[("timeout", "whole")];
const STOPPED: List = &[("timeout", "whole"), ("overrule-shutdown", "whole:0-1")];
const SHUT: List = &[("timeout", "whole"), ("forceStop", "whole:0-1")];
const MIGRATED: List = &[
    ("target!", "one:{nodes}"),
    ("online", "whole:0-1"),
    ("bwlimit", "number"),
];

/// Every operation that a policy can open.
pub(super) const ALL: &[Operation] = &[
    read("version"),
    read("cluster/nextid"),
    read("cluster/resources"),
    read("cluster/status"),
    read("nodes"),
    read("nodes/{node}/status"),
    read("nodes/{node}/version"),
    read("nodes/{node}/qemu"),
    read("nodes/{node}/lxc"),
    read("nodes/{node}/storage"),
    read("nodes/{node}/storage/{storage}/status"),
    read("nodes/{node}/storage/{storage}/content"),
    read("nodes/{node}/storage/{storage}/rrddata"),
    read("pools"),
    read("pools/{pool}"),
    read("nodes/{node}/qemu/{vmid}"),
    read("nodes/{node}/qemu/{vmid}/config"),
    read("nodes/{node}/qemu/{vmid}/pending"),
    read("nodes/{node}/qemu/{vmid}/feature"),
    read("nodes/{node}/qemu/{vmid}/rrddata"),
    read("nodes/{node}/qemu/{vmid}/snapshot"),
    read("nodes/{node}/qemu/{vmid}/snapshot/*/config"),
    read("nodes/{node}/qemu/{vmid}/status"),
    read("nodes/{node}/qemu/{vmid}/status/current"),
    read("nodes/{node}/qemu/{vmid}/agent/info"),
    read("nodes/{node}/qemu/{vmid}/agent/get-fsinfo"),
    read("nodes/{node}/qemu/{vmid}/agent/get-host-name"),
    read("nodes/{node}/qemu/{vmid}/agent/get-osinfo"),
    read("nodes/{node}/qemu/{vmid}/agent/get-time"),
    read("nodes/{node}/qemu/{vmid}/agent/network-get-interfaces"),
    read("nodes/{node}/lxc/{vmid}"),
    read("nodes/{node}/lxc/{vmid}/config"),
    read("nodes/{node}/lxc/{vmid}/pending"),
    read("nodes/{node}/lxc/{vmid}/feature"),
    read("nodes/{node}/lxc/{vmid}/interfaces"),
    read("nodes/{node}/lxc/{vmid}/rrddata"),
    read("nodes/{node}/lxc/{vmid}/snapshot"),
    read("nodes/{node}/lxc/{vmid}/snapshot/*/config"),
    read("nodes/{node}/lxc/{vmid}/status"),
    read("nodes/{node}/lxc/{vmid}/status/current"),
    task("nodes/{node}/tasks/*/status"),
    task("nodes/{node}/tasks/*/log"),
    power("nodes/{node}/qemu/{vmid}/status/start", &[TIMEOUT]),
    power("nodes/{node}/qemu/{vmid}/status/stop", &[STOPPED]),
    power("nodes/{node}/qemu/{vmid}/status/shutdown", &[SHUT]),
    power("nodes/{node}/qemu/{vmid}/status/reboot", &[TIMEOUT]),
    power("nodes/{node}/qemu/{vmid}/status/reset", &[]),
    power(
        "nodes/{node}/qemu/{vmid}/status/suspend",
        &[&[("todisk", "whole:0-1"), ("statestorage", "one:{storages}")]],
    ),
    power("nodes/{node}/qemu/{vmid}/status/resume", &[]),
    power("nodes/{node}/lxc/{vmid}/status/start", &[]),
    power(
        "nodes/{node}/lxc/{vmid}/status/stop",
        &[&[("overrule-shutdown", "whole:0-1")]],
    ),
    power("nodes/{node}/lxc/{vmid}/status/shutdown", &[SHUT]),
    power("nodes/{node}/lxc/{vmid}/status/reboot", &[TIMEOUT]),
    power("nodes/{node}/lxc/{vmid}/status/suspend", &[]),
    power("nodes/{node}/lxc/{vmid}/status/resume", &[]),
    operates("POST", "nodes/{node}/qemu", &[MADE, MACHINE]),
    operates(
        "POST",
        "nodes/{node}/lxc",
        &[MADE, CONTAINER, MADE_CONTAINER],
    ),
    operates(
        "POST",
        "nodes/{node}/qemu/{source}/clone",
        &[
            CLONED,
            &[("name", "text"), ("format", "one:raw,qcow2,vmdk")],
        ],
    ),
    operates(
        "POST",
        "nodes/{node}/lxc/{source}/clone",
        &[CLONED, &[("hostname", "text")]],
    ),
    operates(
        "PUT",
        "nodes/{node}/qemu/{vmid}/config",
        &[MACHINE, MACHINE_LESS],
    ),
    operates(
        "POST",
        "nodes/{node}/qemu/{vmid}/config",
        &[MACHINE, MACHINE_LESS],
    ),
    operates(
        "PUT",
        "nodes/{node}/lxc/{vmid}/config",
        &[CONTAINER, CONTAINER_LESS],
    ),
    operates("PUT", "nodes/{node}/qemu/{vmid}/resize", &[RESIZED]),
    operates("PUT", "nodes/{node}/lxc/{vmid}/resize", &[RESIZED]),
    operates(
        "POST",
        "nodes/{node}/qemu/{vmid}/move_disk",
        &[
            MOVED,
            &[
                ("disk!", "one:*"),
                ("format", "one:raw,qcow2,vmdk"),
                ("target-disk", "one:*"),
                ("target-digest", "one:*"),
            ],
        ],
    ),
    operates(
        "POST",
        "nodes/{node}/lxc/{vmid}/move_volume",
        &[
            MOVED,
            &[
                ("volume!", "one:*"),
                ("target-volume", "one:*"),
                ("target-digest", "one:*"),
            ],
        ],
    ),
    operates(
        "POST",
        "nodes/{node}/qemu/{vmid}/migrate",
        &[
            MIGRATED,
            &[
                ("with-local-disks", "whole:0-1"),
                ("targetstorage", "one:{storages}"),
            ],
        ],
    ),
    operates(
        "POST",
        "nodes/{node}/lxc/{vmid}/migrate",
        &[
            MIGRATED,
            &[
                ("restart", "whole:0-1"),
                ("timeout", "number"),
                ("target-storage", "one:{storages}"),
            ],
        ],
    ),
    operates(
        "POST",
        "nodes/{node}/qemu/{vmid}/snapshot",
        &[SNAPSHOT, &[("vmstate", "whole:0-1")]],
    ),
    operates("POST", "nodes/{node}/lxc/{vmid}/snapshot", &[SNAPSHOT]),
    operates(
        "PUT",
        "nodes/{node}/qemu/{vmid}/snapshot/*/config",
        &[DESCRIBED],
    ),
    operates(
        "PUT",
        "nodes/{node}/lxc/{vmid}/snapshot/*/config",
        &[DESCRIBED],
    ),
    operates(
        "POST",
        "nodes/{node}/qemu/{vmid}/snapshot/*/rollback",
        &[STARTED],
    ),
    operates(
        "POST",
        "nodes/{node}/lxc/{vmid}/snapshot/*/rollback",
        &[STARTED],
    ),
    operates("DELETE", "nodes/{node}/qemu/{vmid}/snapshot/*", &[FORCED]),
    operates("DELETE", "nodes/{node}/lxc/{vmid}/snapshot/*", &[FORCED]),
    operates("DELETE", "nodes/{node}/qemu/{vmid}", &[REMOVED]),
    operates("DELETE", "nodes/{node}/lxc/{vmid}", &[REMOVED]),
    does(
        Word::Console,
        "POST",
        "nodes/{node}/qemu/{vmid}/vncproxy",
        &[&[
            ("websocket", "whole:0-1"),
            ("generate-password", "whole:0-1"),
        ]],
    ),
    does(
        Word::Console,
        "POST",
        "nodes/{node}/lxc/{vmid}/vncproxy",
        &[&[
            ("websocket", "whole:0-1"),
            ("width", "whole"),
            ("height", "whole"),
        ]],
    ),
    does(
        Word::Console,
        "POST",
        "nodes/{node}/qemu/{vmid}/termproxy",
        &[&[("serial", "one:serial0,serial1,serial2,serial3")]],
    ),
    does(
        Word::Console,
        "POST",
        "nodes/{node}/lxc/{vmid}/termproxy",
        &[],
    ),
    does(
        Word::Console,
        "POST",
        "nodes/{node}/qemu/{vmid}/spiceproxy",
        &[&[("proxy", "one:*")]],
    ),
    does(
        Word::Console,
        "POST",
        "nodes/{node}/lxc/{vmid}/spiceproxy",
        &[&[("proxy", "one:*")]],
    ),
    does(
        Word::Console,
        "GET",
        "nodes/{node}/qemu/{vmid}/vncwebsocket",
        &[&[("port!", "whole:5900-5999"), ("vncticket!", "text")]],
    ),
    does(
        Word::Console,
        "GET",
        "nodes/{node}/lxc/{vmid}/vncwebsocket",
        &[&[("port!", "whole:5900-5999"), ("vncticket!", "text")]],
    ),
    does(
        Word::Console,
        "PUT",
        "nodes/{node}/qemu/{vmid}/sendkey",
        &[&[("key!", "one:*")]],
    ),
    does(
        Word::AgentExec,
        "POST",
        "nodes/{node}/qemu/{vmid}/agent/exec",
        &[&[("command!+", "prose"), ("input-data", "prose")]],
    ),
    does(
        Word::AgentExec,
        "GET",
        "nodes/{node}/qemu/{vmid}/agent/exec-status",
        &[&[("pid!", "whole")]],
    ),
    does(
        Word::AgentExec,
        "GET",
        "nodes/{node}/qemu/{vmid}/agent/file-read",
        &[&[("file!", "text")]],
    ),
    does(
        Word::AgentExec,
        "POST",
        "nodes/{node}/qemu/{vmid}/agent/file-write",
        &[&[
            ("file!", "text"),
            ("content!", "prose"),
            ("encode", "whole:0-1"),
        ]],
    ),
    does(
        Word::AgentExec,
        "POST",
        "nodes/{node}/qemu/{vmid}/agent/set-user-password",
        &[&[
            ("username!", "text"),
            ("password!", "text"),
            ("crypted", "whole:0-1"),
        ]],
    ),
];

/// What nothing but a word opens, however broad a rule beside it is; no word opens the first few: whoever is let in
/// there is let into the node. The other formats of the API are the same operations by other names.
pub(super) const SHUT_ALWAYS: &[&str] = &[
    "* /api2/extjs/**",
    "* /api2/html/**",
    "* /api2/htmljs/**",
    "* /api2/text/**",
    "* /api2/png/**",
    "* /api2/spiceconfig/**",
    "* /api2/json/nodes/*/execute",
    "* /api2/json/nodes/*/spiceshell",
    "* /api2/json/nodes/*/termproxy",
    "* /api2/json/nodes/*/vncshell",
    "* /api2/json/nodes/*/vncwebsocket",
    "* /api2/json/nodes/*/qemu/*/monitor",
    "* /api2/json/nodes/*/qemu/*/agent",
    "* /api2/json/nodes/*/*/*/mtunnel",
    "* /api2/json/nodes/*/*/*/mtunnelwebsocket",
    "* /api2/json/nodes/*/*/*/remote_migrate",
];

/// Consoles of guests.
pub(super) const CONSOLES: &[&str] = &[
    "* /api2/json/nodes/*/*/*/vncproxy",
    "* /api2/json/nodes/*/*/*/termproxy",
    "* /api2/json/nodes/*/*/*/spiceproxy",
    "* /api2/json/nodes/*/*/*/vncwebsocket",
    "* /api2/json/nodes/*/qemu/*/sendkey",
];

/// What the guest agent does inside a guest.
pub(super) const AGENT: &[&str] = &[
    "* /api2/json/nodes/*/qemu/*/agent/exec",
    "* /api2/json/nodes/*/qemu/*/agent/exec-status",
    "* /api2/json/nodes/*/qemu/*/agent/file-read",
    "* /api2/json/nodes/*/qemu/*/agent/file-write",
    "* /api2/json/nodes/*/qemu/*/agent/set-user-password",
];
