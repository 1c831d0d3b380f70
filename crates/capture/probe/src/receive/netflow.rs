//! The receiver of NetFlow versions 5 and 9 and of IPFIX, on one port.

use std::{net::SocketAddr, sync::Arc};

use skua_flow::{
    AddressSet, Ageing, CapturePoint, Cause, Counters, Drained, FlowUpdate, Joins, PointCounters,
    Ports,
};
use skua_wire::netflow::Decoder;

use super::{
    DatagramProbe, ReceiveCause, Received, ReceiverConfig,
    conversations::{ConversationRecord, Conversations},
    engine::Engine,
    exporters::{Exporters, Identity, Passed, exporter_name, plain_name},
    sflow::with_rate,
};
use crate::{ProbeError, Watched};

const TCP: u8 = 6;

/// A receiver of NetFlow and IPFIX.
pub type NetflowProbe = DatagramProbe<Netflow>;

impl NetflowProbe {
    /// Listens.
    ///
    /// # Errors
    ///
    /// When that is not possible there.
    pub fn start(config: ReceiverConfig) -> Result<Self, ProbeError> {
        let engine = Netflow::new(&config);
        Self::with_engine(config, engine)
    }
}

/// Counts the flows of NetFlow and IPFIX.
pub struct Netflow {
    decoder: Decoder,
    conversations: Conversations,
    exporters: Exporters,
}

impl Netflow {
    fn new(config: &ReceiverConfig) -> Self {
        Self {
            decoder: Decoder::default(),
            conversations: Conversations::new(config.table.max_entries as usize),
            exporters: Exporters::default(),
        }
    }
}

impl Engine for Netflow {
    const NAME: &'static str = "netflow";

    fn datagram(&mut self, from: SocketAddr, bytes: &[u8], now_ns: u64, received: &mut Received) {
        let Self {
            decoder,
            conversations,
            exporters,
        } = self;
        let identity = Identity {
            from: from.ip(),
            agent: from.ip(),
        };
        // An exporter gets a number with its first flow only.
        let mut number = None;
        let outcome = decoder.decode(from, bytes, now_ns, &mut |flow, section| {
            let Some(exporter) = *number.get_or_insert_with(|| exporters.number(identity)) else {
                return;
            };
            let known = |ifindex: u32| (ifindex != 0).then_some(ifindex);
            let passed = Passed {
                exporter,
                input: known(flow.input),
                output: known(flow.output),
                counted_at_output: flow.egress,
                knows_interfaces: false,
            };
            let (point, joins) = exporters.places(&passed, flow.sampling);
            let (level, flow) = flow.as_packet(section);
            let rate = u64::from(flow.sampling.max(1));
            let sent = |way: usize| {
                Counters::new(
                    flow.packets[way].saturating_mul(rate),
                    flow.bytes[way].saturating_mul(rate),
                )
            };
            let Some(level) = level else {
                conversations.lose(point, Cause::Truncated, sent(0) + sent(1));
                return;
            };
            let may_be = |ifindex| !exporters.counts_egress(exporter, ifindex);
            let record = ConversationRecord {
                point,
                joins: Joins {
                    next: joins.next,
                    unknown: joins.unknown,
                    anywhere: joins.anywhere.then_some(&may_be),
                },
                ports: Ports::of(&level.transport, level.network),
                level,
                sent: [sent(0), sent(1)],
                tcp_flags: match flow.protocol {
                    TCP => flow.tcp_flags,
                    _ => [0; 2],
                },
                first_ns: flow.first_ns,
                last_ns: flow.last_ns,
                source_opened: flow.opened_by_source(),
                ended: flow.has_ended(),
            };
            conversations.add(&record, now_ns);
        });
        match number {
            Some(None) => received.lose(ReceiveCause::ExportersFull, 1),
            _ => received.records += outcome.flows,
        }
        received.others += outcome.options + outcome.templates;
        received.lose(ReceiveCause::NoTemplate, outcome.no_template.sets);
        received.step(outcome.step);
        received.held = decoder.held() as u64;
        received.exporters = exporters.len() as u64;
        if let Some(error) = outcome.error {
            received.unreadable(from, error);
        }
    }

    fn live(&self) -> usize {
        self.conversations.len()
    }

    fn inserted(&self) -> u64 {
        self.conversations.inserted()
    }

    fn drain(
        &mut self,
        ageing: &Ageing,
        received: &mut Received,
        sink: &mut dyn FnMut(&FlowUpdate),
    ) -> Drained {
        // Also when nothing comes any more.
        received.lose(
            ReceiveCause::NoTemplate,
            self.decoder.expire(ageing.now_ns).sets,
        );
        received.held = self.decoder.held() as u64;
        let exporters = &self.exporters;
        self.conversations
            .drain(ageing, |update| sink(&with_rate(exporters, update)))
    }

    fn finish(&mut self, received: &mut Received, sink: &mut dyn FnMut(&FlowUpdate)) -> Drained {
        received.lose(ReceiveCause::NoTemplate, self.decoder.give_up().sets);
        received.held = 0;
        let exporters = &self.exporters;
        self.conversations
            .finish(|update| sink(&with_rate(exporters, update)))
    }

    fn points(&self, take: &mut dyn FnMut(CapturePoint, &PointCounters)) {
        for (point, counters) in self.conversations.points() {
            take(point, counters);
        }
    }

    fn interfaces(&self) -> Vec<Watched> {
        self.exporters.watched(|identity, ifindex| {
            match self.decoder.interface_name(identity.from, ifindex) {
                Some(name) => format!("{} {name}", exporter_name("exporter", identity)),
                None => plain_name("exporter", identity, ifindex),
            }
        })
    }

    fn set_addresses(&mut self, set: Arc<AddressSet>) {
        self.conversations.set_addresses(set);
    }
}
