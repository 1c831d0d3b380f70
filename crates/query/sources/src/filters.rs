//! Pcap expressions in queries.

use skua_filter::{Filter, LinkType};
use skua_query::{PacketFilters, PacketTest};

/// Compiles expressions with libpcap.
#[derive(Clone, Copy, Debug, Default)]
pub struct PcapFilters;

/// Link types of capture files (<https://www.tcpdump.org/linktypes.html>).
const LINKTYPE_ETHERNET: u32 = 1;
const LINKTYPE_RAW: u32 = 101;

impl PacketFilters for PcapFilters {
    fn compile(&self, expression: &str, link_type: u32) -> Result<PacketTest, String> {
        let link = match link_type {
            LINKTYPE_ETHERNET => LinkType::Ethernet,
            LINKTYPE_RAW => LinkType::RawIp,
            other => return Err(format!("packets of link type {other} cannot be filtered")),
        };
        let filter = Filter::compile(expression, link).map_err(|error| error.to_string())?;
        Ok(Box::new(move |packet| filter.matches(packet)))
    }
}
