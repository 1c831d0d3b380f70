//! What a caller may do.

use std::str::FromStr;

use axum::http::Method;
use clap::ValueEnum;

/// What a caller may do.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Everything
    Admin,
    /// Read and query; change nothing
    Read,
    /// Report for the host with this name only; no queries
    Agent,
    /// Report for any host; no queries
    Agents,
}

impl Role {
    /// Name in files and answers.
    pub fn name(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Read => "read",
            Self::Agent => "agent",
            Self::Agents => "agents",
        }
    }

    /// Whether the role is an agent's, which may only report.
    pub fn is_agent(self) -> bool {
        matches!(self, Self::Agent | Self::Agents)
    }

    /// Whether it may send such a request.
    pub fn may(self, method: &Method, path: &str) -> bool {
        if self.is_agent() {
            return *method == Method::GET && path == crate::paths::AGENTS;
        }
        self == Self::Admin
            // Agents and publishers change the graph.
            || (path != crate::paths::AGENTS
                && path != crate::paths::PUBLISHER
                && matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS))
            // A query, with its text in the body.
            || (*method == Method::POST && path == "/api/topology")
            // What a workflow does, it does with the rights of who calls it.
            || (*method == Method::POST
                && path.starts_with("/api/workflow/")
                && path.ends_with("/call"))
            // A logout ends only the caller's own session.
            || (*method == Method::POST && path == crate::paths::LOGOUT)
            // A session with what one may anyway.
            || (*method == Method::POST && path == crate::paths::CONSOLE)
    }
}

impl FromStr for Role {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        [Self::Admin, Self::Read, Self::Agent, Self::Agents]
            .into_iter()
            .find(|role| role.name() == text)
            .ok_or_else(|| anyhow::anyhow!("unknown role \"{text}\": admin, read, agent or agents"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_report_and_query_nothing() {
        let agent = |method: Method, path| {
            let may = Role::Agent.may(&method, path);
            assert_eq!(Role::Agents.may(&method, path), may);
            may
        };
        assert!(agent(Method::GET, "/ws/agent"));
        for path in [
            "/",
            "/api",
            "/api/flows",
            "/metrics",
            "/ws/subscriber",
            "/ws/agent/",
        ] {
            assert!(!agent(Method::GET, path), "{path}");
        }
        assert!(!agent(Method::POST, "/api/topology"));
        assert!(!agent(Method::POST, "/ws/agent"));
        assert!(!agent(Method::POST, "/logout"));
    }

    #[test]
    fn readers_change_nothing() {
        let read = |method, path| Role::Read.may(&method, path);
        assert!(read(Method::GET, "/api/addresses"));
        assert!(read(Method::HEAD, "/metrics"));
        assert!(read(Method::POST, "/api/topology"));
        assert!(!read(Method::GET, "/ws/publisher"));
        assert!(read(Method::POST, "/api/workflow/1/call"));
        assert!(!read(Method::POST, "/api/workflow"));
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
