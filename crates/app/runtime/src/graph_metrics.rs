//! Metrics of the graph, and of what fills it.

use skua_discover::Counters;
use skua_process::metrics::Exposition;
use skua_topology::Stats;

skua_process::metrics! { "The topology"
    ELEMENTS gauge "skua_graph_elements" ["kind"] "Nodes and edges of the graph that exist now.";
    RUNNING gauge "skua_discovery_running" [] "1 while the topology is followed.";
    EVENTS counter "skua_discovery_events_total" [] "Notifications of the kernel that were taken.";
    LOST counter "skua_discovery_lost_total" [] "Times that the kernel had to drop notifications; the namespace is listed again.";
    RESYNCS counter "skua_discovery_resyncs_total" [] "Times that a namespace was listed again.";
    ERRORS counter "skua_discovery_errors_total" [] "Requests to the kernel that failed; they are made again.";
    OMITTED counter "skua_discovery_omitted_total" ["what"] "Nodes, and entries of nodes, beyond the graph's limits.";
    FOUND gauge "skua_discovery_found" ["kind"] "What there is besides interfaces, by kind.";
    RULESETS_FAILED counter "skua_discovery_rulesets_failed_total" [] "Times that rules of nftables could not be read.";
    NAMESPACES gauge "skua_discovery_namespaces" ["state"] "Network namespaces by state.";
}

pub fn write(out: &mut Exposition, graph: &Stats, discovery: Option<&(Counters, bool)>) {
    let mut elements = out.family(&ELEMENTS);
    elements.value(["node"], graph.nodes);
    elements.value(["edge"], graph.edges);
    let Some((counters, running)) = discovery else {
        return;
    };
    out.single(&RUNNING, *running);
    out.single(&EVENTS, counters.events);
    out.single(&LOST, counters.lost);
    out.single(&RESYNCS, counters.resyncs);
    out.single(&ERRORS, counters.errors);
    let mut omitted = out.family(&OMITTED);
    omitted.value(["nodes"], counters.omitted_nodes);
    omitted.value(["entries"], counters.omitted_entries);
    let mut found = out.family(&FOUND);
    found.value(["containers"], counters.containers);
    found.value(["processes"], counters.processes);
    found.value(["guests"], counters.guests);
    found.value(["programs"], counters.programs);
    found.value(["rulesets"], counters.rulesets);
    out.single(&RULESETS_FAILED, counters.rulesets_failed);
    let mut namespaces = out.family(&NAMESPACES);
    namespaces.value(["followed"], counters.namespaces);
    namespaces.value(["refused"], counters.namespaces_refused);
    namespaces.value(["omitted"], counters.namespaces_omitted);
}
