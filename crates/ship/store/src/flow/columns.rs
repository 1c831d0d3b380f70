//! Numbers in columns: each is written in the form in which it is shortest.

/// All are one number.
const SAME: u8 = 0;
/// Each in LEB128.
const VARIABLE: u8 = 1;
/// Each in this many bytes and less than 9, little-endian: the form is 16 more than the width.
const FIXED: u8 = 16;

/// Adds a number in LEB128.
pub fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn variable_len(number: u64) -> usize {
    (70 - (number | 1).leading_zeros() as usize) / 7
}

fn fixed_len(number: u64) -> usize {
    (71 - (number | 1).leading_zeros() as usize) / 8
}

/// Signed difference of two numbers, zigzag-encoded.
pub fn zigzag(to: u64, from: u64) -> u64 {
    let difference = to.wrapping_sub(from) as i64;
    ((difference << 1) ^ (difference >> 63)) as u64
}

/// The number that [`zigzag`] made the difference of.
pub fn unzigzag(difference: u64, from: u64) -> u64 {
    let difference = (difference >> 1) as i64 ^ -((difference & 1) as i64);
    from.wrapping_add(difference as u64)
}

/// Adds a column.
pub fn put_column(out: &mut Vec<u8>, numbers: &[u64]) {
    let first = numbers.first().copied().unwrap_or(0);
    let (mut same, mut variable, mut width) = (true, 0, 1);
    for number in numbers {
        same &= *number == first;
        variable += variable_len(*number);
        width = width.max(fixed_len(*number));
    }
    if same {
        out.push(SAME);
        put(out, first);
    } else if width * numbers.len() <= variable {
        out.push(FIXED + width as u8);
        for number in numbers {
            out.extend_from_slice(&number.to_le_bytes()[..width]);
        }
    } else {
        out.push(VARIABLE);
        for number in numbers {
            put(out, *number);
        }
    }
}

/// Reads columns; every method returns none if the bytes are malformed.
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// From the beginning of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Bytes that are left.
    pub fn left(&self) -> usize {
        self.0.len()
    }

    /// So many bytes.
    pub fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(bytes)
    }

    /// So many bytes.
    pub fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    /// A number in LEB128.
    pub fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for (at, byte) in self.0.iter().enumerate().take(10) {
            let part = u64::from(byte & 0x7f);
            // The tenth byte may have one bit.
            if at == 9 && part > 1 {
                return None;
            }
            number |= part << (7 * at);
            if byte & 0x80 == 0 {
                self.0 = &self.0[at + 1..];
                return Some(number);
            }
        }
        None
    }

    /// How many of something of at least `least` bytes follow.
    pub fn count(&mut self, least: usize) -> Option<usize> {
        let count = usize::try_from(self.number()?).ok()?;
        (count.checked_mul(least)? <= self.left()).then_some(count)
    }

    /// Reads a column of `count` numbers; a single number if all are equal.
    pub fn column(&mut self, count: usize, into: &mut Vec<u64>) -> Option<()> {
        into.clear();
        match self.array::<1>()?[0] {
            SAME => {
                let number = self.number()?;
                into.push(number);
            }
            VARIABLE => {
                // Each has a byte at least.
                if count > self.left() {
                    return None;
                }
                into.reserve(count);
                for _ in 0..count {
                    into.push(self.number()?);
                }
            }
            form => {
                let width = usize::from(form.checked_sub(FIXED)?);
                if !(1..=8).contains(&width) {
                    return None;
                }
                let bytes = self.bytes(count.checked_mul(width)?)?;
                into.extend(bytes.chunks_exact(width).map(|bytes| {
                    let mut word = [0; 8];
                    word[..width].copy_from_slice(bytes);
                    u64::from_le_bytes(word)
                }));
            }
        }
        Some(())
    }
}
