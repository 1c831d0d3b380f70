//! All that rtnetlink says of an interface.

use crate::attribute::{attribute, attributes, read_i32, read_text, read_u8, read_u32, read_u64};
use crate::{Error, Link, link};

// linux/if_link.h
const IFLA_ADDRESS: u16 = 1;
const IFLA_OPERSTATE: u16 = 16;
const IFLA_LINKINFO: u16 = 18;
const IFLA_IFALIAS: u16 = 20;
const IFLA_STATS64: u16 = 23;
const IFLA_XDP: u16 = 43;
const IFLA_PARENT_DEV_NAME: u16 = 56;
const IFLA_PARENT_DEV_BUS_NAME: u16 = 57;
const IFLA_INFO_DATA: u16 = 2;
const IFLA_INFO_SLAVE_KIND: u16 = 4;
const IFLA_INFO_SLAVE_DATA: u16 = 5;
const IFLA_XDP_ATTACHED: u16 = 2;
const IFLA_XDP_PROG_ID: u16 = 4;

/// How many counters there are.
const COUNTERS: usize = 23;

/// Names of [`Interface::counters`]: those of `struct rtnl_link_stats64` (linux/if_link.h) as Skydive
/// writes them.
pub const COUNTER_NAMES: [&str; COUNTERS] = [
    "RxPackets",
    "TxPackets",
    "RxBytes",
    "TxBytes",
    "RxErrors",
    "TxErrors",
    "RxDropped",
    "TxDropped",
    "Multicast",
    "Collisions",
    "RxLengthErrors",
    "RxOverErrors",
    "RxCrcErrors",
    "RxFrameErrors",
    "RxFifoErrors",
    "RxMissedErrors",
    "TxAbortedErrors",
    "TxCarrierErrors",
    "TxFifoErrors",
    "TxHeartbeatErrors",
    "TxWindowErrors",
    "RxCompressed",
    "TxCompressed",
];

/// Where an XDP program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum XdpMode {
    /// In the driver.
    Native,
    /// Behind it, on socket buffers.
    Generic,
    /// In the network card.
    Offloaded,
}

/// An attached XDP program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Xdp {
    /// Where it runs.
    pub mode: XdpMode,
    /// The kernel's number of the program.
    pub program: u32,
}

/// All that rtnetlink says of an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// What other parts need of it, too.
    pub link: Link,
    /// IFF_… of linux/if.h.
    pub flags: u32,
    /// RFC 2863 state (IF_OPER_…, linux/if.h): 0 unknown, 2 down, 6 up…
    pub operstate: u8,
    /// Hardware address, of whatever length.
    pub address: Vec<u8>,
    /// Text that the administrator gave it.
    pub alias: String,
    /// Counters since it was created, by [`COUNTER_NAMES`].
    pub counters: [u64; COUNTERS],
    /// Attributes of its kind (IFLA_INFO_DATA), undecoded.
    pub data: Vec<u8>,
    /// Kind of what it is a port of (`bridge`, `bond`, `vrf`).
    pub port_kind: String,
    /// Attributes as a port (IFLA_INFO_SLAVE_DATA), undecoded.
    pub port_data: Vec<u8>,
    /// XDP programs.
    pub xdp: Vec<Xdp>,
    /// Bus and name of the device that it is of (5.14).
    pub device: Option<(String, String)>,
}

/// Decodes the payload of an RTM_NEWLINK; none when it is not about an interface as such.
pub(crate) fn decode(payload: &[u8]) -> Result<Option<Interface>, Error> {
    let Some(decoded) = link::decode(payload)? else {
        return Ok(None);
    };
    // The link has been decoded, so its head is there.
    let (head, rest) = payload.split_at_checked(16).unwrap_or_default();
    let mut interface = Interface {
        link: decoded.link,
        flags: head.get(8..).and_then(read_u32).unwrap_or(0),
        operstate: 0,
        address: Vec::new(),
        alias: String::new(),
        counters: [0; COUNTERS],
        data: Vec::new(),
        port_kind: String::new(),
        port_data: Vec::new(),
        xdp: Vec::new(),
        device: None,
    };
    let (mut bus, mut device) = (None, None);
    for (kind, value) in attributes(rest) {
        match kind {
            IFLA_ADDRESS => interface.address = value.to_vec(),
            IFLA_OPERSTATE => interface.operstate = read_u8(value).unwrap_or(0),
            IFLA_IFALIAS => interface.alias = read_text(value),
            IFLA_STATS64 => {
                for (counter, bytes) in interface.counters.iter_mut().zip(value.chunks_exact(8)) {
                    *counter = read_u64(bytes).unwrap_or(0);
                }
            }
            IFLA_LINKINFO => {
                for (kind, value) in attributes(value) {
                    match kind {
                        IFLA_INFO_DATA => interface.data = value.to_vec(),
                        IFLA_INFO_SLAVE_KIND => interface.port_kind = read_text(value),
                        IFLA_INFO_SLAVE_DATA => interface.port_data = value.to_vec(),
                        _ => {}
                    }
                }
            }
            IFLA_XDP => interface.xdp = xdp(value),
            IFLA_PARENT_DEV_NAME => device = Some(read_text(value)),
            IFLA_PARENT_DEV_BUS_NAME => bus = Some(read_text(value)),
            _ => {}
        }
    }
    interface.device = bus.zip(device);
    Ok(Some(interface))
}

/// The programs in IFLA_XDP. With one program IFLA_XDP_ATTACHED is its mode; with several it is 4,
/// and each mode has an attribute of its own.
fn xdp(value: &[u8]) -> Vec<Xdp> {
    let number = |kind| attribute(value, kind).and_then(read_i32);
    let program = |kind, mode| {
        let program = u32::try_from(number(kind)?).ok().filter(|id| *id != 0)?;
        Some(Xdp { mode, program })
    };
    const MODES: [XdpMode; 3] = [XdpMode::Native, XdpMode::Generic, XdpMode::Offloaded];
    match attribute(value, IFLA_XDP_ATTACHED).and_then(read_u8) {
        Some(attached @ 1..=3) => {
            let mode = MODES[usize::from(attached) - 1];
            program(IFLA_XDP_PROG_ID, mode).into_iter().collect()
        }
        Some(4) => (IFLA_XDP_PROG_ID + 1..)
            .zip(MODES)
            .filter_map(|(kind, mode)| program(kind, mode))
            .collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Attributes;

    #[test]
    fn one_and_several_xdp_programs() {
        let one = Attributes::default()
            .with(IFLA_XDP_ATTACHED, &[2])
            .with_u32(IFLA_XDP_PROG_ID, 17);
        let generic = Xdp {
            mode: XdpMode::Generic,
            program: 17,
        };
        assert_eq!(xdp(one.bytes()), [generic]);
        let several = Attributes::default()
            .with(IFLA_XDP_ATTACHED, &[4])
            .with_u32(IFLA_XDP_PROG_ID + 1, 5)
            .with_u32(IFLA_XDP_PROG_ID + 3, 6);
        let found: Vec<_> = xdp(several.bytes())
            .iter()
            .map(|xdp| (xdp.mode, xdp.program))
            .collect();
        assert_eq!(found, [(XdpMode::Native, 5), (XdpMode::Offloaded, 6)]);
        let none = Attributes::default().with(IFLA_XDP_ATTACHED, &[0]);
        assert!(xdp(none.bytes()).is_empty());
    }

    #[test]
    fn an_interface_in_full() {
        let mut head = [0; 16];
        head[4] = 9;
        head[8..12].copy_from_slice(&0x1043u32.to_ne_bytes());
        let counters: Vec<u8> = (1..=25u64).flat_map(u64::to_ne_bytes).collect();
        let info = Attributes::default()
            .with(1, b"macvlan\0")
            .nest(IFLA_INFO_DATA, Attributes::default().with_u32(1, 4))
            .with(IFLA_INFO_SLAVE_KIND, b"bond\0");
        let message = Attributes::after(&head)
            .with(3, b"mv0\0")
            .with(IFLA_ADDRESS, &[2, 0, 0, 0, 0, 7])
            .with(IFLA_OPERSTATE, &[6])
            .with(IFLA_STATS64, &counters)
            .with(IFLA_PARENT_DEV_BUS_NAME, b"pci\0")
            .with(IFLA_PARENT_DEV_NAME, b"0000:00:03.0\0")
            .nest(IFLA_LINKINFO, info);
        let interface = decode(message.bytes()).unwrap().unwrap();
        assert_eq!(interface.link.name, "mv0");
        assert_eq!(interface.link.kind.as_deref(), Some("macvlan"));
        assert_eq!((interface.flags, interface.operstate), (0x1043, 6));
        assert_eq!(interface.counters[..3], [1, 2, 3]);
        assert_eq!(interface.counters[22], 23);
        assert_eq!(interface.port_kind, "bond");
        assert_eq!(attribute(&interface.data, 1).and_then(read_u32), Some(4));
        let device = Some(("pci".to_owned(), "0000:00:03.0".to_owned()));
        assert_eq!(interface.device, device);
    }
}
