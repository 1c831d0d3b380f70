//! The ladder of kernel objects: the first that loads is taken.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use libbpf_rs::{MapCore as _, OpenObject};

use super::{
    FlowTableConfig,
    addresses::trie_elements,
    layout::{PROBES, Plain as _, Settings},
    tables,
};
use crate::{
    Direction, HookKind, KernelError,
    budget::Purpose,
    embedded::{self, Loaded, object},
};

/// A rung: one object, and the kernel features that it uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rung {
    /// tc programs that claim slots by compare-and-swap: 5.12.
    TcSwap,
    /// tc programs that claim slots under a lock: 5.8.
    TcLock,
    /// Filter of a packet socket: 5.12.
    Socket,
    /// XDP: 5.18.
    Xdp,
}

impl Rung {
    /// The rungs that serve a kind of hook, best first.
    pub fn ladder(hook: HookKind) -> &'static [Self] {
        match hook {
            HookKind::Tcx | HookKind::Clsact => &[Self::TcSwap, Self::TcLock],
            HookKind::Socket => &[Self::Socket],
            HookKind::Xdp | HookKind::XdpGeneric => &[Self::Xdp],
        }
    }

    /// What it needs, as users see it.
    pub fn describe(self) -> &'static str {
        match self {
            Self::TcSwap => "tc programs with compare-and-swap (5.12)",
            Self::TcLock => "tc programs with a spin lock per stripe of slots (5.8)",
            Self::Socket => "packet socket filter (5.12)",
            Self::Xdp => "XDP programs (5.18)",
        }
    }

    /// Name and bytes of its object. The object that also sends packets is a separate one, so that others
    /// do not pay for it.
    fn bytes(self, packets: bool) -> (&'static str, &'static [u8]) {
        match (self, packets) {
            (Self::TcSwap, false) => ("flow_tc", object!("flow_tc")),
            (Self::TcLock, false) => ("flow_tc_lock", object!("flow_tc_lock")),
            (Self::Socket, false) => ("flow_socket", object!("flow_socket")),
            (Self::Xdp, false) => ("flow_xdp", object!("flow_xdp")),
            (Self::TcSwap, true) => ("flow_tc_packets", object!("flow_tc_packets")),
            (Self::TcLock, true) => ("flow_tc_lock_packets", object!("flow_tc_lock_packets")),
            (Self::Socket, true) => ("flow_socket_packets", object!("flow_socket_packets")),
            (Self::Xdp, true) => ("flow_xdp_packets", object!("flow_xdp_packets")),
        }
    }

    /// The same for the programs that all further namespaces share; none where there are none.
    fn shared_bytes(self, packets: bool) -> Option<(&'static str, &'static [u8])> {
        match (self, packets) {
            (Self::TcSwap, false) => Some(("flow_tc_shared", object!("flow_tc_shared"))),
            (Self::TcSwap, true) => {
                Some(("flow_tc_shared_packets", object!("flow_tc_shared_packets")))
            }
            _ => None,
        }
    }

    /// The same for programs that the tables of many captures share ([`super::tables`]).
    fn tables_bytes(packets: bool) -> (&'static str, &'static [u8]) {
        match packets {
            false => ("flow_tc_tables", object!("flow_tc_tables")),
            true => ("flow_tc_tables_packets", object!("flow_tc_tables_packets")),
        }
    }

    pub(super) fn program_type(self) -> libbpf_sys::bpf_prog_type {
        match self {
            Self::TcSwap | Self::TcLock => libbpf_sys::BPF_PROG_TYPE_SCHED_CLS,
            Self::Socket => libbpf_sys::BPF_PROG_TYPE_SOCKET_FILTER,
            Self::Xdp => libbpf_sys::BPF_PROG_TYPE_XDP,
        }
    }

    /// The programs' return value for a packet that passes.
    pub(super) fn verdict(self) -> i32 {
        match self {
            Self::TcSwap | Self::TcLock => -1,
            Self::Socket => 0,
            Self::Xdp => libbpf_sys::XDP_PASS as i32,
        }
    }

    /// Names of the flow program and of the one for packets that the filter leaves out.
    pub(super) fn program_names(
        self,
        direction: Direction,
        link: LinkKind,
    ) -> Option<(&'static str, &'static str)> {
        Some(match (self, direction, link) {
            (Self::TcSwap | Self::TcLock, Direction::Ingress, LinkKind::Ethernet) => {
                ("flow_ingress_ethernet", "left_ingress_ethernet")
            }
            (Self::TcSwap | Self::TcLock, Direction::Egress, LinkKind::Ethernet) => {
                ("flow_egress_ethernet", "left_egress_ethernet")
            }
            (Self::TcSwap | Self::TcLock, Direction::Ingress, LinkKind::Ip) => {
                ("flow_ingress_ip", "left_ingress_ip")
            }
            (Self::TcSwap | Self::TcLock, Direction::Egress, LinkKind::Ip) => {
                ("flow_egress_ip", "left_egress_ip")
            }
            (Self::Socket, _, LinkKind::Ethernet) => {
                ("flow_socket_ethernet", "left_socket_ethernet")
            }
            (Self::Socket, _, LinkKind::Ip) => ("flow_socket_ip", "left_socket_ip"),
            (Self::Xdp, Direction::Ingress, LinkKind::Ethernet) => {
                ("flow_xdp_ethernet", "left_xdp_ethernet")
            }
            (Self::Xdp, _, _) => return None,
        })
    }
}

/// What a packet of an interface begins with.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LinkKind {
    /// An Ethernet header.
    Ethernet,
    /// An IP header.
    Ip,
}

/// Programs and maps, loaded.
pub struct FlowObject {
    object: Loaded,
}

/// Names of the maps that all namespaces share.
const SHARED_MAPS: [&str; 14] = [
    "ended_flows",
    "addresses",
    "own_sockets",
    "own_conversations",
    "slots",
    "cold_slots",
    "control",
    "points",
    "no_point",
    "fragments",
    "wakeups",
    "claim_locks",
    "packets",
    "head_slots",
];

/// Names of the programs of both directions.
fn program_names(rung: Rung, link: LinkKind, filtered: bool) -> Vec<&'static str> {
    [Direction::Ingress, Direction::Egress]
        .into_iter()
        .filter_map(|direction| rung.program_names(direction, link))
        .flat_map(|(flow, left)| [Some(flow), filtered.then_some(left)])
        .flatten()
        .collect()
}

/// Does not load the programs that are not needed.
fn leave_out(open: &mut OpenObject, not_needed: impl Fn(&str) -> bool) {
    for mut program in open.progs_mut() {
        if program.name().to_str().is_some_and(&not_needed) {
            program.set_autoload(false);
        }
    }
}

impl FlowObject {
    /// Loads the best rung, its programs for Ethernet; also says with which settings.
    pub(super) fn load_best(
        rungs: &[Rung],
        settings: Settings,
        config: &FlowTableConfig,
    ) -> Result<(Self, Rung, Settings), KernelError> {
        let mut refused = None;
        let begin = |name: &str| !name.ends_with("_ip");
        for rung in rungs.iter().copied() {
            let settings = Settings {
                gso_size: 1,
                ..settings
            };
            match Self::load_new(rung, settings, config, &begin) {
                Ok(object) => return Ok((object, rung, settings)),
                Err(error) => {
                    tracing::info!(rung = rung.describe(), %error, "rung not taken");
                    refused.get_or_insert(error);
                }
            }
        }
        Err(refused.unwrap_or(KernelError::Missing("rung")))
    }

    fn load_new(
        rung: Rung,
        settings: Settings,
        config: &FlowTableConfig,
        wanted: &dyn Fn(&str) -> bool,
    ) -> Result<Self, KernelError> {
        let bytes = rung.bytes(settings.packet_bytes > 0);
        Self::load(bytes, settings, Purpose::Any, |open| {
            leave_out(open, |name| {
                !wanted(name) || config.filter.trim().is_empty() && name.starts_with("left_")
            });
            for mut map in open.maps_mut() {
                let entries = match map.name().to_str() {
                    Some("slots" | "cold_slots") => settings.slot_count + PROBES,
                    Some("head_slots") if settings.head_segments > 0 => {
                        settings.slot_count + PROBES
                    }
                    Some("ended_flows") => super::ended_ring_size(config.max_entries),
                    Some("points") => config.max_points,
                    Some("addresses") => trie_elements(config.max_addresses),
                    Some("packets") => config.packets.unwrap_or_default().ring_size(),
                    _ => continue,
                };
                map.set_max_entries(entries)?;
            }
            Ok(())
        })
    }

    /// The maps of a table without programs.
    pub(super) fn load_maps(
        rung: Rung,
        settings: Settings,
        config: &FlowTableConfig,
    ) -> Result<Self, KernelError> {
        Self::load_new(rung, settings, config, &|_| false)
    }

    /// Loads the programs for a kind of link, with or without those for packets that a filter leaves out, to be shared
    /// by many tables.
    pub(super) fn load_for_tables(
        packets: bool,
        settings: Settings,
        (link, filtered): (LinkKind, bool),
        prepare: impl FnOnce(&mut OpenObject) -> libbpf_rs::Result<()>,
    ) -> Result<Self, KernelError> {
        let wanted = program_names(tables::RUNG, link, filtered);
        let bytes = Rung::tables_bytes(packets);
        Self::load(bytes, settings, Purpose::Any, |open| {
            leave_out(open, |name| !wanted.contains(&name));
            prepare(open)
        })
    }

    /// Whether each table has a map of this name.
    pub(super) fn is_of_table(map: &str) -> bool {
        SHARED_MAPS.contains(&map)
    }

    /// Loads the programs for a kind of link once more with other settings, on the maps of `first`.
    pub(super) fn load_sharing(
        rung: Rung,
        settings: Settings,
        link: LinkKind,
        filtered: bool,
        first: &Self,
    ) -> Result<Self, KernelError> {
        let wanted = program_names(rung, link, filtered);
        let bytes = rung.bytes(settings.packet_bytes > 0);
        Self::load(bytes, settings, Purpose::Namespace, |open| {
            leave_out(open, |name| !wanted.contains(&name));
            first.share_maps(open)
        })
    }

    /// Loads the programs that all further namespaces share, on the maps of `first`; none where the rung has
    /// none.
    ///
    /// # Errors
    ///
    /// When the kernel refuses: before 6.2, or without its types (BTF).
    pub(super) fn load_for_all(
        rung: Rung,
        settings: Settings,
        filtered: bool,
        first: &Self,
    ) -> Result<Option<Self>, KernelError> {
        let Some(bytes) = rung.shared_bytes(settings.packet_bytes > 0) else {
            return Ok(None);
        };
        Self::load(bytes, settings, Purpose::Any, |open| {
            leave_out(open, |name| !filtered && name.starts_with("left_"));
            first.share_maps(open)
        })
        .map(Some)
    }

    /// Has another object use the maps of this one.
    fn share_maps(&self, open: &mut OpenObject) -> libbpf_rs::Result<()> {
        for mut map in open.maps_mut() {
            let name = map.name().to_string_lossy().into_owned();
            if SHARED_MAPS.contains(&name.as_str())
                && let Some(shared) = self.object.maps().find(|m| m.name() == name.as_str())
            {
                map.reuse_fd(shared.as_fd())?;
            }
        }
        Ok(())
    }

    fn load(
        bytes: (&'static str, &[u8]),
        settings: Settings,
        purpose: Purpose,
        prepare: impl FnOnce(&mut OpenObject) -> libbpf_rs::Result<()>,
    ) -> Result<Self, KernelError> {
        let object = embedded::load_for(purpose, bytes, settings.bytes(), None, prepare)?;
        Ok(Self { object })
    }

    /// A map by name.
    pub(super) fn map(&self, name: &'static str) -> Result<libbpf_rs::Map<'_>, KernelError> {
        self.named(name).map_err(|_| KernelError::Missing(name))
    }

    /// A map by a name that need not be ours.
    pub(super) fn named(&self, name: &str) -> Result<libbpf_rs::Map<'_>, KernelError> {
        let found = self.object.maps().find(|m| m.name() == name);
        found.ok_or(KernelError::Missing("map"))
    }

    /// Calls `with` for each map, with its name, until that fails.
    pub(super) fn each_map(
        &self,
        mut with: impl FnMut(&str, &libbpf_rs::Map<'_>) -> Result<(), KernelError>,
    ) -> Result<(), KernelError> {
        let mut maps = self.object.maps();
        maps.try_for_each(|map| with(&map.name().to_string_lossy(), &map))
    }

    /// A program by name.
    pub(super) fn program(&self, name: &'static str) -> Result<BorrowedFd<'_>, KernelError> {
        self.object
            .progs()
            .find(|p| p.name() == name)
            // SAFETY: the descriptor lives as long as self.object, which the result borrows; the
            // temporary `Program` does not own it.
            .map(|p| unsafe { BorrowedFd::borrow_raw(p.as_fd().as_raw_fd()) })
            .ok_or(KernelError::Missing(name))
    }

    /// Kernel memory of each map.
    pub(super) fn map_memory(&self) -> Vec<(String, u64)> {
        embedded::map_memory(&self.object)
    }
}
