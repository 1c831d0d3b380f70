//! A cursor over big-endian bytes that knows its offset in the datagram.

use crate::{DecodeError, Problem};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    /// Offset of the first of `bytes` in the datagram.
    at: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Bytes that began at `at` in their datagram.
    pub(crate) fn placed(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at }
    }

    /// Offset of the next byte in the datagram.
    #[inline]
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    #[inline]
    pub(crate) fn left(&self) -> usize {
        self.bytes.len()
    }

    /// An empty reader at the end.
    pub(crate) fn end(&self) -> Self {
        Self {
            bytes: &[],
            at: self.at + self.bytes.len(),
        }
    }

    #[inline]
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.bytes
    }

    #[cold]
    pub(crate) fn error(&self, problem: Problem) -> DecodeError {
        DecodeError {
            at: self.at,
            problem,
        }
    }

    #[inline]
    pub(crate) fn read(
        &mut self,
        need: usize,
        what: &'static str,
    ) -> Result<&'a [u8], DecodeError> {
        match self.bytes.split_at_checked(need) {
            Some((taken, rest)) => {
                self.bytes = rest;
                self.at += need;
                Ok(taken)
            }
            None => Err(self.error(Problem::CutOff {
                what,
                need,
                have: self.bytes.len(),
            })),
        }
    }

    /// The next `need` bytes as a reader of their own.
    #[inline]
    pub(crate) fn part(&mut self, need: usize, what: &'static str) -> Result<Self, DecodeError> {
        let at = self.at;
        let bytes = self.read(need, what)?;
        Ok(Self { bytes, at })
    }

    #[inline]
    pub(crate) fn array<const N: usize>(
        &mut self,
        what: &'static str,
    ) -> Result<&'a [u8; N], DecodeError> {
        match self.bytes.split_first_chunk::<N>() {
            Some((taken, rest)) => {
                self.bytes = rest;
                self.at += N;
                Ok(taken)
            }
            None => Err(self.error(Problem::CutOff {
                what,
                need: N,
                have: self.bytes.len(),
            })),
        }
    }

    #[inline]
    pub(crate) fn u8(&mut self, what: &'static str) -> Result<u8, DecodeError> {
        self.array::<1>(what).map(|[byte]| *byte)
    }

    #[inline]
    pub(crate) fn u16(&mut self, what: &'static str) -> Result<u16, DecodeError> {
        self.array(what).map(|bytes| u16::from_be_bytes(*bytes))
    }

    #[inline]
    pub(crate) fn u32(&mut self, what: &'static str) -> Result<u32, DecodeError> {
        self.array(what).map(|bytes| u32::from_be_bytes(*bytes))
    }

    #[inline]
    pub(crate) fn u64(&mut self, what: &'static str) -> Result<u64, DecodeError> {
        self.array(what).map(|bytes| u64::from_be_bytes(*bytes))
    }

    /// Variable-length opaque data of XDR (RFC 4506 section 4.10): length, bytes, padding to four.
    /// Missing padding at the very end is accepted.
    #[inline]
    pub(crate) fn opaque(&mut self, what: &'static str) -> Result<Self, DecodeError> {
        let length = self.u32(what)? as usize;
        let part = self.part(length, what)?;
        let padding = length.wrapping_neg() % 4;
        self.read(padding.min(self.left()), what)?;
        Ok(part)
    }
}
