//! Errors of a database, and of requests to it.

use std::{io, time::Duration};

/// Error of this crate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address of a server cannot be understood.
    #[error(
        "OVSDB target {0:?}: expected `unix:PATH` or `tcp:ADDRESS:PORT`, \
         as in `unix:/run/openvswitch/db.sock` or `tcp:127.0.0.1:6640`"
    )]
    Target(String),
    /// A system call failed.
    #[error("OVSDB {target}: {action}: {source}")]
    Io {
        /// The server.
        target: String,
        /// What was being done.
        action: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The server sent what no server should.
    #[error("OVSDB: the server breaks the protocol: {0}")]
    Protocol(String),
    /// The server sends more than is allowed.
    #[error("OVSDB: {what} is over the limit of {limit} bytes")]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// Bytes that are allowed.
        limit: usize,
    },
    /// The server did not do something in time.
    #[error("OVSDB: no {what} within {} s", .patience.as_secs_f64())]
    Timeout {
        /// What was waited for.
        what: &'static str,
        /// For how long.
        patience: Duration,
    },
    /// The server closed the connection.
    #[error("OVSDB: the server closed the connection")]
    Closed,
    /// There is no connection now, or it ended before the answer came.
    #[error("OVSDB: not connected")]
    Disconnected,
    /// This side is being stopped.
    #[error("OVSDB: stopped")]
    Stopped,
    /// The server refused a request or a transaction.
    #[error("OVSDB: refused: {error}{}", in_brackets(.details))]
    Refused {
        /// Name of the error, RFC 7047 or the server's own.
        error: String,
        /// More about it; may be empty.
        details: String,
    },
    /// There is no row of this name.
    #[error("Open vSwitch has no {kind} {name:?}")]
    NotFound {
        /// `bridge`, `port`, …
        kind: &'static str,
        /// The name that was not found.
        name: String,
    },
    /// Open vSwitch accepted a port and could not make its interface.
    #[error("Open vSwitch cannot make interface {name}: {error}")]
    Interface {
        /// Its name.
        name: String,
        /// What Open vSwitch says.
        error: String,
    },
    /// The switch refused a command.
    #[error("ovs-vswitchd refuses {command}: {error}")]
    Command {
        /// The command.
        command: String,
        /// What the switch says.
        error: String,
    },
    /// The request is invalid.
    #[error("{0}")]
    Request(String),
    /// The interface cannot be brought up.
    #[error(transparent)]
    Link(#[from] skua_link::Error),
}

fn in_brackets(details: &str) -> String {
    if details.is_empty() {
        String::new()
    } else {
        format!(" ({details})")
    }
}
