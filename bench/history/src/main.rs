//! Where the history of flows could be kept: the same rows into each library, a part of an hour a
//! partition where that is natural. `bench-history write|read|kill DIR`, one library by feature.

mod engine;

use engine::Engine;
use skua_flow::{Counters, FlowKey, FlowRecord, FlowUpdate};
use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
    time::Instant,
};

pub const SECOND: u64 = 1_000_000_000;
pub const BEGIN: u64 = 1_714_564_800 * SECOND;
const DRAIN: usize = 10_000;

/// A change of a flow.
pub struct Row {
    pub record: FlowRecord,
    pub added: [Counters; 2],
    pub since_ns: u64,
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

/// A drain each second with so many changes: three in ten are of new flows, the others of such that
/// were there in one of the last drains.
struct Traffic {
    random: Random,
    live: Vec<FlowRecord>,
    now: u64,
}

impl Traffic {
    fn new() -> Self {
        Self {
            random: Random(88_172_645_463_325_252),
            live: Vec::new(),
            now: BEGIN,
        }
    }

    fn drain(&mut self) -> Vec<Row> {
        let before = self.now;
        self.now += SECOND;
        let mut rows = Vec::with_capacity(DRAIN);
        for _ in 0..DRAIN {
            let old = (self.random.below(10) >= 3 && !self.live.is_empty())
                .then(|| self.random.below(self.live.len() as u64) as usize);
            let packets = 1 + self.random.below(40);
            let at = before + self.random.below(SECOND / 2);
            let last = at + self.random.below(SECOND / 2);
            let mut update = FlowUpdate {
                lo_sent: Counters::new(packets, packets * (60 + self.random.below(1_400))),
                hi_sent: Counters::new(packets / 2, packets * (60 + self.random.below(200))),
                lo_first: true,
                first_ns: at,
                last_ns: last,
                ..FlowUpdate::default()
            };
            update.tcp.flags = [0x1a, 0x12];
            update.tcp.server_rtt_ns = 1_000_000 + self.random.below(1_000_000);
            let (record, since_ns) = match old {
                Some(at) if self.live[at].updated_ns < self.now => {
                    let record = &mut self.live[at];
                    let since = record.last_ns;
                    update.first_ns = record.first_ns;
                    record.apply(&update, self.now, SECOND);
                    (*record, since)
                }
                _ => {
                    let mut key = FlowKey {
                        ifindex: 2,
                        proto: 6,
                        kind: 1 | 1 << 2,
                        lo_port: (32_768 + self.random.below(28_000) as u16).to_be_bytes(),
                        hi_port: [443u16, 80, 5_432, 53][self.random.below(4) as usize].to_be_bytes(),
                        ..FlowKey::default()
                    };
                    for address in [&mut key.lo, &mut key.hi] {
                        address[10..12].copy_from_slice(&[0xff; 2]);
                    }
                    key.lo[12..].copy_from_slice(&[10, 1, 0, self.random.below(20) as u8]);
                    let peer = self.random.below(20_000) as u32 + 0x0b00_0000;
                    key.hi[12..].copy_from_slice(&peer.to_be_bytes());
                    update.key = key;
                    let record = FlowRecord::new(&update, 7, 1, self.now, SECOND);
                    if self.live.len() < 100_000 {
                        self.live.push(record);
                    } else {
                        let at = self.random.below(100_000) as usize;
                        self.live[at] = record;
                    }
                    (record, at)
                }
            };
            rows.push(Row {
                added: [update.lo_sent, update.hi_sent],
                record,
                since_ns,
            });
        }
        rows
    }
}

/// All of a row in a row of bytes, for libraries that keep rows.
pub fn encode(row: &Row) -> Vec<u8> {
    fn put(out: &mut Vec<u8>, mut number: u64) {
        while number >= 0x80 {
            out.push(number as u8 | 0x80);
            number >>= 7;
        }
        out.push(number as u8);
    }
    let r = &row.record;
    let mut out = Vec::with_capacity(128);
    for address in [&r.key.lo, &r.key.hi] {
        out.extend_from_slice(&address[12..]);
    }
    out.extend_from_slice(&r.key.lo_port);
    out.extend_from_slice(&r.key.hi_port);
    out.extend_from_slice(&r.id.to_le_bytes()[..6]);
    for number in [
        r.key.ifindex.into(),
        r.key.netns.into(),
        r.key.proto.into(),
        r.key.kind.into(),
        r.key.detail.into(),
        r.lo_sent.packets,
        r.lo_sent.bytes,
        r.hi_sent.packets,
        r.hi_sent.bytes,
        row.added[0].packets,
        row.added[0].bytes,
        row.added[1].packets,
        row.added[1].bytes,
        r.updated_ns - r.last_ns,
        r.last_ns - r.first_ns,
        r.last_ns - row.since_ns,
        r.tcp.flags[0].into(),
        r.tcp.flags[1].into(),
        r.tcp.server_rtt_ns,
        r.tunnel_id.into(),
        r.sampling.into(),
        // Context and parties by number, and nine small ones that are 0.
        1, 2, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    ] {
        put(&mut out, number);
    }
    out
}

fn cpu() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn disk(dir: &Path) -> u64 {
    let out = Command::new("du").arg("-sB1").arg(dir).output().expect("du");
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    text.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or(0)
}

fn timed<T>(what: &str, run: impl FnOnce() -> T) -> T {
    let (wall, before) = (Instant::now(), cpu());
    let result = run();
    println!("{what}: {:.3} s, {:.3} CPU s", wall.elapsed().as_secs_f64(), cpu() - before);
    result
}

fn main() {
    let args: Vec<_> = std::env::args().collect();
    let dir = Path::new(&args[2]);
    match args[1].as_str() {
        "write" => write(dir),
        "read" => read(dir),
        "child" => child(dir),
        "rows" => {
            let mut engine = Engine::open(dir);
            println!("{} rows, {} flows", engine.rows(), engine.scan(0, u64::MAX >> 1));
        }
        "kill" => kill(dir, &args[0]),
        other => panic!("what is {other}?"),
    }
}

/// 1,200,000 changes, one drain a transaction, synced with each.
fn write(dir: &Path) {
    let mut traffic = Traffic::new();
    let drains: Vec<_> = (0..120).map(|_| traffic.drain()).collect();
    let mut engine = Engine::open(dir);
    let (wall, before) = (Instant::now(), cpu());
    for drain in &drains {
        engine.append(drain, true);
    }
    engine.finish();
    let (wall, used) = (wall.elapsed().as_secs_f64(), cpu() - before);
    let rows = drains.len() * DRAIN;
    println!("write: {wall:.2} s, {:.0} ns CPU a row", used * 1e9 / rows as f64);
    println!("bytes a row: {:.1}", disk(dir) as f64 / rows as f64);
    drop(engine);
    println!("bytes a row, closed: {:.1}", disk(dir) as f64 / rows as f64);
}

fn read(dir: &Path) {
    let mut engine = timed("open", || Engine::open(dir));
    for round in ["cold", "warm"] {
        let all = timed(&format!("scan all, {round}"), || engine.scan(0, BEGIN + 1_000 * SECOND));
        println!("  {all} flows");
    }
    let (from, to) = (BEGIN + 50 * SECOND, BEGIN + 60 * SECOND);
    let some = timed("scan 10 s of 120", || engine.scan(from, to));
    println!("  {some} flows");
    let before = disk(dir);
    timed("delete half", || engine.delete_before(BEGIN + 60 * SECOND));
    println!("  {:.0}% of the bytes are left", disk(dir) as f64 * 100.0 / before as f64);
}

fn child(dir: &Path) {
    let mut traffic = Traffic::new();
    let mut engine = Engine::open(dir);
    for number in 1.. {
        engine.append(&traffic.drain(), false);
        println!("{number}");
    }
}

fn kill(dir: &Path, own: &str) {
    let mut child = Command::new(own)
        .args(["child".as_ref(), dir.as_os_str()])
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut said = 0;
    let end = Instant::now();
    for line in BufReader::new(child.stdout.take().expect("piped")).lines() {
        said = line.expect("text").parse().expect("number");
        if end.elapsed().as_secs() >= 3 || said >= 60 {
            break;
        }
    }
    child.kill().expect("runs");
    child.wait().expect("ran");
    let mut engine = timed("open after kill -9", || Engine::open(dir));
    println!("  said {said} drains; there are {} rows", engine.rows() as f64 / DRAIN as f64);
}
