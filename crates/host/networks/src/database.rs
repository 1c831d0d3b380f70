//! Databases in the MMDB format (version 2.0): those of MaxMind (GeoLite2-Country, -City, -ASN and what is sold under such
//! names) and of IPinfo, whose keys differ.
//!
//! A file is a tree of addresses by their bits, behind it the data that leaves refer to, at the end a map that says how to
//! read both. The usual library reads damaged files without an end, so this one is Skua's own: it reads only the keys that it
//! needs, follows a pointer once, and looks at a bounded number of values, whatever a file has.

use std::{fmt, net::IpAddr};

use crate::{
    Known,
    names::{keep, plain},
};

/// What is before the map at the end, which is within so many bytes of the end.
const MARKER: &[u8] = b"\xab\xcd\xefMaxMind.com";
const METADATA: usize = 128 << 10;
/// Zeros between the tree and the data.
const SEPARATOR: usize = 16;
/// Values that are looked at for one address; files have some hundred names of a city at most.
const VALUES: usize = 4_096;

/// A database of addresses.
pub struct Database {
    bytes: Vec<u8>,
    nodes: usize,
    /// Bits of one of the two records of a node: 24, 28 or 32.
    record_bits: usize,
    ipv6: bool,
    /// Where the data begins and ends.
    data: (usize, usize),
    /// The node under which IPv4 addresses are.
    ipv4_root: usize,
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database")
            .field("nodes", &self.nodes)
            .finish_non_exhaustive()
    }
}

/// A value, or where the entries of one begin.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Value<'a> {
    Text(&'a [u8]),
    Number(u64),
    /// So many pairs.
    Map(usize),
    /// So many elements.
    List(usize),
    Other,
}

/// Takes a key, its value, what reads on inside of the value, and how many values may still be looked at.
type Visit<'v, 'a> = &'v mut dyn FnMut(&'a [u8], Value<'a>, Reader<'a>, &mut usize) -> Option<()>;

/// Reads values one after the other.
#[derive(Clone, Copy)]
struct Reader<'a> {
    data: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let taken = self.data.get(self.at..self.at.checked_add(length)?)?;
        self.at += length;
        Some(taken)
    }

    fn number(&mut self, length: usize) -> Option<u64> {
        let bytes = self.take(length)?;
        Some(
            bytes
                .iter()
                .fold(0, |sum, byte| sum << 8 | u64::from(*byte)),
        )
    }

    /// A value; a pointer's target, from which `inside` reads on if it is a map or list.
    fn value(&mut self) -> Option<(Value<'a>, Self)> {
        let first = self.number(1)? as usize;
        if first >> 5 == 1 {
            let mut there = Self {
                at: self.pointer(first)?,
                ..*self
            };
            let first = there.number(1)? as usize;
            // A pointer to a pointer is not allowed.
            let value = if first >> 5 == 1 {
                None
            } else {
                there.plain(first)
            }?;
            return Some((value, there));
        }
        let value = self.plain(first)?;
        Some((value, *self))
    }

    fn pointer(&mut self, first: usize) -> Option<usize> {
        let low = first & 7;
        Some(match first >> 3 & 3 {
            0 => low << 8 | self.number(1)? as usize,
            1 => (low << 16 | self.number(2)? as usize) + 2_048,
            2 => (low << 24 | self.number(3)? as usize) + 526_336,
            _ => self.number(4)? as usize,
        })
    }

    fn plain(&mut self, first: usize) -> Option<Value<'a>> {
        let kind = match first >> 5 {
            0 => self.number(1)? as usize + 7,
            kind => kind,
        };
        let length = match first & 31 {
            29 => 29 + self.number(1)? as usize,
            30 => 285 + self.number(2)? as usize,
            31 => 65_821 + self.number(3)? as usize,
            short => short,
        };
        Some(match kind {
            2 => Value::Text(self.take(length)?),
            // Of 16, 32 and 64 bits.
            5 | 6 | 9 if length <= 8 => Value::Number(self.number(length)?),
            7 => Value::Map(length),
            11 => Value::List(length),
            // A truth value is in the length.
            14 => Value::Other,
            // Bytes, fractions, signed and large numbers.
            3 | 4 | 8 | 10 | 15 => {
                self.take(length)?;
                Value::Other
            }
            _ => return None,
        })
    }

    /// Steps over what is inside of a value that was just read here.
    fn skip(&mut self, value: Value<'a>, left: &mut usize) -> Option<()> {
        let mut open = match value {
            Value::Map(pairs) => pairs.checked_mul(2)?,
            Value::List(elements) => elements,
            _ => 0,
        };
        while open > 0 {
            *left = left.checked_sub(1)?;
            open -= 1;
            let before = self.at;
            let first = self.number(1)? as usize;
            if first >> 5 == 1 {
                self.pointer(first)?;
                continue;
            }
            self.at = before + 1;
            open += match self.plain(first)? {
                Value::Map(pairs) => pairs.checked_mul(2)?,
                Value::List(elements) => elements,
                _ => 0,
            };
        }
        Some(())
    }

    /// Visits the pairs of a map; those with further maps are given with what reads them.
    fn pairs(mut self, pairs: usize, left: &mut usize, visit: Visit<'_, 'a>) -> Option<()> {
        for _ in 0..pairs {
            *left = left.checked_sub(1)?;
            let (Value::Text(key), _) = self.value()? else {
                return None;
            };
            let pointer = self.data.get(self.at).is_some_and(|first| first >> 5 == 1);
            let (value, inside) = self.value()?;
            visit(key, value, inside, left)?;
            if !pointer {
                self.skip(value, left)?;
            }
        }
        Some(())
    }
}

impl Database {
    /// A file's content.
    ///
    /// # Errors
    ///
    /// When it is no such file.
    pub fn new(bytes: Vec<u8>) -> Result<Self, String> {
        Self::open(bytes).ok_or_else(|| "no usable MMDB file of version 2".to_owned())
    }

    fn open(bytes: Vec<u8>) -> Option<Self> {
        let tail = bytes.len().saturating_sub(METADATA);
        let windows = bytes.get(tail..)?.windows(MARKER.len());
        let marker = tail + windows.rev_position(MARKER)?;
        let mut reader = Reader {
            data: bytes.get(marker + MARKER.len()..)?,
            at: 0,
        };
        let (Value::Map(pairs), inside) = reader.value()? else {
            return None;
        };
        let (mut nodes, mut bits, mut version, mut format) = (0, 0, 0, 0);
        inside.pairs(pairs, &mut VALUES.clone(), &mut |key, value, _, _| {
            let number = match value {
                Value::Number(number) => usize::try_from(number).ok()?,
                _ => return Some(()),
            };
            match key {
                b"node_count" => nodes = number,
                b"record_size" => bits = number,
                b"ip_version" => version = number,
                b"binary_format_major_version" => format = number,
                _ => {}
            }
            Some(())
        })?;
        let tree = nodes.checked_mul(bits)? / 4;
        let known = format == 2 && matches!(bits, 24 | 28 | 32) && matches!(version, 4 | 6);
        let begin = tree.checked_add(SEPARATOR)?;
        if !known || nodes == 0 || begin > marker {
            return None;
        }
        let mut database = Self {
            bytes,
            nodes,
            record_bits: bits,
            ipv6: version == 6,
            data: (begin, marker),
            ipv4_root: 0,
        };
        if database.ipv6 {
            // IPv4 addresses are under ::/96.
            for _ in 0..96 {
                if database.ipv4_root < nodes {
                    database.ipv4_root = database.child(database.ipv4_root, 0)?;
                }
            }
        }
        Some(database)
    }

    /// A record of a node: the number of another one, or more than there are.
    fn child(&self, node: usize, side: usize) -> Option<usize> {
        let length = self.record_bits / 4;
        let at = node.checked_mul(length)?;
        let both = self.bytes.get(at..at + length)?;
        let number = |bytes: &[u8]| {
            bytes
                .iter()
                .fold(0, |sum, byte| sum << 8 | usize::from(*byte))
        };
        Some(match (both, side) {
            // The middle byte has four bits of each.
            ([left @ .., middle, _, _, _], 0) if length == 7 => {
                usize::from(middle >> 4) << 24 | number(left)
            }
            ([_, _, _, middle, right @ ..], _) if length == 7 => {
                usize::from(middle & 15) << 24 | number(right)
            }
            (both, 0) => number(&both[..length / 2]),
            (both, _) => number(&both[length / 2..]),
        })
    }

    /// Where the data of an address is.
    fn find(&self, address: IpAddr) -> Option<Reader<'_>> {
        let (mut node, bits, length) = match address {
            IpAddr::V4(v4) => (self.ipv4_root, u128::from(u32::from(v4)) << 96, 32),
            IpAddr::V6(v6) if self.ipv6 => (0, u128::from(v6), 128),
            IpAddr::V6(_) => return None,
        };
        for depth in 0..length {
            if node >= self.nodes {
                break;
            }
            node = self.child(node, (bits >> (127 - depth) & 1) as usize)?;
        }
        // Equal: there is nothing.
        let at = node.checked_sub(self.nodes)?.checked_sub(SEPARATOR)?;
        let (begin, end) = self.data;
        let data = self.bytes.get(begin..end)?;
        (node > self.nodes && at < data.len()).then_some(Reader { data, at })
    }

    /// Adds what is not known yet.
    pub(crate) fn look_up(&self, address: IpAddr, known: &mut Known) {
        if let Some(entry) = self.find(address).and_then(Entry::read) {
            entry.add_to(known);
        }
    }
}

/// The last place of a marker among windows.
trait Position {
    fn rev_position(self, marker: &[u8]) -> Option<usize>;
}

impl Position for std::slice::Windows<'_, u8> {
    fn rev_position(mut self, marker: &[u8]) -> Option<usize> {
        self.rposition(|window| window == marker)
    }
}

/// What an entry says.
#[derive(Default)]
struct Entry<'a> {
    /// The code within a map (MaxMind), alone, or instead of the name.
    country: Option<&'a str>,
    number: Option<u32>,
    organization: Option<&'a str>,
    /// IPinfo's: `AS64500`, and its name.
    as_number: Option<u32>,
    as_name: Option<&'a str>,
}

fn code(text: &[u8]) -> Option<&str> {
    let letters = text.len() == 2 && text.iter().all(u8::is_ascii_uppercase);
    str::from_utf8(text).ok().filter(|_| letters)
}

fn number(text: &[u8]) -> Option<u32> {
    let text = str::from_utf8(text).ok()?;
    text.strip_prefix("AS").unwrap_or(text).parse().ok()
}

impl<'a> Entry<'a> {
    fn read(mut reader: Reader<'a>) -> Option<Self> {
        let (Value::Map(pairs), inside) = reader.value()? else {
            return None;
        };
        let mut entry = Self::default();
        inside.pairs(
            pairs,
            &mut VALUES.clone(),
            &mut |key, value, inside, left| {
                match (key, value) {
                    (b"country", Value::Map(pairs)) => {
                        inside.pairs(pairs, left, &mut |key, value, _, _| {
                            if let (b"iso_code", Value::Text(text)) = (key, value) {
                                entry.country = code(text);
                            }
                            Some(())
                        })?;
                    }
                    (b"country" | b"country_code", Value::Text(text)) => {
                        entry.country = code(text).or(entry.country);
                    }
                    (b"autonomous_system_number", Value::Number(number)) => {
                        entry.number = u32::try_from(number).ok();
                    }
                    (b"autonomous_system_organization", Value::Text(text)) => {
                        entry.organization = str::from_utf8(text).ok();
                    }
                    (b"asn", Value::Text(text)) => {
                        entry.as_number = number(text);
                    }
                    (b"as_name" | b"name", Value::Text(text)) => {
                        entry.as_name = str::from_utf8(text).ok()
                    }
                    _ => {}
                }
                Some(())
            },
        )?;
        Some(entry)
    }

    fn add_to(&self, known: &mut Known) {
        if let ("", Some(country)) = (known.country, self.country) {
            known.country = keep(country);
        }
        known.asn = known.asn.or(self.number).or(self.as_number);
        let organization = self.organization.or(self.as_number.and(self.as_name));
        if let ("", Some(organization)) = (known.organization, organization) {
            known.organization = keep(&plain(organization));
        }
    }
}
