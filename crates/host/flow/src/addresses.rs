//! The address set: prefixes whose packets are counted or left out, docs/accounting.md section 7.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use prefix_trie::joint::JointPrefixMap;
use skua_packet::{Level, Network};

/// Characters of a wrong prefix that an error repeats.
const QUOTED: usize = 60;

/// What a prefix says about the addresses in it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Mark {
    /// Count.
    Include,
    /// Leave out.
    Exclude,
}

impl Mark {
    /// Name in the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::Include => "include",
            Self::Exclude => "exclude",
        }
    }
}

/// An IPv4 or IPv6 prefix in CIDR notation (RFC 4632, RFC 4291 section 2.3), no host bits set.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Prefix(IpNet);

impl Prefix {
    /// The prefix of so many bits that contains an address; none when addresses have fewer.
    pub fn holding(address: IpAddr, length: u8) -> Option<Self> {
        let net = IpNet::new(address, length).ok()?;
        Some(Self(net.trunc()))
    }

    /// The first address.
    pub fn address(self) -> IpAddr {
        self.0.addr()
    }

    /// Bits that all addresses have in common.
    pub fn length(self) -> u8 {
        self.0.prefix_len()
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Why a text is no prefix. One line, whatever the text was.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PrefixError {
    /// Nothing that could be one.
    #[error("{text} is no IP prefix; {hint}")]
    NoPrefix {
        /// The text, shortened.
        text: String,
        /// What to write instead.
        hint: String,
    },
    /// A length that addresses of the family do not have.
    #[error("{text}: the length of an {family} prefix is 0 to {most}")]
    Length {
        /// The text, shortened.
        text: String,
        /// IPv4 or IPv6.
        family: &'static str,
        /// The greatest length, in bits.
        most: u8,
    },
    /// Bits behind the prefix are not 0.
    #[error("{text} has host bits set; did you mean {network}, or {address} alone?")]
    HostBits {
        /// The text, shortened.
        text: String,
        /// The prefix of that length.
        network: Prefix,
        /// The address with all its bits.
        address: Prefix,
    },
    /// An IPv4 prefix in IPv6 notation (RFC 4291 section 2.5.5.2), which no packet would match.
    #[error("{text} is IPv4 in the notation of IPv6; did you mean {ipv4}?")]
    Mapped {
        /// The text, shortened.
        text: String,
        /// The same as IPv4.
        ipv4: Prefix,
    },
}

/// A foreign text as part of a line.
fn quoted(text: &str) -> String {
    let mut quoted: String = text.chars().take(QUOTED).collect();
    if quoted.len() < text.len() {
        quoted.push('…');
    }
    match quoted.is_empty() {
        true => "\"\"".to_owned(),
        false => quoted.escape_debug().collect(),
    }
}

impl FromStr for Prefix {
    type Err = PrefixError;

    /// Takes `10.0.0.0/8`, `fd00::/8`, and addresses without a length.
    fn from_str(text: &str) -> Result<Self, PrefixError> {
        let text = text.trim();
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let no_prefix = || PrefixError::NoPrefix {
            text: quoted(text),
            hint: hint(address, length),
        };
        let address: IpAddr = address.parse().map_err(|_| no_prefix())?;
        let (family, most) = match address {
            IpAddr::V4(_) => ("IPv4", 32),
            IpAddr::V6(_) => ("IPv6", 128),
        };
        let length = match length {
            None => most,
            Some(digits) if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) => {
                digits.parse().unwrap_or(u8::MAX)
            }
            Some(_) => return Err(no_prefix()),
        };
        let Ok(net) = IpNet::new(address, length) else {
            return Err(PrefixError::Length {
                text: quoted(text),
                family,
                most,
            });
        };
        if net.trunc() != net {
            return Err(PrefixError::HostBits {
                text: quoted(text),
                network: Self(net.trunc()),
                address: Self(address.into()),
            });
        }
        if let IpAddr::V6(v6) = address
            && let Some(v4) = v6.to_ipv4_mapped()
            && let Some(bits) = length.checked_sub(96)
            && let Ok(net) = Ipv4Net::new(v4, bits)
        {
            return Err(PrefixError::Mapped {
                text: quoted(text),
                ipv4: Self(net.into()),
            });
        }
        Ok(Self(net))
    }
}

/// A suggestion for text that is no prefix.
fn hint(address: &str, length: Option<&str>) -> String {
    let as_mask = |mask: &str| ipnet::ipv4_mask_to_prefix(mask.parse().ok()?).ok();
    let meant = match length {
        // A network mask in place of the length.
        Some(mask) if address.parse::<Ipv4Addr>().is_ok() => {
            as_mask(mask).map(|bits| (address.to_owned(), bits))
        }
        // 10/8, 192.168/16
        Some(bits) => short_form(address).zip(bits.parse().ok()),
        None => None,
    };
    let meant = meant
        .and_then(|(address, bits)| IpNet::new(address.parse().ok()?, bits).ok())
        .map(|net| net.trunc());
    match meant {
        Some(net) => format!("did you mean {net}?"),
        None if address.contains(|c: char| c.is_ascii_alphabetic()) && !address.contains(':') => {
            "names are not resolved, write addresses".to_owned()
        }
        None => "write it like 10.0.0.0/8 or fd00::/8".to_owned(),
    }
}

/// An IPv4 address whose last zeros were left out.
fn short_form(address: &str) -> Option<String> {
    let parts = address.trim_end_matches('.').split('.').count();
    let full = address.trim_end_matches('.').to_owned() + &".0".repeat(4_usize.checked_sub(parts)?);
    full.parse::<Ipv4Addr>().ok().map(|_| full)
}

/// How many prefixes a set has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AddressCounts {
    /// Prefixes that are counted.
    pub include: u64,
    /// Prefixes that are left out.
    pub exclude: u64,
}

/// Prefixes with their marks. The longest that holds an address decides about it.
#[derive(Clone, Default)]
pub struct AddressSet {
    marks: JointPrefixMap<IpNet, Mark>,
    counts: AddressCounts,
}

impl AddressSet {
    /// How many prefixes it has.
    pub fn counts(&self) -> AddressCounts {
        self.counts
    }

    /// How many prefixes it has altogether.
    pub fn len(&self) -> usize {
        self.marks.len()
    }

    /// Whether it has none and so leaves nothing out.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn count(&mut self, mark: Mark) -> &mut u64 {
        match mark {
            Mark::Include => &mut self.counts.include,
            Mark::Exclude => &mut self.counts.exclude,
        }
    }

    /// Marks a prefix. Returns the mark that it had before.
    pub fn insert(&mut self, prefix: Prefix, mark: Mark) -> Option<Mark> {
        let before = self.marks.insert(prefix.0, mark);
        if let Some(before) = before {
            *self.count(before) -= 1;
        }
        *self.count(mark) += 1;
        before
    }

    /// Removes a prefix. Returns the mark that it had.
    pub fn remove(&mut self, prefix: Prefix) -> Option<Mark> {
        let before = self.marks.remove(&prefix.0)?;
        *self.count(before) -= 1;
        Some(before)
    }

    /// The mark of exactly this prefix.
    pub fn get(&self, prefix: Prefix) -> Option<Mark> {
        self.marks.get(&prefix.0).copied()
    }

    /// All prefixes: first IPv4, then IPv6, each by address and length.
    pub fn iter(&self) -> impl Iterator<Item = (Prefix, Mark)> + '_ {
        self.marks.iter().map(|(net, mark)| (Prefix(net), *mark))
    }

    /// Whether the longest prefix that holds an address is marked to include it.
    pub fn holds(&self, address: IpAddr) -> bool {
        let host = IpNet::from(address);
        let longest = self.marks.get_lpm(&host);
        longest.is_some_and(|(_, mark)| *mark == Mark::Include)
    }

    /// Whether a packet is left out whose outermost level this is.
    #[inline]
    pub fn leaves_out(&self, level: &Level) -> bool {
        let (src, dst) = match level.network {
            Network::None => return self.counts.include > 0,
            Network::V4 => (host_v4(&level.src), host_v4(&level.dst)),
            Network::V6 => (host_v6(level.src), host_v6(level.dst)),
        };
        let mark = |host: IpNet| self.marks.get_lpm(&host).map(|(_, mark)| *mark);
        match (mark(src), mark(dst)) {
            (Some(Mark::Exclude), _) | (_, Some(Mark::Exclude)) => true,
            (Some(Mark::Include), _) | (_, Some(Mark::Include)) => false,
            (None, None) => self.counts.include > 0,
        }
    }
}

/// An IPv4 address as levels have it: behind `::ffff:`.
fn host_v4(address: &[u8; 16]) -> IpNet {
    let [.., a, b, c, d] = *address;
    Ipv4Net::from(Ipv4Addr::new(a, b, c, d)).into()
}

fn host_v6(address: [u8; 16]) -> IpNet {
    Ipv6Net::from(Ipv6Addr::from(address)).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(include: &[&str], exclude: &[&str]) -> AddressSet {
        let mut set = AddressSet::default();
        for (mark, texts) in [(Mark::Include, include), (Mark::Exclude, exclude)] {
            for text in texts {
                set.insert(text.parse().unwrap(), mark);
            }
        }
        set
    }

    fn octets(text: &str) -> ([u8; 16], Network) {
        match text.parse().unwrap() {
            IpAddr::V4(v4) => (v4.to_ipv6_mapped().octets(), Network::V4),
            IpAddr::V6(v6) => (v6.octets(), Network::V6),
        }
    }

    /// Whether a packet is counted; both ways, which must agree.
    fn counts(set: &AddressSet, a: &str, b: &str) -> bool {
        let ((src, network), (dst, _)) = (octets(a), octets(b));
        let there = Level {
            src,
            dst,
            network,
            ..Level::default()
        };
        let back = Level {
            src: dst,
            dst: src,
            ..there
        };
        assert_eq!(set.leaves_out(&there), set.leaves_out(&back), "{a} {b}");
        !set.leaves_out(&there)
    }

    #[test]
    fn the_longest_prefix_decides() {
        let set = set(
            &["10.0.0.0/8", "10.1.2.0/24", "fd00::/8"],
            &["10.1.0.0/16", "10.1.2.3/32", "fd00:1::/32"],
        );
        assert!(counts(&set, "10.2.0.1", "192.0.2.1"));
        assert!(counts(&set, "10.2.0.1", "10.3.0.1"));
        assert!(!counts(&set, "10.1.0.1", "192.0.2.1"));
        // One address that is left out is enough.
        assert!(!counts(&set, "10.1.0.1", "10.2.0.1"));
        assert!(counts(&set, "10.1.2.4", "192.0.2.1"));
        assert!(!counts(&set, "10.1.2.3", "10.1.2.4"));
        // In no prefix, and there is one to include.
        assert!(!counts(&set, "192.0.2.1", "192.0.2.2"));
        assert!(counts(&set, "fd01::1", "2001:db8::1"));
        assert!(!counts(&set, "fd00:1::1", "2001:db8::1"));
        assert!(set.leaves_out(&Level::default()));
    }

    #[test]
    fn without_includes_all_else_is_counted() {
        let set = set(&[], &["10.0.0.0/8", "::/0"]);
        assert!(!counts(&set, "10.0.0.1", "192.0.2.1"));
        assert!(counts(&set, "192.0.2.2", "192.0.2.1"));
        // IPv4 is not part of ::/0.
        assert!(!counts(&set, "2001:db8::1", "2001:db8::2"));
        assert!(!set.leaves_out(&Level::default()));
        assert!(counts(&AddressSet::default(), "10.0.0.1", "10.0.0.2"));
    }

    #[test]
    fn prefixes_are_counted_and_listed_in_order() {
        let mut set = set(&["10.0.0.0/8", "::/0", "0.0.0.0/0"], &["10.0.0.0/16"]);
        let listed: Vec<String> = set.iter().map(|(p, _)| p.to_string()).collect();
        assert_eq!(listed, ["0.0.0.0/0", "10.0.0.0/8", "10.0.0.0/16", "::/0"]);
        let ten: Prefix = "10.0.0.0/8".parse().unwrap();
        assert_eq!(set.insert(ten, Mark::Exclude), Some(Mark::Include));
        let counts = |include, exclude| AddressCounts { include, exclude };
        assert_eq!(set.counts(), counts(2, 2));
        assert_eq!(set.remove(ten), Some(Mark::Exclude));
        assert_eq!(set.remove(ten), None);
        assert_eq!((set.counts(), set.len()), (counts(2, 1), 3));
    }

    #[test]
    fn mistakes_are_told_in_one_line_with_what_was_meant() {
        let error = |text: &str| text.parse::<Prefix>().unwrap_err().to_string();
        assert_eq!(
            error("10.0.0.1/8"),
            "10.0.0.1/8 has host bits set; did you mean 10.0.0.0/8, or 10.0.0.1/32 alone?"
        );
        assert_eq!(
            error("fd00::1/8"),
            "fd00::1/8 has host bits set; did you mean fd00::/8, or fd00::1/128 alone?"
        );
        assert!(error("10.0.0.0/33").contains("IPv4 prefix is 0 to 32"));
        assert!(error("::/129").contains("IPv6 prefix is 0 to 128"));
        assert!(error("10.0.0.0/99999999999").contains("0 to 32"));
        assert!(error("10/8").ends_with("did you mean 10.0.0.0/8?"));
        assert!(error("192.168.7/16").ends_with("did you mean 192.168.0.0/16?"));
        assert!(error("10.0.0.0/255.255.0.0").ends_with("did you mean 10.0.0.0/16?"));
        assert!(error("::ffff:10.0.0.0/104").ends_with("did you mean 10.0.0.0/8?"));
        assert!(error("example.com").contains("names are not resolved"));
        assert!(error("").contains("write it like"));
        for text in ["10.0.0.0/", "10.0.0.0/+8", "/8", "10.0.0.0/8/8", "1::2::3"] {
            assert!(error(text).contains("is no IP prefix"), "{text}");
        }
        let long = error(&"9\n".repeat(1 << 20));
        assert!(long.len() < 300 && long.lines().count() == 1, "{long}");
    }

    #[test]
    fn an_address_alone_is_a_prefix() {
        let shown = |text: &str| text.parse::<Prefix>().unwrap().to_string();
        assert_eq!(shown(" 10.0.0.1 "), "10.0.0.1/32");
        assert_eq!(shown("FD00::1"), "fd00::1/128");
        assert_eq!(shown("0.0.0.0/0"), "0.0.0.0/0");
    }
}
