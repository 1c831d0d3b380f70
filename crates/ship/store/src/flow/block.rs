//! Blocks: the changes of some thousand flows, in columns.
//!
//! A block is self-contained: texts, addresses, contexts and parties are in tables at its start, so
//! that damage costs only the rows of that block. `docs/history.md` has the layout.

use super::{
    FlowChange, FlowContext, StoredFlow,
    columns::{Reader, put, put_column, unzigzag, zigzag},
};
use hashbrown::HashMap;
use skua_flow::{
    Carries, ConversationOwner, Counters, Directions, EndReason, FlowKey, FlowRecord, Interval,
    LinkUpdate, Service, ServiceRule, TcpUpdate,
};
use skua_record::TcpCounters;

/// Version of the layout, which counters of TCP beyond those of a file do not change.
const LAYOUT: u8 = 4;
/// Rows of a block at most.
pub const ROWS: usize = 8_192;

/// Columns, in the order in which they are written.
#[derive(Clone, Copy)]
enum Col {
    Context,
    Lo,
    Hi,
    LoPort,
    HiPort,
    IfIndex,
    NetNs,
    OuterVlan,
    InnerVlan,
    Proto,
    Kind,
    Detail,
    TunnelHash,
    Id,
    /// As the difference to the row before.
    Serial,
    Bits,
    Joins,
    TunnelId,
    Parent,
    Sampling,
    /// As the difference to the row before.
    Updated,
    /// As the difference to `Updated`.
    Last,
    /// As the difference to `Last`.
    First,
    /// As the difference to `Last`.
    Since,
    /// Ns since the drain before.
    Interval,
    /// Counters without what this change added.
    LoPackets,
    LoBytes,
    HiPackets,
    HiBytes,
    LoPacketsAdded,
    LoBytesAdded,
    HiPacketsAdded,
    HiBytesAdded,
    Flags,
    ServerRtt,
    ClientRtt,
    LoParty,
    HiParty,
    /// 6 bytes, the first one lowest; 0 none.
    LoMac,
    HiMac,
    Moved,
    /// Third and fourth VLAN tag.
    InnerTags,
    /// One more than the label; 0 none.
    LoLabel,
    HiLabel,
    Fragments,
    Carries,
    ReplyRtt,
    SynTtls,
    /// One more than the difference to `Last`; 0 none.
    LoSyn,
    HiSyn,
    LoFin,
    HiFin,
    LoRst,
    HiRst,
    LoSkipped,
    HiSkipped,
    LoSkippedBytes,
    HiSkippedBytes,
}

/// The columns from here on are TCP's counters, of `lo` and `hi` in turn.
const TCP_COUNTERS: usize = Col::HiSkippedBytes as usize + 1;
const COLUMNS: usize = TCP_COUNTERS + 2 * TcpCounters::COUNT;

const END_REASONS: [EndReason; 4] = [
    EndReason::Closed,
    EndReason::Idle,
    EndReason::Evicted,
    EndReason::Shutdown,
];
const SERVICE_RULES: [ServiceRule; 5] = [
    ServiceRule::Kernel,
    ServiceRule::Listening,
    ServiceRule::Syn,
    ServiceRule::Ephemeral,
    ServiceRule::WellKnown,
];

/// Small fields in one number: whether `lo` spoke first (bit 0), which side opened (1–2), why it
/// ended (3–5), the service's side (6) and by which rule (7–9); 0 for unknown.
fn bits(record: &FlowRecord) -> u64 {
    fn place<T: PartialEq>(list: &[T], value: Option<T>) -> u64 {
        let at = value.and_then(|value| list.iter().position(|known| *known == value));
        at.map_or(0, |at| at as u64 + 1)
    }
    let opened = match record.tcp.lo_opened {
        None => 0,
        Some(false) => 1,
        Some(true) => 2,
    };
    let service = record.service;
    u64::from(record.lo_first)
        | opened << 1
        | place(&END_REASONS, record.end) << 3
        | u64::from(service.is_some_and(|service| service.lo)) << 6
        | place(&SERVICE_RULES, service.map(|service| service.by)) << 7
}

/// A MAC address as a number.
fn mac_number([a, b, c, d, e, f]: [u8; 6]) -> u64 {
    u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
}

fn mac(number: u64) -> [u8; 6] {
    let [a, b, c, d, e, f, ..] = number.to_le_bytes();
    [a, b, c, d, e, f]
}

/// A label as a number.
fn label_number(label: Option<u32>) -> u64 {
    label.map_or(0, |label| u64::from(label) + 1)
}

/// Owner of a socket, with numbers for texts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
struct PartyRow {
    process: u32,
    pid: u32,
    user: u32,
    /// 0 unknown, else one more.
    uid: u64,
    container: u32,
    pod: u32,
    unit: u32,
}

/// Texts with numbers; the empty one is 0.
#[derive(Default)]
struct Texts {
    numbers: HashMap<Box<str>, u32>,
    list: Vec<u8>,
}

impl Texts {
    fn number(&mut self, text: &str) -> u32 {
        if text.is_empty() {
            return 0;
        }
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        let number = self.numbers.len() as u32 + 1;
        self.numbers.insert(text.into(), number);
        put(&mut self.list, text.len() as u64);
        self.list.extend_from_slice(text.as_bytes());
        number
    }
}

/// Whether an address is stored in 4 bytes.
const V4_MAPPED: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];

/// A block that is being filled.
pub struct BlockWriter {
    texts: Texts,
    /// Numbers of addresses: even ones in the short list, odd ones in the long.
    addresses: HashMap<[u8; 16], u64>,
    short: Vec<u8>,
    long: Vec<u8>,
    contexts: HashMap<[u32; 4], u64>,
    context_list: Vec<[u32; 4]>,
    parties: HashMap<PartyRow, u64>,
    party_list: Vec<PartyRow>,
    columns: Vec<Vec<u64>>,
    updated: u64,
    /// `serial` of the last row.
    serial: u64,
    span: (u64, u64),
}

impl Default for BlockWriter {
    fn default() -> Self {
        Self {
            texts: Texts::default(),
            addresses: HashMap::new(),
            short: Vec::new(),
            long: Vec::new(),
            contexts: HashMap::new(),
            context_list: Vec::new(),
            parties: HashMap::new(),
            party_list: Vec::new(),
            columns: vec![Vec::new(); COLUMNS],
            updated: 0,
            serial: 0,
            span: (u64::MAX, 0),
        }
    }
}

impl BlockWriter {
    /// Rows in it.
    pub fn rows(&self) -> usize {
        self.columns[0].len()
    }

    /// Adds a row.
    pub fn push(&mut self, change: &FlowChange<'_>) {
        let record = change.record;
        let since = change.since_ns.min(record.last_ns);
        self.span = (
            self.span.0.min(since),
            self.span.1.max(record.last_ns).max(since),
        );
        let context = self.context(&change.context);
        let key = &record.key;
        let (lo, hi) = (self.address(&key.lo), self.address(&key.hi));
        let [lo_party, hi_party] = change.parties.map(|party| self.party(&party));
        let [a, b, c, d, e, f] = key.tunnel_hash;
        let [added_lo, added_hi] = change.added;
        let tcp = &record.tcp;
        let [third, fourth] = record.link.inner_tags;
        let time = |ns: u64| match ns {
            0 => 0,
            ns => zigzag(record.last_ns, ns).saturating_add(1),
        };
        let row: [(Col, u64); TCP_COUNTERS] = [
            (Col::Context, context),
            (Col::Lo, lo),
            (Col::Hi, hi),
            (Col::LoPort, u16::from_be_bytes(key.lo_port).into()),
            (Col::HiPort, u16::from_be_bytes(key.hi_port).into()),
            (Col::IfIndex, key.ifindex.into()),
            (Col::NetNs, key.netns.into()),
            (Col::OuterVlan, key.vlan[0].into()),
            (Col::InnerVlan, key.vlan[1].into()),
            (Col::Proto, key.proto.into()),
            (Col::Kind, key.kind.into()),
            (Col::Detail, key.detail.into()),
            (
                Col::TunnelHash,
                u64::from_le_bytes([a, b, c, d, e, f, 0, 0]),
            ),
            (Col::Id, record.id),
            (Col::Serial, zigzag(record.serial, self.serial)),
            (Col::Bits, bits(record)),
            (Col::Joins, record.joins.into()),
            (Col::TunnelId, record.tunnel_id.into()),
            (Col::Parent, record.parent),
            (Col::Sampling, record.sampling.into()),
            (Col::Updated, zigzag(record.updated_ns, self.updated)),
            (Col::Last, zigzag(record.updated_ns, record.last_ns)),
            (Col::First, zigzag(record.last_ns, record.first_ns)),
            (Col::Since, zigzag(record.last_ns, since)),
            (Col::Interval, record.interval.ns),
            (
                Col::LoPackets,
                record.lo_sent.packets.wrapping_sub(added_lo.packets),
            ),
            (
                Col::LoBytes,
                record.lo_sent.bytes.wrapping_sub(added_lo.bytes),
            ),
            (
                Col::HiPackets,
                record.hi_sent.packets.wrapping_sub(added_hi.packets),
            ),
            (
                Col::HiBytes,
                record.hi_sent.bytes.wrapping_sub(added_hi.bytes),
            ),
            (Col::LoPacketsAdded, added_lo.packets),
            (Col::LoBytesAdded, added_lo.bytes),
            (Col::HiPacketsAdded, added_hi.packets),
            (Col::HiBytesAdded, added_hi.bytes),
            (Col::Flags, u16::from_le_bytes(tcp.flags).into()),
            (Col::ServerRtt, tcp.server_rtt_ns),
            (Col::ClientRtt, tcp.client_rtt_ns),
            (Col::LoParty, lo_party),
            (Col::HiParty, hi_party),
            (Col::LoMac, mac_number(record.link.macs[0])),
            (Col::HiMac, mac_number(record.link.macs[1])),
            (Col::Moved, record.link.moved.into()),
            (Col::InnerTags, u64::from(third) | u64::from(fourth) << 16),
            (Col::LoLabel, label_number(record.link.labels[0])),
            (Col::HiLabel, label_number(record.link.labels[1])),
            (Col::Fragments, record.fragments),
            (Col::Carries, record.carries.0.into()),
            (Col::ReplyRtt, tcp.reply_ns),
            (Col::SynTtls, u16::from_le_bytes(tcp.syn_ttl).into()),
            (Col::LoSyn, time(tcp.syn_ns[0])),
            (Col::HiSyn, time(tcp.syn_ns[1])),
            (Col::LoFin, time(tcp.fin_ns[0])),
            (Col::HiFin, time(tcp.fin_ns[1])),
            (Col::LoRst, time(tcp.rst_ns[0])),
            (Col::HiRst, time(tcp.rst_ns[1])),
            (Col::LoSkipped, tcp.skipped[0].into()),
            (Col::HiSkipped, tcp.skipped[1].into()),
            (Col::LoSkippedBytes, tcp.skipped_bytes[0]),
            (Col::HiSkippedBytes, tcp.skipped_bytes[1]),
        ];
        self.updated = record.updated_ns;
        self.serial = record.serial;
        for (column, number) in row {
            self.columns[column as usize].push(number);
        }
        let counters = tcp.counters.all();
        let columns = &mut self.columns[TCP_COUNTERS..];
        for (column, number) in columns.iter_mut().zip(counters.as_flattened()) {
            column.push((*number).into());
        }
    }

    fn address(&mut self, address: &[u8; 16]) -> u64 {
        if let Some(number) = self.addresses.get(address) {
            return *number;
        }
        let number = if address[..12] == V4_MAPPED {
            self.short.extend_from_slice(&address[12..]);
            (self.short.len() as u64 / 4 - 1) * 2
        } else {
            self.long.extend_from_slice(address);
            (self.long.len() as u64 / 16 - 1) * 2 + 1
        };
        self.addresses.insert(*address, number);
        number
    }

    fn context(&mut self, context: &FlowContext<'_>) -> u64 {
        let FlowContext {
            host,
            capture,
            node_tid,
            interface,
        } = *context;
        let row = [host, capture, node_tid, interface].map(|text| self.texts.number(text));
        let next = self.context_list.len() as u64;
        let (list, contexts) = (&mut self.context_list, &mut self.contexts);
        *contexts.entry(row).or_insert_with(|| {
            list.push(row);
            next
        })
    }

    fn party(&mut self, party: &ConversationOwner<'_>) -> u64 {
        if *party == ConversationOwner::default() {
            return 0;
        }
        let mut number = |text| self.texts.number(text);
        let row = PartyRow {
            process: number(party.process),
            pid: party.pid,
            user: number(party.user),
            uid: party.uid.map_or(0, |uid| u64::from(uid) + 1),
            container: number(party.container),
            pod: number(party.pod),
            unit: number(party.unit),
        };
        let next = self.party_list.len() as u64 + 1;
        let (list, parties) = (&mut self.party_list, &mut self.parties);
        *parties.entry(row).or_insert_with(|| {
            list.push(row);
            next
        })
    }

    /// Returns the payload of the block, its number of rows, and the minimum and maximum time of packets
    /// in ns; empties the writer.
    pub fn finish(&mut self) -> (Vec<u8>, u32, (u64, u64)) {
        let rows = self.rows() as u32;
        let mut out = vec![LAYOUT];
        put(&mut out, rows.into());
        put(&mut out, self.texts.numbers.len() as u64);
        out.append(&mut self.texts.list);
        self.texts.numbers.clear();
        for (list, size) in [(&mut self.short, 4), (&mut self.long, 16)] {
            put(&mut out, (list.len() / size) as u64);
            out.append(list);
        }
        self.addresses.clear();
        put(&mut out, self.context_list.len() as u64);
        for context in self.context_list.drain(..) {
            context
                .iter()
                .for_each(|text| put(&mut out, (*text).into()));
        }
        self.contexts.clear();
        put(&mut out, self.party_list.len() as u64);
        for party in self.party_list.drain(..) {
            let PartyRow {
                process,
                pid,
                user,
                uid,
                container,
                pod,
                unit,
            } = party;
            let numbers = [process, pid, user, container, pod, unit];
            numbers
                .iter()
                .for_each(|number| put(&mut out, (*number).into()));
            put(&mut out, uid);
        }
        self.parties.clear();
        for column in &mut self.columns {
            put_column(&mut out, column);
            column.clear();
        }
        (self.updated, self.serial) = (0, 0);
        let span = std::mem::replace(&mut self.span, (u64::MAX, 0));
        (out, rows, span)
    }
}

/// Columns of a block, reused for the next one.
#[derive(Default)]
pub struct Scratch(Vec<Vec<u64>>);

/// What a block has before its columns.
pub struct Tables<'a> {
    rows: usize,
    texts: Vec<&'a str>,
    short: &'a [u8],
    long: &'a [u8],
    contexts: Vec<[u32; 4]>,
    parties: Vec<PartyRow>,
    columns: Reader<'a>,
}

impl<'a> Tables<'a> {
    /// Reads them; none when they are not as they should be.
    pub fn read(payload: &'a [u8]) -> Option<Self> {
        let mut reader = Reader::new(payload);
        if reader.array::<1>()?[0] != LAYOUT {
            return None;
        }
        let rows = usize::try_from(reader.number()?).ok()?;
        if rows > ROWS {
            return None;
        }
        let mut texts = vec![""];
        for _ in 0..reader.count(1)? {
            let len = reader.count(1)?;
            texts.push(std::str::from_utf8(reader.bytes(len)?).ok()?);
        }
        let short = reader.count(4)?;
        let short = reader.bytes(short * 4)?;
        let long = reader.count(16)?;
        let long = reader.bytes(long * 16)?;
        let known = texts.len();
        let text = |reader: &mut Reader<'_>| {
            let number = u32::try_from(reader.number()?).ok()?;
            ((number as usize) < known).then_some(number)
        };
        let mut contexts = Vec::new();
        for _ in 0..reader.count(4)? {
            let mut row = [0; 4];
            for number in &mut row {
                *number = text(&mut reader)?;
            }
            contexts.push(row);
        }
        let mut parties = vec![PartyRow::default()];
        for _ in 0..reader.count(7)? {
            parties.push(PartyRow {
                process: text(&mut reader)?,
                pid: u32::try_from(reader.number()?).ok()?,
                user: text(&mut reader)?,
                container: text(&mut reader)?,
                pod: text(&mut reader)?,
                unit: text(&mut reader)?,
                uid: reader.number()?,
            });
        }
        Some(Self {
            rows,
            texts,
            short,
            long,
            contexts,
            parties,
            columns: reader,
        })
    }

    /// Whether an address is in some row.
    pub fn has_address(&self, address: &[u8; 16]) -> bool {
        if address[..12] == V4_MAPPED {
            self.short
                .chunks_exact(4)
                .any(|known| *known == address[12..])
        } else {
            self.long.chunks_exact(16).any(|known| known == address)
        }
    }

    /// Whether some row's node has this identifier.
    pub fn has_node(&self, tid: &str) -> bool {
        (0..self.contexts.len()).any(|at| self.context(at).is_some_and(|c| c.node_tid == tid))
    }

    /// Whether some row is of this capture on this host.
    pub fn has_capture(&self, host: &str, capture: &str) -> bool {
        let same = |c: FlowContext<'_>| c.host == host && c.capture == capture;
        (0..self.contexts.len()).any(|at| self.context(at).is_some_and(same))
    }

    /// How many contexts there are.
    pub fn contexts(&self) -> usize {
        self.contexts.len()
    }

    /// A context by its number.
    pub fn context(&self, at: usize) -> Option<FlowContext<'a>> {
        let [host, capture, node_tid, interface] = *self.contexts.get(at)?;
        let text = |number: u32| self.texts.get(number as usize).copied();
        Some(FlowContext {
            host: text(host)?,
            capture: text(capture)?,
            node_tid: text(node_tid)?,
            interface: text(interface)?,
        })
    }

    fn address(&self, number: u64) -> Option<[u8; 16]> {
        let at = usize::try_from(number / 2).ok()?;
        if number.is_multiple_of(2) {
            let mut address = [0; 16];
            address[..12].copy_from_slice(&V4_MAPPED);
            address[12..].copy_from_slice(self.short.chunks_exact(4).nth(at)?);
            Some(address)
        } else {
            self.long.chunks_exact(16).nth(at)?.try_into().ok()
        }
    }

    fn party(&self, number: u64) -> Option<ConversationOwner<'a>> {
        let row = self.parties.get(usize::try_from(number).ok()?)?;
        let text = |number: u32| self.texts.get(number as usize).copied();
        Some(ConversationOwner {
            process: text(row.process)?,
            pid: row.pid,
            user: text(row.user)?,
            uid: match row.uid {
                0 => None,
                uid => Some(u32::try_from(uid - 1).ok()?),
            },
            container: text(row.container)?,
            pod: text(row.pod)?,
            unit: text(row.unit)?,
        })
    }

    /// Reads the columns; none when some row is not as it should be.
    pub fn rows<'s>(mut self, scratch: &'s mut Scratch) -> Option<Rows<'a, 's>> {
        let columns = &mut scratch.0;
        columns.resize_with(COLUMNS, Vec::new);
        for (place, column) in columns.iter_mut().enumerate() {
            // Written by a version with fewer counters.
            if place >= TCP_COUNTERS && self.columns.left() == 0 {
                column.clear();
                column.push(0);
            } else {
                self.columns.column(self.rows, column)?;
            }
        }
        if self.columns.left() > 0 {
            return None;
        }
        for column in [
            Col::Serial,
            Col::Updated,
            Col::Last,
            Col::First,
            Col::Since,
            Col::Interval,
        ] {
            let column = &mut columns[column as usize];
            if let [same] = column[..] {
                column.resize(self.rows, same);
            }
        }
        for column in [Col::Serial, Col::Updated] {
            let mut before = 0;
            for number in &mut columns[column as usize] {
                *number = unzigzag(*number, before);
                before = *number;
            }
        }
        let mut relate = |column: Col, to: Col| {
            let known = std::mem::take(&mut columns[to as usize]);
            for (number, known) in columns[column as usize].iter_mut().zip(&known) {
                *number = known.wrapping_sub(unzigzag(*number, 0));
            }
            columns[to as usize] = known;
        };
        relate(Col::Last, Col::Updated);
        relate(Col::First, Col::Last);
        relate(Col::Since, Col::Last);
        let rows = Rows {
            tables: self,
            columns,
        };
        rows.are_sound().then_some(rows)
    }
}

/// The rows of a block.
pub struct Rows<'a, 's> {
    tables: Tables<'a>,
    columns: &'s [Vec<u64>],
}

impl<'a> Rows<'a, '_> {
    /// How many.
    pub fn len(&self) -> usize {
        self.tables.rows
    }

    fn get(&self, at: usize, column: Col) -> u64 {
        self.number(at, column as usize)
    }

    fn number(&self, at: usize, column: usize) -> u64 {
        let column = &self.columns[column];
        // One value for all rows.
        if column.len() == 1 {
            column[0]
        } else {
            column[at]
        }
    }

    /// Whether all numbers mean something. By columns, so that it costs little.
    fn are_sound(&self) -> bool {
        let all = |column: Col, sound: &dyn Fn(u64) -> bool| {
            self.columns[column as usize]
                .iter()
                .all(|number| sound(*number))
        };
        let fit = |most: u64, columns: &[Col]| {
            let greatest = |column: &Col| self.columns[*column as usize].iter().copied().max();
            columns.iter().all(|column| greatest(column) <= Some(most))
        };
        let (short, long) = (self.tables.short.len() / 4, self.tables.long.len() / 16);
        let address = |number: u64| {
            let list = if number.is_multiple_of(2) {
                short
            } else {
                long
            };
            number / 2 < list as u64
        };
        let known = |bits: u64| {
            bits >> 10 == 0
                && bits >> 1 & 3 < 3
                && bits >> 3 & 7 <= END_REASONS.len() as u64
                && bits >> 7 & 7 <= SERVICE_RULES.len() as u64
        };
        all(Col::Lo, &address)
            && all(Col::Hi, &address)
            && all(Col::Context, &|context| {
                context < self.tables.contexts.len() as u64
            })
            && all(Col::Bits, &known)
            && fit(
                self.tables.parties.len() as u64 - 1,
                &[Col::LoParty, Col::HiParty],
            )
            && fit(
                u8::MAX.into(),
                &[Col::Proto, Col::Kind, Col::Joins, Col::Carries],
            )
            && fit(
                u16::MAX.into(),
                &[
                    Col::LoPort,
                    Col::HiPort,
                    Col::NetNs,
                    Col::OuterVlan,
                    Col::InnerVlan,
                    Col::Detail,
                    Col::Flags,
                    Col::SynTtls,
                ],
            )
            && fit(
                u32::MAX.into(),
                &[
                    Col::IfIndex,
                    Col::TunnelId,
                    Col::Sampling,
                    Col::Moved,
                    Col::InnerTags,
                    Col::LoSkipped,
                    Col::HiSkipped,
                ],
            )
            && fit(
                (1 << 48) - 1,
                &[Col::TunnelHash, Col::Parent, Col::LoMac, Col::HiMac],
            )
            && fit(1 << 20, &[Col::LoLabel, Col::HiLabel])
            && self.columns[TCP_COUNTERS..]
                .iter()
                .all(|column| column.iter().all(|number| u32::try_from(*number).is_ok()))
    }

    /// Time of the last packet before this change, ns.
    pub fn since(&self, at: usize) -> u64 {
        self.get(at, Col::Since)
    }

    /// Time of the last packet, ns.
    pub fn last(&self, at: usize) -> u64 {
        self.get(at, Col::Last)
    }

    /// Time of the first packet, ns.
    pub fn first(&self, at: usize) -> u64 {
        self.get(at, Col::First)
    }

    /// [`FlowRecord::serial`].
    pub fn serial(&self, at: usize) -> u64 {
        self.get(at, Col::Serial)
    }

    /// Identifier of the flow.
    pub fn id(&self, at: usize) -> u64 {
        self.get(at, Col::Id)
    }

    /// Number of the context.
    pub fn context_number(&self, at: usize) -> usize {
        self.get(at, Col::Context) as usize
    }

    /// The tables before the columns.
    pub fn tables(&self) -> &Tables<'a> {
        &self.tables
    }

    /// The key; none can only be when the block is not sound.
    pub fn key(&self, at: usize) -> Option<FlowKey> {
        let mut tunnel_hash = [0; 6];
        tunnel_hash.copy_from_slice(&self.get(at, Col::TunnelHash).to_le_bytes()[..6]);
        Some(FlowKey {
            lo: self.tables.address(self.get(at, Col::Lo))?,
            hi: self.tables.address(self.get(at, Col::Hi))?,
            lo_port: (self.get(at, Col::LoPort) as u16).to_be_bytes(),
            hi_port: (self.get(at, Col::HiPort) as u16).to_be_bytes(),
            ifindex: self.get(at, Col::IfIndex) as u32,
            netns: self.get(at, Col::NetNs) as u16,
            vlan: [Col::OuterVlan, Col::InnerVlan].map(|column| self.get(at, column) as u16),
            proto: self.get(at, Col::Proto) as u8,
            kind: self.get(at, Col::Kind) as u8,
            detail: self.get(at, Col::Detail) as u16,
            tunnel_hash,
        })
    }

    fn tcp_counters(&self, at: usize) -> TcpCounters {
        let mut all = TcpCounters::default().all();
        for (counter, column) in all.as_flattened_mut().iter_mut().zip(TCP_COUNTERS..) {
            *counter = self.number(at, column) as u32;
        }
        TcpCounters::of(all)
    }

    /// All fields of a row.
    pub fn flow(&self, at: usize, key: FlowKey) -> Option<StoredFlow<'a>> {
        let counters = |packets, bytes| Counters::new(self.get(at, packets), self.get(at, bytes));
        let sum = |a: Counters, b: Counters| {
            Counters::new(
                a.packets.wrapping_add(b.packets),
                a.bytes.wrapping_add(b.bytes),
            )
        };
        let added = [
            counters(Col::LoPacketsAdded, Col::LoBytesAdded),
            counters(Col::HiPacketsAdded, Col::HiBytesAdded),
        ];
        let bits = self.get(at, Col::Bits);
        let nth = |at: u64| usize::try_from(at).ok()?.checked_sub(1);
        let tags = self.get(at, Col::InnerTags);
        let time = |column| match self.get(at, column) {
            0 => 0,
            more => self.last(at).wrapping_sub(unzigzag(more - 1, 0)),
        };
        let by = nth(bits >> 7 & 7).and_then(|rule| SERVICE_RULES.get(rule));
        let record = FlowRecord {
            key,
            id: self.id(at),
            serial: self.serial(at),
            lo_sent: sum(counters(Col::LoPackets, Col::LoBytes), added[0]),
            hi_sent: sum(counters(Col::HiPackets, Col::HiBytes), added[1]),
            first_ns: self.first(at),
            last_ns: self.last(at),
            updated_ns: self.get(at, Col::Updated),
            interval: Interval {
                lo_sent: added[0],
                hi_sent: added[1],
                ns: self.get(at, Col::Interval),
                since_ns: self.since(at),
            },
            tcp: TcpUpdate {
                flags: (self.get(at, Col::Flags) as u16).to_le_bytes(),
                counters: self.tcp_counters(at),
                server_rtt_ns: self.get(at, Col::ServerRtt),
                client_rtt_ns: self.get(at, Col::ClientRtt),
                lo_opened: match bits >> 1 & 3 {
                    1 => Some(false),
                    2 => Some(true),
                    _ => None,
                },
                reply_ns: self.get(at, Col::ReplyRtt),
                syn_ttl: (self.get(at, Col::SynTtls) as u16).to_le_bytes(),
                syn_ns: [Col::LoSyn, Col::HiSyn].map(time),
                fin_ns: [Col::LoFin, Col::HiFin].map(time),
                rst_ns: [Col::LoRst, Col::HiRst].map(time),
                skipped: [Col::LoSkipped, Col::HiSkipped].map(|column| self.get(at, column) as u32),
                skipped_bytes: [Col::LoSkippedBytes, Col::HiSkippedBytes]
                    .map(|column| self.get(at, column)),
            },
            link: LinkUpdate {
                macs: [Col::LoMac, Col::HiMac].map(|column| mac(self.get(at, column))),
                moved: self.get(at, Col::Moved) as u32,
                inner_tags: [tags as u16, (tags >> 16) as u16],
                labels: [Col::LoLabel, Col::HiLabel].map(|column| {
                    let label = self.get(at, column) as u32;
                    label.checked_sub(1)
                }),
            },
            fragments: self.get(at, Col::Fragments),
            carries: Carries(self.get(at, Col::Carries) as u8),
            tunnel_id: self.get(at, Col::TunnelId) as u32,
            parent: self.get(at, Col::Parent),
            sampling: self.get(at, Col::Sampling) as u32,
            lo_first: bits & 1 == 1,
            end: nth(bits >> 3 & 7).and_then(|end| END_REASONS.get(end).copied()),
            owners: [None; 2],
            service: by.map(|by| Service {
                lo: bits >> 6 & 1 == 1,
                by: *by,
            }),
            joins: self.get(at, Col::Joins) as u8,
            directions: Directions::default(),
        };
        Some(StoredFlow {
            record,
            added,
            since_ns: self.since(at),
            context: self.tables.context(self.context_number(at))?,
            parties: [
                self.tables.party(self.get(at, Col::LoParty))?,
                self.tables.party(self.get(at, Col::HiParty))?,
            ],
            ahead: false,
        })
    }
}

#[cfg(test)]
mod tests {
    use skua_flow::{FlowLine, FlowUpdate, fields::FIELDS};

    use super::*;

    #[test]
    fn blocks_of_a_version_with_fewer_counters_are_read() {
        let mut update = FlowUpdate::default();
        update.tcp.counters = TcpCounters::of([[7, 8]; TcpCounters::COUNT]);
        let record = FlowRecord::new(&update, 1, 0, 0, 0);
        let mut writer = BlockWriter::default();
        writer.push(&FlowChange {
            record: &record,
            added: Default::default(),
            since_ns: 0,
            context: FlowContext::default(),
            parties: Default::default(),
        });
        writer.columns.truncate(COLUMNS - 2);
        let (payload, ..) = writer.finish();
        let mut scratch = Scratch::default();
        let rows = Tables::read(&payload).unwrap().rows(&mut scratch).unwrap();
        let mut expected = update.tcp.counters.all();
        expected[TcpCounters::COUNT - 1] = [0; 2];
        assert_eq!(rows.tcp_counters(0), TcpCounters::of(expected));
    }

    /// TCP in a tunnel behind a VLAN tag, a query of ICMP, and ARP.
    fn keys() -> [FlowKey; 3] {
        let address = |last| {
            let mut address = [0; 16];
            address[10..].copy_from_slice(&[0xff, 0xff, 10, 0, 0, last]);
            address
        };
        let tcp = FlowKey {
            lo: address(1),
            hi: address(2),
            lo_port: 443u16.to_be_bytes(),
            hi_port: 50_000u16.to_be_bytes(),
            ifindex: 3,
            netns: 4,
            vlan: [skua_flow::VLAN_PRESENT | 7, 0],
            proto: 6,
            kind: 1 | skua_flow::KIND_ETHERNET | 1 << skua_flow::key::KIND_TUNNEL_SHIFT,
            detail: 0,
            tunnel_hash: [1, 2, 3, 4, 5, 6],
        };
        let icmp = FlowKey {
            proto: 1,
            lo_port: [8, 0],
            hi_port: [0; 2],
            kind: 1,
            detail: 77,
            ..tcp
        };
        let arp = FlowKey {
            proto: 0,
            lo_port: [0; 2],
            hi_port: [0; 2],
            kind: skua_flow::KIND_ETHERNET,
            detail: 0x0806,
            ..tcp
        };
        [tcp, icmp, arp]
    }

    #[test]
    fn every_field_of_flows_is_as_it_was_written() {
        let mut update = FlowUpdate {
            lo_sent: Counters::new(3, 300),
            hi_sent: Counters::new(2, 200),
            first_ns: 1_000_000_000_000,
            last_ns: 1_002_000_000_000,
            tunnel_id: 9,
            parent: 0xab_cdef,
            tcp: TcpUpdate {
                flags: [0xff, 0x53],
                counters: TcpCounters::of([[7, 8]; TcpCounters::COUNT]),
                server_rtt_ns: 2_000,
                client_rtt_ns: 1_000,
                lo_opened: Some(false),
                reply_ns: 4_000,
                syn_ttl: [64, 63],
                syn_ns: [1_000_000_000_000, 1_000_000_002_000],
                fin_ns: [1_001_000_000_000, 1_001_500_000_000],
                rst_ns: [1_002_000_000_001, 1_002_000_000_002],
                skipped: [1, 2],
                skipped_bytes: [1_448, 1 << 33],
            },
            link: LinkUpdate {
                macs: [[2, 0, 0, 0, 0, 1], [0xfe, 0, 0, 0, 0, 2]],
                moved: 5,
                inner_tags: [skua_flow::VLAN_PRESENT | 8, skua_flow::VLAN_PRESENT],
                labels: [Some(0), Some((1 << 20) - 1)],
            },
            fragments: 6,
            carries: Carries(9),
            ..FlowUpdate::default()
        };
        let party = ConversationOwner {
            process: "nginx",
            pid: 80,
            user: "www",
            uid: Some(33),
            container: "web",
            pod: "shop",
            unit: "docker.service",
        };
        // A history has a record for each point. What files say is looked up when a record is read.
        let by_files = ["country", "asn", "organization", "network", "port_name"];
        // The history keeps nothing of what packets say (docs/dns.md).
        let by_heads = ["name", "sni", "alpn", "version", "ja4", "ech"];
        let of_a_point = FIELDS.iter().filter(|field| {
            let name = field.path.rsplit('.').next().unwrap_or_default();
            field.path != "points" && !by_files.contains(&name) && !by_heads.contains(&name)
        });
        let mut absent: Vec<_> = of_a_point.map(|field| field.path).collect();
        for key in keys() {
            update.key = key;
            let mut record = FlowRecord::new(&update, 1, 10, 1_003_000_000_000, 1_000_000_000);
            record.end = Some(EndReason::Idle);
            record.service = Some(Service {
                lo: true,
                by: ServiceRule::Syn,
            });
            let mut writer = BlockWriter::default();
            writer.push(&FlowChange {
                record: &record,
                added: [record.interval.lo_sent, record.interval.hi_sent],
                since_ns: record.interval.since_ns,
                context: FlowContext {
                    interface: "eth0",
                    ..FlowContext::default()
                },
                parties: [party; 2],
            });
            let (payload, ..) = writer.finish();
            let mut scratch = Scratch::default();
            let rows = Tables::read(&payload).unwrap().rows(&mut scratch).unwrap();
            let read = rows.flow(0, rows.key(0).unwrap()).unwrap();
            let before = FlowLine {
                owners: [party; 2],
                ..record.line("eth0")
            };
            let after = FlowLine {
                owners: read.parties,
                ..read.record.line(read.context.interface)
            };
            for field in FIELDS {
                let value = (field.value)(&before);
                absent.retain(|path| value.is_absent() || *path != field.path);
                let (value, read) = (value.to_string(), (field.value)(&after).to_string());
                assert_eq!(value, read, "{}", field.path);
            }
        }
        assert!(absent.is_empty(), "give these a value here: {absent:?}");
    }
}
