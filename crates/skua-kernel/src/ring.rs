//! Messages from programs: a BPF ring buffer.

use std::{
    ffi::{c_int, c_void},
    os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd},
    ptr::NonNull,
    time::Duration,
};

use rustix::event::epoll;

use crate::KernelError;

pub(crate) type Sink<'a> = dyn FnMut(&[u8]) + 'a;

/// Where the messages of the drain that runs go; none between drains. libbpf is given its address.
#[derive(Default)]
pub(crate) struct Target(Option<NonNull<Sink<'static>>>);

impl Target {
    /// A message.
    pub(crate) fn receive(&mut self, data: &[u8]) {
        if let Some(sink) = self.0.as_mut() {
            // SAFETY: set by `collect` from a reference that lives until it clears it.
            unsafe { sink.as_mut()(data) };
        }
    }

    /// Messages that come while `drain` runs go to `sink`.
    pub(crate) fn collect<R>(&mut self, sink: &mut Sink<'_>, drain: impl FnOnce() -> R) -> R {
        let sink: NonNull<Sink<'_>> = sink.into();
        // SAFETY: only the lifetime changes; the pointer is cleared before `sink` goes.
        self.0 =
            Some(unsafe { std::mem::transmute::<NonNull<Sink<'_>>, NonNull<Sink<'static>>>(sink) });
        let result = drain();
        self.0 = None;
        result
    }
}

/// A ring buffer of which this is the only reader.
pub(crate) struct Ring {
    ring: NonNull<libbpf_sys::ring_buffer>,
    target: Box<Target>,
    /// Watches the map by edges: what lies in it without a call from the programs wakes nobody.
    wake: OwnedFd,
    /// Most messages of one drain, so that it ends however fast new ones come.
    most: usize,
}

// SAFETY: libbpf's ring buffer is bound to no thread, and methods that use it take &mut self.
unsafe impl Send for Ring {}

unsafe extern "C" fn receive(
    target: *mut c_void,
    data: *mut c_void,
    size: libbpf_sys::size_t,
) -> c_int {
    // SAFETY: libbpf gives `size` bytes at `data` that stay until this returns.
    let data = unsafe { std::slice::from_raw_parts(data.cast(), size as usize) };
    // SAFETY: `target` is Ring::target, which is boxed and lives as long as the ring buffer; only
    // `drain` leads here, and it holds the ring exclusively.
    unsafe { &mut *target.cast::<Target>() }.receive(data);
    0
}

impl Ring {
    /// Opens the ring for messages of at least `message` bytes, `bytes` long.
    pub(crate) fn new(
        map: BorrowedFd<'_>,
        bytes: u32,
        message: usize,
    ) -> Result<Self, KernelError> {
        let mut target = Box::<Target>::default();
        // SAFETY: the map is a ring buffer, and `target` outlives the ring buffer (see drop).
        let ring = unsafe {
            libbpf_sys::ring_buffer__new(
                map.as_raw_fd(),
                Some(receive),
                (&raw mut *target).cast(),
                std::ptr::null(),
            )
        };
        let ring =
            NonNull::new(ring).ok_or_else(|| KernelError::last("cannot open a ring buffer"))?;
        let failed = |source: rustix::io::Errno| KernelError::System {
            what: "cannot wait for a ring buffer",
            source: source.into(),
        };
        let wake = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed)?;
        epoll::add(
            &wake,
            map,
            epoll::EventData::new_u64(0),
            epoll::EventFlags::IN | epoll::EventFlags::ET,
        )
        .map_err(failed)?;
        Ok(Self {
            ring,
            target,
            wake,
            most: bytes as usize / message + 1,
        })
    }

    /// Readable when programs called.
    pub(crate) fn wake(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// Takes what is there; returns whether there may be more.
    pub(crate) fn drain(&mut self, sink: &mut Sink<'_>) -> Result<bool, KernelError> {
        let mut calls = [epoll::Event {
            flags: epoll::EventFlags::empty(),
            data: epoll::EventData::new_u64(0),
        }];
        // Before the messages are taken: a call that comes meanwhile counts for the next drain.
        let _ = epoll::wait(
            &self.wake,
            &mut calls[..],
            Some(&Duration::ZERO.try_into().unwrap_or_default()),
        );
        let (ring, most) = (self.ring.as_ptr(), self.most);
        let taken = self.target.collect(sink, || {
            // SAFETY: the ring buffer is ours alone (&mut self).
            unsafe { libbpf_sys::ring_buffer__consume_n(ring, most as _) }
        });
        if taken < 0 {
            return Err(KernelError::System {
                what: "cannot read a ring buffer",
                source: std::io::Error::from_raw_os_error(-taken),
            });
        }
        Ok(taken as usize >= most)
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: it came from ring_buffer__new and is not used again.
        unsafe { libbpf_sys::ring_buffer__free(self.ring.as_ptr()) };
    }
}
