//! Removes what ended processes left.

use super::{EXPORTS, Inner, export, mirror, operation, owner::Other};
use crate::{Database, Error, Row};
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};
use uuid::Uuid;

/// What was removed.
#[derive(Default)]
pub(super) struct Cleaned {
    pub mirrors: usize,
    pub ports: usize,
    pub exports: usize,
}

/// Things of others of our kind in a bridge.
#[derive(Default)]
struct Foreign {
    bridge: Uuid,
    mirrors: Vec<(Uuid, Other)>,
    ports: Vec<(Uuid, Other)>,
    /// With the number of the place in [`EXPORTS`].
    exports: Vec<(usize, Uuid, Other)>,
}

impl Inner {
    /// Removes what ended owners left, in one transaction for each bridge.
    pub fn clean_up(&self) -> Result<Cleaned, Error> {
        let foreign = self.watch.read(|rows| self.foreign(rows));
        let mut ended: HashMap<Other, bool> = HashMap::new();
        let mut cleaned = Cleaned::default();
        for bridge in foreign.ok_or(Error::Disconnected)? {
            let mirrors = self.of_ended_owners(bridge.mirrors, &mut ended)?;
            let ports = self.of_ended_owners(bridge.ports, &mut ended)?;
            let mut operations = Vec::new();
            if !mirrors.is_empty() || !ports.is_empty() {
                operations.push(mirror::removal(bridge.bridge, &mirrors, &ports));
            }
            for (place, row, owner) in bridge.exports {
                if self.has_ended(&owner, &mut ended)? {
                    operations.extend(self.restore(bridge.bridge, place, row, &mut ended)?);
                    cleaned.exports += 1;
                }
            }
            if !operations.is_empty() {
                self.dismantle(operations)?;
            }
            cleaned.mirrors += mirrors.len();
            cleaned.ports += ports.len();
        }
        Ok(cleaned)
    }

    fn foreign(&self, rows: &Database) -> Vec<Foreign> {
        let owned = |table: &str, ids: Vec<Uuid>| -> Vec<(Uuid, Other)> {
            let rows = ids
                .into_iter()
                .filter_map(|id| Some((id, rows.row(table, id)?)));
            rows.filter_map(|(id, row)| Some((id, self.owner.other(row)?)))
                .collect()
        };
        let bridges = rows.rows("Bridge").map(|(bridge, row)| {
            let exports = EXPORTS
                .iter()
                .enumerate()
                .flat_map(|(place, (table, column))| {
                    let found = owned(table, row.uuids(column).collect());
                    found.into_iter().map(move |(id, owner)| (place, id, owner))
                });
            Foreign {
                bridge,
                mirrors: owned("Mirror", row.uuids("mirrors").collect()),
                ports: owned("Port", row.uuids("ports").collect()),
                exports: exports.collect(),
            }
        });
        bridges.collect()
    }

    fn has_ended(&self, owner: &Other, known: &mut HashMap<Other, bool>) -> Result<bool, Error> {
        if let Some(ended) = known.get(owner) {
            return Ok(*ended);
        }
        let ended = owner.has_ended(&self.client)?;
        known.insert(owner.clone(), ended);
        Ok(ended)
    }

    fn of_ended_owners(
        &self,
        things: Vec<(Uuid, Other)>,
        known: &mut HashMap<Other, bool>,
    ) -> Result<Vec<Uuid>, Error> {
        let mut ended = Vec::new();
        for (id, owner) in things {
            if self.has_ended(&owner, known)? {
                ended.push(id);
            }
        }
        Ok(ended)
    }

    /// Restores the values from before ended owners, one after the other.
    fn restore(
        &self,
        bridge: Uuid,
        place: usize,
        row: Uuid,
        known: &mut HashMap<Other, bool>,
    ) -> Result<Vec<Value>, Error> {
        let (table, column) = EXPORTS[place];
        let results = self
            .client
            .transact(vec![operation::select_row(table, row)])?;
        let found = results
            .first()
            .and_then(|result| operation::selected(result).first());
        let mut previous = found.and_then(export::previous);
        // The previous value may itself be of an ended owner. It holds the one before it, so the chain gets
        // shorter.
        let mut seen = HashSet::new();
        while let Some(row) = &previous {
            let row = json!(row);
            let ids = json!({ "external_ids": row["external_ids"] });
            let ids: Row = serde_json::from_value(ids).unwrap_or_default();
            let Some(owner) = self.owner.other(&ids) else {
                break;
            };
            if !seen.insert(row.to_string()) || !self.has_ended(&owner, known)? {
                break;
            }
            previous = export::previous(&row);
        }
        let place = (table, column);
        Ok(export::restoration(bridge, place, row, previous))
    }
}
