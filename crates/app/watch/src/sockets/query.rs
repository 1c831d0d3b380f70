//! Which sockets are wanted, by flags and by the API alike, and how they are written.

use std::io;

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use skua_socket::{End, FoundSocket, Protocol, SocketLine, SocketRecord, SocketState};
use utoipa::IntoParams;

use skua_state::sockets::{PAGE, Read, read_all, read_found};

/// Flags of `skua sockets`, and parameters of `/api/sockets`.
#[derive(Args, Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields, default)]
pub struct SocketQuery {
    /// Sockets that wait: listening TCP, UDP without a peer
    #[arg(short, long)]
    pub listen: bool,
    /// Also those that have just been closed
    #[arg(short, long)]
    pub closed: bool,
    /// Only of processes of this name
    #[arg(long, value_name = "NAME")]
    pub process: Option<String>,
    /// Only of this process
    #[arg(short, long, value_name = "PID")]
    pub pid: Option<u32>,
    /// Only in this container: name, or the beginning of the id
    #[arg(long, value_name = "CONTAINER")]
    pub container: Option<String>,
    /// Only in this systemd unit
    #[arg(long, value_name = "UNIT")]
    pub unit: Option<String>,
    /// Only with this port, local or remote
    #[arg(long, value_name = "PORT")]
    pub port: Option<u16>,
    /// Only in this state, like established or close-wait; with --closed also how it ended, like refused
    #[arg(long, value_name = "STATE")]
    pub state: Option<String>,
    /// Only tcp or udp
    #[arg(long, value_name = "PROTOCOL", value_parser = ["tcp", "udp"])]
    pub protocol: Option<String>,
    /// Only in the network namespace with this inode number (`lsns -t net`)
    #[arg(long, value_name = "INODE")]
    pub netns: Option<u32>,
    /// Order of rows [default: bytes; with --listen port]
    #[arg(long, value_enum, value_name = "BY")]
    #[param(inline)]
    pub sort: Option<SocketSort>,
    /// Rows at most
    #[arg(short = 'n', long, value_name = "N")]
    pub limit: Option<usize>,
    /// Only what is new or has changed since, ns since the Unix epoch.
    #[arg(skip)]
    pub since: u64,
    /// `json` or `csv`.
    #[arg(skip)]
    pub format: Option<String>,
}

/// Orders of sockets.
#[derive(
    ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, utoipa::ToSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum SocketSort {
    /// Payload both ways, most first
    Bytes,
    /// Payload sent
    Sent,
    /// Payload received
    Received,
    /// Smoothed round-trip time, greatest first
    Rtt,
    /// Segments sent again
    Retransmits,
    /// Delivery rate
    Rate,
    /// Begin, latest first
    Start,
    /// Name of the process
    Process,
    /// Local port
    Port,
}

impl SocketQuery {
    /// Refuses what means nothing.
    pub fn check(&self) -> anyhow::Result<()> {
        let states = SocketState::ALL.map(SocketState::name);
        if let Some(state) = &self.state
            && !states.contains(&state.as_str())
            && !End::names().contains(&state.as_str())
        {
            anyhow::bail!(
                "\"{state}\" is no state; states are {}; with --closed also {}",
                states.join(", "),
                End::names().join(", ")
            );
        }
        if let Some(protocol) = &self.protocol
            && Protocol::named(protocol).is_none()
        {
            anyhow::bail!("no protocol \"{protocol}\": tcp or udp");
        }
        Ok(())
    }

    fn matches(&self, line: &SocketLine<'_>) -> bool {
        let record = line.record;
        let is = |wanted: &Option<String>, have: &str| {
            wanted.as_ref().is_none_or(|wanted| wanted == have)
        };
        (self.closed || record.end.is_none())
            && self.listen == record.listens()
            && record.updated_ns > self.since
            && is(&self.process, line.owner.process)
            && self.pid.is_none_or(|pid| pid == line.owner.pid)
            && self.container.as_ref().is_none_or(|wanted| {
                let container = line.owner.container;
                // Names are whole, ids may be cut as runtimes show them.
                !container.is_empty()
                    && (wanted == container
                        || (wanted.len() >= 6 && container.starts_with(wanted.as_str())))
            })
            && is(&self.unit, line.owner.unit)
            && self.port.is_none_or(|port| {
                record.local.port() == port || record.remote.is_some_and(|r| r.port() == port)
            })
            && (is(&self.state, record.state.name())
                || record.end.is_some_and(|end| is(&self.state, end.name())))
            && is(&self.protocol, record.protocol.name())
            && self.netns.is_none_or(|netns| netns == record.netns)
    }

    fn order(&self) -> SocketSort {
        self.sort.unwrap_or(if self.listen {
            SocketSort::Port
        } else {
            SocketSort::Bytes
        })
    }
}

/// Where the sockets are that are wanted, in order.
pub fn select(read: Read<'_>, query: &SocketQuery) -> Vec<FoundSocket> {
    let sort = query.order();
    let mut found = Vec::new();
    read_all(read, query.closed, |place, socket| {
        let line = socket.line();
        if !query.matches(&line) {
            return;
        }
        let process = match sort {
            SocketSort::Process => line.owner.process.to_owned(),
            _ => String::new(),
        };
        // Equal ones keep their order from query to query.
        found.push((process, rank(&socket.record, sort), socket.record.id, place));
    });
    found.sort_unstable_by(|a, b| (&a.0, a.1, a.2).cmp(&(&b.0, b.1, b.2)));
    found.truncate(query.limit.unwrap_or(usize::MAX));
    found.into_iter().map(|(_, _, _, place)| place).collect()
}

/// Where a socket stands in an order, the first one with the smallest number.
fn rank(record: &SocketRecord, sort: SocketSort) -> u64 {
    let tcp = record.tcp.unwrap_or_default();
    let greatest = match sort {
        SocketSort::Bytes => tcp.bytes_sent.saturating_add(tcp.bytes_received),
        SocketSort::Sent => tcp.bytes_sent,
        SocketSort::Received => tcp.bytes_received,
        SocketSort::Rtt => tcp.srtt_us.into(),
        SocketSort::Retransmits => tcp.retransmits.into(),
        SocketSort::Rate => tcp.delivery_rate,
        SocketSort::Start => record.start_ns,
        SocketSort::Port => return record.local.port().into(),
        SocketSort::Process => 0,
    };
    u64::MAX - greatest
}

/// Writes sockets as JSON or CSV lines (without CSV header), without those that are gone.
///
/// # Errors
///
/// What they are written to fails.
pub fn send(
    out: &mut impl io::Write,
    read: Read<'_>,
    found: &[FoundSocket],
    csv: bool,
) -> io::Result<()> {
    let mut lines = Vec::new();
    for some in found.chunks(PAGE) {
        read_found(read, some, |_, socket| {
            let line = socket.line();
            // Writing to memory does not fail.
            if csv {
                let _ = skua_socket::fields::write_csv_row(&mut lines, &line);
            } else {
                let _ = serde_json::to_writer(&mut lines, &line);
                lines.push(b'\n');
            }
        });
        out.write_all(&lines)?;
        lines.clear();
    }
    Ok(())
}

/// All sockets that are wanted.
pub fn lines(read: Read<'_>, query: &SocketQuery, csv: bool) -> Vec<u8> {
    let mut lines = Vec::new();
    // Writing to memory does not fail.
    let _ = send(&mut lines, read, &select(read, query), csv);
    lines
}
