//! Packets into interfaces, counted exactly: AF_PACKET and tun, by the system calls themselves.
#![allow(
    unsafe_code,
    reason = "packet sockets, tun devices and loading a BPF program have no safe interface"
)]

use std::{
    fs::File,
    io,
    os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd},
};

use super::{Net, Sum};

/// Frames in one system call.
const BATCH: usize = 64;

/// How frames leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendMode {
    /// As all traffic does: past the hooks on egress.
    Queue,
    /// Straight to the driver (PACKET_QDISC_BYPASS), faster; hooks on egress do not see them.
    Bypass,
}

/// What happened to frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sent {
    /// Taken by the interface.
    pub sum: Sum,
    /// Given to the interface but dropped by it, as when the receiver's queue is full.
    pub dropped: Sum,
    /// Why sending ended early (errno), the frame that met it being not in the sums.
    pub error: Option<i32>,
}

impl std::ops::AddAssign for Sent {
    fn add_assign(&mut self, other: Self) {
        self.sum += other.sum;
        self.dropped += other.dropped;
        self.error = self.error.or(other.error);
    }
}

/// A packet socket that sends on one interface.
pub struct Sender(OwnedFd);

fn check(result: i32) -> io::Result<i32> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

fn set_option<T>(fd: &impl AsFd, level: i32, option: i32, value: &T) -> io::Result<()> {
    // SAFETY: value outlives the call and its size is told.
    check(unsafe {
        libc::setsockopt(
            fd.as_fd().as_raw_fd(),
            level,
            option,
            (&raw const *value).cast(),
            size_of::<T>() as u32,
        )
    })
    .map(drop)
}

impl Sender {
    pub fn open(net: &Net, interface: &str, way: SendMode) -> Self {
        let ifindex = net.ifindex(interface);
        // Protocol 0: it only sends.
        // SAFETY: no pointers.
        let fd = net.inside(|| unsafe {
            check(libc::socket(
                libc::AF_PACKET,
                libc::SOCK_RAW | libc::SOCK_CLOEXEC,
                0,
            ))
        });
        // SAFETY: a new descriptor that nobody else owns.
        let fd = unsafe { OwnedFd::from_raw_fd(fd.unwrap()) };
        // SAFETY: all zeroes are a valid address.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_ifindex = ifindex as i32;
        // SAFETY: address outlives the call and its size is told.
        check(unsafe {
            libc::bind(
                fd.as_raw_fd(),
                (&raw const address).cast(),
                size_of::<libc::sockaddr_ll>() as u32,
            )
        })
        .unwrap();
        if way == SendMode::Bypass {
            set_option(&fd, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, &1i32).unwrap();
        }
        set_option(&fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &(4i32 << 20)).unwrap();
        Self(fd)
    }

    /// Sends `count` frames, made one after the other; ends early when the interface does.
    pub fn send(&self, count: u64, mut make: impl FnMut(u64) -> Vec<u8>) -> Sent {
        let mut sent = Sent::default();
        let mut next = 0;
        while next < count && sent.error.is_none() {
            let size = (count - next).min(BATCH as u64);
            let frames: Vec<Vec<u8>> = (next..next + size).map(&mut make).collect();
            self.send_batch(&frames, &mut sent);
            next += size;
        }
        sent
    }

    /// Sends one frame `count` times.
    pub fn repeat(&self, count: u64, frame: &[u8]) -> Sent {
        let batch = vec![frame.to_vec(); BATCH];
        let mut sent = Sent::default();
        let mut left = count;
        while left > 0 && sent.error.is_none() {
            let size = left.min(BATCH as u64);
            self.send_batch(&batch[..size as usize], &mut sent);
            left -= size;
        }
        sent
    }

    fn send_batch(&self, frames: &[Vec<u8>], sent: &mut Sent) {
        let mut parts: Vec<libc::iovec> = frames
            .iter()
            .map(|frame| libc::iovec {
                iov_base: frame.as_ptr().cast_mut().cast(),
                iov_len: frame.len(),
            })
            .collect();
        let mut messages: Vec<libc::mmsghdr> = parts
            .iter_mut()
            .map(|part| {
                // SAFETY: all zeroes are a valid message header.
                let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
                message.msg_hdr.msg_iov = part;
                message.msg_hdr.msg_iovlen = 1;
                message
            })
            .collect();
        let mut at = 0;
        while at < messages.len() {
            let rest = &mut messages[at..];
            // SAFETY: the headers point to `parts`, those to `frames`; all outlive the call, which
            // does not write to the frames.
            let taken = check(unsafe {
                libc::sendmmsg(self.0.as_raw_fd(), rest.as_mut_ptr(), rest.len() as u32, 0)
            });
            match taken {
                Ok(taken) => {
                    for frame in &frames[at..at + taken as usize] {
                        sent.sum += Sum::new(1, frame.len() as u64);
                    }
                    at += taken as usize;
                    if at == messages.len() {
                        return;
                    }
                    // The next one was tried and failed, but nobody says why: the call after
                    // this would send it again, so it is skipped as one that was dropped. Should
                    // the interface be gone, the frame after it says so.
                    sent.dropped += Sum::new(1, frames[at].len() as u64);
                    at += 1;
                }
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                    sent.dropped += Sum::new(1, frames[at].len() as u64);
                    at += 1;
                }
                Err(error) => {
                    sent.error = error.raw_os_error();
                    return;
                }
            }
        }
    }
}

/// Has the kernel cut what is sent over a UDP socket into datagrams of `size` bytes of payload.
pub fn segment_udp(socket: &std::net::UdpSocket, size: u16) {
    set_option(socket, libc::SOL_UDP, libc::UDP_SEGMENT, &i32::from(size)).unwrap();
}

/// A tun device without Ethernet header, up: what is written is received by the host.
pub fn tun(net: &Net, name: &str) -> File {
    net.ip(&format!("tuntap add dev {name} mode tun"));
    net.ip(&format!("link set {name} up"));
    // The device is looked up in the namespace of who opens the file.
    net.inside(|| {
        let file = File::options()
            .read(true)
            .write(true)
            .open("/dev/net/tun")
            .unwrap();
        // SAFETY: all zeroes are a valid request.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *to = from as libc::c_char;
        }
        request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as i16;
        // SAFETY: request is what TUNSETIFF reads and writes, and outlives the call.
        check(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) }).unwrap();
        file
    })
}

/// A tc program that adds a VLAN tag to each packet, beside it as network cards do.
pub fn tagging_program(vid: u16) -> OwnedFd {
    let insn = |code: u8, dst: u8, src: u8, imm: i32| libbpf_sys::bpf_insn {
        code,
        _bitfield_align_1: [],
        _bitfield_1: libbpf_sys::bpf_insn::new_bitfield_1(dst, src),
        off: 0,
        imm,
    };
    const MOVE: u8 = 0xb7; // BPF_ALU64 | BPF_MOV | BPF_K
    const CALL: u8 = 0x85;
    const EXIT: u8 = 0x95;
    let program = [
        // r1 is the packet; TPID 802.1Q in network byte order.
        insn(MOVE, 2, 0, i32::from(0x8100u16.to_be())),
        insn(MOVE, 3, 0, i32::from(vid)),
        insn(CALL, 0, 0, libbpf_sys::BPF_FUNC_skb_vlan_push as i32),
        insn(MOVE, 0, 0, -1),
        insn(EXIT, 0, 0, 0),
    ];
    // SAFETY: strings are NUL-terminated, the program outlives the call, options may be null.
    let fd = unsafe {
        libbpf_sys::bpf_prog_load(
            libbpf_sys::BPF_PROG_TYPE_SCHED_CLS,
            c"lv_tag".as_ptr(),
            c"GPL".as_ptr(),
            program.as_ptr(),
            program.len() as u64,
            std::ptr::null_mut(),
        )
    };
    // SAFETY: a new descriptor that nobody else owns.
    unsafe { OwnedFd::from_raw_fd(check(fd).unwrap()) }
}
