//! Where the kernel keeps whether an interface is up (`bpf/steer/device.bpf.c`).

use std::{
    os::fd::{AsFd as _, AsRawFd as _, OwnedFd},
    sync::{Mutex, OnceLock, PoisonError},
};

use libbpf_rs::MapCore as _;

use crate::{
    KernelError, KernelTypes,
    embedded::{self, object},
};

/// Addresses of an interface's state in the kernel, which the steering program reads; all zero: not known.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Device {
    /// Its flags; those of the other end, when it is a veth.
    pub(super) flags: [u64; 2],
    /// Its state, which says whether it has a carrier.
    pub(super) state: u64,
}

impl Device {
    /// Whether the program sees for itself that the interface is down.
    pub fn is_known(&self) -> bool {
        self.flags[0] != 0
    }

    /// Flags and state that the program has to read. On the way into the other end of a veth the kernel
    /// itself reads that end only, which is also the veth's carrier.
    pub(super) fn what_counts(&self, peer: bool) -> ([u64; 2], u64) {
        match self.flags {
            [_, far] if peer && far != 0 => ([far, 0], 0),
            [_, far] if far != 0 => (self.flags, 0),
            _ => (self.flags, self.state),
        }
    }
}

/// `struct steer_device`.
#[repr(C)]
#[derive(Default)]
struct Question {
    ifindex: u32,
    veth: u32,
    flags: [u64; 2],
    state: u64,
}

const _: () = assert!(size_of::<Question>() == 32);

/// Finds the state of interfaces.
pub struct Finder {
    program: OwnedFd,
    answer: OwnedFd,
    /// One question at a time.
    turn: Mutex<()>,
}

impl Finder {
    /// The finder of this process; none when the kernel rejects the program.
    pub(super) fn get() -> Option<&'static Self> {
        // Finding the kernel's fields takes longer than the rest of a detector's start.
        static FINDER: OnceLock<Option<Finder>> = OnceLock::new();
        let load = || {
            Self::load()
                .inspect_err(|error| tracing::info!(%error, "targets are watched from user space"))
                .ok()
        };
        FINDER.get_or_init(load).as_ref()
    }

    /// Loads the program.
    ///
    /// # Errors
    ///
    /// The kernel exports no types, or rejects the program.
    fn load() -> Result<Self, KernelError> {
        let types = KernelTypes::find(None)?;
        let name = "steer_device";
        let loaded = embedded::load((name, object!("steer_device")), &[], types.file(), |_| {
            Ok(())
        })?;
        let copy = |fd: std::os::fd::BorrowedFd<'_>| fd.try_clone_to_owned();
        let failed = |source| KernelError::System {
            what: "cannot keep the program that finds interfaces",
            source,
        };
        let program = loaded.progs().find(|program| program.name() == "find");
        let map = loaded.maps().find(|map| map.name() == "found");
        Ok(Self {
            program: copy(program.ok_or(KernelError::Missing("find"))?.as_fd()).map_err(failed)?,
            answer: copy(map.ok_or(KernelError::Missing("found"))?.as_fd()).map_err(failed)?,
            turn: Mutex::new(()),
        })
    }

    /// State of an interface of the calling thread's network namespace; of a veth also that of its
    /// other end.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn find(&self, ifindex: u32, veth: bool) -> Result<Device, KernelError> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let mut question = Question {
            ifindex,
            veth: veth.into(),
            ..Question::default()
        };
        let (key, map) = (0u32, self.answer.as_raw_fd());
        // SAFETY: key and value are as long as the map's, and outlive the call.
        let result = unsafe {
            libbpf_sys::bpf_map_update_elem(
                map,
                (&raw const key).cast(),
                (&raw const question).cast(),
                0,
            )
        };
        if result < 0 {
            return Err(KernelError::last("cannot ask for an interface"));
        }
        // The kernel requires a packet; the program does not read it.
        let packet = [0u8; 64];
        let mut options = libbpf_sys::bpf_test_run_opts {
            sz: size_of::<libbpf_sys::bpf_test_run_opts>() as _,
            data_in: packet.as_ptr().cast(),
            data_size_in: packet.len() as u32,
            repeat: 1,
            ..Default::default()
        };
        // SAFETY: options and the packet in it outlive the call.
        let ran =
            unsafe { libbpf_sys::bpf_prog_test_run_opts(self.program.as_raw_fd(), &mut options) };
        if ran < 0 {
            return Err(KernelError::last("cannot find an interface's state"));
        }
        // SAFETY: as above; the kernel writes as many bytes as the value has.
        let answered = unsafe {
            libbpf_sys::bpf_map_lookup_elem(
                map,
                (&raw const key).cast(),
                (&raw mut question).cast(),
            )
        };
        if answered < 0 {
            return Err(KernelError::last("cannot read where an interface is"));
        }
        Ok(Device {
            flags: question.flags,
            state: question.state,
        })
    }
}
