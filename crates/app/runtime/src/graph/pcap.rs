//! Packets of an answer as a capture file.

use std::collections::HashMap;

use anyhow::bail;
use skua_file::{Outgoing, PcapNgWriter};
use skua_query::{Answer, RawPacket};

/// Writes the packets in the order of their times, as pcapng.
pub fn write(answer: &Answer) -> anyhow::Result<Vec<u8>> {
    let Answer::Packets(flows) = answer else {
        bail!("the answer is no packets: end the query with RawPackets()");
    };
    let mut packets: Vec<&RawPacket> = flows.iter().flat_map(|(_, list)| list).collect();
    if packets.is_empty() {
        bail!("no packets are kept of these flows: captures keep them with RawPacketLimit");
    }
    packets.sort_by_key(|packet| packet.time_ns);
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
