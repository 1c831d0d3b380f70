//! What a neighbour says of itself by the Link Layer Discovery Protocol (IEEE 802.1AB-2016), within bounds.

use thiserror::Error;

/// EtherType of LLDP.
pub const ETHERTYPE_LLDP: u16 = 0x88cc;
/// Names of VLANs, and VLANs by protocol, that are kept at most of each.
const MOST_VLANS: usize = 64;
/// Bytes of a text at most (802.1AB, 8.5).
const MOST_TEXT: usize = 255;

// Types of TLVs, 802.1AB table 8-1.
const END: u8 = 0;
const CHASSIS: u8 = 1;
const PORT: u8 = 2;
const TTL: u8 = 3;
const PORT_DESCRIPTION: u8 = 4;
const SYSTEM_NAME: u8 = 5;
const SYSTEM_DESCRIPTION: u8 = 6;
const MANAGEMENT_ADDRESS: u8 = 8;
const ORGANIZATION: u8 = 127;

/// IEEE 802.1 (802.1Q annex D) and 802.3 (802.3 clause 79).
const OF_8021: [u8; 3] = [0x00, 0x80, 0xc2];
const OF_8023: [u8; 3] = [0x00, 0x12, 0x0f];

/// Why a frame is not LLDP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum LldpError {
    /// No Ethernet header with the EtherType of LLDP.
    #[error("no frame of LLDP")]
    OtherFrame,
    /// The first three parts must be the chassis, the port and the lifetime, in this order.
    #[error("chassis, port and lifetime do not come first")]
    Order,
    /// A part is longer than the frame.
    #[error("part {0} is longer than the frame")]
    Cut(u8),
    /// A part has an impossible length.
    #[error("part {0} has a wrong length")]
    Length(u8),
}

/// How something is identified, and its identifier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LldpId {
    /// The kind, as in Skydive's metadata, like `MAC Address`.
    pub kind: &'static str,
    /// As text.
    pub text: String,
}

/// Aggregation of links (802.1AX).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LldpAggregation {
    /// The port can.
    pub supported: bool,
    /// It does.
    pub enabled: bool,
    /// Number of the aggregated port; 0: none.
    pub port: u32,
}

/// A VLAN that a port has for a protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LldpProtocolVlan {
    /// VLAN.
    pub id: u16,
    /// The port can.
    pub supported: bool,
    /// It does.
    pub enabled: bool,
}

/// What a neighbour says of itself. Of parts that come more than once the first counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lldp {
    /// Address that it was sent from.
    pub source: [u8; 6],
    /// The system; always there.
    pub chassis: Option<LldpId>,
    /// Its port; always there.
    pub port: Option<LldpId>,
    /// Seconds for which this is valid; 0: the neighbour leaves.
    pub ttl: u16,
    /// Of the port.
    pub port_description: Option<String>,
    /// Name of the system.
    pub system_name: Option<String>,
    /// Of the system.
    pub system_description: Option<String>,
    /// The first address for management that can be shown.
    pub management: Option<String>,
    /// VLAN of untagged frames.
    pub port_vlan: Option<u16>,
    /// VLANs by protocol.
    pub protocol_vlans: Vec<LldpProtocolVlan>,
    /// Names of VLANs.
    pub vlan_names: Vec<(u16, String)>,
    /// Digest of the use of VLANs.
    pub vlan_digest: Option<u32>,
    /// VLAN for management.
    pub management_vlan: Option<u16>,
    /// Aggregation.
    pub aggregation: Option<LldpAggregation>,
    /// Longest frame, bytes.
    pub longest_frame: Option<u16>,
}

impl Lldp {
    /// Reads a frame from its Ethernet header on.
    ///
    /// # Errors
    ///
    /// [`LldpError`]. Parts that are not known, and what is wrong inside of optional ones, are left out.
    pub fn read(frame: &[u8]) -> Result<Self, LldpError> {
        let (header, mut rest) = frame.split_at_checked(14).ok_or(LldpError::OtherFrame)?;
        if header[12..] != ETHERTYPE_LLDP.to_be_bytes() {
            return Err(LldpError::OtherFrame);
        }
        let mut found = Self::default();
        found.source.copy_from_slice(&header[6..12]);
        for place in 0.. {
            let Some((kind, value)) = next(&mut rest)? else {
                break;
            };
            let expected = [CHASSIS, PORT, TTL].get(place).copied();
            if expected.is_some_and(|expected| expected != kind) {
                return Err(LldpError::Order);
            }
            found.take(kind, value)?;
        }
        match (&found.chassis, &found.port) {
            (Some(_), Some(_)) => Ok(found),
            _ => Err(LldpError::Order),
        }
    }

    fn take(&mut self, kind: u8, value: &[u8]) -> Result<(), LldpError> {
        let wrong = LldpError::Length(kind);
        match kind {
            CHASSIS if self.chassis.is_none() => {
                self.chassis = Some(identifier(value, chassis_kind).ok_or(wrong)?);
            }
            PORT if self.port.is_none() => {
                self.port = Some(identifier(value, port_kind).ok_or(wrong)?);
                // Until it comes.
                self.ttl = 0;
            }
            TTL => self.ttl = be16(value).ok_or(wrong)?,
            PORT_DESCRIPTION => fill(&mut self.port_description, value),
            SYSTEM_NAME => fill(&mut self.system_name, value),
            SYSTEM_DESCRIPTION => fill(&mut self.system_description, value),
            MANAGEMENT_ADDRESS if self.management.is_none() => {
                self.management = management(value);
            }
            ORGANIZATION => self.take_organization(value),
            _ => {}
        }
        Ok(())
    }

    fn take_organization(&mut self, value: &[u8]) {
        let Some((head, value)) = value.split_first_chunk::<4>() else {
            return;
        };
        match ([head[0], head[1], head[2]], head[3]) {
            (OF_8021, 1) => self.port_vlan = self.port_vlan.or(be16(value)),
            (OF_8021, 2) => {
                if let Some([flags, id @ ..]) = value.first_chunk::<3>()
                    && self.protocol_vlans.len() < MOST_VLANS
                {
                    self.protocol_vlans.push(LldpProtocolVlan {
                        id: u16::from_be_bytes(*id),
                        supported: flags & 2 != 0,
                        enabled: flags & 4 != 0,
                    });
                }
            }
            (OF_8021, 3) => {
                if let Some(([high, low, length], name)) = value.split_first_chunk::<3>()
                    && let Some(name) = name.get(..usize::from(*length))
                    && self.vlan_names.len() < MOST_VLANS
                {
                    let id = u16::from_be_bytes([*high, *low]);
                    self.vlan_names.push((id, text(name)));
                }
            }
            (OF_8021, 5) => {
                let digest = value.first_chunk().copied().map(u32::from_be_bytes);
                self.vlan_digest = self.vlan_digest.or(digest);
            }
            (OF_8021, 6) => self.management_vlan = self.management_vlan.or(be16(value)),
            // First defined by 802.3, later by 802.1.
            (OF_8021, 7) | (OF_8023, 3) => {
                if let Some([flags, port @ ..]) = value.first_chunk::<5>() {
                    self.aggregation.get_or_insert(LldpAggregation {
                        supported: flags & 1 != 0,
                        enabled: flags & 2 != 0,
                        port: u32::from_be_bytes(*port),
                    });
                }
            }
            (OF_8023, 4) => self.longest_frame = self.longest_frame.or(be16(value)),
            _ => {}
        }
    }
}

/// The next part: its type and value; none at the end.
fn next<'a>(rest: &mut &'a [u8]) -> Result<Option<(u8, &'a [u8])>, LldpError> {
    // The end may be missing, and the frame padded behind it.
    let Some((head, after)) = rest.split_first_chunk::<2>() else {
        return Ok(None);
    };
    let head = u16::from_be_bytes(*head);
    let (kind, length) = ((head >> 9) as u8, usize::from(head & 0x1ff));
    if kind == END {
        return Ok(None);
    }
    let (value, after) = after.split_at_checked(length).ok_or(LldpError::Cut(kind))?;
    *rest = after;
    Ok(Some((kind, value)))
}

fn be16(value: &[u8]) -> Option<u16> {
    value.first_chunk().copied().map(u16::from_be_bytes)
}

fn fill(place: &mut Option<String>, value: &[u8]) {
    let said = text(value);
    if place.is_none() && !said.is_empty() {
        *place = Some(said);
    }
}

/// Bytes as a text that is safe to show.
fn text(bytes: &[u8]) -> String {
    let bytes = &bytes[..bytes.len().min(MOST_TEXT)];
    let text = String::from_utf8_lossy(bytes);
    let text = text.trim_matches('\0').trim();
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

fn mac(bytes: &[u8]) -> String {
    let all: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    all.join(":")
}

/// An address behind its family (IANA's numbers).
fn address(value: &[u8]) -> Option<String> {
    let (family, rest) = value.split_first()?;
    match family {
        1 => {
            let bytes: [u8; 4] = rest.try_into().ok()?;
            Some(std::net::Ipv4Addr::from(bytes).to_string())
        }
        2 => {
            let bytes: [u8; 16] = rest.try_into().ok()?;
            Some(std::net::Ipv6Addr::from(bytes).to_string())
        }
        6 if rest.len() == 6 => Some(mac(rest)),
        // A distinguished name.
        17 => Some(text(rest)).filter(|text| !text.is_empty()),
        _ => None,
    }
}

fn management(value: &[u8]) -> Option<String> {
    let (length, rest) = value.split_first()?;
    address(rest.get(..usize::from(*length))?)
}

/// How the bytes of an identifier are to be read.
#[derive(Clone, Copy)]
enum Form {
    Mac,
    Address,
    Text,
}

fn chassis_kind(kind: u8) -> (&'static str, Form) {
    match kind {
        1 => ("Chassis Component", Form::Text),
        2 => ("Interface Alias", Form::Text),
        3 => ("Port Component", Form::Text),
        4 => ("MAC Address", Form::Mac),
        5 => ("Network Address", Form::Address),
        6 => ("Interface Name", Form::Text),
        7 => ("Local", Form::Text),
        _ => ("Reserved", Form::Text),
    }
}

fn port_kind(kind: u8) -> (&'static str, Form) {
    match kind {
        1 => ("Interface Alias", Form::Text),
        2 => ("Port Component", Form::Text),
        3 => ("MAC Address", Form::Mac),
        4 => ("Network Address", Form::Address),
        5 => ("Interface Name", Form::Text),
        6 => ("Agent Circuit ID", Form::Text),
        7 => ("Local", Form::Text),
        _ => ("Reserved", Form::Text),
    }
}

fn identifier(value: &[u8], kinds: fn(u8) -> (&'static str, Form)) -> Option<LldpId> {
    let (kind, bytes) = value.split_first()?;
    if bytes.is_empty() || bytes.len() > MOST_TEXT {
        return None;
    }
    let (kind, form) = kinds(*kind);
    let text = match form {
        Form::Mac => mac(bytes),
        Form::Address => address(bytes).unwrap_or_else(|| mac(bytes)),
        Form::Text => text(bytes),
    };
    Some(LldpId { kind, text })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(kind: u8, value: &[u8]) -> Vec<u8> {
        let head = u16::from(kind) << 9 | value.len() as u16;
        [&head.to_be_bytes(), value].concat()
    }

    fn frame(parts: &[Vec<u8>]) -> Vec<u8> {
        let mut frame = vec![1, 0x80, 0xc2, 0, 0, 0x0e, 2, 0, 0, 0, 0, 7, 0x88, 0xcc];
        frame.extend(parts.concat());
        frame
    }

    fn begin() -> Vec<Vec<u8>> {
        vec![
            part(CHASSIS, &[4, 2, 0, 0, 0, 0, 7]),
            part(PORT, b"\x05eth7"),
            part(TTL, &[0, 120]),
        ]
    }

    #[test]
    fn all_parts_are_read() {
        let mut parts = begin();
        parts.extend([
            part(PORT_DESCRIPTION, b"to the rack\0"),
            part(SYSTEM_NAME, b"switch\x1b1"),
            part(SYSTEM_DESCRIPTION, "Schränke".as_bytes()),
            part(7, &[0, 20, 0, 4]),
            part(MANAGEMENT_ADDRESS, &[5, 1, 192, 0, 2, 9, 2, 0, 0, 0, 1, 0]),
            part(ORGANIZATION, &[0x00, 0x80, 0xc2, 1, 0, 42]),
            part(ORGANIZATION, &[0x00, 0x80, 0xc2, 2, 6, 0, 43]),
            part(ORGANIZATION, b"\x00\x80\xc2\x03\x00\x2c\x04blue"),
            part(ORGANIZATION, &[0x00, 0x80, 0xc2, 5, 1, 2, 3, 4]),
            part(ORGANIZATION, &[0x00, 0x80, 0xc2, 6, 0, 5]),
            part(ORGANIZATION, &[0x00, 0x12, 0x0f, 3, 3, 0, 0, 0, 9]),
            part(ORGANIZATION, &[0x00, 0x12, 0x0f, 4, 5, 238]),
            part(END, &[]),
        ]);
        let found = Lldp::read(&frame(&parts)).unwrap();
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(
            found,
            Lldp {
                source: [2, 0, 0, 0, 0, 7],
                chassis: Some(LldpId {
                    kind: "MAC Address",
                    text: "02:00:00:00:00:07".into(),
                }),
                port: Some(LldpId {
                    kind: "Interface Name",
                    text: "eth7".into(),
                }),
                ttl: 120,
                port_description: text("to the rack"),
                system_name: text("switch 1"),
                system_description: text("Schränke"),
                management: text("192.0.2.9"),
                port_vlan: Some(42),
                protocol_vlans: vec![LldpProtocolVlan {
                    id: 43,
                    supported: true,
                    enabled: true,
                }],
                vlan_names: vec![(44, "blue".into())],
                vlan_digest: Some(0x0102_0304),
                management_vlan: Some(5),
                aggregation: Some(LldpAggregation {
                    supported: true,
                    enabled: true,
                    port: 9,
                }),
                longest_frame: Some(1_518),
            }
        );
    }

    #[test]
    fn what_is_no_lldp_is_refused() {
        assert_eq!(Lldp::read(&[0; 13]), Err(LldpError::OtherFrame));
        let mut other = frame(&begin());
        other[12] = 8;
        assert_eq!(Lldp::read(&other), Err(LldpError::OtherFrame));
        assert_eq!(Lldp::read(&frame(&[])), Err(LldpError::Order));
        assert_eq!(Lldp::read(&frame(&begin()[..1])), Err(LldpError::Order));
        let mut swapped = begin();
        swapped.swap(0, 1);
        assert_eq!(Lldp::read(&frame(&swapped)), Err(LldpError::Order));
        let whole = frame(&begin());
        let cut = Lldp::read(&whole[..whole.len() - 1]);
        assert_eq!(cut, Err(LldpError::Cut(TTL)));
        let mut short = begin();
        short[2] = part(TTL, &[1]);
        assert_eq!(Lldp::read(&frame(&short)), Err(LldpError::Length(TTL)));
        short[0] = part(CHASSIS, &[4]);
        assert_eq!(Lldp::read(&frame(&short)), Err(LldpError::Length(CHASSIS)));
    }

    #[test]
    fn lists_and_texts_are_bounded() {
        let mut parts = begin();
        for id in 0..200u8 {
            parts.push(part(ORGANIZATION, &[0x00, 0x80, 0xc2, 2, 6, 0, id]));
            parts.push(part(ORGANIZATION, &[0x00, 0x80, 0xc2, 3, 0, id, 1, b'x']));
        }
        parts.push(part(SYSTEM_NAME, &[b'a'; 511]));
        let found = Lldp::read(&frame(&parts)).unwrap();
        assert_eq!(found.protocol_vlans.len(), MOST_VLANS);
        assert_eq!(found.vlan_names.len(), MOST_VLANS);
        assert_eq!(found.system_name.map(|name| name.len()), Some(MOST_TEXT));
    }
}
