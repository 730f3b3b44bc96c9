//! An installation as `portcullis up` makes it, its own comments taken at their word: an account of the
//! host whose programs know nothing of proxies is served by name, and by nothing else.

use std::fs;

use tests::command::{Finished, Program};
use tests::host;
use tests::instance::Instance;
use tests::matrix;

/// The host of the installation's own policy, and one that it does not list.
const LISTED: &str = "git.portcullis.test";
const UNLISTED: &str = "evil.portcullis.test";
/// Addresses that nobody has: what is dialled means nothing.
const V4: &str = "203.0.113.9";
const V6: &str = "[2001:db8::9]";

struct Installed {
    instance: Instance,
    agent: u32,
    home: tempfile::TempDir,
}

impl Installed {
    fn new() -> Self {
        let instance = Instance::up();
        let agent = host::uid();
        let boundary = instance.path("etc/portcullis/boundary.toml");
        let written = fs::read_to_string(&boundary).unwrap();
        let text = uncommented(&written, "[redirect]", "[resolver]")
            + &uncommented(&written, "[resolver]", "[[exception]]");
        let whole = format!("{written}{text}");
        let whole = whole.replacen("agents = [", &format!("agents = [\"{agent}\", "), 1);
        host::file(&boundary, &whole, 0, 0o644);
        let proxy = instance.path("etc/portcullis/proxy.toml");
        let written = fs::read_to_string(&proxy).unwrap();
        let listen = uncommented(&written, "[listen]", "[control]");
        assert_ne!(written.replace("1500", ""), written, "{written}");
        let listen = listen.replace("1500", &agent.to_string());
        host::file(&proxy, &format!("{written}{listen}"), 0, 0o644);
        let again = instance.run_up(&["--no-gate-test"]).ok();
        assert!(
            again.output().contains("was edited by hand and stays"),
            "{}",
            again.shown()
        );
        let home = host::scratch();
        host::own(home.path(), agent, 0o700);
        Self {
            instance,
            agent,
            home,
        }
    }

    /// A program of the agent's that is told of no proxy, only what to trust.
    fn agent(&self, program: &str) -> Program {
        let installed = matrix::directory().join("bin").join(program);
        let program = if installed.exists() {
            installed.display().to_string()
        } else {
            program.to_owned()
        };
        let trust = self.instance.path("var/lib/portcullis/trust");
        let bundle = trust.join("bundle.pem");
        Program::new(program)
            .env("HOME", self.home.path())
            .env("SSL_CERT_FILE", &bundle)
            .env("GIT_SSL_CAINFO", &bundle)
            .env("NODE_EXTRA_CA_CERTS", trust.join("ca.pem"))
            .env("GIT_TERMINAL_PROMPT", "0")
            .in_directory(self.home.path())
            .limit(120)
            .as_uid(self.agent)
    }

    fn curl(&self, args: &[&str]) -> Finished {
        self.agent("curl").args(super::CURL).args(args).run()
    }

    fn url(&self, path: &str) -> String {
        format!("https://{LISTED}{path}")
    }
}

/// The commented lines from `first` to the one before `last`, without what makes them comments.
fn uncommented(text: &str, first: &str, last: &str) -> String {
    let lines = text.lines();
    let lines = lines.skip_while(|line| *line != format!("#   {first}"));
    let lines = lines.take_while(|line| !line.ends_with(last));
    let taken: Vec<_> = lines.filter_map(|line| line.strip_prefix("#   ")).collect();
    assert!(taken.len() > 1, "{first} is no comment of {text}");
    taken.join("\n") + "\n"
}

const FETCH: &str = "/acme/web.git/info/refs?service=git-upload-pack";

#[test]
fn the_comments_of_an_installation_lead_programs_without_a_proxy_to_the_gate() {
    let installed = Installed::new();
    // By name, as the gate's resolver tells it.
    let served = installed.curl(&[&installed.url(FETCH)]).ok();
    assert!(served.stdout.ends_with("\n200"), "{}", served.shown());
    assert!(
        served.stdout.contains("git-upload-pack"),
        "{}",
        served.shown()
    );
    let refused = installed.curl(&[&installed.url("/other")]);
    for part in ["Portcullis", "path_not_allowed", "hint"] {
        assert!(refused.stdout.contains(part), "{part}: {}", refused.shown());
    }
    let unknown = installed.curl(&[&format!("https://{UNLISTED}/")]);
    assert!(
        unknown.stderr.contains("Could not resolve host"),
        "{}",
        unknown.shown()
    );

    // By an address of either family that nobody has: the name alone counts.
    for address in [V4, V6] {
        let at = format!("{LISTED}:443:{address}");
        let served = installed
            .curl(&["--resolve", &at, &installed.url(FETCH)])
            .ok();
        assert!(
            served.stdout.ends_with("\n200"),
            "{address}: {}",
            served.shown()
        );
        let at = format!("{UNLISTED}:443:{address}");
        let refused = installed.curl(&["--resolve", &at, &format!("https://{UNLISTED}/x")]);
        for part in ["Portcullis", "destination_not_listed", "hint"] {
            assert!(refused.stdout.contains(part), "{part}: {}", refused.shown());
        }
    }

    // Other programs that read no variable, each refused beside.
    let clone = installed.agent("git").args(["clone", "-q"]);
    clone
        .arg(installed.url("/acme/web.git"))
        .arg("work")
        .run()
        .ok();
    let fetched = |path: &str| {
        let script = matrix::directory().join("src/node/fetch.js");
        let node = installed.agent("node20").arg(script).arg("fetch");
        node.args(["GET", &installed.url(path)]).run()
    };
    let served = fetched(FETCH).ok();
    assert!(
        served.stdout.contains("git-upload-pack"),
        "{}",
        served.shown()
    );
    let refused = fetched("/other").refused();
    assert!(
        refused.output().contains("path_not_allowed"),
        "{}",
        refused.shown()
    );
    let store = installed
        .instance
        .path("var/lib/portcullis/trust/truststore.p12");
    for class in ["Classic", "Modern"] {
        let java = |path: &str| {
            let java = installed
                .agent("java")
                .arg("-cp")
                .arg(matrix::directory().join("java"));
            let java = java.arg(format!("-Djavax.net.ssl.trustStore={}", store.display()));
            let java = java.args([
                "-Djavax.net.ssl.trustStorePassword=changeit",
                class,
                &installed.url(path),
            ]);
            java.run()
        };
        let served = java(FETCH).ok();
        assert!(
            served.stdout.contains("git-upload-pack"),
            "{}",
            served.shown()
        );
        let refused = java("/other").refused();
        assert!(
            refused.output().contains("path_not_allowed"),
            "{}",
            refused.shown()
        );
    }

    // The installation is whole, and has it on record.
    let status = installed.instance.run_status(&[]);
    assert_eq!(status.code(), 0, "{}", status.shown());
    let query = installed.instance.portcullis();
    let query = query.args(["audit", "query", "--agent", "ci", "--json"]);
    let text = query.run().ok().stdout;
    for part in ["redirected", "resolver", "destination_not_listed", "NAME"] {
        assert!(text.contains(part), "{part} in {text}");
    }
}
