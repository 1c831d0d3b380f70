//! Sends frames on one interface.

use crate::{Error, sys};
use rustix::net::{SendFlags, send, sockopt};
use std::{io, os::fd::OwnedFd, time::Duration};

/// How long a full queue of the interface is waited for.
const PATIENCE: Duration = Duration::from_secs(1);

/// A packet socket that only sends. It sends in the network namespace of the thread that opened it,
/// and may then be used from any other.
#[derive(Debug)]
pub struct PacketSender {
    socket: OwnedFd,
    index: i32,
    network_layer: bool,
}

/// The protocol of a packet that begins with its IP header, ETH_P_IP or ETH_P_IPV6; 0: none.
fn protocol(packet: &[u8]) -> u16 {
    match packet.first().map(|first| first >> 4) {
        Some(4) => 0x0800,
        Some(6) => 0x86dd,
        _ => 0,
    }
}

impl PacketSender {
    /// Opens one in the calling thread's network namespace; `interface` is for messages only.
    pub fn open(ifindex: u32, interface: &str) -> Result<Self, Error> {
        let named = || interface.to_owned();
        let failed = |action: &'static str| {
            move |source: io::Error| match source.raw_os_error() {
                Some(libc::EPERM | libc::EACCES) => Error::Denied { interface: named() },
                Some(libc::ENODEV | libc::ENXIO) => Error::NoInterface { interface: named() },
                _ => Error::System {
                    interface: named(),
                    action,
                    source,
                },
            }
        };
        // Index 0 would mean no interface at all.
        let index = i32::try_from(ifindex).ok().filter(|index| *index > 0);
        let index = index.ok_or_else(|| Error::NoInterface { interface: named() })?;
        let socket = sys::open_socket().map_err(failed("opening a packet socket"))?;
        sys::bind(&socket, index, 0).map_err(failed("binding to the interface"))?;
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(PATIENCE))
            .map_err(|error| failed("setting a timeout")(error.into()))?;
        Ok(Self {
            socket,
            index,
            network_layer: false,
        })
    }

    /// Its packets begin at the network layer. The kernel reads the protocol of others in their link-layer header; here
    /// not every driver finds it (GRE does not, and sends packets of no protocol).
    pub fn at_network_layer(mut self, so: bool) -> Self {
        self.network_layer = so;
        self
    }

    /// Sends a frame as it is, from the link layer on (from the network layer on interfaces without
    /// link header). That it was taken says nothing about what happens to it.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        if self.network_layer {
            return sys::send_as(&self.socket, self.index, protocol(frame), frame);
        }
        send(&self.socket, frame, SendFlags::NOSIGNAL)?;
        Ok(())
    }
}
