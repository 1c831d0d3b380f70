//! The first handshake message of a direction, put together from records (RFC 8446 section 5.1).

use super::ClientHello;

/// Content type of handshake messages.
const HANDSHAKE: u8 = 22;
/// Type of a ClientHello.
const CLIENT_HELLO: u8 = 1;
/// Bytes of a record's header, and of a record at most.
const HEADER: usize = 5;
const MOST_RECORD: usize = 1 << 14;
/// Bytes of a ClientHello that are read.
const MOST_HELLO: usize = 1 << 15;

/// Reads the first message of a direction.
#[derive(Debug, Default)]
pub struct Handshake {
    /// Of the record that begins.
    header: Vec<u8>,
    /// Bytes of the record that are still to come.
    left: usize,
    message: Vec<u8>,
    over: bool,
}

/// Whether a record can begin so.
fn may_be_header(bytes: &[u8]) -> bool {
    let fits = |at: usize, is: fn(u8) -> bool| bytes.get(at).is_none_or(|byte| is(*byte));
    fits(0, |b| b == HANDSHAKE) && fits(1, |b| b == 3) && fits(2, |b| b <= 4)
}

impl Handshake {
    /// Whether bytes can be the first of a client's.
    pub fn may_begin(bytes: &[u8]) -> bool {
        may_be_header(bytes) && bytes.get(HEADER).is_none_or(|kind| *kind == CLIENT_HELLO)
    }

    /// Takes bytes, cut at any place, and hands out the ClientHello when it is whole. True when nothing more is wanted.
    pub fn feed(&mut self, mut bytes: &[u8], out: &mut dyn FnMut(ClientHello)) -> bool {
        while !self.over && !bytes.is_empty() {
            if self.left == 0 {
                let (now, rest) = bytes.split_at(bytes.len().min(HEADER - self.header.len()));
                self.header.extend_from_slice(now);
                bytes = rest;
                self.over = !may_be_header(&self.header);
                if let [_, _, _, high, low] = self.header[..] {
                    self.left = usize::from(u16::from_be_bytes([high, low]));
                    self.over |= self.left == 0 || self.left > MOST_RECORD;
                    self.header.clear();
                }
                continue;
            }
            // The message may end before the record does.
            let (now, rest) = bytes.split_at(bytes.len().min(self.left));
            self.message.extend_from_slice(now);
            self.left -= now.len();
            bytes = rest;
            match read(&self.message) {
                Some(hello) => {
                    self.over = true;
                    if let Some(hello) = hello {
                        out(hello);
                    }
                }
                None => self.over = self.message.len() > MOST_HELLO,
            }
        }
        if self.over {
            self.message = Vec::new();
        }
        self.over
    }
}

/// The message, when it is whole; inside none when it is no ClientHello.
fn read(message: &[u8]) -> Option<Option<ClientHello>> {
    let [kind, a, b, c, body @ ..] = message else {
        return None;
    };
    let length = usize::from(*a) << 16 | usize::from(*b) << 8 | usize::from(*c);
    if *kind != CLIENT_HELLO || length > MOST_HELLO {
        return Some(None);
    }
    body.get(..length).map(ClientHello::read)
}
