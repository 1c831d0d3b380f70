//! Records of counters samples.

use super::{AgentReport, ETHERNET_COUNTERS, Hello, INTERFACE_COUNTERS, own};
use crate::{DecodeError, reader::Reader};

/// Counters of an interface (RFC 2233); all but those in octets wrap after 2³². A counter that the
/// agent does not have is all ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct InterfaceCounters {
    /// ifIndex.
    pub index: u32,
    /// ifType, by IANA's numbers.
    pub kind: u32,
    /// Bits per second.
    pub speed: u64,
    /// 0 unknown, 1 full duplex, 2 half duplex, 3 in, 4 out.
    pub direction: u32,
    /// Bit 0: ifAdminStatus is up; bit 1: ifOperStatus is up.
    pub status: u32,
    /// Received octets.
    pub in_octets: u64,
    /// Received unicast packets.
    pub in_unicast: u32,
    /// Received multicast packets.
    pub in_multicast: u32,
    /// Received broadcast packets.
    pub in_broadcast: u32,
    /// Received packets that were dropped.
    pub in_discards: u32,
    /// Received packets with errors.
    pub in_errors: u32,
    /// Received packets of unknown protocols.
    pub in_unknown_protocols: u32,
    /// Sent octets.
    pub out_octets: u64,
    /// Sent unicast packets.
    pub out_unicast: u32,
    /// Sent multicast packets.
    pub out_multicast: u32,
    /// Sent broadcast packets.
    pub out_broadcast: u32,
    /// Packets that were dropped instead of sent.
    pub out_discards: u32,
    /// Packets that could not be sent because of errors.
    pub out_errors: u32,
    /// Whether it is promiscuous (1) or not (2, by some 0).
    pub promiscuous: u32,
}

/// Counters of an Ethernet interface (RFC 2358).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EthernetCounters {
    /// Frames with alignment errors.
    pub alignment_errors: u32,
    /// Frames with a wrong frame check sequence.
    pub fcs_errors: u32,
    /// Frames sent after a single collision.
    pub single_collisions: u32,
    /// Frames sent after several collisions.
    pub multiple_collisions: u32,
    /// SQE test errors.
    pub sqe_test_errors: u32,
    /// Frames whose first transmission was delayed.
    pub deferred: u32,
    /// Late collisions.
    pub late_collisions: u32,
    /// Frames not sent because of too many collisions.
    pub excessive_collisions: u32,
    /// Frames not sent because of an internal error.
    pub mac_transmit_errors: u32,
    /// Times that the carrier was lost.
    pub carrier_sense_errors: u32,
    /// Frames that were too long.
    pub too_long: u32,
    /// Frames not received because of an internal error.
    pub mac_receive_errors: u32,
    /// Symbol errors.
    pub symbol_errors: u32,
}

/// A record of a counters sample.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Counters {
    /// Of an interface.
    Interface(InterfaceCounters),
    /// Of an Ethernet interface.
    Ethernet(EthernetCounters),
    /// Of Skua: the agent's exported sums.
    Agent(AgentReport),
    /// Of Skua: whether a collector is reachable.
    Hello(Hello),
    /// Of Skua: the seal of the datagram, which the receiver checks.
    Seal,
    /// An unsupported record.
    Other {
        /// Its tag, see [`tag`](super::tag).
        tag: u32,
    },
}

pub(super) fn decode(tag: u32, mut body: Reader<'_>) -> Result<Counters, DecodeError> {
    Ok(match tag {
        INTERFACE_COUNTERS => Counters::Interface(InterfaceCounters::decode(&mut body)?),
        ETHERNET_COUNTERS => Counters::Ethernet(EthernetCounters::decode(&mut body)?),
        own::AGENT => Counters::Agent(AgentReport::decode(&mut body)?),
        own::SEAL => Counters::Seal,
        own::HELLO => Counters::Hello(Hello::decode(&mut body)?),
        tag => Counters::Other { tag },
    })
}

impl InterfaceCounters {
    fn decode(body: &mut Reader<'_>) -> Result<Self, DecodeError> {
        const WHAT: &str = "interface counters";
        Ok(Self {
            index: body.u32(WHAT)?,
            kind: body.u32(WHAT)?,
            speed: body.u64(WHAT)?,
            direction: body.u32(WHAT)?,
            status: body.u32(WHAT)?,
            in_octets: body.u64(WHAT)?,
            in_unicast: body.u32(WHAT)?,
            in_multicast: body.u32(WHAT)?,
            in_broadcast: body.u32(WHAT)?,
            in_discards: body.u32(WHAT)?,
            in_errors: body.u32(WHAT)?,
            in_unknown_protocols: body.u32(WHAT)?,
            out_octets: body.u64(WHAT)?,
            out_unicast: body.u32(WHAT)?,
            out_multicast: body.u32(WHAT)?,
            out_broadcast: body.u32(WHAT)?,
            out_discards: body.u32(WHAT)?,
            out_errors: body.u32(WHAT)?,
            promiscuous: body.u32(WHAT)?,
        })
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.index.to_be_bytes());
        out.extend_from_slice(&self.kind.to_be_bytes());
        out.extend_from_slice(&self.speed.to_be_bytes());
        out.extend_from_slice(&self.direction.to_be_bytes());
        out.extend_from_slice(&self.status.to_be_bytes());
        out.extend_from_slice(&self.in_octets.to_be_bytes());
        out.extend_from_slice(&self.in_unicast.to_be_bytes());
        out.extend_from_slice(&self.in_multicast.to_be_bytes());
        out.extend_from_slice(&self.in_broadcast.to_be_bytes());
        out.extend_from_slice(&self.in_discards.to_be_bytes());
        out.extend_from_slice(&self.in_errors.to_be_bytes());
        out.extend_from_slice(&self.in_unknown_protocols.to_be_bytes());
        out.extend_from_slice(&self.out_octets.to_be_bytes());
        out.extend_from_slice(&self.out_unicast.to_be_bytes());
        out.extend_from_slice(&self.out_multicast.to_be_bytes());
        out.extend_from_slice(&self.out_broadcast.to_be_bytes());
        out.extend_from_slice(&self.out_discards.to_be_bytes());
        out.extend_from_slice(&self.out_errors.to_be_bytes());
        out.extend_from_slice(&self.promiscuous.to_be_bytes());
    }
}

impl EthernetCounters {
    fn decode(body: &mut Reader<'_>) -> Result<Self, DecodeError> {
        const WHAT: &str = "Ethernet counters";
        Ok(Self {
            alignment_errors: body.u32(WHAT)?,
            fcs_errors: body.u32(WHAT)?,
            single_collisions: body.u32(WHAT)?,
            multiple_collisions: body.u32(WHAT)?,
            sqe_test_errors: body.u32(WHAT)?,
            deferred: body.u32(WHAT)?,
            late_collisions: body.u32(WHAT)?,
            excessive_collisions: body.u32(WHAT)?,
            mac_transmit_errors: body.u32(WHAT)?,
            carrier_sense_errors: body.u32(WHAT)?,
            too_long: body.u32(WHAT)?,
            mac_receive_errors: body.u32(WHAT)?,
            symbol_errors: body.u32(WHAT)?,
        })
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.alignment_errors.to_be_bytes());
        out.extend_from_slice(&self.fcs_errors.to_be_bytes());
        out.extend_from_slice(&self.single_collisions.to_be_bytes());
        out.extend_from_slice(&self.multiple_collisions.to_be_bytes());
        out.extend_from_slice(&self.sqe_test_errors.to_be_bytes());
        out.extend_from_slice(&self.deferred.to_be_bytes());
        out.extend_from_slice(&self.late_collisions.to_be_bytes());
        out.extend_from_slice(&self.excessive_collisions.to_be_bytes());
        out.extend_from_slice(&self.mac_transmit_errors.to_be_bytes());
        out.extend_from_slice(&self.carrier_sense_errors.to_be_bytes());
        out.extend_from_slice(&self.too_long.to_be_bytes());
        out.extend_from_slice(&self.mac_receive_errors.to_be_bytes());
        out.extend_from_slice(&self.symbol_errors.to_be_bytes());
    }
}
