//! `skua collector`.

use std::{
    io::Read as _,
    net::SocketAddr,
    os::{fd::AsFd as _, unix::net::UnixStream},
    time::Duration,
};

use anyhow::bail;
use clap::Args;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use skua_collect::{Collector, CollectorConfig, Summary};
use skua_flow::Prefix;
use skua_probe::receive::{AllowList, Socket};

use super::sink::{SinkName, Sinks};
use crate::{
    args::{SummaryFormat, duration},
    output,
    state::unix_ns,
};

/// Bytes of the socket's queue.
const QUEUE: usize = 32 << 20;
/// The longest datagram of UDP.
const DATAGRAM: usize = 65_535;
/// Datagrams that are taken before the clock is looked at again.
const BATCH: usize = 64;
/// The longest wait.
const TICK: u64 = 1_000_000_000;

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  skua collector                                    for agents on this host
  skua agent --collector 127.0.0.1:6343             tells it, as does `skua run`
  skua collector --listen 192.0.2.1:6343 --allow 192.0.2.0/24 | jq .
  skua collector --sink parquet:///var/lib/skua/lake    as Parquet, for any engine (docs/lake.md)
sFlow has no authentication: beyond loopback --allow says whose datagrams are taken.")]
pub struct CollectorArguments {
    /// Where to listen for sFlow
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:6343")]
    pub listen: SocketAddr,
    /// Take datagrams of senders in this prefix only; may be given several times. Needed to listen
    /// beyond loopback
    #[arg(long, value_name = "PREFIX")]
    pub allow: Vec<Prefix>,
    /// Where lines go: stdout, or a lake: parquet://DIR, s3://BUCKET/PREFIX, hdfs://HOST:PORT/PATH; may be given
    /// several times
    #[arg(long, default_value = "stdout", value_name = "SINK")]
    pub sink: Vec<SinkName>,
    /// Length of a window
    #[arg(long, default_value = "10s", value_name = "TIME", value_parser = duration)]
    pub window: Duration,
    /// Time after its end until a window is closed: longer than the agents' scan interval
    #[arg(long, default_value = "15s", value_name = "TIME", value_parser = duration)]
    pub wait: Duration,
    /// Services and clients in open windows at most
    #[arg(long, default_value_t = 1_000_000, value_name = "N")]
    pub max_keys: usize,
    /// Conversations to remember at most
    #[arg(long, default_value_t = 1_000_000, value_name = "N")]
    pub max_conversations: usize,
    /// How to print the sums at the end, on standard error
    #[arg(long, value_enum, default_value = "text", value_name = "FORMAT")]
    pub summary: SummaryFormat,
}

/// Runs until Ctrl-C.
pub fn collector(arguments: &CollectorArguments) -> anyhow::Result<()> {
    let far = !arguments.listen.ip().to_canonical().is_loopback();
    if far && arguments.allow.is_empty() {
        bail!(
            "--listen is {}: sFlow has no authentication, so beyond loopback say with --allow whose \
             datagrams are taken, like --allow 192.0.2.0/24",
            arguments.listen
        );
    }
    let (mut ends, far_end) = UnixStream::pair()?;
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::low_level::pipe::register(signal, far_end.try_clone()?)?;
    }
    ends.set_nonblocking(true)?;
    let socket = Socket::bind(arguments.listen, QUEUE)?;
    let mut receiver = Receiver {
        allow: AllowList::new(&arguments.allow),
        collector: Collector::new(&CollectorConfig {
            window: arguments.window,
            wait: arguments.wait,
            max_keys: arguments.max_keys,
            max_conversations: arguments.max_conversations,
            ..CollectorConfig::default()
        }),
        not_allowed: 0,
        buffer: vec![0; DATAGRAM],
        sinks: Sinks::open(&arguments.sink)?,
    };
    eprintln!("skua collects sFlow at {}; Ctrl-C ends", socket.address()?);
    loop {
        let now = unix_ns();
        receiver.close(now)?;
        let wait = receiver
            .collector
            .next_close()
            .map_or(TICK, |at| at.saturating_sub(now).min(TICK));
        let timeout = Timespec {
            tv_sec: (wait / 1_000_000_000).cast_signed(),
            tv_nsec: (wait % 1_000_000_000).cast_signed(),
        };
        let mut fds = [
            PollFd::new(&socket, PollFlags::IN),
            PollFd::from_borrowed_fd(ends.as_fd(), PollFlags::IN),
        ];
        // Interrupted is as good as woken for nothing.
        let _ = poll(&mut fds, Some(&timeout));
        let more = receiver.take(&socket, BATCH);
        if !more && matches!(ends.read(&mut [0; 8]), Ok(n) if n > 0) {
            break;
        }
    }
    // What is in the socket's queue has been taken before.
    receiver.finish()?;
    let dropped = socket.dropped().unwrap_or(0);
    print(arguments.summary, receiver, dropped)
}

/// Takes datagrams to lines.
struct Receiver {
    allow: AllowList,
    collector: Collector,
    not_allowed: u64,
    buffer: Vec<u8>,
    sinks: Sinks,
}

impl Receiver {
    /// Takes some datagrams; false when there are no more now.
    fn take(&mut self, socket: &Socket, most: usize) -> bool {
        let now = unix_ns();
        for _ in 0..most {
            let (length, from) = match socket.receive(&mut self.buffer) {
                Ok(Some(datagram)) => datagram,
                Ok(None) => return false,
                Err(error) => {
                    tracing::debug!(%error, "receiving failed");
                    return false;
                }
            };
            if self.allow.allows(from) {
                let bytes = self.buffer.get(..length).unwrap_or_default();
                self.collector.datagram(from.ip(), bytes, now);
            } else {
                self.not_allowed += 1;
            }
        }
        true
    }

    /// Writes the lines of windows that are over.
    fn close(&mut self, now: u64) -> anyhow::Result<()> {
        self.written(|collector, each| collector.close(now, each))
    }

    fn finish(&mut self) -> anyhow::Result<()> {
        self.written(|collector, each| collector.finish(unix_ns(), each))?;
        self.sinks.finish()
    }

    fn written(
        &mut self,
        hand_out: impl FnOnce(&mut Collector, &mut dyn FnMut(&skua_collect::Line<'_>)),
    ) -> anyhow::Result<()> {
        let (sinks, mut done, mut any) = (&mut self.sinks, Ok(()), false);
        hand_out(&mut self.collector, &mut |line| {
            any = true;
            if done.is_ok() {
                done = sinks.put(line);
            }
        });
        if any {
            done = done.and_then(|()| sinks.flush());
        }
        done
    }
}

fn print(format: SummaryFormat, receiver: Receiver, dropped: u64) -> anyhow::Result<()> {
    let mut summary = receiver.collector.summary();
    for (cause, units) in [
        ("receive_queue_full", dropped),
        ("not_allowed", receiver.not_allowed),
    ] {
        if units > 0 {
            summary.lost.insert(cause, units);
        }
    }
    summary.lost.extend(receiver.sinks.lost());
    match format {
        SummaryFormat::Json => eprintln!("{}", serde_json::to_string(&summary)?),
        SummaryFormat::Text => text(&summary),
    }
    Ok(())
}

fn text(summary: &Summary) {
    let sum = |sum: &skua_collect::Sum| {
        format!(
            "{} packets, {}",
            output::count(sum.packets),
            output::bytes(sum.bytes)
        )
    };
    eprintln!(
        "{} datagrams of {}, {} records, {} samples; {} lines",
        output::count(summary.datagrams),
        output::counted(summary.agents.len(), "agent"),
        output::count(summary.records),
        output::count(summary.samples),
        output::count(summary.lines),
    );
    for (name, value) in [
        ("told by agents", &summary.told),
        ("missing", &summary.missing),
        ("got", &summary.got),
        ("told by several", &summary.elsewhere),
        ("too late", &summary.late),
        ("keys full", &summary.keys_full),
        ("counted", &summary.counted),
        ("estimated", &summary.estimated),
    ] {
        eprintln!("  {name:<16} {}", sum(value));
    }
    for (cause, units) in &summary.lost {
        eprintln!("  lost: {cause} {}", output::count(*units));
    }
    for agent in &summary.agents {
        eprintln!(
            "  agent {}: {} datagrams lost, {} records lost, {} records lost at the agent, clock {} ms",
            agent.agent,
            agent.lost_datagrams,
            agent.lost_records,
            agent.agent_lost_records,
            agent.clock_ms
        );
    }
    if let Some(error) = &summary.last_error {
        eprintln!("  last error: {error}");
    }
}
