//! Standard records that hosts send (sFlow.org: "sFlow Host Structures", "sFlow Port NAT and socket
//! structures", and the list of structures there).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

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

/// TCP's state of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TcpInfo {
    /// Of the sampled packet: 0 unknown, 1 received, 2 sent.
    pub direction: u32,
    /// Maximum segment size for sending, bytes.
    pub send_mss: u32,
    /// For receiving, bytes.
    pub receive_mss: u32,
    /// Segments that are not acknowledged.
    pub unacked: u32,
    /// Segments presumed lost.
    pub lost: u32,
    /// Retransmitted segments, in total.
    pub retransmitted: u32,
    /// Path MTU, bytes.
    pub pmtu: u32,
    /// Smoothed round-trip time, µs.
    pub rtt_us: u32,
    /// Its variance, µs.
    pub rtt_variance_us: u32,
    /// Congestion window, segments.
    pub congestion_window: u32,
    /// Reordering metric, in segments.
    pub reordering: u32,
    /// Least round-trip time, µs.
    pub min_rtt_us: u32,
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

impl TcpInfo {
    #[inline]
    pub(super) fn decode(body: &mut Reader<'_>) -> Result<Self, DecodeError> {
        const WHAT: &str = "TCP info";
        Ok(Self {
            direction: body.u32(WHAT)?,
            send_mss: body.u32(WHAT)?,
            receive_mss: body.u32(WHAT)?,
            unacked: body.u32(WHAT)?,
            lost: body.u32(WHAT)?,
            retransmitted: body.u32(WHAT)?,
            pmtu: body.u32(WHAT)?,
            rtt_us: body.u32(WHAT)?,
            rtt_variance_us: body.u32(WHAT)?,
            congestion_window: body.u32(WHAT)?,
            reordering: body.u32(WHAT)?,
            min_rtt_us: body.u32(WHAT)?,
        })
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        for value in [
            self.direction,
            self.send_mss,
            self.receive_mss,
            self.unacked,
            self.lost,
            self.retransmitted,
            self.pmtu,
            self.rtt_us,
            self.rtt_variance_us,
            self.congestion_window,
            self.reordering,
            self.min_rtt_us,
        ] {
            out.extend_from_slice(&value.to_be_bytes());
        }
    }
}
