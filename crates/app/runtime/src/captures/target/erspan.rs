//! Copies of packets as ERSPAN type II (version 1, draft-foschiano-erspan-03 section 4.1) over GRE
//! with sequence numbers (RFC 2890).

use std::{
    net::{IpAddr, SocketAddr},
    os::fd::OwnedFd,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use anyhow::Context as _;
use rustix::{
    io::Errno,
    net::{AddressFamily, SendFlags, SocketFlags, SocketType, ipproto, sockopt},
};
use skua_flow::RawPacket;
use skua_probe::{Packets, Streamed};

use skua_state::captures::Sent;

/// Packets that wait to be sent, bytes; beyond they are dropped and counted.
const WAITING: usize = 16 << 20;
/// How soon it is seen that the capture has ended.
const LOOK: Duration = Duration::from_millis(200);
/// The highest session there is a place for.
pub const MOST_SESSION: u16 = 0x3ff;

const GRE: u8 = 47;
/// The sequence number is there (RFC 2890 section 2).
const GRE_SEQUENCE: u16 = 0x1000;
const GRE_ERSPAN: u16 = 0x88be;
/// GRE with sequence number, and the header of ERSPAN.
const HEADERS: usize = 16;
/// A VLAN tag is left in the frame (the field En).
const TAG_IN_FRAME: u16 = 3;

const ETHERNET: u32 = 1;
const ETHERNET_HEADER: usize = 14;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;

/// Two bytes of a packet.
fn two(data: &[u8], at: usize) -> Option<u16> {
    let bytes = data.get(at..at + 2)?;
    Some(u16::from_be_bytes([bytes[0], bytes[1]]))
}

/// Tag control information of the first VLAN tag, and what follows all tags: EtherType and where.
fn tags(frame: &[u8]) -> (Option<u16>, Option<(u16, usize)>) {
    let (mut at, mut tag) = (12, None);
    while let Some(0x8100 | 0x88a8) = two(frame, at) {
        tag = tag.or_else(|| two(frame, at + 2));
        at += 4;
    }
    (tag, two(frame, at).map(|kind| (kind, at + 2)))
}

/// Whether a packet is one that we have sent: such are not sent again, or there would be no end.
fn is_copy(packet: &RawPacket<'_>, to: IpAddr) -> bool {
    let data = packet.data;
    let network = match packet.link_type {
        ETHERNET => tags(data).1,
        _ => Some((ip_type(data), 0)),
    };
    let field = |at: usize, length: usize| data.get(at..at + length);
    let gre = match (network, to) {
        (Some((IPV4, at)), IpAddr::V4(to)) => {
            let length = usize::from(field(at, 1).map_or(0, |b| b[0] & 15)) * 4;
            let ours = field(at + 9, 1) == Some(&[GRE]) && field(at + 16, 4) == Some(&to.octets());
            ours.then_some(at + length)
        }
        (Some((IPV6, at)), IpAddr::V6(to)) => {
            let ours = field(at + 6, 1) == Some(&[GRE]) && field(at + 24, 16) == Some(&to.octets());
            ours.then_some(at + 40)
        }
        _ => None,
    };
    // Later fragments have no GRE header: such are taken for ours.
    let later = match network {
        Some((IPV4, at)) => two(data, at + 6).is_some_and(|offset| offset & 0x1fff != 0),
        _ => false,
    };
    gre.is_some_and(|at| later || two(data, at + 2).is_none_or(|kind| kind == GRE_ERSPAN))
}

/// EtherType of a packet that begins with its IP header.
fn ip_type(data: &[u8]) -> u16 {
    match data.first().map(|byte| byte >> 4) {
        Some(6) => IPV6,
        _ => IPV4,
    }
}

/// Writes what is sent of a packet: GRE, ERSPAN, the frame.
fn encapsulate(packet: &RawPacket<'_>, session: u16, sequence: u32, out: &mut Vec<u8>) {
    let ethernet = packet.link_type == ETHERNET;
    let tag = ethernet.then(|| tags(packet.data).0).flatten();
    let cut = (packet.data.len() as u64) < u64::from(packet.length);
    out.clear();
    out.extend(GRE_SEQUENCE.to_be_bytes());
    out.extend(GRE_ERSPAN.to_be_bytes());
    out.extend(sequence.to_be_bytes());
    // Version 1 and VLAN; class of service, how it was tagged, whether it is cut, session; index.
    let vlan = tag.map_or(0, |tag| tag & 0xfff);
    out.extend((1 << 12 | vlan).to_be_bytes());
    let class = tag.map_or(0, |tag| (tag & 0xe000) | TAG_IN_FRAME << 11);
    out.extend((class | u16::from(cut) << 10 | session & MOST_SESSION).to_be_bytes());
    out.extend((packet.ifindex & 0xf_ffff).to_be_bytes());
    if !ethernet {
        // The protocol carries frames: addresses are made up.
        out.extend([0; 12]);
        out.extend(ip_type(packet.data).to_be_bytes());
    }
    out.extend(packet.data);
}

/// A raw socket to the collector. What comes to it is not read.
fn open(to: SocketAddr) -> anyhow::Result<OwnedFd> {
    let family = match to {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let (raw, gre) = (SocketType::RAW, Some(ipproto::GRE));
    let socket = rustix::net::socket_with(family, raw, SocketFlags::CLOEXEC, gre)
        .context("cannot open a raw socket")?;
    sockopt::set_socket_recv_buffer_size(&socket, 0)?;
    rustix::net::connect(&socket, &to)?;
    Ok(socket)
}

/// The thread that sends copies. Dropping it ends it.
pub struct Copier {
    sent: Arc<Sent>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Copier {
    /// Sends all packets of a capture from now on. `session` is the number that distinguishes it from others.
    pub fn start(to: SocketAddr, session: u16, packets: &Packets) -> anyhow::Result<Self> {
        let socket = open(to)?;
        let sent = Arc::new(Sent::new("own_copies"));
        let stop = Arc::new(AtomicBool::new(false));
        let mut stream = packets.watch(WAITING);
        let (counts, ended) = (sent.clone(), stop.clone());
        let thread = std::thread::Builder::new().name("erspan".into());
        let thread = thread.spawn(move || {
            let mut sequence = 0;
            let mut out = Vec::with_capacity(HEADERS + ETHERNET_HEADER + (64 << 10));
            loop {
                match stream.read(LOOK) {
                    Streamed::Packets => {
                        for packet in stream.packets() {
                            if is_copy(&packet, to.ip()) {
                                counts.left_out.fetch_add(1, Ordering::Relaxed);
                                continue;
                            }
                            encapsulate(&packet, session, sequence, &mut out);
                            sequence = sequence.wrapping_add(1);
                            counts.count(send(&socket, &out));
                        }
                    }
                    Streamed::Nothing if ended.load(Ordering::Acquire) => break,
                    Streamed::Nothing => {}
                    Streamed::Ended => break,
                }
                counts.dropped.store(stream.dropped(), Ordering::Relaxed);
            }
            counts.dropped.store(stream.dropped(), Ordering::Relaxed);
        })?;
        Ok(Self {
            sent,
            stop,
            thread: Some(thread),
        })
    }

    /// What happened to it so far, counted on.
    pub fn sent(&self) -> Arc<Sent> {
        self.sent.clone()
    }
}

/// The kernel reports an ICMP error of a packet at the next one: that is then sent again.
fn send(socket: &OwnedFd, data: &[u8]) -> Result<(), Errno> {
    let once = || rustix::net::send(socket, data, SendFlags::DONTWAIT).map(drop);
    match once() {
        Err(Errno::CONNREFUSED | Errno::HOSTUNREACH | Errno::NETUNREACH | Errno::OPNOTSUPP) => {
            once()
        }
        result => result,
    }
}

impl Drop for Copier {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // What panicked there is in the log.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skua_flow::Direction;

    fn packet(link_type: u32, length: u32, data: &[u8]) -> RawPacket<'_> {
        RawPacket {
            time_ns: 0,
            netns: 0,
            ifindex: 3,
            direction: Direction::Egress,
            link_type,
            length,
            data,
        }
    }

    /// A frame with tags, and an IPv4 header of that protocol to 192.0.2.9, and so many bytes.
    fn frame(tags: &[u8], protocol: u8, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![2; 12];
        frame.extend(tags);
        frame.extend([8, 0, 0x45, 0, 0, 99, 0, 0, 0, 0, 64, protocol, 0, 0]);
        frame.extend([192, 0, 2, 1, 192, 0, 2, 9]);
        frame.extend(payload);
        frame
    }

    #[test]
    fn headers_byte_for_byte() {
        let mut out = Vec::new();
        let plain = frame(&[], 17, &[7; 8]);
        encapsulate(&packet(1, 42, &plain), 5, 9, &mut out);
        assert_eq!(
            out[..HEADERS],
            [0x10, 0, 0x88, 0xbe, 0, 0, 0, 9, 0x10, 0, 0, 5, 0, 0, 0, 3]
        );
        assert_eq!(out[HEADERS..], plain);
        // Tagged with priority 5 and VLAN 100, and cut.
        let tagged = frame(&[0x81, 0, 0xa0, 100], 17, &[]);
        encapsulate(&packet(1, 1_500, &tagged), 1, 0, &mut out);
        assert_eq!(out[8..12], [0x10, 100, 0xa0 | 3 << 3 | 4, 1]);
        // Without a link header: one is made.
        encapsulate(&packet(101, 20, &plain[14..34]), 1, 0, &mut out);
        assert_eq!(out[HEADERS + 12..HEADERS + 16], [8, 0, 0x45, 0]);
    }

    #[test]
    fn copies_are_known() {
        let to = "192.0.2.9".parse().unwrap();
        let gre = [0x10, 0, 0x88, 0xbe, 0, 0, 0, 0];
        let is = |frame: &[u8]| is_copy(&packet(1, frame.len() as u32, frame), to);
        assert!(is(&frame(&[], 47, &gre)));
        assert!(is(&frame(&[0x81, 0, 0, 7], 47, &gre)));
        assert!(!is(&frame(&[], 47, &[0, 0, 8, 0, 0, 0])), "other GRE");
        assert!(!is(&frame(&[], 17, &gre)));
        assert!(!is_copy(
            &packet(1, 50, &frame(&[], 47, &gre)),
            "192.0.2.8".parse().unwrap()
        ));
        let mut fragment = frame(&[], 47, &[9; 8]);
        fragment[21] = 185;
        assert!(is(&fragment), "its later fragments");
        for length in 0..fragment.len() {
            is(&fragment[..length]);
            is_copy(&packet(101, 9, &fragment[..length]), "::1".parse().unwrap());
        }
    }
}
