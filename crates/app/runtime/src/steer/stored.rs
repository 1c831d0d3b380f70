//! Detectors that are there again after a restart.

use serde::{Deserialize, Serialize};
use skua_config::Config;
use skua_control::{Resource, Resources};
use skua_steer::Written;
use uuid::Uuid;

/// A detector that was applied, as it was written.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub struct StoredDetector {
    /// Identifier.
    #[serde(rename = "UUID")]
    pub uuid: Uuid,
    /// Who applied it.
    pub who: String,
    /// When, ms since the Unix epoch.
    pub created_at: i64,
    /// What was applied.
    pub detector: Written,
}

impl Resource for StoredDetector {
    const KIND: &'static str = "detector";

    fn id(&self) -> Uuid {
        self.uuid
    }

    fn set_id(&mut self, id: Uuid) {
        self.uuid = id;
    }

    fn is_same(&self, other: &Self) -> bool {
        self.detector.name() == other.detector.name()
    }
}

/// Those that were kept; nothing is when there is no history.
pub fn open(config: &Config) -> Resources<StoredDetector> {
    let file = config.resource_file("detectors");
    Resources::open(file.as_deref(), config.steer.max as usize)
}
