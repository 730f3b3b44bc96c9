//! Attachments and work products: what work leaves behind.

use serde_json::{Value, json};

use crate::support::{Agent, Answer, World, text};

const FORM: (&str, &str) = ("content-type", "multipart/form-data; boundary=xyz");

fn form(name: &str, bytes: &[u8]) -> Vec<u8> {
    let head = format!(
        "--xyz\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n\
         Content-Type: text/html\r\n\r\n"
    );
    [head.as_bytes(), bytes, b"\r\n--xyz--\r\n"].concat()
}

async fn attach(run: &Agent<'_>, ticket: &str, name: &str, bytes: &[u8]) -> Answer {
    let company = &run.world.company;
    let target = format!("/api/companies/{company}/issues/{ticket}/attachments");
    run.raw("POST", &target, &[FORM], &form(name, bytes)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_kept_by_hash_and_leave_as_bytes_of_no_type() {
    let world = World::new().await;
    let (ada, bob) = (world.agent("ada").await, world.agent("bob").await);
    let ticket = world
        .ticket(json!({ "title": "one", "assigneeAgentId": ada }))
        .await;
    let run = world.next_run(&[]).await;
    let other = world
        .ticket(json!({ "title": "two", "assigneeAgentId": bob }))
        .await;
    let bobs = world.next_run(&[&run.run]).await;
    let page = b"<script>alert(1)</script>\r\n--xy\r\n";
    let made = attach(&run, &ticket, "../../etc/re\u{202e}port.html", page).await;
    assert_eq!(made.status, 201, "{made:?}");
    assert_eq!(made.body["byteSize"], json!(page.len()));
    let name = text(&made.body["originalFilename"]);
    assert!(!name.contains('/') && !name.contains('\u{202e}'), "{name}");
    let id = text(&made.body["id"]);
    let content = format!("/api/attachments/{id}/content");
    for answer in [
        run.ask("GET", &content, json!({})).await,
        world.person("GET", &content, json!({})).await,
    ] {
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(answer.text.as_bytes(), page);
        let head = answer.head.to_ascii_lowercase();
        for needed in [
            "content-type: application/octet-stream",
            "content-disposition: attachment;",
            "x-content-type-options: nosniff",
            "content-security-policy: default-src 'none'; sandbox",
        ] {
            assert!(head.contains(needed), "{needed}: {head}");
        }
        assert!(!head.contains("text/html"), "{head}");
    }
    let listed = run
        .ask(
            "GET",
            &format!("/api/issues/{ticket}/attachments"),
            json!({}),
        )
        .await;
    assert_eq!(listed.body[0]["id"], json!(id));
    // The same bytes twice are one file; it goes with the last of them.
    let twin = text(&attach(&run, &ticket, "twin", page).await.body["id"]);
    let file = |id: &str| format!("/api/attachments/{id}");
    let no = bobs.ask("DELETE", &file(&id), json!({})).await;
    assert_eq!(
        (no.status, &no.body["code"]),
        (403, &json!("attachment_not_yours"))
    );
    assert_eq!(run.ask("DELETE", &file(&id), json!({})).await.status, 200);
    assert_eq!(run.ask("GET", &content, json!({})).await.status, 404);
    let left = run
        .ask("GET", &format!("{}/content", file(&twin)), json!({}))
        .await;
    assert_eq!(left.text.as_bytes(), page);
    assert_eq!(world.files(), 1);
    assert_eq!(
        world.person("DELETE", &file(&twin), json!({})).await.status,
        200
    );
    assert_eq!(world.files(), 0);

    // Not another's ticket, not without a form, not too large, not without end.
    assert_eq!(attach(&run, &other, "x", b"x").await.status, 403);
    assert_eq!(attach(&bobs, &other, "x", b"x").await.status, 201);
    let target = format!(
        "/api/companies/{}/issues/{ticket}/attachments",
        world.company
    );
    for (headers, body) in [
        (vec![], form("x", b"x")),
        (vec![("content-type", "application/json")], b"{}".to_vec()),
        (vec![FORM], b"--xyz\r\n".to_vec()),
        (vec![FORM], Vec::new()),
    ] {
        let answer = run.raw("POST", &target, &headers, &body).await;
        assert_eq!(answer.status, 400, "{answer:?}");
    }
    let most = 10 << 20;
    assert_eq!(
        attach(&run, &ticket, "x", &vec![b'x'; most + 1])
            .await
            .status,
        413
    );
    let mut last = 0;
    for number in 0..7_u8 {
        last = attach(&run, &ticket, "x", &vec![number; most]).await.status;
    }
    assert_eq!(last, 403, "one run does not fill the disk");
}

#[tokio::test(flavor = "multi_thread")]
async fn work_products_name_what_was_made_elsewhere() {
    let world = World::new().await;
    let ada = world.agent("ada").await;
    let ticket = world
        .ticket(json!({ "title": "one", "assigneeAgentId": ada }))
        .await;
    let others = json!({ "title": "two", "assigneeUserId": "ann" });
    let others = world.ticket(others).await;
    let run = world.next_run(&[]).await;
    let all = format!("/api/issues/{ticket}/work-products");
    let good = json!({ "type": "pull_request", "provider": "github", "title": "Fix", "status": "open",
                       "url": "https://github.com/a/b/pull/1", "isPrimary": true,
                       "metadata": { "number": 1 } });
    let first = run.ask("POST", &all, good.clone()).await;
    assert_eq!(first.status, 201, "{first:?}");
    let second = run.ask("POST", &all, good.clone()).await.body;
    let listed = run.ask("GET", &all, json!({})).await.body;
    assert_eq!(listed[0]["isPrimary"], json!(false), "one counts");
    assert_eq!(listed[1]["isPrimary"], json!(true));
    let target = format!("/api/work-products/{}", text(&second["id"]));
    let changed = run
        .ask("PATCH", &target, json!({ "status": "merged" }))
        .await;
    assert_eq!(
        (changed.status, &changed.body["status"]),
        (200, &json!("merged"))
    );
    assert_eq!(changed.body["url"], good["url"]);
    for (field, bad) in [
        ("url", json!("javascript:alert(1)")),
        ("url", json!("https://x\ny")),
        ("type", json!("")),
        ("title", json!("x".repeat(600))),
        ("metadata", json!([1])),
        ("metadata", json!({ "x": "y".repeat(20_000) })),
    ] {
        let mut body = good.clone();
        body[field] = bad;
        assert_eq!(
            run.ask("POST", &all, body.clone()).await.status,
            400,
            "{field}"
        );
        let patch = json!({ field: body[field] });
        assert_eq!(
            run.ask("PATCH", &target, patch).await.status,
            400,
            "{field}"
        );
    }
    let foreign = format!("/api/issues/{others}/work-products");
    assert_eq!(run.ask("POST", &foreign, good.clone()).await.status, 403);
    let theirs = world.person("POST", &foreign, good).await.body;
    let theirs = format!("/api/work-products/{}", text(&theirs["id"]));
    assert_eq!(
        run.ask("PATCH", &theirs, json!({ "status": "x" }))
            .await
            .status,
        403
    );
    assert_eq!(
        world.person("GET", &foreign, json!({})).await.body[0]["status"],
        json!("open")
    );
    assert_ne!(first.body["id"], Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_a_crash_left_without_a_row_are_swept_and_attached_ones_stay() {
    use orchestrator::store::attachments;
    use orchestrator::store::files::Files;

    let world = World::idle().await;
    let ticket = world.ticket(json!({ "title": "Work" })).await;
    let files = world.attached();
    let orphan = files.keep(b"written, then the power went").unwrap();
    let kept = files.keep(b"attached").unwrap();
    let (hash, company) = (Files::hash(b"attached"), world.company.clone());
    let attach = move |w: &mut orchestrator::store::Writer<'_>| {
        let new = attachments::NewAttachment {
            name: "a".to_owned(),
            claimed_type: None,
            size: 8,
            sha256: hash,
        };
        attachments::create(w, &ticket, &company, new)
    };
    let user = orchestrator::model::Actor::User {
        name: "ann".to_owned(),
    };
    world.store.write(user, attach).await.unwrap();
    assert_eq!(attachments::sweep(&world.store, &files).await.unwrap(), 1);
    assert!(files.has(&kept) && !files.has(&orphan));
    assert_eq!(attachments::sweep(&world.store, &files).await.unwrap(), 0);
}
