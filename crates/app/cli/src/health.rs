//! The doctor's report on losses, from the status.

use std::io::{self, Write};

use serde_json::Value;
use skua_output as output;
use skua_output::{each, text_of};

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

/// `NUMBER NAME` of each counter that is not 0, separated by commas.
fn parts(of: &Value, names: &[(&str, &str)]) -> String {
    let parts = names.iter().filter(|(key, _)| number(&of[*key]) > 0);
    let parts = parts.map(|(key, name)| format!("{} {name}", output::count(number(&of[*key]))));
    parts.collect::<Vec<_>>().join(", ")
}

/// Numbers by cause, `CAUSE NUMBER, …`; of sums their packets.
fn causes(of: &Value) -> String {
    let causes = of.as_object().into_iter().flatten();
    let causes = causes.map(|(cause, sum)| {
        let packets = sum.get("packets").unwrap_or(sum);
        format!("{cause} {}", output::count(number(packets)))
    });
    causes.collect::<Vec<_>>().join(", ")
}

/// Lines on agents, and on the connection of one.
pub fn print_ends(out: &mut impl Write, status: &Value) -> io::Result<()> {
    let uplink = &status["uplink"];
    if !uplink.is_null() {
        let state = match uplink["connected"] == true {
            true => "connected".to_owned(),
            false => format!("not connected: {}", text_of(uplink, "error")),
        };
        writeln!(out, "analyzer  {}: {state}", text_of(uplink, "analyzer"))?;
    }
    skua_export::export::report::print(out, &status["export"])?;
    skua_archive::lake::report::print(out, &status["lake"])?;
    let mut title = "agents";
    for agent in each(&status["fleet"]["agents"]) {
        writeln!(out, "{title:<9} {}", crate::agents::line(agent))?;
        title = "";
    }
    Ok(())
}

/// Losses between agents and analyzer, and remedies.
fn advise_ends(status: &Value, advice: &mut Vec<String>) {
    let uplink = &status["uplink"];
    if uplink["connected"] == false {
        advice.push(format!(
            "no connection with the analyzer at {}: {}",
            text_of(uplink, "analyzer"),
            text_of(uplink, "error")
        ));
    }
    if number(&uplink["lost_flow_updates"]) > 0 {
        advice.push(format!(
            "{} flow updates were dropped: the queue was full while the analyzer was unreachable",
            number(&uplink["lost_flow_updates"])
        ));
    }
    skua_export::export::report::advise(&status["export"], advice);
    skua_archive::lake::report::advise(&status["lake"], advice);
    for agent in each(&status["fleet"]["agents"]) {
        let host = text_of(agent, "host");
        if agent["connected"] == false {
            advice.push(format!("the agent of {host} is not connected"));
        }
        for (key, what) in [
            (
                "lost_flow_updates",
                "flow updates were lost by the agent of",
            ),
            (
                "evicted_flows",
                "flows were evicted from memory (raise fleet.memory), of the agent of",
            ),
            (
                "forgotten_owners",
                "socket owners were evicted from memory (raise fleet.memory), of the agent of",
            ),
            (
                "refused_records",
                "flows were refused as impossible (is the clock right?), of the agent of",
            ),
        ] {
            if number(&agent[key]) > 0 {
                advice.push(format!("{} {what} {host}", number(&agent[key])));
            }
        }
    }
}

/// Lines on the graph, the history and captures of a `skua run`.
pub fn print(out: &mut impl Write, status: &Value) -> io::Result<()> {
    if status["graph"].is_null() {
        return Ok(());
    }
    let graph = &status["graph"];
    let discovery = &status["discovery"];
    write!(
        out,
        "graph     {} nodes, {} edges",
        output::count(number(&graph["nodes"])),
        output::count(number(&graph["edges"]))
    )?;
    match discovery["running"].as_bool() {
        Some(true) => writeln!(
            out,
            "; {} network namespaces followed",
            output::count(number(&discovery["namespaces"]))
        )?,
        _ => writeln!(out, "; not followed")?,
    }
    let found = parts(
        discovery,
        &[
            ("containers", "containers"),
            ("processes", "listening processes"),
            ("guests", "holders of taps"),
            ("programs", "BPF programs"),
            ("rulesets", "namespaces with nftables rules"),
        ],
    );
    if !found.is_empty() {
        writeln!(out, "          found: {found}")?;
    }
    for (name, list) in [
        (
            "lost",
            parts(
                discovery,
                &[
                    ("lost", "times the kernel dropped notifications"),
                    ("resyncs", "times listed again"),
                    ("errors", "requests refused"),
                ],
            ),
        ),
        (
            "left out",
            parts(
                discovery,
                &[
                    ("omitted_nodes", "nodes"),
                    ("omitted_entries", "entries of nodes (addresses, routes, …)"),
                    ("namespaces_refused", "namespaces (refused)"),
                    ("rulesets_failed", "nftables rules (times not read)"),
                    ("namespaces_omitted", "namespaces (too many)"),
                ],
            ),
        ),
    ] {
        if !list.is_empty() {
            writeln!(out, "          {name}: {list}")?;
        }
    }
    print_history(out, &status["history"])?;
    for capture in each(&status["captures"]) {
        print_capture(out, capture)?;
    }
    Ok(())
}

fn print_history(out: &mut impl Write, history: &Value) -> io::Result<()> {
    if history.is_null() {
        return writeln!(
            out,
            "history   not on disk (history.directory); if it should be, the log says why"
        );
    }
    writeln!(out, "history   {}", text_of(history, "directory"))?;
    for (name, what) in [("graph", "events"), ("flows", "changes")] {
        let log = &history[name];
        writeln!(
            out,
            "          {name}: {} {what} in {}, {} written",
            output::count(number(&log["records"])),
            output::bytes(number(&log["bytes"])),
            output::count(number(&log["written"])),
        )?;
        if let Some(why) = log["failing"].as_str() {
            writeln!(out, "          {name}: cannot be written now: {why}")?;
        }
        let lost = causes(&log["lost"]);
        if !lost.is_empty() {
            writeln!(out, "          {name}: lost: {lost}")?;
        }
        let damage = number(&log["damage"]["places"]);
        if damage > 0 {
            writeln!(
                out,
                "          {name}: {} cannot be read, {}",
                output::counted(usize::try_from(damage).unwrap_or(usize::MAX), "place"),
                output::bytes(number(&log["damage"]["bytes"]))
            )?;
        }
    }
    let more = parts(
        history,
        &[
            ("gaps", "gaps in the graph"),
            ("unwritten", "flows evicted before they were written"),
        ],
    );
    if !more.is_empty() {
        writeln!(out, "          {more}")?;
    }
    Ok(())
}

fn print_capture(out: &mut impl Write, capture: &Value) -> io::Result<()> {
    let points = parts(
        &capture["points"],
        &[
            ("active", "active"),
            ("pending", "pending"),
            ("error", "refused"),
        ],
    );
    writeln!(
        out,
        "capture   {} by {}: {}",
        text_of(capture, "uuid"),
        text_of(capture, "type"),
        match points.as_str() {
            "" => "no nodes",
            points => points,
        }
    )?;
    writeln!(out, "          {}", text_of(capture, "query"))?;
    if let Some(error) = capture["error"].as_str() {
        writeln!(out, "          {error}")?;
    }
    if capture["in_flows"].is_null() {
        return Ok(());
    }
    writeln!(
        out,
        "          {} packets seen, {} in flows",
        output::count(number(&capture["seen"]["packets"])),
        output::count(number(&capture["in_flows"]["packets"]))
    )?;
    for (key, name) in [
        ("lost", "lost"),
        ("left_out", "left out"),
        ("notes", "note"),
    ] {
        let list = causes(&capture[key]);
        if !list.is_empty() {
            writeln!(out, "          {name}: {list}")?;
        }
    }
    print_received(out, &capture["received"])?;
    let packets = &capture["raw_packets"];
    let live = &capture["live"];
    let kept = parts(packets, &[("kept", "kept"), ("forgotten", "forgotten")]);
    let dropped = parts(live, &[("watchers", "watching"), ("dropped", "dropped")]);
    for (name, list) in [("packets", kept), ("live", dropped)] {
        if !list.is_empty() {
            writeln!(out, "          {name}: {list}")?;
        }
    }
    Ok(())
}

/// What a capture got of others, and lost of that.
fn print_received(out: &mut impl Write, received: &Value) -> io::Result<()> {
    if received.is_null() {
        return Ok(());
    }
    let list = parts(
        received,
        &[
            ("datagrams", "datagrams"),
            ("exporters", "exporters"),
            ("records", "records"),
            ("waiting", "sets that wait for a template"),
            ("restarts", "restarts of exporters"),
        ],
    );
    writeln!(out, "          received: {list}")?;
    let lost = causes(&received["lost"]);
    if !lost.is_empty() {
        writeln!(out, "          lost on receipt: {lost}")?;
    }
    if let Some(error) = received["last_error"].as_str() {
        writeln!(out, "          last unreadable: {error}")?;
    }
    Ok(())
}

/// Errors in received captures, and remedies.
fn advise_received(id: &str, received: &Value, advice: &mut Vec<String>) {
    for (cause, units) in received["lost"].as_object().into_iter().flatten() {
        let units = number(units);
        let what = match cause.as_str() {
            "decode_error" => format!(
                "{units} datagrams could not be read completely, the last one from {}",
                text_of(received, "last_error")
            ),
            "no_template" => format!(
                "{units} sets of records were lost: no template came for them; let the exporter send \
                 templates more often, at least once a minute"
            ),
            "sequence_gap" => format!(
                "{units} datagrams or records of exporters did not arrive: the network or the exporter lost \
                 them"
            ),
            "receive_queue_full" => format!(
                "{units} datagrams came faster than they could be read: raise net.core.rmem_max"
            ),
            "exporters_full" => {
                format!("{units} datagrams were dropped: too many exporters at a time")
            }
            "no_packet" => format!("{units} samples have no packet"),
            // Intended by the configuration.
            "not_allowed" => continue,
            "connection_limit" => {
                format!("{units} connections were closed: too many at a time, or too slow")
            }
            other => format!("{units} units were lost: {other}"),
        };
        advice.push(format!("capture {id}: {what}"));
    }
}

/// What a user can do, by the status.
pub fn advice(status: &Value) -> Vec<String> {
    let mut advice = Vec::new();
    let history = &status["history"];
    for log in ["graph", "flows"] {
        let lost = &history[log]["lost"];
        if let Some(why) = history[log]["failing"].as_str() {
            advice.push(format!(
                "the history of {log} cannot be written ({why}): free space on the disk, or lower \
                 history.graph_size and history.flow_size"
            ));
        } else if number(&lost["disk_full"]) > 0 {
            advice.push(format!(
                "{} records of the history of {log} were lost because the disk was full: free \
                 space, or lower history.graph_size and history.flow_size",
                number(&lost["disk_full"])
            ));
        }
        if number(&lost["queue"]) > 0 {
            advice.push(format!(
                "{} records of the history of {log} were lost because the disk was too slow",
                number(&lost["queue"])
            ));
        }
    }
    if number(&history["unwritten"]) > 0 {
        advice.push(format!(
            "{} flows were evicted from memory before they were written to the history: raise history.memory \
             and captures.memory",
            number(&history["unwritten"])
        ));
    }
    let discovery = &status["discovery"];
    if discovery["running"] == false {
        advice.push("the topology is no longer followed: restart `skua run`".into());
    }
    if number(&discovery["omitted_nodes"]) > 0 {
        advice.push(format!(
            "{} interfaces and namespaces are beyond the graph's limit",
            number(&discovery["omitted_nodes"])
        ));
    }
    for capture in each(&status["captures"]) {
        let id = text_of(capture, "uuid");
        let refused = number(&capture["points"]["error"]);
        if refused > 0 {
            advice.push(format!(
                "capture {id} failed on {}: `skua capture get {id}` says why",
                output::counted(usize::try_from(refused).unwrap_or(usize::MAX), "node")
            ));
        }
        for (cause, sum) in capture["lost"].as_object().into_iter().flatten() {
            let hint = match cause.as_str() {
                c if c.starts_with("table_full") => "raise captures.max_entries",
                "ring_full" => "use --type ebpf",
                _ => "see docs/guide.md",
            };
            advice.push(format!(
                "{} packets of capture {id} lost as {cause}: {hint}",
                sum["packets"]
            ));
        }
        advise_received(id, &capture["received"], &mut advice);
        if number(&capture["not_kept"]["flows"]) > 0 {
            advice.push(format!(
                "{} flows of capture {id} were evicted from memory: raise captures.memory",
                capture["not_kept"]["flows"]
            ));
        }
    }
    advise_ends(status, &mut advice);
    advice
}
