//! Checks the page headers of a column's chunk before it is unpacked: a forged size must not make us reserve
//! memory.
//!
//! A header is a struct in Thrift's compact protocol; field 2 is the unpacked size, field 3 the packed size
//! (parquet.thrift, `PageHeader`).

/// Bytes of an unpacked page at most; ours have 65,536 rows, of 8 bytes, or of texts.
pub(crate) const PAGE: i64 = 16 << 20;
/// Structs inside of each other at most.
const DEPTH: usize = 8;

/// Checks the pages of a chunk.
pub(crate) fn check(mut chunk: &[u8]) -> Result<(), &'static str> {
    while !chunk.is_empty() {
        let mut header = Header { rest: chunk };
        let (unpacked, packed) = header.sizes().ok_or("a page has no header")?;
        if !(0..=PAGE).contains(&unpacked) {
            return Err("a page claims to be too large");
        }
        let packed = usize::try_from(packed).map_err(|_| "a page has no size")?;
        chunk = header.rest.get(packed..).ok_or("a page is cut off")?;
    }
    Ok(())
}

struct Header<'a> {
    rest: &'a [u8],
}

impl Header<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f).checked_shl(shift)?;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn zigzag(&mut self) -> Option<i64> {
        let value = self.varint()?;
        Some((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }

    fn pass(&mut self, bytes: u64) -> Option<()> {
        self.rest = self.rest.get(usize::try_from(bytes).ok()?..)?;
        Some(())
    }

    /// The header of a field: its identifier and type; a type of 0 ends a struct.
    fn field(&mut self, before: i64) -> Option<(i64, u8)> {
        let byte = self.byte()?;
        let kind = byte & 0x0f;
        match byte >> 4 {
            _ if kind == 0 => Some((before, 0)),
            0 => Some((self.zigzag()?, kind)),
            delta => Some((before.checked_add(delta.into())?, kind)),
        }
    }

    fn sizes(&mut self) -> Option<(i64, i64)> {
        let (mut id, mut unpacked, mut packed) = (0, None, None);
        loop {
            let kind;
            (id, kind) = self.field(id)?;
            match (id, kind) {
                (_, 0) => return Some((unpacked?, packed?)),
                (2, 5) => unpacked = Some(self.zigzag()?),
                (3, 5) => packed = Some(self.zigzag()?),
                (_, kind) => self.skip(kind, DEPTH)?,
            }
        }
    }

    fn skip(&mut self, kind: u8, depth: usize) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        match kind {
            // Booleans are in the type.
            1 | 2 => Some(()),
            3 => self.pass(1),
            4..=6 => self.varint().map(drop),
            7 => self.pass(8),
            8 => {
                let length = self.varint()?;
                self.pass(length)
            }
            9 | 10 => {
                let head = self.byte()?;
                let count = match head >> 4 {
                    15 => self.varint()?,
                    count => count.into(),
                };
                for _ in 0..count {
                    match head & 0x0f {
                        1 | 2 => self.pass(1)?,
                        kind => self.skip(kind, depth)?,
                    }
                }
                Some(())
            }
            12 => {
                let mut id = 0;
                loop {
                    let kind;
                    (id, kind) = self.field(id)?;
                    if kind == 0 {
                        return Some(());
                    }
                    self.skip(kind, depth)?;
                }
            }
            // Page headers have no maps.
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fields 1 (a data page), 2, 3, and 5 with one number inside.
    fn page(unpacked: u8, packed: u8) -> Vec<u8> {
        vec![0x15, 0, 0x15, unpacked, 0x15, packed, 0x2c, 0x15, 8, 0, 0]
    }

    #[test]
    fn sizes_are_read_and_lies_refused() {
        let mut two = page(20, 6);
        two.extend([1, 2, 3]);
        two.extend(page(20, 0));
        assert_eq!(check(&two), Ok(()));
        two.pop();
        assert_eq!(check(&two), Err("a page has no header"));
        assert_eq!(check(&page(20, 2)), Err("a page is cut off"));
        assert_eq!(check(&page(21, 0)), Err("a page claims to be too large"));
        let mut large = vec![0x15, 0, 0x15, 0xff, 0xff, 0xff, 0xff, 0x0f, 0x15, 0, 0];
        assert_eq!(check(&large), Err("a page claims to be too large"));
        large.truncate(6);
        assert_eq!(check(&large), Err("a page has no header"));
        // A list of numbers without end, structs without end.
        assert!(check(&[0x19, 0xf5, 0xff, 0xff, 0xff, 0xff, 0x0f]).is_err());
        assert!(check(&[0x1c; 4096]).is_err());
        assert_eq!(check(&[]), Ok(()));
    }
}
