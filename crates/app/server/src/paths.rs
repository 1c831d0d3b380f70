//! Paths that the server itself serves, and requests to them.

use axum::http::{HeaderMap, header};

/// Where agents connect.
pub const AGENTS: &str = "/ws/agent";
/// Where programs publish nodes and edges.
pub const PUBLISHER: &str = "/ws/publisher";
/// The media type of capture files (IANA).
pub const PCAP: &str = "application/vnd.tcpdump.pcap";
/// The media type of capture files in the newer format.
pub const PCAPNG: &str = "application/x-pcapng";
/// The path of logins, which needs no login itself.
pub const LOGIN: &str = "/login";
/// Where a session ends.
pub const LOGOUT: &str = "/logout";
/// Where users of this host get a link to the page.
pub const CONSOLE: &str = "/api/console";

/// Where clients send queries.
pub const TOPOLOGY: &str = "/api/topology";

/// Whether a body is what a form sends.
pub fn is_form(headers: &HeaderMap) -> bool {
    let value = headers.get(header::CONTENT_TYPE);
    let text = value.and_then(|v| v.to_str().ok()).unwrap_or_default();
    let essence = text.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("application/x-www-form-urlencoded")
}
