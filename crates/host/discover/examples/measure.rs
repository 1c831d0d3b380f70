//! What discovery costs: `unshare --net measure [INTERFACES [SECONDS]]`. Makes so many interfaces (pairs
//! of veth, up, with an address) in the namespace that it runs in, and prints the time to the full graph,
//! memory for each interface, and CPU time and wake-ups of the idle thread.

use skua_discover::{Discovery, DiscoveryConfig};
use skua_topology::{Config, SharedGraph};
use std::{
    fs,
    io::Write as _,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<u64>());
    let interfaces = arguments.next().transpose()?.unwrap_or(1_000);
    let seconds = arguments.next().transpose()?.unwrap_or(30);
    if fs::read_to_string("/proc/self/net/dev")?.lines().count() > 3 {
        return Err("run it in an empty network namespace: unshare --net".into());
    }
    make(interfaces)?;

    let before = resident()?;
    let graph = SharedGraph::new(Config::default());
    let begun = Instant::now();
    let discovery = Discovery::start(DiscoveryConfig::default(), graph.clone())?;
    let took = begun.elapsed();
    let stats = graph.read().stats();
    println!(
        "full graph: {took:.1?}; {} nodes, {} edges",
        stats.nodes, stats.edges
    );
    let memory = resident()?.saturating_sub(before);
    println!(
        "memory: {memory} KiB, {} bytes for each interface",
        memory * 1024 / interfaces
    );

    // What is still on its way (IPv6 addresses, carrier) is not idleness.
    std::thread::sleep(Duration::from_secs(12));
    let (cpu, waits) = thread()?;
    let events = discovery.counters().events;
    std::thread::sleep(Duration::from_secs(seconds));
    let (cpu_then, waits_then) = thread()?;
    let counters = discovery.counters();
    println!(
        "idle for {seconds} s: {:.1} ms CPU ({:.3} %), {} wake-ups, {} events",
        (cpu_then - cpu) as f64 / 1e6,
        (cpu_then - cpu) as f64 / 1e7 / seconds as f64,
        waits_then - waits,
        counters.events - events,
    );
    println!("{counters:?}");
    Ok(())
}

fn make(interfaces: u64) -> Result<(), Failure> {
    let mut ip = Command::new("ip")
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .spawn()?;
    let mut input = ip.stdin.take().ok_or("no input")?;
    for at in 0..interfaces / 2 {
        writeln!(input, "link add a{at} type veth peer name b{at}")?;
        writeln!(
            input,
            "addr add 10.{}.{}.1/24 dev a{at}",
            at / 250,
            at % 250
        )?;
        writeln!(input, "link set a{at} up")?;
        writeln!(input, "link set b{at} up")?;
    }
    drop(input);
    if !ip.wait()?.success() {
        return Err("ip failed".into());
    }
    Ok(())
}

/// Resident memory, KiB.
fn resident() -> Result<u64, Failure> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().nth(1));
    Ok(number.ok_or("no VmRSS")?.parse()?)
}

/// CPU time in ns, and how often the thread waited.
fn thread() -> Result<(u64, u64), Failure> {
    for task in fs::read_dir("/proc/self/task")? {
        let path = task?.path();
        if fs::read_to_string(path.join("comm"))?.trim() != "discover-net" {
            continue;
        }
        let ran = fs::read_to_string(path.join("schedstat"))?;
        let ran = ran
            .split_whitespace()
            .next()
            .ok_or("no schedstat")?
            .parse()?;
        let status = fs::read_to_string(path.join("status"))?;
        let line = status
            .lines()
            .find(|l| l.starts_with("voluntary_ctxt_switches"));
        let number = line.and_then(|line| line.split_whitespace().nth(1));
        return Ok((ran, number.ok_or("no count")?.parse()?));
    }
    Err("the thread is gone".into())
}
