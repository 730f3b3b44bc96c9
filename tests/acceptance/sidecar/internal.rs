//! Shape three, as shipped: the agent is on a network that leads nowhere, and the gate alone is on that and on another.

use std::fs;

use serde_json::Value;
use tests::command::{Finished, Program};
use tests::{host, wait};

use super::hostile;
use super::lab::{PEER, Project};

const COUNT: &str = "https://api.anthropic.com/v1/messages/count_tokens";
const COUNTED: &str = "\"input_tokens\":5";
const GATE: &str = "http://172.31.77.2:3128";

#[test]
fn an_agent_reaches_the_gate_and_nothing_else_on_a_network_that_leads_nowhere() {
    let project = Project::new(&["compose.internal.yaml"]);
    let script = project.path("hostile.py");
    host::file(&script, &hostile::program(), 0, 0o644);
    hostile::is_heard_where_nothing_stops_it(&project, &script);
    // Known by a token, at whatever address: an identity more.
    let made = [
        "run",
        "--rm",
        "portcullis",
        "portcullis-proxy",
        "token",
        "--json",
    ];
    let made: Value = serde_json::from_str(&project.docker(&made).run().ok().stdout).unwrap();
    let (token, digest) = (
        made["token"].as_str().unwrap(),
        made["token_sha256"].as_str().unwrap(),
    );
    let config = project.path("proxy.internal.toml");
    let shipped = fs::read_to_string(&config).unwrap();
    let (before, after) = shipped.split_once("[control]").unwrap();
    let identity = format!(
        "[[listen.identity]]\ntoken_sha256 = \"{digest}\"\nagent = \"second\"\ncompany = \"local\"\nprofile = \"default\"\n"
    );
    fs::write(&config, format!("{before}{identity}\n[control]{after}")).unwrap();
    let boundary = project.path("boundary.internal.toml");
    let shipped = fs::read_to_string(&boundary).unwrap();
    let sources = "sources = [\"172.31.77.3\"]";
    assert!(shipped.contains(sources), "{shipped}");
    let both = "sources = [\"172.31.77.3\", \"172.31.77.4\"]";
    fs::write(&boundary, shipped.replace(sources, both)).unwrap();
    let resolver = format!("nameserver {}\n", tests::engine::RESOLVER);
    fs::write(project.path("resolv.conf"), resolver).unwrap();
    // The file of variables is what the command in its first line says.
    let environment = [
        "run",
        "--rm",
        "portcullis",
        "/usr/lib/portcullis/agent/portcullis-relay",
    ];
    let environment = project
        .docker(&environment)
        .args(["environment", "--gate", GATE]);
    let written = fs::read_to_string(project.path("agent.internal.env")).unwrap();
    let (_comments, lines) = written.split_at(written.find("\nALL_PROXY").unwrap() + 1);
    assert_eq!(lines, environment.run().ok().stdout);

    project.up();
    let curl = [
        "curl",
        "--silent",
        "--show-error",
        "--max-time",
        "20",
        "--data",
        "{}",
    ];
    let inside = |words: &[&str]| project.exec("agent", words).run();
    let served = inside(&[&curl[..], &[COUNT]].concat());
    assert!(served.stdout.contains(COUNTED), "{}", served.shown());
    let elsewhere = inside(&[&curl[..], &["https://elsewhere.example/"]].concat());
    assert!(
        elsewhere.output().contains("destination_not_listed"),
        "{}",
        elsewhere.shown()
    );
    let by = |entrance: &str| -> Vec<Value> {
        let log = project
            .exec("gate", &["portcullis", "audit", "query", "--json"])
            .run()
            .ok();
        let lines = log
            .stdout
            .lines()
            .map(|line| serde_json::from_str(line).unwrap());
        lines
            .filter(|it: &Value| it["entrance"] == entrance && it["kind"] == "request")
            .collect()
    };
    let records = by("address");
    assert!(!records.is_empty());
    assert_eq!(
        (&records[0]["agent"], &records[0]["run"]),
        (&"agent".into(), &"address-172-31-77-3".into())
    );

    // Somebody else on that network is nobody, unless he shows the token; and whoever has the address needs none.
    let at = |address: &str, proxy: &str| -> Finished {
        let network = format!("--network={}", project.volume("inside"));
        let run = [
            "run",
            "--rm",
            "--user=1000:1000",
            "--cap-drop=ALL",
            "--dns=127.0.0.1",
        ];
        let proxy = format!("--env=HTTPS_PROXY={proxy}");
        let trust = "--env=CURL_CA_BUNDLE=/portcullis/bundle.pem";
        let run = project.docker(&run).args([
            &network,
            &format!("--ip={address}"),
            &project.share(),
            &proxy,
            trust,
        ]);
        let asked = run.arg("agent").args(curl);
        asked.args(["--connect-timeout", "3", COUNT]).run()
    };
    let second = |proxy: &str| at("172.31.77.4", proxy);
    let nobody = second(GATE);
    assert!(
        !nobody.stdout.contains(COUNTED) && nobody.output().contains("407"),
        "{}",
        nobody.shown()
    );
    let shown = second(&format!("http://run:{token}@172.31.77.2:3128"));
    assert!(shown.stdout.contains(COUNTED), "{}", shown.shown());
    assert_eq!(by("token")[0]["agent"], "second");
    // Where the boundary knows of nobody, the token is worth nothing: nothing of his gets there.
    let unknown = at(
        "172.31.77.5",
        &format!("http://run:{token}@172.31.77.2:3128"),
    );
    assert_eq!(unknown.code(), 28, "{}", unknown.shown());
    let not_needed = format!("HTTPS_PROXY=http://run:{token}@172.31.77.2:3128");
    let first = [&["env", not_needed.as_str()][..], &curl[..], &[COUNT]].concat();
    assert!(inside(&first).stdout.contains(COUNTED));
    assert_eq!(by("token").len(), 1, "the address says who it is");

    nothing_else_is_reached(&project, &script);
}

fn nothing_else_is_reached(project: &Project, script: &std::path::Path) {
    let prove = || {
        let words = ["/portcullis/portcullis", "prove"];
        project.exec("agent", &words).run()
    };
    // There is a network, and what became of a packet on it only a peer outside could tell.
    let holds = prove();
    assert_eq!(holds.code(), 2, "{}", holds.shown());
    assert!(holds.output().contains(" 0 broken"), "{}", holds.shown());
    let quiet = project.lab.packets_to_peer();
    let program = fs::read_to_string(script).unwrap();
    let attack = |seconds: &str| {
        project
            .exec("agent", &["timeout", seconds, "python3", "-c", &program])
            .run();
        project.lab.packets_to_peer()
    };
    assert_eq!(attack("2"), quiet);
    // Names are asked of nobody.
    let asked = |name: &str| {
        project
            .lab
            .names
            .questions()
            .iter()
            .any(|it| it.contains(name))
    };
    let look_up = ["getent", "hosts", "leak-of-a-secret.example"];
    project.exec("agent", &look_up).run().refused();
    assert!(!asked("leak-of-a-secret"));
    project
        .docker(&[
            "run",
            "--rm",
            "agent",
            "getent",
            "hosts",
            "control-of-a-leak.example",
        ])
        .run();
    assert!(
        asked("control-of-a-leak"),
        "control: on a network that leads somewhere"
    );
    // The host is not there: it has no address on that network.
    let addresses = || {
        let shown = Program::new("ip")
            .args(["-4", "-o", "addr"])
            .in_netns(&project.lab.engine.netns);
        shown.run().ok().stdout
    };
    assert!(!addresses().contains("172.31.77."), "{}", addresses());
    // The boundary's namespace takes nothing of the agent's but what is for the gate's port.
    let other = "import socket; socket.create_connection(('172.31.77.2', 22), 3)";
    project
        .exec("agent", &["python3", "-c", other])
        .run()
        .refused();

    // Whoever could set a route would still be passed on by nobody.
    let of = |service: &str| {
        format!(
            "--net=/proc/{}/ns/net",
            project.inspect(service, "{{.State.Pid}}")
        )
    };
    let (agent, boundary) = (of("agent"), of("boundary"));
    let within = |net: &str, words: &[&str]| Program::new("nsenter").arg(net).args(words).run();
    within(
        &agent,
        &["ip", "route", "replace", "default", "via", "172.31.77.2"],
    )
    .ok();
    assert_eq!(attack("2"), quiet);
    // Forwarding switched on by somebody: the rules alone keep it shut, and they do.
    let on = ["sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward"];
    within(&boundary, &on).ok();
    assert_eq!(attack("2"), quiet);
    let counters = within(
        &boundary,
        &["nft", "list", "counter", "inet", "portcullis", "forwarded"],
    )
    .ok();
    assert!(
        !counters.stdout.contains("packets 0 "),
        "it was the rules: {}",
        counters.shown()
    );
    project
        .docker(&["pause", &project.container("boundary")])
        .run()
        .ok();
    within(&boundary, &["nft", "delete", "table", "inet", "portcullis"]).ok();
    wait::until_true("control: without the rules it is heard", || {
        attack("1");
        project.lab.packets_to(&PEER.to_string()) > 0 && project.lab.packets_to_peer() > quiet
    });
    let red = prove();
    assert_eq!(red.code(), 1, "{}", red.shown());
    project
        .docker(&["unpause", &project.container("boundary")])
        .run()
        .ok();
}
