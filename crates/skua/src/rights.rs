//! What this process may do, and what it would have to be allowed.

use std::io;

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
    std::fs::read_to_string("/proc/self/status")
        .ok()
        .as_deref()
        .and_then(effective)
        .unwrap_or(0)
}

fn effective(status: &str) -> Option<u64> {
    let set = status.lines().find_map(|l| l.strip_prefix("CapEff:"))?;
    u64::from_str_radix(set.trim(), 16).ok()
}

/// Names of the needed capabilities that are not in a set.
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

/// Says which capability is missing in place of an error that only comes from that.
pub fn explain(error: anyhow::Error) -> anyhow::Error {
    explain_for(error, held())
}

fn explain_for(error: anyhow::Error, held: u64) -> anyhow::Error {
    // A packet socket wants less than the kernel's flow table.
    let packet_socket = matches!(error.downcast_ref(), Some(ProbeError::Capture(_)));
    let missing = if packet_socket {
        missing_of(held, |c| c.name == "CAP_NET_RAW")
    } else {
        missing(held)
    };
    let text = format!("{error:#}");
    // Errors of libbpf are text only.
    let refused = [1, 13].into_iter().any(|number| {
        let words = io::Error::from_raw_os_error(number).to_string();
        text.contains(words.split(" (").next().unwrap_or(&words))
    });
    // A file that may not be read, or an address below 1024, wants no capability of ours.
    let ours = error.downcast_ref::<ProbeError>().is_some();
    if missing.is_empty() || !refused || !ours {
        return error;
    }
    tracing::info!("{text}");
    anyhow::anyhow!(
        "no right to capture ({} missing): {}",
        missing.join(", "),
        how_to_get()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal() -> anyhow::Error {
        ProbeError::NoHook(
            "tcx is unsupported: no namespace: Operation not permitted (os error 1); clsact is \
             unsupported: Operation not permitted (os error 1)"
                .into(),
        )
        .into()
    }

    #[test]
    fn a_missing_right_is_said_once_with_the_way_to_it() {
        let only_net_admin = 1 << 12;
        let text = format!("{:#}", explain_for(refusal(), only_net_admin));
        assert!(text.contains("(CAP_SYS_ADMIN missing)"), "{text}");
        assert!(
            text.contains("sudo setcap cap_net_admin,cap_sys_admin"),
            "{text}"
        );
        assert!(!text.contains("clsact") && !text.contains('\n'), "{text}");
    }

    #[test]
    fn other_errors_stay() {
        // Without a right that the error does not come from.
        let unknown = ProbeError::UnknownInterface {
            name: "eth7".into(),
            suggestion: String::new(),
        };
        let text = format!("{:#}", explain_for(unknown.into(), 0));
        assert!(text.contains("eth7"), "{text}");
        // With all rights it is the kernel's refusal that matters.
        let text = format!("{:#}", explain_for(refusal(), u64::MAX));
        assert!(text.contains("tcx is unsupported"), "{text}");
        let unreadable = anyhow::Error::from(io::Error::from_raw_os_error(13));
        let text = format!("{:#}", explain_for(unreadable, 0));
        assert!(text.starts_with("Permission denied"), "{text}");
    }

    #[test]
    fn reads_the_effective_set() {
        let status = "Name:\tskua\nCapPrm:\tffffffff\nCapEff:\t0000000000201000\n";
        assert_eq!(effective(status), Some(1 << 21 | 1 << 12));
        assert_eq!(missing(1 << 21 | 1 << 12), Vec::<&str>::new());
        assert_eq!(missing(0), ["CAP_NET_ADMIN", "CAP_SYS_ADMIN"]);
    }
}
