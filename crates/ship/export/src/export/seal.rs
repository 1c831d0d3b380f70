//! Seals of datagrams: who knows a key has written this one, lately (`docs/wire.md`, 32473:8).
//!
//! A seal is the last sample of a datagram, which others step over. Its code (HMAC-SHA-256, RFC 2104) is of all bytes
//! before it.

use std::{
    net::IpAddr,
    path::Path,
    sync::{Arc, LazyLock},
};

use anyhow::{Context as _, bail};
use ring::hmac;
use skua_process::watched::{Watched, read_secret};
use skua_wire::sflow::{
    CountersHead, DataSource, Header, Writer,
    own::{SEAL, SEAL_CODE, SEAL_NAME, SEAL_SAMPLE},
};

/// Bytes of a secret at least: 128 bits as hexadecimal digits.
const SECRET: usize = 32;
/// Clocks may differ by so much: what is older, or comes from the future, may have been sent by somebody else before.
const OLDEST_NS: u64 = 300_000_000_000;
/// Bytes that a seal adds to a datagram.
pub const LENGTH: usize = SEAL_SAMPLE;

/// The name of a key, filled with zeros.
pub type Name = [u8; SEAL_NAME];

/// Keys by name. What is sent is sealed with the first.
pub struct Keys(Vec<(Name, hmac::Key)>);

/// Keys of a file, which is read again when it changes.
pub type KeyFile = Arc<Watched<Keys>>;

/// Why a datagram is not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// There is no seal.
    Missing,
    /// Its key has no such name here.
    UnknownKey,
    /// It is not of this datagram, or not by this key.
    Wrong,
    /// It is too old, or of the future.
    Old,
}

impl Refusal {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 4] = [Self::Missing, Self::UnknownKey, Self::Wrong, Self::Old];

    /// Name in counters.
    pub fn name(self) -> &'static str {
        match self {
            Self::Missing => "seal_missing",
            Self::UnknownKey => "seal_key_unknown",
            Self::Wrong => "seal_wrong",
            Self::Old => "seal_old",
        }
    }
}

/// Opens a file of keys.
///
/// # Errors
///
/// It cannot be read, others can read it, or a line is no key.
pub fn open(what: &'static str, file: &Path) -> anyhow::Result<KeyFile> {
    let path = file.to_owned();
    let load = move || Keys::parse(&read_secret(&path)?).context(path.display().to_string());
    Ok(Arc::new(Watched::new(what, vec![file.to_owned()], load)?))
}

impl Keys {
    /// Reads lines of a name and a secret.
    fn parse(text: &str) -> anyhow::Result<Self> {
        let mut keys: Vec<(Name, _)> = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            // Not what is in the line: it may be a secret.
            let [name, secret] = line.split_whitespace().collect::<Vec<_>>()[..] else {
                bail!(
                    "line {number}: a name and a secret, please, like `fleet` and what `openssl rand -hex 32` says"
                );
            };
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
            if name.len() > SEAL_NAME || !name.bytes().all(plain) {
                bail!(
                    "line {number}: names have at most {SEAL_NAME} letters, digits, `.`, `_` and `-`"
                );
            }
            if secret.len() < SECRET {
                bail!(
                    "line {number}: a secret has {SECRET} characters at least, like what `openssl rand -hex 32` says"
                );
            }
            let mut filled = Name::default();
            for (to, from) in filled.iter_mut().zip(name.bytes()) {
                *to = from;
            }
            if keys.iter().any(|(other, _)| *other == filled) {
                bail!("line {number}: there is a key of this name before");
            }
            keys.push((filled, hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes())));
        }
        if keys.is_empty() {
            bail!("there is no key: a line with a name and a secret, please");
        }
        Ok(Self(keys))
    }

    /// Seals a datagram of sFlow with the first key.
    pub fn seal(&self, datagram: &mut Vec<u8>, now_ns: u64) {
        if let Some(key) = self.0.first() {
            seal(datagram, key, now_ns);
        }
    }

    /// Seals an answer with the key that the question was sealed with.
    pub fn seal_with(&self, name: Name, datagram: &mut Vec<u8>, now_ns: u64) {
        if let Some(key) = self.0.iter().find(|(other, _)| *other == name) {
            seal(datagram, key, now_ns);
        }
    }

    /// The name of the key that a datagram was sealed with.
    pub fn check(&self, datagram: &[u8], now_ns: u64) -> Result<Name, Refusal> {
        let parts = datagram
            .split_last_chunk::<SEAL_CODE>()
            .and_then(|(covered, code)| Some((covered, code, covered.split_last_chunk()?)));
        let Some((covered, code, (before, head))) = parts else {
            return Err(Refusal::Missing);
        };
        let head: &[u8; LENGTH - SEAL_CODE] = head;
        let (fixed, rest) = head.split_at(FIXED);
        if fixed != &**BEGIN || before.is_empty() {
            return Err(Refusal::Missing);
        }
        let parts = rest.split_first_chunk::<8>();
        let parts = parts.and_then(|(time, rest)| Some((time, rest.first_chunk()?)));
        let Some((time, name)) = parts else {
            return Err(Refusal::Missing);
        };
        let key = self.0.iter().find(|(other, _)| other == name);
        let (name, key) = key.ok_or(Refusal::UnknownKey)?;
        hmac::verify(key, covered, code).map_err(|_| Refusal::Wrong)?;
        match u64::from_be_bytes(*time).abs_diff(now_ns) {
            0..=OLDEST_NS => Ok(*name),
            _ => Err(Refusal::Old),
        }
    }
}

/// Bytes of a seal before its time: of the sample and the record around it, and the version.
const FIXED: usize = LENGTH - SEAL_CODE - SEAL_NAME - 8;

/// What each seal begins with.
static BEGIN: LazyLock<Vec<u8>> = LazyLock::new(|| {
    // Behind a header, of which all but the last is taken away.
    let header = Header {
        agent: IpAddr::from([0; 4]),
        sub_agent: 0,
        sequence: 0,
        uptime_ms: 0,
    };
    let head = CountersHead {
        sequence: 0,
        source: DataSource { class: 3, index: 0 },
    };
    let mut body = vec![1, 0, 0, 0];
    body.resize(4 + 8 + SEAL_NAME + SEAL_CODE, 0);
    let mut datagram = Vec::new();
    Writer::new(&mut datagram, &header).counters_sample(&head, |out| out.other(SEAL, &body));
    let begin = datagram.len() - LENGTH;
    datagram
        .get(begin..begin + FIXED)
        .unwrap_or_default()
        .to_vec()
});

fn seal(datagram: &mut Vec<u8>, (name, key): &(Name, hmac::Key), now_ns: u64) {
    datagram.extend_from_slice(&BEGIN);
    datagram.extend_from_slice(&now_ns.to_be_bytes());
    datagram.extend_from_slice(name);
    datagram.extend_from_slice(&[0; SEAL_CODE]);
    // One sample more: the last word of the header, which an agent's address of IPv6 makes longer.
    let at = match datagram.get(7) {
        Some(2) => 36,
        _ => 24,
    };
    if let Some(count) = datagram.get_mut(at..).and_then(<[u8]>::first_chunk_mut) {
        *count = u32::from_be_bytes(*count).wrapping_add(1).to_be_bytes();
    }
    let covered = datagram.len() - SEAL_CODE;
    if let Some((covered, code)) = datagram.split_at_mut_checked(covered) {
        code.copy_from_slice(hmac::sign(key, covered).as_ref());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skua_wire::sflow::{self, Counters, Hello, Sample};

    const NOW: u64 = 1_800_000_000_000_000_000;
    const SECRETS: [&str; 2] = [
        "00112233445566778899aabbccddeeff",
        "ffeeddccbbaa99887766554433221100",
    ];

    fn keys(text: &str) -> Keys {
        Keys::parse(text).unwrap()
    }

    fn datagram(agent: IpAddr) -> Vec<u8> {
        let header = Header {
            agent,
            sub_agent: 1,
            sequence: 7,
            uptime_ms: 9,
        };
        let mut out = Vec::new();
        skua_collect::greet(&mut out, &header, &Hello::default());
        out
    }

    #[test]
    fn a_sealed_datagram_is_taken_by_who_has_the_key_and_read_by_all() {
        let (one, other) = (
            keys(&format!("fleet {}", SECRETS[0])),
            keys(&format!(
                "# new\nnext {}\nfleet {}\n",
                SECRETS[1], SECRETS[0]
            )),
        );
        for agent in [IpAddr::from([10, 0, 0, 1]), "fd00::1".parse().unwrap()] {
            let plain = datagram(agent);
            let mut sealed = plain.clone();
            one.seal(&mut sealed, NOW);
            assert_eq!(sealed.len(), plain.len() + LENGTH);
            for keys in [&one, &other] {
                assert_eq!(keys.check(&sealed, NOW + 1), Ok(*b"fleet\0\0\0"));
            }
            let read = sflow::decode(&sealed).unwrap();
            assert_eq!((read.header.agent, read.count), (agent, 2));
            let last = read.samples().last().unwrap().unwrap();
            let Sample::Counters(last) = last else {
                panic!("{last:?}")
            };
            let records: Vec<_> = last.records().collect();
            assert_eq!(records, [Ok(Counters::Seal)]);
            // With the key that it was asked with.
            let mut answer = plain.clone();
            other.seal_with(*b"fleet\0\0\0", &mut answer, NOW);
            assert!(one.check(&answer, NOW).is_ok());
            let mut next = plain;
            other.seal(&mut next, NOW);
            assert_eq!(one.check(&next, NOW), Err(Refusal::UnknownKey));
        }
    }

    #[test]
    fn what_was_changed_or_is_old_is_refused() {
        let keys_of = |secret| keys(&format!("fleet {secret}"));
        let (one, false_one) = (keys_of(SECRETS[0]), keys_of(SECRETS[1]));
        let plain = datagram([10, 0, 0, 1].into());
        let mut sealed = plain.clone();
        one.seal(&mut sealed, NOW);
        assert_eq!(false_one.check(&sealed, NOW), Err(Refusal::Wrong));
        let seconds = |s: u64| s * 1_000_000_000;
        assert!(one.check(&sealed, NOW + seconds(299)).is_ok());
        assert!(one.check(&sealed, NOW - seconds(299)).is_ok());
        assert_eq!(one.check(&sealed, NOW + seconds(301)), Err(Refusal::Old));
        assert_eq!(one.check(&sealed, NOW - seconds(301)), Err(Refusal::Old));
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 0x10;
            assert!(one.check(&changed, NOW).is_err(), "{at}");
        }
        for length in 0..sealed.len() {
            assert!(one.check(&sealed[..length], NOW).is_err(), "{length}");
        }
        assert_eq!(one.check(&plain, NOW), Err(Refusal::Missing));
        // A seal is of what it is behind.
        let alone = &sealed[plain.len()..];
        assert!(one.check(alone, NOW).is_err());
    }

    #[test]
    fn lines_that_are_no_keys_are_named_without_what_is_in_them() {
        let error = |text: &str| Keys::parse(text).err().unwrap().to_string();
        assert!(error("").contains("there is no key"));
        for (text, says) in [
            ("secret", "line 1: a name and a secret"),
            ("a b c", "line 1: a name and a secret"),
            (
                "\nmuch-too-long 00112233445566778899aabbccddeeff",
                "line 2: names",
            ),
            ("ä 00112233445566778899aabbccddeeff", "line 1: names"),
            ("a 0011", "line 1: a secret has 32 characters"),
        ] {
            let error = error(text);
            assert!(error.starts_with(says), "{error}");
            assert!(!error.contains("0011"), "{error}");
        }
        let twice = format!("a {0}\na {0}", SECRETS[0]);
        assert!(error(&twice).contains("line 2"));
    }
}
