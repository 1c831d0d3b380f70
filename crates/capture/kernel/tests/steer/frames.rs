//! Packets, and programs that are given them.

use std::os::fd::{AsRawFd as _, BorrowedFd};

use skua_steer::{Detector, parse};
use skua_testkit::{Random, lab::kernel};

/// Whether the kernel can run the program at all: those before 5.12 cannot.
pub fn can_steer() -> bool {
    let version = kernel();
    if version < (5, 12) {
        assert!(skua_kernel::steer::trial().is_err());
        eprintln!("left out: {version:?} has no bpf_check_mtu, steering needs 5.12");
    }
    version >= (5, 12)
}

/// Verdicts of the program (linux/pkt_cls.h).
pub const GO_ON: i32 = -1;
pub const DISCARD: i32 = 2;
pub const REDIRECT: i32 = 7;

/// In an emulated machine everything takes ten times as long.
pub fn packets(all: usize) -> usize {
    match std::env::var_os("SKUA_KERNEL_MATRIX") {
        Some(_) => all / 50,
        None => all,
    }
}

/// Gives a packet to the program: its verdict, and the packet behind it.
pub fn run(program: BorrowedFd<'_>, packet: &[u8], segments: u32) -> (i32, Vec<u8>) {
    try_run(program, packet, segments).unwrap()
}

/// As [`run`]; an error when the kernel does not take such a packet for a test.
pub fn try_run(
    program: BorrowedFd<'_>,
    packet: &[u8],
    segments: u32,
) -> std::io::Result<(i32, Vec<u8>)> {
    // struct __sk_buff (linux/bpf.h) as words
    let mut context = [0u32; 48];
    let mut out = vec![0u8; packet.len() + 64];
    let mut options = libbpf_sys::bpf_test_run_opts {
        sz: size_of::<libbpf_sys::bpf_test_run_opts>() as _,
        data_in: packet.as_ptr().cast(),
        data_size_in: packet.len() as u32,
        data_out: out.as_mut_ptr().cast(),
        data_size_out: out.len() as u32,
        repeat: 1,
        ..Default::default()
    };
    if segments > 1 {
        context[164 / 4] = segments;
        context[176 / 4] = 100;
        options.ctx_in = (&raw const context).cast();
        options.ctx_size_in = size_of_val(&context) as u32;
    }
    // SAFETY: all pointers are valid for their lengths during the call.
    let error = unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), &mut options) };
    if error != 0 {
        return Err(std::io::Error::from_raw_os_error(-error));
    }
    out.truncate(options.data_size_out as usize);
    Ok((options.retval as i32, out))
}

pub fn detector(settings: &str) -> Detector {
    let text = format!("name: test\ninterface: eth0\n{settings}");
    let mut all = parse(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    all.remove(0)
}

pub fn checksum(parts: &[&[u8]]) -> u16 {
    let mut sum = 0u64;
    for part in parts {
        for pair in part.chunks(2) {
            let low = pair.get(1).copied().unwrap_or(0);
            sum += u64::from(u16::from_be_bytes([pair[0], low]));
        }
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// How a frame is built.
#[derive(Clone, Copy, Default)]
pub struct Shape {
    pub six: bool,
    pub tcp: bool,
    pub tags: usize,
    /// Words of IPv4 options, or IPv6 extension headers.
    pub extra: usize,
    pub fragment: bool,
    /// Bytes behind the end of IP.
    pub padding: usize,
}

impl Shape {
    pub fn random(random: &mut Random) -> Self {
        Self {
            six: random.one_in(3),
            tcp: random.one_in(4),
            tags: if random.one_in(4) {
                random.below(4) as usize
            } else {
                0
            },
            extra: if random.one_in(4) {
                random.below(10) as usize
            } else {
                0
            },
            fragment: random.one_in(50),
            padding: if random.one_in(5) {
                random.below(20) as usize
            } else {
                0
            },
        }
    }

    pub fn frame(self, payload: &[u8]) -> Vec<u8> {
        let mut transport = Vec::new();
        transport.extend([0x12, 0x34, 0x23, 0x28]);
        if self.tcp {
            transport.extend([0, 0, 0, 1, 0, 0, 0, 0, 0x50, 0x18, 0x10, 0, 0, 0, 0, 0]);
        } else {
            transport.extend((8 + payload.len() as u16).to_be_bytes());
            transport.extend([0, 0]);
        }
        let protocol = if self.tcp { 6 } else { 17 };
        transport.extend(payload);
        let (source, destination) = match self.six {
            true => (vec![0xfd; 16], vec![0xfe; 16]),
            false => (vec![10, 0, 0, 1], vec![10, 0, 0, 2]),
        };
        let length = transport.len() as u32;
        let pseudo = [&length.to_be_bytes()[..], &[0, 0, 0, protocol]].concat();
        let sum = checksum(&[&source, &destination, &pseudo, &transport]);
        let sum = if sum == 0 && !self.tcp { 0xffff } else { sum };
        let at = if self.tcp { 16 } else { 6 };
        transport[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        for tag in 0..self.tags {
            frame.extend([[0x81, 0x00], [0x88, 0xa8], [0x91, 0x00]][(tag + self.tags) % 3]);
            frame.extend([0, 7]);
        }
        if self.six {
            frame.extend([0x86, 0xdd]);
            self.add_ip6(&mut frame, protocol, &source, &destination, &transport);
        } else {
            frame.extend([0x08, 0x00]);
            self.add_ip4(&mut frame, protocol, &source, &destination, &transport);
        }
        frame.resize(frame.len() + self.padding, 0x2e);
        frame
    }

    fn add_ip4(self, frame: &mut Vec<u8>, protocol: u8, from: &[u8], to: &[u8], rest: &[u8]) {
        let size = 20 + self.extra.min(10) * 4;
        let mut header = vec![0x40 | (size / 4) as u8, 0];
        header.extend(((size + rest.len()) as u16).to_be_bytes());
        header.extend([
            0,
            1,
            if self.fragment { 0x20 } else { 0x40 },
            0,
            64,
            protocol,
            0,
            0,
        ]);
        header.extend(from.iter().chain(to));
        header.resize(size, 1);
        let sum = checksum(&[&header]);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        frame.extend(header);
        frame.extend(rest);
    }

    fn add_ip6(self, frame: &mut Vec<u8>, protocol: u8, from: &[u8], to: &[u8], rest: &[u8]) {
        let mut body = Vec::new();
        let mut kinds: Vec<u8> = (0..self.extra)
            .map(|i| [0, 60, 43, 51, 135, 139, 140][i % 7])
            .collect();
        if self.fragment {
            kinds.push(44);
        }
        let first = kinds.first().copied().unwrap_or(protocol);
        for (i, kind) in kinds.iter().enumerate() {
            let next = kinds.get(i + 1).copied().unwrap_or(protocol);
            body.extend(match kind {
                44 => [next, 0, 0, 1, 0, 0, 0, 9].to_vec(),
                // In words of 4 bytes, two less than there are.
                51 => [vec![next, 2], vec![0; 14]].concat(),
                _ => [vec![next, 1], vec![0; 14]].concat(),
            });
        }
        body.extend(rest);
        frame.extend([0x60, 0, 0, 0]);
        frame.extend((body.len() as u16).to_be_bytes());
        frame.extend([first, 64]);
        frame.extend(from.iter().chain(to));
        frame.extend(body);
    }
}
