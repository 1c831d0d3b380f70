//! Waiting until no program can still hold a reference taken before.

use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use crate::KernelError;

/// Waits for RCU grace periods by replacing the element of a map of maps: since 5.0 the kernel
/// returns from that only when no running program can still use the old inner map
/// (`maybe_wait_bpf_programs` in kernel/bpf/syscall.c).
pub(crate) struct Grace {
    outer: OwnedFd,
    inner: OwnedFd,
}

fn create(
    kind: libbpf_sys::bpf_map_type,
    name: &std::ffi::CStr,
    inner: Option<&OwnedFd>,
) -> Result<OwnedFd, KernelError> {
    let options = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as _,
        inner_map_fd: inner.map_or(0, |fd| fd.as_raw_fd() as u32),
        ..Default::default()
    };
    // SAFETY: name is NUL-terminated and options outlives the call.
    let fd = unsafe { libbpf_sys::bpf_map_create(kind, name.as_ptr(), 4, 4, 1, &options) };
    if fd < 0 {
        return Err(KernelError::last(
            "cannot create a map to wait for programs",
        ));
    }
    // SAFETY: a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

impl Grace {
    pub(crate) fn new() -> Result<Self, KernelError> {
        let inner = create(libbpf_sys::BPF_MAP_TYPE_ARRAY, c"skua_grace_in", None)?;
        let outer = create(
            libbpf_sys::BPF_MAP_TYPE_ARRAY_OF_MAPS,
            c"skua_grace",
            Some(&inner),
        )?;
        Ok(Self { outer, inner })
    }

    /// Returns when every program run that began before the call has ended.
    pub(crate) fn wait(&self) -> Result<(), KernelError> {
        let key = 0u32;
        let value = self.inner.as_fd().as_raw_fd() as u32;
        // SAFETY: key and value are 4 bytes as the map was created with.
        let result = unsafe {
            libbpf_sys::bpf_map_update_elem(
                self.outer.as_raw_fd(),
                (&raw const key).cast(),
                (&raw const value).cast(),
                0,
            )
        };
        if result < 0 {
            return Err(KernelError::last("cannot wait for running programs"));
        }
        Ok(())
    }
}
