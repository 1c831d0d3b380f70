//! `skua replay`: the same pipeline on a capture file.

use std::{
    io::{self, Read},
    path::Path,
};

use anyhow::bail;
use skua_file::CaptureFile;
use skua_filter::Filter;
use skua_flow::{CapturePoint, Cause, Counters, FlowTable, Query, TableConfig};
use skua_packet::{Frame, LinkType};
use skua_probe::Account;

use crate::{
    args::{OutputFormat, ReplayArguments, SummaryFormat},
    flows::{Printer, write_flows},
    state::State,
    summary,
};

pub fn replay(arguments: &ReplayArguments) -> anyhow::Result<()> {
    if arguments.file == Path::new("-") {
        run(
            arguments,
            CaptureFile::new("standard input", io::stdin().lock())?,
        )
    } else {
        run(arguments, CaptureFile::open(&arguments.file)?)
    }
}

/// Expression compiled for each kind of link that the file has, when it is met.
struct Filters<'a> {
    expression: Option<&'a str>,
    ethernet: Option<Filter>,
    ip: Option<Filter>,
}

impl<'a> Filters<'a> {
    fn new(expression: Option<&'a str>) -> anyhow::Result<Self> {
        let ethernet = match expression {
            Some(expression) => Some(Filter::compile(
                expression,
                skua_filter::LinkType::Ethernet,
            )?),
            None => None,
        };
        Ok(Self {
            expression,
            ethernet,
            ip: None,
        })
    }

    fn matches(&mut self, frame: &Frame<'_>) -> anyhow::Result<bool> {
        let Some(expression) = self.expression else {
            return Ok(true);
        };
        let filter = match frame.link {
            LinkType::Ethernet => &self.ethernet,
            LinkType::RawIp => {
                if self.ip.is_none() {
                    self.ip = Some(Filter::compile(expression, skua_filter::LinkType::RawIp)?);
                }
                &self.ip
            }
            other => {
                bail!("--filter works on Ethernet and raw IP; the file has link type {other:?}")
            }
        };
        Ok(filter
            .as_ref()
            .is_none_or(|f| f.matches_captured(frame.data, frame.wire_len)))
    }
}

fn run<R: Read>(arguments: &ReplayArguments, mut file: CaptureFile<R>) -> anyhow::Result<()> {
    let mut filters = Filters::new(arguments.filter.as_deref())?;
    let mut table = FlowTable::new(&TableConfig {
        max_entries: arguments.max_entries as usize,
        idle_timeout: None,
        tunnels: arguments.tunnels,
        ..TableConfig::default()
    });
    let mut sample = Sampler::new(arguments.sampling);
    // Interfaces count from 1, as those of a host do.
    let mut last_ns = 0;
    while let Some(packet) = file.next_packet()? {
        let frame = Frame {
            data: packet.data,
            wire_len: packet.wire_len,
            link: packet.link_type,
            stripped_vlan: None,
            segments: 1,
        };
        let point = CapturePoint {
            ifindex: packet.interface + 1,
            ..CapturePoint::default()
        };
        let wire = Counters {
            packets: 1,
            bytes: u64::from(frame.wire_len),
        };
        last_ns = packet.timestamp_ns.max(last_ns);
        if !filters.matches(&frame)? {
            table.count(point, Cause::Filtered, wire);
        } else if !sample.take() {
            table.count(point, Cause::SampledOut, wire);
        } else {
            table.packet(point, &frame, packet.timestamp_ns);
        }
    }
    if let Some(cut_off) = file.cut_off() {
        tracing::warn!("{cut_off}");
    }

    let mut state = State::new(u64::MAX, usize::MAX >> 16, table.seed(), arguments.sampling);
    for (i, interface) in file.interfaces().iter().enumerate() {
        let name = match &interface.name {
            Some(name) => name.to_string(),
            None => arguments.file.file_stem().map_or_else(
                || format!("if{i}"),
                |stem| stem.to_string_lossy().into_owned(),
            ),
        };
        state.name_interface(0, i as u32 + 1, "", &name);
    }
    let mut account = Account {
        max_entries: u64::from(arguments.max_entries),
        ..Account::default()
    };
    account.inserted = table.len() as u64;
    state.begin_drain();
    table.finish(|update| {
        if update.key.tunnel().is_none() {
            account.gone.flows.ingress += update.lo_sent + update.hi_sent;
        }
        state.apply(update);
    });
    for (_, counters) in table.points() {
        for (cause, sum) in counters.iter() {
            account.gone.ingress[cause as usize] += sum;
        }
    }
    let mut lines = Vec::new();
    write_flows(
        &mut lines,
        &state,
        &Query {
            filter: |_: &_| true,
            sort: arguments.sort.by(),
            limit: arguments.limit.unwrap_or(usize::MAX),
        },
        arguments.output == OutputFormat::Csv,
    );
    Printer::for_format(arguments.output).finish(&lines)?;
    let lost = account.lost();
    if arguments.summary.is_some() || lost.packets > 0 {
        let format = arguments.summary.or(Some(SummaryFormat::Text));
        summary::print(format, &account, &state.store.summary());
    }
    Ok(())
}

/// Takes one packet of N at random, as the kernel does.
struct Sampler {
    every: u32,
    /// State of a xorshift generator (Marsaglia 2003); replays repeat exactly.
    state: u32,
}

impl Sampler {
    fn new(every: u32) -> Self {
        Self {
            every,
            state: 0x9e37_79b9,
        }
    }

    fn take(&mut self) -> bool {
        if self.every <= 1 {
            return true;
        }
        self.state ^= self.state << 13;
        self.state ^= self.state >> 17;
        self.state ^= self.state << 5;
        self.state.is_multiple_of(self.every)
    }
}
