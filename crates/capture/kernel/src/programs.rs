//! All programs that are attached to an interface, as the kernel lists them.

use std::{
    io,
    os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
};

use crate::Direction;

/// Programs of one hook that are listed at most; the kernel takes 64 (`BPF_MPROG_MAX`).
const MOST: usize = 64;

/// A loaded program (`struct bpf_prog_info`, linux/bpf.h).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProgramInfo {
    /// Its number.
    pub id: u32,
    /// Its name, cut at 15 bytes by its loader; may be empty.
    pub name: String,
    /// Hash of its instructions, hexadecimal.
    pub tag: String,
    /// Kind of the program, as `bpftool prog` calls it.
    pub kind: &'static str,
}

/// Numbers of the programs on one direction of an interface of the calling thread's network
/// namespace, in the order in which they run, each with that of its link (0: attached without one).
/// Kernels without tcx (before 6.6) refuse with EINVAL.
pub fn attached_tcx(ifindex: u32, direction: Direction) -> io::Result<Vec<(u32, u32)>> {
    let attach_type = match direction {
        Direction::Ingress => libbpf_sys::BPF_TCX_INGRESS,
        Direction::Egress => libbpf_sys::BPF_TCX_EGRESS,
    };
    let target = i32::try_from(ifindex).map_err(|_| io::ErrorKind::InvalidInput)?;
    let (mut programs, mut links) = ([0u32; MOST], [0u32; MOST]);
    let mut options = libbpf_sys::bpf_prog_query_opts {
        sz: size_of::<libbpf_sys::bpf_prog_query_opts>() as _,
        prog_ids: programs.as_mut_ptr(),
        link_ids: links.as_mut_ptr(),
        ..Default::default()
    };
    // A union: the number of both arrays' places.
    options.__bindgen_anon_1.count = MOST as u32;
    // SAFETY: options and the arrays it points to outlive the call, and have as many places as it says.
    let result = unsafe { libbpf_sys::bpf_prog_query_opts(target, attach_type, &mut options) };
    if result < 0 {
        return Err(io::Error::from_raw_os_error(-result));
    }
    // SAFETY: both members of the union are numbers of 32 bits.
    let count = unsafe { options.__bindgen_anon_1.count } as usize;
    let all = programs.into_iter().zip(links);
    Ok(all.take(count.min(MOST)).collect())
}

/// What the kernel says of the program with this number.
pub fn program_info(id: u32) -> io::Result<ProgramInfo> {
    // SAFETY: takes a number only.
    let fd = unsafe { libbpf_sys::bpf_prog_get_fd_by_id(id) };
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: a new descriptor that nobody else owns.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut length = size_of::<libbpf_sys::bpf_prog_info>() as u32;
    // SAFETY: fd is open, info outlives the call and is as long as length says.
    let result =
        unsafe { libbpf_sys::bpf_prog_get_info_by_fd(fd.as_raw_fd(), &mut info, &mut length) };
    if result < 0 {
        return Err(io::Error::from_raw_os_error(-result));
    }
    let name: Vec<u8> = info
        .name
        .iter()
        .map(|byte| *byte as u8)
        .take_while(|byte| *byte != 0)
        .collect();
    Ok(ProgramInfo {
        id,
        name: String::from_utf8_lossy(&name).escape_debug().collect(),
        tag: info.tag.iter().map(|byte| format!("{byte:02x}")).collect(),
        kind: match info.type_ {
            libbpf_sys::BPF_PROG_TYPE_SCHED_CLS => "sched_cls",
            libbpf_sys::BPF_PROG_TYPE_SCHED_ACT => "sched_act",
            libbpf_sys::BPF_PROG_TYPE_XDP => "xdp",
            _ => "other",
        },
    })
}
