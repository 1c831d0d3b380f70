//! A window on a stream: bytes are read in large pieces and parsed in place.

use std::io::{self, Read};

/// Bytes read at a time.
const CHUNK: usize = 256 * 1024;

pub(super) struct Input<R> {
    reader: R,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Offset in the stream of `buffer[start]`.
    offset: u64,
    ended: bool,
}

impl<R: Read> Input<R> {
    pub(super) fn new(reader: R) -> Self {
        Self {
            reader,
            buffer: vec![0; CHUNK],
            start: 0,
            end: 0,
            offset: 0,
            ended: false,
        }
    }

    /// Makes at least `count` bytes available; false when the stream ends before. The buffer grows
    /// to `count` bytes and one chunk at most: callers bound `count`.
    #[inline]
    pub(super) fn ensure(&mut self, count: usize) -> io::Result<bool> {
        if self.end - self.start >= count {
            return Ok(true);
        }
        self.fill(count)
    }

    #[cold]
    fn fill(&mut self, count: usize) -> io::Result<bool> {
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        if self.buffer.len() < count {
            self.buffer.resize(count.next_multiple_of(CHUNK), 0);
        }
        while self.end < count && !self.ended {
            match self.reader.read(&mut self.buffer[self.end..]) {
                Ok(0) => self.ended = true,
                Ok(n) => self.end += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(self.end >= count)
    }

    /// Steps over `count` bytes, none of which need to fit into the buffer; how many there were.
    pub(super) fn skip(&mut self, count: u64) -> io::Result<u64> {
        let mut left = count;
        while left > 0 {
            if !self.ensure(1)? {
                break;
            }
            let step = left.min((self.end - self.start) as u64);
            self.consume(step as usize);
            left -= step;
        }
        Ok(count - left)
    }
}

impl<R> Input<R> {
    /// The bytes that are there.
    #[inline]
    pub(super) fn available(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Where in the buffer they lie.
    #[inline]
    pub(super) fn position(&self) -> usize {
        self.start
    }

    /// `N` bytes at `at`, zeros beyond what [`Input::ensure`] made available.
    #[inline]
    pub(super) fn read<const N: usize>(&self, at: usize) -> [u8; N] {
        match self.buffer[self.start..self.end].get(at..) {
            Some(rest) => rest.first_chunk().copied().unwrap_or([0; N]),
            None => [0; N],
        }
    }

    /// Moves on and says where in the buffer the bytes lie, until the next [`Input::ensure`].
    #[inline]
    pub(super) fn consume(&mut self, count: usize) -> usize {
        let at = self.start;
        self.start = (at + count).min(self.end);
        self.offset += (self.start - at) as u64;
        at
    }

    /// The whole buffer; [`Input::consume`] names places in it.
    #[inline]
    pub(super) fn buffer(&self) -> &[u8] {
        &self.buffer
    }

    /// Offset in the stream of the next byte.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }
}
