//! Messages, OpenFlow 1.3 and 1.4 section 7.

use crate::{
    read::Reader,
    rule::{Group, GroupCounters, Rule, Update},
};

/// A version of OpenFlow that is spoken here.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Version {
    /// 1.3
    V13,
    /// 1.4
    V14,
}

impl Version {
    pub(crate) fn byte(self) -> u8 {
        match self {
            Self::V13 => 4,
            Self::V14 => 5,
        }
    }

    /// As people write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::V13 => "1.3",
            Self::V14 => "1.4",
        }
    }
}

/// Versions that are spoken, as bits.
const VERSIONS: u32 = 1 << 4 | 1 << 5;
/// Bytes of a header.
pub(crate) const HEADER: usize = 8;

const HELLO: u8 = 0;
const ERROR: u8 = 1;
const ECHO_REQUEST: u8 = 2;
const ECHO_REPLY: u8 = 3;
const MULTIPART_REQUEST: u8 = 18;
const MULTIPART_REPLY: u8 = 19;

const FLOW: u16 = 1;
const GROUP: u16 = 6;
const GROUP_DESC: u16 = 7;
const FLOW_MONITOR: u16 = 16;

/// A message of a switch.
#[derive(Clone, PartialEq, Debug)]
pub enum Message {
    /// The first; the best common version, if there is one.
    Hello(Option<Version>),
    /// To be answered with this.
    Echo(Vec<u8>),
    /// Rules with counters; whether more come.
    Rules(Vec<Rule>, bool),
    /// Changes of rules.
    Updates(Vec<Update>),
    /// Groups; whether more come.
    Groups(Vec<Group>, bool),
    /// Counters of groups; whether more come.
    GroupCounters(Vec<GroupCounters>, bool),
    /// The switch refuses a request: type and code of the error.
    Refused(u16, u16),
    /// Anything else.
    Other,
    /// Not as the protocol has it.
    Broken,
}

/// Length of a message that begins so; none: too few bytes.
pub(crate) fn length(bytes: &[u8]) -> Option<usize> {
    let mut reader = Reader::new(bytes);
    reader.skip(2)?;
    reader.u16().map(usize::from)
}

/// A message with the length that it has, whatever its header says.
pub fn with_length(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let length = u16::try_from(bytes.len()).unwrap_or(u16::MAX).to_be_bytes();
    if let Some(field) = bytes.get_mut(2..4) {
        field.copy_from_slice(&length);
    }
    bytes
}

/// Reads a whole message of a connection with this version.
pub fn read(bytes: &[u8], version: Version) -> Message {
    parse(bytes, version).unwrap_or(Message::Broken)
}

fn parse(bytes: &[u8], version: Version) -> Option<Message> {
    let mut reader = Reader::new(bytes);
    let peer = reader.u8()?;
    let kind = reader.u8()?;
    let length = usize::from(reader.u16()?);
    if length != bytes.len() {
        return None;
    }
    let id = reader.u32()?;
    Some(match kind {
        HELLO => Message::Hello(hello(peer, reader)),
        ERROR => Message::Refused(reader.u16()?, reader.u16()?),
        ECHO_REQUEST => Message::Echo(message(peer, ECHO_REPLY, id, reader.rest())),
        MULTIPART_REPLY => multipart(reader, version)?,
        _ => Message::Other,
    })
}

fn hello(peer: u8, mut reader: Reader) -> Option<Version> {
    let mut bits = None;
    while reader.len() >= 8 {
        let mut head = reader;
        let kind = head.u16()?;
        let length = usize::from(head.u16()?);
        if kind == 1 {
            bits = Some(head.u32()?);
        }
        reader.skip(length.max(4).next_multiple_of(8))?;
    }
    // Without a list, all up to its own.
    let theirs = bits.unwrap_or_else(|| (2_u32 << peer.min(30)) - 1);
    match theirs & VERSIONS {
        common if common & 1 << 5 != 0 => Some(Version::V14),
        common if common & 1 << 4 != 0 => Some(Version::V13),
        _ => None,
    }
}

fn multipart(mut reader: Reader, version: Version) -> Option<Message> {
    let (kind, flags) = (reader.u16()?, reader.u16()?);
    reader.skip(4)?;
    let more = flags & 1 == 1;
    Some(match kind {
        FLOW => {
            let rules = entries(&mut reader, |reader| Rule::entry(reader, version))?;
            Message::Rules(rules, more)
        }
        GROUP => Message::GroupCounters(entries(&mut reader, GroupCounters::entry)?, more),
        GROUP_DESC => Message::Groups(entries(&mut reader, Group::entry)?, more),
        FLOW_MONITOR => Message::Updates(entries(&mut reader, Update::entry)?),
        _ => Message::Other,
    })
}

fn entries<'a, T>(
    reader: &mut Reader<'a>,
    read: impl Fn(&mut Reader<'a>) -> Option<T>,
) -> Option<Vec<T>> {
    let mut entries = Vec::new();
    while !reader.is_empty() {
        entries.push(read(reader)?);
    }
    Some(entries)
}

fn message(version: u8, kind: u8, id: u32, body: &[u8]) -> Vec<u8> {
    let length = u16::try_from(HEADER + body.len()).unwrap_or(u16::MAX);
    let mut bytes = vec![version, kind];
    bytes.extend(length.to_be_bytes());
    bytes.extend(id.to_be_bytes());
    bytes.extend(body);
    bytes
}

/// The first message.
pub(crate) fn greeting() -> Vec<u8> {
    let mut body = vec![0, 1, 0, 8];
    body.extend(VERSIONS.to_be_bytes());
    message(Version::V14.byte(), HELLO, 1, &body)
}

pub(crate) fn echo(version: Version, id: u32) -> Vec<u8> {
    message(version.byte(), ECHO_REQUEST, id, &[])
}

fn request(version: Version, id: u32, kind: u16, rest: &[u8]) -> Vec<u8> {
    let mut body = Vec::from(kind.to_be_bytes());
    body.extend([0; 6]);
    body.extend(rest);
    message(version.byte(), MULTIPART_REQUEST, id, &body)
}

/// Everything: no field, filled up to eight bytes.
const ANY_MATCH: [u8; 8] = [0, 1, 0, 4, 0, 0, 0, 0];
const ANY: [u8; 4] = [0xff; 4];

/// Requests all rules.
pub(crate) fn rules(version: Version, id: u32) -> Vec<u8> {
    let mut body = vec![0xff, 0, 0, 0];
    body.extend(ANY); // port
    body.extend(ANY); // group
    body.extend([0; 4 + 8 + 8]); // cookie and mask
    body.extend(ANY_MATCH);
    request(version, id, FLOW, &body)
}

/// Requests changes of all rules from now on.
pub(crate) fn monitor(version: Version, id: u32) -> Vec<u8> {
    /// Added, removed and modified ones, with instructions.
    const FLAGS: u16 = 2 | 4 | 8 | 16;
    let mut body = Vec::from(1_u32.to_be_bytes());
    body.extend(ANY); // port
    body.extend(ANY); // group
    body.extend(FLAGS.to_be_bytes());
    body.extend([0xff, 0]); // all tables; a new monitor
    body.extend(ANY_MATCH);
    request(version, id, FLOW_MONITOR, &body)
}

/// Requests all groups.
pub(crate) fn groups(version: Version, id: u32) -> Vec<u8> {
    request(version, id, GROUP_DESC, &[])
}

/// Requests the counters of all groups.
pub(crate) fn group_counters(version: Version, id: u32) -> Vec<u8> {
    request(version, id, GROUP, &[0xff, 0xff, 0xff, 0xfc, 0, 0, 0, 0])
}
