//! Packets, captures and a corpus for the tests; never part of a release.
//!
//! - [`Packet`] builds one packet of any stack of headers with right lengths and checksums, or
//!   deliberately wrong ones.
//! - [`Capture`] is a list of packets with times and interfaces, written as pcap or pcapng.
//! - [`corpus()`] holds the named captures: every protocol, tunnel and malformation that
//!   `docs/accounting.md` speaks of. They are the same on every run and every machine.
//! - [`broker::Broker`] is a real Kafka broker.
//! - [`lab::Net`] is a network namespace, [`wire::Wire`] two of them and a wire with counters.
//! - [`process::Process`] is a program that runs beside a test, [`process::Tcpdump`] one that captures.
//! - [`damaged()`] holds capture files that a reader must refuse or warn about.

pub mod access;
pub mod broker;
pub mod capture;
pub mod checksum;
pub mod corpus;
pub mod lab;
pub mod layer;
pub mod packet;
pub mod process;
pub mod random;
pub mod scenario;
pub mod scratch;
pub mod wire;

pub use capture::{ByteOrder, Capture, Format, Interface, LinkType, Record};
pub use corpus::damaged::{Damaged, Outcome, damaged};
pub use corpus::{Entry, corpus, named};
pub use layer::{
    Ah, Arp, Dccp, Esp, Ethernet, Extension, Geneve, Gre, Icmp, Ipv4, Ipv6, Layer, Llc, Mpls,
    Pppoe, Sctp, Tcp, Udp, UdpLite, Vlan, Vxlan,
};
pub use packet::Packet;
pub use random::Random;

/// Notes that a test leaves something out here, for the last lines of `make test` (tests/untested): `key`
/// names the reason there, `what` is for people. CI fails when it does not expect that.
pub fn untested(key: &str, what: &str) {
    use std::io::Write as _;
    eprintln!("NOT TESTED: {what} [{key}]");
    let Some(path) = std::env::var_os("UNTESTED_NOTES") else {
        return;
    };
    // In a guest the host's files cannot be changed.
    if let Ok(mut file) = std::fs::OpenOptions::new().append(true).open(path) {
        let _ = file.write_all(format!("{key}\t{what}\n").as_bytes());
    }
}

/// TCP flags, RFC 9293 section 3.1.
pub mod flag {
    /// No more data from the sender.
    pub const FIN: u8 = 0x01;
    /// Synchronise sequence numbers.
    pub const SYN: u8 = 0x02;
    /// Reset the connection.
    pub const RST: u8 = 0x04;
    /// Push.
    pub const PSH: u8 = 0x08;
    /// The acknowledgement field is valid.
    pub const ACK: u8 = 0x10;
    /// The urgent field is valid.
    pub const URG: u8 = 0x20;
    /// ECN echo, RFC 3168.
    pub const ECE: u8 = 0x40;
    /// Congestion window reduced, RFC 3168.
    pub const CWR: u8 = 0x80;
}

/// The `skua` that a test runs: the one that was built with it, or that which `TESTED_SKUA` names, as the one that is
/// shipped. To be used in tests of the crate that has the program.
#[macro_export]
macro_rules! program {
    () => {
        $crate::program_or(env!("CARGO_BIN_EXE_skua"))
    };
}

/// See [`program!`](crate::program).
pub fn program_or(built: &'static str) -> &'static str {
    static NAMED: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    let named = NAMED.get_or_init(|| std::env::var("TESTED_SKUA").ok());
    named.as_deref().unwrap_or(built)
}
