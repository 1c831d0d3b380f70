//! Windows into the memory of a mmapable array map (BPF_F_MMAPABLE, kernel 5.5).

use std::{
    marker::PhantomData,
    os::fd::{AsRawFd, BorrowedFd},
    ptr::NonNull,
};

use crate::KernelError;

/// Part of an array map, mapped shared and writable. Programs write to it at the same time, so
/// elements are reached only as types of atomics.
pub(crate) struct Window<T> {
    base: NonNull<libc::c_void>,
    bytes: usize,
    count: usize,
    elements: PhantomData<T>,
}

/// Types whose every field is an atomic integer and which may lie over a map's values.
///
/// # Safety
/// Any bit pattern must be valid and all access be atomic or to memory that programs do not touch.
pub(crate) unsafe trait Shared {}

/// Says of structs whose integers bindgen's result has as atomics that they are [`Shared`].
macro_rules! shared {
    ($($type:ident),*) => {$(
        // SAFETY: all fields are atomics, every bit pattern is valid.
        unsafe impl $crate::mapping::Shared for $type {}
    )*};
}
pub(crate) use shared;

impl<T: Shared> Window<T> {
    /// Maps `count` elements from `first` on. `first` must lie on a page boundary and the map must
    /// have the elements.
    pub(crate) fn map(fd: BorrowedFd<'_>, first: usize, count: usize) -> Result<Self, KernelError> {
        let bytes = count * size_of::<T>();
        // SAFETY: a new shared mapping at an address that the kernel chooses; nothing else is touched.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                fd.as_raw_fd(),
                (first * size_of::<T>()) as libc::off_t,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(KernelError::last("cannot map the flow table"));
        }
        match NonNull::new(base) {
            Some(base) => Ok(Self {
                base,
                bytes,
                count,
                elements: PhantomData,
            }),
            None => Err(KernelError::last("cannot map the flow table")),
        }
    }

    /// The elements of the window.
    pub(crate) fn elements(&self) -> &[T] {
        // SAFETY: the mapping is `count` elements long, page-aligned, lives as long as self, and T
        // is all atomics (Shared), so that concurrent writes by programs are not data races.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().cast(), self.count) }
    }
}

// SAFETY: the mapping belongs to the process, not to a thread, and its elements are atomics.
unsafe impl<T: Shared> Send for Window<T> {}

impl<T> Drop for Window<T> {
    fn drop(&mut self) {
        // SAFETY: base and bytes come from a successful mmap, and no reference outlives self.
        unsafe { libc::munmap(self.base.as_ptr(), self.bytes) };
    }
}
