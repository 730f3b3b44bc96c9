//! What a request to a model may cost before anybody knows: its model's price, its wall time, and the ways
//! in which nothing can be counted.

use policy::grant::{Grant, RunId};
use proxy::entrance::client::Client;

use super::code;
use super::models::{Answer, End, Model, ask, ended, openai, post};
use super::stand::ask as asked;

/// A rule that reads the model out of the body.
const READ: &str =
    "usage = \"openai\"\n[[service.when]]\nallow = [\"POST /v1/x\"]\nmodels = [\"*\"]";
const MONEY: &str = "[[allowance.limit]]\nper = \"agent\"\nusd = \"5.00\"";

#[tokio::test]
async fn an_unknown_model_is_refused_or_costs_as_the_dearest_as_it_is_configured() {
    let unknown = r#"{"model": "nobody-has-priced-this", "max_tokens": 10, "metadata": {}}"#;
    let known = r#"{"model": "gpt-5", "max_tokens": 10, "metadata": {}}"#;
    let model = Model::start().await;
    model.always(Answer::events(&openai(30, 30)));

    let stand = model.stand(READ, &format!("unknown_model = \"refuse\"\n{MONEY}"));
    let told = post(&stand, unknown).await;
    assert!(told.starts_with("HTTP/1.1 403"), "{told}");
    assert_eq!(code(&told), "price_unknown", "{told}");
    assert!(told.contains("nobody-has-priced-this of openai"), "{told}");
    assert_eq!(model.asked(), 0, "nothing left");
    let told = post(&stand, known).await;
    assert!(
        told.starts_with("HTTP/1.1 200"),
        "a model with a price: {told}"
    );
    let cheap = ended(&stand, 1).await[0]["cost_microusd"].as_u64().unwrap();

    let stand = model.stand(READ, &format!("unknown_model = \"high\"\n{MONEY}"));
    let told = post(&stand, unknown).await;
    assert!(told.starts_with("HTTP/1.1 200"), "{told}");
    let dear = ended(&stand, 1).await[0]["cost_microusd"].as_u64().unwrap();
    assert!(dear > cheap, "{dear} and {cheap} for the same tokens");

    // Where nobody limits money nobody has to know.
    let stand = model.stand(READ, "unknown_model = \"refuse\"");
    assert!(post(&stand, unknown).await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn a_websocket_in_which_tokens_cannot_be_counted_is_opened_only_where_nobody_limits_them() {
    let upgrade = format!(
        "GET /v1/x HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        super::HOST
    );
    let keys = "usage = \"openai\"\nupgrade = [\"websocket\"]\nallow = [\"GET /v1/x\"]";
    let upstream = super::Upstream::start(super::HOST).await;
    let policy = format!(
        "version = 1\n[[service]]\nid = \"model\"\nkind = \"http\"\nhost = \"{}\"\naddress = \"{}\"\n\
         ca_file = \"CA_FILE\"\n{keys}\n",
        super::HOST,
        upstream.address
    );
    let limits = [
        (MONEY, true),
        ("[[allowance.limit]]\nper = \"run\"\ntokens = 100", true),
        ("[[allowance.limit]]\nper = \"run\"\nrequests = 100", false),
        ("", false),
    ];
    for (place, (limit, refused)) in limits.into_iter().enumerate() {
        let lines = format!("[allowance]\n{limit}\n");
        let stand = super::Stand::with_limits(&upstream, &policy, &lines);
        let before = upstream.text().matches("GET /v1/x").count();
        let mut tls = stand.tunnel(super::HOST).await;
        let told = asked(&mut tls, &upgrade).await;
        assert_eq!(code(&told) == "feature_refused", refused, "{place}: {told}");
        let left = upstream.text().matches("GET /v1/x").count() - before;
        assert_eq!(left, usize::from(!refused), "{place}: {told}");
    }
}

#[tokio::test]
async fn wall_time_is_held_to_while_an_answer_streams() {
    let model = Model::start().await;
    model.always(Answer::events("data: {}\n\n").ending(End::Open));
    let limit = "[[allowance.limit]]\nper = \"run\"\nseconds = 1";
    let stand = model.stand("", limit);
    let told = ask(&stand).await;
    assert!(
        told.starts_with("HTTP/1.1 200") || code(&told) == "allowance_spent",
        "{told}"
    );
    let end = &ended(&stand, 1).await[0];
    assert_eq!(end["code"], "allowance_spent", "{end}");
    let told = ask(&stand).await;
    assert_eq!(code(&told), "allowance_spent", "{told}");
    assert!(
        told.contains(" s of 1 s") || told.contains("of 1 s"),
        "{told}"
    );
}

/// Run, ticket, agent, project and company of somebody who asks.
type Who = [&'static str; 5];

async fn get_as(stand: &super::Stand, [run, ticket, agent, project, company]: Who) -> String {
    let run = RunId::parse(run).unwrap();
    let grant = Grant::new(company, agent, Some(ticket), run, "default").unwrap();
    let client = Client::of_uid(grant.in_project(Some(project)).unwrap(), 1500);
    let port = format!("{}:443", super::HOST);
    let stream = super::connect(stand.open_as(client), &port).await;
    let mut tls = stand.tls(stream, super::HOST).await.unwrap();
    asked(&mut tls, &super::stand::get(super::HOST, "/v1/x")).await
}

#[tokio::test]
async fn what_is_shared_is_counted_together_and_what_is_not_is_not() {
    let upstream = super::Upstream::start(super::HOST).await;
    let first: Who = ["r-1", "T-1", "ann", "web", "acme"];
    // By scope: somebody else who shares it with the first, and who shares all but that.
    let cases: [(&str, Who, Who); 5] = [
        (
            "run",
            ["r-1", "T-2", "ben", "app", "acme"],
            ["r-2", "T-1", "ann", "web", "acme"],
        ),
        (
            "ticket",
            ["r-2", "T-1", "ben", "app", "acme"],
            ["r-1", "T-2", "ann", "web", "acme"],
        ),
        (
            "agent",
            ["r-2", "T-2", "ann", "app", "acme"],
            ["r-1", "T-1", "ben", "web", "acme"],
        ),
        (
            "project",
            ["r-2", "T-2", "ben", "web", "acme"],
            ["r-1", "T-1", "ann", "app", "acme"],
        ),
        (
            "company",
            ["r-2", "T-2", "ben", "app", "acme"],
            ["r-2", "T-1", "ann", "web", "evil"],
        ),
    ];
    for (scope, shares, other) in cases {
        let lines = format!("[allowance]\n[[allowance.limit]]\nper = \"{scope}\"\nrequests = 1\n");
        let stand = super::Stand::with_limits(&upstream, &super::usual(&upstream), &lines);
        let told = get_as(&stand, first).await;
        assert!(told.starts_with("HTTP/1.1 200"), "{scope}: {told}");
        let told = get_as(&stand, shares).await;
        assert_eq!(code(&told), "allowance_spent", "{scope}: {told}");
        assert!(told.contains("1 requests of 1 requests"), "{scope}: {told}");
        let told = get_as(&stand, other).await;
        assert!(told.starts_with("HTTP/1.1 200"), "{scope}: {told}");
    }
}
