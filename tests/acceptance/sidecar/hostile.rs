//! A program that wants out, and is heard by the peer as soon as anything lets it.

use std::path::Path;

use tests::wait;

use super::lab::{PEER, PEER6, Project};

/// Sends to the peer by every way it knows, over both protocols, for ever.
pub(super) fn program() -> String {
    format!(
        "import socket, time\n\
         while True:\n\
         \x20for family, peer in ((socket.AF_INET, '{PEER}'), (socket.AF_INET6, '{PEER6}')):\n\
         \x20 for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):\n\
         \x20  s = None\n\
         \x20  try:\n\
         \x20   s = socket.socket(family, kind)\n\
         \x20   s.settimeout(0.05)\n\
         \x20   s.connect((peer, 7007)); s.send(b'out')\n\
         \x20  except OSError: pass\n\
         \x20  if s: s.close()\n\
         \x20time.sleep(0.005)\n"
    )
}

/// The control of every silence: the same program on the engine's bridge, by either protocol.
pub(super) fn is_heard_where_nothing_stops_it(project: &Project, script: &Path) {
    let mount = format!("--volume={}:/hostile.py:ro", script.display());
    for peer in [PEER.to_string(), PEER6.to_string()] {
        let before = project.lab.packets_to(&peer);
        let run = ["run", "--rm", "--detach", "--user=1000:1000", &mount];
        let run = project
            .docker(&run)
            .args(["agent", "python3", "/hostile.py"]);
        let free = run.run().ok().stdout;
        wait::until_true("packets of an agent that nothing stops", || {
            project.lab.packets_to(&peer) > before
        });
        project.docker(&["rm", "--force", free.trim()]).run().ok();
    }
}
