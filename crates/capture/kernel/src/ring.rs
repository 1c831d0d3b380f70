//! Messages from programs: a BPF ring buffer.

use std::{
    ffi::{c_int, c_void},
    os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd},
    ptr::NonNull,
    time::Duration,
};

use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};

use crate::{
    KernelError,
    sink::{Sink, Target},
};

/// A ring buffer of which this is the only reader.
///
/// It is mapped, whole and twice, only while there is much to take: its pages count as our
/// resident memory.
pub(crate) struct Ring {
    map: OwnedFd,
    mapped: Option<Mapped>,
    target: Target,
    /// Reports the map edge-triggered: messages without a wake-up from the programs wake no thread.
    wake: OwnedFd,
    /// Most messages of one drain, so that it ends however fast new ones come.
    most: usize,
}

/// libbpf's reader of a ring buffer.
struct Mapped(NonNull<libbpf_sys::ring_buffer>);

// SAFETY: libbpf's ring buffer is bound to no thread, and methods that use it take &mut self.
unsafe impl Send for Mapped {}

// SAFETY: `target` is shared with nobody but libbpf, which uses it only while `drain` holds the ring
// exclusively.
unsafe impl Send for Ring {}

unsafe extern "C" fn receive(
    target: *mut c_void,
    data: *mut c_void,
    size: libbpf_sys::size_t,
) -> c_int {
    // SAFETY: libbpf gives the address of Ring::target, which lives as long as the ring buffer, on the thread
    // that consumes it, and `size` bytes at `data` that stay until this returns.
    unsafe { Target::receive(target, data.cast(), size as usize) };
    0
}

impl Mapped {
    fn new(map: &OwnedFd, target: &Target) -> Result<Self, KernelError> {
        // SAFETY: the map is a ring buffer, and `target` outlives the reader (see Ring).
        let ring = unsafe {
            libbpf_sys::ring_buffer__new(
                map.as_raw_fd(),
                Some(receive),
                target.address(),
                std::ptr::null(),
            )
        };
        NonNull::new(ring)
            .map(Self)
            .ok_or_else(|| KernelError::last("cannot open a ring buffer"))
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: it came from ring_buffer__new and is not used again.
        unsafe { libbpf_sys::ring_buffer__free(self.0.as_ptr()) };
    }
}

impl Ring {
    /// Opens the ring for messages of at least `message` bytes, `bytes` long.
    pub(crate) fn new(
        map: BorrowedFd<'_>,
        bytes: u32,
        message: usize,
    ) -> Result<Self, KernelError> {
        let failed = |source: std::io::Error| KernelError::System {
            what: "cannot wait for a ring buffer",
            source,
        };
        let map = map.try_clone_to_owned().map_err(failed)?;
        let wake = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|e| failed(e.into()))?;
        epoll::add(
            &wake,
            &map,
            epoll::EventData::new_u64(0),
            epoll::EventFlags::IN | epoll::EventFlags::ET,
        )
        .map_err(|e| failed(e.into()))?;
        let target = Target::default();
        // Fails now when it cannot be mapped.
        drop(Mapped::new(&map, &target)?);
        Ok(Self {
            map,
            mapped: None,
            target,
            wake,
            most: bytes as usize / message + 1,
        })
    }

    /// Readable when programs called.
    pub(crate) fn wake(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// Drains the ring; returns whether there may be more.
    pub(crate) fn drain(&mut self, sink: &mut Sink<'_>) -> Result<bool, KernelError> {
        let mut calls = [epoll::Event {
            flags: epoll::EventFlags::empty(),
            data: epoll::EventData::new_u64(0),
        }];
        // Before the messages are taken: a call that comes meanwhile counts for the next drain.
        let called = epoll::wait(
            &self.wake,
            &mut calls[..],
            Some(&Duration::ZERO.try_into().unwrap_or_default()),
        )
        .is_ok_and(|calls| calls > 0);
        if !called && !self.has_messages() {
            self.mapped = None;
            return Ok(false);
        }
        let mapped = match &self.mapped {
            Some(mapped) => mapped,
            None => self.mapped.insert(Mapped::new(&self.map, &self.target)?),
        };
        let (ring, most) = (mapped.0.as_ptr(), self.most);
        let taken = self.target.collect(sink, || {
            // SAFETY: the ring buffer is ours alone (&mut self).
            unsafe { libbpf_sys::ring_buffer__consume_n(ring, most as _) }
        });
        // Programs that wake us will do so again soon: mapping and unmapping takes a while.
        if !called {
            self.mapped = None;
        }
        if taken < 0 {
            return Err(KernelError::System {
                what: "cannot read a ring buffer",
                source: std::io::Error::from_raw_os_error(-taken),
            });
        }
        Ok(taken as usize >= most)
    }

    /// Whether the kernel has messages for us.
    pub(crate) fn has_messages(&self) -> bool {
        let mut fds = [PollFd::new(&self.map, PollFlags::IN)];
        // On failure assume that there are some.
        poll(&mut fds, Some(&Timespec::default())).map_or(true, |ready| ready > 0)
    }
}
