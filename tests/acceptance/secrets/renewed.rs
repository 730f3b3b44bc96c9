//! A token that the gate fetches itself, and what is left of it in memory once it was renewed.

use std::fs;
use std::path::Path;

use tests::canary::Canary;
use tests::command::Program;
use tests::gate::Boundary;
use tests::host;
use tests::wait;
use tests::world::{WEB, WEB_ADDRESS, World};

/// Grants a token for a few seconds to every app, writes each to a file, and answers everything else with `ok`.
const SERVER: &str = r#"
import datetime, http.server, json, random, ssl, string, sys
address, leaf, key, tokens = sys.argv[1:]
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *words): pass
    def answer(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def do_GET(self):
        self.answer(200, b"ok")
    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        token = "ghs_" + "".join(random.choices(string.ascii_letters + string.digits, k=36))
        with open(tokens, "a") as file: file.write(token + "\n")
        ends = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=12)
        body = {"token": token, "expires_at": ends.strftime("%Y-%m-%dT%H:%M:%SZ")}
        self.answer(201, json.dumps(body).encode())
server = http.server.ThreadingHTTPServer((address, 443), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(leaf, key)
server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
server.serve_forever()
"#;

struct Granting(std::process::Child);

impl Drop for Granting {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn tokens(file: &Path) -> Vec<Canary> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let canary = |line: &str| Canary {
        secret: line.to_owned(),
    };
    text.lines().map(canary).collect()
}

#[test]
fn a_renewed_token_s_copies_go_with_the_connections_that_carried_the_former_one() {
    let mut world = World::prepared(None, Boundary::External);
    world.web.stop();
    let granted = world.path().join("granted");
    let script = world.path().join("granting.py");
    fs::write(&script, SERVER).unwrap();
    let _server = Granting(
        Program::new("python3")
            .arg(&script)
            .arg(WEB_ADDRESS.to_string())
            .arg(world.pki.leaf())
            .arg(world.pki.leaf_key())
            .arg(&granted)
            .in_netns(&world.netns)
            .spawn(),
    );
    let key = Program::new("openssl").args(["genrsa", "2048"]).run().ok();
    let file = world.gate.dir.join("credentials/web");
    host::file(&file, &key.stdout, world.gate.uid, 0o600);
    let config = fs::read_to_string(world.gate.config()).unwrap();
    let (before, section) = config
        .split_once("[credential.web]\nkind = \"bearer\"\n")
        .unwrap();
    let app = "[credential.web]\nkind = \"github-app\"\napp = \"1\"\ninstallation = 34\n\
               repositories = [\"acme/web\"]\napi = \"web.portcullis.test\"\n";
    fs::write(world.gate.config(), format!("{before}{app}{section}")).unwrap();
    world.start();

    let get = || world.curl(&[&format!("https://{WEB}/one")]);
    wait::until_true("the first token is used", || {
        get().output().ends_with("200")
    });
    let first = tokens(&granted).remove(0);
    let pid = world.gate.pid();
    let known = usize::from(!super::sealed(pid));
    let copies = |token: &Canary| super::in_memory(pid, &super::forms(token));
    assert!(
        copies(&first) > known,
        "the control: a connection keeps one"
    );
    wait::until_true("it is renewed before it ends", || {
        assert!(get().output().ends_with("200"));
        tokens(&granted).len() > 1
    });
    wait::until_true("no copy of the former one is left", || {
        assert!(get().output().ends_with("200"));
        copies(&first) == 0
    });
    let now = tokens(&granted).pop().unwrap();
    wait::until_true("the control: one of the present one is kept", || {
        assert!(get().output().ends_with("200"));
        let now = tokens(&granted).pop().unwrap();
        copies(&now) > known
    });
    now.absent_from("the log", world.gate.log());
    now.absent_from("the audit log", fs::read(world.gate.audit_file()).unwrap());
}
