//! Agents' own programs complete a prompt with a tool, streaming, against stand-in model APIs.

use tests::clients::{Clients, RULE, Upstream, credential};
use tests::command::Finished;
use tests::matrix::Row;
use tests::stand_in::model::DONE;

const ANTHROPIC: &str = "api.anthropic.com";
const OPENAI: &str = "api.openai.com";

fn world(allow: &str) -> Clients {
    let anthropic = credential("anthropic", "header", ANTHROPIC);
    let openai = credential("openai", "bearer", OPENAI);
    let policy = format!(
        "[[service]]\nkind = \"http\"\nhost = \"{ANTHROPIC}\"\ncredential = \"anthropic\"\n\
         ca_file = \"{{ca}}\"\nallow = [\"* /**\"]\n\
         [[service]]\nkind = \"http\"\nhost = \"{OPENAI}\"\ncredential = \"openai\"\n\
         ca_file = \"{{ca}}\"\nallow = [\"* /**\"]\n\
         [[service]]\nid = \"{RULE}\"\nkind = \"http\"\nhosts = [\"{ANTHROPIC}\", \"{OPENAI}\"]\n\
         deny = [\"{allow}\"]\n"
    );
    let upstreams = [
        Upstream::new(
            &[ANTHROPIC],
            &["model", "--http2", "--credential", &anthropic.canary.secret],
        ),
        Upstream::new(
            &[OPENAI],
            &["model", "--http2", "--credential", &openai.canary.secret],
        ),
    ];
    Clients::new(&upstreams, &policy, &[anthropic, openai])
}

/// One agent's program: client, way, its words, and what it says its version is.
fn judge(
    client: &'static str,
    way: &'static str,
    version: impl Fn(&Clients) -> String,
    run: impl Fn(&Clients) -> Finished,
) {
    let open = world("* /closed/**");
    let allowed = run(&open);
    assert!(
        open.home().join("tool-was-used").exists(),
        "the tool was not used: {}",
        allowed.shown()
    );
    let closed = world("POST /v1/**");
    let refused = run(&closed);
    let row = Row {
        client,
        way,
        version: version(&open),
    };
    open.judge(&row, allowed, DONE, refused);
}

/// A world of kind `llm`, where only models of these names may be asked.
fn models(provider: &'static str, host: &'static str, names: &str) -> Clients {
    let shape = match provider {
        "anthropic" => "header",
        _ => "bearer",
    };
    let key = credential("model", shape, host);
    let policy = format!(
        "[[service]]\nid = \"models\"\nkind = \"llm\"\nprovider = \"{provider}\"\n\
         models = [\"{names}\"]\ncredential = \"model\"\nca_file = \"{{ca}}\"\n"
    );
    let words = ["model", "--http2", "--credential", &key.canary.secret];
    let names: &[&str] = match provider {
        "anthropic" => &[ANTHROPIC],
        _ => &[OPENAI],
    };
    Clients::new(&[Upstream::new(names, &words)], &policy, &[key])
}

/// The same program where its model is listed, and where another one is.
fn judge_models(
    client: &'static str,
    (way, provider, host, names): (&'static str, &'static str, &'static str, &str),
    version: impl Fn(&Clients) -> String,
    run: impl Fn(&Clients) -> Finished,
) {
    let open = models(provider, host, names);
    let allowed = run(&open);
    let closed = models(provider, host, "another-*");
    let refused = run(&closed);
    let row = Row {
        client,
        way,
        version: version(&open),
    };
    open.judge_by(&row, "models", "or have models", allowed, DONE, refused);
}

const CLAUDE: (&str, &str, &str, &str) = ("messages, kind llm", "anthropic", ANTHROPIC, "claude-*");
const GPT: (&str, &str, &str, &str) = ("responses, kind llm", "openai", OPENAI, "gpt-*");

const PROMPT: &str = "Use the tool once, then stop.";

#[test]
fn claude_code_completes_a_prompt_with_a_tool_and_is_told() {
    let version = |clients: &Clients| clients.version("claude", &["--version"]);
    judge("claude-code", "messages, streamed", version, |clients| {
        let claude = clients.agent("claude").limit(120);
        claude
            .args(["--dangerously-skip-permissions", "-p", PROMPT])
            .run()
    });
}

#[test]
fn claude_code_asks_a_listed_model_and_is_told_of_another() {
    let version = |clients: &Clients| clients.version("claude", &["--version"]);
    judge_models("claude-code", CLAUDE, version, |clients| {
        let claude = clients.agent("claude").limit(120);
        claude
            .args(["--dangerously-skip-permissions", "-p", PROMPT])
            .run()
    });
}

#[test]
fn pi_asks_a_listed_model_and_is_told_of_another() {
    let pi = |clients: &Clients| {
        let cli = tests::matrix::directory()
            .join("npm/node_modules/@mariozechner/pi-coding-agent/dist/cli.js");
        clients.agent("node24").limit(120).arg(cli)
    };
    let version = |clients: &Clients| tests::matrix::version(&pi(clients).arg("--version").run());
    judge_models("pi", CLAUDE, version, |clients| {
        let words = [
            "--provider",
            "anthropic",
            "--model",
            "claude-sonnet-4-5",
            "-p",
            PROMPT,
        ];
        pi(clients).args(words).run()
    });
}

#[test]
fn pi_completes_a_prompt_with_a_tool_and_is_told() {
    let pi = |clients: &Clients| {
        let cli = tests::matrix::directory()
            .join("npm/node_modules/@mariozechner/pi-coding-agent/dist/cli.js");
        clients.agent("node24").limit(120).arg(cli)
    };
    let version = |clients: &Clients| tests::matrix::version(&pi(clients).arg("--version").run());
    judge("pi", "messages, streamed", version, |clients| {
        let words = [
            "--provider",
            "anthropic",
            "--model",
            "claude-sonnet-4-5",
            "-p",
            PROMPT,
        ];
        pi(clients).args(words).run()
    });
    judge("pi", "responses, streamed", version, |clients| {
        let words = ["--provider", "openai", "--model", "gpt-5", "-p", PROMPT];
        pi(clients).args(words).run()
    });
}

fn codex(clients: &Clients) -> tests::command::Program {
    let program = tests::matrix::directory().join("npm/node_modules/@openai/codex/bin/codex.js");
    clients.agent("node24").limit(120).arg(program)
}

fn codex_version(clients: &Clients) -> String {
    tests::matrix::version(&codex(clients).arg("--version").run())
}

fn codex_prompt(clients: &Clients) -> Finished {
    let words = [
        "exec",
        "--skip-git-repo-check",
        "--dangerously-bypass-approvals-and-sandbox",
        "--model",
        "gpt-5",
        PROMPT,
    ];
    codex(clients).args(words).run()
}

#[test]
fn codex_completes_a_prompt_with_a_tool_and_is_told() {
    judge("codex", "responses, streamed", codex_version, codex_prompt);
}

#[test]
fn codex_asks_a_listed_model_and_is_told_of_another() {
    judge_models("codex", GPT, codex_version, codex_prompt);
}
