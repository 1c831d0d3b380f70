//! The checksum of IP, ICMP, TCP and UDP.

use std::net::IpAddr;

/// The Internet checksum (RFC 1071), word by word.
#[derive(Clone, Copy, Default)]
pub struct Sum(u64);

impl Sum {
    /// Adds bytes, of which all parts but the last must be of even length.
    pub fn bytes(mut self, bytes: &[u8]) -> Self {
        let mut pairs = bytes.chunks_exact(2);
        for pair in &mut pairs {
            self.0 += u64::from(u16::from_be_bytes([pair[0], pair[1]]));
        }
        if let [last] = pairs.remainder() {
            self.0 += u64::from(*last) << 8;
        }
        self
    }

    /// Adds the pseudo header of a transport protocol (RFC 9293 section 3.1, RFC 8200 section 8.1).
    pub fn pseudo(self, from: IpAddr, to: IpAddr, protocol: u8, length: usize) -> Self {
        let sum = match (from, to) {
            (IpAddr::V4(from), IpAddr::V4(to)) => self.bytes(&from.octets()).bytes(&to.octets()),
            (from, to) => self
                .bytes(&crate::packet::mapped(from).octets())
                .bytes(&crate::packet::mapped(to).octets()),
        };
        Self(sum.0 + u64::from(protocol) + length as u64)
    }

    /// The checksum.
    pub fn finish(self) -> u16 {
        let mut sum = self.0;
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values() {
        // RFC 1071 section 3 gives the sum ddf2 for these bytes.
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(Sum::default().bytes(&bytes).finish(), !0xddf2);
        // An odd last byte is the high one of its pair.
        assert_eq!(Sum::default().bytes(&[0x12]).finish(), !0x1200);
    }
}
