//! Metrics of an agent's connection with its analyzer.

use skua_process::metrics::Exposition;

use crate::agent::uplink::UplinkStatus;

skua_process::metrics! { "The connection of an agent with its analyzer"
    CONNECTED gauge "skua_uplink_connected" [] "1 while there is a connection with an analyzer.";
    CONNECTIONS counter "skua_uplink_connections_total" [] "Connections with analyzers that were made.";
    SYNCS counter "skua_uplink_syncs_total" [] "Times that the whole graph was sent.";
    WAITING gauge "skua_uplink_waiting_bytes" [] "Flows that wait to be sent or confirmed.";
    LOST counter "skua_uplink_lost_flow_updates_total" [] "Updates of flows that were dropped as the queue was full.";
}

pub fn write(out: &mut Exposition, status: &UplinkStatus) {
    out.single(&CONNECTED, status.connected);
    out.single(&CONNECTIONS, status.connections);
    out.single(&SYNCS, status.syncs);
    out.single(&WAITING, status.waiting_bytes);
    out.single(&LOST, status.lost_flow_updates);
}
