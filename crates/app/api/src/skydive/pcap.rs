//! Packets of an answer as a capture file.

use std::collections::HashMap;

use anyhow::bail;
use skua_file::{Outgoing, PcapNgWriter, PcapWriter};
use skua_query::{Answer, RawPacket};

/// Formats of capture files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileFormat {
    /// pcap: packets of one link type.
    Pcap,
    /// pcapng.
    PcapNg,
}

/// Link type of a file without packets: Ethernet.
const ETHERNET: u32 = 1;

/// Writes the packets in the order of their times.
pub fn write(answer: &Answer, format: FileFormat) -> anyhow::Result<Vec<u8>> {
    let Answer::Packets(flows) = answer else {
        bail!("the answer is no packets: end the query with RawPackets()");
    };
    let mut packets: Vec<&RawPacket> = flows.iter().flat_map(|(_, list)| list).collect();
    packets.sort_by_key(|packet| packet.time_ns);
    match format {
        FileFormat::Pcap => pcap(&packets),
        FileFormat::PcapNg => pcapng(&packets),
    }
}

fn pcap(packets: &[&RawPacket]) -> anyhow::Result<Vec<u8>> {
    let link_type = packets.first().map_or(ETHERNET, |first| first.link_type);
    if packets.iter().any(|packet| packet.link_type != link_type) {
        bail!("the packets have several link types, a pcap file has one: ask for pcapng");
    }
    let mut file = PcapWriter::new(Vec::new(), link_type)?;
    for packet in packets {
        file.packet(packet.time_ns, &packet.data, packet.length)?;
    }
    Ok(file.into_inner())
}

fn pcapng(packets: &[&RawPacket]) -> anyhow::Result<Vec<u8>> {
    let mut file = PcapNgWriter::new(Vec::new(), concat!("skua ", env!("CARGO_PKG_VERSION")))?;
    let mut interfaces = HashMap::new();
    for packet in packets {
        let interface = match interfaces.get(&packet.link_type) {
            Some(number) => *number,
            None => {
                let link_type = u16::try_from(packet.link_type).unwrap_or_default();
                let number = file.interface("", link_type, 0)?;
                interfaces.insert(packet.link_type, number);
                number
            }
        };
        file.packet(&Outgoing {
            wire_len: packet.length,
            ..Outgoing::new(interface, packet.time_ns, &packet.data)
        })?;
    }
    Ok(file.into_inner())
}
