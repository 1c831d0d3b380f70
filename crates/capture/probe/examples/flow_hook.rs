//! Attaches the flow program to one interface and nothing else, says so with the program's number, and waits to be
//! ended: what `make bench-flow` and `make bench-addresses` measure.
//!
//! `flow_hook --interface IF [--max-entries N] [--max-addresses N] [--exclude-net PREFIX|@FILE]`

use std::{error::Error, os::fd::AsRawFd as _, sync::Arc};

use skua_flow::{AddressSet, Mark};
use skua_kernel::{
    Attachment, Direction, HookKind,
    flow::{FlowTable, FlowTableConfig, LinkKind},
};
use skua_link::LinkSocket;

/// Prefixes of an argument: itself, or the lines of a file.
fn prefixes(text: &str) -> Result<AddressSet, Box<dyn Error>> {
    let lines = match text.strip_prefix('@') {
        Some(file) => std::fs::read_to_string(file)?,
        None => text.to_owned(),
    };
    let mut set = AddressSet::default();
    for line in lines.lines() {
        set.insert(line.parse()?, Mark::Exclude);
    }
    Ok(set)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut config = FlowTableConfig {
        max_entries: 500_000,
        max_addresses: 0,
        ..FlowTableConfig::default()
    };
    let (mut interface, mut excluded) = (String::new(), AddressSet::default());
    let mut arguments = std::env::args().skip(1);
    while let Some(flag) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("{flag} what?"))?;
        match flag.as_str() {
            "--interface" => interface = value,
            "--max-entries" => config.max_entries = value.parse()?,
            "--max-addresses" => config.max_addresses = value.parse()?,
            "--exclude-net" => excluded = prefixes(&value)?,
            _ => return Err(format!("{flag} is unknown").into()),
        }
    }
    let links = LinkSocket::open()?.list()?;
    let link = links.iter().find(|link| link.name == interface);
    let link = link.ok_or_else(|| format!("no interface is called {interface}"))?;
    let mut table = FlowTable::new(HookKind::Tcx, config)?;
    if let Some(mut addresses) = table.addresses()? {
        addresses.set(&Arc::new(excluded))?;
    }
    table.add_point(0, link.ifindex)?;
    let program = table.program(0, Direction::Ingress, LinkKind::Ethernet)?;
    let program = program.ok_or("the hook has no program")?;
    // The kernel tells the program's id there.
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", program.as_raw_fd()))?;
    let id = info.lines().find_map(|line| line.strip_prefix("prog_id:"));
    let id: u32 = id
        .ok_or("the kernel does not tell the program's id")?
        .trim()
        .parse()?;
    // The kernel detaches it when the process ends.
    let _attachment = Attachment::new(program, link.ifindex, Direction::Ingress, HookKind::Tcx)?;
    println!("{{\"ready\":true,\"prog_id\":{id}}}");
    loop {
        std::thread::park();
    }
}
