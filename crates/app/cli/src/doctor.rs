//! `skua doctor`: what this kernel supports, which rung of each ladder is used and why, and losses.

use std::io::{self, Write};

use serde_json::{Value, json};
use skua_client::Client;
use skua_config::{Config, Permission, arguments::AnalyzerArguments};
use skua_kernel::{
    HookKind,
    flow::{FlowTable, FlowTableConfig, Proof, Rung, prove},
};
use skua_output as output;
use skua_output::{OutputFormat, each, text_of};
use skua_watch::{rights, sockets};

use crate::{arguments::DoctorArguments, health};

/// Hooks in the order in which they are tried, with the first kernel that can run our programs
/// there; XDP only on request.
const HOOKS: [(HookKind, &str); 4] = [
    (HookKind::Tcx, "6.6"),
    (HookKind::Clsact, "5.8"),
    (HookKind::Socket, "5.12"),
    (HookKind::Xdp, "5.18, on request: --type xdp"),
];

pub fn doctor(arguments: &DoctorArguments) -> anyhow::Result<()> {
    let config = Config::load(None)?;
    let running = running(&arguments.analyzer);
    let unreachable = running.as_ref().err().cloned();
    let report = examine(&config, running);
    let mut out = io::stdout().lock();
    match arguments.print.output {
        OutputFormat::Json => writeln!(out, "{report}")?,
        OutputFormat::Csv => anyhow::bail!("doctor cannot print CSV: use --output json"),
        OutputFormat::Table => print(&mut out, &report)?,
    }
    // The report is of this host alone.
    match unreachable.filter(|_| arguments.analyzer.is_named()) {
        Some(reason) => anyhow::bail!("{reason}"),
        None => Ok(()),
    }
}

/// Status of the `skua run` that answers, if one does; else why not, where one was expected.
fn running(analyzer: &AnalyzerArguments) -> Result<Option<Value>, String> {
    let address = &analyzer.address;
    let asked = Client::reach(analyzer).and_then(|client| {
        client
            .map(|client| client.object("/api/status"))
            .transpose()
    });
    match asked {
        Ok(None) if analyzer.is_named() => Err(format!(
            "nothing answers at {address}: it has not started yet, or has ended; its log says more"
        )),
        Ok(status) => Ok(status),
        Err(error) => Err(format!("cannot read the status of {address}: {error:#}")),
    }
}

fn examine(config: &Config, running: Result<Option<Value>, String>) -> Value {
    let (running, unknown) = match running {
        Ok(running) => (running, None),
        Err(reason) => (None, Some(reason)),
    };
    let capabilities = capabilities();
    let mut hooks = Vec::new();
    let mut used = None;
    for (hook, since) in HOOKS {
        let proof = prove(hook);
        if proof == Proof::Active && used.is_none() && hook != HookKind::Xdp {
            used = Some(hook);
        }
        hooks.push(json!({
            "hook": hook.name(),
            "since": since,
            "state": proof.name(),
            "reason": proof.reason(),
            "used": used == Some(hook),
        }));
    }
    let programs = programs(used.unwrap_or(HookKind::Tcx));
    let memory = FlowTable::memory(config.flow.max_entries);
    // Of the running process, or else of one that is tried now.
    let sockets = match &running {
        Some(running) => running["sockets"].clone(),
        None => sockets::report::trial(config),
    };
    let mut report = json!({
        "kernel": kernel(),
        "rights": capabilities,
        "hooks": hooks,
        "programs": programs,
        "table": {"max_entries": config.flow.max_entries, "bytes": memory},
        "sockets": sockets,
        "taps": taps(config),
        "steer": steer(config),
        "running": running,
        "running_unknown": unknown,
    });
    report["advice"] = advice(&report).into();
    report
}

/// Whether packets can be copied to monitors, and how.
fn taps(config: &Config) -> Value {
    let allowed = config.policy.tap.is_allowed();
    match skua_tap::check() {
        Ok(hook) => json!({"allowed": allowed, "state": "usable", "hook": hook.name()}),
        Err(error) => {
            json!({"allowed": allowed, "state": "unsupported", "reason": error.to_string()})
        }
    }
}

fn kernel() -> Value {
    let uname = rustix::system::uname();
    let text = |s: &std::ffi::CStr| s.to_string_lossy().into_owned();
    let read = |path: &str| {
        std::fs::read_to_string(path)
            .map(|t| t.trim().to_owned())
            .ok()
    };
    json!({
        "release": text(uname.release()),
        "machine": text(uname.machine()),
        "cpus": std::thread::available_parallelism().map_or(1, usize::from),
        "btf": std::path::Path::new("/sys/kernel/btf/vmlinux").exists(),
        "jit": read("/proc/sys/net/core/bpf_jit_enable").is_none_or(|v| v != "0"),
        "unprivileged_bpf_disabled": read("/proc/sys/kernel/unprivileged_bpf_disabled"),
    })
}

fn capabilities() -> Vec<Value> {
    let held = rights::held();
    rights::CAPABILITIES
        .iter()
        .map(|capability| {
            json!({
                "capability": capability.name,
                "held": held >> capability.number & 1 == 1,
                "needed": capability.needed,
                "purpose": capability.purpose,
            })
        })
        .collect()
}

/// Which of the programs for a hook load, best first.
fn programs(hook: HookKind) -> Vec<Value> {
    let mut used = false;
    Rung::ladder(hook)
        .iter()
        .map(|rung| {
            let config = FlowTableConfig {
                max_entries: 64,
                max_points: 1,
                ..FlowTableConfig::default()
            };
            let loaded = FlowTable::with_rungs(&[*rung], config).map(drop);
            let is_used = loaded.is_ok() && !used;
            used |= is_used;
            json!({
                "programs": rung.describe(),
                "state": if loaded.is_ok() { "loads" } else { "unsupported" },
                "reason": loaded.err().map(|e| e.to_string()).unwrap_or_default(),
                "used": is_used,
            })
        })
        .collect()
}

/// Whether packets can be steered.
fn steer(config: &Config) -> Value {
    let loaded = skua_kernel::steer::trial();
    let reason = match (&loaded, config.policy.steer) {
        (Err(error), _) => error.to_string(),
        (Ok(_), Permission::Forbidden) => "forbidden by policy.steer".into(),
        (Ok(_), Permission::Allowed) => String::new(),
    };
    json!({
        "programs": match &loaded {
            Ok(trial) => format!("{}: {}", skua_kernel::steer::NEEDS, trial.describe()),
            Err(_) => skua_kernel::steer::NEEDS.to_owned(),
        },
        "state": if loaded.is_ok() { "loads" } else { "unsupported" },
        "used": reason.is_empty(),
        "reason": reason,
    })
}

fn advice(report: &Value) -> Vec<String> {
    let mut advice = Vec::new();
    advice.extend(report["running_unknown"].as_str().map(str::to_owned));
    let missing: Vec<&str> = each(&report["rights"])
        .iter()
        .filter(|c| c["held"] == false && c["needed"] == true)
        .map(|c| text_of(c, "capability"))
        .collect();
    let hook_works = each(&report["hooks"]).iter().any(|h| h["used"] == true);
    if !hook_works && !missing.is_empty() {
        advice.push(format!(
            "rights are missing ({}): {}",
            missing.join(", "),
            rights::how_to_get()
        ));
    } else if !hook_works {
        advice.push(
            "no hook of the kernel works: `skua run` falls back to packet sockets (--type afpacket), \
             which cost more; the kernel should be 5.10 or newer with CONFIG_BPF_SYSCALL and \
             CONFIG_NET_CLS_BPF"
                .into(),
        );
    }
    if report["kernel"]["jit"] == false {
        advice.push("BPF programs are interpreted: sysctl net.core.bpf_jit_enable=1".into());
    }
    let summary = &report["running"]["summary"];
    if let Some(interfaces @ 1..) = summary["not_watched"].as_u64() {
        advice.push(format!(
            "{interfaces} interfaces are not watched: before Linux 6.2 and by XDP each network namespace has programs of its \
             own, and the kernel can hang when more than 1,024 end together; watch fewer (--interface, captures of chosen \
             interfaces), or the host's ends of their veth pairs (without --all-netns)"
        ));
    }
    if let Some(lost) = summary["lost"].as_object() {
        for (cause, sum) in lost {
            let hint = match cause.as_str() {
                c if c.starts_with("table_full") => {
                    "more conversations at a time than the table has entries: raise flow.max_entries"
                }
                "ring_full" => "packets came faster than user space read them: use --type ebpf",
                "truncated" => "frames too short for a link header: a faulty driver or sender",
                _ => "see docs/guide.md",
            };
            advice.push(format!(
                "{} packets lost as {cause}: {hint}",
                sum["packets"]
            ));
        }
    }
    if summary["not_kept"]["flows"].as_u64().unwrap_or(0) > 0 {
        advice.push(format!(
            "{} conversations were evicted from the history: raise history.memory",
            summary["not_kept"]["flows"]
        ));
    }
    advice.extend(health::advice(&report["running"]));
    advice.extend(sockets::report::advice(
        &report["sockets"],
        &summary["sockets"],
    ));
    advice
}

fn print(out: &mut impl Write, report: &Value) -> io::Result<()> {
    let kernel = &report["kernel"];
    let yes = |v: &Value| if *v == true { "yes" } else { "no" };
    writeln!(
        out,
        "kernel    {} {}, {} CPUs, BTF {}, BPF JIT {}",
        text_of(kernel, "release"),
        text_of(kernel, "machine"),
        kernel["cpus"],
        yes(&kernel["btf"]),
        yes(&kernel["jit"]),
    )?;
    let mut title = "rights";
    for capability in each(&report["rights"]) {
        let mark = match (&capability["held"], &capability["needed"]) {
            (Value::Bool(true), _) => "held",
            (_, Value::Bool(true)) => "missing",
            _ => "not held",
        };
        let need = if capability["needed"] == true {
            "needed"
        } else {
            "optional"
        };
        writeln!(
            out,
            "{title:<9} {mark:<8}  {need:<8}  {:<14} {}",
            text_of(capability, "capability"),
            text_of(capability, "purpose")
        )?;
        title = "";
    }
    title = "hooks";
    for hook in each(&report["hooks"]) {
        rung(
            out,
            title,
            hook,
            &format!("{} ({})", text_of(hook, "hook"), text_of(hook, "since")),
        )?;
        title = "";
    }
    title = "programs";
    for program in each(&report["programs"]) {
        rung(out, title, program, text_of(program, "programs"))?;
        title = "";
    }
    rung(
        out,
        "steer",
        &report["steer"],
        text_of(&report["steer"], "programs"),
    )?;
    let table = &report["table"];
    writeln!(
        out,
        "table     {} entries take {} of kernel memory",
        table["max_entries"],
        output::bytes(table["bytes"].as_u64().unwrap_or(0))
    )?;
    sockets::report::print(out, &report["sockets"])?;
    let taps = &report["taps"];
    let how = match (text_of(taps, "hook"), text_of(taps, "reason")) {
        (hook, "") => format!("by clone from {hook}"),
        (_, reason) => reason.to_owned(),
    };
    let forbidden = match taps["allowed"] == true {
        true => "",
        false => ", but forbidden (policy.tap)",
    };
    writeln!(
        out,
        "taps      {}, {how}{forbidden}",
        text_of(taps, "state")
    )?;
    match report["running_unknown"].is_null() {
        true => print_running(out, &report["running"])?,
        false => writeln!(out, "running   not known, see below")?,
    }
    health::print(out, &report["running"])?;
    health::print_ends(out, &report["running"])?;
    title = "advice";
    for line in each(&report["advice"]) {
        writeln!(out, "{title:<9} {}", line.as_str().unwrap_or_default())?;
        title = "";
    }
    if each(&report["advice"]).is_empty() {
        writeln!(out, "advice    none, all is well")?;
    }
    Ok(())
}

fn rung(out: &mut impl Write, title: &str, rung: &Value, name: &str) -> io::Result<()> {
    let arrow = if rung["used"] == true { "->" } else { "  " };
    let state = text_of(rung, "state");
    write!(out, "{title:<9} {arrow} {state:<11} {name}")?;
    match text_of(rung, "reason") {
        "" => writeln!(out),
        reason => writeln!(out, ": {reason}"),
    }
}

fn print_running(out: &mut impl Write, running: &Value) -> io::Result<()> {
    if running.is_null() {
        return writeln!(out, "running   no `skua run` answers");
    }
    if !running["fleet"].is_null() && text_of(running, "rung").is_empty() {
        return writeln!(out, "running   an analyzer, which watches no host itself");
    }
    let summary = &running["summary"];
    let memory: u64 = each(&running["maps"])
        .iter()
        .filter_map(|m| m["bytes"].as_u64())
        .sum();
    let count = |v: &Value| output::count(v.as_u64().unwrap_or(0));
    writeln!(
        out,
        "running   {}; {} of {} entries live, maps take {}",
        text_of(running, "rung"),
        count(&summary["table"]["live"]),
        count(&summary["table"]["max_entries"]),
        output::bytes(memory)
    )?;
    writeln!(
        out,
        "          {} packets seen, {} in flows",
        count(&summary["seen"]["packets"]),
        count(&summary["in_flows"]["packets"])
    )?;
    if summary["not_watched"] != 0 && !summary["not_watched"].is_null() {
        writeln!(
            out,
            "          not watched: {} interfaces, at the limit of programs ({} of {} loaded)",
            count(&summary["not_watched"]),
            count(&summary["programs"]["loaded"]),
            count(&summary["programs"]["most"])
        )?;
    }
    let addresses = &summary["addresses"];
    if addresses["include"] != 0 || addresses["exclude"] != 0 {
        writeln!(
            out,
            "          address set: {} to include, {} to exclude",
            count(&addresses["include"]),
            count(&addresses["exclude"])
        )?;
    }
    for (kind, name) in [
        ("lost", "lost"),
        ("left_out", "left out"),
        ("notes", "note"),
    ] {
        for (cause, sum) in summary[kind].as_object().into_iter().flatten() {
            writeln!(
                out,
                "          {name}: {cause} {} packets, {}",
                count(&sum["packets"]),
                output::bytes(sum["bytes"].as_u64().unwrap_or(0))
            )?;
        }
    }
    sockets::report::print_sums(out, &summary["sockets"])?;
    for interface in each(&summary["interfaces"]) {
        let netns = text_of(interface, "netns");
        writeln!(
            out,
            "          {}{}{} by {}: {} packets in flows",
            netns,
            if netns.is_empty() { "" } else { "/" },
            text_of(interface, "interface"),
            text_of(interface, "hook"),
            count(&interface["in_flows"]["packets"])
        )?;
    }
    Ok(())
}
