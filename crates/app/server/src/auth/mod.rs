//! Authentication of callers, and their rights.

mod role;
mod sessions;
mod throttle;
pub mod tokens;
pub mod users;

pub use role::Role;
pub use sessions::{CODE, Identity, SESSION};

use std::{
    net::IpAddr,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use anyhow::bail;
use axum::{
    Extension,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use skua_config::Api;
use skua_process::watched::Watched;

use crate::{
    auth::{
        sessions::{TOKEN, VerifiedCredentials},
        throttle::Throttle,
        tokens::{TokenHash, Tokens},
        users::{LONGEST_PASSWORD, Users},
    },
    fair::{ClientKey, FairLimits, Turns, network},
};

/// The cookie that a login sets, named as Skydive's.
pub const COOKIE: &str = "authtok";
/// The header that may have the token instead.
pub const TOKEN_HEADER: &str = "x-auth-token";
/// Longer tokens are refused without a check.
const LONGEST_TOKEN: usize = 512;

/// Checks of passwords: each takes a CPU for tens of milliseconds and 19 MiB.
const CHECKS: FairLimits = FairLimits {
    running: 1,
    running_of_one: 1,
    waiting_of_one: 8,
    patience: Duration::from_secs(10),
};

/// Lines with words; what follows `#` is left out. With the numbers of the lines, from 1.
fn lines(text: &str) -> impl Iterator<Item = (usize, Vec<&str>)> {
    text.lines().enumerate().filter_map(|(place, line)| {
        let words: Vec<_> = line.split_whitespace().collect();
        let wanted = words.first().is_some_and(|word| !word.starts_with('#'));
        wanted.then_some((place + 1, words))
    })
}

/// A name that fits into the files and into Basic authentication.
pub fn checked_name(name: &str) -> anyhow::Result<&str> {
    let fine = |c: char| c.is_alphanumeric() || "._-@".contains(c);
    if name.is_empty() || name.len() > 64 || !name.chars().all(fine) {
        bail!("\"{name}\" is not a name: up to 64 letters, digits, and . _ - @");
    }
    Ok(name)
}

/// A local user who sends a request over the unix socket.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LocalUser {
    /// By which logs and answers call it.
    pub name: Arc<str>,
    /// The role without a login; none: no rights.
    pub role: Option<Role>,
}

/// The far end of a connection.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Its address.
    pub address: IpAddr,
    /// The name in its verified certificate.
    pub certificate: Option<Arc<str>>,
    /// The local user, for connections over the unix socket.
    pub local: Option<LocalUser>,
}

/// The sender of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Caller {
    /// The proven identity; none for paths that are open to all.
    pub identity: Option<Identity>,
    /// Whether a cookie proves it, which browsers send automatically.
    pub by_cookie: bool,
}

impl Caller {
    /// What it may do.
    pub fn role(&self) -> Role {
        self.identity.as_ref().map_or(Role::Read, |i| i.role)
    }
}

/// Name of the caller, for the log.
pub fn who(peer: Option<Extension<Peer>>, caller: Option<Extension<Caller>>) -> String {
    let address = peer.map(|Extension(peer)| peer.address.to_string());
    let name = caller.and_then(|Extension(caller)| Some(caller.identity?.name));
    match (name, address) {
        (Some(name), Some(address)) => format!("{name} at {address}"),
        (None, Some(address)) => address,
        (_, None) => "an unknown client".to_owned(),
    }
}

/// Why a caller is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// No credentials.
    Missing,
    /// No credentials, from a local user without rights.
    Stranger,
    /// Wrong credentials.
    Wrong,
    /// Too many wrong attempts before.
    Wait(Duration),
    /// Too many requests at a time.
    Busy,
}

impl Refusal {
    /// The answer.
    pub fn answer(self) -> Response {
        const WAYS: HeaderValue =
            HeaderValue::from_static("Basic realm=\"skua\", charset=\"UTF-8\"");
        let after = |wait: Duration| [(header::RETRY_AFTER, (wait.as_secs() + 1).to_string())];
        match self {
            Self::Missing => (
                StatusCode::UNAUTHORIZED,
                [(header::WWW_AUTHENTICATE, WAYS)],
                "the API needs a user and password or a token; on its host `skua console` prints a link (docs/api.md)\n",
            )
                .into_response(),
            Self::Stranger => (
                StatusCode::FORBIDDEN,
                "on this host root and the members of the group skua may ask; others with a token, or as \
                 api.others says (docs/api.md)\n",
            )
                .into_response(),
            Self::Wrong => (
                StatusCode::UNAUTHORIZED,
                [(header::WWW_AUTHENTICATE, WAYS)],
                "wrong user, password or token\n",
            )
                .into_response(),
            Self::Wait(wait) => (
                StatusCode::TOO_MANY_REQUESTS,
                after(wait),
                "too many failed logins from this address\n",
            )
                .into_response(),
            Self::Busy => (
                StatusCode::SERVICE_UNAVAILABLE,
                after(Duration::ZERO),
                "too many logins at a time\n",
            )
                .into_response(),
        }
    }
}

impl Refusal {
    /// The answer to a script of a page, without Basic: browsers would open a window of their own for
    /// the password.
    pub fn answer_script(self) -> Response {
        let mut answer = self.answer();
        if let Some(ways) = answer.headers_mut().get_mut(header::WWW_AUTHENTICATE) {
            *ways = HeaderValue::from_static("Bearer realm=\"skua\"");
        }
        answer
    }
}

/// Authenticates callers.
pub struct Authenticator {
    users: Option<Watched<Users>>,
    tokens: Option<Watched<Tokens>>,
    certificates: bool,
    nobody: Arc<Users>,
    verified: Mutex<VerifiedCredentials>,
    throttle: Mutex<Throttle>,
    checks: Turns,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Credentials in a request.
#[derive(PartialEq, Eq, Debug)]
enum Credentials {
    Nothing,
    /// Malformed credentials.
    Damaged,
    Token {
        text: String,
        by_cookie: bool,
    },
    Password {
        name: String,
        password: String,
    },
}

impl Authenticator {
    /// Reads the files.
    pub fn open(api: &Api) -> anyhow::Result<Self> {
        let path = |text: &String| Some(PathBuf::from(text)).filter(|_| !text.is_empty());
        let users = path(&api.users)
            .map(|file| Watched::new("api.users", vec![file.clone()], move || Users::read(&file)))
            .transpose()?;
        let tokens = path(&api.tokens)
            .map(|file| {
                Watched::new("api.tokens", vec![file.clone()], move || {
                    Tokens::read(&file)
                })
            })
            .transpose()?;
        Ok(Self {
            users,
            tokens,
            certificates: !api.tls.client_ca.is_empty(),
            nobody: Arc::default(),
            verified: Mutex::new(VerifiedCredentials::new()?),
            throttle: Mutex::default(),
            checks: Turns::new(CHECKS),
        })
    }

    /// Reads the files again.
    pub fn reload(&self) {
        if let Some(users) = &self.users {
            users.reload();
        }
        if let Some(tokens) = &self.tokens {
            tokens.reload();
        }
    }

    fn users(&self) -> Arc<Users> {
        match &self.users {
            Some(users) => users.get(),
            None => self.nobody.clone(),
        }
    }

    /// Authenticates the sender of a request.
    pub async fn caller(&self, peer: &Peer, headers: &HeaderMap) -> Result<Caller, Refusal> {
        let known = |identity| Caller {
            identity: Some(identity),
            by_cookie: false,
        };
        if let Some(local) = &peer.local
            && let Some(role) = local.role
        {
            let name = local.name.clone();
            return Ok(known(Identity { name, role }));
        }
        match credentials(headers) {
            Credentials::Nothing if peer.local.is_some() => Err(Refusal::Stranger),
            Credentials::Nothing => self.certificate(peer).map(known).ok_or(Refusal::Missing),
            Credentials::Damaged => Err(wrong(peer)),
            Credentials::Token { text, by_cookie } => match self.token(&text) {
                Some(identity) => Ok(Caller {
                    identity: Some(identity),
                    by_cookie,
                }),
                // An expired cookie is no attempt to guess a password.
                None if by_cookie => self.certificate(peer).map(known).ok_or(Refusal::Wrong),
                None => Err(wrong(peer)),
            },
            Credentials::Password { name, password } => {
                self.password(peer, name, password).await.map(known)
            }
        }
    }

    /// Identity of a client certificate: it may read; for a user of that name the user's role
    /// applies.
    fn certificate(&self, peer: &Peer) -> Option<Identity> {
        let name = peer.certificate.as_ref().filter(|_| self.certificates)?;
        let role = self.users().certificate(name).unwrap_or(Role::Read);
        Some(Identity {
            name: name.clone(),
            role,
        })
    }

    fn token(&self, text: &str) -> Option<Identity> {
        if text.len() > LONGEST_TOKEN {
            return None;
        }
        let hash = tokens::hash(text);
        let session = lock(&self.verified).session(&hash, &self.users(), Instant::now());
        match session {
            Some((identity, None)) => Some(identity),
            // A session ends with the token that it began with.
            Some((_, Some(begun_with))) => self.identity_of_token(&begun_with),
            None => self.identity_of_token(&hash),
        }
    }

    /// Identity of a token in the file.
    fn identity_of_token(&self, hash: &TokenHash) -> Option<Identity> {
        let tokens = self.tokens.as_ref()?.get();
        let token = tokens.find(hash, SystemTime::now())?;
        Some(Identity {
            name: format!("{TOKEN}{}", token.name).into(),
            role: token.role,
        })
    }

    /// Identity of a user with a password.
    async fn password(
        &self,
        peer: &Peer,
        name: String,
        password: String,
    ) -> Result<Identity, Refusal> {
        let users = self.users();
        let verified = lock(&self.verified).password(&name, &password, &users, Instant::now());
        if let Some(identity) = verified {
            return Ok(identity);
        }
        self.may_try(peer)?;
        let key = ClientKey::Address(network(peer.address));
        let Ok(turn) = self.checks.acquire(&key).await else {
            return Err(Refusal::Busy);
        };
        // Another client of the address may have failed meanwhile.
        self.may_try(peer)?;
        let (asked, checked) = (name.clone(), users.clone());
        let found = tokio::task::spawn_blocking(move || {
            let role = checked.check(&asked, &password);
            (role, password, turn)
        })
        .await;
        let Ok((Some(role), password, turn)) = found else {
            return Err(self.failed(peer));
        };
        drop(turn);
        let identity = Identity {
            name: name.into(),
            role,
        };
        lock(&self.throttle).succeeded(network(peer.address));
        lock(&self.verified).remember(identity.clone(), &password, users, Instant::now());
        Ok(identity)
    }

    fn may_try(&self, peer: &Peer) -> Result<(), Refusal> {
        let wait = lock(&self.throttle).wait(network(peer.address), Instant::now());
        match wait {
            Duration::ZERO => Ok(()),
            wait => Err(Refusal::Wait(wait)),
        }
    }

    /// Counts a wrong password.
    fn failed(&self, peer: &Peer) -> Refusal {
        lock(&self.throttle).failed(network(peer.address), Instant::now());
        wrong(peer)
    }

    /// Ends a session.
    pub fn log_out(&self, headers: &HeaderMap) {
        if let Credentials::Token { text, .. } = credentials(headers) {
            lock(&self.verified).log_out(&tokens::hash(&text));
        }
    }

    /// Begins a session for the owner of a token: the token lives longer, and should not be in a
    /// browser.
    pub fn log_in_by_token(&self, peer: &Peer, token: &str) -> Result<(Identity, String), Refusal> {
        let identity = self.token(token).ok_or_else(|| wrong(peer))?;
        let hash = tokens::hash(token);
        let session = lock(&self.verified).session(&hash, &self.users(), Instant::now());
        // The token of a session begins another of the same kind.
        let with = session.map_or(Some(hash), |(_, begun_with)| begun_with);
        self.begin(identity, with)
    }

    /// Begins a session: its identity and token.
    fn begin(
        &self,
        identity: Identity,
        with: Option<TokenHash>,
    ) -> Result<(Identity, String), Refusal> {
        let users = self.users();
        let token = lock(&self.verified).log_in(identity.clone(), with, users, Instant::now());
        match token {
            Ok(token) => Ok((identity, token)),
            Err(error) => {
                tracing::error!("{error:#}");
                Err(Refusal::Busy)
            }
        }
    }

    /// A code for one login, valid for a short time.
    pub fn new_code(&self, identity: Identity) -> anyhow::Result<String> {
        let users = self.users();
        lock(&self.verified).new_code(identity, users, Instant::now())
    }

    /// Begins a session with such a code.
    pub fn log_in_by_code(&self, peer: &Peer, code: &str) -> Result<(Identity, String), Refusal> {
        let (hash, users) = (tokens::hash(code), self.users());
        let identity = lock(&self.verified).redeem_code(&hash, &users, Instant::now());
        self.begin(identity.ok_or_else(|| wrong(peer))?, None)
    }

    /// Begins a session with a password.
    pub async fn log_in(
        &self,
        peer: &Peer,
        name: String,
        password: String,
    ) -> Result<(Identity, String), Refusal> {
        let identity = self.password(peer, name, password).await?;
        self.begin(identity, None)
    }
}

/// A wrong token or code cannot be guessed: a token has 256 bits. It does not slow down logins by
/// password from the same address.
fn wrong(peer: &Peer) -> Refusal {
    tracing::warn!(address = %peer.address, "a login failed");
    Refusal::Wrong
}

/// Credentials in a request; of several the first: header, X-Auth-Token, cookie.
fn credentials(headers: &HeaderMap) -> Credentials {
    if let Some(value) = headers.get(header::AUTHORIZATION) {
        return value.to_str().map_or(Credentials::Damaged, authorization);
    }
    let token = |text: &str, by_cookie| Credentials::Token {
        text: text.to_owned(),
        by_cookie,
    };
    if let Some(value) = headers.get(TOKEN_HEADER) {
        return value
            .to_str()
            .map_or(Credentials::Damaged, |text| token(text, false));
    }
    headers
        .get_all(header::COOKIE)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|cookies| cookies.split(';'))
        .find_map(|cookie| cookie.trim().strip_prefix(COOKIE)?.strip_prefix('='))
        .map_or(Credentials::Nothing, |text| token(text, true))
}

fn authorization(value: &str) -> Credentials {
    let Some((scheme, rest)) = value.split_once(' ') else {
        return Credentials::Damaged;
    };
    if scheme.eq_ignore_ascii_case("bearer") {
        return Credentials::Token {
            text: rest.trim().to_owned(),
            by_cookie: false,
        };
    }
    if !scheme.eq_ignore_ascii_case("basic") || rest.len() > 4 * LONGEST_PASSWORD {
        return Credentials::Damaged;
    }
    let decoded = STANDARD.decode(rest.trim()).ok();
    let text = decoded.and_then(|bytes| String::from_utf8(bytes).ok());
    match text.as_deref().and_then(|text| text.split_once(':')) {
        Some((name, password)) => Credentials::Password {
            name: name.to_owned(),
            password: password.to_owned(),
        },
        None => Credentials::Damaged,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credentials_of(headers: &[(&'static str, &str)]) -> Credentials {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        credentials(&map)
    }

    #[test]
    fn each_method_of_authentication() {
        let token = |text: &str, by_cookie| Credentials::Token {
            text: text.into(),
            by_cookie,
        };
        assert_eq!(credentials_of(&[]), Credentials::Nothing);
        assert_eq!(
            credentials_of(&[("authorization", "bearer abc")]),
            token("abc", false)
        );
        assert_eq!(
            credentials_of(&[("x-auth-token", "abc")]),
            token("abc", false)
        );
        let cookies = ("cookie", "a=b; authtok=abc; authtoken=x");
        assert_eq!(credentials_of(&[cookies]), token("abc", true));
        assert_eq!(
            credentials_of(&[("cookie", "xauthtok=abc")]),
            Credentials::Nothing
        );
        assert_eq!(
            credentials_of(&[("authorization", "Basic YWxpY2U6YTpi"), cookies]),
            Credentials::Password {
                name: "alice".into(),
                password: "a:b".into()
            }
        );
        for damaged in [
            "Basic",
            "Basic YWxpY2U=",
            "Basic !",
            "Digest x",
            "",
            "Basic /w==",
        ] {
            assert_eq!(
                credentials_of(&[("authorization", damaged)]),
                Credentials::Damaged,
                "{damaged}"
            );
        }
    }

    #[test]
    fn names_fit_into_a_line() {
        for name in ["alice", "é.x-1_2@host"] {
            assert!(checked_name(name).is_ok());
        }
        for name in ["", "a b", "a:b", "#a", "a\n", &"x".repeat(65)] {
            assert!(checked_name(name).is_err(), "{name:?}");
        }
    }
}
