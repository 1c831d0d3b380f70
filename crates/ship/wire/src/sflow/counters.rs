//! Records of counters samples.

use super::{AgentReport, ETHERNET_COUNTERS, Hello, INTERFACE_COUNTERS, own, xdr::structure};
use crate::{DecodeError, reader::Reader};

structure! {
    /// Counters of an interface (RFC 2233); all but those in octets wrap after 2³². A counter that the
    /// agent does not have is all ones.
    InterfaceCounters, "interface counters";
    {
        /// ifIndex.
        index: u32,
        /// ifType, by IANA's numbers.
        kind: u32,
        /// Bits per second.
        speed: u64,
        /// 0 unknown, 1 full duplex, 2 half duplex, 3 in, 4 out.
        direction: u32,
        /// Bit 0: ifAdminStatus is up; bit 1: ifOperStatus is up.
        status: u32,
        /// Received octets.
        in_octets: u64,
        /// Received unicast packets.
        in_unicast: u32,
        /// Received multicast packets.
        in_multicast: u32,
        /// Received broadcast packets.
        in_broadcast: u32,
        /// Received packets that were dropped.
        in_discards: u32,
        /// Received packets with errors.
        in_errors: u32,
        /// Received packets of unknown protocols.
        in_unknown_protocols: u32,
        /// Sent octets.
        out_octets: u64,
        /// Sent unicast packets.
        out_unicast: u32,
        /// Sent multicast packets.
        out_multicast: u32,
        /// Sent broadcast packets.
        out_broadcast: u32,
        /// Packets that were dropped instead of sent.
        out_discards: u32,
        /// Packets that could not be sent because of errors.
        out_errors: u32,
        /// Whether it is promiscuous (1) or not (2, by some 0).
        promiscuous: u32,
    }
}

structure! {
    /// Counters of an Ethernet interface (RFC 2358).
    EthernetCounters, "Ethernet counters";
    {
        /// Frames with alignment errors.
        alignment_errors: u32,
        /// Frames with a wrong frame check sequence.
        fcs_errors: u32,
        /// Frames sent after a single collision.
        single_collisions: u32,
        /// Frames sent after several collisions.
        multiple_collisions: u32,
        /// SQE test errors.
        sqe_test_errors: u32,
        /// Frames whose first transmission was delayed.
        deferred: u32,
        /// Late collisions.
        late_collisions: u32,
        /// Frames not sent because of too many collisions.
        excessive_collisions: u32,
        /// Frames not sent because of an internal error.
        mac_transmit_errors: u32,
        /// Times that the carrier was lost.
        carrier_sense_errors: u32,
        /// Frames that were too long.
        too_long: u32,
        /// Frames not received because of an internal error.
        mac_receive_errors: u32,
        /// Symbol errors.
        symbol_errors: u32,
    }
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
