//! Proving a hook: that programs load and attach does not show that they ever run.

use std::{
    io::{self, Read as _, Write as _},
    net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket},
    time::Duration,
};

use super::{FlowTable, FlowTableConfig, LinkKind};
use crate::{Attachment, HookKind, KernelError, private_network};

/// What an exchange of our own showed about a hook.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Proof {
    /// It counted our packets.
    Active,
    /// It attached, and counted nothing or not all.
    Silent(String),
    /// It could not be loaded or attached.
    Unsupported(String),
}

impl Proof {
    /// One word.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Silent(_) => "silent",
            Self::Unsupported(_) => "unsupported",
        }
    }

    /// Why it is not active.
    pub fn reason(&self) -> &str {
        match self {
            Self::Active => "",
            Self::Silent(reason) | Self::Unsupported(reason) => reason,
        }
    }
}

/// Loopback's index in every namespace.
const LOOPBACK: u32 = 1;
/// Datagrams and connections of the exchange.
const EXCHANGES: u64 = 3;
const PATIENCE: Duration = Duration::from_secs(2);

/// Attaches the hook in a network namespace of its own, runs a UDP and a TCP exchange there, and checks
/// that every packet was counted.
pub fn prove(hook: HookKind) -> Proof {
    let thread = std::thread::Builder::new()
        .name("proof".into())
        .spawn(move || exchange(hook));
    match thread.map(std::thread::JoinHandle::join) {
        Ok(Ok(Ok(proof))) => proof,
        Ok(Ok(Err(error))) => Proof::Unsupported(error.to_string()),
        Ok(Err(_)) => Proof::Unsupported("the thread of the proof died".into()),
        Err(error) => Proof::Unsupported(error.to_string()),
    }
}

fn exchange(hook: HookKind) -> Result<Proof, KernelError> {
    private_network::enter()?;
    let config = FlowTableConfig {
        max_entries: 64,
        max_points: 1,
        ..Default::default()
    };
    let mut table = FlowTable::new(hook, config)?;
    table.add_point(0, LOOPBACK)?;
    let mut attachments = Vec::new();
    let directions = hook.directions(false);
    for direction in directions {
        if let Some(program) = table.program(0, *direction, LinkKind::Ethernet)? {
            attachments.push(Attachment::in_passing_namespace(
                program, LOOPBACK, *direction, hook,
            )?);
        }
    }
    talk().map_err(|source| KernelError::System {
        what: "cannot talk to ourselves",
        source,
    })?;
    drop(attachments);
    let (mut udp, mut tcp) = (0, 0);
    table.finish(|update| {
        let packets = update.lo_sent.packets + update.hi_sent.packets;
        match update.key.proto {
            17 => udp += packets,
            6 => tcp += packets,
            _ => {}
        }
    })?;
    let expected = EXCHANGES * directions.len() as u64;
    // A connection takes at least SYN, SYN+ACK, ACK and a segment with data.
    if udp == expected && tcp >= 4 * directions.len() as u64 {
        return Ok(Proof::Active);
    }
    Ok(Proof::Silent(format!(
        "attached, but of {expected} UDP packets it counted {udp}, and {tcp} of TCP"
    )))
}

fn talk() -> io::Result<()> {
    let receiver = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    receiver.set_read_timeout(Some(PATIENCE))?;
    let sender = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    for _ in 0..EXCHANGES {
        sender.send_to(b"skua", receiver.local_addr()?)?;
        receiver.recv(&mut [0; 16])?;
    }
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let mut client = TcpStream::connect_timeout(&listener.local_addr()?, PATIENCE)?;
    let (mut server, _) = listener.accept()?;
    server.set_read_timeout(Some(PATIENCE))?;
    client.write_all(b"skua")?;
    server.read_exact(&mut [0; 4])?;
    Ok(())
}
