//! Credentials proven before: tokens of sessions, and passwords checked a short time ago.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use sha2::{Digest as _, Sha256};

use crate::auth::{
    Role,
    tokens::{self, TokenHash},
    users::Users,
};

/// How long a login is valid.
pub const SESSION: Duration = Duration::from_secs(12 * 3600);
/// Logins at a time.
const SESSIONS: usize = 1024;
/// How long a code is valid; it can be used once.
pub const CODE: Duration = Duration::from_secs(15 * 60);
/// Codes at a time.
const CODES: usize = 64;
/// How long a checked password is remembered.
const PROVEN: Duration = Duration::from_secs(60);
/// Maximum number of remembered passwords.
const PASSWORDS: usize = 256;

/// Prefix of the names of callers with a token. No user's name has a space.
pub const TOKEN: &str = "token ";

/// Identity of a caller.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// Name of the user or token.
    pub name: Arc<str>,
    /// What it may do.
    pub role: Role,
}

impl Identity {
    /// The only host that an agent may report: the host in its name.
    pub fn only_host(&self) -> Option<&str> {
        let named = self.name.strip_prefix(TOKEN).unwrap_or(&self.name);
        (self.role == Role::Agent).then_some(named)
    }
}

struct Entry {
    identity: Identity,
    end: Instant,
    /// The token that it was begun with: it ends with that.
    token: Option<TokenHash>,
    /// The users when it was checked: after a change it must be proven again.
    users: Arc<Users>,
}

/// A bounded table of hashes of secrets.
struct Table {
    entries: HashMap<TokenHash, Entry>,
    most: usize,
}

impl Table {
    fn insert(&mut self, hash: TokenHash, entry: Entry, now: Instant) {
        if self.entries.len() >= self.most {
            self.entries.retain(|_, e| e.end > now);
        }
        if self.entries.len() >= self.most {
            let first = self
                .entries
                .iter()
                .min_by_key(|(_, e)| e.end)
                .map(|(h, _)| *h);
            first.map(|hash| self.entries.remove(&hash));
        }
        self.entries.insert(hash, entry);
    }

    fn find(&self, hash: &TokenHash, users: &Arc<Users>, now: Instant) -> Option<&Entry> {
        // The slot depends on the hash only, which an attacker cannot choose.
        let entry = self.entries.get(hash)?;
        let good = entry.end > now && Arc::ptr_eq(&entry.users, users);
        good.then_some(entry)
    }
}

/// Proven credentials, as hashes.
pub struct VerifiedCredentials {
    /// Makes hashes of passwords worthless outside of this process.
    secret: [u8; 32],
    sessions: Table,
    codes: Table,
    passwords: Table,
}

impl VerifiedCredentials {
    /// An empty table.
    pub fn new() -> anyhow::Result<Self> {
        let mut secret = [0; 32];
        getrandom::fill(&mut secret).map_err(|e| anyhow::anyhow!("no random numbers: {e}"))?;
        let table = |most| Table {
            entries: HashMap::new(),
            most,
        };
        Ok(Self {
            secret,
            sessions: table(SESSIONS),
            codes: table(CODES),
            passwords: table(PASSWORDS),
        })
    }

    fn password_hash(&self, name: &str, password: &str) -> TokenHash {
        let mut hash = Sha256::new();
        hash.update(self.secret);
        // No name has a line break: no two pairs are the same text.
        hash.update(name);
        hash.update("\n");
        hash.update(password);
        hash.finalize().into()
    }

    /// The session of this token, and the token that it began with.
    pub fn session(
        &self,
        hash: &TokenHash,
        users: &Arc<Users>,
        now: Instant,
    ) -> Option<(Identity, Option<TokenHash>)> {
        let entry = self.sessions.find(hash, users, now)?;
        Some((entry.identity.clone(), entry.token))
    }

    /// Begins a session; its token.
    pub fn log_in(
        &mut self,
        identity: Identity,
        with: Option<TokenHash>,
        users: Arc<Users>,
        now: Instant,
    ) -> anyhow::Result<String> {
        let token = tokens::new_token()?;
        let end = now + SESSION;
        let entry = Entry {
            identity,
            end,
            token: with,
            users,
        };
        self.sessions.insert(tokens::hash(&token), entry, now);
        Ok(token)
    }

    /// A code for a login.
    pub fn new_code(
        &mut self,
        identity: Identity,
        users: Arc<Users>,
        now: Instant,
    ) -> anyhow::Result<String> {
        let code = tokens::new_token()?;
        let end = now + CODE;
        let entry = Entry {
            identity,
            end,
            token: None,
            users,
        };
        self.codes.insert(tokens::hash(&code), entry, now);
        Ok(code)
    }

    /// The identity of this code, which is then invalid.
    pub fn redeem_code(
        &mut self,
        hash: &TokenHash,
        users: &Arc<Users>,
        now: Instant,
    ) -> Option<Identity> {
        let found = self
            .codes
            .find(hash, users, now)
            .map(|e| e.identity.clone());
        self.codes.entries.remove(hash);
        found
    }

    /// Ends a session.
    pub fn log_out(&mut self, hash: &TokenHash) {
        self.sessions.entries.remove(hash);
    }

    /// The user with this password, if it was checked a short time ago.
    pub fn password(
        &self,
        name: &str,
        password: &str,
        users: &Arc<Users>,
        now: Instant,
    ) -> Option<Identity> {
        let hash = self.password_hash(name, password);
        let entry = self.passwords.find(&hash, users, now)?;
        Some(entry.identity.clone())
    }

    /// Remembers that this is the password.
    pub fn remember(
        &mut self,
        identity: Identity,
        password: &str,
        users: Arc<Users>,
        now: Instant,
    ) {
        let hash = self.password_hash(&identity.name, password);
        let end = now + PROVEN;
        let entry = Entry {
            identity,
            end,
            token: None,
            users,
        };
        self.passwords.insert(hash, entry, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity() -> Identity {
        Identity {
            name: "alice".into(),
            role: Role::Admin,
        }
    }

    #[test]
    fn sessions_end_by_time_and_with_the_users() {
        let now = Instant::now();
        let mut verified = VerifiedCredentials::new().unwrap();
        let users = Arc::new(Users::default());
        let token = verified
            .log_in(identity(), None, users.clone(), now)
            .unwrap();
        let hash = tokens::hash(&token);
        assert_eq!(
            verified.session(&hash, &users, now),
            Some((identity(), None))
        );
        assert_eq!(verified.session(&hash, &users, now + SESSION), None);
        assert_eq!(
            verified.session(&hash, &Arc::new(Users::default()), now),
            None
        );
        assert_eq!(verified.session(&tokens::hash("skua_"), &users, now), None);
    }

    #[test]
    fn a_code_is_good_once_and_not_for_long() {
        let now = Instant::now();
        let mut verified = VerifiedCredentials::new().unwrap();
        let users = Arc::new(Users::default());
        let code = |verified: &mut VerifiedCredentials| {
            let code = verified.new_code(identity(), users.clone(), now).unwrap();
            tokens::hash(&code)
        };
        let first = code(&mut verified);
        assert_eq!(verified.session(&first, &users, now), None, "no session");
        assert_eq!(verified.redeem_code(&first, &users, now), Some(identity()));
        assert_eq!(verified.redeem_code(&first, &users, now), None, "once");
        let late = code(&mut verified);
        assert_eq!(
            verified.redeem_code(&late, &users, now + CODE),
            None,
            "late"
        );
        for _ in 0..2 * CODES {
            code(&mut verified);
        }
        assert_eq!(verified.codes.entries.len(), CODES);
    }

    #[test]
    fn passwords_are_remembered_with_their_names_and_bounded() {
        let now = Instant::now();
        let mut verified = VerifiedCredentials::new().unwrap();
        let users = Arc::new(Users::default());
        verified.remember(identity(), "x", users.clone(), now);
        assert!(verified.password("alice", "x", &users, now).is_some());
        assert!(verified.password("alic", "ex", &users, now).is_none());
        assert!(
            verified
                .password("alice", "x", &users, now + PROVEN)
                .is_none()
        );
        for n in 0..2 * PASSWORDS {
            verified.remember(identity(), &n.to_string(), users.clone(), now);
        }
        assert_eq!(verified.passwords.entries.len(), PASSWORDS);
    }
}
