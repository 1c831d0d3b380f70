//! Messages of DNS (RFC 1035 section 4, RFC 6891 for EDNS).

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use super::{name, numbers};

/// Octets of the header.
pub const HEADER: usize = 12;
/// Questions that are read of a message; mDNS asks several at once.
const MOST_QUESTIONS: usize = 32;
/// Records of a section that are read; more are counted.
const MOST_RECORDS: usize = 64;

/// Bits of the header's second word.
pub mod flag {
    /// An answer.
    pub const QR: u16 = 0x8000;
    /// By a server that has the zone.
    pub const AA: u16 = 0x0400;
    /// Truncated: ask again over TCP.
    pub const TC: u16 = 0x0200;
    /// Recursion is wanted.
    pub const RD: u16 = 0x0100;
    /// Recursion is available.
    pub const RA: u16 = 0x0080;
    /// Reserved.
    pub const Z: u16 = 0x0040;
}

/// A message, as far as it could be read.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Message {
    /// Identifier.
    pub id: u16,
    /// Flags, opcode and low bits of the code, as in the header.
    pub flags: u16,
    /// Numbers of questions, answers, authorities and additional records, as in the header.
    pub counts: [u16; 4],
    /// The questions.
    pub questions: Vec<Question>,
    /// Answers, authorities and additional records, without the pseudo-record of EDNS.
    pub sections: [Vec<Resource>; 3],
    /// EDNS, when the message has it.
    pub edns: Option<Edns>,
    /// What could not be read: none, all was.
    pub fault: Option<Fault>,
}

/// Why a message was not read to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Its bytes end before: it was cut off by a limit of bytes, or wrong.
    Short,
    /// A name or a record cannot be what it says.
    Malformed,
}

/// A question.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Question {
    /// Name as it was sent, without the last dot.
    pub name: String,
    /// Type.
    pub kind: u16,
    /// Class as it was sent; in mDNS the top bit asks for an answer to the client alone.
    pub class: u16,
}

/// A resource record.
#[derive(Clone, PartialEq, Debug)]
pub struct Resource {
    /// Its name.
    pub name: String,
    /// Type.
    pub kind: u16,
    /// Class.
    pub class: u16,
    /// Time to live in seconds.
    pub ttl: u32,
    /// What it says.
    pub data: Data,
}

/// What a resource record says.
#[derive(Clone, PartialEq, Debug)]
pub enum Data {
    /// A, AAAA.
    Address(IpAddr),
    /// CNAME, NS, PTR, DNAME.
    Name(String),
    /// MX.
    Mail {
        /// Preference.
        preference: u16,
        /// Host.
        exchange: String,
    },
    /// SRV (RFC 2782).
    Service {
        /// Priority, weight, port.
        numbers: [u16; 3],
        /// Host.
        target: String,
    },
    /// SOA.
    Authority {
        /// Name of the first server.
        mname: String,
        /// Mailbox.
        rname: String,
        /// Serial, refresh, retry, expire, minimum.
        numbers: [u32; 5],
    },
    /// TXT.
    Text(Vec<String>),
    /// SSHFP (RFC 4255).
    Fingerprint {
        /// Algorithm, type of the fingerprint.
        numbers: [u8; 2],
        /// The fingerprint.
        print: Vec<u8>,
    },
    /// Another type: its bytes, at most 64.
    Other(Vec<u8>),
}

/// EDNS (RFC 6891).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Edns {
    /// Octets of a UDP message that the sender takes.
    pub udp_size: u16,
    /// Version.
    pub version: u8,
    /// Upper bits of the code.
    pub code: u8,
    /// DNSSEC records are wanted.
    pub dnssec: bool,
}

/// Bytes of data of a type that is not read.
const MOST_OTHER: usize = 64;
/// Texts of a TXT record, and their bytes.
const MOST_TEXTS: usize = 16;

impl Message {
    /// Reads a message as far as possible; none without a whole header.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]));
        let mut message = Self {
            id: word(0)?,
            flags: word(2)?,
            counts: [word(4)?, word(6)?, word(8)?, word(10)?],
            ..Self::default()
        };
        message.fault = message.read_sections(bytes).err();
        Some(message)
    }

    fn read_sections(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        let mut reader = Reader { bytes, at: HEADER };
        for _ in 0..self.counts[0] {
            if self.questions.len() == MOST_QUESTIONS {
                return Err(Fault::Malformed);
            }
            let question = Question {
                name: reader.name()?,
                kind: reader.word()?,
                class: reader.word()?,
            };
            self.questions.push(question);
        }
        let [_, counts @ ..] = self.counts;
        for (section, count) in counts.into_iter().enumerate() {
            for _ in 0..count {
                self.read_resource(&mut reader, section)?;
            }
        }
        Ok(())
    }

    fn read_resource(&mut self, reader: &mut Reader<'_>, section: usize) -> Result<(), Fault> {
        let name = reader.name()?;
        let (kind, class) = (reader.word()?, reader.word()?);
        let ttl = reader.long()?;
        let length = usize::from(reader.word()?);
        let start = reader.at;
        let end = start + length;
        if end > reader.bytes.len() {
            return Err(Fault::Short);
        }
        reader.at = end;
        if kind == numbers::OPT {
            self.edns.get_or_insert(Edns {
                udp_size: class,
                version: (ttl >> 16) as u8,
                code: (ttl >> 24) as u8,
                dnssec: ttl & 0x8000 != 0,
            });
            return Ok(());
        }
        let records = &mut self.sections[section];
        if records.len() == MOST_RECORDS {
            return Ok(());
        }
        // A name in the data may point into the whole message before it; the data itself ends at `end`.
        let data = &reader.bytes[..end];
        let data = match Data::read(kind, data, start) {
            Ok(Some(data)) => data,
            Ok(None) => Data::Other(data[start..end.min(start + MOST_OTHER)].to_vec()),
            Err(_) => return Err(Fault::Malformed),
        };
        records.push(Resource {
            name,
            kind,
            class,
            ttl,
            data,
        });
        Ok(())
    }

    /// Whether it is an answer.
    pub fn is_answer(&self) -> bool {
        self.flags & flag::QR != 0
    }

    /// Whether the answer did not fit, and can be had over TCP.
    pub fn is_truncated(&self) -> bool {
        self.flags & flag::TC != 0
    }

    /// What is wanted: 0 a query.
    pub fn opcode(&self) -> u8 {
        (self.flags >> 11) as u8 & 0xf
    }

    /// The code, with EDNS's upper bits.
    pub fn code(&self) -> u16 {
        let upper = self.edns.map_or(0, |edns| u16::from(edns.code));
        upper << 4 | self.flags & 0xf
    }

    /// The first question.
    pub fn question(&self) -> Option<&Question> {
        self.questions.first()
    }

    /// Answers.
    pub fn answers(&self) -> &[Resource] {
        &self.sections[0]
    }

    /// Whether this is a message of DNS beyond doubt, whatever the port: a query or answer with one whole question of a
    /// known class, and as many records as a message of this kind has.
    pub fn is_evident(&self) -> bool {
        let [questions, answers, authorities, additional] = self.counts;
        let plausible = match self.is_answer() {
            false => answers == 0 && authorities == 0 && additional <= 2 && self.flags & 0x8f == 0,
            true => self.fault != Some(Fault::Malformed),
        };
        let asked =
            |q: &Question| !q.name.is_empty() && q.kind != 0 && numbers::class(q.class).is_some();
        questions == 1
            && plausible
            && self.opcode() == 0
            && self.flags & flag::Z == 0
            && (self.fault.is_none() || self.is_answer())
            && self.question().is_some_and(asked)
    }
}

impl Data {
    /// Reads the data of a record, which begins at `at` and ends with `bytes`; none of types that are not read.
    fn read(kind: u16, bytes: &[u8], at: usize) -> Result<Option<Self>, Fault> {
        let mut reader = Reader { bytes, at };
        let rest = &bytes[at..];
        Ok(Some(match kind {
            _ if rest.is_empty() => return Ok(None),
            numbers::A => {
                let octets: [u8; 4] = rest.try_into().map_err(|_| Fault::Malformed)?;
                Self::Address(Ipv4Addr::from(octets).into())
            }
            numbers::AAAA => {
                let octets: [u8; 16] = rest.try_into().map_err(|_| Fault::Malformed)?;
                Self::Address(Ipv6Addr::from(octets).into())
            }
            numbers::NS | numbers::CNAME | numbers::PTR | numbers::DNAME => {
                Self::Name(reader.name()?)
            }
            numbers::MX => Self::Mail {
                preference: reader.word()?,
                exchange: reader.name()?,
            },
            numbers::SRV => Self::Service {
                numbers: [reader.word()?, reader.word()?, reader.word()?],
                target: reader.name()?,
            },
            numbers::SOA => Self::Authority {
                mname: reader.name()?,
                rname: reader.name()?,
                numbers: [
                    reader.long()?,
                    reader.long()?,
                    reader.long()?,
                    reader.long()?,
                    reader.long()?,
                ],
            },
            numbers::TXT => {
                let mut texts = Vec::new();
                while reader.at < bytes.len() && texts.len() < MOST_TEXTS {
                    let length = usize::from(reader.byte()?);
                    let text = bytes.get(reader.at..reader.at + length);
                    texts.push(name::text(text.ok_or(Fault::Malformed)?));
                    reader.at += length;
                }
                Self::Text(texts)
            }
            numbers::SSHFP => Self::Fingerprint {
                numbers: [reader.byte()?, reader.byte()?],
                print: bytes[reader.at..]
                    .iter()
                    .copied()
                    .take(MOST_OTHER)
                    .collect(),
            },
            _ => return Ok(None),
        }))
    }
}

impl fmt::Display for Data {
    /// As in a zone file, numbers first.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Name(name) => f.write_str(name),
            Self::Mail {
                preference,
                exchange,
            } => write!(f, "{preference} {exchange}"),
            Self::Service {
                numbers: [priority, weight, port],
                target,
            } => write!(f, "{priority} {weight} {port} {target}"),
            Self::Authority {
                mname,
                rname,
                numbers: [serial, refresh, retry, expire, minimum],
            } => write!(
                f,
                "{mname} {rname} {serial} {refresh} {retry} {expire} {minimum}"
            ),
            Self::Text(texts) => {
                for (i, text) in texts.iter().enumerate() {
                    let space = if i == 0 { "" } else { " " };
                    write!(f, "{space}\"{text}\"")?;
                }
                Ok(())
            }
            Self::Fingerprint {
                numbers: [algorithm, kind],
                print,
            } => {
                write!(f, "{algorithm} {kind} ")?;
                hex(f, print)
            }
            Self::Other(bytes) => {
                write!(f, "\\# {} ", bytes.len())?;
                hex(f, bytes)
            }
        }
    }
}

fn hex(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

/// A position in a message.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn byte(&mut self) -> Result<u8, Fault> {
        let byte = self.bytes.get(self.at).ok_or(Fault::Short)?;
        self.at += 1;
        Ok(*byte)
    }

    fn word(&mut self) -> Result<u16, Fault> {
        Ok(u16::from_be_bytes([self.byte()?, self.byte()?]))
    }

    fn long(&mut self) -> Result<u32, Fault> {
        Ok(u32::from(self.word()?) << 16 | u32::from(self.word()?))
    }

    fn name(&mut self) -> Result<String, Fault> {
        let (name, after) = match name::read(self.bytes, self.at) {
            Some(read) => read,
            None if self.ends_in_name() => return Err(Fault::Short),
            None => return Err(Fault::Malformed),
        };
        self.at = after;
        Ok(name)
    }

    /// Whether the labels from here on lead to the end of the bytes.
    fn ends_in_name(&self) -> bool {
        let mut at = self.at;
        while let Some(length) = self.bytes.get(at) {
            match length {
                0 => return false,
                1..=0x3f => at += 1 + usize::from(*length),
                0xc0.. => return at + 1 >= self.bytes.len(),
                _ => return false,
            }
        }
        true
    }
}
