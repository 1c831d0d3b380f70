//! Runs tshark and reads its dissection.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

use crate::table::{self, Row};

/// What keeps tshark from looking at more than one packet at a time, or from guessing.
const OPTIONS: &[&str] = &[
    "-n",
    "-o",
    "ip.defragment:FALSE",
    "-o",
    "ipv6.defragment:FALSE",
    "-o",
    "tcp.desegment_tcp_streams:FALSE",
    "-o",
    "sctp.reassembly:FALSE",
    "-o",
    "udp.try_heuristic_first:FALSE",
    "-o",
    "tcp.try_heuristic_first:FALSE",
    // Guesses by payload, which would be made of zeros.
    "--disable-heuristic",
    "fp_eth",
    "--disable-heuristic",
    "rtp_udp",
    // VXLAN on Linux's first port, which tshark does not know of by itself.
    "-d",
    "udp.port==8472,vxlan",
];

/// How to get tshark, for the message when it is missing.
const INSTALL: &str = "tshark is needed: apt-get install tshark (Debian, Ubuntu), \
                       dnf install wireshark-cli (Fedora)";

/// One protocol layer of a packet.
#[derive(Clone, Debug, Default)]
pub struct Layer {
    /// tshark's name of the protocol.
    pub name: String,
    /// Offset in the frame.
    pub pos: u32,
    /// Fields by name, in order, also those within other fields.
    pub fields: Vec<(String, String)>,
    /// Protocols inside, such as IPv6 extension headers.
    pub inside: Vec<Layer>,
}

impl Layer {
    /// First value of a field.
    pub fn field(&self, name: &str) -> Option<&str> {
        let found = self.fields.iter().find(|(field, _)| field == name);
        found.map(|(_, value)| value.as_str())
    }

    /// First value of a field as a number, decimal or hexadecimal.
    pub fn number(&self, name: &str) -> Option<u64> {
        let value = self.field(name)?;
        match value.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => value.parse().ok(),
        }
    }
}

/// One packet as tshark reads it.
#[derive(Clone, Debug, Default)]
pub struct Dissection {
    /// Number in the file, from 1.
    pub number: usize,
    /// Time in ns since the Unix epoch, 0 when the file has none.
    pub time_ns: u64,
    /// tshark's number of the link type; none for other records, such as a journal entry.
    pub link: Option<u64>,
    /// Length on the wire.
    pub length: u32,
    /// Bytes captured.
    pub captured: u32,
    /// Interface name, empty when the file has none.
    pub interface: String,
    /// Layers, outermost first.
    pub layers: Vec<Layer>,
}

/// Runs tshark on a file and returns what it prints.
///
/// # Errors
///
/// A line that says what went wrong, and how to install tshark when it is missing.
pub fn run(file: &Path, arguments: &[&str]) -> Result<Vec<u8>, String> {
    let output = Command::new("tshark")
        .args(OPTIONS)
        .args(arguments)
        .arg("-r")
        .arg(file)
        .env("TZ", "UTC")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("tshark: {error}; {INSTALL}"))?;
    match output.status.success() {
        true => Ok(output.stdout),
        false => Err(format!(
            "tshark {}: {}",
            file.display(),
            String::from_utf8_lossy(&output.stderr)
        )),
    }
}

/// Dissects every packet of a file, and makes the tables of its UDP, TCP and SCTP conversations.
///
/// # Errors
///
/// See [`run`].
pub fn dissect(file: &Path) -> Result<(Vec<Dissection>, Vec<Row>), String> {
    let tables = ["-z", "conv,udp", "-z", "conv,tcp", "-z", "conv,sctp"];
    let output = run(file, &[&["-T", "pdml"], &tables[..]].concat())?;
    const END: &[u8] = b"</pdml>";
    let end = output
        .windows(END.len())
        .rposition(|bytes| bytes == END)
        .map_or(output.len(), |at| at + END.len());
    let (pdml, tables) = output.split_at(end);
    let packets = parse(BufReader::new(pdml)).map_err(|e| format!("{}: {e}", file.display()))?;
    Ok((packets, table::rows(&String::from_utf8_lossy(tables))?))
}

fn parse(pdml: impl BufRead) -> Result<Vec<Dissection>, quick_xml::Error> {
    let mut reader = Reader::from_reader(pdml);
    let mut buffer = Vec::new();
    let mut packets = Vec::new();
    // The protocols that are open, outermost first.
    let mut open: Vec<Layer> = Vec::new();
    let mut layers: Vec<Layer> = Vec::new();
    loop {
        match reader.read_event_into(&mut buffer)? {
            Event::Start(element) if element.name().as_ref() == b"proto" => {
                open.push(layer(&element)?);
            }
            Event::Empty(element) if element.name().as_ref() == b"proto" => {
                let layer = layer(&element)?;
                close(layer, &mut open, &mut layers);
            }
            Event::End(element) if element.name().as_ref() == b"proto" => {
                if let Some(layer) = open.pop() {
                    close(layer, &mut open, &mut layers);
                }
            }
            Event::Start(element) | Event::Empty(element)
                if element.name().as_ref() == b"field" =>
            {
                if let Some(layer) = open.last_mut() {
                    layer.fields.extend(field(&element)?);
                }
            }
            Event::End(element) if element.name().as_ref() == b"packet" => {
                packets.push(packet(std::mem::take(&mut layers)));
            }
            Event::Eof => return Ok(packets),
            _ => {}
        }
        buffer.clear();
    }
}

fn close(layer: Layer, open: &mut [Layer], layers: &mut Vec<Layer>) {
    match open.last_mut() {
        Some(outer) => outer.inside.push(layer),
        None => layers.push(layer),
    }
}

fn layer(element: &BytesStart<'_>) -> Result<Layer, quick_xml::Error> {
    let mut layer = Layer::default();
    for attribute in element.attributes() {
        let attribute = attribute?;
        let value = attribute.unescape_value()?;
        match attribute.key.as_ref() {
            b"name" => layer.name = value.into_owned(),
            b"pos" => layer.pos = value.parse().unwrap_or(0),
            _ => {}
        }
    }
    Ok(layer)
}

/// Name and value, none for fields without a name.
fn field(element: &BytesStart<'_>) -> Result<Option<(String, String)>, quick_xml::Error> {
    let (mut name, mut show) = (String::new(), String::new());
    for attribute in element.attributes() {
        let attribute = attribute?;
        match attribute.key.as_ref() {
            // Most fields are of no interest, and there are hundreds per packet.
            b"name" if !wanted(&attribute.value) => return Ok(None),
            b"name" => name = attribute.unescape_value()?.into_owned(),
            b"show" => show = attribute.unescape_value()?.into_owned(),
            _ => {}
        }
    }
    Ok((!name.is_empty()).then_some((name, show)))
}

/// Whether a field is read anywhere: those of the headers that make flows.
fn wanted(name: &[u8]) -> bool {
    const PROTOCOLS: &[&[u8]] = &[
        b"frame",
        b"eth",
        b"vlan",
        b"ieee8021ad",
        b"ieee8021ah",
        b"sll",
        b"null",
        b"llc",
        b"ip",
        b"ipv6",
        b"ah",
        b"mip6",
        b"hip",
        b"shim6",
        b"tcp",
        b"udp",
        b"sctp",
        b"dccp",
        b"icmp",
        b"icmpv6",
        b"vxlan",
        b"geneve",
        b"gre",
        b"mpls",
        b"erspan",
    ];
    let end = name.iter().position(|byte| *byte == b'.');
    end.is_some_and(|end| PROTOCOLS.contains(&&name[..end]))
}

fn packet(mut layers: Vec<Layer>) -> Dissection {
    let frame = layers
        .iter()
        .position(|layer| layer.name == "frame")
        .map(|i| layers.remove(i))
        .unwrap_or_default();
    layers.retain(|layer| !matches!(layer.name.as_str(), "geninfo" | "pkt_comment"));
    let number = |name| frame.number(name).unwrap_or(0);
    let interface = match frame.field("frame.interface_name") {
        None | Some("unknown") => "",
        Some(name) => name,
    };
    Dissection {
        number: number("frame.number") as usize,
        time_ns: frame.field("frame.time_epoch").map_or(0, nanoseconds),
        link: frame.number("frame.encap_type"),
        length: number("frame.len") as u32,
        captured: number("frame.cap_len") as u32,
        interface: interface.to_owned(),
        layers,
    }
}

/// Seconds with nine decimals, as tshark prints times.
pub fn nanoseconds(text: &str) -> u64 {
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    let fraction = format!("{fraction:0<9}");
    let seconds: u64 = seconds.parse().unwrap_or(0);
    seconds * 1_000_000_000 + fraction[..9].parse().unwrap_or(0)
}
