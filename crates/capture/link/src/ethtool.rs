//! Speed, duplex and features of interfaces, over ethtool's generic netlink (5.6; features 5.7).

use crate::attribute::{Attributes, attribute, attributes, read_text, read_u8, read_u16, read_u32};
use crate::{Error, Notice, Protocol, Requests};
use std::{collections::BTreeSet, io};

// linux/genetlink.h
const GENL_ID_CTRL: u16 = 0x10;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
const CTRL_ATTR_MCAST_GROUPS: u16 = 7;
const CTRL_ATTR_MCAST_GRP_NAME: u16 = 1;
const CTRL_ATTR_MCAST_GRP_ID: u16 = 2;

// linux/ethtool_netlink.h
const ETHTOOL_MSG_STRSET_GET: u8 = 1;
const ETHTOOL_MSG_LINKMODES_GET: u8 = 4;
const ETHTOOL_MSG_FEATURES_GET: u8 = 11;
const ETHTOOL_MSG_FEATURES_SET: u8 = 12;
const ETHTOOL_MSG_LINKMODES_NTF: u8 = 7;
const ETHTOOL_MSG_FEATURES_NTF: u8 = 13;
/// The header is the first attribute of every message.
const HEADER: u16 = 1;
const ETHTOOL_A_HEADER_DEV_INDEX: u16 = 1;
const ETHTOOL_A_HEADER_FLAGS: u16 = 3;
const ETHTOOL_FLAG_COMPACT_BITSETS: u32 = 1;
const ETHTOOL_A_LINKMODES_SPEED: u16 = 5;
const ETHTOOL_A_LINKMODES_DUPLEX: u16 = 6;
const ETHTOOL_A_FEATURES_WANTED: u16 = 3;
const ETHTOOL_A_FEATURES_ACTIVE: u16 = 4;
const ETHTOOL_A_BITSET_BITS: u16 = 3;
const ETHTOOL_A_BITSET_BITS_BIT: u16 = 1;
const ETHTOOL_A_BITSET_BIT_NAME: u16 = 2;
const ETHTOOL_A_BITSET_VALUE: u16 = 4;
const ETHTOOL_A_STRSET_STRINGSETS: u16 = 2;
const ETHTOOL_A_STRINGSETS_STRINGSET: u16 = 1;
const ETHTOOL_A_STRINGSET_ID: u16 = 1;
const ETHTOOL_A_STRINGSET_STRINGS: u16 = 3;
const ETHTOOL_A_STRINGS_STRING: u16 = 1;
const ETHTOOL_A_STRING_INDEX: u16 = 1;
const ETHTOOL_A_STRING_VALUE: u16 = 2;
/// Number of the set of names of features.
const ETH_SS_FEATURES: u32 = 4;
/// More features than any kernel has.
const MOST_FEATURES: usize = 1024;
const SPEED_UNKNOWN: u32 = u32::MAX;

/// Speed and duplex of an interface.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Modes {
    /// Mbit/s, when known.
    pub speed: Option<u32>,
    /// Whether both directions go at once, when known.
    pub full_duplex: Option<bool>,
}

/// Ethtool's notifications about an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EthtoolEvent {
    /// Its features: a bit for each of [`Ethtool::feature_names`], set when active.
    Features(u32, Vec<u8>),
    /// Its speed and duplex.
    Modes(u32, Modes),
    /// The kernel had to drop notifications: everything must be listed again.
    Lost,
}

impl EthtoolEvent {
    /// What a notification of the group [`Ethtool::monitor_group`] says.
    pub fn decode(notice: Notice<'_>) -> Option<Self> {
        let Notice::Message { payload, .. } = notice else {
            return Some(Self::Lost);
        };
        match *payload.first()? {
            ETHTOOL_MSG_FEATURES_NTF => Self::message(ETHTOOL_MSG_FEATURES_GET, payload),
            ETHTOOL_MSG_LINKMODES_NTF => Self::message(ETHTOOL_MSG_LINKMODES_GET, payload),
            _ => None,
        }
    }

    /// The answer to a request.
    fn message(asked: u8, payload: &[u8]) -> Option<Self> {
        let rest = payload.get(4..)?;
        let header = attribute(rest, HEADER)?;
        let ifindex = attribute(header, ETHTOOL_A_HEADER_DEV_INDEX).and_then(read_u32)?;
        match asked {
            ETHTOOL_MSG_FEATURES_GET => {
                let active = attribute(rest, ETHTOOL_A_FEATURES_ACTIVE)?;
                let bits = attribute(active, ETHTOOL_A_BITSET_VALUE)?;
                Some(Self::Features(ifindex, bitmap(bits)))
            }
            ETHTOOL_MSG_LINKMODES_GET => {
                let speed = attribute(rest, ETHTOOL_A_LINKMODES_SPEED).and_then(read_u32);
                let duplex = attribute(rest, ETHTOOL_A_LINKMODES_DUPLEX).and_then(read_u8);
                let modes = Modes {
                    speed: speed.filter(|speed| *speed != SPEED_UNKNOWN),
                    full_duplex: duplex.filter(|duplex| *duplex < 2).map(|full| full == 1),
                };
                Some(Self::Modes(ifindex, modes))
            }
            _ => None,
        }
    }
}

/// The kernel's bitmap of 32-bit words, as bytes with the lowest bit first.
fn bitmap(words: &[u8]) -> Vec<u8> {
    let words = words.chunks_exact(4).filter_map(read_u32);
    words.flat_map(u32::to_le_bytes).collect()
}

/// Queries ethtool in one network namespace: that in which it was opened.
#[derive(Debug)]
pub struct Ethtool {
    requests: Requests,
    family: u16,
    monitor: Option<u32>,
}

impl Ethtool {
    /// Opens a socket in the calling thread's namespace; none where the kernel has no ethtool over
    /// netlink.
    pub fn open() -> Result<Option<Self>, Error> {
        let mut requests = Requests::open(Protocol::Generic)?;
        let request = Attributes::after(&[CTRL_CMD_GETFAMILY, 1, 0, 0])
            .with(CTRL_ATTR_FAMILY_NAME, b"ethtool\0");
        let (mut family, mut monitor) = (None, None);
        let asked = requests.get(GENL_ID_CTRL, request.bytes(), |_, payload| {
            for (kind, value) in attributes(payload.get(4..).unwrap_or_default()) {
                match kind {
                    CTRL_ATTR_FAMILY_ID => family = read_u16(value),
                    CTRL_ATTR_MCAST_GROUPS => {
                        monitor = attributes(value).find_map(|(_, group)| {
                            let name = attribute(group, CTRL_ATTR_MCAST_GRP_NAME)?;
                            let number = attribute(group, CTRL_ATTR_MCAST_GRP_ID)?;
                            (read_text(name) == "monitor").then(|| read_u32(number))?
                        });
                    }
                    _ => {}
                }
            }
            Ok(())
        });
        match asked {
            Ok(()) => Ok(family.map(|family| Self {
                requests,
                family,
                monitor,
            })),
            Err(Error::Netlink { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Multicast group of changes, for a [`crate::Monitor`] of generic netlink.
    pub fn monitor_group(&self) -> Option<u32> {
        self.monitor
    }

    /// Names of the features, by number; the same for all interfaces.
    pub fn feature_names(&mut self) -> Result<Vec<String>, Error> {
        let set = Attributes::default().with_u32(ETHTOOL_A_STRINGSET_ID, ETH_SS_FEATURES);
        let sets = Attributes::default().nest(ETHTOOL_A_STRINGSETS_STRINGSET, set);
        let request = Attributes::after(&[ETHTOOL_MSG_STRSET_GET, 1, 0, 0])
            .nest(HEADER, Attributes::default())
            .nest(ETHTOOL_A_STRSET_STRINGSETS, sets);
        let mut names = Vec::new();
        self.requests
            .get(self.family, request.bytes(), |_, payload| {
                names = feature_names(payload.get(4..).unwrap_or_default());
                Ok(())
            })?;
        Ok(names)
    }

    /// Features of one interface, or of all.
    pub fn features(
        &mut self,
        ifindex: Option<u32>,
        take: impl FnMut(EthtoolEvent),
    ) -> Result<(), Error> {
        self.request(ETHTOOL_MSG_FEATURES_GET, ifindex, take)
    }

    /// Names of the features that are active on an interface.
    pub fn active_features(&mut self, ifindex: u32) -> Result<BTreeSet<String>, Error> {
        let names = self.feature_names()?;
        let mut active = BTreeSet::new();
        self.features(Some(ifindex), |event| {
            let EthtoolEvent::Features(_, bits) = event else {
                return;
            };
            let on = |place: &usize| {
                bits.get(place / 8)
                    .is_some_and(|b| b >> (place % 8) & 1 == 1)
            };
            let found = (0..names.len()).filter(on);
            active.extend(found.map(|place| names[place].clone()));
        })?;
        Ok(active)
    }

    /// Turns features off, by the names that `ethtool -k` of the kernel has for them
    /// (`tx-tcp-segmentation`). What cannot be turned off stays.
    pub fn turn_off(&mut self, ifindex: u32, features: &[&str]) -> Result<(), Error> {
        let header = Attributes::default().with_u32(ETHTOOL_A_HEADER_DEV_INDEX, ifindex);
        // A bit with a name and without a value is off.
        let bit = |bits: Attributes, name: &&str| {
            let mut text = name.as_bytes().to_vec();
            text.push(0);
            let one = Attributes::default().with(ETHTOOL_A_BITSET_BIT_NAME, &text);
            bits.nest(ETHTOOL_A_BITSET_BITS_BIT, one)
        };
        let bits = features.iter().fold(Attributes::default(), bit);
        let set = Attributes::default().nest(ETHTOOL_A_BITSET_BITS, bits);
        let request = Attributes::after(&[ETHTOOL_MSG_FEATURES_SET, 1, 0, 0])
            .nest(HEADER, header)
            .nest(ETHTOOL_A_FEATURES_WANTED, set);
        self.requests.change(self.family, request.bytes())
    }

    /// Speed and duplex of one interface, or of all.
    pub fn modes(
        &mut self,
        ifindex: Option<u32>,
        take: impl FnMut(EthtoolEvent),
    ) -> Result<(), Error> {
        self.request(ETHTOOL_MSG_LINKMODES_GET, ifindex, take)
    }

    /// Sends a request and hands out the answers; there is none for interfaces without the property.
    fn request(
        &mut self,
        command: u8,
        ifindex: Option<u32>,
        mut take: impl FnMut(EthtoolEvent),
    ) -> Result<(), Error> {
        let mut header = Attributes::default();
        if let Some(ifindex) = ifindex {
            header = header.with_u32(ETHTOOL_A_HEADER_DEV_INDEX, ifindex);
        }
        header = header.with_u32(ETHTOOL_A_HEADER_FLAGS, ETHTOOL_FLAG_COMPACT_BITSETS);
        let request = Attributes::after(&[command, 1, 0, 0]).nest(HEADER, header);
        let each = |_, payload: &[u8]| {
            if let Some(event) = EthtoolEvent::message(command, payload) {
                take(event);
            }
            Ok(())
        };
        let asked = match ifindex {
            Some(_) => self.requests.get(self.family, request.bytes(), each),
            None => self
                .requests
                .dump(self.family, request.bytes(), each)
                .map(drop),
        };
        match asked {
            // Removed meanwhile, or without such a property, or the kernel is too old for this request.
            Err(Error::Netlink { source, .. })
                if [rustix::io::Errno::NODEV, rustix::io::Errno::OPNOTSUPP]
                    .iter()
                    .any(|errno| source.raw_os_error() == Some(errno.raw_os_error())) =>
            {
                Ok(())
            }
            other => other,
        }
    }
}

fn feature_names(answer: &[u8]) -> Vec<String> {
    let mut names = Vec::new();
    let sets = attribute(answer, ETHTOOL_A_STRSET_STRINGSETS).unwrap_or_default();
    let set = attribute(sets, ETHTOOL_A_STRINGSETS_STRINGSET).unwrap_or_default();
    let strings = attribute(set, ETHTOOL_A_STRINGSET_STRINGS).unwrap_or_default();
    for (kind, string) in attributes(strings) {
        let index = attribute(string, ETHTOOL_A_STRING_INDEX).and_then(read_u32);
        let value = attribute(string, ETHTOOL_A_STRING_VALUE);
        let (Some(index), Some(value)) = (index, value) else {
            continue;
        };
        let index = index as usize;
        if kind == ETHTOOL_A_STRINGS_STRING && index < MOST_FEATURES {
            names.resize(names.len().max(index + 1), String::new());
            names[index] = read_text(value);
        }
    }
    names
}
