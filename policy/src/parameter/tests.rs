use super::*;

fn rules(lines: &[(&str, &str)]) -> Parameters {
    let one =
        |(name, value): &(&str, &str)| (Name::parse(name).unwrap(), Value::parse(value).unwrap());
    lines.iter().map(one).collect()
}

fn met(rules: &Parameters, carried: &[(&str, &str)]) -> bool {
    let pairs: Vec<(String, String)> = carried
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    judge(rules, &pairs).is_ok()
}

#[test]
fn only_what_is_named_may_be_there_and_once() {
    let rules = rules(&[
        ("newid!", "whole:100-199"),
        ("mp#", "text"),
        ("command+", "text"),
    ]);
    assert!(met(&rules, &[("newid", "100")]));
    assert!(met(
        &rules,
        &[("mp0", "a"), ("newid", "199"), ("mp12", "b")]
    ));
    assert!(met(
        &rules,
        &[("command", "a"), ("command", "b"), ("newid", "100")]
    ));
    for carried in [
        &[][..],
        &[("mp0", "a")],
        &[("newid", "100"), ("newid", "100")],
        &[("newid", "100"), ("NEWID", "300")],
        &[("newid", "100"), ("newid[]", "300")],
        &[("newid", "100"), ("mp", "a")],
        &[("newid", "100"), ("mp00", "a")],
        &[("newid", "100"), ("mp[0]", "a")],
        &[("newid", "100"), ("mp0 ", "a")],
        &[("newid", "100"), ("mp0", "a"), ("mp0", "b")],
        &[("newid", "100"), ("hookscript", "local:snippets/x")],
    ] {
        assert!(!met(&rules, carried), "{carried:?}");
    }
}

#[test]
fn each_type_takes_what_it_means_and_nothing_like_it() {
    let cases: &[(&str, &[&str], &[&str])] = &[
        (
            "whole:100-199,300",
            &["100", "199", "300"],
            &[
                "",
                "99",
                "200",
                "0100",
                "+100",
                "100.0",
                " 100",
                "100 ",
                "1e2",
                "0x64",
                "-100",
                "100,300",
                "\u{661}00",
                "100\n",
                "18446744073709551716",
            ],
        ),
        ("whole", &["0", "7"], &["-1", "07", ""]),
        (
            "one:pve,web-*",
            &["pve", "web-1", "web-"],
            &["PVE", "web", "pve,web-1", "pve ", "web-/x", "web-\n", ""],
        ),
        ("one:*", &["local-lvm"], &["", "/mnt", "a:b", "a/b", "a b"]),
        (
            "names:mp#,net#,description",
            &["mp0", "mp0,net1,description"],
            &[
                "hookscript",
                "mp0,hookscript",
                "mp0;hookscript",
                "mp0 net1",
                "mp",
                "mp00",
                "mp0,",
                "",
            ],
        ),
        (
            "flags:nesting",
            &["nesting=1", "nesting=0"],
            &[
                "keyctl=1",
                "nesting=1,keyctl=1",
                "nesting=1;keyctl=1",
                "nesting",
                "nesting=2",
                "mount=nfs",
                "nesting=1,mount=cifs",
                "nesting=1,nesting=0",
                "",
            ],
        ),
        ("flags:", &[], &["nesting=1", ""]),
        (
            "volume:local,local-lvm@100-199",
            &[
                "local-lvm:8",
                "local:0.5",
                "local-lvm:8,mp=/srv,backup=1",
                "volume=local-lvm:8,mp=/srv",
                "mp=/srv,volume=local-lvm:8",
                "local-lvm:vm-101-disk-0,size=8G",
                "local:101/vm-101-disk-0.qcow2",
                "local-lvm:subvol-101-disk-1",
                "local:iso/debian.iso,media=cdrom",
                "none,media=cdrom",
                "local-lvm:cloudinit",
            ],
            &[
                "/mnt/host,mp=/srv",
                "volume=/mnt/host,mp=/srv",
                "mp=/srv,volume=/",
                "other:8",
                "nfs-local:8",
                "local-lvm:vm-900-disk-0",
                "local:101/vm-900-disk-0.raw",
                "local:900/vm-101-disk-0.raw",
                "local-lvm:vm-0101-disk-0",
                "local:../etc",
                "local:iso/debian.iso",
                "local:iso/../../etc/shadow,media=cdrom",
                "local:snippets/x",
                "local-lvm:8,volume=/mnt",
                "local-lvm:8,file=/mnt",
                "volume=local-lvm:8,volume=/mnt",
                "local-lvm:0,import-from=/etc/shadow",
                "local-lvm:8,shared=1",
                "local-lvm:8\n/mnt",
                "local-lvm:8,/mnt",
                "none",
                "",
            ],
        ),
        (
            "template:local",
            &["local:vztmpl/debian-12-standard_12.7-1_amd64.tar.zst"],
            &[
                "/root/evil.tar",
                "other:vztmpl/a.tar",
                "local:vztmpl/../a",
                "local:backup/a",
                "local:vztmpl/",
                "vztmpl/a",
                "",
            ],
        ),
        (
            "net:vmbr1",
            &[
                "name=eth0,bridge=vmbr1,ip=dhcp",
                "virtio,bridge=vmbr1",
                "virtio=02:00:00:00:00:01,bridge=vmbr1,firewall=1",
            ],
            &[
                "name=eth0,bridge=vmbr0",
                "virtio",
                "name=eth0,bridge=vmbr1,tag=7",
                "bridge=vmbr1,bridge=vmbr0",
                "bridge=vmbr1,trunks=1",
                "",
            ],
        ),
        (
            "number",
            &["0", "1.5", "10240"],
            &["-1", "1e3", "1.", ".5", "+1", ""],
        ),
        ("text", &["a b", ""], &["a\nb", "a\0b", "a\rb", "a\u{85}b"]),
        ("prose", &["a\nb", "a\tb"], &["a\0b", "a\u{1b}b"]),
    ];
    for (text, good, bad) in cases {
        let value = Value::parse(text).unwrap();
        assert_eq!(Value::parse(&value.to_string()).unwrap(), value, "{text}");
        for one in *good {
            assert_eq!(value.judge(one), Ok(()), "{text}: {one:?}");
        }
        for one in *bad {
            assert!(value.judge(one).is_err(), "{text}: {one:?}");
        }
    }
}

#[test]
fn what_is_no_type_or_no_name_is_told() {
    for text in [
        "",
        "texts",
        "whole:",
        "whole:5-1",
        "whole:0100",
        "whole:a",
        "one:",
        "one:a b",
        "one",
        "volume:local",
        "volume:@1",
        "text:a",
        "net:",
    ] {
        assert!(Value::parse(text).is_err(), "{text}");
    }
    for text in ["", "#", "a b", "a[0]", "!", "a=b"] {
        assert!(Name::parse(text).is_err(), "{text}");
    }
    for text in ["a", "a#", "a!", "a#!+", "migrate-x_y.z"] {
        assert_eq!(Name::parse(text).unwrap().to_string(), text);
    }
}
