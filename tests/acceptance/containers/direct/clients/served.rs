//! Registries and an API that a run's clients are served from, and the package managers' commands.

use std::net::Ipv4Addr;

use tests::command::Program;
use tests::matrix;
use tests::pki::Pki;
use tests::upstream::Stand;
use tests::world::{EVIL, GIT, WEB, WEB_ADDRESS};

use crate::containers::direct::Place;

/// Where packages are served, and GitHub's API.
const PACKAGES: u16 = 8446;
pub(super) const API: &str = "api.github.com";
const API_ADDRESS: Ipv4Addr = Ipv4Addr::new(93, 184, 215, 30);

/// Package managers, each in a directory of its own: client, way, version, command and what it says.
pub(super) fn managers() -> [(
    &'static str,
    &'static str,
    &'static str,
    String,
    &'static str,
); 3] {
    let way = "untold in a run";
    let base = format!("https://{WEB}:{PACKAGES}{{}}");
    let npm =
        format!("sh -c 'cd $(mktemp -d) && npm install left --no-audit --registry={base}/npm/'");
    let pip = format!(
        "python3 -m pip install -vv --disable-pip-version-check --target $(mktemp -d) \
         --index-url={base}/pypi/simple/ left"
    );
    let manifest = "[package]\nname = \"right\"\nversion = \"0.1.0\"\nedition = \"2021\"\n\
         [dependencies]\nleft = { version = \"1\", registry = \"ours\" }\n";
    let cargo = format!(
        "sh -c 'cd $(mktemp -d) && mkdir src .cargo && touch src/lib.rs && export CARGO_HOME=$PWD/home \
         && printf \"$0\" >Cargo.toml \
         && printf \"[registries.ours]\\nindex = \\\"sparse+{base}/crates/\\\"\\n\" >.cargo/config.toml \
         && $C/cargo vendor' '{manifest}'"
    );
    [
        ("npm", way, "npm --version", npm, "added 1"),
        (
            "pip",
            "-vv, untold in a run",
            "python3 -m pip --version",
            pip,
            "installed left",
        ),
        ("cargo", way, "$C/cargo --version", cargo, "Vendoring left"),
    ]
}

/// The registries: files that a server of their own serves.
pub(super) fn registries(place: &Place) -> Stand {
    let dir = place.world.path().join("packages");
    tests::host::directory(&dir, 0, 0o700);
    Program::new("/usr/bin/python3")
        .arg(matrix::directory().join("src/python/packages.py"))
        .arg(dir.join("root"))
        .arg(format!("https://{WEB}:{PACKAGES}"))
        .run()
        .ok();
    let at = (WEB_ADDRESS, PACKAGES).into();
    let words = ["plain", "--root", "{dir}/root"].map(str::to_owned);
    Stand::start(&place.world.netns, &dir, &place.world.pki, at, &words)
}

/// GitHub's API, under its own name.
pub(super) fn forge(place: &Place) -> Stand {
    let world = &place.world;
    let names = [GIT, WEB, EVIL, API].map(str::to_owned);
    // The servers that run already keep the leaf that they have.
    let (pki, _) = Pki::make(&world.pki.dir, &names).unwrap();
    world.netns.add_address(API_ADDRESS.into());
    world.names.set(API, API_ADDRESS);
    let dir = world.path().join("forge");
    // Whoever comes is let in: the gate has no credential for it.
    let words = ["github", "--http2", "--credential", ""].map(str::to_owned);
    Stand::start(&world.netns, &dir, &pki, (API_ADDRESS, 443).into(), &words)
}
