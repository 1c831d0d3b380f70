//! `skua flows`: conversations of the running `skua run`, or captured on the spot.

use std::{
    io::{self, IsTerminal as _},
    time::Duration,
};

use anyhow::bail;
use skua_client as client;
use skua_client::Client;
use skua_config::Config;
use skua_flow::{Query, View};
use skua_output as output;
use skua_output::{OutputFormat, Printer};
use skua_state::{Observers, Shared};
use skua_watch::{
    filter::{self, Understood},
    flow_lines::write_flows,
    groups,
    session::Session,
    summary,
};

use crate::{
    arguments::FlowsArguments,
    empty::{self, Asked},
    lake,
};

/// Most records of a capture by this command.
const RECORDS: usize = 8_000_000;
/// Duration of a capture by this command, by default.
const DEFAULT_DURATION: Duration = Duration::from_secs(10);
/// Interval of `--follow`.
const FOLLOW_INTERVAL: Duration = Duration::from_secs(2);

pub fn flows(arguments: &FlowsArguments) -> anyhow::Result<()> {
    if arguments.lake.is_asked() {
        return lake::flows(arguments);
    }
    // Before anything is captured.
    let filter = filter::understand(arguments.capture.filter.as_deref().unwrap_or_default())?;
    filter::flow_filter(None, &arguments.conditions())?;
    printer(arguments)?;
    let here = !arguments.capture.interface.is_empty() || arguments.duration.is_some();
    if !here && let Some(client) = Client::connect(&arguments.analyzer)? {
        if !arguments.capture.include_net.is_empty() || !arguments.capture.exclude_net.is_empty() {
            bail!(
                "--include-net and --exclude-net choose what is captured: add --interface or \
                 --duration, or use `skua addresses` for the running `skua run`"
            );
        }
        return from_analyzer(arguments, &client);
    }
    let on_purpose = here || arguments.follow;
    let duration = match (arguments.duration, on_purpose) {
        (None, false) => {
            eprintln!(
                "skua: no `skua run` answers at {}; capturing on all interfaces for 10 s \
                 (--duration says otherwise)",
                arguments.analyzer.address
            );
            Some(DEFAULT_DURATION)
        }
        (duration, _) => duration,
    };
    capture(arguments, &filter, duration)
}

/// `--by` of the view that lists each conversation at each interface.
const BY_POINT: &str = "point";

/// What to sum up by.
fn by(arguments: &FlowsArguments) -> anyhow::Result<Option<groups::By>> {
    let by = arguments.by.as_deref().filter(|by| *by != BY_POINT);
    by.map(groups::By::named).transpose()
}

/// What a row shows. Users who name interfaces want to compare them.
fn view(arguments: &FlowsArguments) -> View {
    if arguments.by.as_deref() == Some(BY_POINT) || !arguments.capture.interface.is_empty() {
        View::Points
    } else {
        View::Conversations
    }
}

fn printer(arguments: &FlowsArguments) -> anyhow::Result<Printer> {
    match by(arguments)? {
        None => Printer::of_flows(arguments.print.output),
        Some(by) => groups::printer(by, arguments.print.output),
    }
    .with_columns(&arguments.columns)
}

/// What may have left conversations out.
fn asked<'a>(arguments: &'a FlowsArguments, none: &'a str) -> Asked<'a> {
    Asked {
        records: "conversations",
        filter: arguments.capture.filter.as_deref(),
        conditions: &arguments.conditions,
        options: (arguments.also.iter().map(|text| format!("`{text}`")))
            .chain(arguments.active.then(|| "--active".to_owned()))
            .collect(),
        none,
    }
}

/// Captures in this process.
fn capture(
    arguments: &FlowsArguments,
    filter: &Understood,
    duration: Option<Duration>,
) -> anyhow::Result<()> {
    let mut captured = arguments.capture.clone();
    if filter.conditions.is_some() {
        // They are asked of what was captured.
        captured.filter = None;
    }
    let mut conditions = arguments.conditions();
    conditions.extend(filter.conditions.clone());
    let mut config = Config::load(captured.config.as_deref())?.with_arguments(&captured)?;
    if arguments.follow && arguments.capture.scan_interval.is_none() {
        config.agent.flow.ebpf.kernel_scan_interval = FOLLOW_INTERVAL;
    }
    // The address set cannot change here: without one, it costs nothing.
    config.flow.addresses.max_entries = config.flow.addresses.marks()?.len() as u32;
    // All flows are printed at the end: they must fit.
    config.history.memory = u64::MAX;
    config.networks.follow();
    if let Some(by) = by(arguments)? {
        by.check()?;
    }
    let mut session = Session::start(&config, RECORDS, None, Observers::default())?;
    if duration.is_none() && io::stderr().is_terminal() {
        eprintln!(
            "skua: capturing on {}; Ctrl-C ends",
            output::counted(session.interfaces(), "interface")
        );
    }
    let mut printer = printer(arguments)?;
    let mut shown = 0;
    session.run(duration, |shared| {
        if arguments.follow {
            let drained_ns = shared.read().drained_ns;
            let since = std::mem::replace(&mut shown, drained_ns);
            printer.follow(&select(shared, arguments, &conditions, since)?)?;
        }
        Ok(())
    })?;
    let shared = session.finish()?;
    let since = if arguments.follow { shown } else { 0 };
    let lines = select(&shared, arguments, &conditions, since)?;
    printer.finish(&lines)?;
    if !arguments.follow {
        let nothing = "no packet was counted in that time";
        let any = || Ok(shared.read().store.summary().flows > 0);
        empty::explain(
            arguments.print.output,
            &lines,
            &asked(arguments, nothing),
            any,
        )?;
    }
    if arguments.summary.is_some() || io::stderr().is_terminal() {
        summary::print(arguments.summary, &shared.read());
    }
    Ok(())
}

/// Conversations that changed after `since`, as JSON or CSV lines.
fn select(
    shared: &Shared,
    arguments: &FlowsArguments,
    conditions: &[String],
    since: u64,
) -> anyhow::Result<Vec<u8>> {
    let mut lines = Vec::new();
    let csv = arguments.print.output == OutputFormat::Csv;
    let query = Query {
        updated_after_ns: since,
        active_only: arguments.active,
        view: view(arguments),
        sort: arguments.sort.by(),
        limit: arguments.limit.unwrap_or(usize::MAX),
        ..Query::all()
    }
    .having(filter::flow_filter(None, conditions)?);
    match by(arguments)? {
        None => write_flows(&mut lines, shared, &query, csv),
        Some(by) => groups::write(&mut lines, shared, by, &query, csv),
    }
    Ok(lines)
}

fn from_analyzer(arguments: &FlowsArguments, client: &Client) -> anyhow::Result<()> {
    let mut printer = printer(arguments)?;
    let mut since = 0;
    loop {
        let (lines, drained) = client.flows(&client::FlowsQuery {
            filter: arguments.capture.filter.as_deref(),
            conditions: &arguments.conditions(),
            sort: arguments.sort.name(),
            limit: arguments.limit,
            active: arguments.active,
            since,
            csv: arguments.print.output == OutputFormat::Csv,
            by: arguments.by.as_deref(),
        })?;
        if !arguments.follow {
            printer.finish(&lines)?;
            let any = || {
                let (any, _) = client.flows(&client::FlowsQuery {
                    filter: None,
                    conditions: &[],
                    sort: arguments.sort.name(),
                    limit: Some(1),
                    active: false,
                    since: 0,
                    csv: false,
                    by: None,
                })?;
                Ok(!any.is_empty())
            };
            let nothing = "no conversation has been seen yet; `skua doctor` shows what is watched";
            return empty::explain(
                arguments.print.output,
                &lines,
                &asked(arguments, nothing),
                any,
            );
        }
        // Groups are sums: each request gets all of them.
        if by(arguments)?.is_none() {
            since = drained;
        }
        printer.follow(&lines)?;
        std::thread::sleep(FOLLOW_INTERVAL);
    }
}
