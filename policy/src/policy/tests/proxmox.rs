//! Kind `proxmox`: what each preset opens, and what a request may carry. Whatever is decided is decided alike by the
//! expansion into plain rules.

use std::sync::Arc;

use super::*;
use crate::request::{Body, Content, Reading};

const PVE: &str = "https://pve.lan.example:8006";

fn service(keys: &str) -> Policy {
    policy(&format!(
        "[[service]]\nid = \"pve\"\nkind = \"proxmox\"\nhost = \"pve.lan.example\"\ncredential = \"pve\"\n{keys}\n"
    ))
}

const OPERATOR: &str = "api = \"operator\"\nnodes = [\"pve\", \"pve-*\"]\nvmids = [\"100-199\"]\ntemplates = [\"9000\"]\n\
    storages = [\"local\", \"local-lvm\"]\npools = [\"agents\"]\nbridges = [\"vmbr1\"]\nfeatures = [\"nesting\"]";

/// A method, a path, and what is carried.
type Sent = (
    &'static str,
    &'static str,
    &'static [(&'static str, &'static str)],
);

/// What becomes of a request that carries these parameters in its body.
fn sent(policy: &Policy, method: &str, path: &str, carried: &[(&str, &str)]) -> Outcome {
    let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    asked(
        policy,
        method,
        path,
        Reading::Read(carried.iter().map(own).collect()),
        None,
    )
}

fn asked(
    policy: &Policy,
    method: &str,
    path: &str,
    parameters: Reading<Vec<(String, String)>>,
    task: Option<bool>,
) -> Outcome {
    let facts = Facts::Content(Arc::new(Content {
        body: Some(Body {
            bytes: Some(1),
            parameters,
            ..Body::beyond()
        }),
        task,
        ..Content::default()
    }));
    let url = format!("{PVE}/api2/json/{path}");
    let found = ask_with(policy, method, &url, &facts);
    // The plain rules must not depend on the kind; they are read anew each time.
    let plain = Policy::parse(&policy.expanded(), "expanded.toml")
        .unwrap_or_else(|problems| panic!("{problems}"));
    let again = ask_with(&plain, method, &url, &facts);
    assert_eq!(found.clone().bare(), again.bare(), "{method} {path}");
    found
}

fn code(outcome: &Outcome) -> &'static str {
    outcome.code().map_or("permitted", Code::as_str)
}

#[test]
fn each_preset_opens_its_own_and_what_comes_before_it() {
    let none: &[(&str, &str)] = &[];
    let snapshot = &[("snapname", "before")][..];
    let cases = [
        ("GET", "version", none, 0),
        ("GET", "nodes/pve/qemu/101/status/current", none, 0),
        ("GET", "nodes/pve/lxc/101/config", none, 0),
        ("POST", "nodes/pve/lxc/101/status/reboot", none, 1),
        ("POST", "nodes/pve/qemu/101/status/reset", none, 1),
        ("POST", "nodes/pve/lxc/101/snapshot", snapshot, 2),
        ("DELETE", "nodes/pve/qemu/101/snapshot/before", none, 2),
        ("DELETE", "nodes/pve/lxc/101", none, 2),
        ("PUT", "nodes/pve/qemu/101/config", &[("cores", "2")], 2),
        ("GET", "access/users", none, 3),
        ("POST", "access/users", &[("userid", "a@pve")], 3),
        ("POST", "nodes/pve/status", &[("command", "reboot")], 3),
        ("PUT", "cluster/options", none, 3),
        ("POST", "nodes/pve/vzdump", &[("script", "/x")], 3),
        ("GET", "nodes/pve/tasks", none, 3),
        ("POST", "nodes/pve/lxc/101/remote_migrate", none, 3),
    ];
    for (rank, preset) in ["read", "power", "operator"].into_iter().enumerate() {
        let policy = service(&format!("api = \"{preset}\"\nvmids = [\"100-199\"]"));
        for (method, path, carried, wanted) in cases {
            let outcome = sent(&policy, method, path, carried);
            assert_eq!(
                outcome.permits(),
                rank >= wanted,
                "{preset} {method} {path}: {outcome:?}"
            );
        }
    }
}

#[test]
fn a_scope_bounds_the_path() {
    let policy = service(OPERATOR);
    for path in [
        "nodes/pve/lxc/100",
        "nodes/pve-2/lxc/199",
        "nodes/pve/storage/local",
    ] {
        let path = format!("{path}/status");
        assert!(sent(&policy, "GET", &path, &[]).permits(), "{path}");
    }
    for path in [
        "nodes/other/lxc/100",
        "nodes/PVE/lxc/100",
        "nodes/pve/lxc/200",
        "nodes/pve/lxc/0100",
        "nodes/pve/lxc/+100",
        "nodes/pve/lxc/100.0",
        "nodes/pve/lxc/100%20",
        "nodes/pve/lxc/9000",
        "nodes/pve/storage/nfs",
    ] {
        let path = format!("{path}/status");
        let outcome = sent(&policy, "GET", &path, &[]);
        assert!(!outcome.permits(), "{path}");
    }
    // Spelt in another way it may be read as the same.
    for path in [
        "nodes/pve/lxc/100/status/reboot/",
        "nodes//pve/lxc/100/status/reboot",
        "nodes/pve/lxc/100/status/REBOOT",
        "nodes/pve/lxc/100/status;a=b/reboot",
        "nodes/pve/lxc/100%2fstatus/reboot",
        "nodes/pve/./lxc/100/status/reboot",
    ] {
        let outcome = sent(&policy, "POST", path, &[]);
        assert_eq!(code(&outcome), "ambiguous_path", "{path}");
    }
    let plain = "nodes/pve/lxc/100/status/reboot";
    assert!(sent(&policy, "POST", plain, &[]).permits(), "control");
    let clone = |from: &str| {
        let path = format!("nodes/pve/lxc/{from}/clone");
        sent(
            &policy,
            "POST",
            &path,
            &[("newid", "150"), ("pool", "agents")],
        )
    };
    assert!(clone("9000").permits() && clone("100").permits());
    assert!(!clone("9001").permits());
}

#[test]
fn what_a_new_container_carries_is_looked_at() {
    let policy = service(OPERATOR);
    let good = [
        ("vmid", "150"),
        ("ostemplate", "local:vztmpl/debian-12.tar.zst"),
        ("unprivileged", "1"),
        ("pool", "agents"),
        ("storage", "local-lvm"),
        ("rootfs", "local-lvm:8"),
        ("mp0", "local-lvm:4,mp=/srv"),
        ("net0", "name=eth0,bridge=vmbr1,ip=dhcp"),
        ("features", "nesting=1"),
        ("hostname", "agent-1"),
        ("description", "two\nlines"),
    ];
    assert!(sent(&policy, "POST", "nodes/pve/lxc", &good).permits());
    // Another value.
    for (name, value) in [
        ("vmid", "200"),
        ("vmid", "0150"),
        ("vmid", "+150"),
        ("vmid", "150.0"),
        ("vmid", "150,300"),
        ("ostemplate", "/root/evil.tar"),
        ("ostemplate", "nfs:vztmpl/a.tar"),
        ("unprivileged", "0"),
        ("unprivileged", "true"),
        ("unprivileged", "01"),
        ("pool", "prod"),
        ("storage", "nfs"),
        ("rootfs", "nfs:8"),
        ("rootfs", "/"),
        ("mp0", "/etc,mp=/srv"),
        ("mp0", "volume=/etc,mp=/srv"),
        ("mp0", "local-lvm:vm-500-disk-0,mp=/srv"),
        ("net0", "name=eth0,bridge=vmbr0"),
        ("features", "nesting=1,keyctl=1"),
        ("features", "mount=nfs"),
        ("hostname", "a\nlxc.hook.pre-start=/x"),
    ] {
        let mut carried = good.to_vec();
        carried.retain(|(known, _)| *known != name);
        carried.push((name, value));
        let outcome = sent(&policy, "POST", "nodes/pve/lxc", &carried);
        assert_eq!(code(&outcome), "condition_not_met", "{name}={value}");
    }
    // Something more.
    for (name, value) in [
        ("hookscript", "local:snippets/x.sh"),
        ("mp[1]", "/etc,mp=/srv"),
        ("MP1", "/etc,mp=/srv"),
        ("mp01", "local-lvm:4,mp=/a"),
        ("dev0", "/dev/kvm"),
        ("lxc.apparmor.profile", "unconfined"),
        ("restore", "1"),
        ("force", "1"),
        ("lock", "create"),
        ("node", "other"),
        ("Unprivileged", "0"),
        ("unprivileged[]", "0"),
        ("entrypoint", "/bin/sh"),
        ("_dc", "1"),
    ] {
        let mut carried = good.to_vec();
        carried.push((name, value));
        let outcome = sent(&policy, "POST", "nodes/pve/lxc", &carried);
        assert_eq!(code(&outcome), "condition_not_met", "{name}={value}");
    }
    // Something less, or twice.
    for name in ["vmid", "ostemplate", "unprivileged", "pool"] {
        let mut less = good.to_vec();
        less.retain(|(known, _)| *known != name);
        let outcome = sent(&policy, "POST", "nodes/pve/lxc", &less);
        assert_eq!(code(&outcome), "condition_not_met", "{name}");
        let mut twice = good.to_vec();
        twice.extend(good.iter().filter(|(known, _)| *known == name));
        let outcome = sent(&policy, "POST", "nodes/pve/lxc", &twice);
        assert_eq!(code(&outcome), "could_not_inspect", "{name}");
    }
}

#[test]
fn later_changes_of_a_guest_are_looked_at_as_well() {
    let policy = service(OPERATOR);
    let container = "nodes/pve/lxc/101/config";
    let machine = "nodes/pve/qemu/101/config";
    let machines = "nodes/pve/qemu";
    let good: &[Sent] = &[
        (
            "PUT",
            container,
            &[("memory", "512"), ("delete", "mp0,net1")],
        ),
        (
            "PUT",
            machine,
            &[
                ("scsi1", "local-lvm:4"),
                ("ide2", "local:iso/d.iso,media=cdrom"),
            ],
        ),
        (
            "POST",
            machines,
            &[
                ("vmid", "150"),
                ("pool", "agents"),
                ("net0", "virtio,bridge=vmbr1"),
            ],
        ),
        (
            "PUT",
            "nodes/pve/lxc/101/resize",
            &[("disk", "rootfs"), ("size", "+2G")],
        ),
        ("POST", "nodes/pve/qemu/101/migrate", &[("target", "pve-2")]),
        (
            "POST",
            "nodes/pve/qemu/101/move_disk",
            &[("disk", "scsi0"), ("storage", "local")],
        ),
        ("DELETE", "nodes/pve/lxc/101", &[("purge", "1")]),
        ("POST", "nodes/pve/lxc/101/snapshot/a/rollback", &[]),
    ];
    for (method, path, carried) in good {
        let outcome = sent(&policy, method, path, carried);
        assert!(outcome.permits(), "{path} {carried:?}: {outcome:?}");
    }
    let bad: &[Sent] = &[
        ("PUT", container, &[("delete", "mp0,hookscript")]),
        ("PUT", container, &[("delete", "mp0;protection")]),
        ("PUT", container, &[("unprivileged", "1")]),
        ("PUT", container, &[("mp0", "/,mp=/host")]),
        ("PUT", container, &[("hookscript", "local:snippets/a")]),
        ("PUT", container, &[("revert", "memory")]),
        (
            "PUT",
            machine,
            &[("args", "-chardev file,path=/etc/shadow,id=a")],
        ),
        ("PUT", machine, &[("hostpci0", "0000:00:02")]),
        ("PUT", machine, &[("usb0", "host=1234:5678")]),
        ("PUT", machine, &[("serial0", "/dev/ttyS0")]),
        ("PUT", machine, &[("scsi1", "/dev/sda")]),
        (
            "PUT",
            machine,
            &[("scsi1", "local-lvm:0,import-from=/etc/shadow")],
        ),
        ("PUT", machine, &[("cicustom", "user=local:snippets/a")]),
        ("PUT", machine, &[("skiplock", "1")]),
        (
            "POST",
            machines,
            &[("vmid", "150"), ("pool", "agents"), ("archive", "/x")],
        ),
        (
            "POST",
            machines,
            &[("vmid", "150"), ("pool", "agents"), ("net0", "virtio")],
        ),
        ("POST", "nodes/pve/qemu/101/migrate", &[("target", "other")]),
        ("POST", "nodes/pve/qemu/101/migrate", &[]),
        (
            "POST",
            "nodes/pve/qemu/101/move_disk",
            &[("disk", "scsi0"), ("storage", "nfs")],
        ),
        (
            "POST",
            "nodes/pve/qemu/101/move_disk",
            &[("disk", "scsi0"), ("target-vmid", "500")],
        ),
        ("DELETE", "nodes/pve/lxc/101", &[("skiplock", "1")]),
        (
            "POST",
            "nodes/pve/lxc/101/status/start",
            &[("skiplock", "1")],
        ),
    ];
    for (method, path, carried) in bad {
        let outcome = sent(&policy, method, path, carried);
        assert_eq!(code(&outcome), "condition_not_met", "{path} {carried:?}");
    }
}

#[test]
fn parameters_count_wherever_they_stand_and_in_one_place() {
    let policy = service(OPERATOR);
    let clone = |query: &str, carried: &[(&str, &str)]| {
        sent(
            &policy,
            "POST",
            &format!("nodes/pve/lxc/101/clone{query}"),
            carried,
        )
    };
    let pool = ("pool", "agents");
    assert!(clone("", &[("newid", "150"), pool]).permits());
    assert!(clone("?newid=150", &[pool]).permits());
    assert!(clone("?newid=150&pool=agents", &[]).permits());
    assert!(clone("?newid=%31%35%30&pool=agents", &[]).permits());
    for (query, carried) in [
        ("?newid=500&pool=agents", &[][..]),
        ("?newid=0150", &[pool]),
        ("?newid=150&mp0=/etc", &[pool]),
        ("?newid=%20150", &[pool]),
    ] {
        assert_eq!(code(&clone(query, carried)), "condition_not_met", "{query}");
    }
    for (query, carried) in [
        ("?newid=150", &[("newid", "500"), pool][..]),
        ("?newid=150", &[("newid", "150"), pool]),
        ("?newid=150&newid=500", &[pool]),
        ("?newid=150;newid=500", &[pool]),
        ("?newid=150=500", &[pool]),
        ("?newid=150&%", &[pool]),
        ("?newid", &[pool]),
    ] {
        assert_eq!(code(&clone(query, carried)), "could_not_inspect", "{query}");
    }
    let path = "nodes/pve/lxc/101/clone";
    let unread = Reading::Unreadable(String::from("it is not JSON"));
    assert_eq!(
        code(&asked(&policy, "POST", path, unread, None)),
        "could_not_inspect"
    );
    assert_eq!(
        code(&asked(&policy, "POST", path, Reading::NotAsked, None)),
        "could_not_inspect"
    );
    let url = format!("{PVE}/api2/json/{path}");
    assert_eq!(ask(&policy, "POST", &url), Outcome::Inspect);
}

#[test]
fn only_ones_own_task_may_be_polled() {
    let task = "UPID:pve:0001:0001:0001:vzreboot:101:agent@pve!ci:";
    for word in ["status", "log?start=0&limit=50"] {
        let path = format!("nodes/pve/tasks/{task}/{word}");
        let policy = service("api = \"power\"\nnodes = [\"pve\"]\nvmids = [\"100-199\"]");
        let poll = |policy: &Policy, own| asked(policy, "GET", &path, Reading::NotAsked, own);
        assert!(poll(&policy, Some(true)).permits());
        assert_eq!(code(&poll(&policy, Some(false))), "condition_not_met");
        assert_eq!(code(&poll(&policy, None)), "condition_not_met");
        assert_eq!(
            ask(&policy, "GET", &format!("{PVE}/api2/json/{path}")),
            Outcome::Inspect
        );
        let elsewhere = path.replace("nodes/pve/", "nodes/other/");
        let outcome = asked(&policy, "GET", &elsewhere, Reading::NotAsked, Some(true));
        assert_eq!(code(&outcome), "condition_not_met");
        // A broad line beside it is no way round.
        let broad = service("api = \"power\"\nvmids = [\"100-199\"]");
        let text = format!(
            "{}\n[[service]]\nid = \"z\"\nkind = \"http\"\nhost = \"pve.lan.example\"\nport = 8006\ncredential = \"pve\"\nallow = [\"* /**\"]\n",
            broad.expanded()
        );
        assert!(!poll(&super::policy(&text), Some(false)).permits());
    }
}

#[test]
fn consoles_and_the_guest_agent_have_words_of_their_own() {
    let console = [
        ("POST", "nodes/pve/qemu/101/vncproxy"),
        ("POST", "nodes/pve/lxc/101/termproxy"),
        ("POST", "nodes/pve/qemu/101/spiceproxy"),
        (
            "GET",
            "nodes/pve/lxc/101/vncwebsocket?port=5900&vncticket=x",
        ),
    ];
    let agent = [
        ("POST", "nodes/pve/qemu/101/agent/exec?command=id"),
        ("GET", "nodes/pve/qemu/101/agent/exec-status?pid=7"),
        ("GET", "nodes/pve/qemu/101/agent/file-read?file=/etc/shadow"),
        (
            "POST",
            "nodes/pve/qemu/101/agent/file-write?file=/x&content=y",
        ),
        (
            "POST",
            "nodes/pve/qemu/101/agent/set-user-password?username=root&password=x",
        ),
    ];
    let never = [
        ("POST", "nodes/pve/vncshell"),
        ("POST", "nodes/pve/termproxy"),
        ("POST", "nodes/pve/execute"),
        ("GET", "nodes/pve/vncwebsocket?port=5900&vncticket=x"),
        ("POST", "nodes/pve/qemu/101/monitor"),
        ("POST", "nodes/pve/qemu/101/agent"),
    ];
    let broad = "[[service]]\nid = \"z\"\nkind = \"http\"\nhost = \"pve.lan.example\"\nport = 8006\ncredential = \"pve\"\nallow = [\"* /**\"]\n";
    for (also, opens_console, opens_agent) in [
        ("", false, false),
        ("also = [\"console\"]", true, false),
        ("also = [\"agent-exec\"]", false, true),
        ("also = [\"console\", \"agent-exec\"]", true, true),
    ] {
        let alone = service(&format!(
            "api = \"operator\"\nvmids = [\"100-199\"]\n{also}"
        ));
        let beside = policy(&format!("{}\n{broad}", alone.expanded()));
        for policy in [&alone, &beside] {
            let opens = |(method, path): &(&str, &str)| sent(policy, method, path, &[]).permits();
            assert!(
                console.iter().all(|one| opens(one) == opens_console),
                "{also}"
            );
            assert!(agent.iter().all(|one| opens(one) == opens_agent), "{also}");
            assert!(!never.iter().any(opens), "{also}");
        }
        let elsewhere = sent(
            &alone,
            "POST",
            "nodes/pve/qemu/500/agent/exec",
            &[("command", "id")],
        );
        assert!(!elsewhere.permits());
        for format in ["extjs", "html", "text"] {
            let url = format!("{PVE}/api2/{format}/nodes/pve/lxc");
            assert_eq!(
                ask(&beside, "POST", &url).code(),
                Some(Code::PathNotAllowed),
                "{format}"
            );
        }
        assert!(
            sent(&beside, "POST", "access/ticket", &[]).permits(),
            "control"
        );
    }
    let several = [("command", "ls"), ("command", "-l")];
    let both = service("also = [\"agent-exec\"]\nvmids = [\"100-199\"]");
    assert!(sent(&both, "POST", "nodes/pve/qemu/101/agent/exec", &several).permits());
}

#[test]
fn a_line_opens_what_it_has_in_common_with_known_operations() {
    let policy = service(
        "allow = [\"GET /api2/json/**\", \"* /api2/json/nodes/pve/lxc/*/status/**\", \"POST /api2/json/nodes/*/lxc\"]",
    );
    assert!(sent(&policy, "GET", "access/users", &[]).permits());
    assert!(sent(&policy, "POST", "nodes/pve/lxc/7/status/start", &[]).permits());
    for (method, path) in [
        ("POST", "nodes/other/lxc/7/status/start"),
        ("POST", "nodes/pve/qemu/7/status/start"),
        ("PUT", "nodes/pve/lxc/7/status/start"),
        ("POST", "nodes/pve/lxc/7/status/unheard-of"),
        ("GET", "nodes/pve/qemu/7/agent/file-read?file=/x"),
    ] {
        assert!(
            !sent(&policy, method, path, &[]).permits(),
            "{method} {path}"
        );
    }
    let new = |unprivileged| {
        let carried = [
            ("vmid", "7"),
            ("ostemplate", "local:vztmpl/a.tar"),
            ("unprivileged", unprivileged),
        ];
        sent(&policy, "POST", "nodes/pve/lxc", &carried)
    };
    assert!(new("1").permits());
    assert!(!new("0").permits());
    // Within a scope, reading is bound as well.
    let bound =
        service("allow = [\"GET /api2/json/**\"]\nvmids = [\"100-199\"]\nnodes = [\"pve\"]");
    for (path, wanted) in [
        ("nodes/pve/lxc/100/config", true),
        ("nodes/pve/lxc/200/config", false),
        ("nodes/other/lxc/100/config", false),
        ("access/users", false),
    ] {
        assert_eq!(sent(&bound, "GET", path, &[]).permits(), wanted, "{path}");
    }
}

#[test]
fn what_has_no_effect_or_too_much_does_not_load() {
    for (keys, said) in [
        ("api = \"powr\"", "did you mean `power`?"),
        ("api = \"power\"", "which guests may be changed"),
        (
            "api = \"operator\"\npools = [\"a\"]",
            "which guests may be changed",
        ),
        (
            "api = \"read\"\nalso = [\"console\"]",
            "which guests may be changed",
        ),
        (
            "api = \"power\"\nvmids = [\"0100\"]",
            "no number of a guest",
        ),
        ("api = \"power\"\nvmids = [\"*\"]", "no number of a guest"),
        (
            "api = \"power\"\nvmids = [\"199-100\"]",
            "no number of a guest",
        ),
        ("api = \"power\"\nvmids = []", "empty list"),
        ("api = \"read\"\nnodes = [\"a,b\"]", "is no name"),
        (
            "api = \"read\"\nalso = [\"consol\"]",
            "did you mean `console`?",
        ),
        (
            "allow = [\"POST /api2/json/access/users\"]",
            "no operation that the gate can look into",
        ),
        (
            "allow = [\"POST /api2/json/nodes/pve/qemu/1/agent/exec\"]",
            "agent-exec",
        ),
        (
            "allow = [\"POST /api2/json/nodes/pve/lxc?vmid=1\"]",
            "writes with a query",
        ),
    ] {
        let text = format!("[[service]]\nkind = \"proxmox\"\nhost = \"pve.lan.example\"\n{keys}\n");
        let problems = Policy::parse(&text, "p.toml")
            .map_or_else(|problems| problems.to_string(), |_| String::new());
        assert!(problems.contains(said), "{keys}: {problems}");
    }
    assert!(
        !service("api = \"power\"\nvmids = [\"100\"]")
            .services()
            .is_empty(),
        "control"
    );
}
