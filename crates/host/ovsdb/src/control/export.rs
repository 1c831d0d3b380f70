//! Exporters of flows that Open vSwitch has: sFlow, NetFlow, IPFIX.

use super::{Inner, operation};
use crate::{Error, Row};
use serde_json::{Map, Value, json};
use std::{net::SocketAddr, sync::Arc};
use uuid::Uuid;

/// Settings of sFlow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sflow {
    /// Where to.
    pub targets: Vec<SocketAddr>,
    /// Interface whose address the agent has; none: that of the route to the target.
    pub agent: Option<String>,
    /// Bytes of each sampled packet.
    pub header: u32,
    /// One packet of so many.
    pub sampling: u32,
    /// Seconds between counters.
    pub polling: u32,
}

/// Settings of NetFlow version 5.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Netflow {
    /// Where to.
    pub targets: Vec<SocketAddr>,
    /// Seconds after which an active flow is exported; none: Open vSwitch's choice.
    pub active_timeout: Option<u32>,
    /// Number of the engine, in each record.
    pub engine_id: Option<u8>,
}

/// Settings of IPFIX.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ipfix {
    /// Where to.
    pub targets: Vec<SocketAddr>,
    /// One packet of so many.
    pub sampling: u32,
    /// Observation domain.
    pub domain: u32,
    /// Observation point.
    pub point: u32,
    /// Seconds of a flow's packets per record; none: a record for each packet.
    pub active_timeout: Option<u32>,
    /// Most flows in the cache; none: a record for each packet.
    pub max_flows: Option<u32>,
}

/// What a bridge is to export.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Export {
    /// sFlow version 5.
    Sflow(Sflow),
    /// NetFlow version 5.
    Netflow(Netflow),
    /// IPFIX.
    Ipfix(Ipfix),
}

impl Export {
    /// Its table, and the column of bridges that refers to it.
    fn place(&self) -> (&'static str, &'static str) {
        super::EXPORTS[match self {
            Self::Sflow(_) => 0,
            Self::Netflow(_) => 1,
            Self::Ipfix(_) => 2,
        }]
    }

    fn targets(&self) -> &[SocketAddr] {
        match self {
            Self::Sflow(Sflow { targets, .. })
            | Self::Netflow(Netflow { targets, .. })
            | Self::Ipfix(Ipfix { targets, .. }) => targets,
        }
    }

    fn row(&self) -> Map<String, Value> {
        let mut row = Map::new();
        let targets = self
            .targets()
            .iter()
            .map(|target| json!(target.to_string()));
        row.insert("targets".to_owned(), operation::set(targets));
        let mut put = |column: &str, value: Option<Value>| {
            if let Some(value) = value {
                row.insert(column.to_owned(), value);
            }
        };
        match self {
            Self::Sflow(sflow) => {
                put("agent", sflow.agent.as_ref().map(|agent| json!(agent)));
                put("header", Some(json!(sflow.header)));
                put("sampling", Some(json!(sflow.sampling)));
                put("polling", Some(json!(sflow.polling)));
            }
            Self::Netflow(netflow) => {
                put("active_timeout", netflow.active_timeout.map(Value::from));
                put("engine_id", netflow.engine_id.map(Value::from));
            }
            Self::Ipfix(ipfix) => {
                put("sampling", Some(json!(ipfix.sampling)));
                put("obs_domain_id", Some(json!(ipfix.domain)));
                put("obs_point_id", Some(json!(ipfix.point)));
                put(
                    "cache_active_timeout",
                    ipfix.active_timeout.map(Value::from),
                );
                put("cache_max_flows", ipfix.max_flows.map(Value::from));
            }
        }
        row
    }
}

/// Key in `external_ids`: what there was before, so that it is not lost when we are.
const PREVIOUS: &str = "skua-previous";
/// Attempts when other clients change the row meanwhile.
const ATTEMPTS: usize = 5;

/// An exporter of ours. The previous one is restored when it is dropped.
pub struct BridgeExport {
    inner: Arc<Inner>,
    place: (&'static str, &'static str),
    bridge: Uuid,
    row: Uuid,
    removed: bool,
}

impl BridgeExport {
    pub(super) fn new(inner: &Arc<Inner>, bridge: &str, export: &Export) -> Result<Self, Error> {
        if export.targets().is_empty() {
            return Err(Error::Request("an exporter needs a target".to_owned()));
        }
        let (table, column) = export.place();
        let mut last = Error::Disconnected;
        for _ in 0..ATTEMPTS {
            let found = inner
                .watch
                .read(|rows| rows.named("Bridge", bridge).map(|(id, _)| id));
            let id = found.ok_or(Error::Disconnected)?;
            let id = id.ok_or_else(|| Error::NotFound {
                kind: "bridge",
                name: bridge.to_owned(),
            })?;
            let (current, previous) = current(inner, table, column, id)?;
            let text = Value::from(previous.clone()).to_string();
            let mut row = export.row();
            let ids = inner.owner.external_ids(Some((PREVIOUS, &text)));
            row.insert("external_ids".to_owned(), ids);
            let mut operations = vec![
                operation::insert(table, "export", Value::Object(row)),
                unchanged(id, column, current),
            ];
            if let (Some(current), Some(previous)) = (current, &previous) {
                operations.push(operation::expect(table, current, previous));
            }
            let reference = json!({ column: operation::named("export") });
            operations.push(operation::update("Bridge", id, reference));
            match inner.configure(operations) {
                Ok(results) => {
                    let row = results.first().ok_or(Error::Disconnected)?;
                    let made = Self {
                        inner: inner.clone(),
                        place: (table, column),
                        bridge: id,
                        row: operation::inserted(row)?,
                        removed: false,
                    };
                    inner.watch.expect(table, made.row);
                    return Ok(made);
                }
                Err(error) if was_changed(&error) => last = error,
                Err(error) => return Err(error),
            }
        }
        Err(last)
    }

    /// Whether it is still ours that the bridge has; none while there is no connection.
    pub fn is_active(&self) -> Option<bool> {
        let (_, column) = self.place;
        self.inner.watch.read(|rows| {
            let bridge = rows.row("Bridge", self.bridge);
            bridge.and_then(|row| row.uuid(column)) == Some(self.row)
        })
    }

    /// Restores the previous value, unless another client has changed it since. Dropping does the same
    /// without reporting errors.
    pub fn restore(mut self) -> Result<(), Error> {
        self.take_down()
    }

    fn take_down(&mut self) -> Result<(), Error> {
        if std::mem::replace(&mut self.removed, true) {
            return Ok(());
        }
        let (table, column) = self.place;
        self.inner.watch.release(table, self.row);
        let found = self
            .inner
            .client
            .transact(vec![operation::select_row(table, self.row)])?;
        let Some(row) = found
            .first()
            .map(operation::selected)
            .and_then(<[_]>::first)
        else {
            // Nothing refers to it any more.
            return Ok(());
        };
        let operations = restoration(self.bridge, (table, column), self.row, previous(row));
        match self.inner.dismantle(operations) {
            Err(error) if was_changed(&error) => Ok(()),
            done => done,
        }
    }
}

impl Drop for BridgeExport {
    fn drop(&mut self) {
        if let Err(error) = self.take_down() {
            let (table, _) = self.place;
            tracing::warn!(target: "ovsdb", "{table} of a bridge is not restored: {error}");
        }
    }
}

/// The transaction ran into one of its own expectations.
fn was_changed(error: &Error) -> bool {
    matches!(error, Error::Refused { error, .. } if error == "timed out")
}

/// The row that a bridge's column refers to, and its content.
type Current = (Option<Uuid>, Option<Map<String, Value>>);

fn current(
    inner: &Inner,
    table: &'static str,
    column: &'static str,
    bridge: Uuid,
) -> Result<Current, Error> {
    let read = |operation: Value| -> Result<Option<Value>, Error> {
        let results = inner.client.transact(vec![operation])?;
        Ok(results
            .first()
            .and_then(|result| operation::selected(result).first().cloned()))
    };
    let Some(row) = read(operation::select_row("Bridge", bridge))? else {
        return Ok((None, None));
    };
    let columns = json!({ column: row[column] });
    let row: Row = serde_json::from_value(columns).map_err(|e| Error::Protocol(e.to_string()))?;
    let Some(id) = row.uuid(column) else {
        return Ok((None, None));
    };
    let content = read(operation::select_row(table, id))?;
    Ok((Some(id), content.map(settings)))
}

/// A row without what the database itself puts in.
fn settings(row: Value) -> Map<String, Value> {
    let Value::Object(mut row) = row else {
        return Map::new();
    };
    row.retain(|column, _| !column.starts_with('_'));
    row
}

/// What there was before a row of our kind.
pub(super) fn previous(row: &Value) -> Option<Map<String, Value>> {
    let ids = json!({ "external_ids": row["external_ids"] });
    let ids: Row = serde_json::from_value(ids).ok()?;
    match serde_json::from_str(ids.text_at("external_ids", PREVIOUS)?) {
        Ok(Value::Object(previous)) => Some(previous),
        _ => None,
    }
}

fn unchanged(bridge: Uuid, column: &str, row: Option<Uuid>) -> Value {
    let reference = operation::set(row.map(operation::uuid));
    let columns = Map::from_iter([(column.to_owned(), reference)]);
    operation::expect("Bridge", bridge, &columns)
}

/// Operations that put `previous` into a bridge's place of an exporter, if it is still `ours`.
pub(super) fn restoration(
    bridge: Uuid,
    (table, column): (&str, &str),
    ours: Uuid,
    previous: Option<Map<String, Value>>,
) -> Vec<Value> {
    let name = format!("previous_{}", bridge.simple());
    let reference = match previous {
        Some(_) => operation::named(&name),
        None => operation::set([]),
    };
    let mut operations = vec![unchanged(bridge, column, Some(ours))];
    operations.extend(previous.map(|row| operation::insert(table, &name, Value::Object(row))));
    operations.push(operation::update(
        "Bridge",
        bridge,
        json!({ column: reference }),
    ));
    operations
}
