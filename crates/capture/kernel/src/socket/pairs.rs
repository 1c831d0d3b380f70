//! Aggregate mode: reads the sums by pairs without losing an addition.

use std::os::fd::{AsFd as _, AsRawFd, BorrowedFd, FromRawFd as _, OwnedFd};

use super::layout::{PairKey, PairSums};
use crate::{KernelError, embedded};

const BATCH: usize = 256;

/// Two maps: programs add to one, the other is empty between drains.
pub(super) struct Pairs {
    used: OwnedFd,
    spare: OwnedFd,
    keys: Box<[PairKey]>,
    sums: Box<[PairSums]>,
}

fn create(max_pairs: u32) -> Result<OwnedFd, KernelError> {
    // SAFETY: the name is NUL-terminated, options may be null.
    let map = unsafe {
        libbpf_sys::bpf_map_create(
            libbpf_sys::BPF_MAP_TYPE_HASH,
            c"skua_pairs".as_ptr(),
            size_of::<PairKey>() as u32,
            size_of::<PairSums>() as u32,
            max_pairs,
            std::ptr::null(),
        )
    };
    if map < 0 {
        return Err(KernelError::last("cannot make the table of pairs"));
    }
    // SAFETY: a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(map) })
}

impl Pairs {
    pub(super) fn new(max_pairs: u32) -> Result<Self, KernelError> {
        Ok(Self {
            used: create(max_pairs)?,
            spare: create(max_pairs)?,
            keys: vec![PairKey::default(); BATCH].into(),
            sums: vec![PairSums::default(); BATCH].into(),
        })
    }

    /// A template for the inner maps of the programs' map of maps.
    pub(super) fn template(&self) -> BorrowedFd<'_> {
        self.used.as_fd()
    }

    /// Lets programs add to the first map.
    pub(super) fn install(&self, outer: BorrowedFd<'_>) -> Result<(), KernelError> {
        put(outer, &self.used)
    }

    /// Puts the empty map in place and empties the other.
    pub(super) fn drain(
        &mut self,
        outer: BorrowedFd<'_>,
        sink: &mut dyn FnMut(&PairKey, &PairSums),
    ) -> Result<(), KernelError> {
        // Returns when no program can still add to the old one (see crate::grace).
        put(outer, &self.spare)?;
        std::mem::swap(&mut self.used, &mut self.spare);
        let mut at = 0u32;
        let mut first = true;
        loop {
            let mut count = BATCH as u32;
            let mut next = 0u32;
            // SAFETY: keys and sums have room for `count` elements of the map's sizes; a hash's
            // position is 4 bytes.
            let result = unsafe {
                libbpf_sys::bpf_map_lookup_and_delete_batch(
                    self.spare.as_raw_fd(),
                    if first {
                        std::ptr::null_mut()
                    } else {
                        (&raw mut at).cast()
                    },
                    (&raw mut next).cast(),
                    self.keys.as_mut_ptr().cast(),
                    self.sums.as_mut_ptr().cast(),
                    &raw mut count,
                    std::ptr::null(),
                )
            };
            let error = std::io::Error::last_os_error();
            let ended = result < 0 && error.raw_os_error() == Some(libc::ENOENT);
            // Before 5.6 the system call does not know the command.
            if first && result < 0 && error.raw_os_error() == Some(libc::EINVAL) {
                return self.drain_one_by_one(sink);
            }
            if result < 0 && !ended {
                return Err(KernelError::System {
                    what: "cannot read the table of pairs",
                    source: error,
                });
            }
            for (key, sums) in self.keys.iter().zip(&self.sums).take(count as usize) {
                sink(key, sums);
            }
            if ended {
                return Ok(());
            }
            at = next;
            first = false;
        }
    }

    /// Empties the map that no program adds to, on kernels without batches.
    fn drain_one_by_one(
        &mut self,
        sink: &mut dyn FnMut(&PairKey, &PairSums),
    ) -> Result<(), KernelError> {
        let failed = || KernelError::last("cannot read the table of pairs");
        let map = self.spare.as_raw_fd();
        let (key, sums) = (&mut self.keys[0], &mut self.sums[0]);
        loop {
            // SAFETY: without a key before it, the first key is asked for; key has its size.
            let next = unsafe {
                libbpf_sys::bpf_map_get_next_key(map, std::ptr::null(), (&raw mut *key).cast())
            };
            if next < 0 {
                let error = std::io::Error::last_os_error();
                return match error.raw_os_error() {
                    Some(libc::ENOENT) => Ok(()),
                    _ => Err(failed()),
                };
            }
            // SAFETY: key and sums have the map's sizes.
            let found = unsafe {
                libbpf_sys::bpf_map_lookup_elem(
                    map,
                    (&raw const *key).cast(),
                    (&raw mut *sums).cast(),
                )
            };
            if found < 0 {
                return Err(failed());
            }
            sink(key, sums);
            // SAFETY: key has the map's size.
            if unsafe { libbpf_sys::bpf_map_delete_elem(map, (&raw const *key).cast()) } < 0 {
                return Err(failed());
            }
        }
    }

    /// Kernel memory of both maps.
    pub(super) fn memory(&self) -> u64 {
        embedded::map_bytes(self.used.as_raw_fd()) + embedded::map_bytes(self.spare.as_raw_fd())
    }
}

fn put(outer: BorrowedFd<'_>, inner: &OwnedFd) -> Result<(), KernelError> {
    let key = 0u32;
    let value = inner.as_raw_fd() as u32;
    // SAFETY: key and value are 4 bytes, as the map of maps was created with.
    let result = unsafe {
        libbpf_sys::bpf_map_update_elem(
            outer.as_raw_fd(),
            (&raw const key).cast(),
            (&raw const value).cast(),
            0,
        )
    };
    if result < 0 {
        return Err(KernelError::last("cannot exchange the tables of pairs"));
    }
    Ok(())
}
