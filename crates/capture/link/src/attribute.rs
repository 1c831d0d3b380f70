//! Netlink attributes: reading those of any message, writing those of requests.

use std::net::IpAddr;

/// Length of an attribute's head (`struct nlattr`, linux/netlink.h).
const HEAD: usize = 4;
/// The bits of an attribute's type that are flags (NLA_F_NESTED, NLA_F_NET_BYTEORDER).
const FLAGS: u16 = 0xc000;
const NLA_F_NESTED: u16 = 0x8000;

/// Type and value of each attribute, up to the first that does not lie wholly within `bytes`.
pub fn attributes(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let length = usize::from(read_u16(rest)?);
        let kind = read_u16(rest.get(2..)?)? & !FLAGS;
        let value = rest.get(HEAD..length)?;
        rest = rest
            .get(length.next_multiple_of(HEAD)..)
            .unwrap_or_default();
        Some((kind, value))
    })
}

/// The value of the first attribute of a type.
pub fn attribute(bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    attributes(bytes)
        .find(|(kind, _)| *kind == wanted)
        .map(|(_, value)| value)
}

/// A number in the machine's byte order.
pub fn read_u8(value: &[u8]) -> Option<u8> {
    value.first().copied()
}

/// A number in the machine's byte order.
pub fn read_u16(value: &[u8]) -> Option<u16> {
    Some(u16::from_ne_bytes(*value.first_chunk()?))
}

/// A number in network byte order.
pub fn read_u16_be(value: &[u8]) -> Option<u16> {
    Some(u16::from_be_bytes(*value.first_chunk()?))
}

/// A number in the machine's byte order.
pub fn read_u32(value: &[u8]) -> Option<u32> {
    Some(u32::from_ne_bytes(*value.first_chunk()?))
}

/// A number in network byte order.
pub fn read_u32_be(value: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(*value.first_chunk()?))
}

/// A number in the machine's byte order.
pub fn read_i32(value: &[u8]) -> Option<i32> {
    Some(i32::from_ne_bytes(*value.first_chunk()?))
}

/// A number in the machine's byte order.
pub fn read_u64(value: &[u8]) -> Option<u64> {
    Some(u64::from_ne_bytes(*value.first_chunk()?))
}

/// A text up to its zero byte; what is not UTF-8 is replaced.
pub fn read_text(value: &[u8]) -> String {
    let text = value.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}

/// An IPv4 address of 4 bytes or an IPv6 address of 16.
pub fn read_ip(value: &[u8]) -> Option<IpAddr> {
    if let Ok(v4) = <[u8; 4]>::try_from(value) {
        return Some(v4.into());
    }
    Some(<[u8; 16]>::try_from(value).ok()?.into())
}

/// Attributes of a request, behind its fixed part.
#[derive(Debug, Default)]
pub struct Attributes(Vec<u8>);

impl Attributes {
    /// A request's payload that begins with `fixed`.
    pub fn after(fixed: &[u8]) -> Self {
        let mut bytes = fixed.to_vec();
        bytes.resize(bytes.len().next_multiple_of(HEAD), 0);
        Self(bytes)
    }

    /// Adds an attribute.
    #[must_use]
    pub fn with(mut self, kind: u16, value: &[u8]) -> Self {
        // Our own requests are a few bytes long.
        let length = u16::try_from(HEAD + value.len()).unwrap_or(u16::MAX);
        self.0.extend_from_slice(&length.to_ne_bytes());
        self.0.extend_from_slice(&kind.to_ne_bytes());
        self.0.extend_from_slice(value);
        self.0.resize(self.0.len().next_multiple_of(HEAD), 0);
        self
    }

    /// Adds a number.
    #[must_use]
    pub fn with_u32(self, kind: u16, value: u32) -> Self {
        self.with(kind, &value.to_ne_bytes())
    }

    /// Adds an attribute of attributes.
    #[must_use]
    pub fn nest(self, kind: u16, inner: Self) -> Self {
        self.with(kind | NLA_F_NESTED, &inner.0)
    }

    /// The bytes of all.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let inner = Attributes::default().with_u32(7, 70_000).with(8, b"ab\0");
        let all = Attributes::after(&[9]).nest(3, inner).with(4, &[1]);
        assert_eq!(all.bytes().len() % 4, 0);
        let found: Vec<_> = attributes(&all.bytes()[4..]).collect();
        assert_eq!(found.len(), 2);
        assert_eq!(found[1], (4, &[1u8][..]));
        let nested: Vec<_> = attributes(found[0].1).collect();
        assert_eq!(read_u32(nested[0].1), Some(70_000));
        assert_eq!(read_text(nested[1].1), "ab");
    }

    #[test]
    fn broken_attributes_end_the_reading() {
        // Shorter than its own head, longer than the rest, and only half a head.
        for broken in [&[3, 0, 1, 0][..], &[8, 0, 1, 0, 5], &[8, 0], &[]] {
            assert_eq!(attributes(broken).count(), 0, "{broken:?}");
        }
        let whole = Attributes::default().with_u32(1, 1);
        let cut = &[whole.bytes(), &[200, 0, 2, 0]].concat();
        assert_eq!(attributes(cut).count(), 1);
    }
}
