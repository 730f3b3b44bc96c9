//! Package managers against registries of their own: npm, pip, cargo, apt, Maven.

use tests::clients::{Clients, Upstream, closed, open};
use tests::command::{Finished, Program};
use tests::matrix::{self, Row};

const HOST: &str = "packages.portcullis.test";
/// The same registries by a name whose service opens no encoded slash.
const STRICT: &str = "strict.portcullis.test";

/// A crate that wants `left`.
const CARGO: &str = "[package]\nname = \"right\"\nversion = \"0.1.0\"\nedition = \"2021\"\n\
    [dependencies]\nleft = { version = \"1\", registry = \"ours\" }\n";

fn world() -> Clients {
    let words = ["plain", "--root", "{dir}/root"];
    let everything = ["GET,HEAD /**"];
    let policy = open(HOST, &everything)
        + "encoded_slash = \"segment\"\n"
        + &open(STRICT, &everything)
        + &closed(&[HOST]);
    let clients = Clients::new(&[Upstream::new(&[HOST, STRICT], &words)], &policy, &[]);
    Program::new("/usr/bin/python3")
        .arg(matrix::directory().join("src/python/packages.py"))
        .arg(clients.place(HOST).join("root"))
        .arg(format!("https://{HOST}"))
        .run()
        .ok();
    clients
}

/// Where the registries begin: the open ones, then the ones that policy closes.
const AREAS: [&str; 2] = ["", "/closed"];

fn judge(
    clients: &Clients,
    client: &'static str,
    way: &'static str,
    version: String,
    wanted: &str,
    install: impl Fn(&str, &str) -> Finished,
) {
    let [allowed, refused] = AREAS.map(|area| {
        let directory = format!("{client}{}", area.replace('/', "-"));
        clients.write(&format!("{directory}/.keep"), "");
        install(&format!("https://{HOST}{area}"), &directory)
    });
    let row = Row {
        client,
        way,
        version,
    };
    clients.judge(&row, allowed, wanted, refused);
}

#[test]
fn npm_pip_and_cargo_install_and_are_told() {
    let clients = world();
    let version = clients.version("npm", &["--version"]);
    judge(
        &clients,
        "npm",
        "install",
        version,
        "added 1",
        |base, at| {
            let npm = clients.agent("npm").in_directory(&clients.home().join(at));
            let registry = format!("--registry={base}/npm/");
            npm.args(["install", "left", "--no-audit", &registry]).run()
        },
    );
    scoped(&clients);
    // What pip says of a refused page it says to those who ask for more.
    for (way, more) in [("install", &[][..]), ("install -vv", &["-vv"][..])] {
        let version = clients.version("pip", &["--version"]);
        judge(
            &clients,
            "pip",
            way,
            version,
            "installed left",
            |base, at| {
                let pip = clients
                    .agent("pip")
                    .args(["install", "--disable-pip-version-check"]);
                let index = format!("--index-url={base}/pypi/simple/");
                let target = format!("{at}{}", more.concat());
                pip.args(more)
                    .args([&index, "--target", &target, "left"])
                    .run()
            },
        );
    }
    let version = clients.version("cargo", &["--version"]);
    judge(
        &clients,
        "cargo",
        "vendor",
        version,
        "Vendoring left",
        |base, at| {
            clients.write(&format!("{at}/Cargo.toml"), CARGO);
            clients.write(&format!("{at}/src/lib.rs"), "");
            let config = format!("[registries.ours]\nindex = \"sparse+{base}/crates/\"\n");
            clients.write(&format!("{at}/.cargo/config.toml"), &config);
            let at = clients.home().join(at);
            let cargo = clients.agent("cargo").env("CARGO_HOME", at.join("home"));
            cargo.in_directory(&at).arg("vendor").run()
        },
    );
}

/// A scoped package, which npm asks for by an encoded slash: installed where a service opens it, and
/// told what would where none does.
fn scoped(clients: &Clients) {
    let version = clients.version("npm", &["--version"]);
    let install = |base: &str, at: &str| {
        clients.write(&format!("{at}/.keep"), "");
        let npm = clients.agent("npm").in_directory(&clients.home().join(at));
        let registry = format!("--registry={base}/npm/");
        npm.args(["install", "@scope/right", "--no-audit", &registry])
            .run()
    };
    judge(
        clients,
        "npm",
        "install @scope/name",
        version,
        "added 1",
        |base, at| install(base, &format!("{at}-scoped")),
    );
    let installed = "npm-scoped/node_modules/@scope/right/index.js";
    assert!(clients.home().join(installed).exists(), "{installed}");
    let refused = install(&format!("https://{STRICT}"), "npm-strict").refused();
    for part in ["400", "Portcullis", "encoded_slash"] {
        assert!(
            refused.output().contains(part),
            "{part}: {}",
            refused.shown()
        );
    }
}

#[test]
fn apt_downloads_and_is_told() {
    let clients = world();
    let version = clients.version("apt-get", &["--version"]);
    judge(
        &clients,
        "apt",
        "update, download",
        version,
        "left",
        |base, at| {
            for part in ["lists/partial", "cache/archives/partial"] {
                clients.write(&format!("{at}/{part}/.keep"), "");
            }
            clients.write(
                &format!("{at}/sources.list"),
                &format!("deb [trusted=yes] {base} apt/\n"),
            );
            clients.write(&format!("{at}/status"), "");
            let at = clients.home().join(at);
            let place = at.display();
            let apt = |words: &[&str]| {
                let options = [
                    format!("Dir::State::lists={place}/lists"),
                    format!("Dir::State::status={place}/status"),
                    format!("Dir::Cache={place}/cache"),
                    format!("Dir::Etc::sourcelist={place}/sources.list"),
                    "Dir::Etc::sourceparts=-".to_owned(),
                    "APT::Update::Error-Mode=any".to_owned(),
                ];
                let apt = clients.agent("apt-get").in_directory(&at);
                let apt = options
                    .iter()
                    .fold(apt, |apt, option| apt.args(["-o", option]));
                apt.args(words).run()
            };
            let updated = apt(&["update"]);
            if updated.status.success() {
                return apt(&["download", "left"]);
            }
            updated
        },
    );
}

#[test]
fn maven_resolves_with_its_settings_and_is_told() {
    let clients = world();
    let version = clients.version("mvn", &["--version"]);
    judge(&clients, "maven", "validate", version, "", |base, at| {
        let pom = format!(
            "<project><modelVersion>4.0.0</modelVersion>\
             <parent><groupId>test</groupId><artifactId>left</artifactId><version>1.0.0</version>\
             <relativePath/></parent><artifactId>right</artifactId><packaging>pom</packaging>\
             <repositories><repository><id>ours</id><url>{base}/maven</url></repository></repositories>\
             </project>"
        );
        clients.write(&format!("{at}/pom.xml"), &pom);
        let at = clients.home().join(at);
        let maven = clients.agent("mvn").in_directory(&at);
        maven
            .arg(format!(
                "-Dmaven.repo.local={}",
                at.join("repository").display()
            ))
            .arg("--settings")
            .arg(clients.trust("maven-settings.xml"))
            .args(["--batch-mode", "validate"])
            .run()
    });
}

/// By the kinds of a policy, which name packages: what is named is installed, what is not is refused, by the real
/// clients and with the registries' own layouts.
#[test]
fn kinds_name_packages_as_their_registries_lay_them_out() {
    const HOSTS: [&str; 3] = [
        "npm.portcullis.test",
        "pypi.portcullis.test",
        "crates.portcullis.test",
    ];
    let kinds = ["npm", "pypi", "crates"];
    let world = |named: &str| {
        let words = ["plain", "--root", "{dir}/root"];
        let upstreams = [
            Upstream::new(&[HOSTS[0]], &words),
            Upstream::new(&[HOSTS[1]], &words),
            Upstream::new(&[HOSTS[2]], &words),
        ];
        let service = |kind: &str, host: &str| {
            format!(
                "[[service]]\nid = \"{kind}\"\nkind = \"{kind}\"\nhost = \"{host}\"\npackages = [{named}]\nca_file = \"{{ca}}\"\n"
            )
        };
        let services: String = kinds
            .iter()
            .zip(HOSTS)
            .map(|(kind, host)| service(kind, host))
            .collect();
        let clients = Clients::new(&upstreams, &services, &[]);
        let made = clients.place(HOSTS[0]).with_file_name("made");
        let mut make = Program::new("/usr/bin/python3")
            .arg(matrix::directory().join("src/python/packages.py"))
            .arg(&made);
        for (kind, host) in kinds.iter().zip(HOSTS) {
            make = make.arg(format!("{kind}=https://{host}"));
        }
        make.run().ok();
        for (kind, host) in kinds.iter().zip(HOSTS) {
            std::fs::rename(made.join(kind), clients.place(host).join("root")).unwrap();
        }
        clients
    };
    for (named, allowed) in [("\"left\"", true), ("\"lef\"", false)] {
        let clients = world(named);
        clients.write("npm/.keep", "");
        let npm = clients
            .agent("npm")
            .in_directory(&clients.home().join("npm"));
        let registry = format!("--registry=https://{}/", HOSTS[0]);
        let npm = npm.args(["install", "left", "--no-audit", &registry]).run();
        let pip = clients
            .agent("pip")
            .args(["install", "-vv", "--disable-pip-version-check"]);
        let index = format!("--index-url=https://{}/simple/", HOSTS[1]);
        let pip = pip.args([&index, "--target", "pip", "left"]).run();
        clients.write("cargo/Cargo.toml", CARGO);
        clients.write("cargo/src/lib.rs", "");
        let config = format!(
            "[registries.ours]\nindex = \"sparse+https://{}/\"\n",
            HOSTS[2]
        );
        clients.write("cargo/.cargo/config.toml", &config);
        let at = clients.home().join("cargo");
        let cargo = clients.agent("cargo").env("CARGO_HOME", at.join("home"));
        let cargo = cargo.in_directory(&at).arg("vendor").run();
        for (kind, done) in kinds.iter().zip([npm, pip, cargo]) {
            assert_eq!(
                done.status.success(),
                allowed,
                "{kind} {named}: {}",
                done.shown()
            );
            if !allowed {
                let told = done.output().contains("ortcullis")
                    && done.output().contains("packages of service");
                assert!(told, "{kind}: {}", done.shown());
            }
        }
    }
}
