//! What people have done besides watching: injections, alerts, nodes, edges and rules of their own.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::Context as _;
use axum::Router;
use serde::{Deserialize, Serialize};
use skua_analyzer::{
    Resources,
    alert::{ActionSettings, AlertManager},
    elements::UserGraph,
    injection::{InjectionLimits, Injections},
};

use crate::{alerts, config::Config, elements, graph::Analyzer, injection};

/// Alerts at most.
const ALERTS: usize = 1_000;

/// Settings of packet injection.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct InjectionSettings {
    pub enabled: bool,
    pub rate: u32,
    pub at_once: usize,
    pub packets: u64,
}

impl Default for InjectionSettings {
    fn default() -> Self {
        let limits = InjectionLimits::default();
        Self {
            enabled: limits.enabled,
            rate: limits.rate,
            at_once: limits.at_once,
            packets: limits.packets,
        }
    }
}

/// Settings of alerts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub struct AlertSettings {
    pub commands: bool,
    pub directory: String,
}

/// Settings of what is asked and made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub struct AnalyzerSettings {
    pub directory: String,
}

impl AnalyzerSettings {
    /// The directory, which is made if need be.
    fn directory(&self) -> anyhow::Result<Option<&Path>> {
        if self.directory.is_empty() {
            return Ok(None);
        }
        let path = Path::new(&self.directory);
        std::fs::create_dir_all(path)
            .with_context(|| format!("analyzer.directory: {}", path.display()))?;
        Ok(Some(path))
    }

    /// Where things of a kind are kept over restarts.
    pub fn file(&self, kind: &str) -> anyhow::Result<Option<PathBuf>> {
        let directory = self.directory()?;
        Ok(directory.map(|path| path.join(format!("{kind}.json"))))
    }
}

/// All of it.
#[derive(Clone)]
pub struct Actions {
    injections: Arc<Injections>,
    alerts: Arc<AlertManager>,
    elements: Arc<UserGraph>,
}

impl Actions {
    /// Begins with what was kept.
    pub fn start(config: &Config, analyzer: &Analyzer) -> anyhow::Result<Self> {
        let directory = config.analyzer.directory()?;
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
        let elements = UserGraph::start(&analyzer.graph, directory)?;
        let kept = Resources::open(config.analyzer.file("alerts")?.as_deref(), ALERTS)?;
        let questions = Arc::new(analyzer.clone());
        let alerts = AlertManager::start(&analyzer.graph, questions, kept, settings)?;
        Ok(Self {
            injections: Arc::new(Injections::new(analyzer.graph.clone(), limits)),
            alerts: Arc::new(alerts),
            elements: Arc::new(elements),
        })
    }

    /// Their paths in the API.
    pub fn routes(&self) -> Router {
        injection::api::routes(self.injections.clone())
            .merge(alerts::api::routes(self.alerts.clone()))
            .merge(elements::api::routes(self.elements.clone()))
    }
}
