//! `portcullis prove` is green behind the boundary, red without it, and says when it could not tell.

mod absent;
mod careless;
mod installed;
mod interrupted;
mod lab;
mod looked;
mod machine;
mod mutation;

use std::fs;
use std::path::Path;

use tests::command::Program;
use tests::{binaries, host};

use lab::Lab;

const SCOPES: [&str; 2] = ["agents", "guest"];

#[test]
fn green_behind_the_boundary_red_without_it_and_nothing_is_left() {
    for scope in SCOPES {
        let lab = Lab::new(scope);
        lab.shut();
        let (before, held) = (lab.links(), lab.prove(&[]));
        assert_eq!(held.code, 0, "{scope}: {}", held.shown());
        assert_eq!(held.report["result"], "holds");
        assert!(held.count("holds") > 60, "{}", held.shown());
        for id in [
            "KRN-01/ipv4/443",
            "KRN-02-link-local/ipv6/443",
            "KRN-04-dns/ipv6/53",
            "OPN-gate-tcp/ipv6/443",
        ] {
            assert_eq!(held.status(id), "holds", "{id}: {}", held.shown());
        }
        assert_eq!(lab.links(), before, "the wire is gone");

        lab.open();
        let open = lab.prove(&[]);
        assert_eq!(open.code, 1, "{scope}: {}", open.shown());
        for id in [
            "KRN-01/ipv4/443",
            "KRN-01/ipv6/443",
            "KRN-03-quic/ipv4/443",
            "KRN-04-dns/ipv6/53",
            "KRN-24-agent/ipv4",
        ] {
            assert_eq!(open.status(id), "broken", "{id}: {}", open.shown());
        }
    }
}

#[test]
fn unprivileged_it_could_not_tell_unless_there_is_no_way_out() {
    let lab = Lab::new("agents");
    // A machine with a wire, whatever stands on it: refusals alone tell nothing, allowed or not.
    lab.wire();
    for shut in [false, true] {
        if shut {
            lab.shut();
        }
        let alone = lab.alone(lab.agent());
        assert_eq!(alone.code, 2, "{}", alone.shown());
        assert_eq!(alone.status("KRN-01/ipv4/443"), "could-not-tell");
        assert_eq!(alone.status("KRN-15-packet"), "holds");
    }
    // The boundary refuses a datagram before it is sent, and says so; that is no doubt any more.
    assert_eq!(
        lab.alone(lab.agent()).status("KRN-03-quic/ipv4/443"),
        "holds"
    );
    let cut_off = Lab::new("agents");
    let alone = cut_off.alone(cut_off.agent());
    assert_eq!(alone.code, 0, "{}", alone.shown());
    assert_eq!(alone.status("KRN-01/ipv4/443"), "holds");
}

#[test]
fn reports_are_read_by_those_they_are_made_for() {
    let lab = Lab::new("agents");
    lab.shut();
    let xml = lab.path("prove.xml");
    let junit = lab.run(&["--format", "junit", "--output", &xml.display().to_string()]);
    assert_eq!(junit.code(), 0, "{}", junit.shown());
    assert!(
        junit.stderr.contains("The boundary holds."),
        "{}",
        junit.shown()
    );
    let counted = Program::new("python3")
        .args(["-c", "import sys, xml.etree.ElementTree as e; r = e.parse(sys.argv[1]).getroot(); print(r.tag, r.get('failures'), len(list(r.iter('testcase'))) == int(r.get('tests')))"])
        .arg(&xml)
        .run()
        .ok();
    assert_eq!(counted.stdout.trim(), "testsuites 0 True");

    lab.open();
    let junit = lab.run(&["--format", "junit", "--output", &xml.display().to_string()]);
    assert_eq!(junit.code(), 1, "{}", junit.shown());
    let text = fs::read_to_string(&xml).unwrap();
    assert!(text.contains("<failure type=\"broken\""), "{text}");

    // Perl's own reader of TAP, the program that gave `prove` its name.
    for (shut, code) in [(true, 0), (false, 1)] {
        if shut {
            lab.shut();
        } else {
            lab.open();
        }
        let tap = lab.path("prove.tap");
        let written = lab.run(&["--format", "tap", "--output", &tap.display().to_string()]);
        assert_eq!(written.code(), code, "{}", written.shown());
        let judged = Program::new("prove")
            .args(["--source", "File", "--ext", ".tap"])
            .arg(&tap)
            .run();
        let expected = if shut { "Result: PASS" } else { "Result: FAIL" };
        assert!(judged.stdout.contains(expected), "{}", judged.shown());
        assert!(!judged.stdout.contains("Parse error"), "{}", judged.shown());
    }
}

#[test]
fn a_list_of_ones_own_is_read_and_its_mistakes_are_named() {
    let lab = Lab::new("agents");
    lab.shut();
    let own = lab.path("own.toml");
    let proof = "version = 1\n[[proof]]\nid = \"OWN-1\"\nmust = \"fail\"\nattempt = \"tcp\"\nports = [4711]\nreason = \"ours\"\n";
    fs::write(&own, proof).unwrap();
    let path = own.display().to_string();
    let held = lab.prove(&["--proofs", &path]);
    // One for each protocol, and the sentinel of the user who tries them.
    assert_eq!((held.code, held.count("holds")), (0, 3), "{}", held.shown());
    fs::write(&own, proof.replace("ports", "prots")).unwrap();
    let wrong = lab.run(&["--proofs", &path]);
    assert_eq!(wrong.code(), 2, "{}", wrong.shown());
    assert!(
        wrong
            .stderr
            .contains("own.toml:6: proof[0].prots: unknown key"),
        "{}",
        wrong.shown()
    );
    assert!(
        wrong.stderr.contains("did you mean \"ports\"?"),
        "{}",
        wrong.shown()
    );
    // What must fail and does not: the gate's way out is open, as a list that forbids it says.
    fs::write(&own, proof.replace("\"fail\"", "\"succeed\"")).unwrap();
    assert_eq!(lab.prove(&["--proofs", &path]).code, 1);
    let printed = lab.run_words(&["prove", "list"]).ok().stdout;
    let shipped =
        fs::read_to_string(binaries::repository().join("provisioning/proofs.toml")).unwrap();
    assert_eq!(printed, shipped);
}

#[test]
fn without_a_boundary_s_configuration_nothing_is_tried() {
    let portcullis = binaries::path("portcullis");
    let dir = host::scratch();
    for words in [
        vec![
            "--boundary".to_owned(),
            dir.path().join("none.toml").display().to_string(),
        ],
        vec!["--prefix".to_owned(), dir.path().display().to_string()],
    ] {
        let refused = Program::new(&portcullis).arg("prove").args(&words).run();
        assert_eq!(refused.code(), 2, "{}", refused.shown());
        assert!(refused.stderr.contains("hint:"), "{}", refused.shown());
    }
    assert!(Path::new("/proc/self").exists());
}
