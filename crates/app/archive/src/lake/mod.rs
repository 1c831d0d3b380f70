//! The lake of this process: what drains and agents bring, as Parquet.
//!
//! | module | |
//! |---|---|
//! | `question` | from what people write to what is asked |
//! | `sql` | `skua sql`, in builds that have its engine |
//! | `report` | its state, for /metrics and the doctor |

pub mod question;
pub mod report;
pub mod sql;

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context as _;
use skua_config::{Config, lake::LakeSettings};
use skua_lake::{FlowChange, Keeper, Lake, Location, Table, Writer, query::Answer};
use skua_state::{Observers, State};
use uuid::Uuid;

use skua_fleet::protocol::Flows;

/// Writes a table of a lake, and keeps the lake compact.
pub struct LakeWriter {
    location: Location,
    writer: Writer,
    /// None when it has ended.
    keeper: Mutex<Option<Keeper>>,
}

impl LakeWriter {
    /// Opens a lake; none when none is to be had. Drains of what is always captured go there.
    pub fn open(
        settings: &LakeSettings,
        host: &str,
        observers: &Observers,
    ) -> anyhow::Result<Option<Arc<Self>>> {
        let Some(location) = settings.location()? else {
            return Ok(None);
        };
        let kept = Arc::new(Self::at(location, settings, host, Table::Flows)?);
        let theirs = kept.clone();
        observers.add(Arc::new(move |capture, state| {
            theirs.write_drain(capture, state)
        }));
        Ok(Some(kept))
    }

    /// A table of the lake at a place.
    pub fn at(
        location: Location,
        settings: &LakeSettings,
        host: &str,
        table: Table,
    ) -> anyhow::Result<Self> {
        let writer = Writer::open(&settings.writer(location.clone(), host), table)
            .with_context(|| format!("the lake {location} cannot be written"))?;
        let lake = Lake::open(&location)?;
        let keeper = Keeper::start(lake, host.into(), settings.retention(), settings.compact)?;
        Ok(Self {
            location,
            writer,
            keeper: Mutex::new(Some(keeper)),
        })
    }

    /// What takes rows.
    pub fn writer(&self) -> &Writer {
        &self.writer
    }

    /// Writes what a drain has changed. Captures that people made would count the same packets again.
    fn write_drain(&self, capture: Option<Uuid>, state: &State) {
        if capture.is_some() {
            return;
        }
        let sockets = state.sockets.as_ref();
        self.writer
            .flows(state.store.touched_once().map(|(record, once)| FlowChange {
                record,
                once,
                host: state.host(),
                interface: state.interface_of(record),
                parties: sockets.map_or_else(Default::default, |s| s.parties(record)),
            }));
    }

    /// Writes what a drain of an agent has changed.
    pub fn write_remote(&self, host: &str, flows: &Flows) {
        if !flows.capture.is_empty() {
            return;
        }
        self.writer.flows(flows.changes().map(|(record, once)| {
            FlowChange {
                record,
                once,
                host,
                interface: flows
                    .place_of(record)
                    .map_or_else(Default::default, |place| (&*place.interface).into()),
                parties: flows.parties_of(record),
            }
        }));
    }

    /// Logs what was lost since the start: after the end there are no metrics of it.
    pub fn say_lost(&self) {
        let stats = self.writer.stats();
        let lost = stats.lost.iter();
        let lost: Vec<String> = lost
            .map(|(cause, rows)| format!("{rows} {cause}"))
            .collect();
        if !lost.is_empty() {
            tracing::warn!(
                "rows that the lake {} does not have: {}",
                self.location,
                lost.join(", ")
            );
        }
    }

    /// Writes what waits, and ends.
    pub fn finish(&self) {
        self.writer.finish();
        let keeper = self.keeper.lock();
        drop(keeper.unwrap_or_else(PoisonError::into_inner).take());
    }
}

/// What to do where there is none.
pub const NO_LAKE: &str = "no lake is written: set lake.directory in /etc/skua.yaml, or \
    SKUA_LAKE_DIRECTORY, to a directory like /var/lib/skua/lake, and start `skua run` anew; or name one \
    with --lake (docs/lake.md)";
/// The header that names what is damaged.
pub const DAMAGED: &str = "x-skua-lake-damaged";

/// The lake that is meant, none when none is configured.
pub fn configured(
    named: Option<&Location>,
    config: Option<&std::path::Path>,
) -> anyhow::Result<Option<Location>> {
    match named {
        Some(location) => Ok(Some(location.clone())),
        None => Config::load(config)?.lake.location(),
    }
}

/// Groups as JSON lines, or as CSV with its header.
pub fn written(answer: &Answer, csv: bool) -> std::io::Result<Vec<u8>> {
    let mut lines = Vec::new();
    if csv {
        answer.write_csv_header(&mut lines)?;
        answer.write_csv(&mut lines)?;
    } else {
        answer.write_json(&mut lines)?;
    }
    Ok(lines)
}

/// What is damaged, in one line.
pub fn damaged(answer: &Answer) -> Option<String> {
    const NAMED: usize = 8;
    let damaged = &answer.damaged;
    if damaged.is_empty() {
        return None;
    }
    let named: Vec<&str> = damaged.iter().take(NAMED).map(String::as_str).collect();
    let more = match damaged.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    Some(named.join("; ") + &more)
}
