//! Metrics of the agents of an analyzer.

use skua_process::metrics::Exposition;

use crate::analyzer::FleetStatus;

skua_process::metrics! { "Agents, at their analyzer"
    AGENTS gauge "skua_agents" ["state"] "Agents, by whether there is a connection.";
    REFUSED counter "skua_agents_refused_total" [] "Connections of agents that were refused.";
    FLOWS gauge "skua_agent_flows" ["host"] "Flows of an agent in memory.";
    CONNECTIONS counter "skua_agent_connections_total" ["host"] "Connections that an agent has made.";
    FLOW_UPDATES counter "skua_agent_flow_updates_total" ["host"] "Updates of flows that were taken from an agent.";
    LOST counter "skua_agent_lost_total" ["host", "cause"] "Flows of an agent that were lost, and owners of their sockets, by cause.";
}

pub fn write(out: &mut Exposition, status: &FleetStatus) {
    let connected = status.agents.iter().filter(|a| a.connected).count();
    let mut agents = out.family(&AGENTS);
    agents.value(["connected"], connected);
    agents.value(["gone"], status.agents.len() - connected);
    out.single(&REFUSED, status.refused_connections);
    let mut flows = out.family(&FLOWS);
    for agent in &status.agents {
        flows.value([&agent.host], agent.flows);
    }
    let mut connections = out.family(&CONNECTIONS);
    for agent in &status.agents {
        connections.value([&agent.host], agent.connections);
    }
    let mut updates = out.family(&FLOW_UPDATES);
    for agent in &status.agents {
        updates.value([&agent.host], agent.flow_updates);
    }
    let mut lost = out.family(&LOST);
    for agent in &status.agents {
        lost.value([&agent.host, "agent_queue"], agent.lost_flow_updates);
        lost.value([&agent.host, "memory"], agent.evicted_flows);
        lost.value([&agent.host, "owners"], agent.forgotten_owners);
        lost.value([&agent.host, "unsound"], agent.refused_records);
    }
}
