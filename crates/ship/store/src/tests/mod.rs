//! Tests.

mod damage;
mod flows;
mod graph;
mod limits;
mod lock;

use crate::{
    FlowBatch, FlowChange, FlowContext, FlowLookup, Limits, Store, StoreConfig, StoredFlow,
};
use proptest::prelude::*;
use skua_flow::{
    ConversationOwner, Counters, EndReason, FlowKey, FlowRecord, FlowUpdate, Service, ServiceRule,
    TcpUpdate,
};
use skua_record::TcpCounters;
use std::{ops::ControlFlow, path::Path, time::Duration};

pub const PATIENCE: Duration = Duration::from_secs(60);
/// Ns since the Unix epoch, where tests begin.
pub const BEGIN: u64 = 1_714_564_800_000_000_000;
pub const SECOND: u64 = 1_000_000_000;

/// A directory in memory if possible: a busy disk makes hundreds of stores slow.
pub fn memory_dir() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| tempfile::tempdir().unwrap())
}

pub fn open(dir: &Path, config: StoreConfig) -> Store {
    Store::open(dir, config).unwrap()
}

/// A store with this limit for flows and for events.
pub fn bounded(bytes: u64) -> StoreConfig {
    let limits = Limits {
        max_bytes: bytes,
        ..StoreConfig::default().flows
    };
    StoreConfig {
        graph: limits,
        flows: limits,
        gather: Duration::from_millis(1),
        ..StoreConfig::default()
    }
}

/// A change with all that belongs to it.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    pub record: FlowRecord,
    pub added: [Counters; 2],
    pub since_ns: u64,
    pub texts: [String; 4],
    pub parties: [(String, u32, Option<u32>); 2],
    /// Which conversation of those with this identifier.
    pub instance: usize,
}

impl Row {
    pub fn change(&self) -> FlowChange<'_> {
        let [host, capture, node_tid, interface] = self.texts.each_ref().map(String::as_str);
        FlowChange {
            record: &self.record,
            added: self.added,
            since_ns: self.since_ns,
            context: FlowContext {
                host,
                capture,
                node_tid,
                interface,
            },
            parties: self
                .parties
                .each_ref()
                .map(|(name, pid, uid)| ConversationOwner {
                    process: name,
                    pid: *pid,
                    user: "root",
                    uid: *uid,
                    container: "",
                    pod: name,
                    unit: "",
                }),
        }
    }

    /// The row as read back.
    pub fn stored(&self) -> StoredFlow<'_> {
        let FlowChange {
            record,
            added,
            since_ns,
            context,
            parties,
        } = self.change();
        StoredFlow {
            record: FlowRecord {
                owners: [None; 2],
                ..*record
            },
            added,
            since_ns,
            context,
            parties,
            ahead: false,
        }
    }
}

pub fn append<'a>(store: &Store, rows: impl IntoIterator<Item = &'a Row>) {
    let mut batch = FlowBatch::new();
    for row in rows {
        batch.push(&row.change());
    }
    store.flows().append(&mut batch);
    assert!(batch.is_empty());
    assert!(store.flows().flush(PATIENCE));
}

/// Makes changes of flows that follow from one another.
#[derive(Default)]
pub struct Traffic {
    pub now_ns: u64,
    flows: Vec<Option<(FlowRecord, usize)>>,
    instances: Vec<usize>,
}

/// Changes of a flow in a drain.
#[derive(Clone, Debug)]
pub struct Step {
    pub flow: usize,
    pub added: [Counters; 2],
    pub tcp: TcpUpdate,
    pub end: Option<EndReason>,
    pub service: Option<Service>,
    pub names: [String; 2],
    /// Parts of a thousand of the time between drains.
    pub at: [u64; 2],
}

fn counters() -> impl Strategy<Value = Counters> {
    prop_oneof![
        2 => Just(Counters::default()),
        6 => (1..100u64, 40..150_000u64).prop_map(|(p, b)| Counters::new(p, b)),
        1 => any::<(u32, u32)>().prop_map(|(p, b)| Counters::new(p.into(), u64::from(b) << 20)),
    ]
}

pub fn step() -> impl Strategy<Value = Step> {
    let end = prop::sample::select(vec![
        None,
        None,
        None,
        Some(EndReason::Closed),
        Some(EndReason::Idle),
    ]);
    let tcp = (
        any::<[u8; 2]>(),
        any::<[u32; 2]>(),
        any::<u32>(),
        any::<Option<bool>>(),
    )
        .prop_map(|(flags, pair, rtt, lo_opened)| TcpUpdate {
            flags,
            counters: TcpCounters {
                retransmitted: pair,
                out_of_order: [0, pair[1] % 3],
                zero_window: [pair[0] % 2, 0],
            },
            server_rtt_ns: rtt.into(),
            client_rtt_ns: 0,
            lo_opened,
            syn_ttl: flags,
            syn_ns: [u64::from(rtt) << 8, 0],
            fin_ns: [0, u64::from(pair[0])],
            skipped: [pair[0] % 3, pair[1] % 2],
            skipped_bytes: pair.map(u64::from),
            ..TcpUpdate::default()
        });
    let service = prop::option::of((any::<bool>(), 0..5usize)).prop_map(|service| {
        let rules = [
            ServiceRule::Kernel,
            ServiceRule::Listening,
            ServiceRule::Syn,
            ServiceRule::Ephemeral,
            ServiceRule::WellKnown,
        ];
        service.map(|(lo, by)| Service { lo, by: rules[by] })
    });
    let name =
        || prop::sample::select(vec!["", "nginx", "curl", "🦜 pärrot"]).prop_map(String::from);
    (
        0..12usize,
        [counters(), counters()],
        tcp,
        end,
        service,
        [name(), name()],
        [0..1_000u64, 0..1_000u64],
    )
        .prop_map(|(flow, added, tcp, end, service, names, at)| Step {
            flow,
            added,
            tcp,
            end,
            service,
            names,
            at,
        })
}

pub const CAPTURES: usize = 2;

fn key(flow: usize) -> FlowKey {
    let mut key = FlowKey {
        ifindex: 2 + (flow % CAPTURES) as u32,
        proto: 6,
        kind: 1 | 1 << 2,
        lo_port: (40_000 + flow as u16).to_be_bytes(),
        hi_port: 443u16.to_be_bytes(),
        ..FlowKey::default()
    };
    if flow % 5 == 4 {
        key.kind = 2 | 1 << 2;
        key.lo[..2].copy_from_slice(&[0x20, 0x01]);
        key.hi = key.lo;
        (key.lo[15], key.hi[15]) = (1, flow as u8);
    } else {
        for address in [&mut key.lo, &mut key.hi] {
            address[10..12].copy_from_slice(&[0xff; 2]);
            address[12] = 10;
        }
        (key.lo[15], key.hi[15]) = (1, 2 + (flow % 3) as u8);
    }
    key
}

impl Traffic {
    pub fn new() -> Self {
        Self {
            now_ns: BEGIN,
            ..Self::default()
        }
    }

    /// The changes of a drain, `seconds` after the last one. Each flow occurs once.
    pub fn drain(&mut self, seconds: u64, steps: &[Step]) -> Vec<Row> {
        let (before, interval) = (self.now_ns, seconds * SECOND);
        self.now_ns += interval;
        let mut rows: Vec<Row> = Vec::new();
        for step in steps {
            let key = key(step.flow);
            if rows.iter().any(|row| row.record.key == key) {
                continue;
            }
            rows.push(self.row(step, key, before, interval));
        }
        rows
    }

    fn row(&mut self, step: &Step, key: FlowKey, before: u64, interval: u64) -> Row {
        if self.flows.len() <= step.flow {
            self.flows.resize(step.flow + 1, None);
            self.instances.resize(step.flow + 1, 0);
        }
        let mut at = step.at.map(|part| before + 1 + interval / 1_000 * part);
        at.sort_unstable();
        let mut added = step.added;
        if self.flows[step.flow].is_none() && added.iter().all(Counters::is_zero) {
            added[0] = Counters::new(1, 60);
        }
        let quiet = added.iter().all(Counters::is_zero);
        let update = FlowUpdate {
            key,
            lo_sent: added[0],
            hi_sent: added[1],
            lo_first: step.flow.is_multiple_of(2),
            first_ns: at[0],
            last_ns: at[1],
            tunnel_id: 0,
            parent: 0,
            tcp: step.tcp,
            link: skua_flow::LinkUpdate {
                macs: [[2; 6], [4, 0, 0, 0, 0, step.flow as u8]],
                labels: [None, Some(step.flow as u32)],
                ..skua_flow::LinkUpdate::default()
            },
            fragments: added[0].packets % 2,
            carries: skua_flow::Carries((step.flow % 7) as u8),
            end: step.end,
            sampling: 1,
            // They are not stored.
            directions: skua_flow::Directions::default(),
        };
        let (mut record, instance, since_ns) = match self.flows[step.flow] {
            None => {
                self.instances[step.flow] += 1;
                let mut record = FlowRecord::new(&update, 7, 1, self.now_ns, interval);
                record.serial = (step.flow << 32 | self.instances[step.flow]) as u64;
                (record, self.instances[step.flow], at[0])
            }
            Some((mut record, instance)) => {
                let since = record.last_ns;
                let last_ns = if quiet { since } else { at[1] };
                let update = FlowUpdate {
                    last_ns,
                    first_ns: record.first_ns,
                    ..update
                };
                record.apply(&update, self.now_ns, interval);
                (record, instance, since)
            }
        };
        record.service = step.service;
        self.flows[step.flow] = step.end.is_none().then_some((record, instance));
        let capture = step.flow % CAPTURES;
        Row {
            record,
            added,
            since_ns,
            texts: [
                "host".to_owned(),
                format!("capture-{capture}"),
                format!("tid-{capture}"),
                format!("eth{capture}"),
            ],
            parties: step.names.clone().map(|name| {
                (
                    name,
                    step.flow as u32,
                    (step.flow.is_multiple_of(3)).then_some(0),
                )
            }),
            instance,
        }
    }
}

/// Steps without chance.
pub fn plain_step(flow: usize) -> Step {
    Step {
        flow,
        added: [Counters::new(3, 1_800), Counters::new(2, 300)],
        tcp: TcpUpdate::default(),
        end: None,
        service: None,
        names: ["curl".into(), "".into()],
        at: [100, 900],
    }
}

pub fn all_flows(store: &Store) -> usize {
    let mut found = 0;
    store.flows().scan(0, u64::MAX, FlowLookup::All, &mut |_| {
        found += 1;
        ControlFlow::Continue(())
    });
    found
}
