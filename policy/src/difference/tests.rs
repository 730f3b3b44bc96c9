use super::*;

fn policy(services: &str) -> Policy {
    Policy::parse(services, "test").unwrap_or_else(|problems| panic!("{problems}"))
}

fn service(id: &str, rest: &str) -> String {
    format!("[[service]]\nid = \"{id}\"\nkind = \"http\"\n{rest}\n")
}

fn what(list: &[Power]) -> Vec<&str> {
    list.iter().map(|power| power.what.as_str()).collect()
}

const API: &str = "host = \"api.example.com\"\nallow = [\"GET,HEAD /v1/**\", \"POST /v1/x\"]";

#[test]
fn what_is_only_written_in_another_way_is_no_difference() {
    let one = policy(&service("one", API));
    let parts = service(
        "a",
        "host = \"api.example.com\"\nallow = [\"HEAD /v1/**\", \"POST /v1/x\"]",
    ) + &service(
        "b",
        "hosts = [\"api.example.com\"]\nallow = [\"GET /v1/**\"]",
    );
    let two = policy(&parts);
    assert!(
        one.difference(&two).is_empty(),
        "{:?}",
        one.difference(&two)
    );
    assert!(two.difference(&one).is_empty());
    let expanded = policy(&one.expanded());
    assert!(one.difference(&expanded).is_empty());
}

#[test]
fn what_becomes_possible_is_told_by_method_and_what_no_longer_is_is_its_mirror() {
    let old = policy(&service("one", API));
    let wide = API.replace("GET,HEAD /v1/**", "GET,HEAD,DELETE /v1/**");
    let new = policy(&service("one", &wide));
    let difference = old.difference(&new);
    assert_eq!(
        what(&difference.gained),
        ["DELETE https://api.example.com:443/v1/**"]
    );
    assert!(difference.lost.is_empty() && difference.changed.is_empty());
    let back = new.difference(&old);
    assert_eq!(
        (&back.lost, &back.gained),
        (&difference.gained, &difference.lost)
    );
    assert_eq!(what(&Policy::empty().difference(&old).gained).len(), 2);
}

#[test]
fn narrower_and_wider_hosts_paths_and_refs_are_told_apart() {
    let rules = |host: &str, path: &str| {
        policy(&service(
            "one",
            &format!("host = \"{host}\"\nallow = [\"GET {path}\"]"),
        ))
    };
    for (narrow, wide) in [
        (("a.example.com", "/x"), ("*.example.com", "/x")),
        (("a.example.com", "/x"), ("a.example.com", "/*")),
        (("a.example.com", "/x/*"), ("a.example.com", "/x/**")),
        (("a.example.com", "/x/y*"), ("a.example.com", "/x/*")),
        (("a.example.com", "/x?q=1"), ("a.example.com", "/x")),
    ] {
        let (narrow, wide) = (rules(narrow.0, narrow.1), rules(wide.0, wide.1));
        let more = narrow.difference(&wide);
        assert_eq!((more.gained.len(), more.lost.len()), (1, 0), "{more:?}");
        let less = wide.difference(&narrow);
        assert_eq!((less.gained.len(), less.lost.len()), (0, 1), "{less:?}");
    }
    let push = |refs: &str| {
        policy(&format!(
            "[[service]]\nkind = \"github\"\nrepos = [\"a/b\"]\ngit = \"push\"\nrefs = [\"{refs}\"]\n"
        ))
    };
    let (narrow, wide) = (push("refs/heads/agent/x*"), push("refs/heads/agent/*"));
    let gained = narrow.difference(&wide).gained;
    assert!(
        gained
            .iter()
            .all(|power| power.what.ends_with(" to refs/heads/agent/*")),
        "{gained:?}"
    );
    assert!(!gained.is_empty() && wide.difference(&narrow).gained.is_empty());
}

#[test]
fn a_lifted_denial_is_a_gain_and_a_new_one_a_loss() {
    let open = policy(&service("one", API));
    let shut = policy(&service(
        "one",
        &format!("{API}\ndeny = [\"GET /v1/secret/**\"]"),
    ));
    let lifted = shut.difference(&open);
    assert_eq!(
        what(&lifted.gained),
        ["denied: GET https://api.example.com:443/v1/secret/**"]
    );
    assert!(lifted.lost.is_empty());
    assert_eq!(open.difference(&shut).lost, lifted.gained);
}

#[test]
fn another_credential_way_feature_or_bound_is_a_change() {
    let base = policy(&service("one", &format!("{API}\ncredential = \"a\"")));
    for (more, note) in [
        ("credential = \"b\"", "credential `a` -> `b`"),
        ("credential = \"a\"\ntrailers = true", "trailers opened"),
        (
            "credential = \"a\"\nmax_seconds = 3",
            "max_seconds none -> 3",
        ),
        (
            "credential = \"a\"\nca_file = \"/x.pem\"",
            "another address, ca_file or pin",
        ),
        ("", "credential `a` -> none"),
    ] {
        let new = policy(&service("one", &format!("{API}\n{more}")));
        let difference = base.difference(&new);
        assert!(
            difference.gained.is_empty() && difference.lost.is_empty(),
            "{difference:?}"
        );
        let notes: Vec<_> = difference
            .changed
            .iter()
            .filter_map(|power| power.note.as_deref())
            .collect();
        assert_eq!(notes, [note, note], "{difference:?}");
    }
}
