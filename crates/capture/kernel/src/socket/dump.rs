//! Snapshots of open sockets on kernels without iterators: the kernel dumps its sockets (sock_diag(7)), and
//! a program sees each of them pass, in the requesting thread. The dump itself is discarded.

use std::{collections::HashMap, os::fd::OwnedFd};

use libbpf_rs::{MapCore as _, MapFlags};
use rustix::net::{AddressFamily, RecvFlags, SendFlags};
use skua_socket::Protocol;

use super::{
    layout::{DumpControl, Plain as _, RawDumped, RawRecord, RawTask},
    namespaces,
    object::Attached,
    owners,
};
use crate::KernelError;

/// Longest part of a dump, so that it has no more sockets than the map `looks` holds.
const PART_BYTES: usize = 16 << 10;
/// As `OWNED_AT_ONCE` in `bpf/socket/hash.bpf.c`.
const OWNED_AT_ONCE: usize = 16;

// include/uapi/linux/netlink.h, sock_diag.h.
const HEADER_BYTES: usize = 16;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const REQUEST_AND_DUMP: u16 = 0x301;
const REQUEST_BYTES: usize = HEADER_BYTES + 56;
/// All states but TIME-WAIT and those of sockets that are no full ones.
const STATES: u32 = 0xfff & !(1 << 6);

fn failed(source: std::io::Error) -> KernelError {
    KernelError::System {
        what: "cannot list open sockets",
        source,
    }
}

fn map_failed(error: libbpf_rs::Error) -> KernelError {
    failed(std::io::Error::other(error))
}

/// A snapshot of the sockets of all network namespaces that can be reached.
#[derive(Default)]
pub(super) struct Dump {
    part: Vec<u8>,
    dumped: Vec<RawDumped>,
}

impl Dump {
    /// Takes a snapshot.
    pub(super) fn run(
        &mut self,
        main: &Attached,
        sink: &mut dyn FnMut(&RawRecord),
    ) -> Result<(), KernelError> {
        self.dumped.clear();
        self.part.resize(PART_BYTES, 0);
        let watch = Watch::begin(main)?;
        let mut first_error = None;
        for namespace in namespaces::all() {
            let result = namespaces::diagnosis(&namespace).and_then(|socket| {
                for protocol in [Protocol::Tcp, Protocol::Udp] {
                    for family in [AddressFamily::INET, AddressFamily::INET6] {
                        self.dump(&watch, &socket, family, protocol)?;
                    }
                }
                Ok(())
            });
            // A namespace may go meanwhile; the others are no worse for that.
            if let Err(error) = result {
                tracing::debug!(%error, "cannot list the sockets of a namespace");
                first_error.get_or_insert(error);
            }
        }
        self.find_owners(&watch)?;
        drop(watch);
        for socket in &self.dumped {
            sink(&socket.record);
        }
        match first_error {
            Some(error) if self.dumped.is_empty() => Err(error),
            _ => Ok(()),
        }
    }

    fn dump(
        &mut self,
        watch: &Watch<'_>,
        socket: &OwnedFd,
        family: AddressFamily,
        protocol: Protocol,
    ) -> Result<(), KernelError> {
        rustix::net::send(socket, &request(family, protocol), SendFlags::empty())
            .map_err(|e| failed(e.into()))?;
        loop {
            // The kernel fills the first part with the request, each other when the previous one was read.
            watch.drain(&mut self.dumped)?;
            let (_, length) = rustix::net::recv(socket, &mut self.part[..], RecvFlags::empty())
                .map_err(|e| failed(e.into()))?;
            watch.drain(&mut self.dumped)?;
            if ends(self.part.get(..length).unwrap_or_default()).map_err(failed)? {
                return Ok(());
            }
        }
    }

    /// Finds the owners of sockets without a better rule in the file tables.
    fn find_owners(&mut self, watch: &Watch<'_>) -> Result<(), KernelError> {
        let mut by_inode: HashMap<u64, Vec<usize>> = HashMap::new();
        for (place, socket) in self.dumped.iter().enumerate() {
            if socket.inode != 0 && socket.record.wants_file() {
                by_inode.entry(socket.inode).or_default().push(place);
            }
        }
        if by_inode.is_empty() {
            return Ok(());
        }
        let mut by_process: HashMap<u32, Vec<usize>> = HashMap::new();
        for (inode, pid) in owners::by_inode(&by_inode) {
            let places = by_inode.remove(&inode).unwrap_or_default();
            by_process.entry(pid).or_default().extend(places);
        }
        for (pid, places) in by_process {
            for places in places.chunks(OWNED_AT_ONCE) {
                let sockets = places.iter().map(|p| self.dumped[*p].sk);
                let Some(task) = watch.give(pid, sockets)? else {
                    break;
                };
                for place in places {
                    self.dumped[*place].record.owned_by_file(&task);
                }
            }
        }
        Ok(())
    }
}

/// While it lives, the programs record the sockets that this thread dumps.
struct Watch<'a> {
    control: libbpf_rs::Map<'a>,
    dumped: libbpf_rs::Map<'a>,
    owned: libbpf_rs::Map<'a>,
    owner: libbpf_rs::Map<'a>,
    thread: u32,
}

const ONLY: [u8; 4] = [0; 4];

impl<'a> Watch<'a> {
    fn begin(main: &'a Attached) -> Result<Self, KernelError> {
        let watch = Self {
            control: main.map("look_control")?,
            dumped: main.map("looks")?,
            owned: main.map("owned")?,
            owner: main.map("owner_task")?,
            thread: rustix::thread::gettid().as_raw_nonzero().get() as u32,
        };
        watch.set(0)?;
        Ok(watch)
    }

    /// Clears the records; `owned` sockets get an owner next.
    fn set(&self, owned: u32) -> Result<(), KernelError> {
        let control = DumpControl {
            thread: self.thread,
            owned,
            ..DumpControl::default()
        };
        self.control
            .update(&ONLY, control.bytes(), MapFlags::ANY)
            .map_err(map_failed)
    }

    /// Appends the recorded sockets to `to`.
    fn drain(&self, to: &mut Vec<RawDumped>) -> Result<(), KernelError> {
        let read = |map: &libbpf_rs::Map<'_>, key: u32| {
            map.lookup(&key.to_ne_bytes(), MapFlags::ANY)
                .map_err(map_failed)
        };
        let control = read(&self.control, 0)?.and_then(|b| DumpControl::read(&b));
        let count = control.map_or(0, |c| c.looked);
        for place in 0..count {
            to.extend(read(&self.dumped, place)?.and_then(|b| RawDumped::read(&b)));
        }
        if count > 0 {
            self.set(0)?;
        }
        Ok(())
    }

    /// Sets the owner of sockets to the process that has them open, unless it has ended.
    fn give(
        &self,
        pid: u32,
        sockets: impl Iterator<Item = u64>,
    ) -> Result<Option<RawTask>, KernelError> {
        let mut count = 0u32;
        for socket in sockets {
            self.owned
                .update(&count.to_ne_bytes(), &socket.to_ne_bytes(), MapFlags::ANY)
                .map_err(map_failed)?;
            count += 1;
        }
        self.owner
            .update(&ONLY, RawTask::default().bytes(), MapFlags::ANY)
            .map_err(map_failed)?;
        self.set(count)?;
        let ended = owners::read_stat(pid, &mut String::new()).is_err();
        self.set(0)?;
        let task = self
            .owner
            .lookup(&ONLY, MapFlags::ANY)
            .map_err(map_failed)?
            .and_then(|b| RawTask::read(&b));
        Ok(task.filter(|task| !ended && task.pid() != 0))
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        let _ = self
            .control
            .update(&ONLY, DumpControl::default().bytes(), MapFlags::ANY);
    }
}

/// `struct nlmsghdr` and `struct inet_diag_req_v2`.
fn request(family: AddressFamily, protocol: Protocol) -> [u8; REQUEST_BYTES] {
    let mut request = [0; REQUEST_BYTES];
    request[..4].copy_from_slice(&(REQUEST_BYTES as u32).to_ne_bytes());
    request[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    request[6..8].copy_from_slice(&REQUEST_AND_DUMP.to_ne_bytes());
    request[16] = family.as_raw() as u8;
    request[17] = protocol.number();
    request[20..24].copy_from_slice(&STATES.to_ne_bytes());
    request
}

/// Whether a part is the last.
fn ends(mut part: &[u8]) -> std::io::Result<bool> {
    while let Some(header) = part.first_chunk::<HEADER_BYTES>() {
        let [l0, l1, l2, l3, k0, k1, ..] = *header;
        let length = u32::from_ne_bytes([l0, l1, l2, l3]) as usize;
        match u16::from_ne_bytes([k0, k1]) {
            NLMSG_DONE => return Ok(true),
            NLMSG_ERROR => {
                let code = part
                    .get(HEADER_BYTES..)
                    .and_then(|b| b.first_chunk())
                    .map_or(0, |b| i32::from_ne_bytes(*b));
                return Err(std::io::Error::from_raw_os_error(-code));
            }
            _ => {}
        }
        if length < HEADER_BYTES {
            return Err(std::io::ErrorKind::InvalidData.into());
        }
        part = part.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u16, data: &[u8]) -> Vec<u8> {
        let mut message = ((HEADER_BYTES + data.len()) as u32).to_ne_bytes().to_vec();
        message.extend(kind.to_ne_bytes());
        message.resize(HEADER_BYTES, 0);
        message.extend(data);
        message
    }

    #[test]
    fn the_last_part_is_known() {
        let socket = message(SOCK_DIAG_BY_FAMILY, &[7; 72]);
        assert!(!ends(&socket).unwrap());
        assert!(ends(&[socket, message(NLMSG_DONE, &[0; 4])].concat()).unwrap());
        assert!(!ends(&[]).unwrap());
        // A truncated or invalid message does not loop forever.
        assert!(ends(&[0; 64]).is_err());
        let refused = ends(&message(NLMSG_ERROR, &(-libc::ENOENT).to_ne_bytes()));
        assert_eq!(refused.unwrap_err().raw_os_error(), Some(libc::ENOENT));
    }
}
