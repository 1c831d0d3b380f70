//! The file of tokens: one a line, `NAME ROLE END HASH`, where the end is a time or `-` and the hash
//! is SHA-256. A token has 256 random bits, so that a fast hash suffices.

use std::{path::Path, time::SystemTime};

use anyhow::{Context as _, bail};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use sha2::{Digest as _, Sha256};
use skua_process::watched::read_secret;
use subtle::ConstantTimeEq as _;

use crate::auth::{Role, lines};

/// Prefix of each token, so that secret scanners find a published one.
const PREFIX: &str = "skua_";
/// Begins each hash.
const SHA256: &str = "sha256:";

/// SHA-256 of a token.
pub type TokenHash = [u8; 32];

/// A line of the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Token {
    /// Unique in the file.
    pub name: String,
    /// What its holder may do.
    pub role: Role,
    /// When it ends.
    pub end: Option<SystemTime>,
    /// Hash of the token.
    pub hash: TokenHash,
}

/// All tokens.
#[derive(Default, Debug)]
pub struct Tokens(pub Vec<Token>);

/// The hash to store for a token.
pub fn hash(token: &str) -> TokenHash {
    Sha256::digest(token).into()
}

/// A new token.
pub fn new_token() -> anyhow::Result<String> {
    let mut bits = [0; 32];
    getrandom::fill(&mut bits).map_err(|e| anyhow::anyhow!("no random numbers: {e}"))?;
    Ok(format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bits)))
}

fn hex(hash: &TokenHash) -> String {
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn parse_hash(text: &str) -> anyhow::Result<TokenHash> {
    let digits = text.strip_prefix(SHA256).unwrap_or_default();
    let mut hash = [0; 32];
    if digits.len() != 64 || !digits.is_ascii() {
        bail!("the hash is not {SHA256} and 64 hexadecimal digits");
    }
    for (byte, pair) in hash.iter_mut().zip(digits.as_bytes().chunks(2)) {
        let pair = std::str::from_utf8(pair)?;
        *byte = u8::from_str_radix(pair, 16)
            .context("the hash has characters other than hexadecimal digits")?;
    }
    Ok(hash)
}

impl Token {
    /// Whether it is over.
    pub fn is_over(&self, now: SystemTime) -> bool {
        self.end.is_some_and(|end| end <= now)
    }

    /// Its end in the file's format.
    pub fn end_text(&self) -> String {
        match self.end {
            None => "-".into(),
            Some(end) => humantime::format_rfc3339_seconds(end).to_string(),
        }
    }
}

impl Tokens {
    /// Reads a file.
    pub fn read(file: &Path) -> anyhow::Result<Self> {
        Self::parse(&read_secret(file)?).with_context(|| file.display().to_string())
    }

    fn parse(text: &str) -> anyhow::Result<Self> {
        let mut tokens = Vec::<Token>::new();
        for (place, words) in lines(text) {
            let [name, role, end, kept] = words[..] else {
                bail!("line {place} is not NAME ROLE END HASH");
            };
            let token = || -> anyhow::Result<_> {
                Ok(Token {
                    name: crate::auth::checked_name(name)?.to_owned(),
                    role: role.parse()?,
                    end: match end {
                        "-" => None,
                        time => Some(humantime::parse_rfc3339(time).with_context(|| {
                            format!("\"{time}\" is not a time like 2027-01-31T00:00:00Z")
                        })?),
                    },
                    hash: parse_hash(kept)?,
                })
            };
            let token = token().with_context(|| format!("line {place}"))?;
            if tokens.iter().any(|t| t.name == token.name) {
                bail!("line {place}: \"{name}\" is there twice");
            }
            tokens.push(token);
        }
        Ok(Self(tokens))
    }

    /// The file's text.
    pub fn text(&self) -> String {
        let mut text =
            String::from("# Tokens of the API: NAME ROLE END HASH. See `skua token --help`.\n");
        for token in &self.0 {
            let (name, role, end) = (&token.name, token.role.name(), token.end_text());
            text += &format!("{name} {role} {end} {SHA256}{}\n", hex(&token.hash));
        }
        text
    }

    /// The valid token with this hash, in constant time.
    pub fn find(&self, wanted: &TokenHash, now: SystemTime) -> Option<&Token> {
        let mut found = None;
        for token in &self.0 {
            if bool::from(token.hash.ct_eq(wanted)) {
                found = Some(token);
            }
        }
        found.filter(|token| !token.is_over(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, UNIX_EPOCH};

    #[test]
    fn tokens_are_found_until_they_end() {
        let now = UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        let [a, b] = [new_token().unwrap(), new_token().unwrap()];
        assert!(a != b && a.len() == PREFIX.len() + 43, "{a}");
        let token = |name: &str, text: &str, end| Token {
            name: name.into(),
            role: Role::Read,
            end,
            hash: hash(text),
        };
        let end = now + Duration::from_secs(10);
        let text = Tokens(vec![token("a", &a, None), token("b", &b, Some(end))]).text();
        assert!(!text.contains(&a) && !text.contains(&b));
        let tokens = Tokens::parse(&text).unwrap();
        let name = |text: &str, now| tokens.find(&hash(text), now).map(|t| t.name.as_str());
        assert_eq!(name(&a, now), Some("a"));
        assert_eq!(name(&b, now), Some("b"));
        assert_eq!(name(&b, end), None);
        assert_eq!(name(&a[1..], now), None);
        assert_eq!(name("", now), None);
    }

    #[test]
    fn damaged_lines_are_refused() {
        let digits = "0".repeat(64);
        for (text, wanted) in [
            ("a read -".into(), "line 1 is not"),
            (format!("a read - {digits}"), "line 1: the hash"),
            (format!("a read - sha256:{}", "0".repeat(63)), "the hash"),
            (format!("a read - sha256:{}", "g".repeat(64)), "hexadecimal"),
            (format!("a read - sha256:{}é", "0".repeat(62)), "the hash"),
            (
                format!("a read soon sha256:{digits}"),
                "\"soon\" is not a time",
            ),
            (format!("a write - sha256:{digits}"), "unknown role"),
        ] {
            let error = format!("{:#}", Tokens::parse(&text).unwrap_err());
            assert!(error.contains(wanted), "{error}");
        }
    }
}
