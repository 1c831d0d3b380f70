//! The ladder of kernel objects: the first that loads is taken.

use std::os::fd::{AsFd, BorrowedFd};

use libbpf_rs::{MapCore as _, Object, ObjectBuilder, OpenObject};

use super::layout::{PROBES, Settings};
use crate::{Direction, KernelError, log};

macro_rules! object {
    ($name:literal) => {{
        // ELF parsing wants alignment, which include_bytes! alone does not promise.
        #[repr(C, align(8))]
        struct Aligned<T: ?Sized>(T);
        static BYTES: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(
            env!("OUT_DIR"),
            "/",
            $name,
            ".bpf.o"
        )));
        &BYTES.0
    }};
}

/// A rung: one object, and what of the kernel it uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rung {
    /// Claims slots by compare-and-swap, coarse clock: 5.12.
    Swap,
    /// Claims slots under a lock, exact clock: 5.8.
    Lock,
}

impl Rung {
    /// Best first.
    pub const LADDER: [Self; 2] = [Self::Swap, Self::Lock];

    /// What it needs, as users see it.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Swap => "compare-and-swap and coarse clock (5.12)",
            Self::Lock => "spin lock per stripe of slots (5.8)",
        }
    }

    fn bytes(self) -> (&'static str, &'static [u8]) {
        match self {
            Self::Swap => ("flow_tc", object!("flow_tc")),
            Self::Lock => ("flow_tc_lock", object!("flow_tc_lock")),
        }
    }
}

/// What a packet of an interface begins with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkKind {
    /// An Ethernet header.
    Ethernet,
    /// An IP header.
    Ip,
}

/// Programs and maps, loaded.
pub struct FlowObject {
    object: Object,
}

/// Names of the maps that all namespaces share.
const SHARED_MAPS: [&str; 8] = [
    "slots",
    "tcp_slots",
    "control",
    "points",
    "no_point",
    "fragments",
    "wakeups",
    "claim_locks",
];

impl FlowObject {
    /// Loads the best rung; also says with which settings.
    pub(super) fn load_best(
        settings: Settings,
        max_points: u32,
    ) -> Result<(Self, Rung, Settings), KernelError> {
        let mut refused = None;
        for rung in Rung::LADDER {
            let settings = Settings {
                coarse_clock: (rung == Rung::Swap).into(),
                gso_size: 1,
                ..settings
            };
            match Self::load_new(rung, settings, max_points) {
                Ok(object) => return Ok((object, rung, settings)),
                Err(error) => {
                    tracing::info!(rung = rung.describe(), %error, "rung not taken");
                    refused.get_or_insert(error);
                }
            }
        }
        Err(refused.unwrap_or(KernelError::Missing("rung")))
    }

    fn load_new(rung: Rung, settings: Settings, max_points: u32) -> Result<Self, KernelError> {
        Self::load(rung, settings, |open| {
            for mut map in open.maps_mut() {
                let entries = match map.name().to_str() {
                    Some("slots" | "tcp_slots") => settings.slot_count + PROBES,
                    Some("points") => max_points,
                    _ => continue,
                };
                map.set_max_entries(entries)?;
            }
            Ok(())
        })
    }

    /// Loads the programs once more with other settings, on the maps of `first`.
    pub(super) fn load_sharing(
        rung: Rung,
        settings: Settings,
        first: &Self,
    ) -> Result<Self, KernelError> {
        Self::load(rung, settings, |open| {
            for mut map in open.maps_mut() {
                let name = map.name().to_string_lossy().into_owned();
                if SHARED_MAPS.contains(&name.as_str())
                    && let Some(shared) = first.object.maps().find(|m| m.name() == name.as_str())
                {
                    map.reuse_fd(shared.as_fd())?;
                }
            }
            Ok(())
        })
    }

    fn load(
        rung: Rung,
        settings: Settings,
        prepare: impl FnOnce(&mut OpenObject) -> libbpf_rs::Result<()>,
    ) -> Result<Self, KernelError> {
        let (name, bytes) = rung.bytes();
        log::forget();
        let load = || -> libbpf_rs::Result<Object> {
            let mut open = ObjectBuilder::default().open_memory(bytes)?;
            for mut map in open.maps_mut() {
                if map.name().to_string_lossy().ends_with(".rodata")
                    && let Some(data) = map.initial_value_mut()
                    && let Some(place) = data.get_mut(..size_of::<Settings>())
                {
                    place.copy_from_slice(settings.bytes());
                }
            }
            prepare(&mut open)?;
            open.load()
        };
        match load() {
            Ok(object) => Ok(Self { object }),
            Err(error) => Err(KernelError::Load {
                object: name,
                reason: log::reason(&error),
            }),
        }
    }

    /// A map by name.
    pub(super) fn map(&self, name: &'static str) -> Result<libbpf_rs::Map<'_>, KernelError> {
        self.object
            .maps()
            .find(|m| m.name() == name)
            .ok_or(KernelError::Missing(name))
    }

    /// The program for a direction and a kind of link.
    pub(super) fn program(
        &self,
        direction: Direction,
        link: LinkKind,
    ) -> Result<BorrowedFd<'_>, KernelError> {
        let name = match (direction, link) {
            (Direction::Ingress, LinkKind::Ethernet) => "flow_ingress_ethernet",
            (Direction::Egress, LinkKind::Ethernet) => "flow_egress_ethernet",
            (Direction::Ingress, LinkKind::Ip) => "flow_ingress_ip",
            (Direction::Egress, LinkKind::Ip) => "flow_egress_ip",
        };
        self.object
            .progs()
            .find(|p| p.name() == name)
            // SAFETY: the descriptor lives as long as self.object, which the result borrows; the
            // temporary `Program` does not own it.
            .map(|p| unsafe { BorrowedFd::borrow_raw(std::os::fd::AsRawFd::as_raw_fd(&p.as_fd())) })
            .ok_or(KernelError::Missing(name))
    }

    /// Kernel memory of each map.
    pub(super) fn map_memory(&self) -> Vec<(String, u64)> {
        self.object
            .maps()
            .map(|map| {
                let info = format!(
                    "/proc/self/fdinfo/{}",
                    std::os::fd::AsRawFd::as_raw_fd(&map.as_fd())
                );
                let bytes = std::fs::read_to_string(info)
                    .ok()
                    .and_then(|text| {
                        text.lines()
                            .find_map(|l| l.strip_prefix("memlock:"))
                            .and_then(|v| v.trim().parse().ok())
                    })
                    .unwrap_or(0);
                (map.name().to_string_lossy().into_owned(), bytes)
            })
            .collect()
    }
}
