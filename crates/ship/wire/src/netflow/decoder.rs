//! The decoder of all versions.

use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use super::{
    Clock, Flow, Sink,
    hold::{Held, Hold},
    options::{self, NAME_BYTES},
    session::{Key, Session},
    template::{self, FIRST_ID},
    v5,
};
use crate::{DecodeError, Problem, Step, reader::Reader};

const V9: u16 = 9;
const IPFIX: u16 = 10;
/// Sets of templates and of templates of options.
const V9_TEMPLATES: u16 = 0;
const V9_OPTIONS: u16 = 1;
const IPFIX_TEMPLATES: u16 = 2;
const IPFIX_OPTIONS: u16 = 3;
/// Number and length before each set.
const SET_HEADER: usize = 4;
/// Interval between two sweeps of expired entries, ns.
const SWEEP_NS: u64 = 1_000_000_000;

/// Limits of a decoder's state.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Streams: an exporter's address, port, version and observation domain.
    pub sessions: usize,
    /// Templates of one stream; the one not refreshed for the longest time is removed first.
    pub templates: usize,
    /// Fields of one template.
    pub fields: usize,
    /// Fields of all templates together.
    pub all_fields: usize,
    /// Templates and streams expire after this much silence.
    pub lifetime: Duration,
    /// Bytes of data that waits for its template.
    pub held_bytes: usize,
    /// How long it waits.
    pub held_time: Duration,
    /// Names of interfaces.
    pub names: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            sessions: 4096,
            templates: 1024,
            fields: 512,
            all_fields: 1 << 20,
            lifetime: Duration::from_secs(2 * 3600),
            held_bytes: 1 << 20,
            held_time: Duration::from_secs(60),
            names: 16_384,
        }
    }
}

/// Sets of records.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SetCount {
    /// Sets.
    pub sets: u64,
    /// Their bytes, without their headers.
    pub bytes: u64,
}

impl SetCount {
    fn add(&mut self, bytes: &[u8]) {
        self.sets += 1;
        self.bytes += bytes.len() as u64;
    }
}

/// What a datagram did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    /// Flows passed to the sink, with those that were held.
    pub flows: u64,
    /// Flows among them that were held.
    pub released: u64,
    /// Records of options.
    pub options: u64,
    /// Templates received.
    pub templates: u64,
    /// Sets dropped because no template for them arrived.
    pub no_template: SetCount,
    /// Sets that wait for their template since now.
    pub held: SetCount,
    /// Result of the sequence number: in datagrams for version 9, else in records.
    pub step: Step,
    /// The first error; flows read before it count.
    pub error: Option<DecodeError>,
}

/// Decodes the datagrams of any number of exporters.
pub struct Decoder {
    limits: Limits,
    sessions: HashMap<Key, Session>,
    /// Fields of all templates.
    fields: usize,
    hold: Hold<Key>,
    /// Names of interfaces, by the exporter's address and ifIndex.
    names: HashMap<(IpAddr, u32), Box<str>>,
    swept_ns: u64,
}

/// What all parts of one datagram share.
struct Message {
    key: Key,
    clock: Clock,
    now_ns: u64,
}

impl Default for Decoder {
    fn default() -> Self {
        Self::new(Limits::default())
    }
}

impl Decoder {
    /// A decoder without state.
    pub fn new(limits: Limits) -> Self {
        let held_ns = u64::try_from(limits.held_time.as_nanos()).unwrap_or(u64::MAX);
        Self {
            limits,
            sessions: HashMap::new(),
            fields: 0,
            hold: Hold::new(limits.held_bytes, held_ns),
            names: HashMap::new(),
            swept_ns: 0,
        }
    }

    /// Streams in the table.
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// Sets that wait for their template.
    pub fn held(&self) -> usize {
        self.hold.len()
    }

    /// The name that an exporter gave to an interface.
    pub fn interface_name(&self, exporter: IpAddr, ifindex: u32) -> Option<&str> {
        self.names.get(&(exporter, ifindex)).map(|name| &**name)
    }

    /// Decodes a datagram received at `now_ns` (since the Unix epoch) and passes its flows to
    /// `sink`.
    pub fn decode(
        &mut self,
        from: SocketAddr,
        datagram: &[u8],
        now_ns: u64,
        sink: &mut Sink<'_>,
    ) -> Outcome {
        let mut outcome = Outcome::default();
        self.sweep(now_ns, &mut outcome);
        let mut reader = Reader::new(datagram);
        let begin = reader;
        let done = match reader.u16("the version") {
            Ok(v5::VERSION) => self.v5(from, begin, now_ns, sink, &mut outcome),
            Ok(V9) => self.v9(from, reader, now_ns, sink, &mut outcome),
            Ok(IPFIX) => self.ipfix(from, reader, now_ns, sink, &mut outcome),
            Ok(version) => Err(begin.error(Problem::Version {
                protocol: "NetFlow",
                version: version.into(),
            })),
            Err(error) => Err(error),
        };
        outcome.error = done.err();
        outcome
    }

    /// Removes expired entries, for times without datagrams. Returns the dropped sets.
    pub fn expire(&mut self, now_ns: u64) -> SetCount {
        let mut outcome = Outcome::default();
        self.sweep(now_ns, &mut outcome);
        outcome.no_template
    }

    /// Drops all held sets, at the end.
    pub fn give_up(&mut self) -> SetCount {
        let mut lost = SetCount::default();
        self.hold.expire(u64::MAX, |held| lost.add(&held.bytes));
        lost
    }

    /// Removes expired entries periodically.
    fn sweep(&mut self, now_ns: u64, outcome: &mut Outcome) {
        if now_ns.saturating_sub(self.swept_ns) < SWEEP_NS {
            return;
        }
        self.swept_ns = now_ns;
        self.hold
            .expire(now_ns, |held| outcome.no_template.add(&held.bytes));
        let lifetime = u64::try_from(self.limits.lifetime.as_nanos()).unwrap_or(u64::MAX);
        let before_ns = now_ns.saturating_sub(lifetime);
        let fields = &mut self.fields;
        self.sessions.retain(|_, session| {
            session.expire(before_ns, fields);
            let stays = session.last_ns >= before_ns;
            if !stays {
                *fields -= session.fields();
            }
            stays
        });
    }

    fn session(
        &mut self,
        key: Key,
        now_ns: u64,
        at: &Reader<'_>,
    ) -> Result<&mut Session, DecodeError> {
        if self.sessions.len() >= self.limits.sessions && !self.sessions.contains_key(&key) {
            return Err(at.error(Problem::TooMany("streams of exporters")));
        }
        let session = self.sessions.entry(key).or_default();
        session.last_ns = now_ns;
        Ok(session)
    }

    fn v5(
        &mut self,
        from: SocketAddr,
        mut reader: Reader<'_>,
        now_ns: u64,
        sink: &mut Sink<'_>,
        outcome: &mut Outcome,
    ) -> Result<(), DecodeError> {
        let begin = reader;
        let header = v5::Header::decode(&mut reader)?;
        let key = Key {
            from,
            version: v5::VERSION,
            domain: u32::from(header.engine_type) << 8 | u32::from(header.engine_id),
        };
        let session = self.session(key, now_ns, &begin)?;
        let (flows, done) = v5::records(&header, &mut reader, &mut |flow| sink(flow, None));
        outcome.flows = flows.into();
        let boot_ms = header.clock().boot_ms();
        outcome.step = session
            .sequence
            .step(header.sequence, header.count.into(), boot_ms);
        done
    }

    fn v9(
        &mut self,
        from: SocketAddr,
        mut reader: Reader<'_>,
        now_ns: u64,
        sink: &mut Sink<'_>,
        outcome: &mut Outcome,
    ) -> Result<(), DecodeError> {
        const WHAT: &str = "the header";
        let begin = reader;
        // The number of records is skipped, since not all exporters count alike; the lengths
        // suffice.
        reader.u16(WHAT)?;
        let uptime_ms = reader.u32(WHAT)?;
        let export_s = reader.u32(WHAT)?;
        let sequence = reader.u32(WHAT)?;
        let message = Message {
            key: Key {
                from,
                version: V9,
                domain: reader.u32(WHAT)?,
            },
            clock: Clock {
                export_ns: u64::from(export_s) * 1_000_000_000,
                uptime_ms: Some(uptime_ms),
            },
            now_ns,
        };
        let session = self.session(message.key, now_ns, &begin)?;
        let boot_ms = message.clock.boot_ms();
        outcome.step = session.sequence.step(sequence, 1, boot_ms);
        self.sets(&message, reader, sink, outcome)
    }

    fn ipfix(
        &mut self,
        from: SocketAddr,
        mut reader: Reader<'_>,
        now_ns: u64,
        sink: &mut Sink<'_>,
        outcome: &mut Outcome,
    ) -> Result<(), DecodeError> {
        const WHAT: &str = "the header";
        const HEADER: usize = 16;
        let begin = reader;
        let length = usize::from(reader.u16(WHAT)?);
        let Some(body) = length.checked_sub(HEADER) else {
            return Err(begin.error(Problem::Length {
                what: "a message",
                length,
            }));
        };
        let export_s = reader.u32(WHAT)?;
        let sequence = reader.u32(WHAT)?;
        let message = Message {
            key: Key {
                from,
                version: IPFIX,
                domain: reader.u32(WHAT)?,
            },
            clock: Clock {
                export_ns: u64::from(export_s) * 1_000_000_000,
                uptime_ms: None,
            },
            now_ns,
        };
        self.session(message.key, now_ns, &begin)?;
        let given_up = outcome.no_template.sets;
        // Over UDP a message is a datagram: if the length field differs, the datagram's length
        // counts.
        let length_error = match body == reader.left() {
            true => Ok(()),
            false => Err(begin.error(Problem::MessageLength {
                stated: length,
                have: reader.left() + HEADER,
            })),
        };
        let done = self.sets(&message, reader, sink, outcome).and(length_error);
        // If not all records could be counted, the next sequence number is unknown.
        let known = done.is_ok() && outcome.held.sets == 0 && outcome.no_template.sets == given_up;
        let records = (outcome.flows - outcome.released + outcome.options) as u32;
        // What number templates alone have differs from exporter to exporter.
        let telling = records > 0 || !known;
        if let Some(session) = self.sessions.get_mut(&message.key).filter(|_| telling) {
            // Not all exporters number records of options.
            let options = outcome.options as u32;
            outcome.step = session
                .sequence
                .step_uncertain(sequence, records, options, None);
            if !known {
                session.sequence.forget_next();
            }
        }
        done
    }

    /// Decodes the sets of a datagram.
    fn sets(
        &mut self,
        message: &Message,
        mut reader: Reader<'_>,
        sink: &mut Sink<'_>,
        outcome: &mut Outcome,
    ) -> Result<(), DecodeError> {
        const WHAT: &str = "a set";
        let v9 = message.key.version == V9;
        let mut wrong = Ok(());
        // Less than a header is padding.
        while reader.left() >= SET_HEADER {
            let begin = reader;
            let id = reader.u16(WHAT)?;
            let length = usize::from(reader.u16(WHAT)?);
            let Some(body) = length.checked_sub(SET_HEADER) else {
                return Err(begin.error(Problem::Length { what: WHAT, length }));
            };
            // Of a truncated set the complete records count.
            let whole = reader.part(body, WHAT);
            let set = whole.unwrap_or(reader);
            if whole.is_err() {
                reader = reader.end();
            }
            let done = match id {
                V9_TEMPLATES if v9 => self.templates(message, set, false, sink, outcome),
                V9_OPTIONS if v9 => self.templates(message, set, true, sink, outcome),
                IPFIX_TEMPLATES if !v9 => self.templates(message, set, false, sink, outcome),
                IPFIX_OPTIONS if !v9 => self.templates(message, set, true, sink, outcome),
                FIRST_ID.. => self.data(message, id, set, sink, outcome),
                // Reserved: stepped over.
                _ => Ok(()),
            };
            // An error in one set does not discard the next.
            wrong = wrong.and(done).and(whole.map(|_| ()));
        }
        wrong
    }

    fn templates(
        &mut self,
        message: &Message,
        mut set: Reader<'_>,
        options: bool,
        sink: &mut Sink<'_>,
        outcome: &mut Outcome,
    ) -> Result<(), DecodeError> {
        let v9 = message.key.version == V9;
        loop {
            let begin = set;
            let read = if v9 { template::v9 } else { template::ipfix };
            let Some(parsed) = read(&mut set, options, self.limits.fields, message.now_ns)? else {
                return Ok(());
            };
            let Some(session) = self.sessions.get_mut(&message.key) else {
                return Ok(());
            };
            let id = parsed.id;
            // Withdrawal of all (RFC 7011 section 8.1).
            if id == IPFIX_TEMPLATES || id == IPFIX_OPTIONS {
                session.forget_all(id == IPFIX_OPTIONS, &mut self.fields);
                continue;
            }
            if self.fields + parsed.template.fields.len() > self.limits.all_fields {
                return Err(begin.error(Problem::TooMany("fields of templates")));
            }
            outcome.templates += 1;
            session.set_template(parsed, self.limits.templates, &mut self.fields);
            for held in self.hold.release(&message.key, id) {
                self.release(&held, sink, outcome);
            }
        }
    }

    /// Decodes a held set whose template has arrived.
    fn release(&mut self, held: &Held<Key>, sink: &mut Sink<'_>, outcome: &mut Outcome) {
        let message = Message {
            key: held.session,
            clock: held.clock,
            now_ns: held.received_ns,
        };
        let set = Reader::placed(&held.bytes, held.at);
        let mut apart = Outcome::default();
        // The caller has checked that the template exists.
        let done = self.data(&message, held.template, set, sink, &mut apart);
        outcome.flows += apart.flows;
        outcome.released += apart.flows;
        if done.is_err() {
            outcome.no_template.add(&held.bytes);
        }
    }

    fn data(
        &mut self,
        message: &Message,
        id: u16,
        mut set: Reader<'_>,
        sink: &mut Sink<'_>,
        outcome: &mut Outcome,
    ) -> Result<(), DecodeError> {
        let Some(session) = self.sessions.get_mut(&message.key) else {
            return Ok(());
        };
        let Some(template) = session.templates.get(&id) else {
            outcome.held.add(set.rest());
            let held = Held {
                session: message.key,
                template: id,
                clock: message.clock,
                received_ns: message.now_ns,
                at: set.at(),
                bytes: set.rest().into(),
            };
            let lost = &mut outcome.no_template;
            self.hold.put(held, |held| lost.add(&held.bytes));
            return Ok(());
        };
        // Less than a record is padding.
        while set.left() >= template.min_length {
            if template.options {
                let record = options::record(template, &mut set)?;
                session.options.apply(&record);
                outcome.options += 1;
                if let (Some(ifindex), Some(name)) = (record.interface, record.name) {
                    let exporter = message.key.from.ip();
                    name_interface(&mut self.names, self.limits.names, exporter, ifindex, name);
                }
            } else {
                let draft = template.flow(&mut set, &message.clock)?;
                let flow = Flow {
                    sampling: session.options.rate(&draft.0),
                    ..draft.0.finish(&message.clock, session.options.boot_ms)
                };
                sink(&flow, draft.1);
                outcome.flows += 1;
            }
        }
        Ok(())
    }
}

fn name_interface(
    names: &mut HashMap<(IpAddr, u32), Box<str>>,
    most: usize,
    exporter: IpAddr,
    ifindex: u32,
    name: &[u8],
) {
    let name = String::from_utf8_lossy(&name[..name.len().min(NAME_BYTES)]);
    let name: String = name.chars().filter(|c| !c.is_control()).collect();
    let key = (exporter, ifindex);
    if !name.is_empty() && (names.len() < most || names.contains_key(&key)) {
        names.insert(key, name.into());
    }
}
