//! Sockets without BPF: the last rung of the socket probe. `docs/sockets.md` is the contract;
//! its section 6 says what this rung cannot know.
//!
//! [`SockDiag`] polls all TCP and UDP sockets over NETLINK_SOCK_DIAG, finds their owners in the processes'
//! file tables, and receives the ends of sockets from the kernel's multicast groups. [`DiagSocket`] is the
//! part below: it lists the sockets of one network namespace.

pub mod account;
mod cgroup;
mod diag;
mod error;
mod netlink;
mod process;
mod proof;
mod record;
mod table;
mod tcp_info;

pub use diag::SockDiag;
pub use error::Error;
pub use netlink::DiagSocket;
pub use record::{Family, Record};
pub use tcp_info::TcpInfo;
