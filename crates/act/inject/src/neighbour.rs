//! Resolves an IP address to a link-layer address: ARP (RFC 826) and neighbour discovery (RFC
//! 4861).

use crate::{
    InjectError, Mac, Point,
    checksum::Sum,
    witness::{Directions, Witness},
};
use skua_afpacket::PacketSender;
use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::{Duration, Instant},
};

/// Requests sent, and how long each waits for an answer.
const ATTEMPTS: u32 = 3;
const PATIENCE: Duration = Duration::from_millis(400);

const ETHERTYPE_ARP: [u8; 2] = [0x08, 0x06];
const ETHERTYPE_IPV6: [u8; 2] = [0x86, 0xdd];
const ETHERNET_HEADER: usize = 14;
/// Neighbour messages are believed only with this hop limit: it shows that no router sent them.
const HOP_LIMIT: u8 = 255;
const ICMPV6: u8 = 58;
const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
/// Options of RFC 4861 section 4.6.1.
const SOURCE_MAC: u8 = 1;
const TARGET_MAC: u8 = 2;

/// Resolves a neighbour's MAC address with requests from `source` and `from`. Takes at most 1.2 s.
///
/// # Errors
/// No neighbour answers, or the interface cannot be used.
pub fn find_mac(point: &Point, source: Mac, from: IpAddr, to: IpAddr) -> Result<Mac, InjectError> {
    let (question, expression) = match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => (arp_request(source, from, to), "arp"),
        (IpAddr::V6(from), IpAddr::V6(to)) => (solicitation(source, from, to), "icmp6"),
        _ => {
            return Err(InjectError::Packet(format!(
                "{from} cannot ask for {to}: one is IPv4, the other IPv6"
            )));
        }
    };
    let (sender, mut witness) = point.enter(|| {
        let witness = Witness::open(point, Directions::Received, expression)?;
        Ok((PacketSender::open(point.ifindex, &point.name)?, witness))
    })?;
    let nobody = || InjectError::NoNeighbour {
        interface: point.name.clone(),
        address: to,
    };
    for _ in 0..ATTEMPTS {
        // An interface that is down sends nothing, and so has no neighbours.
        sender.send(&question).map_err(|_| nobody())?;
        let end = Instant::now() + PATIENCE;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let mut found = None;
            witness.packets(left, &mut |frame| {
                found = found.or(match to {
                    IpAddr::V4(to) => arp_answer(frame, to),
                    IpAddr::V6(to) => advertised(frame, to),
                });
            })?;
            if let Some(mac) = found {
                return Ok(mac);
            }
            if left.is_zero() {
                break;
            }
        }
    }
    Err(nobody())
}

fn arp_request(source: Mac, from: Ipv4Addr, to: Ipv4Addr) -> Vec<u8> {
    let mut frame = Vec::with_capacity(60);
    frame.extend([0xff; 6]);
    frame.extend(source);
    frame.extend(ETHERTYPE_ARP);
    // Ethernet and IPv4, a request.
    frame.extend([0, 1, 8, 0, 6, 4, 0, 1]);
    frame.extend(source);
    frame.extend(from.octets());
    frame.extend([0; 6]);
    frame.extend(to.octets());
    frame
}

fn arp_answer(frame: &[u8], to: Ipv4Addr) -> Option<Mac> {
    let arp = frame.get(ETHERNET_HEADER..)?;
    let reply = frame.get(12..14)? == ETHERTYPE_ARP && arp.get(..8)? == [0, 1, 8, 0, 6, 4, 0, 2];
    let sender = arp.get(14..18)? == to.octets();
    (reply && sender).then(|| arp.get(8..14)?.try_into().ok())?
}

fn solicitation(source: Mac, from: Ipv6Addr, to: Ipv6Addr) -> Vec<u8> {
    let [.., x, y, z] = to.octets();
    // The solicited-node address has the target's last three bytes (RFC 4291 section 2.7.1).
    let group = Ipv6Addr::from([0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, x, y, z]);
    let mut message = vec![SOLICITATION, 0, 0, 0, 0, 0, 0, 0];
    message.extend(to.octets());
    message.extend([SOURCE_MAC, 1]);
    message.extend(source);
    let sum = Sum::default()
        .pseudo(from.into(), group.into(), ICMPV6, message.len())
        .bytes(&message)
        .finish();
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let mut frame = vec![0x33, 0x33, 0xff, x, y, z];
    frame.extend(source);
    frame.extend(ETHERTYPE_IPV6);
    frame.extend([0x60, 0, 0, 0]);
    frame.extend((message.len() as u16).to_be_bytes());
    frame.extend([ICMPV6, HOP_LIMIT]);
    frame.extend(from.octets());
    frame.extend(group.octets());
    frame.extend(message);
    frame
}

fn advertised(frame: &[u8], to: Ipv6Addr) -> Option<Mac> {
    let packet = frame.get(ETHERNET_HEADER..)?;
    let fits = frame.get(12..14)? == ETHERTYPE_IPV6 && packet.get(6..8)? == [ICMPV6, HOP_LIMIT];
    let message = packet.get(40..).filter(|_| fits)?;
    if *message.first()? != ADVERTISEMENT || message.get(8..24)? != to.octets() {
        return None;
    }
    let mut options = message.get(24..)?;
    while let [kind, length, ..] = *options {
        let length = usize::from(length) * 8;
        let option = options.get(..length).filter(|_| length > 0)?;
        if kind == TARGET_MAC {
            return option.get(2..8)?.try_into().ok();
        }
        options = options.get(length..)?;
    }
    None
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const OURS: Mac = [2, 0, 0, 0, 0, 1];
    const THEIRS: Mac = [2, 0, 0, 0, 0, 2];

    #[test]
    fn only_the_requested_answer_counts() {
        let (a, b) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        let mut answer = arp_request(THEIRS, b, a);
        assert_eq!(arp_answer(&answer, b), None, "a request");
        answer[ETHERNET_HEADER + 7] = 2;
        assert_eq!(arp_answer(&answer, b), Some(THEIRS));
        assert_eq!(arp_answer(&answer, a), None, "of somebody else");
        for length in 0..answer.len() {
            assert!(length >= 32 || arp_answer(&answer[..length], b).is_none());
        }
    }

    #[test]
    fn options_of_any_length_end() {
        let to: Ipv6Addr = "fe80::2".parse().unwrap();
        let mut frame = solicitation(OURS, "fe80::1".parse().unwrap(), to);
        assert_eq!(advertised(&frame, to), None, "a solicitation");
        let message = ETHERNET_HEADER + 40;
        frame[message] = ADVERTISEMENT;
        assert_eq!(advertised(&frame, to), None, "only the other option");
        frame[message + 24] = TARGET_MAC;
        assert_eq!(advertised(&frame, to), Some(OURS));
        for length in [0, 2, 255] {
            frame[message + 25] = length;
            assert_eq!(advertised(&frame, to), None, "length {length}");
        }
    }
}
