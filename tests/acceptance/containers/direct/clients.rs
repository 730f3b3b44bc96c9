//! The real clients once more, in a run that tells them nothing: no proxy variable, property or
//! setting. Each works by name, and is told what is refused.

mod served;

use std::fmt::Write as _;

use tests::clients::{REMEDY, RULE, closed};
use tests::command::Program;
use tests::matrix::{self, Row, Shown};
use tests::upstream::Stand;
use tests::world::{GIT, WEB, WEB_ADDRESS};

use self::served::{API, forge, managers, registries};
use super::{Place, UNTOLD};

/// Where the clients lie in the container.
const PLACE: &str = "/opt/portcullis/trust/clients";
/// Mark the parts of what one script prints.
const PART: &str = "== part ";
const CODE: &str = "== code ";

const MORE: &str = "
[[service]]
id = \"packages\"
kind = \"http\"
host = \"web.portcullis.test\"
port = 8446
allow = [\"GET,HEAD /**\"]
deny = [\"* /closed/**\"]
ca_file = \"{ca}\"

[[service]]
id = \"api\"
kind = \"http\"
host = \"api.github.com\"
allow = [\"GET /user\"]
ca_file = \"{ca}\"

[[service]]
id = \"socket\"
kind = \"http\"
host = \"web.portcullis.test\"
port = 8444
allow = [\"GET /**\"]
deny = [\"GET /closed/**\"]
upgrade = [\"websocket\"]
ca_file = \"{ca}\"

[[service]]
id = \"calls\"
kind = \"http\"
host = \"web.portcullis.test\"
port = 8445
allow = [\"POST /**\"]
deny = [\"POST /closed/**\"]
trailers = true
ca_file = \"{ca}\"
";

struct Case {
    client: &'static str,
    way: &'static str,
    /// Prints the version.
    version: &'static str,
    /// The command with `{}` for the path.
    command: String,
    /// What the allowed one prints, and the rule that refuses the other.
    wanted: &'static str,
    rule: &'static str,
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut case = |client, way, version, command: String, wanted, rule| {
        cases.push(Case {
            client,
            way,
            version,
            command,
            wanted,
            rule,
        });
    };
    let echo = format!("POST https://{WEB}{{}}/echo told");
    for (client, program) in [("node 20", "node20"), ("node 24", "node24")] {
        let version = if program == "node20" {
            "$C/node20 --version"
        } else {
            "$C/node24 --version"
        };
        for (how, way) in [
            ("fetch", "fetch, untold in a run"),
            ("https", "https module, untold in a run"),
        ] {
            let command = format!("$C/{program} $C/fetch.js {how} {echo}");
            case(client, way, version, command, "told", RULE);
        }
        let command = format!("$C/{program} $C/ws.js ws wss://{WEB}:8444{{}}/echo told");
        let way = "WebSocket (ws), untold in a run";
        case(client, way, version, command, "told", "socket");
    }
    for (class, way) in [
        ("Modern", "HttpClient, untold in a run"),
        ("Classic", "URLConnection, untold in a run"),
    ] {
        let command = format!(
            "java -Xmx256m -XX:+UseSerialGC -Djavax.net.ssl.trustStore=$C/store.p12 \
             -Djavax.net.ssl.trustStorePassword=changeit -cp $C/java {class} https://{WEB}{{}}/java"
        );
        case("java", way, "java --version", command, "recorded", RULE);
    }
    let untold = "untold in a run";
    case(
        "go",
        untold,
        "cat $C/go-version",
        format!("$C/go-client {echo}"),
        "told",
        RULE,
    );
    let curl = format!("curl -sS --fail-with-body -d told https://{WEB}{{}}/echo");
    case("curl", untold, "curl --version", curl, "told", RULE);
    for (client, library, version) in [
        (
            "requests",
            "requests",
            "python3 -c 'import requests; print(requests.__version__)'",
        ),
        (
            "httpx",
            "httpx2",
            "python3 -c 'import httpx; print(httpx.__version__)'",
        ),
        ("urllib", "urllib", "python3 --version"),
    ] {
        let command = format!("python3 $C/fetch.py {library} {echo}");
        case(client, untold, version, command, "told", RULE);
    }
    let remote = format!("https://{GIT}{{}}/acme/web.git");
    case(
        "git",
        untold,
        "git --version",
        format!("git clone --progress {remote} $(mktemp -d)/work"),
        "Receiving objects",
        RULE,
    );
    // What gh looks for before it asks anybody.
    let gh = "env GH_TOKEN=placeholder gh api {}/user".to_owned();
    case("gh", untold, "gh --version", gh, "octocat", RULE);
    for (client, way, version, command, wanted) in managers() {
        case(client, way, version, command, wanted, "packages");
    }
    let grpc = format!("python3 $C/grpc_echo.py {WEB}:8445 {{}}/echo.Echo/Unary");
    let version = "python3 -c 'import grpc; print(grpc.__version__)'";
    case("grpcio", untold, version, grpc, "['x', 'y']", "calls");
    cases
}

#[test]
fn real_clients_that_are_told_nothing_work_and_are_told_what_is_refused() {
    let place = Place::with(&(MORE.to_owned() + &closed(&[WEB, GIT, API])));
    let stand = |port: u16, word: &str| {
        let world = &place.world;
        let at = (WEB_ADDRESS, port).into();
        let dir = world.path().join(word);
        Stand::start(&world.netns, &dir, &world.pki, at, &[word.to_owned()])
    };
    let _stands = [
        stand(8444, "websocket"),
        stand(8445, "grpc"),
        registries(&place),
        forge(&place),
    ];
    carry_in(&place);
    let cases = cases();
    // Nothing is run from there: it is mounted so.
    let mut script = format!(
        "export C=$HOME/clients; cp -r {PLACE} $C; export PYTHONPATH=$C/python; env | grep -i proxy; "
    );
    for (at, case) in cases.iter().enumerate() {
        for command in [
            case.version.to_owned(),
            case.command.replace("{}", ""),
            case.command.replace("{}", "/closed"),
        ] {
            // Writing to a String cannot fail.
            let _infallible = write!(
                script,
                "echo; echo '{PART}{at}'; timeout 120 {command} 2>&1; code=$?; echo; echo \"{CODE}$code\"; "
            );
        }
    }
    let done = place.run(&script);
    let mut parts = done.stdout.split(PART);
    let before = parts.next().unwrap_or_default();
    assert_eq!(before.trim(), "", "a variable names a proxy: {UNTOLD}");
    let parts: Vec<(String, String)> = parts
        .map(|part| {
            let (text, code) = part.split_once(CODE).unwrap_or((part, "none"));
            let text = text.split_once('\n').map_or("", |(_, rest)| rest);
            (text.trim().to_owned(), code.trim().to_owned())
        })
        .collect();
    assert_eq!(parts.len(), 3 * cases.len(), "{}", done.shown());
    let mut differences = Vec::new();
    for (case, parts) in cases.iter().zip(parts.chunks_exact(3)) {
        let what = format!("{}, {}", case.client, case.way);
        let [(version, _), (allowed, good), (refused, bad)] = parts else {
            panic!("three parts");
        };
        assert_eq!(good, "0", "{what}: {allowed}");
        assert!(allowed.contains(case.wanted), "{what}: {allowed}");
        assert!(
            !["0", "124"].contains(&bad.as_str()),
            "{what}: {bad}: {refused}"
        );
        let row = Row {
            client: case.client,
            way: case.way,
            version: matrix::version_in(version),
        };
        let shown = Shown::in_output(refused, case.rule, REMEDY);
        differences.extend(row.keep(Some(shown)).err());
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    let records = place.world.gate.audit();
    let of_run = |record: &&serde_json::Value| record["entrance"] == "run_socket";
    let asked = records
        .iter()
        .filter(of_run)
        .filter(|it| it["kind"] == "request");
    assert!(asked.count() >= cases.len(), "{records:?}");
}

/// Copies the clients to where the container sees them.
fn carry_in(place: &Place) {
    let at = place.trust.join("clients");
    tests::host::directory(&at, 0, 0o755);
    let from = matrix::directory();
    let script = "set -e; cd \"$0\"; cp -L bin/node20 bin/node24 bin/go-client bin/cargo \"$1\"; \
        cp src/node/fetch.js src/node/ws.js src/python/fetch.py src/python/grpc_echo.py \"$1\"; \
        go version bin/go-client >\"$1/go-version\"; cp -r java \"$1\"; mkdir \"$1/node_modules\"; cp -r npm/node_modules/ws \"$1/node_modules\"; \
        cp -r python/lib/python3*/site-packages \"$1/python\"; chmod -R go+rX \"$1\"";
    let copy = Program::new("sh").args(["-c", script]).arg(&from).arg(&at);
    copy.run().ok();
    super::java_store(place.world.gate.ca(), &at.join("store.p12"));
}
