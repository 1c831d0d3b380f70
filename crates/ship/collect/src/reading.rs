//! The records of a flow sample, combined.

use skua_wire::{
    DecodeError,
    sflow::{
        Conversation, ConversationTcp, FlowSample, Names as NamesRecord, Record, SocketTcp,
        own::{flags, service},
    },
};

use crate::{
    conversation::{BYTES, PACKETS, REFUSED, RESET, RETRANSMITTED, Reported, TIMED_OUT},
    key::{Oriented, Rule},
    names::{Defined, NONE, Names},
    sampled::Packet,
    window::LineKey,
};

const SYN: u8 = 0x02;
const RST: u8 = 0x04;

/// A flow sample.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    pub(crate) packet: Option<Packet>,
    pub(crate) seen_ns: Option<u64>,
    pub(crate) conversation: Option<Conversation>,
    /// Its packets are in the conversation of the sample before.
    pub(crate) is_reverse: bool,
    pub(crate) tcp: Option<ConversationTcp>,
    pub(crate) socket: Option<SocketTcp>,
    /// Of source and destination.
    pub(crate) names: [u32; 2],
    /// Records that were stepped over.
    pub(crate) skipped: u64,
    /// Names beyond the limit.
    pub(crate) nameless: u64,
}

impl Reading {
    /// Reads all records of a sample, also those behind a faulty one.
    #[inline]
    pub(crate) fn of(
        sample: &FlowSample<'_>,
        names: &mut Names,
        defined: &mut Defined,
    ) -> (Self, Result<(), DecodeError>) {
        let (mut read, mut wrong) = (Self::default(), Ok(()));
        for record in sample.records() {
            match record {
                Ok(Record::RawHeader(raw)) => {
                    read.packet = Packet::of_header(&raw).or(read.packet);
                }
                Ok(Record::Ip(ip)) => read.packet = read.packet.or(Packet::of_ip(&ip)),
                Ok(Record::Timestamp(ns)) => read.seen_ns = Some(ns),
                Ok(Record::Conversation(record)) => read.conversation = Some(record),
                Ok(Record::Reverse) => read.is_reverse = true,
                Ok(Record::ConversationTcp(record)) => read.tcp = Some(record),
                Ok(Record::SocketTcp(record)) => read.socket = Some(record),
                Ok(Record::Names(record)) => {
                    wrong = wrong.and(read.read_names(&record, names, defined));
                }
                Ok(Record::Other { .. }) => read.skipped += 1,
                Ok(_) => {}
                Err(error) => wrong = wrong.and(Err(error)),
            }
        }
        (read, wrong)
    }

    fn read_names(
        &mut self,
        record: &NamesRecord<'_>,
        names: &mut Names,
        defined: &mut Defined,
    ) -> Result<(), DecodeError> {
        for definition in record.definitions() {
            let (number, name) = definition?;
            let found = names.number(name.service());
            self.nameless += u64::from(found.is_none());
            defined.define(number, found.unwrap_or(NONE));
        }
        self.names = record.sides.map(|number| defined.of(number));
        Ok(())
    }

    /// The record of a conversation, with its pairs in the order of addresses and ports.
    pub(crate) fn reported(
        &self,
        stream: u32,
        packet: &Packet,
        conversation: &Conversation,
        last_ns: u64,
    ) -> Reported {
        let [source, destination] = packet.sides;
        let turned = source > destination;
        let factor = u64::from(conversation.sampling.max(1));
        let pair = |[source, destination]: [u64; 2]| match turned {
            false => [source, destination].map(|value| value.saturating_mul(factor)),
            true => [destination, source].map(|value| value.saturating_mul(factor)),
        };
        let mut total = [0; 6];
        total[PACKETS..BYTES].copy_from_slice(&pair(conversation.packets));
        total[BYTES..RETRANSMITTED].copy_from_slice(&pair(conversation.bytes));
        if let Some(tcp) = &self.tcp {
            let sums = pair(tcp.counters.retransmitted.map(u64::from));
            total[RETRANSMITTED..].copy_from_slice(&sums);
        }
        let mut new = [0; 4];
        new[PACKETS..BYTES].copy_from_slice(&pair(conversation.new_packets.map(u64::from)));
        new[BYTES..].copy_from_slice(&pair(conversation.new_bytes.map(u64::from)));
        let (oriented, rule) = oriented(packet, conversation, turned);
        let handshake_ns = self
            .tcp
            .map_or(0, |tcp| match (tcp.server_rtt_ns, tcp.client_rtt_ns) {
                (0, _) | (_, 0) => 0,
                (server, client) => u64::from(server) + u64::from(client),
            });
        let names = match turned == oriented.client_first {
            true => [self.names[1], self.names[0]],
            false => self.names,
        };
        Reported {
            stream,
            id: conversation.id,
            tracking_id: conversation.tracking_id,
            first: conversation.flags & flags::FIRST != 0,
            moved: conversation.flags & flags::MOVED != 0,
            delta: false,
            ended: matches!(conversation.end, 1 | 2),
            how: self.tcp.and_then(|tcp| how_it_ended(&tcp, conversation)),
            first_ns: conversation.first_ns,
            last_ns,
            total,
            new,
            handshake_ns,
            srtt_ns: self.socket.map_or(0, |tcp| u64::from(tcp.srtt_us) * 1_000),
            rule,
            key: LineKey {
                key: oriented.key,
                names,
            },
            client_first: oriented.client_first,
        }
    }
}

/// The server's side, as the agent reported it.
fn oriented(packet: &Packet, conversation: &Conversation, turned: bool) -> (Oriented, Rule) {
    let [source, destination] = packet.sides;
    let serves = match (
        conversation.service & service::SOURCE != 0,
        conversation.service & service::DESTINATION != 0,
    ) {
        (false, true) => Some(true),
        (true, false) => Some(false),
        _ => None,
    };
    let rule = match serves {
        Some(_) => Rule::of(conversation.service & service::RULE),
        None => Rule::Unknown,
    };
    let serves = serves.filter(|_| rule != Rule::Unknown);
    let sides = match turned {
        false => [source, destination],
        true => [destination, source],
    };
    let oriented = Oriented::new(packet.protocol, sides, serves.map(|to| to != turned));
    (oriented, rule)
}

/// The sum that the end of a TCP conversation also adds to.
fn how_it_ended(tcp: &ConversationTcp, conversation: &Conversation) -> Option<usize> {
    let [source, destination] = tcp.flags;
    // The answer to the side that opened.
    let answer = match (source & SYN != 0, destination & SYN != 0) {
        (true, false) => Some((destination, conversation.packets[1])),
        (false, true) => Some((source, conversation.packets[0])),
        _ => None,
    };
    let opened = conversation.flags & (flags::SOURCE_OPENED | flags::DESTINATION_OPENED) != 0;
    match answer {
        Some((flags, _)) if opened && flags & RST != 0 => Some(REFUSED),
        Some((_, 0)) if opened => Some(TIMED_OUT),
        _ if (source | destination) & RST != 0 => Some(RESET),
        _ => None,
    }
}
