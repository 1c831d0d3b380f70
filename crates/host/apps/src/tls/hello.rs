//! The ClientHello, and its fingerprint JA4 (FoxIO; the one of the family that is under the BSD licence).

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

const SERVER_NAME: u16 = 0;
const SIGNATURE_ALGORITHMS: u16 = 13;
const ALPN: u16 = 16;
const SUPPORTED_VERSIONS: u16 = 43;
const ENCRYPTED_CLIENT_HELLO: u16 = 0xfe0d;
/// Bytes of a name (RFC 6066: that of DNS).
const MOST_NAME: usize = 255;
/// Protocols of ALPN that are kept.
const MOST_PROTOCOLS: usize = 16;

/// What a client says first.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ClientHello {
    /// Name of the server that it wants (SNI), printable; empty for none.
    pub server_name: String,
    /// Protocols that it offers (ALPN), printable.
    pub protocols: Vec<String>,
    /// The highest version that it offers, like 0x0304 for TLS 1.3.
    pub version: u16,
    /// It has an encrypted ClientHello inside: the name is that of who hides the real one (or it only looks so, GREASE).
    pub encrypted: bool,
    /// Fingerprint JA4.
    pub ja4: String,
}

/// Values without a meaning, sent so that servers learn to ignore what they do not know (RFC 8701).
fn is_grease(value: u16) -> bool {
    value & 0x0f0f == 0x0a0a && value >> 8 == value & 0xff
}

/// A position in bytes.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (now, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(now)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|byte| byte[0])
    }

    fn word(&mut self) -> Option<u16> {
        self.take(2).map(|b| u16::from_be_bytes([b[0], b[1]]))
    }

    /// What a length of one byte is before.
    fn short(&mut self) -> Option<&'a [u8]> {
        let length = self.byte()?;
        self.take(length.into())
    }

    /// What a length of two bytes is before.
    fn long(&mut self) -> Option<&'a [u8]> {
        let length = self.word()?;
        self.take(length.into())
    }
}

fn words(bytes: &[u8]) -> Vec<u16> {
    let words = bytes
        .chunks_exact(2)
        .map(|b| u16::from_be_bytes([b[0], b[1]]));
    words.filter(|word| !is_grease(*word)).collect()
}

impl ClientHello {
    /// Reads the body of the message; none when it is malformed.
    pub fn read(body: &[u8]) -> Option<Self> {
        let mut reader = Reader(body);
        let legacy = reader.word()?;
        reader.take(32)?;
        reader.short()?;
        let ciphers = words(reader.long()?);
        reader.short()?;
        // Before TLS 1.2 there may be no extensions.
        let mut extensions = Reader(match reader.0.is_empty() {
            true => &[],
            false => reader.long()?,
        });
        let mut hello = Self {
            version: legacy,
            ..Self::default()
        };
        let (mut kinds, mut signatures) = (Vec::new(), Vec::new());
        let (mut first_protocol, mut named): (&[u8], bool) = (&[], false);
        while !extensions.0.is_empty() {
            let kind = extensions.word()?;
            let data = extensions.long()?;
            if is_grease(kind) {
                continue;
            }
            kinds.push(kind);
            let mut reader = Reader(data);
            match kind {
                SERVER_NAME => {
                    named = true;
                    hello.server_name = server_name(&mut reader).unwrap_or_default();
                }
                ALPN => {
                    let mut list = Reader(reader.long()?);
                    while !list.0.is_empty() {
                        let protocol = list.short()?;
                        if hello.protocols.is_empty() {
                            first_protocol = protocol;
                        }
                        if hello.protocols.len() < MOST_PROTOCOLS {
                            hello.protocols.push(printable(protocol));
                        }
                    }
                }
                SUPPORTED_VERSIONS => {
                    let versions = words(reader.short()?);
                    hello.version = versions.into_iter().max().unwrap_or(legacy);
                }
                SIGNATURE_ALGORITHMS => signatures = words(reader.long()?),
                ENCRYPTED_CLIENT_HELLO => hello.encrypted = true,
                _ => {}
            }
        }
        hello.ja4 = ja4(&hello, named, first_protocol, ciphers, kinds, &signatures);
        Some(hello)
    }

    /// Name of the version, like `TLS 1.3`.
    pub fn version_name(&self) -> &'static str {
        match self.version {
            0x0304 => "TLS 1.3",
            0x0303 => "TLS 1.2",
            0x0302 => "TLS 1.1",
            0x0301 => "TLS 1.0",
            0x0300 => "SSL 3.0",
            _ => "unknown",
        }
    }
}

fn server_name(reader: &mut Reader<'_>) -> Option<String> {
    let mut list = Reader(reader.long()?);
    // Host names are the only type there is.
    let (0, name) = (list.byte()?, list.long()?) else {
        return None;
    };
    (name.len() <= MOST_NAME).then(|| printable(name))
}

/// Text of bytes, those that are not printable escaped.
fn printable(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

fn ja4(
    hello: &ClientHello,
    named: bool,
    protocol: &[u8],
    mut ciphers: Vec<u16>,
    mut kinds: Vec<u16>,
    signatures: &[u16],
) -> String {
    let version = match hello.version {
        0x0304 => "13",
        0x0303 => "12",
        0x0302 => "11",
        0x0301 => "10",
        0x0300 => "s3",
        0x0002 => "s2",
        _ => "00",
    };
    let alpn = match (protocol.first(), protocol.last()) {
        (Some(first), Some(last))
            if first.is_ascii_alphanumeric() && last.is_ascii_alphanumeric() =>
        {
            format!("{}{}", char::from(*first), char::from(*last))
        }
        (Some(first), Some(last)) => format!("{:x}{:x}", first >> 4, last & 0xf),
        _ => "00".to_owned(),
    };
    let (number, extensions) = (ciphers.len().min(99), kinds.len().min(99));
    let sni = if named { 'd' } else { 'i' };
    ciphers.sort_unstable();
    kinds.sort_unstable();
    kinds.retain(|kind| ![SERVER_NAME, ALPN].contains(kind));
    let mut list = joined(&kinds);
    if !signatures.is_empty() {
        list.push('_');
        list += &joined(signatures);
    }
    let of_ciphers = digest(&joined(&ciphers), ciphers.is_empty());
    let of_extensions = digest(&list, list.is_empty());
    format!("t{version}{sni}{number:02}{extensions:02}{alpn}_{of_ciphers}_{of_extensions}")
}

fn joined(values: &[u16]) -> String {
    let mut text = String::new();
    for (i, value) in values.iter().enumerate() {
        let comma = if i == 0 { "" } else { "," };
        // Writing to a string cannot fail.
        let _ = write!(text, "{comma}{value:04x}");
    }
    text
}

/// The first twelve digits of the SHA-256 of a list, zeros of an empty one.
fn digest(list: &str, empty: bool) -> String {
    if empty {
        return "0".repeat(12);
    }
    let mut text = String::new();
    for byte in Sha256::digest(list.as_bytes()).iter().take(6) {
        let _ = write!(text, "{byte:02x}");
    }
    text
}
