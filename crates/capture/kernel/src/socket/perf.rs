//! Messages from programs on kernels without ring buffers: perf events.

use std::{
    ffi::{c_int, c_void},
    os::fd::{AsRawFd as _, BorrowedFd},
    ptr::NonNull,
    time::Duration,
};

use rustix::event::epoll;

use crate::{
    KernelError,
    sink::{Sink, Target},
};

/// A page of the ring, and the fewest per CPU.
const PAGE: usize = 4096;
const FEWEST_PAGES: usize = 8;

/// A perf ring for each CPU, of which this is the only reader. What does not fit is counted by the
/// programs.
pub(super) struct Perf {
    buffer: NonNull<libbpf_sys::perf_buffer>,
    target: Target,
}

// SAFETY: libbpf's perf buffer is bound to no thread, and methods that use it take &mut self; `target` is
// shared with nobody but libbpf, which uses it only then.
unsafe impl Send for Perf {}

unsafe extern "C" fn receive(
    target: *mut c_void,
    _cpu: c_int,
    event: *mut libbpf_sys::perf_event_header,
) -> libbpf_sys::bpf_perf_event_ret {
    const PREFIX: usize = size_of::<libbpf_sys::perf_event_header>() + size_of::<u32>();

    // SAFETY: libbpf gives a whole event, which begins with its header.
    let header = unsafe { event.read() };
    let length = usize::from(header.size);
    if header.type_ == libbpf_sys::PERF_RECORD_SAMPLE && length >= PREFIX {
        // SAFETY: libbpf gives the address of Perf::target, which lives as long as the buffer, on the thread that
        // consumes it. The event is as long as its header says and stays until this returns. A sample of nothing
        // but raw data is a length of 4 bytes and the data, padded.
        unsafe { Target::receive(target, event.cast::<u8>().add(PREFIX), length - PREFIX) };
    }
    libbpf_sys::LIBBPF_PERF_EVENT_CONT
}

impl Perf {
    /// Opens a ring for each CPU, together about `bytes` long.
    pub(super) fn new(map: BorrowedFd<'_>, bytes: u32) -> Result<Self, KernelError> {
        let cpus = libbpf_rs::num_possible_cpus().unwrap_or(1).max(1);
        let pages = (bytes as usize / PAGE / cpus).max(FEWEST_PAGES);
        // Rounded down: together they must not exceed the limit.
        let pages = 1 << pages.ilog2();
        let mut attributes = libbpf_sys::perf_event_attr {
            type_: libbpf_sys::PERF_TYPE_SOFTWARE,
            size: size_of::<libbpf_sys::perf_event_attr>() as u32,
            config: libbpf_sys::PERF_COUNT_SW_BPF_OUTPUT.into(),
            sample_type: libbpf_sys::PERF_SAMPLE_RAW.into(),
            ..Default::default()
        };
        attributes.__bindgen_anon_1.sample_period = 1;
        // Wakes when a quarter is full, never for one message.
        attributes.set_watermark(1);
        attributes.__bindgen_anon_2.wakeup_watermark = (pages * PAGE / 4) as u32;
        let target = Target::default();
        // SAFETY: the map is a perf event array, attributes outlive the call, and `target` outlives
        // the buffer (see drop).
        let buffer = unsafe {
            libbpf_sys::perf_buffer__new_raw(
                map.as_raw_fd(),
                pages as _,
                &raw mut attributes,
                Some(receive),
                target.address(),
                std::ptr::null(),
            )
        };
        let buffer =
            NonNull::new(buffer).ok_or_else(|| KernelError::last("cannot open perf events"))?;
        Ok(Self { buffer, target })
    }

    /// Readable when some CPU's ring was a quarter full.
    pub(super) fn wake(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor lives as long as the buffer, which the result borrows.
        unsafe { BorrowedFd::borrow_raw(libbpf_sys::perf_buffer__epoll_fd(self.buffer.as_ptr())) }
    }

    /// Drains all buffers.
    pub(super) fn drain(&mut self, sink: &mut Sink<'_>) -> Result<(), KernelError> {
        let mut calls = [epoll::Event {
            flags: epoll::EventFlags::empty(),
            data: epoll::EventData::new_u64(0),
        }; 64];
        // Before the messages are taken: a call that comes meanwhile counts for the next drain.
        let _ = epoll::wait(
            self.wake(),
            &mut calls[..],
            Some(&Duration::ZERO.try_into().unwrap_or_default()),
        );
        let buffer = self.buffer.as_ptr();
        let taken = self.target.collect(sink, || {
            // SAFETY: the buffer is ours alone (&mut self).
            unsafe { libbpf_sys::perf_buffer__consume(buffer) }
        });
        if taken < 0 {
            return Err(KernelError::System {
                what: "cannot read perf events",
                source: std::io::Error::from_raw_os_error(-taken),
            });
        }
        Ok(())
    }
}

impl Drop for Perf {
    fn drop(&mut self) {
        // SAFETY: it came from perf_buffer__new_raw and is not used again.
        unsafe { libbpf_sys::perf_buffer__free(self.buffer.as_ptr()) };
    }
}
