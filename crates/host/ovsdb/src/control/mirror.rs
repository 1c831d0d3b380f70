//! Mirrors.

use super::{Inner, operation, output, owner};
use crate::{Database, Error, Row};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use uuid::Uuid;

/// Which packets are mirrored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Selected {
    /// All that the bridge forwards.
    All,
    /// Those of ports, by name.
    Ports {
        /// Packets that enter at these ports.
        src: Vec<String>,
        /// Packets that leave by these ports.
        dst: Vec<String>,
    },
}

impl Selected {
    /// Both directions at one port.
    pub fn port(name: &str) -> Self {
        Self::Ports {
            src: vec![name.to_owned()],
            dst: vec![name.to_owned()],
        }
    }
}

/// What to mirror.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MirrorSpec {
    /// Name of the bridge.
    pub bridge: String,
    /// Which of its packets.
    pub selected: Selected,
}

/// How a mirror is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MirrorState {
    /// As it was made.
    Active,
    /// It exists, but all ports that it was made for were removed.
    SelectionGone,
    /// Another client removed it, or its bridge, or its interface.
    Removed,
    /// There is no connection to the database now.
    Unknown,
}

/// What Open vSwitch says that it mirrored. It says so every 5 s.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MirrorStatistics {
    /// Packets.
    pub packets: u64,
    /// Bytes of the packets.
    pub bytes: u64,
}

const MIRROR: &str = "Mirror";

/// A mirror of ours and the interface that its packets come out of. Both go with it.
pub struct Mirror {
    inner: Arc<Inner>,
    output: String,
    bridge: Uuid,
    port: Uuid,
    mirror: Uuid,
    removed: bool,
}

impl Mirror {
    pub(super) fn new(inner: &Arc<Inner>, spec: &MirrorSpec) -> Result<Self, Error> {
        let selection = |rows: &Database| resolve(rows, spec);
        let (bridge, selection) = inner.watch.read(selection).ok_or(Error::Disconnected)??;
        let unique = Uuid::new_v4().simple().to_string();
        // An interface's name has at most 15 bytes.
        let output = format!("skua-{}", &unique[..8]);
        let ids = inner.owner.external_ids(None);
        let mut mirror = json!({
            "name": output, "output_port": operation::named("port"), "external_ids": ids,
        });
        if let (Value::Object(mirror), Value::Object(selection)) = (&mut mirror, selection) {
            mirror.extend(selection);
        }
        let interface = json!({"name": output, "type": "internal", "external_ids": ids});
        let port = json!({
            "name": output, "interfaces": operation::named("interface"), "external_ids": ids,
        });
        let same_bridge = Map::from_iter([("name".to_owned(), json!(spec.bridge))]);
        let operations = vec![
            operation::insert("Interface", "interface", interface),
            operation::insert("Port", "port", port),
            operation::insert(MIRROR, "mirror", mirror),
            operation::expect("Bridge", bridge, &same_bridge),
            operation::mutate(
                "Bridge",
                bridge,
                &[
                    (
                        "ports",
                        "insert",
                        operation::set([operation::named("port")]),
                    ),
                    (
                        "mirrors",
                        "insert",
                        operation::set([operation::named("mirror")]),
                    ),
                ],
            ),
        ];
        // Should we fail half-way, the name still says what has to go.
        let results = inner.configure(operations);
        let results = results.inspect_err(|_| remove_named(inner, bridge, &output))?;
        let [_, port, id, ..] = &results[..] else {
            return Err(Error::Protocol(
                "a transaction without all its results".to_owned(),
            ));
        };
        let made = Self {
            inner: inner.clone(),
            bridge,
            port: operation::inserted(port)?,
            mirror: operation::inserted(id)?,
            output,
            removed: false,
        };
        made.check_interface()?;
        output::bring_up(&inner.namespace, &made.output)?;
        inner.watch.expect(MIRROR, made.mirror);
        Ok(made)
    }

    /// Could Open vSwitch make the interface?
    fn check_interface(&self) -> Result<(), Error> {
        let error = self.inner.watch.read(|rows| {
            let (_, row) = rows.named("Interface", &self.output)?;
            row.text("error").map(str::to_owned)
        });
        match error.flatten() {
            Some(error) if !error.is_empty() => Err(Error::Interface {
                name: self.output.clone(),
                error,
            }),
            _ => Ok(()),
        }
    }

    /// Name of the interface that the packets come out of, as received by it. It is up.
    pub fn output(&self) -> &str {
        &self.output
    }

    /// Its present state.
    pub fn state(&self) -> MirrorState {
        let state = self.inner.watch.read(|rows| {
            let Some(row) = rows.row(MIRROR, self.mirror) else {
                return MirrorState::Removed;
            };
            let all = row.truth("select_all") == Some(true);
            if row.uuid("output_port") != Some(self.port) {
                MirrorState::Removed
            } else if !all && selection(row).next().is_none() {
                MirrorState::SelectionGone
            } else {
                MirrorState::Active
            }
        });
        state.unwrap_or(MirrorState::Unknown)
    }

    /// What Open vSwitch last said about it; none before it said anything.
    pub fn statistics(&self) -> Option<MirrorStatistics> {
        let read = |row: &Row| {
            let value = |key| {
                let pairs = row.map("statistics").iter();
                let mut found = pairs.filter(|(k, _)| k.as_str() == Some(key));
                u64::try_from(found.next()?.1.as_int()?).ok()
            };
            Some(MirrorStatistics {
                packets: value("tx_packets")?,
                bytes: value("tx_bytes")?,
            })
        };
        let rows = |rows: &crate::Database| rows.row(MIRROR, self.mirror).and_then(read);
        self.inner.watch.read(rows).flatten()
    }

    /// Removes it and its interface, and waits until Open vSwitch has done so. Dropping does the same
    /// without reporting errors.
    pub fn remove(mut self) -> Result<(), Error> {
        self.take_down()
    }

    fn take_down(&mut self) -> Result<(), Error> {
        if std::mem::replace(&mut self.removed, true) {
            return Ok(());
        }
        self.inner.watch.release(MIRROR, self.mirror);
        let operations = removal(self.bridge, &[self.mirror], &[self.port]);
        self.inner.dismantle(vec![operations])
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        if let Err(error) = self.take_down() {
            tracing::warn!(target: "ovsdb", "mirror {} is not removed: {error}", self.output);
        }
    }
}

/// Takes mirrors and ports out of a bridge. Rows that nothing refers to any more are removed by the
/// database itself.
pub(super) fn removal(bridge: Uuid, mirrors: &[Uuid], ports: &[Uuid]) -> Value {
    let all = |ids: &[Uuid]| operation::set(ids.iter().copied().map(operation::uuid));
    let mutations = [
        ("mirrors", "delete", all(mirrors)),
        ("ports", "delete", all(ports)),
    ];
    operation::mutate("Bridge", bridge, &mutations)
}

/// Removes what a transaction may have made whose answer is not known.
fn remove_named(inner: &Inner, bridge: Uuid, name: &str) {
    let found = inner.watch.read(|rows| {
        let id = |table| rows.named(table, name).map(|(id, _)| id);
        (id(MIRROR), id("Port"))
    });
    if let Some((mirror, port)) = found
        && (mirror.is_some() || port.is_some())
    {
        let mirrors: Vec<_> = mirror.into_iter().collect();
        let ports: Vec<_> = port.into_iter().collect();
        let _ = inner.dismantle(vec![removal(bridge, &mirrors, &ports)]);
    }
}

fn selection(mirror: &Row) -> impl Iterator<Item = Uuid> + '_ {
    let src = mirror.uuids("select_src_port");
    src.chain(mirror.uuids("select_dst_port"))
}

/// What to mirror for a row.
pub(super) fn spec_of(rows: &Database, row: Uuid) -> Result<MirrorSpec, Error> {
    let name = |row: &Row| row.text("name").unwrap_or("").to_owned();
    if let Some(bridge) = rows.row("Bridge", row) {
        return Ok(MirrorSpec {
            bridge: name(bridge),
            selected: Selected::All,
        });
    }
    let mut ports = rows.rows("Port");
    let port = match rows.row("Port", row) {
        Some(port) => Some((row, port)),
        None => ports.find(|(_, port)| port.uuids("interfaces").any(|id| id == row)),
    };
    let bridge = port.and_then(|(id, port)| {
        let mut bridges = rows.rows("Bridge");
        let bridge = bridges.find(|(_, bridge)| bridge.uuids("ports").any(|port| port == id));
        bridge.map(|(_, bridge)| (bridge, port))
    });
    let (bridge, port) = bridge.ok_or_else(|| Error::NotFound {
        kind: "bridge, port or interface",
        name: row.to_string(),
    })?;
    Ok(MirrorSpec {
        bridge: name(bridge),
        selected: Selected::port(&name(port)),
    })
}

/// The bridge, and the columns of the mirror that say what it selects.
fn resolve(rows: &Database, spec: &MirrorSpec) -> Result<(Uuid, Value), Error> {
    let not_found = |kind, name: &str| Error::NotFound {
        kind,
        name: name.to_owned(),
    };
    let (bridge, row) = rows
        .named("Bridge", &spec.bridge)
        .ok_or_else(|| not_found("bridge", &spec.bridge))?;
    let Selected::Ports { src, dst } = &spec.selected else {
        return Ok((bridge, json!({"select_all": true})));
    };
    if src.is_empty() && dst.is_empty() {
        let problem = "a mirror needs ports, or all of them".to_owned();
        return Err(Error::Request(problem));
    }
    let port = |name: &String| {
        let mut ports = row
            .uuids("ports")
            .filter_map(|id| Some((id, rows.row("Port", id)?)));
        let found = ports.find(|(_, port)| port.text("name") == Some(name));
        match found.ok_or_else(|| not_found("port", name))? {
            (_, port) if owner::is_owned(port) => Err(Error::Request(format!(
                "port {name:?} is where a mirror comes out; it cannot be mirrored"
            ))),
            (id, _) => Ok(operation::uuid(id)),
        }
    };
    let ports = |names: &[String]| -> Result<Value, Error> {
        let ids: Result<Vec<_>, _> = names.iter().map(port).collect();
        Ok(operation::set(ids?))
    };
    let (src, dst) = (ports(src)?, ports(dst)?);
    let columns = json!({"select_src_port": src, "select_dst_port": dst});
    Ok((bridge, columns))
}
