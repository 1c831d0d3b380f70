//! `skua run`: everything on this host in one process.

use std::{io::Write as _, sync::Arc};

use skua_analyzer::{FlowPast, Resources, capture::CaptureManager};
use skua_discover::{Discovery, DiscoveryConfig, InventoryConfig};
use skua_ovsdb::{OvsConfig, OvsTopology, Target};
use skua_topology::{Config as GraphConfig, SharedGraph};

use crate::{
    actions::Actions,
    args::RunArguments,
    captures::{
        api::Captures,
        ovs::Switch,
        run::{CaptureSets, LocalRunner},
        upload::Uploads,
    },
    config::Config,
    graph::Analyzer,
    health::Health,
    history::Kept,
    http, output,
    server::{self, Server},
    session::{Session, host_name},
    sockets::{listening, settings::lower_priority},
    state::Observers,
    summary,
};

/// Records in the history at most; `history.memory` is the tighter limit.
const RECORDS: usize = 50_000_000;

pub fn run(arguments: &RunArguments) -> anyhow::Result<()> {
    let mut config = Config::load(arguments.capture.config.as_deref())?;
    if !arguments.listen.is_empty() {
        config.api.listen.clone_from(&arguments.listen);
    }
    let mut config = config.with_arguments(&arguments.capture)?;
    lower_priority(config.agent.nice, &config.agent.ionice)?;
    // First the address: an occupied one is a clearer error than a half-started probe.
    let server = Server::bind(&config)?;
    let graph = SharedGraph::new(GraphConfig::default());
    let observers = Observers::default();
    // Before anything is found: what was there when the process before ended is there again.
    let kept = Kept::open(&mut config.history, &graph, &observers)?.map(Arc::new);
    let discovery = discover(&config, &graph).map(Arc::new);
    if let Some(listeners) = discovery.as_ref().and_then(|found| found.listeners()) {
        observers.add(Arc::new(move |capture, state| {
            if capture.is_none() {
                listening::tell(&listeners, state.sockets.as_ref());
            }
        }));
    }
    let database = config.ovs.database()?;
    let switch = Switch::new(database.clone());
    // What a process before left goes, whether somebody captures or not.
    switch.clean_up()?;
    let ovs = database.and_then(|target| follow_switch(&config, target, &graph));
    let mut session = Session::start(&config, RECORDS, Some(graph.clone()), observers.clone())?;
    let sets = CaptureSets::default();
    let runner = LocalRunner {
        config: config.clone(),
        sets: sets.clone(),
        graph: graph.clone(),
        observers,
        switch,
    };
    let uploads = Uploads::new(runner.clone());
    let resources = Resources::open(
        config.resource_file("captures").as_deref(),
        config.captures.max as usize,
    )?;
    let captures = Arc::new(CaptureManager::start(
        graph.clone(),
        resources,
        Arc::new(runner),
    )?);
    for socket in server.sockets() {
        session.mark_own(socket)?;
    }
    let past = kept
        .as_ref()
        .map(|kept| kept.history.clone() as Arc<dyn FlowPast>);
    let analyzer = Analyzer::new(graph, session.shared(), sets.clone(), past);
    let actions = Actions::start(&config, &analyzer)?;
    let captures_here = Captures {
        captures: captures.clone(),
        sets,
        uploads,
    };
    let health = Health::new(
        &analyzer.graph,
        discovery.as_ref(),
        kept.as_ref(),
        &captures_here,
    );
    let parts = server::Parts::new(&analyzer, &session.shared());
    let routes = http::routes(
        session.shared(),
        session.addresses(),
        analyzer,
        captures_here,
        &actions,
        health,
    );
    let url = server.url();
    server.serve(routes, parts)?;
    let mut out = std::io::stdout();
    let capture = session.describe();
    writeln!(
        out,
        "skua watches {} by {} ({}); see `skua flows`, {}/ and `skua doctor`; Ctrl-C ends",
        output::counted(session.interfaces(), "interface"),
        capture.hook,
        capture.rung,
        url
    )?;
    out.flush()?;
    session.run(None, |_| Ok(()))?;
    captures.end();
    let shared = session.finish()?;
    drop(ovs);
    drop(discovery);
    // What the last drain brought is written.
    drop(kept);
    summary::print(arguments.summary, &shared.lock());
    Ok(())
}

/// Fills the graph; without it there is one of nothing.
fn discover(config: &Config, graph: &SharedGraph) -> Option<Discovery> {
    let settings = DiscoveryConfig {
        host: host_name(),
        all_netns: config.agent.all_netns,
        metric_interval: config.agent.flow.ebpf.kernel_scan_interval,
        inventory: InventoryConfig {
            containers: config.topology.containers,
            processes: config.topology.processes && config.sockets.enabled,
            guests: config.topology.guests,
            programs: config.topology.bpf,
            nftables: config.topology.nftables,
        },
        ..DiscoveryConfig::default()
    };
    match Discovery::start(settings, graph.clone()) {
        Ok(discovery) => Some(discovery),
        Err(error) => {
            tracing::warn!(%error, "the topology cannot be looked at");
            None
        }
    }
}

/// Adds Open vSwitch to the graph.
fn follow_switch(config: &Config, target: Target, graph: &SharedGraph) -> Option<OvsTopology> {
    let settings = OvsConfig {
        statistics: config.ovs.statistics,
        ..OvsConfig::new(target, &host_name())
    };
    match OvsTopology::start(settings, graph.clone()) {
        Ok(topology) => Some(topology),
        Err(error) => {
            tracing::warn!(%error, "Open vSwitch cannot be looked at");
            None
        }
    }
}
