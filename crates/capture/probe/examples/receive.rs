//! Listens for sFlow, NetFlow and IPFIX, or streams of packets, and prints what came: `cargo run -p
//! skua-probe --example receive -- sflow|netflow|pcapsocket ADDRESS:PORT SECONDS|- [--flows]`; `-` is until standard input ends.

use std::{
    error::Error,
    net::SocketAddr,
    os::fd::AsFd as _,
    time::{Duration, Instant},
};

use skua_flow::{FlowStore, FlowUpdate, StoreLimits};
use skua_probe::{
    Probe, Wake,
    receive::{NetflowProbe, PcapSocketConfig, PcapSocketProbe, ReceiverConfig, SflowProbe},
};

const SEED: u64 = 1;

fn start(kind: &str, address: SocketAddr) -> Result<Box<dyn Probe>, Box<dyn Error>> {
    let config = ReceiverConfig::at(address);
    Ok(match kind {
        "sflow" => Box::new(SflowProbe::start(config)?),
        "netflow" => Box::new(NetflowProbe::start(config)?),
        "pcapsocket" => Box::new(PcapSocketProbe::start(PcapSocketConfig::at(address))?),
        _ => return Err("sflow, netflow or pcapsocket".into()),
    })
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [kind, address, seconds, rest @ ..] = &arguments[..] else {
        return Err(
            "usage: receive sflow|netflow|pcapsocket ADDRESS:PORT SECONDS|- [--flows]".into(),
        );
    };
    let mut probe = start(kind, address.parse()?)?;
    let stdin = std::io::stdin();
    let (end, caller) = match seconds.as_str() {
        "-" => (None, Some(stdin.as_fd())),
        seconds => (
            Some(Instant::now() + Duration::from_secs(seconds.parse()?)),
            None,
        ),
    };
    let mut store = FlowStore::new(StoreLimits::default(), SEED, 1);
    while end.is_none_or(|end| Instant::now() < end) {
        let wake = probe.wait(caller, end)?;
        if wake == Wake::Caller {
            break;
        }
        probe.drain(wake, &mut |update: &FlowUpdate| {
            store.apply(update);
        })?;
    }
    probe.finish(&mut |update| {
        store.apply(update);
    })?;
    let names = probe.interfaces();
    if rest.iter().any(|a| a == "--flows") {
        for record in store.iter() {
            let place = (record.key.netns, record.key.ifindex);
            let name = names.iter().find(|w| (w.netns, w.ifindex) == place);
            let line = record.line(name.map_or("", |watched| &watched.name));
            println!("{}", serde_json::to_string(&line)?);
        }
    }
    let account = probe.account();
    println!("interfaces: {names:?}");
    println!("counted: {:?}", store.summary());
    println!(
        "in flows: {:?}, causes: {:?}",
        account.in_flows(),
        account.causes()
    );
    println!("received: {:?}", account.received);
    println!(
        "lost: {:?}",
        account
            .received
            .causes()
            .map(|(cause, units)| (cause.name(), units))
            .collect::<Vec<_>>()
    );
    Ok(())
}
