//! Messages of sock_diag: requests, and the kernel's description of a socket (`linux/inet_diag.h`).

use crate::tcp_info::TcpInfo;
use netlink_packet_core::{NLA_TYPE_MASK, NLM_F_DUMP, NLM_F_REQUEST, NlasIterator};
use skua_socket::{Protocol, SocketState};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// `SOCK_DIAG_BY_FAMILY`, linux/sock_diag.h.
pub(crate) const SOCK_DIAG_BY_FAMILY: u16 = 20;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const IPPROTO_TCP: u8 = 6;
const IPPROTO_UDP: u8 = 17;
// Attributes, linux/inet_diag.h.
const INET_DIAG_INFO: u16 = 2;
const INET_DIAG_PROTOCOL: u16 = 10;
const INET_DIAG_CGROUP_ID: u16 = 21;
const INET_DIAG_SOCKOPT: u16 = 22;
/// All states but TIME-WAIT and CLOSE: those sockets have ended, or never began.
const TCP_STATES: u32 = !(1 << SocketState::TimeWait as u32 | 1 << SocketState::Close as u32);
/// UDP sockets are in ESTABLISHED with a fixed peer, else in CLOSE.
const UDP_STATES: u32 = 1 << SocketState::Established as u32 | 1 << SocketState::Close as u32;
/// `struct nlmsghdr` and `struct inet_diag_req_v2`.
const REQUEST_BYTES: usize = 16 + 56;
/// `struct inet_diag_msg`.
const MESSAGE_BYTES: usize = 72;

/// Version of the internet protocol of a request. Sockets of family AF_INET6 that use IPv4 are among
/// [`Family::V6`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Family {
    /// AF_INET.
    V4,
    /// AF_INET6.
    V6,
}

/// The kernel's description of a socket, unchanged.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Record {
    /// Socket cookie. Up to Linux 5.9 it is unique in its network namespace only.
    pub cookie: u64,
    /// Protocol.
    pub protocol: Protocol,
    /// State; [`SocketState::Close`] of sockets that have been destroyed.
    pub state: SocketState,
    /// Local address, an IPv4 one where an IPv6 socket speaks IPv4.
    pub local: SocketAddr,
    /// The other side; its port is 0 when there is none (any more).
    pub remote: SocketAddr,
    /// Received bytes that were not read yet; listening sockets: connections that wait for accept.
    pub rqueue: u32,
    /// TCP: sequence numbers written but not acknowledged (SYN and FIN count as one each);
    /// listening sockets: the most connections that may wait.
    pub wqueue: u32,
    /// User that owns the socket's file; 0 of destroyed sockets.
    pub uid: u32,
    /// Inode of the socket's file; 0: it has none (not accepted yet, closed by its process).
    pub inode: u32,
    /// Id of the control group in which it was made (Linux 5.8); 0 unknown.
    pub cgroup: u64,
    /// TCP's metrics.
    pub info: Option<TcpInfo>,
    /// The kernel is so new (Linux 5.10) that no two sockets of the host have the same cookie.
    pub(crate) cookie_of_host: bool,
}

/// A request for all sockets of a protocol and family.
pub(crate) fn request(protocol: Protocol, family: Family, sequence: u32) -> [u8; REQUEST_BYTES] {
    let mut bytes = [0; REQUEST_BYTES];
    let mut at = 0;
    let mut put = |value: &[u8]| {
        if let Some(place) = bytes.get_mut(at..at + value.len()) {
            place.copy_from_slice(value);
        }
        at += value.len();
    };
    put(&(REQUEST_BYTES as u32).to_ne_bytes());
    put(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    put(&(NLM_F_REQUEST | NLM_F_DUMP).to_ne_bytes());
    put(&sequence.to_ne_bytes());
    put(&0_u32.to_ne_bytes());
    let family = match family {
        Family::V4 => AF_INET,
        Family::V6 => AF_INET6,
    };
    let (extensions, states) = match protocol {
        Protocol::Tcp => (1 << (INET_DIAG_INFO - 1), TCP_STATES),
        Protocol::Udp => (0, UDP_STATES),
    };
    put(&[family, protocol.number(), extensions, 0]);
    put(&states.to_ne_bytes());
    bytes
}

/// Reads a `struct inet_diag_msg` with its attributes. `protocol` is that of the request; messages of the
/// multicast groups have it themselves. `None`: too short, or of a family, protocol or state that is not
/// watched.
pub(crate) fn decode(payload: &[u8], protocol: Option<Protocol>) -> Option<Record> {
    let fixed: &[u8; MESSAGE_BYTES] = payload.first_chunk()?;
    let mut protocol = protocol;
    let (mut info, mut cgroup, mut cookie_of_host) = (None, 0, false);
    // An attribute that cannot be read ends the list; what came before it counts.
    for attribute in
        NlasIterator::new(payload.get(MESSAGE_BYTES..).unwrap_or_default()).map_while(Result::ok)
    {
        let value = attribute.value();
        match attribute.kind() & NLA_TYPE_MASK {
            INET_DIAG_INFO => info = TcpInfo::parse(value),
            INET_DIAG_PROTOCOL if protocol.is_none() => {
                protocol = match value.first() {
                    Some(&IPPROTO_TCP) => Some(Protocol::Tcp),
                    Some(&IPPROTO_UDP) => Some(Protocol::Udp),
                    _ => return None,
                }
            }
            INET_DIAG_CGROUP_ID => cgroup = value.try_into().map_or(0, u64::from_ne_bytes),
            INET_DIAG_SOCKOPT => cookie_of_host = true,
            _ => {}
        }
    }
    let protocol = protocol?;
    let family = fixed[0];
    let state = state(fixed[1], protocol)?;
    let u32_at = |at: usize| field(fixed, at).map(u32::from_ne_bytes);
    Some(Record {
        cookie: u64::from(u32_at(44)?) | u64::from(u32_at(48)?) << 32,
        protocol,
        state,
        local: address(family, field(fixed, 8)?, field(fixed, 4)?)?,
        remote: address(family, field(fixed, 24)?, field(fixed, 6)?)?,
        rqueue: u32_at(56)?,
        wqueue: u32_at(60)?,
        uid: u32_at(64)?,
        inode: u32_at(68)?,
        cgroup,
        info: info.filter(|_| protocol == Protocol::Tcp),
        cookie_of_host,
    })
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

/// State of a socket from the kernel's number (include/net/tcp_states.h).
fn state(number: u8, protocol: Protocol) -> Option<SocketState> {
    Some(match (protocol, number) {
        (Protocol::Udp, 1) => SocketState::UdpConnected,
        (Protocol::Udp, _) => SocketState::UdpUnconnected,
        (Protocol::Tcp, 1) => SocketState::Established,
        (Protocol::Tcp, 2) => SocketState::SynSent,
        (Protocol::Tcp, 3 | 12) => SocketState::SynRecv,
        (Protocol::Tcp, 4) => SocketState::FinWait1,
        (Protocol::Tcp, 5) => SocketState::FinWait2,
        (Protocol::Tcp, 6) => SocketState::TimeWait,
        (Protocol::Tcp, 7) => SocketState::Close,
        (Protocol::Tcp, 8) => SocketState::CloseWait,
        (Protocol::Tcp, 9) => SocketState::LastAck,
        (Protocol::Tcp, 10) => SocketState::Listen,
        (Protocol::Tcp, 11) => SocketState::Closing,
        _ => return None,
    })
}

fn address(family: u8, address: [u8; 16], port: [u8; 2]) -> Option<SocketAddr> {
    let ip = match family {
        AF_INET => IpAddr::V4(Ipv4Addr::from(address.first_chunk::<4>().copied()?)),
        AF_INET6 => IpAddr::V6(Ipv6Addr::from(address)).to_canonical(),
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_be_bytes(port)))
}
