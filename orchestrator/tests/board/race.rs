//! Races: many runs, one ticket; two starts, one agent.

use serde_json::json;

use crate::support::{Agent, World, eventually, text};

async fn race(count: usize) {
    let world = World::new().await;
    let mut tickets = Vec::new();
    for i in 0..count {
        let agent = world.agent(&format!("a{i}")).await;
        let body = json!({ "title": format!("own {i}"), "assigneeAgentId": agent });
        tickets.push(world.ticket(body).await);
    }
    let prize = world.ticket(json!({ "title": "the prize" })).await;
    let runs = eventually("every run starts", || async {
        let started = world.engine.started();
        (started.len() == count).then_some(started)
    })
    .await;
    let agents: Vec<Agent<'_>> = runs
        .iter()
        .map(|run| {
            let token = world.gate.lock().unwrap().tokens[run].clone();
            Agent {
                world: &world,
                run: run.clone(),
                token,
            }
        })
        .collect();
    let target = format!("/api/issues/{prize}/checkout");
    let body = json!({ "expectedStatuses": ["todo", "backlog"] });
    // All at once, over real sockets.
    let answers = join_all(
        agents
            .iter()
            .map(|a| a.ask("POST", &target, body.clone()))
            .collect(),
    )
    .await;
    let won: Vec<usize> = (0..count).filter(|i| answers[*i].status == 200).collect();
    assert_eq!(won.len(), 1, "{answers:?}");
    for answer in answers.iter().filter(|answer| answer.status != 200) {
        assert_eq!(answer.status, 409, "{answer:?}");
        assert_eq!(answer.body["error"], "Issue checkout conflict");
        assert_eq!(answer.body["details"]["issueId"], json!(prize));
        assert_eq!(
            answer.body["details"]["checkoutRunId"],
            json!(agents[won[0]].run)
        );
    }
    // The winner again is the winner.
    let again = agents[won[0]].ask("POST", &target, body).await;
    assert_eq!(again.status, 200);
    assert_eq!(text(&again.body["checkoutRunId"]), agents[won[0]].run);
    assert_eq!(world.engine.started().len(), count, "losers create nothing");
    world.stopped().await;
}

/// Polls all futures until each is done.
async fn join_all<F: Future>(futures: Vec<F>) -> Vec<F::Output> {
    let mut futures: Vec<_> = futures.into_iter().map(Box::pin).collect();
    let mut outputs: Vec<Option<F::Output>> = futures.iter().map(|_| None).collect();
    std::future::poll_fn(|context| {
        let mut waiting = false;
        for (future, output) in futures.iter_mut().zip(&mut outputs) {
            if output.is_none() {
                match future.as_mut().poll(context) {
                    std::task::Poll::Ready(value) => *output = Some(value),
                    std::task::Poll::Pending => waiting = true,
                }
            }
        }
        if waiting {
            std::task::Poll::Pending
        } else {
            std::task::Poll::Ready(())
        }
    })
    .await;
    outputs.into_iter().flatten().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_racing_checkouts_have_one_winner() {
    race(20).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_racing_checkouts_have_one_winner() {
    race(100).await;
}
