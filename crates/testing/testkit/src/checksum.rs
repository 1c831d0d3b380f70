//! Checksums of the Internet protocols.

/// Internet checksum (RFC 1071) over several parts, each of which starts at an even offset.
pub fn internet(parts: &[&[u8]]) -> u16 {
    let mut sum = 0u64;
    for part in parts {
        for pair in part.chunks(2) {
            let low = pair.get(1).copied().unwrap_or(0);
            sum += u64::from(u16::from_be_bytes([pair[0], low]));
        }
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// CRC32c as SCTP uses it (RFC 9260 appendix A), to be stored in little-endian order.
pub fn crc32c(bytes: &[u8]) -> u32 {
    let mut crc = !0u32;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg());
        }
    }
    !crc
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values() {
        // RFC 1071 section 3 gives the sum ddf2 for these bytes.
        assert_eq!(
            internet(&[&[0x00, 0x01, 0xf2, 0x03], &[0xf4, 0xf5, 0xf6, 0xf7]]),
            !0xddf2
        );
        // RFC 3720 appendix B.4: 32 bytes of zeros.
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
    }
}
