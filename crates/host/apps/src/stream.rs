//! One direction of a TCP connection, put in order.

use std::collections::VecDeque;

/// Pieces that wait for those before them.
const MOST_PIECES: usize = 16;
/// Bytes of the pieces that wait.
const MOST_WAITING: usize = 64 << 10;

/// Puts the segments of a direction in order. What came first stays, whatever comes later for the same place.
#[derive(Debug, Default)]
pub struct Stream {
    /// Sequence number of the next byte; none before the first segment.
    next: Option<u32>,
    /// Later segments, by their distance from each other.
    waiting: VecDeque<(u32, Box<[u8]>)>,
    waiting_bytes: usize,
    /// The first byte that there was is the connection's first.
    whole: bool,
    given_up: bool,
    /// Segments that had other bytes for a place than those that came first.
    pub conflicts: u64,
}

/// How far `seq` is after `from`; negative: before.
fn distance(seq: u32, from: u32) -> i32 {
    seq.wrapping_sub(from).cast_signed()
}

impl Stream {
    /// The SYN of the direction: data begins after it.
    pub fn begin(&mut self, seq: u32) {
        if self.next.is_none() {
            self.next = Some(seq.wrapping_add(1));
            self.whole = true;
        }
    }

    /// Whether the connection's first byte is known: its SYN was seen.
    pub fn is_whole(&self) -> bool {
        self.whole
    }

    /// Whether bytes are missing that cannot be waited for any longer.
    pub fn has_given_up(&self) -> bool {
        self.given_up
    }

    /// Takes a segment with its payload, of which `missing` bytes at its end were not captured, and hands out what is
    /// next in order.
    pub fn segment(&mut self, seq: u32, payload: &[u8], missing: u32, out: &mut dyn FnMut(&[u8])) {
        if self.given_up || payload.is_empty() && missing == 0 {
            return;
        }
        let next = *self.next.get_or_insert(seq);
        let ahead = distance(seq, next);
        if ahead > 0 {
            self.wait(seq, payload);
        } else {
            loop {
                let next = self.next.unwrap_or(seq);
                let known = distance(next, seq).unsigned_abs() as usize;
                let Some(new) = payload.get(known..).filter(|new| !new.is_empty()) else {
                    break;
                };
                // Up to a piece that waits, and then what follows it.
                self.hand_out(new, out);
                self.release(out);
            }
            self.release(out);
        }
        // What follows a place that was not captured cannot be read.
        if missing > 0 && ahead <= 0 {
            let end = seq.wrapping_add(payload.len() as u32);
            self.given_up |= distance(end, self.next.unwrap_or(end)) >= 0;
        }
    }

    fn hand_out(&mut self, bytes: &[u8], out: &mut dyn FnMut(&[u8])) {
        let next = self.next.unwrap_or_default();
        // A piece that waits was there first where it overlaps.
        let overlap = self.waiting.front().and_then(|(seq, piece)| {
            let at = distance(*seq, next);
            let at = usize::try_from(at).ok().filter(|at| *at < bytes.len())?;
            let same = bytes[at..].iter().zip(&piece[..]).all(|(a, b)| a == b);
            Some((at, same))
        });
        let bytes = match overlap {
            Some((at, same)) => {
                self.conflicts += u64::from(!same);
                &bytes[..at]
            }
            None => bytes,
        };
        self.next = Some(next.wrapping_add(bytes.len() as u32));
        if !bytes.is_empty() {
            out(bytes);
        }
    }

    /// Hands out the pieces that waited for what is there now.
    fn release(&mut self, out: &mut dyn FnMut(&[u8])) {
        while let Some((seq, piece)) = self.waiting.front() {
            let next = self.next.unwrap_or_default();
            let behind = distance(next, *seq);
            if behind < 0 {
                return;
            }
            let known = (behind as usize).min(piece.len());
            let (_, piece) = match self.waiting.pop_front() {
                Some(piece) => piece,
                None => return,
            };
            self.waiting_bytes -= piece.len();
            self.next = Some(next.wrapping_add((piece.len() - known) as u32));
            if known < piece.len() {
                out(&piece[known..]);
            }
        }
    }

    fn wait(&mut self, seq: u32, payload: &[u8]) {
        let at = self
            .waiting
            .iter()
            .position(|(other, _)| distance(seq, *other) <= 0)
            .unwrap_or(self.waiting.len());
        // Cut to what no piece has: the one before, and the one after.
        let mut payload = payload;
        let mut seq = seq;
        if let Some((before, piece)) = at.checked_sub(1).and_then(|at| self.waiting.get(at)) {
            let end = before.wrapping_add(piece.len() as u32);
            let known = usize::try_from(distance(end, seq)).unwrap_or(0);
            let offset = distance(seq, *before) as usize;
            let theirs = piece.get(offset..).unwrap_or_default();
            self.conflicts += u64::from(theirs.iter().zip(payload).any(|(a, b)| a != b));
            payload = payload.get(known..).unwrap_or_default();
            seq = seq.wrapping_add(known as u32);
        }
        let mut place = at;
        while !payload.is_empty() {
            let (mine, rest, after) = match self.waiting.get(place) {
                Some((other, piece)) if (distance(*other, seq) as usize) < payload.len() => {
                    let gap = distance(*other, seq) as usize;
                    let (mine, theirs) = payload.split_at(gap);
                    let conflict = theirs.iter().zip(&piece[..]).any(|(a, b)| a != b);
                    self.conflicts += u64::from(conflict);
                    let rest = theirs.get(piece.len()..).unwrap_or_default();
                    (mine, rest, other.wrapping_add(piece.len() as u32))
                }
                _ => (payload, &[][..], seq),
            };
            if !mine.is_empty() {
                if self.waiting.len() == MOST_PIECES
                    || self.waiting_bytes + mine.len() > MOST_WAITING
                {
                    self.given_up = true;
                    self.waiting.clear();
                    self.waiting_bytes = 0;
                    return;
                }
                self.waiting_bytes += mine.len();
                self.waiting.insert(place, (seq, mine.into()));
                place += 1;
            }
            (payload, seq) = (rest, after);
            place += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(segments: &[(u32, &[u8])]) -> (Vec<u8>, Stream) {
        let mut stream = Stream::default();
        stream.begin(u32::MAX - 2);
        let mut all = Vec::new();
        for (at, bytes) in segments {
            let seq = (u32::MAX - 1).wrapping_add(*at);
            stream.segment(seq, bytes, 0, &mut |new| all.extend_from_slice(new));
        }
        (all, stream)
    }

    #[test]
    fn what_came_first_stays() {
        let (all, stream) = read(&[(0, b"abc"), (1, b"XYdef"), (3, b"def")]);
        assert_eq!(all, b"abcdef");
        assert_eq!(stream.conflicts, 0, "bytes that were handed out are gone");
        // The piece that waits came before the one that fills the gap.
        let (all, stream) = read(&[(3, b"def"), (0, b"abcXYZghi"), (6, b"ghi")]);
        assert_eq!((&all[..], stream.conflicts), (&b"abcdefghi"[..], 1));
        let (all, stream) = read(&[(6, b"ghi"), (3, b"dXfgYY"), (0, b"abc")]);
        assert_eq!(stream.conflicts, 1);
        assert_eq!(all, b"abcdXfghi");
        // One that surrounds a piece that waits.
        let (all, stream) = read(&[(4, b"e"), (2, b"cdXfg"), (0, b"ab")]);
        assert_eq!((&all[..], stream.conflicts), (&b"abcdefg"[..], 1));
    }

    #[test]
    fn pieces_that_wait_are_limited() {
        let pieces: Vec<(u32, &[u8])> = (0..20).map(|i| (10 + 2 * i, &b"x"[..])).collect();
        let (all, stream) = read(&pieces);
        assert!(all.is_empty() && stream.has_given_up());
        let mut stream = Stream::default();
        stream.segment(5, b"ab", 10, &mut |_| {});
        assert!(stream.has_given_up(), "the rest was not captured");
    }

    proptest! {
        #[test]
        fn any_order_gives_the_same_bytes(
            bytes in proptest::collection::vec(any::<u8>(), 1..200),
            cuts in proptest::collection::vec((0usize..200, 1usize..60), 0..12),
            start in any::<u32>(),
        ) {
            let mut stream = Stream::default();
            stream.begin(start.wrapping_sub(1));
            let mut all = Vec::new();
            let mut put = |at: usize, len: usize| {
                let at = at.min(bytes.len());
                let piece = &bytes[at..(at + len).min(bytes.len())];
                stream.segment(start.wrapping_add(at as u32), piece, 0, &mut |new| all.extend_from_slice(new));
            };
            for (at, len) in &cuts {
                put(*at, *len);
            }
            put(0, bytes.len());
            prop_assert_eq!(stream.conflicts, 0);
            prop_assert_eq!(all, bytes);
        }
    }
}
