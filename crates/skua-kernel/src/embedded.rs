//! Kernel objects that are part of this binary: how they are loaded.

use std::{
    os::fd::{AsFd as _, AsRawFd as _},
    path::Path,
};

use libbpf_rs::{MapCore as _, Object, ObjectBuilder, OpenObject};

use crate::{KernelError, log};

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
pub(crate) use object;

/// Loads an object (its name, its bytes) with settings at the begin of its read-only data. `btf`:
/// types of a kernel that does not tell them itself. `prepare` sets sizes and shares maps.
pub(crate) fn load(
    (name, bytes): (&'static str, &[u8]),
    settings: &[u8],
    btf: Option<&Path>,
    prepare: impl FnOnce(&mut OpenObject) -> libbpf_rs::Result<()>,
) -> Result<Object, KernelError> {
    log::forget();
    let load = || -> libbpf_rs::Result<Object> {
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
        open.load()
    };
    load().map_err(|error| KernelError::Load {
        object: name,
        reason: log::reason(&error),
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
