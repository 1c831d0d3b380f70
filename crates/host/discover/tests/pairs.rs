//! Pairs whose ends move to namespaces that have just been made, faster than discovery follows. Needs root
//! and iproute2.
#![allow(clippy::unwrap_used)] // also in helpers, where clippy.toml does not allow it

mod support;

use skua_testkit::lab::{Net, root_tests, run};
use skua_topology::{Graph, Value};
use std::process::Command;
use support::{Lab, config, interface, layer2, text};

/// Pairs that are made in one go.
const PAIRS: usize = 15;

/// What an end says of where the other one is: `LinkNetNsName`, its edges.
fn other_end(graph: &Graph, namespace: &str, name: &str) -> Option<(String, usize)> {
    let node = interface(graph, namespace, name)?;
    let said = text(&node.metadata, "LinkNetNsName").to_owned();
    Some((said, layer2(graph, &node.id).len()))
}

fn shell(script: &str) {
    run(Command::new("sh").args(["-e", "-c", script]));
}

#[test]
fn both_ends_name_the_namespace_of_the_other_however_quickly_they_are_made() {
    if !root_tests() {
        return;
    }
    let lab = Lab::start(config());
    let base = Net::bare();
    lab.until_followed(&base.name);
    let name = |at: usize| format!("{}-{at}", base.name);
    // Each time other namespaces get the same names, and the kernel gives them the same numbers.
    for round in 0..3 {
        let orders: String = (0..PAIRS)
            .map(|at| {
                let (new, base) = (name(at), &base.name);
                let pair = format!("ip -n {base} link add v{at} type veth peer name p{at}");
                let up = format!("ip -n {base} link set v{at} up");
                let there = format!("ip -n {base} link set p{at} netns {new}");
                let order = match (at + round) % 3 {
                    // The end leaves before discovery knows where to.
                    0 => vec![pair, format!("ip netns add {new}"), there, up],
                    1 => vec![format!("ip netns add {new}"), pair, up, there],
                    _ => vec![
                        format!("ip netns add {new}"),
                        format!("{pair} netns {new}"),
                        up,
                    ],
                };
                order.join("\n") + "\n"
            })
            .collect();
        shell(&orders);
        for at in 0..PAIRS {
            let (new, base) = (name(at), &base.name);
            let ends = |graph: &Graph| {
                let near = other_end(graph, base, &format!("v{at}"));
                let far = other_end(graph, &new, &format!("p{at}"));
                (near, far)
            };
            let right = (Some((new.clone(), 1)), Some((base.clone(), 1)));
            let what = format!("both ends of pair {at} of round {round}");
            lab.until(&what, |graph| (ends(graph) == right).then_some(()));
        }
        let remove: String = (0..PAIRS)
            .map(|at| {
                format!(
                    "ip -n {} link del v{at}\nip netns del {}\n",
                    base.name,
                    name(at)
                )
            })
            .collect();
        shell(&remove);
    }
}

#[test]
fn the_other_end_learns_that_a_namespace_has_another_name() {
    if !root_tests() {
        return;
    }
    let lab = Lab::start(config());
    let (a, b) = (Net::bare(), Net::bare());
    lab.until_followed(&a.name);
    lab.until_followed(&b.name);
    a.ip(&format!(
        "link add va type veth peer name vb netns {}",
        b.name
    ));
    lab.until_has(&a.name, "va", "LinkNetNsName", b.name.as_str().into());
    // Of several names the first in the alphabet is taken.
    let first = format!("{}-0", Net::prefix());
    let (from, to) = (b.path(), format!("/run/netns/{first}"));
    shell(&format!("touch {to}; mount --bind {from} {to}"));
    lab.until_has(&a.name, "va", "LinkNetNsName", Value::from(first.as_str()));
    // As `ip netns del` does it: discovery may have it open at the moment.
    shell(&format!("umount --lazy {to}; rm {to}"));
    lab.until_has(&a.name, "va", "LinkNetNsName", b.name.as_str().into());
}
