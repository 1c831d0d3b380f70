//! Settings of what acts on the host.

use serde::{Deserialize, Serialize};
use skua_analyzer::injection::InjectionLimits;

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
