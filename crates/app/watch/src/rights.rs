//! What this process may do, and what it would have to be allowed.

use anyhow::bail;
use skua_config::arguments::CaptureType;
use skua_probe::ProbeError;

/// A capability (linux/capability.h).
pub struct Capability {
    pub name: &'static str,
    pub number: u32,
    /// Whether `skua run` must have it.
    pub needed: bool,
    pub purpose: &'static str,
}

/// All that matter. CAP_SYS_ADMIN stands for CAP_BPF and CAP_PERFMON, but not the other way round:
/// a network namespace can only be made with CAP_SYS_ADMIN, and each hook is proven in one.
pub const CAPABILITIES: [Capability; 6] = [
    Capability {
        name: "CAP_NET_ADMIN",
        number: 12,
        needed: true,
        purpose: "attach to interfaces",
    },
    Capability {
        name: "CAP_SYS_ADMIN",
        number: 21,
        needed: true,
        purpose: "load programs, prove the hooks in a network namespace, enter others",
    },
    Capability {
        name: "CAP_BPF",
        number: 39,
        needed: false,
        purpose: "load programs; CAP_SYS_ADMIN includes it",
    },
    Capability {
        name: "CAP_PERFMON",
        number: 38,
        needed: false,
        purpose: "verify programs less strictly; CAP_SYS_ADMIN includes it",
    },
    Capability {
        name: "CAP_NET_RAW",
        number: 13,
        needed: false,
        purpose: "packet sockets: the last hook, capture types afpacket and pcap",
    },
    Capability {
        name: "CAP_SYS_PTRACE",
        number: 19,
        needed: false,
        purpose: "--all-netns: find namespaces without a name (containers)",
    },
];

/// The set of capabilities in force, a bit for each.
pub fn held() -> u64 {
    // Not by /proc: it may be missing.
    rustix::thread::capabilities(None).map_or(0, |sets| sets.effective.bits())
}

/// Names of the capabilities that the flow table in the kernel needs and that are not in a set.
pub fn missing(held: u64) -> Vec<&'static str> {
    missing_of(held, |c| c.needed)
}

fn missing_of(held: u64, needed: impl Fn(&Capability) -> bool) -> Vec<&'static str> {
    CAPABILITIES
        .iter()
        .filter(|c| needed(c) && held >> c.number & 1 == 0)
        .map(|c| c.name)
        .collect()
}

/// How to get capabilities.
pub fn how_to_get() -> String {
    let program = std::env::current_exe().map_or("skua".into(), |p| p.display().to_string());
    format!(
        "run it with sudo, or allow it once and for all: \
         sudo setcap cap_net_admin,cap_sys_admin,cap_net_raw+ep {program}"
    )
}

/// Refuses to start what the kernel would refuse many times over, hook by hook.
pub fn check(capture: CaptureType) -> anyhow::Result<()> {
    match refusal(capture, held()) {
        Some(missing) => bail!(
            "no right to capture ({} missing): {}",
            missing.join(", "),
            how_to_get()
        ),
        None => Ok(()),
    }
}

/// What a type of capture lacks in a set of capabilities, none when it may try.
fn refusal(capture: CaptureType, held: u64) -> Option<Vec<&'static str>> {
    let table = missing(held);
    let packets = missing_of(held, |c| c.name == "CAP_NET_RAW");
    let lacking = match capture {
        CaptureType::Ebpf | CaptureType::Xdp => table,
        CaptureType::Afpacket | CaptureType::Pcap => packets,
        // What packet sockets need alone is enough.
        CaptureType::Auto if packets.is_empty() => packets,
        CaptureType::Auto => table,
    };
    (!lacking.is_empty()).then_some(lacking)
}

/// Why there is no flow table in the kernel: the rights, when they are missing.
pub fn reason(no_hook: &ProbeError) -> String {
    match missing(held())[..] {
        [] => no_hook.to_string(),
        ref missing => format!(
            "no flow table in the kernel ({} missing)",
            missing.join(", ")
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NET_ADMIN: u64 = 1 << 12;
    const NET_RAW: u64 = 1 << 13;
    const SYS_ADMIN: u64 = 1 << 21;
    const BPF: u64 = 1 << 39;

    #[test]
    fn names_what_each_type_lacks() {
        use CaptureType::{Afpacket, Auto, Ebpf, Pcap, Xdp};
        for capture in [Auto, Ebpf, Xdp] {
            assert_eq!(refusal(capture, NET_ADMIN | SYS_ADMIN), None);
            assert_eq!(
                refusal(capture, NET_ADMIN | BPF),
                Some(vec!["CAP_SYS_ADMIN"])
            );
            assert_eq!(
                refusal(capture, 0),
                Some(vec!["CAP_NET_ADMIN", "CAP_SYS_ADMIN"])
            );
        }
        for capture in [Auto, Afpacket, Pcap] {
            assert_eq!(refusal(capture, NET_RAW), None);
        }
        for capture in [Afpacket, Pcap] {
            assert_eq!(
                refusal(capture, NET_ADMIN | SYS_ADMIN),
                Some(vec!["CAP_NET_RAW"])
            );
        }
    }

    #[test]
    fn the_way_to_rights_is_one_line() {
        let text = how_to_get();
        assert!(
            text.contains("sudo setcap cap_net_admin,cap_sys_admin"),
            "{text}"
        );
        assert!(!text.contains('\n'), "{text}");
    }

    #[test]
    fn the_set_in_force_is_what_proc_says() {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let set = status.lines().find_map(|l| l.strip_prefix("CapEff:"));
        assert_eq!(
            held(),
            u64::from_str_radix(set.unwrap().trim(), 16).unwrap()
        );
        assert_eq!(missing(1 << 21 | 1 << 12), Vec::<&str>::new());
        assert_eq!(missing(0), ["CAP_NET_ADMIN", "CAP_SYS_ADMIN"]);
    }
}
