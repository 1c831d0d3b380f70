//! `make bench-lake`: rows written per second, bytes a row, compaction, questions; memory. Also fills lakes
//! for `make test-lake`, and says what is in them.
//!
//!     lake_speed ROWS [PLACE]     without PLACE in a temporary directory, which is removed

use std::{
    net::Ipv4Addr,
    time::{Duration, Instant},
};

use skua_flow::{
    ConversationOwner, Counters, EndReason, FlowKey, FlowRecord, FlowUpdate, KIND_ETHERNET, Once,
    Service, ServiceRule, TcpUpdate,
};
use skua_lake::{FlowChange, Lake, Location, Table, Writer, WriterConfig, now_us, query::Question};

/// 2026-11-21T20:00:00Z, ns.
const BEGIN: u64 = 1_795_291_200_000_000_000;
/// Rows of a drain.
const DRAIN: u64 = 10_000;
/// Hours that rows are of.
const HOURS: u64 = 3;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Numbers without a pattern, the same each time (splitmix64).
fn mixed(number: u64) -> u64 {
    let mut z = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// Skewed: small numbers come often.
fn skewed(random: u64, below: u64) -> u64 {
    let unit = (random >> 11) as f64 / (1u64 << 53) as f64;
    ((unit * unit * unit) * below as f64) as u64
}

struct Made {
    record: FlowRecord,
    client: u64,
    service: u64,
}

/// A conversation of some thousand clients with one of 400 services of 40 processes.
fn made(number: u64, rows: u64) -> Made {
    let (one, two, three) = (
        mixed(number),
        mixed(number ^ 1 << 40),
        mixed(number ^ 1 << 41),
    );
    let (client, service) = (skewed(one, 4_000), skewed(two, 400));
    let now =
        BEGIN + (number as u128 * u128::from(HOURS * 3_600_000_000_000) / u128::from(rows)) as u64;
    let mut key = FlowKey {
        proto: if service % 8 == 0 { 17 } else { 6 },
        kind: 1 | KIND_ETHERNET,
        ifindex: 2,
        ..FlowKey::default()
    };
    let mapped = |ip: Ipv4Addr| ip.to_ipv6_mapped().octets();
    key.lo = mapped(Ipv4Addr::from(0x0a00_0000 + client as u32));
    key.hi = mapped(Ipv4Addr::from(0x0a80_0000 + service as u32 / 4));
    key.lo_port = (32_768 + (three % 28_000) as u16).to_be_bytes();
    key.hi_port = (1_000 + service as u16).to_be_bytes();
    let (sent, got) = (1 + skewed(three, 50), 1 + skewed(one ^ two, 400));
    let update = FlowUpdate {
        key,
        lo_sent: Counters::new(sent, sent * 90),
        hi_sent: Counters::new(got, got * 1_100),
        lo_first: true,
        first_ns: now,
        last_ns: now + three % 1_000_000_000,
        tcp: TcpUpdate {
            flags: [0x1a, 0x1a],
            server_rtt_ns: 100_000 + three % 1_000_000,
            client_rtt_ns: 20_000 + two % 100_000,
            lo_opened: Some(true),
            ..TcpUpdate::default()
        },
        end: (!number.is_multiple_of(3)).then_some(EndReason::Closed),
        ..FlowUpdate::default()
    };
    let mut record = FlowRecord::new(&update, 7, 1, now, 1_000_000_000);
    let by = ServiceRule::Kernel;
    record.service = Some(Service { lo: false, by });
    Made {
        record,
        client,
        service,
    }
}

fn fill(place: &Location, rows: u64) -> Outcome<()> {
    let names: Vec<String> = (0..40).map(|number| format!("worker-{number}")).collect();
    let units: Vec<String> = (0..40)
        .map(|number| format!("service-{number}.service"))
        .collect();
    let config = WriterConfig {
        location: place.clone(),
        host: "bench".into(),
        flush: Duration::from_secs(3_600),
        memory: 128 << 20,
    };
    let writer = Writer::open(&config, Table::Flows)?;
    let (begin, mut making) = (Instant::now(), Duration::ZERO);
    let (cpu_before, mut cpu_making) = (cpu(), Duration::ZERO);
    let (mut ab, mut ba) = (0, 0);
    let mut number = 0;
    while number < rows {
        let (before, thread_before) = (Instant::now(), thread_cpu());
        let drain: Vec<Made> = (number..(number + DRAIN).min(rows))
            .map(|n| made(n, rows))
            .collect();
        making += before.elapsed();
        cpu_making += thread_cpu().saturating_sub(thread_before);
        number += drain.len() as u64;
        for made in &drain {
            ab += made.record.lo_sent.bytes;
            ba += made.record.hi_sent.bytes;
        }
        writer.flows(drain.iter().map(|made| {
            let client = ConversationOwner {
                process: &names[made.client as usize % names.len()],
                pid: 1_000 + made.client as u32,
                user: "app",
                ..ConversationOwner::default()
            };
            let unit = &units[made.service as usize % units.len()];
            let server = ConversationOwner {
                process: &unit[..unit.len() - ".service".len()],
                pid: 1 + made.service as u32,
                user: "root",
                unit,
                ..ConversationOwner::default()
            };
            FlowChange {
                once: Once::alone(&made.record, made.record.updated_ns),
                record: &made.record,
                host: "bench",
                interface: "eth0".into(),
                parties: [client, server],
            }
        }));
        // As much as it takes, no more: drains come with pauses.
        while writer.stats().waiting > 200_000 {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
    if !writer.flush(Duration::from_secs(600)) {
        return Err(format!("not written: {:?}", writer.stats()).into());
    }
    let spent = begin.elapsed().saturating_sub(making);
    let cpu = cpu().saturating_sub(cpu_before + cpu_making);
    let stats = writer.stats();
    println!(
        "written   {} rows in {:.2} s: {:.0} rows/s, {:.0} per CPU second, {:.1} bytes a row, {} files; lost {:?}",
        stats.rows,
        spent.as_secs_f64(),
        stats.rows as f64 / spent.as_secs_f64(),
        stats.rows as f64 / cpu.as_secs_f64(),
        stats.bytes as f64 / stats.rows as f64,
        stats.files,
        stats.lost
    );
    println!("sums      ab {ab} ba {ba} rows {}", stats.rows);
    Ok(())
}

fn ask(
    lake: &Lake,
    what: &str,
    change: impl FnOnce(Question) -> skua_lake::Result<Question>,
) -> Outcome<()> {
    let begin = (BEGIN / 1_000) as i64;
    let question = change(Question::new(
        Table::Flows,
        begin,
        begin + HOURS as i64 * 3_600_000_000,
    ))?;
    let (before, cpu_before) = (Instant::now(), thread_cpu());
    let answer = lake.ask(&question)?;
    println!(
        "question  {:>8.3} s, {:.3} s of CPU  {what}: {} of {} groups, {} rows in {} row groups of {} files, {} passed over",
        before.elapsed().as_secs_f64(),
        thread_cpu().saturating_sub(cpu_before).as_secs_f64(),
        answer.groups.len(),
        answer.all_groups,
        answer.rows,
        answer.read,
        answer.files,
        answer.pruned
    );
    match answer.damaged.first() {
        None => Ok(()),
        Some(damaged) => Err(damaged.clone().into()),
    }
}

fn questions(lake: &Lake) -> Outcome<()> {
    ask(lake, "service,process", |q| q.by("service,process"))?;
    ask(lake, "client_address", |q| q.by("client_address"))?;
    ask(lake, "service of one address", |q| {
        q.by("service")?.where_("address=10.0.15.1")
    })?;
    ask(lake, "process of one service", |q| {
        q.by("client_process")?.where_("service=service-7.service")
    })?;
    ask(lake, "ten minutes, service", |mut q| {
        q.until = q.since + 600_000_000;
        q.by("service")
    })
}

/// A line of /proc/self/status, kB.
fn status(name: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|rest| rest.split_whitespace().nth(1));
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// CPU time of this process, all its threads, in hundredths of a second.
fn cpu() -> Duration {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // Behind the name, which may have anything in it.
    let rest = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks = rest.split_whitespace().skip(11).take(2);
    let ticks: u64 = ticks.filter_map(|n| n.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}

/// CPU time of this thread.
fn thread_cpu() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let ns = text.split_whitespace().next().and_then(|n| n.parse().ok());
    Duration::from_nanos(ns.unwrap_or(0))
}

fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let rows = arguments
        .next()
        .map_or(Ok(5_000_000), |rows| rows.parse())?;
    let directory = std::env::temp_dir().join(format!("skua-lake-{}", std::process::id()));
    let named = arguments.next();
    let place: Location = match &named {
        Some(place) => place.parse()?,
        None => directory.to_string_lossy().parse()?,
    };
    let done = run(&place, rows);
    if named.is_none() {
        std::fs::remove_dir_all(&directory)?;
    }
    done
}

fn run(place: &Location, rows: u64) -> Outcome<()> {
    fill(place, rows)?;
    println!("memory    {} MiB at most, to here", status("VmHWM") >> 10);
    let lake = Lake::open(place)?;
    questions(&lake)?;
    let (before, cpu_before) = (Instant::now(), cpu());
    let done = lake.compact(
        None,
        now_us().max((BEGIN / 1_000) as i64 + 24 * 3_600_000_000),
    )?;
    let spent = before.elapsed().as_secs_f64();
    let cpu = cpu().saturating_sub(cpu_before).as_secs_f64();
    let bytes: u64 = lake.list()?.iter().map(|hour| hour.bytes).sum();
    println!(
        "compacted {} files into {} in {spent:.2} s: {:.0} rows/s, {:.0} per CPU second, {:.1} bytes a row",
        done.from,
        done.into,
        done.rows as f64 / spent,
        done.rows as f64 / cpu,
        bytes as f64 / rows as f64
    );
    questions(&lake)?;
    println!("memory    {} MiB at most", status("VmHWM") >> 10);
    Ok(())
}
