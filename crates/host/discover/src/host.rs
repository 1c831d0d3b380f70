//! The host's own node.

use crate::ident;
use skua_topology::Value;
use std::{fs, sync::Arc};

/// Keys of the host's node that are ours.
pub(crate) const KEYS: &[&str] = &[
    "Name",
    "Type",
    "TID",
    "Hostname",
    "OS",
    "Platform",
    "PlatformFamily",
    "PlatformVersion",
    "KernelVersion",
    "Architecture",
    "CPUCount",
    "BootTime",
    "InstanceID",
    "NetNsInode",
    "RoutingTables",
    "RoutesOmitted",
];

/// Whether a key of the host's node is set by what was discovered, or says what of it was configured.
pub(crate) fn is_own_key(key: &str) -> bool {
    let others = [
        "Config",
        "ConfigErrors",
        "ConfigKeys",
        "Captures",
        "NFTables",
    ];
    KEYS.contains(&key) || others.contains(&key)
}

/// A file's content without white space around it; none when there is nothing in it.
fn read(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// Identifies the time from this boot to the next.
pub(crate) fn boot() -> String {
    read("/proc/sys/kernel/random/boot_id").unwrap_or_default()
}

/// TID of the host of this name.
pub(crate) fn tid(host: &str) -> Arc<str> {
    ident::uuid(host)
}

/// Metadata of the host's node, which stays as it is; `inode` is that of its network namespace.
pub(crate) fn metadata(host: &str, inode: u64) -> Vec<(Arc<str>, Value)> {
    let name = rustix::system::uname();
    let text = |text: &std::ffi::CStr| Value::from(&*text.to_string_lossy());
    let os = name.sysname().to_string_lossy().to_lowercase();
    let mut entries: Vec<(Arc<str>, Value)> = vec![
        ("Name".into(), host.into()),
        ("Type".into(), "host".into()),
        ("TID".into(), Value::Str(tid(host))),
        ("Hostname".into(), text(name.nodename())),
        ("OS".into(), Value::from(os.as_str())),
        ("KernelVersion".into(), text(name.release())),
        ("Architecture".into(), text(name.machine())),
        ("NetNsInode".into(), Value::Int(inode as i64)),
    ];
    let mut add = |key: &str, value: Option<Value>| {
        entries.extend(value.map(|value| (Arc::from(key), value)));
    };
    let release = os_release();
    let released = |key: &str| release.get(key).map(|value| Value::from(value.as_str()));
    add("Platform", released("ID"));
    add("PlatformFamily", released("ID_LIKE").or(released("ID")));
    add("PlatformVersion", released("VERSION_ID"));
    let stat = read("/proc/stat").unwrap_or_default();
    let cpu = |line: &&str| line.starts_with("cpu") && !line.starts_with("cpu ");
    let cpus = stat.lines().filter(cpu).count();
    add("CPUCount", (cpus > 0).then_some(Value::Int(cpus as i64)));
    let boot = stat.lines().find_map(|line| line.strip_prefix("btime "));
    let boot = boot.and_then(|seconds| seconds.trim().parse::<i64>().ok());
    add("BootTime", boot.map(|seconds| Value::Int(seconds * 1_000)));
    // That of the cloud, else that of the installation.
    let instance = read("/var/lib/cloud/data/instance-id").or_else(|| read("/etc/machine-id"));
    add("InstanceID", instance.map(|id| Value::from(id.as_str())));
    entries
}

/// os-release(5).
fn os_release() -> std::collections::HashMap<String, String> {
    let text = read("/etc/os-release").or_else(|| read("/usr/lib/os-release"));
    let text = text.unwrap_or_default();
    let entries = text.lines().filter_map(|line| line.split_once('='));
    entries
        .map(|(key, value)| (key.to_owned(), value.trim_matches(['"', '\'']).to_owned()))
        .collect()
}
