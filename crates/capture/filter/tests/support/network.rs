//! Packet sockets, classifiers and maps of the kernel.
#![allow(unsafe_code)]

use std::io::{Error, Result};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use libbpf_sys::*;

use super::kernel::Program;

/// A packet socket on one interface.
pub struct PacketSocket(OwnedFd);

impl PacketSocket {
    pub fn open(ifindex: i32) -> Self {
        let all = (libc::ETH_P_ALL as u16).to_be();
        // SAFETY: takes no pointers.
        let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW, 0) };
        assert!(fd >= 0, "packet socket: {}", Error::last_os_error());
        // SAFETY: the kernel just gave this descriptor to us alone.
        let socket = PacketSocket(unsafe { OwnedFd::from_raw_fd(fd) });
        // SAFETY: all zero is a valid value of this plain structure.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = all;
        address.sll_ifindex = ifindex;
        // SAFETY: the pointer is to a live structure of the size given.
        let result = unsafe {
            libc::bind(
                fd,
                (&raw const address).cast(),
                size_of_val(&address) as u32,
            )
        };
        assert_eq!(result, 0, "bind: {}", Error::last_os_error());
        socket
    }

    pub fn attach(&self, program: &Program) {
        let fd = program.fd();
        // SAFETY: the pointer is to a live integer of the size given.
        let result = unsafe {
            libc::setsockopt(
                self.0.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_ATTACH_BPF,
                (&raw const fd).cast(),
                size_of_val(&fd) as u32,
            )
        };
        assert_eq!(result, 0, "SO_ATTACH_BPF: {}", Error::last_os_error());
    }

    pub fn send(&self, frame: &[u8]) {
        // SAFETY: the pointer is to live memory of the size given.
        let sent = unsafe { libc::send(self.0.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
        assert_eq!(
            sent,
            frame.len() as isize,
            "send: {}",
            Error::last_os_error()
        );
    }

    /// The next frame, if one is waiting.
    pub fn receive(&self) -> Option<Vec<u8>> {
        let mut frame = vec![0; 2048];
        // SAFETY: the pointer is to live memory of the size given.
        let received = unsafe {
            libc::recv(
                self.0.as_raw_fd(),
                frame.as_mut_ptr().cast(),
                frame.len(),
                libc::MSG_DONTWAIT,
            )
        };
        frame.truncate(usize::try_from(received).ok()?);
        Some(frame)
    }
}

/// A classifier on the clsact ingress hook of an interface.
pub struct Ingress {
    hook: bpf_tc_hook,
    handle: u32,
    priority: u32,
}

/// Attaches a classifier, until the result is dropped.
pub fn attach_ingress(ifindex: i32, program: &Program) -> Ingress {
    let mut hook = bpf_tc_hook {
        sz: size_of::<bpf_tc_hook>() as _,
        ifindex,
        attach_point: BPF_TC_INGRESS,
        ..Default::default()
    };
    let mut options = bpf_tc_opts {
        sz: size_of::<bpf_tc_opts>() as _,
        prog_fd: program.fd(),
        ..Default::default()
    };
    // SAFETY: both pointers are to live structures that carry their size.
    let (created, attached) = unsafe {
        (
            bpf_tc_hook_create(&raw mut hook),
            bpf_tc_attach(&raw const hook, &raw mut options),
        )
    };
    assert!(
        created == 0 || created == -libc::EEXIST,
        "clsact on {ifindex}: {created}"
    );
    assert_eq!(attached, 0, "classifier on {ifindex}");
    Ingress {
        hook,
        handle: options.handle,
        priority: options.priority,
    }
}

impl Drop for Ingress {
    fn drop(&mut self) {
        let options = bpf_tc_opts {
            sz: size_of::<bpf_tc_opts>() as _,
            handle: self.handle,
            priority: self.priority,
            ..Default::default()
        };
        // SAFETY: both pointers are to live structures that carry their size.
        let detached = unsafe { bpf_tc_detach(&raw const self.hook, &raw const options) };
        assert_eq!(detached, 0);
    }
}

/// An array of 64-bit counters or of programs in the kernel.
pub struct Array(OwnedFd);

impl Array {
    pub fn new(kind: bpf_map_type, value_size: u32, entries: u32) -> Self {
        // SAFETY: the name is a string that ends with NUL; no options.
        let fd = unsafe {
            bpf_map_create(
                kind,
                c"flt".as_ptr(),
                4,
                value_size,
                entries,
                std::ptr::null(),
            )
        };
        assert!(fd >= 0, "map: {}", Error::from_raw_os_error(-fd));
        // SAFETY: the kernel just gave this descriptor to us alone.
        Array(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    pub fn fd(&self) -> i32 {
        self.0.as_raw_fd()
    }

    pub fn counter(&self, index: u32) -> u64 {
        let mut value = 0_u64;
        // SAFETY: the pointers are to a live key and value of the map's sizes.
        let result = unsafe {
            bpf_map_lookup_elem(
                self.fd(),
                (&raw const index).cast(),
                (&raw mut value).cast(),
            )
        };
        assert_eq!(result, 0);
        value
    }

    pub fn set_program(&self, index: u32, program: &Program) -> Result<()> {
        let fd = program.fd();
        // SAFETY: the pointers are to a live key and value of the map's sizes.
        let result = unsafe {
            bpf_map_update_elem(
                self.fd(),
                (&raw const index).cast(),
                (&raw const fd).cast(),
                0,
            )
        };
        if result == 0 {
            Ok(())
        } else {
            Err(Error::from_raw_os_error(-result))
        }
    }
}
