//! Standard records that hosts send (sFlow.org: "sFlow Host Structures", "sFlow Port NAT and socket
//! structures", and the list of structures there).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::xdr::structure;
use crate::{DecodeError, reader::Reader};

/// A socket of the agent's host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Socket {
    /// IP protocol.
    pub protocol: u32,
    /// Its own address.
    pub local: IpAddr,
    /// The other side's, of the same family.
    pub remote: IpAddr,
    /// Its own port.
    pub local_port: u32,
    /// The other side's.
    pub remote_port: u32,
}

structure! {
    /// TCP's state of a connection.
    TcpInfo, "TCP info";
    {
        /// Of the sampled packet: 0 unknown, 1 received, 2 sent.
        direction: u32,
        /// Maximum segment size for sending, bytes.
        send_mss: u32,
        /// For receiving, bytes.
        receive_mss: u32,
        /// Segments that are not acknowledged.
        unacked: u32,
        /// Segments presumed lost.
        lost: u32,
        /// Retransmitted segments, in total.
        retransmitted: u32,
        /// Path MTU, bytes.
        pmtu: u32,
        /// Smoothed round-trip time, µs.
        rtt_us: u32,
        /// Its variance, µs.
        rtt_variance_us: u32,
        /// Congestion window, segments.
        congestion_window: u32,
        /// Reordering metric, in segments.
        reordering: u32,
        /// Least round-trip time, µs.
        min_rtt_us: u32,
    }
}

impl Socket {
    #[inline]
    pub(super) fn decode(body: &mut Reader<'_>, v6: bool) -> Result<Self, DecodeError> {
        const WHAT: &str = "a socket";
        let protocol = body.u32(WHAT)?;
        let mut address = || -> Result<IpAddr, DecodeError> {
            Ok(match v6 {
                false => Ipv4Addr::from(*body.array::<4>(WHAT)?).into(),
                true => Ipv6Addr::from(*body.array::<16>(WHAT)?).into(),
            })
        };
        let (local, remote) = (address()?, address()?);
        Ok(Self {
            protocol,
            local,
            remote,
            local_port: body.u32(WHAT)?,
            remote_port: body.u32(WHAT)?,
        })
    }
}
