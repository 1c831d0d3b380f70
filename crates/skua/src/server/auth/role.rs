//! What a caller may do.

use std::str::FromStr;

use axum::http::Method;
use clap::ValueEnum;

/// What a caller may do.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Everything
    Admin,
    /// Look, and ask queries; change nothing
    Read,
}

impl Role {
    /// Name in files and answers.
    pub fn name(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Read => "read",
        }
    }

    /// Whether it may send such a request.
    pub fn may(self, method: &Method, path: &str) -> bool {
        self == Self::Admin
            // Who is an agent changes the graph.
            || (path != crate::agent::protocol::PATH
                && matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS))
            // A query, with its text in the body.
            || (*method == Method::POST && path == "/api/topology")
            // It ends only what is its own.
            || (*method == Method::POST && path == super::login::OUT)
    }
}

impl FromStr for Role {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        [Self::Admin, Self::Read]
            .into_iter()
            .find(|role| role.name() == text)
            .ok_or_else(|| anyhow::anyhow!("no role \"{text}\": admin or read"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_change_nothing() {
        let read = |method, path| Role::Read.may(&method, path);
        assert!(read(Method::GET, "/api/addresses"));
        assert!(read(Method::HEAD, "/metrics"));
        assert!(read(Method::POST, "/api/topology"));
        for method in [Method::POST, Method::PUT, Method::DELETE, Method::PATCH] {
            assert!(!read(method.clone(), "/api/addresses"));
            assert!(!read(method.clone(), "/api/capture"));
            assert!(Role::Admin.may(&method, "/api/addresses"));
        }
        assert!(!read(Method::GET, "/ws/agent"));
        assert!(Role::Admin.may(&Method::GET, "/ws/agent"));
        assert!(!read(Method::PUT, "/api/topology"));
        assert!(!read(Method::POST, "/api/topology/"));
        assert!(!read(Method::from_bytes(b"BREW").unwrap(), "/api/flows"));
    }
}
