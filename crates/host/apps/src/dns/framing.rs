//! Messages of DNS in a TCP stream: two octets of length before each (RFC 7766 section 8), which senders may write as a
//! segment of their own.

/// Messages of one direction.
#[derive(Debug, Default)]
pub struct Framing {
    /// Length and message, as far as they are there.
    buffer: Vec<u8>,
}

impl Framing {
    /// Takes bytes, cut at any place, and hands out each message that is whole.
    pub fn feed(&mut self, mut bytes: &[u8], out: &mut dyn FnMut(&[u8])) {
        while !bytes.is_empty() {
            let whole = match self.buffer[..] {
                [high, low, ..] => 2 + usize::from(u16::from_be_bytes([high, low])),
                _ => 2,
            };
            let (now, rest) = bytes.split_at(bytes.len().min(whole - self.buffer.len()));
            self.buffer.extend_from_slice(now);
            bytes = rest;
            if let [high, low, message @ ..] = &self.buffer[..]
                && message.len() == usize::from(u16::from_be_bytes([*high, *low]))
            {
                if !message.is_empty() {
                    out(message);
                }
                self.buffer.clear();
                // Most connections have one message in each direction.
                self.buffer.shrink_to(512);
            }
        }
    }

    /// Whether nothing has begun.
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// The message that is not whole yet, without its length.
    pub fn rest(&self) -> &[u8] {
        self.buffer.get(2..).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_cut_gives_the_same_messages() {
        let stream = b"\0\x03abc\0\0\0\x01d\0\x04efgh";
        let read = |pieces: &[&[u8]]| {
            let (mut framing, mut all) = (Framing::default(), Vec::new());
            for piece in pieces {
                framing.feed(piece, &mut |message| all.push(message.to_vec()));
            }
            assert!(framing.rest().is_empty());
            all
        };
        let whole = read(&[stream]);
        assert_eq!(whole, [&b"abc"[..], b"d", b"efgh"]);
        for cut in 0..stream.len() {
            let (one, two) = stream.split_at(cut);
            assert_eq!(read(&[one, two]), whole, "cut at {cut}");
        }
        let single: Vec<&[u8]> = stream.chunks(1).collect();
        assert_eq!(read(&single), whole);
    }
}
