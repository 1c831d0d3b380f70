//! The receiver of sFlow version 5.

mod headers;

use std::{collections::HashMap, net::SocketAddr, sync::Arc};

use skua_flow::{
    AddressSet, Ageing, CapturePoint, Cause, Drained, FlowTable, FlowUpdate, Joins, PointCounters,
    Sampled, TableConfig,
};
use skua_packet::{Frame, LinkType};
use skua_wire::{
    DecodeError, Sequence,
    sflow::{
        self, Counters, CountersSample, EthernetCounters, FlowSample, InterfaceCounters, Record,
        Sample, header_protocol,
    },
};

use super::{
    DatagramProbe, ReceiveCause, Received, ReceiverConfig,
    engine::Engine,
    exporters::{Exporters, Identity, Passed, plain_name},
};
use crate::{ProbeError, Selection, Watched};
use headers::Headers;

/// The most streams (agent and sub-agent) whose sequence numbers are followed, and the most
/// interfaces whose counters are kept.
const MOST_STREAMS: usize = 16_384;

/// A receiver of sFlow.
pub type SflowProbe = DatagramProbe<Sflow>;

impl SflowProbe {
    /// Listens.
    ///
    /// # Errors
    ///
    /// When that is not possible there, or the filter is wrong.
    pub fn start(config: ReceiverConfig) -> Result<Self, ProbeError> {
        let engine = Sflow::new(&config)?;
        Self::with_engine(config, engine)
    }

    /// Where the latest counters of the agents' interfaces can be read.
    pub fn counters(&self) -> SflowCounters {
        SflowCounters(self.reader(Sflow::latest_counters))
    }
}

/// The latest counters that agents sent; clones read the same.
#[derive(Clone)]
pub struct SflowCounters(Arc<dyn Fn() -> Vec<InterfaceSample> + Send + Sync>);

impl SflowCounters {
    /// Of each interface the latest.
    pub fn latest(&self) -> Vec<InterfaceSample> {
        self.0()
    }
}

/// Counters of an interface of an agent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InterfaceSample {
    /// The agent's number, as in flow keys.
    pub exporter: u16,
    /// The agent's address.
    pub agent: std::net::IpAddr,
    /// ifIndex.
    pub ifindex: u32,
    /// When they came, ns since the Unix epoch.
    pub at_ns: u64,
    /// Its counters.
    pub interface: InterfaceCounters,
    /// Counters of Ethernet, if it has sent some.
    pub ethernet: Option<EthernetCounters>,
}

/// Counts the samples of sFlow datagrams.
pub struct Sflow {
    flows: FlowTable,
    exporters: Exporters,
    streams: HashMap<(u16, u32), Sequence>,
    counters: HashMap<(u16, u32), InterfaceSample>,
    /// By what the samples have of the packets. Their agents have chosen one of N.
    selection: Selection,
}

/// The agent of the datagram that is read.
struct Agent {
    number: u16,
    identity: Identity,
    now_ns: u64,
}

impl Sflow {
    fn new(config: &ReceiverConfig) -> Result<Self, ProbeError> {
        let mut flows = FlowTable::new(&TableConfig {
            max_entries: config.table.max_entries as usize,
            idle_timeout: Some(config.table.idle_timeout),
            tunnels: config.table.tunnels,
            seed: config.table.hash_seed,
        });
        flows.remember_interfaces();
        Ok(Self {
            flows,
            exporters: Exporters::default(),
            streams: HashMap::new(),
            counters: HashMap::new(),
            selection: Selection::new(&config.table.filter, 1, 1)?,
        })
    }

    fn latest_counters(&self) -> Vec<InterfaceSample> {
        self.counters.values().copied().collect()
    }

    fn read(
        &mut self,
        from: SocketAddr,
        bytes: &[u8],
        now_ns: u64,
        received: &mut Received,
    ) -> Result<(), DecodeError> {
        let datagram = sflow::decode(bytes)?;
        let header = &datagram.header;
        let identity = Identity {
            from: from.ip(),
            agent: header.agent.to_canonical(),
        };
        let Some(number) = self.exporters.number(identity) else {
            received.lose(ReceiveCause::ExportersFull, 1);
            return Ok(());
        };
        let stream = (number, header.sub_agent);
        if self.streams.len() < MOST_STREAMS || self.streams.contains_key(&stream) {
            let boot_ms = (now_ns / 1_000_000).saturating_sub(header.uptime_ms.into());
            let sequence = self.streams.entry(stream).or_default();
            received.step(sequence.step(header.sequence, 1, Some(boot_ms)));
        }
        let agent = Agent {
            number,
            identity,
            now_ns,
        };
        let mut wrong = Ok(());
        for sample in datagram.samples() {
            let done = sample.and_then(|sample| match sample {
                Sample::Flow(sample) => self.flow_sample(&agent, &sample, received),
                Sample::Counters(sample) => self.counters_sample(&agent, &sample, received),
                Sample::Other { .. } => {
                    received.skipped += 1;
                    Ok(())
                }
            });
            // What is wrong in one sample does not hide the next.
            wrong = wrong.and(done);
        }
        wrong
    }

    fn flow_sample(
        &mut self,
        agent: &Agent,
        sample: &FlowSample<'_>,
        received: &mut Received,
    ) -> Result<(), DecodeError> {
        let (mut raw, mut headers) = (None, Headers::default());
        let (mut wrong, mut has_conversation) = (Ok(()), false);
        for record in sample.records() {
            match record {
                Ok(Record::RawHeader(header)) => raw = link_type(header.protocol).zip(Some(header)),
                Ok(Record::Ethernet(frame)) => headers.ethernet = Some(frame),
                Ok(Record::Ip(ip)) => headers.ip = Some(ip),
                Ok(
                    Record::Switch(_)
                    | Record::Router(_)
                    | Record::Timestamp(_)
                    | Record::Socket(_)
                    | Record::TcpInfo(_)
                    | Record::ConversationTcp(_)
                    | Record::Names(_)
                    | Record::Reverse
                    | Record::SocketTcp(_),
                ) => {}
                Ok(Record::Conversation(_)) => has_conversation = true,
                Ok(Record::Other { .. }) => received.skipped += 1,
                Err(error) => wrong = wrong.and(Err(error)),
            }
        }
        // Of others 0 is a rate that they do not know; another Skua says so that a conversation has ended.
        if has_conversation && sample.head.rate == 0 {
            received.records += 1;
            return wrong;
        }
        let mut made = headers::Buffer::default();
        let frame = match raw {
            Some((link, header)) => Some(Frame {
                data: header.header,
                wire_len: header.wire_len(),
                link,
                stripped_vlan: None,
                segments: 1,
            }),
            None => headers.frame(&mut made),
        };
        match frame {
            Some(frame) => {
                received.records += 1;
                self.packet(agent, &sample.head, frame, has_conversation);
            }
            None => received.lose(ReceiveCause::NoPacket, 1),
        }
        wrong
    }

    /// Counts a sampled packet. `knows_interfaces`: its agent says where it was counted, whether or not it knows where
    /// else it passed.
    fn packet(
        &mut self,
        agent: &Agent,
        head: &sflow::FlowHead,
        frame: Frame<'_>,
        knows_interfaces: bool,
    ) {
        let rate = head.rate.max(1);
        let (input, output) = (head.input.index(), head.output.index());
        let source = head.source.interface();
        let sampled_going_out = source.is_some() && source == output && source != input;
        let passed = Passed {
            exporter: agent.number,
            input: source.or(input),
            output,
            counted_at_output: sampled_going_out,
            knows_interfaces,
        };
        let (point, joins) = self.exporters.places(&passed, rate);
        let exporters = &self.exporters;
        let may_be = |ifindex| !exporters.counts_egress(agent.number, ifindex);
        let verdict = self.selection.verdict(&frame, None);
        let sampled = Sampled {
            point,
            joins: Joins {
                next: joins.next,
                unknown: joins.unknown,
                anywhere: joins.anywhere.then_some(&may_be),
            },
            frame,
            now_ns: agent.now_ns,
            rate,
        };
        match verdict {
            Ok(None) => {
                self.flows.sampled(&sampled);
            }
            Ok(Some(cause)) => self.flows.leave_out_sampled(&sampled, cause),
            // The filter means nothing without an Ethernet header.
            Err(_) => self.flows.leave_out_sampled(&sampled, Cause::NoDecode),
        }
    }

    fn counters_sample(
        &mut self,
        agent: &Agent,
        sample: &CountersSample<'_>,
        received: &mut Received,
    ) -> Result<(), DecodeError> {
        received.others += 1;
        let (mut interface, mut ethernet) = (None, None);
        for record in sample.records() {
            match record? {
                Counters::Interface(counters) => interface = Some(counters),
                Counters::Ethernet(counters) => ethernet = Some(counters),
                Counters::Agent(_) | Counters::Seal => {}
                Counters::Hello(_) | Counters::Other { .. } => received.skipped += 1,
            }
        }
        let Some(interface) = interface else {
            return Ok(());
        };
        let ifindex = sample.head.source.interface().unwrap_or(interface.index);
        let key = (agent.number, ifindex);
        if self.counters.len() < MOST_STREAMS || self.counters.contains_key(&key) {
            // So that it has a name.
            self.exporters.port(agent.number, ifindex);
            let sample = InterfaceSample {
                exporter: agent.number,
                agent: agent.identity.agent,
                ifindex,
                at_ns: agent.now_ns,
                interface,
                ethernet,
            };
            self.counters.insert(key, sample);
        }
        Ok(())
    }
}

/// How a raw header begins, if it is decoded.
fn link_type(protocol: u32) -> Option<LinkType> {
    match protocol {
        header_protocol::ETHERNET => Some(LinkType::Ethernet),
        header_protocol::IPV4 | header_protocol::IPV6 => Some(LinkType::RawIp),
        _ => None,
    }
}

/// The update with the rate at its capture point.
pub(super) fn with_rate(exporters: &Exporters, update: &FlowUpdate) -> FlowUpdate {
    let rate = exporters.rate(update.key.netns, update.key.ifindex);
    FlowUpdate {
        sampling: if rate > 1 { rate } else { 0 },
        ..*update
    }
}

impl Engine for Sflow {
    const NAME: &'static str = "sflow";

    fn datagram(&mut self, from: SocketAddr, bytes: &[u8], now_ns: u64, received: &mut Received) {
        if let Err(error) = self.read(from, bytes, now_ns, received) {
            received.unreadable(from, error);
        }
        received.exporters = self.exporters.len() as u64;
    }

    fn live(&self) -> usize {
        self.flows.len()
    }

    fn inserted(&self) -> u64 {
        self.flows.inserted()
    }

    fn drain(
        &mut self,
        ageing: &Ageing,
        _: &mut Received,
        sink: &mut dyn FnMut(&FlowUpdate),
    ) -> Drained {
        let exporters = &self.exporters;
        self.flows
            .drain_aged(ageing, |update| sink(&with_rate(exporters, update)))
    }

    fn finish(&mut self, _: &mut Received, sink: &mut dyn FnMut(&FlowUpdate)) -> Drained {
        let exporters = &self.exporters;
        self.flows
            .finish(|update| sink(&with_rate(exporters, update)))
    }

    fn points(&self, take: &mut dyn FnMut(CapturePoint, &PointCounters)) {
        for (point, counters) in self.flows.points() {
            take(point, counters);
        }
    }

    fn interfaces(&self) -> Vec<Watched> {
        self.exporters
            .watched(|identity, ifindex| plain_name("agent", identity, ifindex))
    }

    fn set_addresses(&mut self, set: Arc<AddressSet>) {
        self.flows.set_addresses(set);
    }
}
