//! What a model took, who decided and what a GraphQL request asks: written by a real gate, and the same to every reader.

use super::*;

/// What an answer of such a model says; the stand-in repeats it. 100 tokens at 1.25, 10 at 0.125 and 20 at 10
/// dollars a million.
const ANSWER: &str = "{\"model\":\"gpt-5\",\"usage\":{\"prompt_tokens\":110,\"completion_tokens\":20,\
                      \"prompt_tokens_details\":{\"cached_tokens\":10}}}";
const COST: u64 = 327;

fn hold(world: &World, words: &[&str]) -> Finished {
    proxy(&["hold"])
        .args(words)
        .arg("--socket")
        .arg(world.gate.control_socket())
        .as_uid(world.gate.operator)
        .run()
}

/// The only hold, once it is there.
fn waiting(world: &World) -> String {
    wait::until("a request waits", || {
        let listed = hold(world, &["list"]);
        let id = listed.stdout.split_whitespace().next()?.to_owned();
        listed.status.success().then_some(id)
    })
}

#[test]
fn what_was_taken_asked_and_decided_is_the_same_in_every_reader() {
    let policy = World::policy().to_owned()
        + "hold = [\"POST /echo\"]\nusage = \"openai\"\n\n[[service.when]]\n\
           allow = [\"POST /status/200\"]\ngraphql = [\"query\"]\n";
    let world = World::with_policy(&policy);
    let post = |path: &str, body: &str| {
        let url = format!("https://{WEB}/{path}");
        world.curl(&["-H", "Content-Type: application/json", "-d", body, &url])
    };
    let decider = std::thread::scope(|scope| {
        for (verb, status) in [("approve", "\n200"), ("deny", "\n403")] {
            let asking = scope.spawn(|| post("echo", ANSWER));
            let id = waiting(&world);
            hold(&world, &[verb, &id]).ok();
            let told = asking.join().unwrap();
            assert!(told.stdout.ends_with(status), "{}", told.shown());
        }
        let told = post("status/200", "{\"query\":\"{ viewer { login } a: node }\"}").ok();
        assert!(told.stdout.ends_with("\n200"), "{}", told.shown());
        let refused = post("status/200", "{\"query\":\"mutation { drop }\"}").ok();
        assert!(refused.stdout.ends_with("\n403"), "{}", refused.shown());
        let lines = wait::until("the model's request has ended", || {
            let lines = world.gate.audit();
            let ended = |line: &&Value| line["kind"] == "response" && line["path"] == "/echo";
            lines.iter().find(ended).cloned()
        });
        lines["decider"].as_str().unwrap().to_owned()
    });

    let lines = world.gate.audit();
    let of = |kind: &str, path: &str| {
        let mut found = lines
            .iter()
            .filter(|line| line["kind"] == kind && line["path"] == path);
        found.next().cloned().unwrap_or_default()
    };
    let end = of("response", "/echo");
    assert_eq!(
        (&end["tokens_in"], &end["tokens_out"], &end["cost_microusd"]),
        (&110.into(), &20.into(), &COST.into()),
        "{end}"
    );
    assert_eq!(
        end["facts"]["model"], "gpt-5",
        "the one that answered: {end}"
    );
    for (kind, wanted) in [
        ("request", serde_json::json!(["query node", "query viewer"])),
        ("refusal", serde_json::json!(["mutation drop"])),
    ] {
        let line = of(kind, "/status/200");
        assert_eq!(line["facts"]["graphql"], wanted, "{line}");
        assert!(
            line["hold"].is_null() && line["tokens_in"].is_null(),
            "control: {line}"
        );
    }
    // Denied: it waited, took nothing, and says who decided.
    let denied = of("refusal", "/echo");
    assert_eq!(denied["decider"], decider, "{denied}");
    assert!(
        denied["hold"].is_string() && denied["cost_microusd"].is_null(),
        "{denied}"
    );

    let ask = |words: &[&str]| {
        let told = proxy(&["audit"])
            .args(words)
            .arg("--config")
            .arg(world.gate.config())
            .run();
        told.ok().stdout
    };
    let stats: Value = serde_json::from_str(&ask(&["stats", "--json"])).unwrap();
    for of in [&stats["total"], &stats["hosts"][WEB]] {
        assert_eq!(
            (&of["tokens_in"], &of["tokens_out"], &of["cost_microusd"]),
            (&110.into(), &20.into(), &COST.into()),
            "{stats}"
        );
    }
    let shown = ask(&["stats"]);
    assert!(shown.contains("0.000327"), "{shown}");
    let table = ask(&["export"]);
    let mut rows = table.lines();
    let columns: Vec<&str> = rows.next().unwrap().split(',').collect();
    let at = |name: &str| columns.iter().position(|column| *column == name).unwrap();
    let id = end["id"].as_str().unwrap();
    let cells: Vec<Vec<&str>> = rows
        .map(|row| row.split(',').map(|cell| cell.trim_matches('"')).collect())
        .collect();
    let row = cells
        .iter()
        .find(|row| row[at("kind")] == "response" && row[at("id")] == id)
        .unwrap_or_else(|| panic!("{table}"));
    for (column, wanted) in [
        ("tokens_in", "110"),
        ("tokens_out", "20"),
        ("cost_microusd", "327"),
        ("decider", &decider),
        ("hold", end["hold"].as_str().unwrap()),
    ] {
        assert_eq!(row[at(column)], wanted, "{column}: {row:?}");
    }
    let tail = ask(&["query", "--id", id]);
    let queried: Vec<Value> = tail
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(queried.last(), Some(&end));

    let metrics = Program::new("curl")
        .args(["-sS", "--unix-socket"])
        .arg(world.gate.control_socket())
        .arg("http://gate/v1/metrics")
        .as_uid(world.gate.operator)
        .run()
        .ok();
    for series in [
        "portcullis_tokens_total{kind=\"read\"} 110",
        "portcullis_tokens_total{kind=\"written\"} 20",
        "portcullis_cost_microusd_total 327",
        "portcullis_holds_total 2",
    ] {
        assert!(
            metrics.stdout.contains(series),
            "{series}: {}",
            metrics.shown()
        );
    }
}
