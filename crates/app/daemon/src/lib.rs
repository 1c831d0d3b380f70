//! `skua run`, `skua agent` and `skua analyzer`: the same parts in three combinations.
//!
//! | | storage | watch | uplink | gather |
//! |---|---|---|---|---|
//! | `skua run` | yes | yes | | yes |
//! | `skua agent` | yes | yes | yes | |
//! | `skua analyzer` | yes | | | yes |
//!
//! The *storage* is the graph with its history. To *watch* is to have a probe, sockets and the topology of
//! this host. The *uplink* reports to an analyzer. To *gather* is to accept agents and to run captures
//! that people make, wherever their nodes are.

#![allow(
    missing_docs,
    reason = "a part of one program; what it shows, only that program sees"
)]

pub mod arguments;

use std::path::PathBuf;
use std::{
    io::{IsTerminal as _, Write as _},
    path::Path,
    sync::Arc,
};

use anyhow::{Context as _, bail};
use skua_api as api;
use skua_api::{
    health::Health,
    lake::LakeAnswers,
    skydive::{captures::Captures, upload::Uploads},
    ws::Parts,
};
use skua_archive::{history::HistoryWriter, lake::LakeWriter};
use skua_config as config;
use skua_config::{Config, StartupCapture, arguments::SummaryFormat, sockets::lower_priority};
use skua_control::{
    Resources,
    capture::{Capture, CaptureManager, CaptureRunner, Running},
};
use skua_discover::{
    Discovery, DiscoveryConfig, HostFile, HostMetadata, InstanceSockets, InventoryConfig,
    LibvirtFolders,
};
use skua_export::{export::Export, services::ServiceGraph};
use skua_fleet::{
    agent::uplink::{Uplink, UplinkSources},
    analyzer::{Fleet, FleetSettings, everywhere::Everywhere},
    protocol::{
        Flows,
        signing::{Signer, TrustedKeys},
    },
};
use skua_output as output;
use skua_ovsdb::{OvnTopology, OvsConfig, OvsTopology, Target};
use skua_process::descriptors;
use skua_runtime::{
    actions::Actions,
    captures::{dpdk, ovs::Switch, run::LocalRunner},
    host_sockets,
    query_engine::QueryEngine,
};
use skua_server::{
    Server,
    alive::{self, Drains, Readable, Signs},
    local,
};
use skua_sources::FlowPast;
use skua_state::{Observers, Shared, State, captures::CaptureSets};
use skua_topology::{Config as GraphConfig, SharedGraph};
use skua_watch::{session::Session, sockets::listening, summary};

use crate::arguments::{AgentArguments, AnalyzerRunArguments, RunArguments};

/// Records in the history at most; `history.memory` is the tighter limit.
const RECORDS: usize = 50_000_000;

/// `skua run`: everything on this host in one process; agents of others may join.
pub fn run(arguments: &RunArguments) -> anyhow::Result<()> {
    let mut config = Config::load(arguments.capture.config.as_deref())?;
    if !arguments.listen.is_empty() {
        config.api.listen.clone_from(&arguments.listen);
    }
    if let Some(socket) = &arguments.socket {
        config.api.socket.clone_from(socket);
    }
    config.export.override_with(&arguments.export);
    let mut config = config.with_arguments(&arguments.capture)?;
    lower_priority(config.agent.nice, &config.agent.ionice)?;
    let shared = watch_and_gather(&mut config, |watch, door| watch.greet("", door))?;
    finish(shared, arguments.summary);
    Ok(())
}

/// Like [`run`], for a view in the same process; `ready` gets the address of the API.
pub fn within(mut config: Config, ready: impl FnOnce(&str)) -> anyhow::Result<()> {
    watch_and_gather(&mut config, |_, door| {
        ready(&door.url);
        Ok(())
    })?;
    Ok(())
}

/// Runs everything on this host until a signal; `begun` gets the address of the API.
fn watch_and_gather(
    config: &mut Config,
    begun: impl FnOnce(&Watch, &Door) -> anyhow::Result<()>,
) -> anyhow::Result<Shared> {
    // First the address: an occupied one is a clearer error than a half-started probe.
    let server = Server::bind(config, local::USUAL)?;
    let storage = Storage::open(config)?;
    let watch = Watch::start(config, &storage)?;
    let gather = Gather::start(config, &storage, Some(&watch))?;
    for socket in server.sockets() {
        watch.session.own_sockets().mark(socket)?;
    }
    let (door, actions) = serve(
        server,
        config,
        &storage,
        Some(&watch),
        CaptureSource::Gather(&gather),
    )?;
    begun(&watch, &door)?;
    let ended = watch.run(|| {
        actions.end();
        gather.captures.end();
    });
    // The records of the last drain are written.
    drop(storage);
    ended
}

/// `skua agent`: watches this host, and reports to an analyzer.
pub fn agent(arguments: &AgentArguments) -> anyhow::Result<()> {
    let mut config = Config::load(arguments.capture.config.as_deref())?;
    config.export.override_with(&arguments.export);
    let mut config = config.with_arguments(&arguments.capture)?;
    config.agent.listen = arguments.listen.unwrap_or(config.agent.listen);
    if !config.agent.listen.ip().to_canonical().is_loopback() {
        bail!("an agent answers on loopback only; ask the analyzer");
    }
    // An agent has its own address and socket, but the analyzer's authentication settings.
    config.api.listen = vec![config.agent.listen];
    let socket = arguments.socket.as_ref().unwrap_or(&config.agent.socket);
    config.api.socket = socket.clone();
    if config.history.directory == config::AUTO {
        // The analyzer has the history.
        config.history.directory.clear();
    }
    if let Some(file) = &arguments.analyzer_key {
        config.agent.analyzer_key.clone_from(file);
    }
    let trusted = match &*config.agent.analyzer_key {
        "" => None,
        file => Some(TrustedKeys::open(Path::new(file)).context("agent.analyzer_key")?),
    };
    lower_priority(config.agent.nice, &config.agent.ionice)?;
    let server = Server::bind(&config, local::USUAL_OF_AGENTS)?;
    let storage = Storage::open(&mut config)?;
    let watch = Watch::start(&config, &storage)?;
    let uplink = Uplink::start(
        UplinkSources {
            host: config.host_name(),
            graph: storage.graph.clone(),
            always: watch.session.shared(),
            sets: watch.runner.sets.clone(),
            runner: Arc::new(watch.runner.clone()),
            trusted,
        },
        &arguments.analyzer,
    )?;
    let outbox = uplink.outbox();
    storage.observers.add(Arc::new(move |capture, state| {
        outbox.put_drain(capture, state)
    }));
    for socket in server.sockets() {
        watch.session.own_sockets().mark(socket)?;
    }
    let (door, actions) = serve(
        server,
        &config,
        &storage,
        Some(&watch),
        CaptureSource::Uplink(&uplink),
    )?;
    let reports = format!(" and reports to {}", arguments.analyzer.address);
    watch.greet(&reports, &door)?;
    let ended = watch.run(|| actions.end());
    drop(uplink);
    drop(storage);
    finish(ended?, arguments.summary);
    Ok(())
}

/// `skua analyzer`: joins the reports of agents.
pub fn analyzer(arguments: &AnalyzerRunArguments) -> anyhow::Result<()> {
    let mut config = Config::load(arguments.config.as_deref())?;
    if !arguments.listen.is_empty() {
        config.api.listen.clone_from(&arguments.listen);
    }
    if let Some(socket) = &arguments.socket {
        config.api.socket.clone_from(socket);
    }
    if let Some(name) = &arguments.host_name {
        config.host.clone_from(name);
    }
    let mut config = config.checked()?;
    // From here on they are waited for, and the history is closed in order.
    let mut signals = signal_hook::iterator::Signals::new([
        signal_hook::consts::SIGINT,
        signal_hook::consts::SIGTERM,
    ])?;
    let server = Server::bind(&config, local::USUAL)?;
    let storage = Storage::open(&mut config)?;
    let gather = Gather::start(&config, &storage, None)?;
    let (door, _) = serve(
        server,
        &config,
        &storage,
        None,
        CaptureSource::Gather(&gather),
    )?;
    let mut out = std::io::stdout();
    writeln!(
        out,
        "skua waits for agents; see `skua agents`, {}/ and `skua query`; Ctrl-C ends",
        door.url
    )?;
    door.say_link(&mut out)?;
    out.flush()?;
    skua_kernel::release_start_memory();
    signals.forever().next();
    gather.captures.end();
    Ok(())
}

/// The graph, with its history if one is kept.
struct Storage {
    graph: SharedGraph,
    /// The service graph.
    services: ServiceGraph,
    observers: Observers,
    kept: Option<Arc<HistoryWriter>>,
    lake: Option<Arc<LakeWriter>>,
    /// OVN is no part of a host: an analyzer may follow it, too.
    ovn: Option<OvnTopology>,
}

impl Drop for Storage {
    fn drop(&mut self) {
        if let Some(lake) = &self.lake {
            lake.finish();
            lake.say_lost();
        }
    }
}

impl Storage {
    /// Before discovery starts: elements that existed when the earlier process ended exist again.
    fn open(config: &mut Config) -> anyhow::Result<Self> {
        config.networks.follow();
        let graph = SharedGraph::new(GraphConfig::default());
        let observers = Observers::default();
        let kept = HistoryWriter::open(&mut config.history, &graph, &observers)?.map(Arc::new);
        let lake = LakeWriter::open(&config.lake, &config.host_name(), &observers)?;
        let ovn = follow_ovn(config, &graph)?;
        Ok(Self {
            ovn,
            graph,
            services: ServiceGraph::default(),
            observers,
            kept,
            lake,
        })
    }

    fn runner(&self, config: &Config, switch: Switch) -> LocalRunner {
        LocalRunner {
            config: config.clone(),
            sets: CaptureSets::default(),
            graph: self.graph.clone(),
            observers: self.observers.clone(),
            switch,
        }
    }
}

/// What watches this host.
struct Watch {
    session: Session,
    discovery: Option<Arc<Discovery>>,
    ovs: Option<OvsTopology>,
    /// Runs captures here.
    runner: LocalRunner,
    /// Export to collectors.
    export: Option<Export>,
}

impl Watch {
    fn start(config: &Config, storage: &Storage) -> anyhow::Result<Self> {
        if config.agent.all_netns {
            descriptors::make_room(descriptors::ALL_NAMESPACES);
        }
        let (graph, observers) = (&storage.graph, &storage.observers);
        let metadata = host_metadata(config)?;
        let discovery = discover(config, metadata, graph).map(Arc::new);
        if let Some(listeners) = discovery.as_ref().and_then(|found| found.listeners()) {
            observers.add(Arc::new(move |capture, state| {
                if capture.is_none() {
                    listening::update(&listeners, state.sockets.as_ref());
                }
            }));
        }
        let host_node = discovery.as_ref().map(|found| found.host_node());
        if let Some(node) = &host_node
            && config.topology.sockets
        {
            observers.add(host_sockets::observer(graph.clone(), node));
        }
        dpdk::show(&config.dpdk, &config.host_name(), graph, host_node);
        let database = config.ovs.database()?;
        let switch = Switch::new(database.clone());
        // Remove leftovers of an earlier process, with or without captures.
        switch.clean_up()?;
        let ovs = match database {
            Some(target) => follow_switch(config, target, graph)?,
            None => None,
        };
        let session = Session::start(config, RECORDS, Some(graph.clone()), observers.clone())?;
        let services = storage.services.clone();
        let on_agents = move |agents| services.set_own_agents(agents);
        let export = Export::start(&config.export, &session, observers, on_agents)?;
        storage.services.follow(
            observers,
            config.sockets.graph,
            config.agent.flow.ebpf.kernel_scan_interval,
        );
        Ok(Self {
            export,
            session,
            discovery,
            ovs,
            runner: storage.runner(config, switch),
        })
    }

    fn greet(&self, reports: &str, door: &Door) -> anyhow::Result<()> {
        let url = &door.url;
        let mut out = std::io::stdout();
        let capture = self.session.describe();
        writeln!(
            out,
            "skua watches {} by {} ({}){reports}; see `skua flows`, {url}/ and `skua doctor`; Ctrl-C ends",
            output::counted(self.session.interfaces(), "interface"),
            capture.hook,
            capture.rung,
        )?;
        door.say_link(&mut out)?;
        Ok(out.flush()?)
    }

    /// Watches until a signal; calls `before` ahead of the last drain.
    fn run(mut self, before: impl FnOnce()) -> anyhow::Result<Shared> {
        // By the end of the first drain all parts have begun.
        let mut begins = true;
        self.session.run(None, |_| {
            if std::mem::take(&mut begins) {
                skua_kernel::release_start_memory();
            }
            Ok(())
        })?;
        before();
        let shared = self.session.finish()?;
        // The records of the last drain are sent.
        drop(self.export);
        drop((self.ovs, self.discovery));
        Ok(shared)
    }
}

fn finish(shared: Shared, format: Option<SummaryFormat>) {
    summary::print(format, &shared.read());
}

/// Accepts agents, and runs captures that people make.
struct Gather {
    fleet: Fleet,
    captures: Arc<CaptureManager>,
}

impl Gather {
    fn start(config: &Config, storage: &Storage, watch: Option<&Watch>) -> anyhow::Result<Self> {
        let signer = match &*config.fleet.signing_key {
            "" => None,
            file => Some(Arc::new(
                Signer::open(Path::new(file)).context("fleet.signing_key")?,
            )),
        };
        let settings = FleetSettings {
            host: config.host_name().into(),
            memory: usize::try_from(config.fleet.memory).unwrap_or(usize::MAX),
            patience: config.fleet.forget_after,
            signer,
        };
        let mut fleet = Fleet::new(storage.graph.clone(), settings)?;
        if let Some(kept) = &storage.kept {
            let history = kept.history.clone();
            let append = move |host: &str, flows: &Flows| history.append_remote(host, flows);
            fleet = fleet.with_observer(Arc::new(append));
        }
        if let Some(lake) = storage.lake.clone() {
            let write = move |host: &str, flows: &Flows| lake.write_remote(host, flows);
            fleet = fleet.with_observer(Arc::new(write));
        }
        let resources = Resources::open(
            config.resource_file("captures").as_deref(),
            config.captures.max as usize,
        );
        let runner = Everywhere {
            local: watch.map(|watch| Arc::new(watch.runner.clone()) as Arc<dyn CaptureRunner>),
            fleet: fleet.clone(),
        };
        let captures = CaptureManager::start(storage.graph.clone(), resources, Arc::new(runner))?;
        let declared = config.captures.startup.iter();
        captures
            .declare(declared.map(StartupCapture::capture).collect())
            .map_err(|(at, error)| anyhow::anyhow!("captures.startup[{at}]: {error}"))?;
        Ok(Self {
            fleet,
            captures: Arc::new(captures),
        })
    }
}

/// Refuses captures: those of an agent are made at its analyzer.
struct AtTheAnalyzer;

impl CaptureRunner for AtTheAnalyzer {
    fn check(&self, _: &Capture) -> Result<(), String> {
        Err("an agent captures what its analyzer says: make captures there".into())
    }

    fn start(&self, capture: &Capture) -> Result<Box<dyn Running>, String> {
        Err(self.check(capture).err().unwrap_or_default())
    }
}

/// Where the API answers.
struct Door {
    url: String,
    /// The page, with a code for one login.
    link: Option<String>,
}

impl Door {
    fn say_link(&self, out: &mut impl std::io::Write) -> anyhow::Result<()> {
        if let Some(link) = &self.link {
            writeln!(out, "  {link}  logs in once; `skua console` makes another")?;
        }
        Ok(())
    }
}

/// The captures that the API shows.
enum CaptureSource<'a> {
    Gather(&'a Gather),
    Uplink(&'a Uplink),
}

/// Serves the API of what there is; returns where, and what people do by it.
fn serve(
    server: Server,
    config: &Config,
    storage: &Storage,
    watch: Option<&Watch>,
    captured_by: CaptureSource<'_>,
) -> anyhow::Result<(Door, Actions)> {
    let (captures, fleet, uplink) = match captured_by {
        CaptureSource::Gather(gather) => {
            (gather.captures.clone(), Some(gather.fleet.clone()), None)
        }
        CaptureSource::Uplink(uplink) => {
            let none = Resources::open(None, 0);
            let runner = Arc::new(AtTheAnalyzer);
            let captures = CaptureManager::start(storage.graph.clone(), none, runner)?;
            (Arc::new(captures), None, Some(uplink.view()))
        }
    };
    let shared = match watch {
        Some(watch) => watch.session.shared(),
        None => Shared::still(State::new(0, 0, 0, 1))?,
    };
    // A process that watches no host accepts capture files all the same.
    let runner = match watch {
        Some(watch) => watch.runner.clone(),
        None => storage.runner(config, Switch::new(None)),
    };
    let sets = runner.sets.clone();
    let past = storage
        .kept
        .as_ref()
        .map(|kept| kept.history.clone() as Arc<dyn FlowPast>);
    let engine = QueryEngine::new(storage.graph.clone(), shared.clone(), sets.clone(), past)
        .on_demand(config.captures.on_demand)
        .with_acls(storage.ovn.as_ref().and_then(OvnTopology::acls))
        .with_fleet(fleet.clone());
    let actions = Actions::start(config, &engine, &shared, watch.is_some())?;
    let uploads = Uploads::new(runner);
    let captures = Captures {
        captures,
        sets,
        uploads,
        host: config.host_name().into(),
    };
    let discovery = watch.and_then(|watch| watch.discovery.as_ref());
    let health = Health::new(&storage.graph, discovery, storage.kept.as_ref(), &captures)
        .with_ends(fleet.clone(), uplink)
        .with_export(watch.and_then(|watch| watch.export.as_ref().map(Export::view)))
        .with_lake(storage.lake.as_ref())
        .with_services(&storage.services);
    let interval = config.agent.flow.ebpf.kernel_scan_interval;
    let drains = watch.map(|_| Drains::new(shared.drains(), interval));
    let parts = Parts::new(&engine, &shared, &actions);
    let readable = shared.clone();
    let signs = Signs {
        drains,
        state: Some(Readable::new(move || drop(readable.read()))),
    };
    let routes = api::routes(
        shared,
        watch.map(|watch| watch.session.addresses()),
        engine,
        captures,
        fleet,
        &actions,
        health,
    )
    .merge(alive::routes(signs))
    .merge(api::services::routes(storage.services.clone()))
    .layer(axum::Extension(LakeAnswers::new(&config.lake)));
    // A link in a log would let its readers log in.
    let link = match std::io::stdout().is_terminal() {
        true => server.link()?,
        false => None,
    };
    let url = server.url();
    let routes = api::complete(routes, parts, config, server.limits());
    server.serve(routes)?;
    Ok((Door { url, link }, actions))
}

/// What the configuration says of the host.
fn host_metadata(config: &Config) -> anyhow::Result<HostMetadata> {
    let files = config.agent.metadata_config.files.iter();
    let files = files.map(|file| HostFile {
        path: file.path.clone(),
        kind: file.r#type.clone(),
        name: file.name.clone(),
        selector: file.selector.clone(),
    });
    HostMetadata::new(&config.agent.metadata, files.collect())
        .map_err(|error| anyhow::anyhow!("agent.{error}"))
}

fn paths(texts: &[String]) -> Vec<PathBuf> {
    texts.iter().map(PathBuf::from).collect()
}

/// Fills the graph; without discovery it stays empty.
fn discover(
    config: &Config,
    host_metadata: HostMetadata,
    graph: &SharedGraph,
) -> Option<Discovery> {
    let settings = DiscoveryConfig {
        host: config.host_name(),
        all_netns: config.agent.all_netns,
        metric_interval: config.agent.flow.ebpf.kernel_scan_interval,
        host_metadata,
        inventory: InventoryConfig {
            containers: config.topology.containers,
            processes: config.topology.processes && config.sockets.enabled,
            guests: config.topology.guests,
            programs: config.topology.bpf,
            nftables: config.topology.nftables,
            lldp: config.topology.lldp,
        },
        libvirt: LibvirtFolders {
            status: (&*config.topology.libvirt.status).into(),
            definitions: (&*config.topology.libvirt.definitions).into(),
        },
        instances: InstanceSockets {
            lxd: paths(&config.topology.instances.lxd),
            incus: paths(&config.topology.instances.incus),
        },
        ..DiscoveryConfig::default()
    };
    match Discovery::start(settings, graph.clone()) {
        Ok(discovery) => Some(discovery),
        Err(error) => {
            tracing::warn!(%error, "the topology cannot be discovered");
            None
        }
    }
}

/// Adds OVN to the graph.
fn follow_ovn(config: &Config, graph: &SharedGraph) -> anyhow::Result<Option<OvnTopology>> {
    let Some(mut settings) = config.ovn.settings(&config.host_name())? else {
        return Ok(None);
    };
    settings.control = config.ovs.control()?;
    Ok(Some(OvnTopology::start(settings, graph.clone())?))
}

/// Adds Open vSwitch to the graph.
fn follow_switch(
    config: &Config,
    target: Target,
    graph: &SharedGraph,
) -> anyhow::Result<Option<OvsTopology>> {
    let settings = OvsConfig {
        statistics: config.ovs.statistics,
        rules: config.ovs.rules()?,
        ..OvsConfig::new(target, &config.host_name())
    };
    Ok(match OvsTopology::start(settings, graph.clone()) {
        Ok(topology) => Some(topology),
        Err(error) => {
            tracing::warn!(%error, "Open vSwitch cannot be discovered");
            None
        }
    })
}
