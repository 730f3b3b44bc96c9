//! A whole orchestrator in a temporary directory. The engine starts nothing: a test says when and
//! how each run ends. The gate answers its control socket and remembers the tokens it was given.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::extract::{Path, Query, State};
use axum::routing::{get, post, put};
use axum::{Json, Router};
use orchestrator::api::{self, Board, Entrance};
use orchestrator::container::{
    Engine, EngineError, Evidence, Exit, Limits, RunSpec, Running, Slice,
};
use orchestrator::gate_client::GateClient;
use orchestrator::store::Store;
use orchestrator::store::files::Files;
use orchestrator::supervise::{Homes, Settings, Supervisor};
use policy::grant::{OpenRun, OpenedRun, RunId};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::watch;

/// What the engine was asked to do, and what it says.
#[derive(Debug, Default)]
pub(crate) struct Machine {
    pub(crate) started: Vec<RunSpec>,
    exits: HashMap<String, watch::Sender<Option<Exit>>>,
    /// Runs whose processes still exist.
    pub(crate) alive: Vec<String>,
    /// Runs that survive being killed.
    pub(crate) stubborn: Vec<String>,
    /// Starts take until this is false again.
    pub(crate) slow: bool,
    /// Starts exist, but their caller never hears of it.
    pub(crate) deaf: bool,
    /// Refuse every start with this.
    pub(crate) refuse: Option<String>,
}

/// The scripted engine.
#[derive(Debug, Clone, Default)]
pub(crate) struct Script(pub(crate) Arc<Mutex<Machine>>);

impl Script {
    /// Ends a run as its command would.
    pub(crate) fn exit(&self, run: &str, exit: Exit) {
        let mut machine = self.0.lock().unwrap();
        if machine.stubborn.iter().any(|other| other == run) {
            return;
        }
        machine.alive.retain(|other| other != run);
        if let Some(sender) = machine.exits.get(run) {
            sender.send_replace(Some(exit));
        }
    }

    pub(crate) fn started(&self) -> Vec<String> {
        self.0
            .lock()
            .unwrap()
            .started
            .iter()
            .map(|spec| spec.run.to_string())
            .collect()
    }

    /// At the end the stubborn processes die after all.
    pub(crate) fn let_go(&self, run: &str) {
        let mut machine = self.0.lock().unwrap();
        machine.stubborn.retain(|other| other != run);
        machine.alive.retain(|other| other != run);
    }
}

fn evidence(run: &RunId) -> Evidence {
    Evidence {
        boot_id: run.to_string(),
        monitor_pid: 1,
        start_time: 1,
        cgroups: Vec::new(),
    }
}

impl Engine for Script {
    async fn start(&self, spec: RunSpec) -> Result<Running, EngineError> {
        let run = spec.run.clone();
        while self.0.lock().unwrap().slow {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let (sender, receiver) = watch::channel(None);
        let deaf = {
            let mut machine = self.0.lock().unwrap();
            if let Some(why) = &machine.refuse {
                return Err(EngineError::Refused(why.clone()));
            }
            machine.started.push(spec);
            machine.alive.push(run.to_string());
            machine.exits.insert(run.to_string(), sender);
            machine.deaf
        };
        if deaf {
            std::future::pending::<()>().await;
        }
        let (script, id) = (self.clone(), run.to_string());
        Ok(Running::new(evidence(&run), receiver, move || {
            script.exit(&id, Exit::Signal(9))
        }))
    }

    fn leftover(&self, run: &RunId) -> Result<Option<Evidence>, EngineError> {
        let machine = self.0.lock().unwrap();
        Ok(machine
            .alive
            .contains(&run.to_string())
            .then(|| evidence(run)))
    }

    fn proven_gone(&self, evidence: &Evidence) -> Result<bool, EngineError> {
        Ok(!self.0.lock().unwrap().alive.contains(&evidence.boot_id))
    }

    fn kill_leftover(&self, evidence: &Evidence) -> Result<(), EngineError> {
        self.exit(&evidence.boot_id, Exit::Signal(9));
        Ok(())
    }
}

/// Workspaces in the temporary directory.
#[derive(Debug, Clone)]
struct Rooms(PathBuf);

impl Homes for Rooms {
    fn create(&self, run: &RunId, _slice: Slice) -> Result<PathBuf, String> {
        let path = self.0.join(run.as_str());
        std::fs::create_dir_all(&path).map_err(|error| error.to_string())?;
        Ok(path)
    }

    fn remove(&self, run: &RunId, _slice: Slice) -> Result<(), String> {
        // Absent when the run never got one.
        let _absent = std::fs::remove_dir_all(self.0.join(run.as_str()));
        Ok(())
    }
}

/// What the gate knows.
#[derive(Debug, Default)]
pub(crate) struct GateState {
    pub(crate) open: HashMap<String, OpenRun>,
    /// Every token it was ever given, by run.
    pub(crate) tokens: HashMap<String, String>,
    pub(crate) audit: Vec<Value>,
    pub(crate) boundary_ok: bool,
    pub(crate) extended: usize,
}

pub(crate) type Gate = Arc<Mutex<GateState>>;

fn gate_router(gate: Gate) -> Router {
    let open = |State(gate): State<Gate>, Path(run): Path<String>, Json(open): Json<OpenRun>| async move {
        let mut gate = gate.lock().unwrap();
        gate.tokens
            .insert(run.clone(), open.board_token.clone().unwrap());
        let opened = OpenedRun {
            socket_dir: format!("/nonexistent/{run}"),
            socket: format!("/nonexistent/{run}/gate.sock"),
            epoch: open.epoch,
            lease_seconds: open.lease_seconds,
            git_hosts: Vec::new(),
        };
        gate.open.insert(run, open);
        Json(opened)
    };
    let close = |State(gate): State<Gate>, Path(run): Path<String>| async move {
        gate.lock().unwrap().open.remove(&run);
        Json(json!({}))
    };
    let extend = |State(gate): State<Gate>, Path(run): Path<String>| async move {
        let mut gate = gate.lock().unwrap();
        gate.extended += 1;
        if gate.open.contains_key(&run) {
            (axum::http::StatusCode::OK, Json(json!({})))
        } else {
            (
                axum::http::StatusCode::NOT_FOUND,
                Json(json!({ "error": "no such run" })),
            )
        }
    };
    let status = |State(gate): State<Gate>| async move {
        Json(
            json!({ "boundary": { "ok": gate.lock().unwrap().boundary_ok, "problem": "stale" },
                     "audit": { "ok": true } }),
        )
    };
    let audit = |State(gate): State<Gate>, Query(query): Query<HashMap<String, String>>| async move {
        let gate = gate.lock().unwrap();
        let of_run = gate
            .audit
            .iter()
            .filter(|record| record["run"] == json!(query["run"]));
        of_run
            .map(|record| format!("{record}\n"))
            .collect::<String>()
    };
    Router::new()
        .route("/v1/runs/{run}", put(open).delete(close))
        .route("/v1/runs/{run}/extend", post(extend))
        .route("/v1/status", get(status))
        .route("/v1/audit", get(audit))
        .with_state(gate)
}

/// An answer.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Value,
    /// The head, as it came.
    pub(crate) head: String,
    /// The body, as it came.
    pub(crate) text: String,
}

/// Everything.
pub(crate) struct World {
    pub(crate) store: Store,
    pub(crate) engine: Script,
    pub(crate) gate: Gate,
    pub(crate) company: String,
    dir: Arc<tempfile::TempDir>,
    stop: watch::Sender<bool>,
    supervisor: Option<tokio::task::JoinHandle<()>>,
}

impl World {
    /// A board with one company. The supervisor works.
    pub(crate) async fn new() -> Self {
        let mut world = Self::idle().await;
        world.start();
        world
    }

    /// The same, without a supervisor.
    pub(crate) async fn idle() -> Self {
        let dir = Arc::new(tempfile::tempdir().unwrap());
        let gate: Gate = Arc::new(Mutex::new(GateState {
            boundary_ok: true,
            ..GateState::default()
        }));
        let listener = api::bind(&dir.path().join("control.sock")).unwrap();
        tokio::spawn(axum::serve(listener, gate_router(Arc::clone(&gate))).into_future());
        let mut world = Self::around(dir, gate, Script::default()).await;
        let made = world
            .person("POST", "/api/companies", json!({ "name": "Acme" }))
            .await;
        assert_eq!(made.status, 201, "{made:?}");
        world.company = text(&made.body["id"]);
        world
    }

    async fn around(dir: Arc<tempfile::TempDir>, gate: Gate, engine: Script) -> Self {
        let store = Store::open(&dir.path().join("state.db")).unwrap();
        let board = Arc::new(Board {
            store: store.clone(),
            gate: GateClient::new(dir.path().join("control.sock")),
            runs: dir.path().join("runs"),
            files: Files::new(dir.path().join("attachments")),
            slices: (0..200).collect(),
        });
        let (stop, stopped) = watch::channel(false);
        let own = nix::unistd::Uid::effective().as_raw();
        let entrances = [
            ("board.sock", Entrance::Board { proxy: own }),
            ("other.sock", Entrance::Board { proxy: own + 1 }),
            ("api.sock", Entrance::Operators { uids: vec![own] }),
        ];
        for (name, entrance) in entrances {
            let path = dir.path().join(name);
            // Left by the orchestrator before this one, which answers no more.
            let _absent = std::fs::remove_file(&path);
            let listener = api::bind(&path).unwrap();
            let router = api::router(Arc::clone(&board), entrance);
            tokio::spawn(api::serve(listener, router, stopped.clone()));
        }
        let path = dir.path().join("hooks.sock");
        let _absent = std::fs::remove_file(&path);
        let listener = api::bind(&path).unwrap();
        tokio::spawn(api::serve_hooks(listener, api::hooks(board), stopped));
        Self {
            store,
            engine,
            gate,
            company: String::new(),
            dir,
            stop,
            supervisor: None,
        }
    }

    pub(crate) fn start(&mut self) {
        let settings = Settings {
            first_id: 100_000,
            slice_ids: 1024,
            slices: (0..200).collect(),
            runs: self.dir.path().join("runs"),
            trust: self.dir.path().join("trust"),
            limits: Limits {
                memory_bytes: 1 << 30,
                pids: 100,
            },
            extend: Duration::from_millis(50),
        };
        let supervisor = Supervisor::new(
            self.store.clone(),
            self.engine.clone(),
            Rooms(self.dir.path().join("work")),
            GateClient::new(self.dir.path().join("control.sock")),
            settings,
        );
        self.supervisor = Some(tokio::spawn(supervisor.run(self.stop.subscribe())));
    }

    /// As SIGKILL: nothing is said, nothing is cleaned up; then a new orchestrator on the same files.
    pub(crate) async fn killed_and_reborn(mut self) -> Self {
        if let Some(task) = self.supervisor.take() {
            task.abort();
            let _aborted = task.await;
        }
        self.stop.send_replace(true);
        let mut world = Self::around(
            Arc::clone(&self.dir),
            Arc::clone(&self.gate),
            self.engine.clone(),
        )
        .await;
        world.company = self.company.clone();
        world
    }

    pub(crate) async fn stopped(mut self) -> Self {
        self.stop.send_replace(true);
        self.supervisor.take().unwrap().await.unwrap();
        self
    }

    /// An agent that may create, assign and wake.
    pub(crate) async fn agent(&self, name: &str) -> String {
        self.hired(name, json!({ "role": "coordinator" })).await
    }

    /// An agent as it is made unless a person says more.
    pub(crate) async fn worker(&self, name: &str) -> String {
        self.hired(name, json!({})).await
    }

    /// An agent with more fields.
    pub(crate) async fn hired(&self, name: &str, more: Value) -> String {
        let mut body = json!({ "name": name, "adapter": { "adapter": "process", "command": ["/bin/agent", name],
                           "env": { "OWN": "1" } } });
        for (key, value) in more.as_object().unwrap() {
            body[key] = value.clone();
        }
        let made = self
            .person(
                "POST",
                &format!("/api/companies/{}/agents", self.company),
                body,
            )
            .await;
        assert_eq!(made.status, 201, "{made:?}");
        text(&made.body["id"])
    }

    /// A ticket; returns its id.
    pub(crate) async fn ticket(&self, body: Value) -> String {
        let made = self
            .person(
                "POST",
                &format!("/api/companies/{}/issues", self.company),
                body,
            )
            .await;
        assert_eq!(made.status, 201, "{made:?}");
        text(&made.body["id"])
    }

    pub(crate) async fn person(&self, method: &str, target: &str, body: Value) -> Answer {
        self.call("api.sock", method, target, &[], body.to_string().as_bytes())
            .await
    }

    /// Waits until a run was started that is not among `known`.
    pub(crate) async fn next_run(&self, known: &[&str]) -> Agent<'_> {
        let found = eventually("a run starts", || async {
            let started = self.engine.started();
            started
                .into_iter()
                .find(|run| !known.contains(&run.as_str()))
        })
        .await;
        let id = found.clone();
        eventually("the run is recorded", || async {
            let row = self.run(&id).await;
            (row["status"] != "starting").then_some(())
        })
        .await;
        let token = self.gate.lock().unwrap().tokens[&found].clone();
        Agent {
            world: self,
            run: found,
            token,
        }
    }

    pub(crate) async fn run(&self, id: &str) -> Value {
        self.person("GET", &format!("/api/heartbeat-runs/{id}"), json!({}))
            .await
            .body
    }

    /// What a run was told on standard input.
    pub(crate) fn prompt(&self, run: &str) -> String {
        let machine = self.engine.0.lock().unwrap();
        let spec = machine.started.iter().find(|spec| spec.run.as_str() == run);
        String::from_utf8(spec.unwrap().stdin.clone()).unwrap()
    }

    /// The payload of the wake that a run answers.
    pub(crate) fn payload(&self, run: &str) -> Value {
        let machine = self.engine.0.lock().unwrap();
        let spec = machine.started.iter().find(|spec| spec.run.as_str() == run);
        let mut env = spec.unwrap().env.iter();
        let found = env.find(|(name, _)| name == "PAPERCLIP_WAKE_PAYLOAD_JSON");
        serde_json::from_str(&found.unwrap().1).unwrap()
    }

    /// Where the bytes of attachments are.
    pub(crate) fn attached(&self) -> Files {
        Files::new(self.dir.path().join("attachments"))
    }

    /// How many files attachments have.
    pub(crate) fn files(&self) -> usize {
        let folders = std::fs::read_dir(self.dir.path().join("attachments")).unwrap();
        let count = |folder: std::fs::DirEntry| std::fs::read_dir(folder.path()).unwrap().count();
        folders.map(|folder| count(folder.unwrap())).sum()
    }

    pub(crate) async fn issue(&self, id: &str) -> Value {
        self.person("GET", &format!("/api/issues/{id}"), json!({}))
            .await
            .body
    }

    /// Waits until the run has ended and everything it held is free.
    pub(crate) async fn ended(&self, run: &str) -> Value {
        eventually("the run ends", || async {
            let row = self.run(run).await;
            (row["live"] == json!(false)).then_some(row)
        })
        .await
    }

    /// Waits until nothing is queued and no run is live, so that "nothing else happened" means it.
    pub(crate) async fn at_rest(&self) {
        eventually("the board is at rest", || async {
            let (queued, live) = self
                .store
                .read(|db| {
                    let queued = orchestrator::store::wakes::all_queued(db)?.len();
                    Ok((queued, orchestrator::store::runs::holding(db)?.len()))
                })
                .await
                .unwrap();
            (queued == 0 && live == 0).then_some(())
        })
        .await;
    }

    pub(crate) async fn call(
        &self,
        socket: &str,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Answer {
        let mut stream = UnixStream::connect(self.dir.path().join(socket))
            .await
            .unwrap();
        let mut head = format!(
            "{method} {target} HTTP/1.1\r\nhost: b\r\nconnection: close\r\ncontent-length: {}\r\n",
            body.len()
        );
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        // A server that has refused the body already may have closed its side.
        let _refused = stream.write_all(body).await;
        let mut answer = Vec::new();
        let _reset = stream.read_to_end(&mut answer).await;
        let answer = String::from_utf8_lossy(&answer);
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        let status = head
            .split(' ')
            .nth(1)
            .and_then(|code| code.parse().ok())
            .unwrap_or(0);
        Answer {
            status,
            body: serde_json::from_str(body).unwrap_or(Value::Null),
            head: head.to_owned(),
            text: body.to_owned(),
        }
    }
}

/// A run, as its agent sees the board.
pub(crate) struct Agent<'w> {
    pub(crate) world: &'w World,
    pub(crate) run: String,
    pub(crate) token: String,
}

impl Agent<'_> {
    pub(crate) async fn ask(&self, method: &str, target: &str, body: Value) -> Answer {
        self.raw(method, target, &[], body.to_string().as_bytes())
            .await
    }

    pub(crate) async fn raw(
        &self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Answer {
        let bearer = format!("Bearer {}", self.token);
        let mut all = vec![("authorization", bearer.as_str())];
        all.extend(headers);
        self.world
            .call("board.sock", method, target, &all, body)
            .await
    }

    pub(crate) async fn comment(&self, ticket: &str, body: &str) -> Answer {
        self.ask(
            "POST",
            &format!("/api/issues/{ticket}/comments"),
            json!({ "body": body }),
        )
        .await
    }

    pub(crate) async fn set(&self, ticket: &str, body: Value) -> Answer {
        self.ask("PATCH", &format!("/api/issues/{ticket}"), body)
            .await
    }

    /// The command ends.
    pub(crate) fn exits(&self, exit: Exit) {
        self.world.engine.exit(&self.run, exit);
    }

    pub(crate) async fn done(&self, ticket: &str) {
        let answer = self
            .set(ticket, json!({ "status": "done", "comment": "finished" }))
            .await;
        assert_eq!(answer.status, 200, "{answer:?}");
        self.exits(Exit::Code(0));
        self.world.ended(&self.run).await;
    }
}

/// A route's method as it is sent.
pub(crate) fn method_of(name: &str) -> &'static str {
    match name {
        "get" => "GET",
        "post" => "POST",
        "put" => "PUT",
        "patch" => "PATCH",
        "delete" => "DELETE",
        other => panic!("{other} is no method of the table"),
    }
}

/// A route's path with its parameters filled in.
pub(crate) fn filled(path: &str, id: impl Fn(&str) -> String) -> String {
    let mut filled = String::new();
    for part in path.split('{') {
        match part.split_once('}') {
            Some((name, rest)) => filled.push_str(&(id(name) + rest)),
            None => filled.push_str(part),
        }
    }
    filled
}

pub(crate) fn text(value: &Value) -> String {
    value
        .as_str()
        .unwrap_or_else(|| panic!("{value} is no text"))
        .to_owned()
}

/// Asks until there is an answer; fails after a generous while.
pub(crate) async fn eventually<T, F: Future<Output = Option<T>>>(
    what: &str,
    mut ask: impl FnMut() -> F,
) -> T {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
