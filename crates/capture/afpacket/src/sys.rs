//! The system calls and shared memory behind an AF_PACKET ring: all unsafe code of this crate.

use crate::BpfInstruction;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};

/// Plain old data that the kernel may read or write as bytes.
///
/// # Safety
/// Every bit pattern of the type's size must be a valid value, and it must have no padding.
pub(crate) unsafe trait Plain: Copy {}
// SAFETY: an integer.
unsafe impl Plain for i32 {}
// SAFETY: seven integers of 4 bytes.
unsafe impl Plain for libc::tpacket_req3 {}
// SAFETY: three integers of 4 bytes.
unsafe impl Plain for StatsV3 {}
// SAFETY: integers that fill 16 bytes.
unsafe impl Plain for libc::packet_mreq {}

/// `struct tpacket_stats_v3` (linux/if_packet.h).
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct StatsV3 {
    pub packets: u32,
    pub drops: u32,
    pub freezes: u32,
}

/// Opens a raw packet socket that receives nothing until it is bound.
pub(crate) fn open_socket() -> io::Result<OwnedFd> {
    // SAFETY: no pointers are passed; the result is checked.
    let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sets an option of a socket.
pub(crate) fn set_option<T: Plain>(
    socket: &OwnedFd,
    level: i32,
    option: i32,
    value: &T,
) -> io::Result<()> {
    // SAFETY: the kernel reads size_of::<T>() bytes, all of them initialized since T is Plain.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    check(result)
}

/// Reads an option of a socket. What the kernel leaves unwritten stays as in `value`.
pub(crate) fn get_option<T: Plain>(
    socket: &OwnedFd,
    level: i32,
    option: i32,
    mut value: T,
) -> io::Result<T> {
    let mut length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes, and any bytes are a valid T.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            level,
            option,
            ptr::from_mut(&mut value).cast(),
            &mut length,
        )
    };
    check(result)?;
    Ok(value)
}

/// Attaches a classic BPF program, in place of the one before.
pub(crate) fn attach_filter(socket: &impl AsFd, program: &[BpfInstruction]) -> io::Result<()> {
    let mut instructions: Vec<libc::sock_filter> = program
        .iter()
        .map(|i| libc::sock_filter {
            code: i.code,
            jt: i.jt,
            jf: i.jf,
            k: i.k,
        })
        .collect();
    let length = u16::try_from(instructions.len())
        .map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    let program = libc::sock_fprog {
        len: length,
        filter: instructions.as_mut_ptr(),
    };
    // SAFETY: the kernel reads the program and, through its pointer, `len` instructions; both
    // live until the call returns and the kernel keeps copies only.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            ptr::from_ref(&program).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    };
    check(result)
}

/// Binds to one interface and a protocol (ETH_P_…), whose packets it receives from then on; 0: none.
pub(crate) fn bind(socket: &OwnedFd, ifindex: i32, protocol: u16) -> io::Result<()> {
    let mut address = empty_address();
    address.sll_protocol = protocol.to_be();
    address.sll_ifindex = ifindex;
    // SAFETY: the kernel reads one initialized sockaddr_ll of the given length.
    let result = unsafe {
        libc::bind(
            socket.as_raw_fd(),
            ptr::from_ref(&address).cast(),
            size_of::<libc::sockaddr_ll>() as libc::socklen_t,
        )
    };
    check(result)
}

/// Sends a packet on an interface, as one of a protocol (ETH_P_…).
pub(crate) fn send_as(
    socket: &OwnedFd,
    ifindex: i32,
    protocol: u16,
    packet: &[u8],
) -> io::Result<()> {
    let mut address = empty_address();
    address.sll_protocol = protocol.to_be();
    address.sll_ifindex = ifindex;
    // SAFETY: the kernel reads `packet.len()` bytes there, and one initialized sockaddr_ll of the given length.
    let result = unsafe {
        libc::sendto(
            socket.as_raw_fd(),
            packet.as_ptr().cast(),
            packet.len(),
            libc::MSG_NOSIGNAL,
            ptr::from_ref(&address).cast(),
            size_of::<libc::sockaddr_ll>() as libc::socklen_t,
        )
    };
    usize::try_from(result).map_err(|_| io::Error::last_os_error())?;
    Ok(())
}

/// Index of the interface that the socket is bound to; -1 once that was removed.
pub(crate) fn bound_ifindex(socket: &OwnedFd) -> io::Result<i32> {
    let mut address = empty_address();
    let mut length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes, and any bytes are a valid sockaddr_ll.
    let result = unsafe {
        libc::getsockname(
            socket.as_raw_fd(),
            ptr::from_mut(&mut address).cast(),
            &mut length,
        )
    };
    check(result)?;
    Ok(address.sll_ifindex)
}

/// The next packet without waiting: its bytes, as many as fit, and where it came from. Also returns its whole length.
pub(crate) fn receive(
    socket: &OwnedFd,
    buffer: &mut [u8],
) -> io::Result<(usize, libc::sockaddr_ll)> {
    let mut address = empty_address();
    let mut length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `buffer.len()` bytes there and at most `length` bytes to the address; any bytes
    // are a valid sockaddr_ll.
    let result = unsafe {
        libc::recvfrom(
            socket.as_raw_fd(),
            buffer.as_mut_ptr().cast(),
            buffer.len(),
            libc::MSG_DONTWAIT | libc::MSG_TRUNC,
            ptr::from_mut(&mut address).cast(),
            &mut length,
        )
    };
    let received = usize::try_from(result).map_err(|_| io::Error::last_os_error())?;
    Ok((received, address))
}

fn empty_address() -> libc::sockaddr_ll {
    libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: 0,
        sll_ifindex: 0,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    }
}

fn check(result: i32) -> io::Result<()> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Whether a block belongs to the kernel or to us (`hdr.bh1.block_status`).
const STATUS: usize = std::mem::offset_of!(libc::tpacket_block_desc, hdr)
    + std::mem::offset_of!(libc::tpacket_hdr_v1, block_status);

/// A receive ring's memory, shared with the kernel: blocks of equal size, each belonging either
/// to the kernel, which fills it, or to us.
#[derive(Debug)]
pub(crate) struct RingMemory {
    base: NonNull<u8>,
    blocks: usize,
    block_bytes: usize,
}

// SAFETY: the mapping belongs to this value alone and is as good on one thread as on another;
// what is shared with the kernel is guarded by the blocks' atomic status words.
unsafe impl Send for RingMemory {}

impl RingMemory {
    /// Maps the ring of a socket, for which PACKET_RX_RING has been set with the same sizes.
    /// `block_bytes` is a multiple of the page size.
    pub(crate) fn map(socket: &OwnedFd, blocks: usize, block_bytes: usize) -> io::Result<Self> {
        // SAFETY: a new mapping at an address of the kernel's choice; the result is checked.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                blocks * block_bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                socket.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or(io::Error::from(io::ErrorKind::InvalidData))?;
        Ok(Self {
            base,
            blocks,
            block_bytes,
        })
    }

    /// Number of blocks.
    pub(crate) fn blocks(&self) -> usize {
        self.blocks
    }

    /// The status word of a block.
    fn status(&self, block: usize) -> &AtomicU32 {
        assert!(block < self.blocks);
        // SAFETY: within the mapping, as just checked (a block is far larger than its header);
        // aligned, for blocks are aligned to pages and the word to 4 bytes; all accesses of ours
        // are atomic. The kernel accesses it likewise, with barriers of its own.
        unsafe {
            AtomicU32::from_ptr(
                self.base
                    .as_ptr()
                    .add(block * self.block_bytes + STATUS)
                    .cast(),
            )
        }
    }

    /// Whether the block is ours to read.
    pub(crate) fn is_ours(&self, block: usize) -> bool {
        self.status(block).load(Ordering::Acquire) & libc::TP_STATUS_USER != 0
    }

    /// The bytes of a block after its status word has been seen to say that it is ours; `None`
    /// when it does not. The status word itself is not among what may be relied on.
    pub(crate) fn bytes(&self, block: usize) -> Option<&[u8]> {
        if !self.is_ours(block) {
            return None;
        }
        // SAFETY: within the mapping, as status() has checked. The kernel does not write to a
        // block of ours, and it stays ours while the borrow lasts: giving it back needs
        // `&mut self`. The bytes are initialized: the kernel zeroes the ring's pages.
        Some(unsafe {
            std::slice::from_raw_parts(
                self.base.as_ptr().add(block * self.block_bytes),
                self.block_bytes,
            )
        })
    }

    /// Gives a block back to the kernel.
    pub(crate) fn give_back(&mut self, block: usize) {
        // Release: our reads of the block are done before the kernel sees it.
        self.status(block)
            .store(libc::TP_STATUS_KERNEL, Ordering::Release);
    }
}

impl Drop for RingMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping made by `map`, which nobody borrows any more. Its failure would
        // leave the mapping to the end of the process; there is nothing better to do.
        unsafe {
            libc::munmap(self.base.as_ptr().cast(), self.blocks * self.block_bytes);
        }
    }
}
