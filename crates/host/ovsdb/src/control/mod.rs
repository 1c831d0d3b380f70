//! What is made in Open vSwitch, and removed again.

mod cleanup;
mod export;
mod mirror;
mod operation;
mod output;
mod owner;
mod watch;

pub use export::{BridgeExport, Export, Ipfix, Netflow, Sflow};
pub use mirror::{Mirror, MirrorSpec, MirrorState, MirrorStatistics, Selected};

use crate::{Client, ClientConfig, Error, Monitored};
use cleanup::Cleaned;
use owner::Owner;
use serde_json::Value;
use skua_link::Namespace;
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use uuid::Uuid;
use watch::{Feed, Watch};

/// What all that is made shares: the connection, and whose it is.
struct Inner {
    client: Client,
    watch: Arc<Watch>,
    owner: Owner,
    patience: Duration,
    namespace: Namespace,
    /// What could not be removed because there was no connection.
    leftovers: Mutex<Vec<Vec<Value>>>,
}

/// Makes mirrors and exporters. Each is removed with its handle; after a process that made some has ended,
/// the next one that connects removes them.
#[derive(Clone)]
pub struct OvsControl(Arc<Inner>);

impl OvsControl {
    /// Connects, waiting at most [`crate::Limits::patience`], and removes what ended processes left.
    /// `namespace` is the network namespace of Open vSwitch, none: that of this process.
    pub fn connect(mut config: ClientConfig, namespace: Option<Namespace>) -> Result<Self, Error> {
        let owner = Owner::new()?;
        let patience = config.limits.patience;
        config.lock = Some(owner.lock());
        let watch = Arc::new(Watch::new(config.limits.memory));
        let client = Client::start(config, monitored(), Feed(watch.clone()))?;
        client.wait_connected(patience)?;
        let namespace = match namespace {
            Some(namespace) => namespace,
            None => Namespace::own()?,
        };
        let control = Self(Arc::new(Inner {
            client,
            watch,
            owner,
            patience,
            namespace,
            leftovers: Mutex::default(),
        }));
        control.clean_up()?;
        Ok(control)
    }

    /// Removes what ended processes left, and what could not be removed before.
    pub fn clean_up(&self) -> Result<(), Error> {
        self.0.remove_leftovers()?;
        let Cleaned {
            mirrors,
            ports,
            exports,
        } = self.0.clean_up()?;
        if mirrors + ports + exports > 0 {
            tracing::info!(
                target: "ovsdb",
                mirrors, ports, exports, "removed from Open vSwitch what a former run left"
            );
        }
        Ok(())
    }

    /// What to mirror for a node of the graph, by its `UUID`: all of a bridge, or both directions at a port
    /// or at the port of an interface.
    pub fn spec_of(&self, row: Uuid) -> Result<MirrorSpec, Error> {
        let spec = self.0.watch.read(|rows| mirror::spec_of(rows, row));
        spec.ok_or(Error::Disconnected)?
    }

    /// Mirrors packets of a bridge to an interface that is made for it.
    pub fn mirror(&self, spec: &MirrorSpec) -> Result<Mirror, Error> {
        self.0.remove_leftovers()?;
        Mirror::new(&self.0, spec)
    }

    /// Has a bridge export its flows. Its previous exporter is restored when the handle is dropped.
    pub fn export(&self, bridge: &str, export: &Export) -> Result<BridgeExport, Error> {
        self.0.remove_leftovers()?;
        BridgeExport::new(&self.0, bridge, export)
    }

    /// The connection.
    pub fn client(&self) -> &Client {
        &self.0.client
    }
}

impl Inner {
    /// Carries out operations. Returns their results, and the number of the resulting configuration.
    fn commit(&self, mut operations: Vec<Value>) -> Result<(Vec<Value>, i64), Error> {
        operations.extend(operation::next_configuration());
        let mut results = self.client.transact(operations)?;
        let number = operation::configuration(&mut results)?;
        Ok((results, number))
    }

    /// Waits until Open vSwitch has done as a configuration says.
    fn settle(&self, number: i64) -> Result<(), Error> {
        let done = self.watch.wait(self.patience, |rows| {
            let current = rows.rows("Open_vSwitch").next();
            current.and_then(|(_, row)| row.int("cur_cfg")) >= Some(number)
        });
        if done {
            return Ok(());
        }
        Err(Error::Timeout {
            what: "reaction of ovs-vswitchd",
            patience: self.patience,
        })
    }

    /// Carries out operations and waits until Open vSwitch has applied them. Returns the operations'
    /// results.
    fn configure(&self, operations: Vec<Value>) -> Result<Vec<Value>, Error> {
        let (results, number) = self.commit(operations)?;
        self.settle(number)?;
        Ok(results)
    }

    /// Removes something at its end. Without a connection it is done with the next one.
    fn dismantle(&self, operations: Vec<Value>) -> Result<(), Error> {
        match self.commit(operations.clone()) {
            Ok((_, number)) => {
                if let Err(error) = self.settle(number) {
                    // It is out of the database; when Open vSwitch runs again it will see so.
                    tracing::warn!(target: "ovsdb", "removed from the database only: {error}");
                }
                Ok(())
            }
            // What it is about is not there any more: it would be refused the next time, too.
            Err(error @ Error::Refused { .. }) => Err(error),
            Err(error) => {
                let leftovers = self.leftovers.lock();
                let mut leftovers = leftovers.unwrap_or_else(PoisonError::into_inner);
                leftovers.push(operations);
                Err(error)
            }
        }
    }

    fn remove_leftovers(&self) -> Result<(), Error> {
        let leftovers = {
            let leftovers = self.leftovers.lock();
            std::mem::take(&mut *leftovers.unwrap_or_else(PoisonError::into_inner))
        };
        let mut last = Ok(());
        for operations in leftovers {
            match self.dismantle(operations) {
                Err(Error::Refused { .. }) | Ok(()) => {}
                error => last = error,
            }
        }
        last
    }
}

/// Tables of exporters, and the columns of bridges that refer to them.
const EXPORTS: [(&str, &str); 3] = [
    ("sFlow", "sflow"),
    ("NetFlow", "netflow"),
    ("IPFIX", "ipfix"),
];

fn monitored() -> Vec<Monitored> {
    let mut tables = vec![
        Monitored::new("Open_vSwitch", &["cur_cfg"]),
        Monitored::new(
            "Bridge",
            &["name", "ports", "mirrors", "sflow", "netflow", "ipfix"],
        ),
        Monitored::new("Port", &["name", "interfaces", "external_ids"]),
        Monitored::new("Interface", &["name", "error"]),
        Monitored::new(
            "Mirror",
            &[
                "name",
                "select_all",
                "select_src_port",
                "select_dst_port",
                "output_port",
                "external_ids",
                "statistics",
            ],
        ),
    ];
    tables.extend(EXPORTS.map(|(table, _)| Monitored::new(table, &["external_ids"])));
    tables
}
