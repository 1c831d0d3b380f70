//! The file of users: one a line, `NAME ROLE HASH`, where the hash is argon2 or bcrypt, or the word
//! `certificate` for users with a client certificate instead of a password.

use std::{path::Path, sync::OnceLock};

use anyhow::{Context as _, bail};
use argon2::{
    Argon2, Params,
    password_hash::{PasswordHash, PasswordHasher as _, PasswordVerifier as _, SaltString},
};
use skua_process::watched::read_secret;

use crate::auth::{Role, lines};

/// In place of the hash of a user with a certificate.
const CERTIFICATE: &str = "certificate";
/// Longest password; longer ones are wrong.
pub const LONGEST_PASSWORD: usize = 1024;
/// Most memory of a password check, in KiB.
const MOST_MEMORY: u32 = 256 << 10;

/// The proof of a user's identity.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Proof {
    /// By a password with this argon2 hash.
    Argon2(String),
    /// By a password with this bcrypt hash.
    Bcrypt(String),
    /// By a client's certificate.
    Certificate,
}

/// A line of the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct User {
    /// Unique in the file.
    pub name: String,
    /// What it may do.
    pub role: Role,
    /// Its proof.
    pub proof: Proof,
}

/// All users.
#[derive(Default, Debug)]
pub struct Users(pub Vec<User>);

impl Proof {
    /// From the third word of a line.
    fn parse(text: &str) -> anyhow::Result<Self> {
        if text == CERTIFICATE {
            return Ok(Self::Certificate);
        }
        if text.starts_with("$argon2") {
            // The error does not quote the hash: a log must not have it.
            let Ok(hash) = PasswordHash::new(text) else {
                bail!("the argon2 hash is damaged");
            };
            match Params::try_from(&hash) {
                Ok(params) if params.m_cost() <= MOST_MEMORY => {}
                Ok(_) => bail!(
                    "the argon2 hash needs more than {} MiB of memory",
                    MOST_MEMORY >> 10
                ),
                Err(_) => bail!("the parameters of the argon2 hash are damaged"),
            }
            return Ok(Self::Argon2(text.to_owned()));
        }
        let bcrypt = ["$2a$", "$2b$", "$2x$", "$2y$"];
        if bcrypt.iter().any(|kind| text.starts_with(kind)) && text.len() == 60 {
            return Ok(Self::Bcrypt(text.to_owned()));
        }
        bail!("neither an argon2 nor a bcrypt hash, nor the word {CERTIFICATE}");
    }

    /// Text in the file.
    fn text(&self) -> &str {
        match self {
            Self::Argon2(hash) | Self::Bcrypt(hash) => hash,
            Self::Certificate => CERTIFICATE,
        }
    }

    /// Kind, for people.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Argon2(_) => "argon2",
            Self::Bcrypt(_) => "bcrypt",
            Self::Certificate => CERTIFICATE,
        }
    }

    /// Whether the password is right. Takes tens of milliseconds.
    fn verify(&self, password: &str) -> bool {
        if password.len() > LONGEST_PASSWORD {
            return false;
        }
        match self {
            Self::Argon2(hash) => PasswordHash::new(hash).is_ok_and(|hash| {
                Argon2::default()
                    .verify_password(password.as_bytes(), &hash)
                    .is_ok()
            }),
            Self::Bcrypt(hash) => bcrypt::verify(password, hash).unwrap_or(false),
            Self::Certificate => false,
        }
    }
}

/// Makes an argon2id hash with a new salt.
pub fn hash(password: &str) -> anyhow::Result<Proof> {
    if password.is_empty() || password.len() > LONGEST_PASSWORD {
        bail!("a password has 1 to {LONGEST_PASSWORD} bytes");
    }
    let mut salt = [0; 16];
    getrandom::fill(&mut salt).map_err(|e| anyhow::anyhow!("no random numbers: {e}"))?;
    let salt = SaltString::encode_b64(&salt).map_err(|e| anyhow::anyhow!("{e}"))?;
    let hash = Argon2::default()
        .hash_password(password.as_bytes(), &salt)
        .map_err(|e| anyhow::anyhow!("cannot hash the password: {e}"))?;
    Ok(Proof::Argon2(hash.to_string()))
}

impl Users {
    /// Reads a file.
    pub fn read(file: &Path) -> anyhow::Result<Self> {
        Self::parse(&read_secret(file)?).with_context(|| file.display().to_string())
    }

    fn parse(text: &str) -> anyhow::Result<Self> {
        let mut users = Vec::<User>::new();
        for (place, words) in lines(text) {
            let [name, role, proof] = words[..] else {
                bail!("line {place} is not NAME ROLE HASH");
            };
            let user = || -> anyhow::Result<_> {
                Ok(User {
                    name: crate::auth::checked_name(name)?.to_owned(),
                    role: role.parse()?,
                    proof: Proof::parse(proof)?,
                })
            };
            let user = user().with_context(|| format!("line {place}"))?;
            if users.iter().any(|u| u.name == user.name) {
                bail!("line {place}: \"{name}\" is there twice");
            }
            users.push(user);
        }
        Ok(Self(users))
    }

    /// The file's text.
    pub fn text(&self) -> String {
        let mut text =
            String::from("# Users of the API: NAME ROLE HASH. See `skua user --help`.\n");
        for user in &self.0 {
            let (name, role, proof) = (&user.name, user.role.name(), user.proof.text());
            text += &format!("{name} {role} {proof}\n");
        }
        text
    }

    /// The role of the user with this password. Takes as long for an unknown user, so that the time
    /// does not reveal which users exist.
    pub fn check(&self, name: &str, password: &str) -> Option<Role> {
        static NOBODY: OnceLock<Option<Proof>> = OnceLock::new();
        let user = self.0.iter().find(|user| user.name == name);
        match user {
            Some(user) if user.proof != Proof::Certificate => {
                user.proof.verify(password).then_some(user.role)
            }
            _ => {
                let nobody = NOBODY.get_or_init(|| hash("nobody").ok());
                if let Some(nobody) = nobody {
                    std::hint::black_box(nobody.verify(password));
                }
                None
            }
        }
    }

    /// The role of the user with a certificate of this name.
    pub fn certificate(&self, name: &str) -> Option<Role> {
        let known = |user: &&User| user.proof == Proof::Certificate && user.name == name;
        self.0.iter().find(known).map(|user| user.role)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // "secret", made with other programs.
    const ARGON2: &str = "$argon2id$v=19$m=1024,t=1,p=1$c2FsdHNhbHRzYWx0$";
    const BCRYPT: &str = "$2b$04$";

    #[test]
    fn errors_name_the_fault_without_hashes() {
        for (text, wanted) in [
            ("alice admin", "line 1 is not NAME ROLE HASH"),
            (
                "# x\nalice root certificate",
                "line 2: unknown role \"root\"",
            ),
            ("al:ice read certificate", "name"),
            (
                "a read certificate\na read certificate",
                "line 2: \"a\" is there twice",
            ),
            ("alice read hunter2", "neither an argon2"),
            (
                "alice read $argon2id$v=19$m=9999999,t=1,p=1$c2FsdHNhbHRzYWx0$aGFzaGhhc2hoYXNo",
                "256 MiB",
            ),
        ] {
            let error = format!("{:#}", Users::parse(text).unwrap_err());
            assert!(error.contains(wanted), "{error}");
            assert!(
                !error.contains("hunter2") && !error.contains("aGFza"),
                "{error}"
            );
        }
        for text in [ARGON2, BCRYPT] {
            let error = format!("{:#}", Users::parse(&format!("a read {text}")).unwrap_err());
            assert!(!error.contains("c2FsdHNhbHRzYWx0"), "{error}");
        }
    }

    #[test]
    fn passwords_are_checked() {
        let users = Users(vec![
            User {
                name: "alice".into(),
                role: Role::Admin,
                proof: hash("open sesame").unwrap(),
            },
            User {
                name: "bob".into(),
                role: Role::Read,
                proof: Proof::Bcrypt(bcrypt::hash("geheim", 4).unwrap()),
            },
            User {
                name: "agent".into(),
                role: Role::Read,
                proof: Proof::Certificate,
            },
        ]);
        let users = Users::parse(&users.text()).unwrap();
        assert_eq!(users.check("alice", "open sesame"), Some(Role::Admin));
        assert_eq!(users.check("bob", "geheim"), Some(Role::Read));
        for (name, password) in [
            ("alice", "Open sesame"),
            ("alice", ""),
            ("alice", "geheim"),
            ("nobody", "nobody"),
            ("agent", "certificate"),
            ("agent", ""),
        ] {
            assert_eq!(users.check(name, password), None, "{name}");
        }
        assert_eq!(users.certificate("agent"), Some(Role::Read));
        assert_eq!(users.certificate("alice"), None);
    }
}
