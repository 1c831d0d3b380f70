//! Kernel objects that are part of this binary: how they are loaded.

use std::{
    ops::{Deref, DerefMut},
    os::fd::{AsFd as _, AsRawFd as _},
    path::Path,
};

use libbpf_rs::{MapCore as _, Object, ObjectBuilder, OpenObject, OpenProgram};

use crate::{
    KernelError,
    budget::{Lease, Purpose},
    log,
};

macro_rules! object {
    ($name:literal) => {{
        // ELF parsing needs alignment, which include_bytes! does not guarantee.
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
pub(crate) use object;

/// An object with the right to have its programs loaded.
pub(crate) struct Loaded {
    // Dropped in this order.
    object: Object,
    _lease: Lease,
}

impl Deref for Loaded {
    type Target = Object;

    fn deref(&self) -> &Object {
        &self.object
    }
}

impl DerefMut for Loaded {
    fn deref_mut(&mut self) -> &mut Object {
        &mut self.object
    }
}

/// Loads an object (its name, its bytes) with settings at the start of its read-only data. `btf`: types of
/// a kernel that does not export them. `prepare` sets sizes and shares maps.
pub(crate) fn load(
    object: (&'static str, &[u8]),
    settings: &[u8],
    btf: Option<&Path>,
    prepare: impl FnOnce(&mut OpenObject) -> libbpf_rs::Result<()>,
) -> Result<Loaded, KernelError> {
    load_for(Purpose::Any, object, settings, btf, prepare)
}

/// As [`load`], and says what for.
pub(crate) fn load_for(
    purpose: Purpose,
    (name, bytes): (&'static str, &[u8]),
    settings: &[u8],
    btf: Option<&Path>,
    prepare: impl FnOnce(&mut OpenObject) -> libbpf_rs::Result<()>,
) -> Result<Loaded, KernelError> {
    log::forget();
    let open = || -> libbpf_rs::Result<OpenObject> {
        let mut builder = ObjectBuilder::default();
        if let Some(btf) = btf {
            builder.btf_custom_path(btf)?;
        }
        let mut open = builder.open_memory(bytes)?;
        for mut map in open.maps_mut() {
            if map.name().to_string_lossy().ends_with(".rodata")
                && let Some(data) = map.initial_value_mut()
                && let Some(place) = data.get_mut(..settings.len())
            {
                place.copy_from_slice(settings);
            }
        }
        prepare(&mut open)?;
        Ok(open)
    };
    let failed = |error: libbpf_rs::Error| KernelError::Load {
        object: name,
        reason: log::reason(&error),
    };
    let open = open().map_err(failed)?;
    let programs = open.progs().filter(OpenProgram::autoload).count();
    let lease = Lease::acquire(programs as u32, purpose)?;
    let object = open.load().map_err(failed)?;
    Ok(Loaded {
        object,
        _lease: lease,
    })
}

/// Kernel memory of each map of an object.
pub(crate) fn map_memory(object: &Object) -> Vec<(String, u64)> {
    object
        .maps()
        .map(|map| {
            let name = map.name().to_string_lossy().into_owned();
            // libbpf puts a name for the object before `.rodata`, which changes.
            let name = match name.rsplit_once('.') {
                Some((_, section)) => section.to_owned(),
                None => name,
            };
            (name, map_bytes(map.as_fd().as_raw_fd()))
        })
        .collect()
}

/// Kernel memory of a map.
pub(crate) fn map_bytes(map: std::os::fd::RawFd) -> u64 {
    std::fs::read_to_string(format!("/proc/self/fdinfo/{map}"))
        .ok()
        .and_then(|text| {
            text.lines()
                .find_map(|l| l.strip_prefix("memlock:"))
                .and_then(|v| v.trim().parse().ok())
        })
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    /// Stores that are atomic (BPF_STX, BPF_ATOMIC), of 32 and 64 bits.
    const ATOMIC: [u8; 2] = [0xc3, 0xdb];
    const ADD: i32 = 0;
    /// An instruction of two places (BPF_LD, BPF_IMM of 64 bits).
    const WIDE: u8 = 0x18;

    fn number<const N: usize>(bytes: &[u8], at: usize) -> u64 {
        let bytes: [u8; N] = bytes[at..at + N].try_into().unwrap();
        let low_first = bytes.iter().rev();
        low_first.fold(0, |all, byte| all << 8 | u64::from(*byte))
    }

    /// Operations of all atomic instructions in the sections of an ELF file that are executed (elf(5)).
    fn atomic_operations(elf: &[u8]) -> Vec<i32> {
        const PROGBITS: u64 = 1;
        const EXECINSTR: u64 = 4;
        let (table, count) = (number::<8>(elf, 0x28), number::<2>(elf, 0x3c));
        let mut found = Vec::new();
        for section in 0..count {
            let head = (table + 64 * section) as usize;
            let executed = number::<8>(elf, head + 8) & EXECINSTR != 0;
            if number::<4>(elf, head + 4) != PROGBITS || !executed {
                continue;
            }
            let at = number::<8>(elf, head + 0x18) as usize;
            let size = number::<8>(elf, head + 0x20) as usize;
            let mut code = elf[at..at + size].chunks_exact(8);
            while let Some(one) = code.next() {
                if ATOMIC.contains(&one[0]) {
                    found.push(number::<4>(one, 4) as i32);
                } else if one[0] == WIDE {
                    code.next();
                }
            }
        }
        found
    }

    // Guests that have such kernels say it, too, but late. Compilers make such an operation of an addition of 0.
    #[test]
    fn what_is_for_kernels_before_5_12_has_no_atomic_operation_but_addition() {
        let objects: [(&str, &[u8]); 4] = [
            ("flow_tc_lock", object!("flow_tc_lock")),
            ("flow_tc_lock_packets", object!("flow_tc_lock_packets")),
            ("socket_hash_ring", object!("socket_hash_ring")),
            ("socket_hash_perf", object!("socket_hash_perf")),
        ];
        for (name, elf) in objects {
            let found = atomic_operations(elf);
            assert!(found.len() > 5, "{name}: {found:?}");
            assert!(found.iter().all(|one| *one == ADD), "{name}: {found:?}");
        }
        // Others have them.
        let found = atomic_operations(object!("flow_tc"));
        assert!(found.iter().any(|one| *one != ADD), "{found:?}");
    }
}
