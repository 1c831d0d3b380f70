//! A flood of changes of which the kernel cannot tell all. Alone, for it reaches every lab that there is.
//! Needs root and iproute2.
#![allow(clippy::unwrap_used)] // also in helpers, where clippy.toml does not allow it

mod support;

use skua_discover::DiscoveryConfig;
use skua_testkit::lab::{Net, root_tests};
use support::{Lab, config};

#[test]
fn what_waited_while_some_was_lost_is_not_believed() {
    if !root_tests() {
        return;
    }
    let lab = Lab::start(DiscoveryConfig {
        // Some notices wait in it when the next ones are lost.
        queue_bytes: 32 << 10,
        ..config()
    });
    let ns = Net::bare();
    lab.until_followed(&ns.name);
    let mut batch = String::new();
    for at in 0..100 {
        batch.push_str(&format!("link add c{at} type veth peer name k{at}\n"));
    }
    for mtu in 1_300..1_330 {
        for at in 0..100 {
            batch.push_str(&format!("link set c{at} mtu {mtu}\n"));
        }
    }
    for at in 0..50 {
        batch.push_str(&format!("link del c{at}\n"));
    }
    // Nobody changes the graph meanwhile, so what comes waits, however quick this machine is.
    let held = lab.graph.read();
    ns.ip_batch(&batch);
    drop(held);
    lab.until_true(&[&ns.name]);
    let counters = lab.discovery.counters();
    assert!(counters.lost > 0 && counters.resyncs > 0, "{counters:?}");
}
