//! `skua bench-hook`, for `make bench-flow`: the flow program on one interface and nothing else.

use std::{io::Write as _, os::fd::AsRawFd as _, sync::Arc};

use anyhow::Context as _;
use signal_hook::iterator::Signals;
use skua_config::addresses;
use skua_flow::{AddressSet, Mark};
use skua_kernel::{
    Attachment, Direction, HookKind,
    flow::{FlowTable, FlowTableConfig, LinkKind},
};
use skua_link::LinkSocket;

use crate::arguments::BenchHookArguments;

pub fn bench_hook(arguments: &BenchHookArguments) -> anyhow::Result<()> {
    let links = LinkSocket::open()?.list()?;
    let link = links
        .iter()
        .find(|link| link.name == arguments.interface)
        .with_context(|| format!("no interface is called {}", arguments.interface))?;
    let config = FlowTableConfig {
        max_entries: arguments.max_entries,
        max_addresses: arguments.max_addresses,
        ..FlowTableConfig::default()
    };
    let mut table = FlowTable::new(HookKind::Tcx, config)?;
    if let Some(mut addresses) = table.addresses()? {
        let mut set = AddressSet::default();
        for text in addresses::expand("--exclude-net", &arguments.exclude_net)? {
            set.insert(text.parse()?, Mark::Exclude);
        }
        addresses.set(&Arc::new(set))?;
    }
    table.add_point(0, link.ifindex)?;
    let program = table
        .program(0, Direction::Ingress, LinkKind::Ethernet)?
        .context("the hook has no program")?;
    // The kernel tells the program's id there.
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", program.as_raw_fd()))?;
    let id: u32 = info
        .lines()
        .find_map(|line| line.strip_prefix("prog_id:"))
        .and_then(|id| id.trim().parse().ok())
        .context("the kernel does not tell the program's id")?;
    let attachment = Attachment::new(program, link.ifindex, Direction::Ingress, HookKind::Tcx)?;
    let mut signals = Signals::new([signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM])?;
    let mut out = std::io::stdout();
    writeln!(out, "{{\"ready\":true,\"prog_id\":{id}}}")?;
    out.flush()?;
    signals.forever().next();
    drop(attachment);
    Ok(())
}
