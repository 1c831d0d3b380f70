//! One library, as the feature says.

#[cfg(feature = "fjall")]
pub use fjall_engine::Engine;
#[cfg(feature = "redb")]
pub use redb_engine::Engine;
#[cfg(feature = "segments")]
pub use segments::Engine;
#[cfg(feature = "sqlite")]
pub use sqlite::Engine;

use crate::Row;
use std::{collections::HashSet, path::Path};

#[allow(dead_code)]
fn key(row: &Row, number: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&row.record.updated_ns.to_be_bytes());
    key[8..].copy_from_slice(&number.to_be_bytes());
    key
}

#[allow(dead_code)]
fn id(value: &[u8]) -> u64 {
    let mut id = [0; 8];
    id[..6].copy_from_slice(&value[12..18]);
    u64::from_le_bytes(id)
}

#[cfg(feature = "sqlite")]
mod sqlite {
    use super::*;
    use rusqlite::{Connection, params};

    pub struct Engine(Connection);

    impl Engine {
        pub fn open(dir: &Path) -> Self {
            std::fs::create_dir_all(dir).unwrap();
            let db = Connection::open(dir.join("history.db")).unwrap();
            db.execute_batch(
                "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA cache_size=-32000;
                 CREATE TABLE IF NOT EXISTS rows(time INTEGER, number INTEGER, value BLOB,
                 PRIMARY KEY(time, number)) WITHOUT ROWID;",
            )
            .unwrap();
            Self(db)
        }

        pub fn append(&mut self, rows: &[Row], sync: bool) {
            let sync = if sync { "PRAGMA synchronous=FULL" } else { "PRAGMA synchronous=NORMAL" };
            self.0.execute_batch(sync).unwrap();
            let tx = self.0.transaction().unwrap();
            {
                let mut insert = tx.prepare_cached("INSERT INTO rows VALUES(?,?,?)").unwrap();
                for (at, row) in rows.iter().enumerate() {
                    insert
                        .execute(params![row.record.updated_ns as i64, at as i64, crate::encode(row)])
                        .unwrap();
                }
            }
            tx.commit().unwrap();
        }

        pub fn finish(&mut self) {}

        pub fn scan(&mut self, from: u64, to: u64) -> usize {
            let mut flows = HashSet::new();
            let mut query = self
                .0
                .prepare_cached("SELECT value FROM rows WHERE time BETWEEN ? AND ?")
                .unwrap();
            let mut found = query.query(params![from as i64, to as i64]).unwrap();
            while let Some(row) = found.next().unwrap() {
                flows.insert(id(row.get_ref(0).unwrap().as_blob().unwrap()));
            }
            flows.len()
        }

        pub fn delete_before(&mut self, time: u64) {
            self.0
                .execute("DELETE FROM rows WHERE time < ?", params![time as i64])
                .unwrap();
        }

        pub fn rows(&mut self) -> usize {
            let count: i64 = self
                .0
                .query_row("SELECT count(*) FROM rows", [], |row| row.get(0))
                .unwrap();
            count as usize
        }
    }
}

#[cfg(feature = "redb")]
mod redb_engine {
    use super::*;
    use redb::{Database, Durability, ReadableDatabase, ReadableTable, ReadableTableMetadata, TableDefinition};

    const ROWS: TableDefinition<[u8; 16], &[u8]> = TableDefinition::new("rows");

    pub struct Engine(Database);

    fn bound(time: u64) -> [u8; 16] {
        let mut key = [0; 16];
        key[..8].copy_from_slice(&time.to_be_bytes());
        key
    }

    impl Engine {
        pub fn open(dir: &Path) -> Self {
            std::fs::create_dir_all(dir).unwrap();
            let db = Database::builder()
                .set_cache_size(32 << 20)
                .create(dir.join("history.redb"))
                .unwrap();
            Self(db)
        }

        pub fn append(&mut self, rows: &[Row], sync: bool) {
            let mut tx = self.0.begin_write().unwrap();
            // What is committed without is gone after a kill: so it always is.
            let _ = sync;
            tx.set_durability(Durability::Immediate).unwrap();
            {
                let mut table = tx.open_table(ROWS).unwrap();
                for (at, row) in rows.iter().enumerate() {
                    table
                        .insert(key(row, at as u64), crate::encode(row).as_slice())
                        .unwrap();
                }
            }
            tx.commit().unwrap();
        }

        pub fn finish(&mut self) {}

        pub fn scan(&mut self, from: u64, to: u64) -> usize {
            let mut flows = HashSet::new();
            let tx = self.0.begin_read().unwrap();
            let table = tx.open_table(ROWS).unwrap();
            for entry in table.range(bound(from)..bound(to + 1)).unwrap() {
                flows.insert(id(entry.unwrap().1.value()));
            }
            flows.len()
        }

        pub fn delete_before(&mut self, time: u64) {
            let tx = self.0.begin_write().unwrap();
            tx.open_table(ROWS)
                .unwrap()
                .retain_in(..bound(time), |_, _| false)
                .unwrap();
            tx.commit().unwrap();
            self.0.compact().unwrap();
        }

        pub fn rows(&mut self) -> usize {
            let tx = self.0.begin_read().unwrap();
            tx.open_table(ROWS).unwrap().len().unwrap() as usize
        }
    }
}

#[cfg(feature = "fjall")]
mod fjall_engine {
    use super::*;
    use fjall::{Config, Keyspace, PartitionCreateOptions, PartitionHandle, PersistMode};

    /// Partitions of a minute, each a folder of its own.
    pub struct Engine {
        keyspace: Keyspace,
        partitions: Vec<(u64, PartitionHandle)>,
    }

    const PART: u64 = 60 * crate::SECOND;

    impl Engine {
        pub fn open(dir: &Path) -> Self {
            let keyspace = Config::new(dir).open().unwrap();
            let mut partitions: Vec<_> = keyspace
                .list_partitions()
                .into_iter()
                .map(|name| {
                    let handle = keyspace
                        .open_partition(&name, PartitionCreateOptions::default())
                        .unwrap();
                    (name.parse().unwrap(), handle)
                })
                .collect();
            partitions.sort_by_key(|(number, _)| *number);
            Self {
                keyspace,
                partitions,
            }
        }

        pub fn append(&mut self, rows: &[Row], sync: bool) {
            let number = (rows[0].record.updated_ns - 1) / PART;
            if self.partitions.last().is_none_or(|(last, _)| *last != number) {
                let handle = self
                    .keyspace
                    .open_partition(&number.to_string(), PartitionCreateOptions::default())
                    .unwrap();
                self.partitions.push((number, handle));
            }
            let (_, partition) = self.partitions.last().unwrap();
            let mut batch = self.keyspace.batch();
            for (at, row) in rows.iter().enumerate() {
                batch.insert(partition, key(row, at as u64), crate::encode(row));
            }
            batch.commit().unwrap();
            let mode = if sync { PersistMode::SyncData } else { PersistMode::Buffer };
            self.keyspace.persist(mode).unwrap();
        }

        pub fn finish(&mut self) {}

        pub fn scan(&mut self, from: u64, to: u64) -> usize {
            let mut flows = HashSet::new();
            for (number, partition) in &self.partitions {
                if (number + 1) * PART < from || number * PART > to {
                    continue;
                }
                for entry in partition.range(from.to_be_bytes()..=(to + 1).to_be_bytes()) {
                    flows.insert(id(&entry.unwrap().1));
                }
            }
            flows.len()
        }

        pub fn delete_before(&mut self, time: u64) {
            let old = self.partitions.partition_point(|(number, _)| (number + 1) * PART <= time);
            for (_, partition) in self.partitions.drain(..old) {
                self.keyspace.delete_partition(partition).unwrap();
            }
        }

        pub fn rows(&mut self) -> usize {
            self.partitions.iter().map(|(_, partition)| partition.len().unwrap()).sum()
        }
    }
}

#[cfg(feature = "segments")]
mod segments {
    use super::*;
    use skua_store::{FlowBatch, FlowChange, FlowContext, FlowLookup, Store, StoreConfig};
    use std::{ops::ControlFlow, time::Duration};

    pub struct Engine {
        store: Store,
        batch: FlowBatch,
    }

    impl Engine {
        pub fn open(dir: &Path) -> Self {
            let mut config = StoreConfig::default();
            // Eight files for what the others have two partitions for.
            config.flows.max_bytes = 128 << 20;
            Self {
                store: Store::open(dir, config).unwrap(),
                batch: FlowBatch::new(),
            }
        }

        pub fn append(&mut self, rows: &[Row], sync: bool) {
            for row in rows {
                self.batch.push(&FlowChange {
                    record: &row.record,
                    added: row.added,
                    since_ns: row.since_ns,
                    context: FlowContext {
                        host: "host",
                        capture: "6ba7b810-9dad-11d1-80b4-00c04fd430c8",
                        node_tid: "f47ac10b-58cc-5372-8567-0e02b2c3d479",
                        interface: "eth0",
                    },
                    parties: Default::default(),
                });
            }
            self.store.flows().append(&mut self.batch);
            assert!(self.store.flows().flush(Duration::from_secs(60)));
            if sync {
                self.store.sync();
            }
        }

        pub fn finish(&mut self) {}

        pub fn scan(&mut self, from: u64, to: u64) -> usize {
            let mut flows = HashSet::new();
            self.store.flows().scan(from, to, FlowLookup::All, &mut |flow| {
                flows.insert(flow.record.id);
                ControlFlow::Continue(())
            });
            flows.len()
        }

        pub fn delete_before(&mut self, _: u64) {
            println!("  (by files, as limits say)");
        }

        pub fn rows(&mut self) -> usize {
            self.store.stats().flows.records as usize
        }
    }
}
