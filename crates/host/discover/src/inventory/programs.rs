//! BPF programs on interfaces: tcx, clsact and XDP, of any process.
//!
//! The kernel announces XDP only (not when by a link); the others are polled once per interval, and when an
//! interface comes.

use super::{
    Common,
    place::{self, int, map_of, number, some},
    worker::Source,
};
use crate::counters;
use skua_kernel::{Direction, ProgramInfo, attached_tcx, next_tick, program_info};
use skua_link::{Protocol, Requests, attributes, read_text, read_u32};
use skua_topology::{Node, Value};
use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

/// Key of interfaces.
pub(super) const KEY: &str = "BPF";
/// Programs of one interface at most.
const MOST: usize = 128;
const PAUSE: Duration = Duration::from_millis(200);
const SHARE: u32 = 20;

/// Linux's numbers (linux/rtnetlink.h, linux/pkt_sched.h, linux/pkt_cls.h).
const RTM_NEWTFILTER: u16 = 44;
const RTM_GETTFILTER: u16 = 46;
const CLSACT: [(u32, &str); 2] = [
    (0xffff_fff2, "clsact/ingress"),
    (0xffff_fff3, "clsact/egress"),
];
const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const TCA_BPF_ID: u16 = 11;
/// Length of `struct tcmsg`.
const TCMSG: usize = 20;

/// An attachment: where, program, link.
type Attached = (&'static str, u32, Option<u32>);

/// Follows programs on interfaces.
pub(super) struct Programs {
    common: Common,
    /// The kernel has no tcx.
    without_tcx: bool,
    infos: HashMap<u32, Option<ProgramInfo>>,
    next: Option<Instant>,
    earliest: Instant,
}

impl Programs {
    pub fn new(common: Common) -> Self {
        let now = Instant::now();
        Self {
            common,
            without_tcx: false,
            infos: HashMap::new(),
            next: Some(now),
            earliest: now,
        }
    }

    fn refresh(&mut self) {
        let spaces = place::spaces(&self.common.graph, &self.common.host);
        let mut all = 0;
        let mut seen = HashMap::new();
        for (inode, nodes) in place::interfaces(&self.common.graph, &self.common.host) {
            let Some(space) = spaces.get(&inode) else {
                continue;
            };
            let Some(namespace) = space.open() else {
                continue;
            };
            let tcx = !self.without_tcx;
            let listed = namespace.enter(|| list(&nodes, tcx));
            let Ok((listed, without_tcx)) = listed else {
                counters::add(&self.common.counters.errors, 1);
                continue;
            };
            self.without_tcx |= without_tcx;
            for (node, attached) in nodes.iter().zip(listed) {
                all += attached.len();
                let value = self.value(&attached, &mut seen);
                let Common {
                    graph, counters, ..
                } = &self.common;
                place::show(graph, counters, &node.id, KEY, value);
            }
        }
        self.infos = seen;
        counters::set(&self.common.counters.programs, all);
    }

    fn value(
        &self,
        attached: &[Attached],
        seen: &mut HashMap<u32, Option<ProgramInfo>>,
    ) -> Option<Value> {
        let mut list = Vec::new();
        for (attach, id, link) in attached.iter().take(MOST) {
            let known = || self.infos.get(id).cloned().flatten();
            let info = seen
                .entry(*id)
                .or_insert_with(|| known().or_else(|| program_info(*id).ok()));
            let info = info.as_ref();
            list.push(Value::from(map_of([
                ("Attach", some(Some(attach))),
                ("ID", Some(int(*id))),
                ("Link", link.map(int)),
                ("Name", some(info.map(|info| info.name.as_str()))),
                ("Tag", some(info.map(|info| info.tag.as_str()))),
                ("Type", some(info.map(|info| info.kind))),
            ])));
        }
        (!list.is_empty()).then(|| Value::List(list.into()))
    }
}

/// Lists what is on interfaces of the namespace that the thread is in; and whether the kernel does not
/// know tcx.
fn list(nodes: &[Arc<Node>], tcx: bool) -> (Vec<Vec<Attached>>, bool) {
    let mut without_tcx = !tcx;
    let mut requests = Requests::open(Protocol::Route).ok();
    let mut lists = Vec::with_capacity(nodes.len());
    for node in nodes {
        let mut attached = xdp(node);
        let ifindex = number(node, "IfIndex").and_then(|index| u32::try_from(index).ok());
        let Some(ifindex) = ifindex else {
            lists.push(attached);
            continue;
        };
        for (direction, name) in [
            (Direction::Ingress, "tcx/ingress"),
            (Direction::Egress, "tcx/egress"),
        ] {
            if without_tcx {
                break;
            }
            match attached_tcx(ifindex, direction) {
                Ok(programs) => attached.extend(
                    programs
                        .into_iter()
                        .map(|(id, link)| (name, id, (link != 0).then_some(link))),
                ),
                // The interface was removed, most likely.
                Err(error)
                    if error.raw_os_error() == Some(rustix::io::Errno::NODEV.raw_os_error()) => {}
                Err(error) => {
                    tracing::debug!(%error, "programs at tcx cannot be listed");
                    without_tcx = true;
                }
            }
        }
        if let Some(requests) = &mut requests {
            for (parent, name) in CLSACT {
                let programs = filters(requests, ifindex, parent);
                attached.extend(programs.into_iter().map(|id| (name, id, None)));
            }
        }
        lists.push(attached);
    }
    (lists, without_tcx)
}

/// Programs at XDP, from the interface's metadata.
fn xdp(node: &Node) -> Vec<Attached> {
    let Some(Value::List(programs)) = node.metadata.get("XDP") else {
        return Vec::new();
    };
    programs
        .iter()
        .filter_map(|program| {
            let id = program.as_map()?.get("ID")?.as_int()?;
            Some(("xdp", u32::try_from(id).ok()?, None))
        })
        .collect()
}

/// Programs of the classifiers at one side of a clsact queueing discipline; none where there is no such.
fn filters(requests: &mut Requests, ifindex: u32, parent: u32) -> Vec<u32> {
    let mut message = [0; TCMSG];
    message[4..8].copy_from_slice(&ifindex.to_ne_bytes());
    message[12..16].copy_from_slice(&parent.to_ne_bytes());
    let mut programs = Vec::new();
    let listed = requests.dump(RTM_GETTFILTER, &message, |kind, payload| {
        if kind == RTM_NEWTFILTER {
            programs.extend(program_of(payload));
        }
        Ok(())
    });
    if let Err(error) = listed {
        tracing::debug!(%error, "classifiers cannot be listed");
    }
    programs
}

/// The program of a classifier of kind `bpf`.
fn program_of(payload: &[u8]) -> Option<u32> {
    let (mut bpf, mut program) = (false, None);
    for (kind, value) in attributes(payload.get(TCMSG..)?) {
        match kind {
            TCA_KIND => bpf = read_text(value) == "bpf",
            TCA_OPTIONS => {
                program = attributes(value)
                    .find(|(kind, _)| *kind == TCA_BPF_ID)
                    .and_then(|(_, id)| read_u32(id));
            }
            _ => {}
        }
    }
    program.filter(|_| bpf)
}

impl Source for Programs {
    fn next(&self) -> Option<Instant> {
        self.next
    }

    fn quiet_until(&self) -> Instant {
        self.earliest
    }

    fn work(&mut self, _: bool) {
        let now = Instant::now();
        self.refresh();
        let end = Instant::now();
        self.earliest = end + PAUSE.max((end - now) * SHARE);
        self.next = Some(next_tick(self.common.interval));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skua_link::Attributes;

    #[test]
    fn classifiers_that_are_no_programs_or_rubbish_are_left_out() {
        let message = |kind: &[u8], options: &[u8]| {
            let attributes = Attributes::default()
                .with(TCA_KIND, kind)
                .with(TCA_OPTIONS, options);
            [&[0; TCMSG][..], attributes.bytes()].concat()
        };
        let options = Attributes::default().with_u32(TCA_BPF_ID, 7);
        assert_eq!(program_of(&message(b"bpf\0", options.bytes())), Some(7));
        assert_eq!(program_of(&message(b"u32\0", options.bytes())), None);
        assert_eq!(program_of(&message(b"bpf\0", &[1, 2, 3])), None);
        assert_eq!(program_of(&[0; 3]), None);
    }
}
