//! What people have done besides watching: injections, alerts, nodes, edges and rules of their own.

use std::sync::Arc;

use anyhow::Context as _;
use skua_config::Config;
use skua_control::{
    Resources,
    alert::{ActionSettings, AlertCounters, AlertManager},
    elements::UserGraph,
    injection::{InjectionLimits, Injections},
    tap::{TapManager, TapSettings, TapView},
};
use skua_state::Shared;

use crate::{query_engine::QueryEngine, steer::Steers, tap};

/// Alerts at most.
const ALERTS: usize = 1_000;

/// Taps at most.
const TAPS: usize = 256;

/// All of it.
#[derive(Clone)]
pub struct Actions {
    injections: Arc<Injections>,
    alerts: Arc<AlertManager>,
    elements: Arc<UserGraph>,
    steers: Steers,
    taps: Arc<TapManager>,
}

impl Actions {
    /// Begins with what was kept. `here`: this process has to do with packets of its host.
    pub fn start(
        config: &Config,
        engine: &QueryEngine,
        shared: &Shared,
        here: bool,
    ) -> anyhow::Result<Self> {
        let limits = InjectionLimits {
            enabled: config.injection.enabled,
            rate: config.injection.rate.max(1),
            at_once: config.injection.at_once,
            packets: config.injection.packets,
        };
        let settings = ActionSettings {
            commands: config.alerts.commands,
            directory: match &*config.alerts.directory {
                "" => None,
                path => Some(path.into()),
            },
            ..ActionSettings::default()
        };
        let elements = UserGraph::start(&engine.graph, |kind| config.resource_file(kind))?;
        let kept = Resources::open(config.resource_file("alerts").as_deref(), ALERTS);
        let querier = Arc::new(engine.clone());
        let alerts = AlertManager::start(&engine.graph, querier, kept, settings)?;
        let kept = Resources::open(config.resource_file("taps").as_deref(), TAPS);
        let settings = TapSettings {
            allowed: config.policy.tap.is_allowed(),
            here,
        };
        let (graph, host) = (&engine.graph, config.host_name());
        let finder = Arc::new(tap::sockets::Finder::new(shared.clone()));
        let taps = TapManager::start(graph, &host, kept, &config.taps, settings, finder)
            .context("taps of the configuration")?;
        Ok(Self {
            taps: Arc::new(taps),
            injections: Arc::new(Injections::new(
                engine.graph.clone(),
                &config.host_name(),
                limits,
            )),
            alerts: Arc::new(alerts),
            elements: Arc::new(elements),
            steers: Steers::start(config, here)?,
        })
    }

    /// What alerts have done.
    pub fn alert_counters(&self) -> AlertCounters {
        self.alerts.counters()
    }

    /// Detectors.
    pub fn steers(&self) -> &Steers {
        &self.steers
    }

    /// Taps and their state.
    pub fn taps(&self) -> Vec<TapView> {
        self.taps.list()
    }

    /// Ends what hangs on interfaces.
    pub fn end(&self) {
        self.taps.end();
        self.steers.end();
    }

    /// What copies packets.
    pub fn tap_manager(&self) -> &Arc<TapManager> {
        &self.taps
    }

    /// What injects packets.
    pub fn injections(&self) -> &Arc<Injections> {
        &self.injections
    }

    /// Alerts.
    pub fn alerts(&self) -> &Arc<AlertManager> {
        &self.alerts
    }

    /// Nodes and edges that people make.
    pub fn elements(&self) -> &Arc<UserGraph> {
        &self.elements
    }
}
