//! Signatures of the captures that an analyzer sends to an agent (Ed25519, RFC 8032).
//!
//! TLS ends where a proxy ends it, and a token goes through that proxy. A signature is made by the analyzer's own
//! key, of which agents have the public half: nothing between the two can add a capture, change one, give one host
//! what was meant for another, or send again what was sent before.
//!
//! The signed bytes are `skua captures 1`, the host, the challenge of the agent's `Hello` and the number of the
//! message, each followed by a line feed, and the text of the message. None of the first three has a line feed.

use std::{io::Read as _, path::Path};

use anyhow::{Context as _, bail, ensure};
use base64::{Engine as _, prelude::BASE64_STANDARD as BASE64};
use ring::signature::{ED25519, Ed25519KeyPair, UnparsedPublicKey};
use rustls::pki_types::{PrivatePkcs8KeyDer, SubjectPublicKeyInfoDer, pem::PemObject as _};
use skua_process::watched::read_secret;
use uuid::Uuid;

use crate::protocol::{Assigned, SignedCaptures};

/// What stands before the key in a SubjectPublicKeyInfo of Ed25519 (RFC 8410, section 4).
const PREFIX: [u8; 12] = [
    0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00,
];

/// Bytes of a file of public keys at most.
const LONGEST: u64 = 1 << 16;

fn signed_bytes(host: &str, challenge: Uuid, number: u64, text: &str) -> Vec<u8> {
    format!("skua captures 1\n{host}\n{challenge}\n{number}\n{text}").into_bytes()
}

/// The analyzer's private key.
pub struct Signer(Ed25519KeyPair);

impl Signer {
    /// Reads a PEM file as `openssl genpkey -algorithm ed25519` makes it.
    ///
    /// # Errors
    ///
    /// It cannot be read, others can read it, or it has no such key.
    pub fn open(file: &Path) -> anyhow::Result<Self> {
        let name = file.display();
        let text = read_secret(file)?;
        let hint = || {
            format!(
                "{name} has no private key of Ed25519; make one: openssl genpkey -algorithm ed25519"
            )
        };
        let der = PrivatePkcs8KeyDer::from_pem_slice(text.as_bytes()).with_context(hint)?;
        let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(der.secret_pkcs8_der());
        pair.map(Self).ok().with_context(hint)
    }

    fn sign(&self, host: &str, challenge: Uuid, number: u64, text: &str) -> String {
        let signature = self.0.sign(&signed_bytes(host, challenge, number, text));
        BASE64.encode(signature.as_ref())
    }
}

/// Captures as one connection of an agent is sent them.
pub struct Sealer {
    host: String,
    challenge: Uuid,
    number: u64,
}

impl Sealer {
    /// For the connection whose `Hello` had this challenge.
    pub fn new(host: &str, challenge: Uuid) -> Self {
        Self {
            host: host.to_owned(),
            challenge,
            number: 0,
        }
    }

    /// The next message; without a signer it has no signature.
    ///
    /// # Errors
    ///
    /// The captures have no JSON form, which none is known to lack.
    pub fn seal(
        &mut self,
        signer: Option<&Signer>,
        captures: &[Assigned],
    ) -> anyhow::Result<SignedCaptures> {
        self.number += 1;
        let text = serde_json::to_string(captures)?;
        let signature = signer.map(|s| s.sign(&self.host, self.challenge, self.number, &text));
        Ok(SignedCaptures {
            number: self.number,
            text,
            signature,
        })
    }
}

/// Public keys of analyzers, any of which may have signed.
#[derive(Clone, Debug)]
pub struct TrustedKeys(Vec<[u8; 32]>);

impl TrustedKeys {
    /// Reads a PEM file of one or several keys, as `openssl pkey -pubout` makes them.
    ///
    /// # Errors
    ///
    /// It cannot be read, has another kind of key, or none.
    pub fn open(file: &Path) -> anyhow::Result<Self> {
        let name = file.display();
        let mut text = Vec::new();
        // Bounded as it is read: a device has no length.
        std::fs::File::open(file)
            .and_then(|opened| opened.take(LONGEST + 1).read_to_end(&mut text))
            .with_context(|| format!("cannot read {name}"))?;
        ensure!(
            text.len() as u64 <= LONGEST,
            "{name} has more than {LONGEST} bytes"
        );
        let mut keys = Vec::new();
        for der in SubjectPublicKeyInfoDer::pem_slice_iter(&text) {
            let der = der.with_context(|| format!("{name} is no PEM file"))?;
            let key = der
                .strip_prefix(&PREFIX)
                .and_then(|key| key.try_into().ok());
            let key = key.with_context(|| format!("{name} has a key that is not of Ed25519"))?;
            keys.push(key);
        }
        if keys.is_empty() {
            bail!(
                "no public key in {name}; the analyzer's is written by: openssl pkey -pubout -in KEY"
            );
        }
        Ok(Self(keys))
    }
}

/// Reads what the analyzer sends over one connection.
pub struct Unsealer<'a> {
    keys: Option<&'a TrustedKeys>,
    host: &'a str,
    challenge: Uuid,
    number: u64,
}

impl<'a> Unsealer<'a> {
    /// For the connection whose `Hello` has this challenge; without keys signatures are not looked at.
    pub fn new(keys: Option<&'a TrustedKeys>, host: &'a str, challenge: Uuid) -> Self {
        Self {
            keys,
            host,
            challenge,
            number: 0,
        }
    }

    /// The captures of a message.
    ///
    /// # Errors
    ///
    /// It is not signed by one of the keys for this host and connection, is not newer than the one before, or
    /// cannot be read.
    pub fn open(&mut self, sealed: &SignedCaptures) -> anyhow::Result<Vec<Assigned>> {
        if let Some(TrustedKeys(keys)) = self.keys {
            let Some(signature) = &sealed.signature else {
                bail!(
                    "the analyzer's captures are not signed, and this agent wants that (--analyzer-key); \
                     give the analyzer its key (fleet.signing_key)"
                );
            };
            let signature = BASE64
                .decode(signature)
                .context("the signature of captures is no base64")?;
            let bytes = signed_bytes(self.host, self.challenge, sealed.number, &sealed.text);
            let by = |key: &[u8; 32]| {
                let key = UnparsedPublicKey::new(&ED25519, key);
                key.verify(&bytes, &signature).is_ok()
            };
            if !keys.iter().any(by) {
                bail!(
                    "the analyzer's captures are not signed for {} by a key of --analyzer-key",
                    self.host
                );
            }
            if sealed.number <= self.number {
                bail!("captures that were sent before came again");
            }
            self.number = sealed.number;
        }
        serde_json::from_str(&sealed.text).context("captures are not understood")
    }
}

#[cfg(test)]
mod tests {
    use ring::{rand::SystemRandom, signature::KeyPair as _};

    use super::*;
    use skua_testkit::scratch::scratch;
    use skua_testkit::scratch::secret;

    fn pem(label: &str, der: &[u8]) -> String {
        let text = BASE64.encode(der);
        format!("-----BEGIN {label}-----\n{text}\n-----END {label}-----\n")
    }

    /// A signer and the text of its public key.
    fn signer(name: &str) -> (Signer, String) {
        let pkcs8 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        let file = secret(name, &pem("PRIVATE KEY", pkcs8.as_ref()));
        let signer = Signer::open(&file).unwrap();
        let public = [&PREFIX[..], signer.0.public_key().as_ref()].concat();
        (signer, pem("PUBLIC KEY", &public))
    }

    fn trusted(text: &str) -> anyhow::Result<TrustedKeys> {
        let file = scratch("trusted");
        std::fs::write(&file, text).unwrap();
        TrustedKeys::open(&file)
    }

    #[test]
    fn captures_are_taken_only_as_they_were_signed_for_this_host_and_connection() {
        let (ours, public) = signer("ours");
        let (theirs, _) = signer("theirs");
        let keys = trusted(&public).unwrap();
        let challenge = Uuid::new_v4();
        let open =
            |sealed: &SignedCaptures| Unsealer::new(Some(&keys), "web1", challenge).open(sealed);
        let good = Sealer::new("web1", challenge)
            .seal(Some(&ours), &[])
            .unwrap();
        assert!(open(&good).is_ok());
        for (name, host, challenge, by) in [
            ("of another key", "web1", challenge, Some(&theirs)),
            ("for another host", "web2", challenge, Some(&ours)),
            ("of another connection", "web1", Uuid::new_v4(), Some(&ours)),
            ("not signed", "web1", challenge, None),
        ] {
            let bad = Sealer::new(host, challenge).seal(by, &[]).unwrap();
            assert!(open(&bad).is_err(), "{name}");
        }
        let signature = BASE64.decode(good.signature.as_ref().unwrap());
        for bit in 0..64 * 8 {
            let mut bytes = signature.clone().unwrap();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let signature = Some(BASE64.encode(&bytes));
            let bad = SignedCaptures {
                signature,
                ..good.clone()
            };
            assert!(open(&bad).is_err(), "bit {bit}");
        }
        let text = "[ ]".into();
        assert!(
            open(&SignedCaptures {
                text,
                ..good.clone()
            })
            .is_err()
        );
        let number = 2;
        assert!(
            open(&SignedCaptures {
                number,
                ..good.clone()
            })
            .is_err()
        );
        let signature = Some(good.signature.as_ref().unwrap()[..84].to_owned());
        assert!(open(&SignedCaptures { signature, ..good }).is_err());
    }

    #[test]
    fn captures_that_were_sent_before_do_not_count_again() {
        let (ours, public) = signer("ours");
        let keys = trusted(&public).unwrap();
        let challenge = Uuid::new_v4();
        let mut sealer = Sealer::new("web1", challenge);
        let [first, second] = [(); 2].map(|()| sealer.seal(Some(&ours), &[]).unwrap());
        let mut unsealer = Unsealer::new(Some(&keys), "web1", challenge);
        assert!(unsealer.open(&first).is_ok());
        assert!(unsealer.open(&second).is_ok());
        assert!(unsealer.open(&first).is_err());
        assert!(unsealer.open(&second).is_err());
    }

    #[test]
    fn an_agent_without_keys_takes_signed_captures_and_others() {
        let (ours, _) = signer("ours");
        for by in [Some(&ours), None] {
            let sealed = Sealer::new("web1", Uuid::nil()).seal(by, &[]).unwrap();
            assert!(
                Unsealer::new(None, "web1", Uuid::nil())
                    .open(&sealed)
                    .is_ok()
            );
        }
    }

    #[test]
    fn one_of_several_keys_may_have_signed() {
        let (ours, public) = signer("ours");
        let (_, other) = signer("other");
        let keys = trusted(&format!("{other}{public}")).unwrap();
        let sealed = Sealer::new("web1", Uuid::nil())
            .seal(Some(&ours), &[])
            .unwrap();
        let mut unsealer = Unsealer::new(Some(&keys), "web1", Uuid::nil());
        assert!(unsealer.open(&sealed).is_ok());
    }

    #[test]
    fn files_without_a_key_are_refused_by_name() {
        let (_, public) = signer("ours");
        for text in [
            "",
            "x",
            &pem("PUBLIC KEY", &[0x30; 44]),
            &public.replace("PUBLIC", "PRIVATE"),
        ] {
            assert!(trusted(text).is_err(), "{text}");
            assert!(Signer::open(&secret("none", text)).is_err(), "{text}");
        }
        let endless = TrustedKeys::open(Path::new("/dev/zero"));
        assert!(endless.unwrap_err().to_string().contains("more than"));
    }
}
