//! Ports that are used again: each connection is a record of its own, and nothing is lost however
//! often that happens.
#![allow(unsafe_code, clippy::unwrap_used)]

use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};

use skua_flow::{Cause, FlowUpdate};
use skua_kernel::{
    Direction,
    flow::{FlowTable, FlowTableConfig, LinkKind, Rung},
};

/// Test runs take place on loopback of the namespace.
const LOOPBACK: u32 = 1;

const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;
const FIN: u8 = 0x01;

/// A frame of the connection between 10.0.0.1:`port` and 10.0.0.2:80.
fn frame(port: u16, from_client: bool, flags: u8) -> Vec<u8> {
    let mut frame = vec![0; 60];
    frame[12..15].copy_from_slice(&[8, 0, 0x45]);
    frame[16..18].copy_from_slice(&46u16.to_be_bytes());
    frame[23] = 6;
    let (source, destination) = (([10, 0, 0, 1], port), ([10, 0, 0, 2], 80u16));
    let (source, destination) = match from_client {
        true => (source, destination),
        false => (destination, source),
    };
    frame[26..30].copy_from_slice(&source.0);
    frame[30..34].copy_from_slice(&destination.0);
    frame[34..36].copy_from_slice(&source.1.to_be_bytes());
    frame[36..38].copy_from_slice(&destination.1.to_be_bytes());
    frame[46] = 5 << 4;
    frame[47] = flags;
    frame[48] = 0xff;
    frame
}

struct Table {
    table: FlowTable,
    program: OwnedFd,
}

impl Table {
    fn new(rung: Rung, max_entries: u32) -> Self {
        let config = FlowTableConfig {
            max_entries,
            ..FlowTableConfig::default()
        };
        let mut table = FlowTable::with_rungs(&[rung], config).unwrap();
        table.add_point(0, LOOPBACK).unwrap();
        let program = table.program(0, Direction::Ingress, LinkKind::Ethernet);
        let program = program.unwrap().unwrap().try_clone_to_owned().unwrap();
        Self { table, program }
    }

    fn feed(&self, frame: &[u8]) {
        let mut options = libbpf_sys::bpf_test_run_opts {
            sz: size_of::<libbpf_sys::bpf_test_run_opts>() as _,
            data_in: frame.as_ptr().cast(),
            data_size_in: frame.len() as u32,
            repeat: 1,
            ..Default::default()
        };
        // SAFETY: the frame and the options outlive the call.
        let error =
            unsafe { libbpf_sys::bpf_prog_test_run_opts(self.program.as_raw_fd(), &mut options) };
        assert_eq!(error, 0);
    }

    fn drain(&mut self) -> Vec<FlowUpdate> {
        let mut updates = Vec::new();
        self.table.drain(|update| updates.push(*update)).unwrap();
        updates
    }

    fn finish(&mut self) -> Vec<FlowUpdate> {
        let mut updates = Vec::new();
        self.table.finish(|update| updates.push(*update)).unwrap();
        updates
    }

    fn cause(&self, cause: Cause) -> u64 {
        let counters = self.table.point_counters(0, LOOPBACK).unwrap().unwrap();
        counters[0][cause as usize].packets
    }
}

/// Rungs that this kernel takes; a socket filter has the code of `TcSwap` and no test run of use.
fn rungs() -> Vec<Rung> {
    let small = || FlowTableConfig {
        max_entries: 64,
        ..FlowTableConfig::default()
    };
    [Rung::TcSwap, Rung::TcLock, Rung::Xdp]
        .into_iter()
        .filter(|rung| FlowTable::with_rungs(&[*rung], small()).is_ok())
        .collect()
}

fn packets(update: &FlowUpdate) -> u64 {
    update.lo_sent.packets + update.hi_sent.packets
}

fn is_readable(fd: BorrowedFd<'_>) -> bool {
    let mut fds = [rustix::event::PollFd::new(
        &fd,
        rustix::event::PollFlags::IN,
    )];
    rustix::event::poll(&mut fds, Some(&rustix::event::Timespec::default())).unwrap() > 0
}

/// One connection, as whoever keeps records adds updates up until the last one.
#[derive(Debug, Default, Clone, Copy)]
struct Connection {
    packets: u64,
    first_ns: u64,
    last_ns: u64,
    flags: [u8; 2],
    server_rtt_ns: u64,
}

fn connections(updates: &[FlowUpdate]) -> Vec<Connection> {
    let (mut all, mut now) = (Vec::new(), Connection::default());
    for update in updates {
        now = Connection {
            packets: now.packets + packets(update),
            first_ns: update.first_ns,
            last_ns: update.last_ns,
            flags: update.tcp.flags,
            server_rtt_ns: update.tcp.server_rtt_ns,
        };
        if update.end.is_some() {
            all.push(std::mem::take(&mut now));
        }
    }
    assert_eq!(now.packets, 0, "an update without an end: {updates:#?}");
    all
}

#[test]
fn each_connection_between_the_same_ports_is_a_record_of_its_own() {
    for rung in rungs() {
        // Drained after so many packets, and never before the end.
        for drain_after in [1, 2, 3, 4, 5, 7, usize::MAX] {
            let mut table = Table::new(rung, 1000);
            let mut updates = Vec::new();
            let mut fed = 0;
            for _ in 0..3 {
                for (from_client, flags) in
                    [(true, SYN), (false, SYN | ACK), (true, ACK), (false, RST)]
                {
                    table.feed(&frame(40_000, from_client, flags));
                    fed += 1;
                    if fed % drain_after == 0 {
                        updates.extend(table.drain());
                    }
                }
            }
            updates.extend(table.finish());
            let found = connections(&updates);
            let counts: Vec<u64> = found.iter().map(|c| c.packets).collect();
            let what = format!("{rung:?}, drained after {drain_after}: {found:#?}");
            assert_eq!(counts, [4, 4, 4], "{what}");
            for connection in &found {
                assert!(connection.server_rtt_ns > 0, "{what}");
                let mut flags = connection.flags;
                flags.sort();
                assert_eq!(flags, [SYN | ACK, SYN | RST | ACK], "{what}");
            }
            for pair in found.windows(2) {
                assert!(pair[0].last_ns <= pair[1].first_ns, "{what}");
            }
        }
    }
}

#[test]
fn ports_used_again_ten_thousand_times_lose_nothing_when_calls_are_answered() {
    for rung in rungs() {
        let mut table = Table::new(rung, 1000);
        let wakeups = table.table.wakeups().unwrap();
        let mut updates = Vec::new();
        for i in 0..10_000 {
            table.feed(&frame(40_000, true, SYN));
            if i % 2 == 0 {
                table.feed(&frame(40_000, false, RST | ACK));
            } else {
                table.feed(&frame(40_000, true, FIN | ACK));
                table.feed(&frame(40_000, false, FIN | ACK));
            }
            if is_readable(wakeups.as_fd()) {
                wakeups.clear();
                updates.extend(table.drain());
            }
        }
        updates.extend(table.finish());
        assert_eq!(connections(&updates).len(), 10_000, "{rung:?}");
        assert_eq!(updates.iter().map(packets).sum::<u64>(), 25_000, "{rung:?}");
        assert_eq!(table.cause(Cause::TableFullTcp), 0, "{rung:?}");
        assert_eq!(table.cause(Cause::ReuseMerged), 0, "{rung:?}");
    }
}

#[test]
fn forged_pairs_of_syn_and_rst_blind_nobody_when_no_drain_comes() {
    for rung in rungs() {
        let mut table = Table::new(rung, 1000);
        for _ in 0..5000 {
            table.feed(&frame(40_000, true, SYN));
            table.feed(&frame(40_000, false, RST | ACK));
        }
        // The table has room for others.
        for port in 1..=1000 {
            table.feed(&frame(port, true, SYN));
        }
        let updates = table.finish();
        assert_eq!(updates.iter().map(packets).sum::<u64>(), 11_000, "{rung:?}");
        assert_eq!(table.cause(Cause::TableFullTcp), 0, "{rung:?}");
        let apart = connections(&updates).len() as u64 - 1000;
        assert!(apart > 300, "{rung:?}: {apart}");
        assert_eq!(apart + table.cause(Cause::ReuseMerged), 5000, "{rung:?}");
    }
}
