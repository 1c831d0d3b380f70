//! Gives discovery the processes that listen.

use skua_discover::{Listeners, ListeningPort, ListeningProcess};
use std::collections::HashMap;

use skua_state::sockets::Sockets;

/// Processes at most.
const MOST: usize = 8_192;

/// Updates what listens now: nothing when sockets are not watched.
pub fn update(listeners: &Listeners, sockets: Option<&Sockets>) {
    let Some(sockets) = sockets else {
        return listeners.set(Vec::new());
    };
    let mut processes: HashMap<(u32, u32, u64, u32), ListeningProcess> = HashMap::new();
    for record in sockets.store.open() {
        // A port of those that the host gives to callers is no service.
        if !record.listens() || sockets.store.service_of(record).is_none() {
            continue;
        }
        let Some(owner) = sockets.owner(record) else {
            continue;
        };
        let key = (owner.pid, owner.ns_pid, owner.start_ns, record.netns);
        if processes.len() >= MOST && !processes.contains_key(&key) {
            continue;
        }
        let process = processes.entry(key).or_insert_with(|| ListeningProcess {
            pid: owner.pid,
            ns_pid: owner.ns_pid,
            start_ns: owner.start_ns,
            name: owner.process.clone(),
            executable: owner.executable.as_deref().map(str::to_owned),
            uid: owner.uid,
            user: owner.user.as_deref().map(str::to_owned),
            unit: owner.unit.as_deref().map(str::to_owned),
            container: owner.container.as_ref().map(|of| of.id.clone()),
            netns: record.netns.into(),
            ports: Vec::new(),
        });
        process.ports.push(ListeningPort {
            protocol: match record.protocol.name() {
                "udp" => "UDP",
                _ => "TCP",
            },
            address: record.local.ip(),
            port: record.local.port(),
        });
    }
    listeners.set(processes.into_values().collect());
}
