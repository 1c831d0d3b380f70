//! Many agents on one machine: `agents COLLECTOR:PORT AGENTS CONVERSATIONS SECONDS RECORDS_PER_SECOND`.
//!
//! Each agent has an address of its own in 127.0.0.0/8, and conversations with services of other agents, which tell
//! of them, too. Prints what was sent as JSON. Times of drains are not the sender's clock but run as fast as
//! records are to be sent, so that a drain of each agent is a window's second.

use std::{
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    num::NonZeroU32,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use skua_collect::{Drain, Enrichment, Exporter, ExporterConfig, Offered, Tcp};
use skua_flow::{
    Counters, FlowKey, FlowRecord, FlowStore, FlowUpdate, Ownership, Service, ServiceRule,
    StoreLimits,
};
use skua_wire::sflow::{Name, ServiceName, SocketTcp};

/// Services of an agent.
const SERVICES: u32 = 8;

struct Names(Vec<String>);

impl Enrichment for Names {
    fn name(&self, owner: NonZeroU32) -> Option<Name<'_>> {
        Some(Name {
            by: ServiceName::Container,
            process: "server",
            container: self.0.get(owner.get() as usize - 1)?,
            ..Name::default()
        })
    }

    fn tcp(&self, record: &FlowRecord) -> Option<Tcp> {
        Some(Tcp {
            socket: SocketTcp {
                destination: false,
                srtt_us: 100 + (record.id % 1_000) as u32,
            },
            info: None,
        })
    }
}

struct Agent {
    socket: UdpSocket,
    store: FlowStore,
    exporter: Exporter,
    keys: Vec<(FlowKey, Ownership)>,
}

fn address(agent: u32) -> Ipv4Addr {
    let [_, a, b, c] = (agent + 256).to_be_bytes();
    Ipv4Addr::new(127, a, b, c)
}

fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos() as u64)
}

/// Both sides' view of a conversation.
fn conversation(client: u32, server: u32, number: u32) -> [(FlowKey, Ownership); 2] {
    let octets = |agent| address(agent).to_ipv6_mapped().octets();
    let service = number % SERVICES;
    let caller = (octets(client), 32_768 + (number % 28_000) as u16);
    let called = (octets(server), 8_000 + service as u16);
    let lo = caller <= called;
    let [low, high] = if lo {
        [caller, called]
    } else {
        [called, caller]
    };
    let key = FlowKey {
        lo: low.0,
        hi: high.0,
        lo_port: low.1.to_be_bytes(),
        hi_port: high.1.to_be_bytes(),
        ifindex: 2,
        proto: 6,
        kind: 1 | 4,
        ..FlowKey::default()
    };
    let owner = |agent: u32, service: u32| NonZeroU32::new(agent * SERVICES + service + 1);
    let side = |owners: [Option<NonZeroU32>; 2]| Ownership {
        owners: if lo { owners } else { [owners[1], owners[0]] },
        service: Some(Service {
            lo: !lo,
            by: ServiceRule::Kernel,
        }),
    };
    [
        (key, side([owner(client, number / 7 % SERVICES), None])),
        (key, side([None, owner(server, service)])),
    ]
}

fn agents(count: u32, conversations: u32, to: SocketAddr) -> std::io::Result<Vec<Agent>> {
    let started_ns = now_ns();
    let mut all = Vec::new();
    for number in 0..count {
        let socket = UdpSocket::bind((address(number), 0))?;
        socket.connect(to)?;
        let mut store = FlowStore::new(StoreLimits::default(), number.into(), 1);
        store.note_touched();
        all.push(Agent {
            socket,
            store,
            exporter: Exporter::new(ExporterConfig {
                agent: address(number).into(),
                sub_agent: 0,
                instance: started_ns ^ u64::from(number),
                started_ns,
                datagram: 1_400,
                both_directions: false,
            }),
            keys: Vec::new(),
        });
    }
    for client in 0..count {
        for number in 0..conversations {
            let server = (client + 1 + number * 13) % count;
            let [one, other] = conversation(client, server, number);
            all[client as usize].keys.push(one);
            all[server as usize].keys.push(other);
        }
    }
    Ok(all)
}

fn main() -> std::io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [to, count, conversations, seconds, rate] = &arguments[..] else {
        eprintln!("agents COLLECTOR:PORT AGENTS CONVERSATIONS SECONDS RECORDS_PER_SECOND");
        std::process::exit(2);
    };
    let number = |text: &String| text.parse::<u32>().unwrap_or(1).max(1);
    let (count, conversations) = (number(count), number(conversations));
    let (seconds, rate) = (number(seconds), f64::from(number(rate)));
    let to = to.parse().map_err(std::io::Error::other)?;
    let names = (0..count * SERVICES).map(|n| format!("service-{n}"));
    let names = Names(names.collect());
    let mut all = agents(count, conversations, to)?;
    let (begin, end) = (Instant::now(), Duration::from_secs(seconds.into()));
    let (mut records, mut datagrams, mut refused, mut rounds) = (0u64, 0u64, 0u64, 0u64);
    while begin.elapsed() < end {
        rounds += 1;
        for agent in &mut all {
            let now = now_ns();
            agent.store.begin_drain(now);
            for (key, ownership) in &agent.keys {
                let update = FlowUpdate {
                    key: *key,
                    lo_sent: Counters::new(10, 1_000),
                    hi_sent: Counters::new(10, 10_000),
                    lo_first: true,
                    first_ns: now,
                    last_ns: now,
                    ..FlowUpdate::default()
                };
                agent.store.apply_owned(&update, |_| *ownership);
            }
            agent.store.end_drain();
            let drain = Drain {
                enrichment: &names,
                ..Drain::at(now)
            };
            let socket = &agent.socket;
            agent
                .exporter
                .export(agent.store.touched(), &drain, |bytes| {
                    datagrams += 1;
                    refused += u64::from(socket.send(bytes).is_err());
                    Offered::Queued
                });
            records += agent.keys.len() as u64;
            let due = Duration::from_secs_f64(records as f64 / rate);
            std::thread::sleep(due.saturating_sub(begin.elapsed()));
        }
    }
    let seconds = begin.elapsed().as_secs_f64();
    println!(
        "{{\"agents\":{count},\"records\":{records},\"datagrams\":{datagrams},\"refused\":{refused},\
         \"rounds\":{rounds},\"seconds\":{seconds:.2}}}"
    );
    Ok(())
}
