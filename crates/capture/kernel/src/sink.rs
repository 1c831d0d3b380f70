//! Where messages of the kernel go while libbpf hands them on.
//!
//! libbpf keeps the address of a [`Target`] while its reader lives, and calls back through it while the
//! reader is drained. So no code may have the target exclusively, neither by `&mut` nor by moving a `Box`
//! of it: it is behind an [`Rc`], and what changes in it is a [`Cell`]. Miri checks that
//! (`tests/miri/run`).

use std::{cell::Cell, ffi::c_void, ptr::NonNull, rc::Rc};

/// Receives messages.
pub(crate) type Sink<'a> = dyn FnMut(&[u8]) + 'a;

/// Where the messages of the drain that runs go; none between drains.
#[derive(Default)]
pub(crate) struct Target(Rc<Cell<Option<NonNull<Sink<'static>>>>>);

impl Target {
    /// What libbpf is given, for [`receive`](Self::receive). Good as long as the target lives, wherever it
    /// is moved.
    pub(crate) fn address(&self) -> *mut c_void {
        Rc::as_ptr(&self.0).cast_mut().cast()
    }

    /// A message of `size` bytes at `data`; dropped when no drain runs.
    ///
    /// # Safety
    ///
    /// `address` is that of a target that lives, on the thread that drains it if one does; `size` bytes at
    /// `data` can be read until this returns.
    pub(crate) unsafe fn receive(address: *mut c_void, data: *const u8, size: usize) {
        // SAFETY: as the caller promises; the cell is only ever shared.
        let target = unsafe { &*address.cast::<Cell<Option<NonNull<Sink<'static>>>>>() };
        if let Some(mut sink) = target.get() {
            // SAFETY: as the caller promises.
            let data = unsafe { std::slice::from_raw_parts(data, size) };
            // SAFETY: set by `collect` from a reference that is its own until it has cleared this, and a sink
            // has no way to have itself called again.
            unsafe { sink.as_mut()(data) };
        }
    }

    /// Messages that come while `drain` runs go to `sink`.
    pub(crate) fn collect<R>(&self, sink: &mut Sink<'_>, drain: impl FnOnce() -> R) -> R {
        let sink: NonNull<Sink<'_>> = sink.into();
        // SAFETY: only the lifetime changes; the pointer is cleared before `sink` goes.
        let sink =
            unsafe { std::mem::transmute::<NonNull<Sink<'_>>, NonNull<Sink<'static>>>(sink) };
        let _clear = Clear(self);
        self.0.set(Some(sink));
        drain()
    }
}

/// Clears the target even when a drain panics.
struct Clear<'a>(&'a Target);

impl Drop for Clear<'_> {
    fn drop(&mut self) {
        self.0.0.set(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn give(address: *mut c_void, message: &[u8]) {
        // SAFETY: the target lives in each test until after the last message.
        unsafe { Target::receive(address, message.as_ptr(), message.len()) };
    }

    #[test]
    fn every_message_that_comes_through_the_address_that_libbpf_has_reaches_the_sink() {
        let target = Target::default();
        let address = target.address();
        // Moved, as a ring is after it was made.
        let moved = Box::new(target);
        let mut taken = Vec::new();
        for _ in 0..2 {
            moved.collect(&mut |data| taken.extend_from_slice(data), || {
                give(address, &[7; 20]);
                give(address, &[8; 3]);
            });
            give(address, &[9; 5]);
        }
        let once = [&[7u8; 20][..], &[8; 3]].concat();
        assert_eq!(taken, [once.clone(), once].concat());
    }

    #[test]
    fn no_message_reaches_a_sink_whose_drain_panicked() {
        let target = Target::default();
        let mut messages = 0;
        let drained = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            target.collect(&mut |_| messages += 1, || panic!("on purpose"));
        }));
        assert!(drained.is_err());
        give(target.address(), &[1]);
        assert_eq!(messages, 0);
    }
}
