//! What the gate's resolver keeps.

use tests::gate::Boundary;
use tests::world::{GIT, WEB, World};

/// What `dns_cache` keeps is not asked for again; beyond it, it is, and every request is served all the same.
#[test]
fn answers_of_the_resolver_are_kept_as_far_as_the_limit_says() {
    let questions = |limit: &str| {
        let mut world = World::prepared(None, Boundary::External);
        let config = std::fs::read_to_string(world.gate.config()).unwrap();
        let config = format!("{config}[limits]\npool_idle = 0\n{limit}\n");
        tests::host::file(&world.gate.config(), &config, 0, 0o644);
        world.start();
        for _ in 0..4 {
            for host in [WEB, GIT] {
                let shown = world.curl(&[&format!("https://{host}/x")]).ok();
                // The git host has no such page, and says so itself.
                let status = if host == WEB { "\n200" } else { "\n403" };
                assert!(shown.stdout.ends_with(status), "{host}: {}", shown.shown());
            }
            let cloned = world.git(".", &["ls-remote", &world.repository()]);
            cloned.ok();
        }
        assert!(world.web.connections().len() >= 4, "nothing is pooled");
        world.names.questions().len()
    };
    let kept = questions("");
    let (bounded, none) = (questions("dns_cache = 1"), questions("dns_cache = 0"));
    assert!(kept < bounded, "{kept} {bounded}");
    assert!(kept < none, "{kept} {none}");
}
