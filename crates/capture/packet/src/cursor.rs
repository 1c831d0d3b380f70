//! A position in the captured bytes; every read is checked against their end.

use crate::Frame;

/// A position in a frame.
pub(crate) struct Cursor<'a> {
    data: &'a [u8],
    at: usize,
    wire_len: u32,
    super_packet: bool,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(frame: &Frame<'a>) -> Self {
        Self {
            data: frame.data,
            at: 0,
            wire_len: frame.wire_len,
            super_packet: frame.is_super_packet(),
        }
    }

    /// The next `N` bytes without stepping over them, or none when they are cut off.
    #[inline]
    pub(crate) fn peek<const N: usize>(&self) -> Option<&'a [u8; N]> {
        self.data.get(self.at..)?.first_chunk()
    }

    /// The next `N` bytes, stepping over them.
    #[inline]
    pub(crate) fn read<const N: usize>(&mut self) -> Option<&'a [u8; N]> {
        let bytes = self.peek()?;
        self.at += N;
        Some(bytes)
    }

    /// Whether `len` more bytes are there.
    #[inline]
    pub(crate) fn has(&self, len: usize) -> bool {
        self.data.len().saturating_sub(self.at) >= len
    }

    /// Skips `len` bytes; beyond the end only as far as header fields allow (they are small).
    #[inline]
    pub(crate) fn skip(&mut self, len: usize) {
        self.at += len;
    }

    /// Goes back to an earlier offset.
    #[inline]
    pub(crate) fn seek(&mut self, at: u32) {
        self.at = at as usize;
    }

    /// Offset from the start of the frame.
    #[inline]
    pub(crate) fn at(&self) -> u32 {
        // Frames are shorter than 4 GiB: the position only moves past headers.
        self.at as u32
    }

    /// Length on the wire from here to the end of the packet.
    #[inline]
    pub(crate) fn wire_rest(&self) -> u32 {
        self.wire_len.saturating_sub(self.at())
    }

    /// Whether the packet contains several wire packets, so that its IP length cannot be trusted.
    #[inline]
    pub(crate) fn super_packet(&self) -> bool {
        self.super_packet
    }
}

/// A big-endian 16-bit field.
#[inline]
pub(crate) fn be16(high: u8, low: u8) -> u16 {
    u16::from_be_bytes([high, low])
}
