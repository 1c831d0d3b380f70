//! Which queries wake the probe.

use std::sync::atomic::AtomicBool;

use skua_query::{Limits, Prepared};

use super::routes;

#[test]
fn only_queries_that_read_flows_or_sockets_drain_the_probe() {
    let (_, engine, shared, _, _) = routes();
    for (query, explain, drains) in [
        ("G.V().Has('Name', 'eth0')", false, false),
        ("G.V().Has('Name', 'Flows')", false, false),
        ("G.Flows().Hass('Network', 'x')", false, false),
        ("G.Flows(", false, false),
        ("G.Flows()", true, false),
        ("G.Flows().Count()", false, true),
        ("G.V().Flows()", false, true),
        ("G.Flows().Sockets()", false, true),
        ("G.V().Sockets()", false, true),
    ] {
        // As if the last drain were long ago.
        shared.write().drained_ns = 0;
        let before = shared.read().drains;
        let answered = engine.ask(
            query,
            Limits::default(),
            &AtomicBool::new(false),
            |_: &Prepared, found| Ok(found),
            explain,
        );
        let drained = shared.read().drains > before;
        assert_eq!(drained, drains, "{query}: {:?}", answered.err());
    }
}
