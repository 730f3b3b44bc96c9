//! The kinds of services whose rules follow from what they are: the board, the formats of Proxmox.

use super::*;

#[test]
fn the_board_is_reached_by_its_socket_with_the_runs_token() {
    let policy = policy("[[service]]\nkind = \"board\"\n");
    let outcome = ask(
        &policy,
        "POST",
        "http://board.portcullis.internal/api/issues/7/checkout",
    );
    assert_eq!(
        outcome,
        Outcome::Permit {
            rule: String::from("board-board.portcullis.internal-1"),
            credential: None,
            run_token: true,
        }
    );
    assert!(!ask(&policy, "GET", "http://board.portcullis.internal/metrics").permits());
    assert!(!ask(&policy, "GET", "https://board.portcullis.internal/api/x").permits());
    let authority = Authority::parse("board.portcullis.internal:80").unwrap();
    let Routing::Route(route) = policy.route(Scheme::Http, &authority) else {
        panic!()
    };
    assert!(route.board());
    assert_eq!(route.address(), None);
}

/// Attack: PTH-16, SSR-10
#[test]
fn proxmox_opens_the_json_api_alone() {
    let policy = policy(
        r#"
        [[service]]
        kind = "proxmox"
        host = "10.0.0.5"
        address = "10.0.0.5:8006"
        credential = "pve"
        allow = ["GET /api2/json/**"]
        "#,
    );
    assert!(ask(&policy, "GET", "https://10.0.0.5:8006/api2/json/nodes").permits());
    for alias in ["extjs", "html", "png", "JSON"] {
        let url = format!("https://10.0.0.5:8006/api2/{alias}/nodes");
        assert_eq!(
            ask(&policy, "GET", &url).code(),
            Some(Code::PathNotAllowed),
            "{alias}"
        );
    }
    for url in [
        "https://10.0.0.5:22/",
        "https://10.0.0.5/api2/json/x",
        "https://10.0.0.6:8006/",
    ] {
        assert!(!ask(&policy, "GET", url).permits(), "SSR-10 {url}");
    }
    let authority = Authority::parse("10.0.0.5:8006").unwrap();
    let Routing::Route(route) = policy.route(Scheme::Https, &authority) else {
        panic!()
    };
    assert_eq!(route.address().unwrap().to_string(), "10.0.0.5:8006");
}

#[test]
fn a_runs_token_goes_only_where_the_boards_socket_is() {
    // Two services for one authority, of which one is the board: where the route leads decides.
    let text = "[[service]]\nid = \"b\"\nkind = \"board\"\nhost = \"board.lan.example\"\nallow = [\"GET /**\"]\n\
        [[service]]\nid = \"a\"\nkind = \"http\"\nhost = \"*.lan.example\"\nscheme = \"http\"\nallow = [\"GET /**\"]\n";
    let policy = policy(text);
    for (host, board) in [("board.lan.example", true), ("x.lan.example", false)] {
        let authority = Authority::with_default_port(host, 80).unwrap();
        let Routing::Route(route) = policy.route(Scheme::Http, &authority) else {
            panic!("{host}")
        };
        assert_eq!(route.board(), board, "{host}");
        let request = Request {
            scheme: Scheme::Http,
            authority: &authority,
            method: "GET",
            target: "/x",
        };
        let Decision::Permit(permit) = policy.decide(&route, &request, &Facts::None) else {
            panic!("{host}")
        };
        assert_eq!(permit.injects_run_token(), board, "{host}");
    }
    // A board of many names would give the token away through a narrower plain rule.
    let wide = "[[service]]\nkind = \"board\"\nhost = \"*.lan.example\"\n";
    let problems = Policy::parse(wide, "p.toml").unwrap_err().to_string();
    assert!(problems.contains("p.toml:3: service[1].host"), "{problems}");
}
