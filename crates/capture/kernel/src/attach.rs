//! Attaching traffic-control programs to an interface: a tcx link (6.6) or a clsact classifier.

use std::{
    ffi::CString,
    fs::File,
    io,
    os::{
        fd::{AsFd as _, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
        unix::ffi::OsStrExt as _,
    },
    path::Path,
};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::{
    KernelError,
    orphans::{self, Classifier},
};

/// Which way packets go, seen from the interface.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Direction {
    /// Received.
    Ingress,
    /// Sent.
    Egress,
}

/// How a program is attached to an interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HookKind {
    /// A tcx link: the kernel detaches it when the process ends.
    Tcx,
    /// A classifier on the clsact queueing discipline, direct action.
    Clsact,
    /// The filter of a packet socket; sees both directions.
    Socket,
    /// XDP in the driver; received frames only. Where the driver takes none, an attachment of this kind
    /// becomes [`XdpGeneric`](Self::XdpGeneric).
    Xdp,
    /// XDP outside of the driver: later, slower, and a packet joined from segments (GSO, GRO) is one.
    XdpGeneric,
}

impl HookKind {
    /// Name as users see it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcx => "tcx",
            Self::Clsact => "clsact",
            Self::Socket => "socket filter",
            Self::Xdp => "xdp",
            Self::XdpGeneric => "generic xdp",
        }
    }

    /// The directions to attach to, one after the other. On loopback each packet passes twice.
    pub fn directions(self, loopback: bool) -> &'static [Direction] {
        match self {
            Self::Tcx | Self::Clsact if !loopback => &[Direction::Ingress, Direction::Egress],
            _ => &[Direction::Ingress],
        }
    }
}

/// Priority of our classifiers, and the first of the handles that several of them use side by side. A
/// classifier that a killed run left under such a handle is replaced ([`orphans`] detaches it unless that
/// process was killed, too).
const CLSACT_PRIORITY: u32 = 0xc0de;
const CLSACT_HANDLE: u32 = 0x5c0a;
/// Handles that are tried before one is made of the program's number, which is unique.
const CLSACT_HANDLES: u32 = 16;

/// A program attached to one direction of one interface. Detaches when dropped, from any thread, and at once: closing what it
/// holds would not be enough while a child of this process has not yet executed its program.
#[derive(Debug)]
pub struct Attachment {
    hook: Hook,
}

#[derive(Debug)]
enum Hook {
    /// A tcx or XDP link.
    Link(HookKind, OwnedFd),
    Socket(OwnedFd),
    /// A classifier is detached only by a request in its namespace.
    Clsact {
        netns: File,
        classifier: Classifier,
        guarded: bool,
        #[allow(dead_code, reason = "held open")]
        claim: Option<OwnedFd>,
    },
}

impl Attachment {
    /// Attaches the program in the calling thread's network namespace.
    pub fn new(
        program: BorrowedFd<'_>,
        ifindex: u32,
        direction: Direction,
        kind: HookKind,
    ) -> Result<Self, KernelError> {
        Self::attach(program, ifindex, direction, kind, true)
    }

    /// As [`new`](Self::new) by tcx, behind the programs that are there: they see each packet first.
    pub fn last(
        program: BorrowedFd<'_>,
        ifindex: u32,
        direction: Direction,
    ) -> Result<Self, KernelError> {
        let kind = HookKind::Tcx;
        match tcx(program, ifindex, direction, libbpf_sys::BPF_F_AFTER) {
            Ok(fd) => Ok(Self {
                hook: Hook::Link(kind, fd),
            }),
            Err(source) => Err(KernelError::Attach {
                ifindex,
                hook: kind.name(),
                source,
            }),
        }
    }

    /// As [`new`](Self::new), in a namespace that ends with the calling thread: no cleanup is needed.
    pub(crate) fn in_passing_namespace(
        program: BorrowedFd<'_>,
        ifindex: u32,
        direction: Direction,
        kind: HookKind,
    ) -> Result<Self, KernelError> {
        Self::attach(program, ifindex, direction, kind, false)
    }

    fn attach(
        program: BorrowedFd<'_>,
        ifindex: u32,
        direction: Direction,
        kind: HookKind,
        guarded: bool,
    ) -> Result<Self, KernelError> {
        let hook = match kind {
            // First in the list: we see packets before other programs drop or redirect them.
            HookKind::Tcx => tcx(program, ifindex, direction, libbpf_sys::BPF_F_BEFORE)
                .map(|fd| Hook::Link(kind, fd)),
            HookKind::Xdp if guarded => {
                xdp(program, ifindex).map(|(kind, fd)| Hook::Link(kind, fd))
            }
            // Loopback of a namespace that ends soon: no driver there.
            HookKind::Xdp | HookKind::XdpGeneric => {
                xdp_in(program, ifindex, libbpf_sys::XDP_FLAGS_SKB_MODE)
                    .map(|fd| Hook::Link(HookKind::XdpGeneric, fd))
            }
            HookKind::Socket => socket(program, ifindex).map(Hook::Socket),
            HookKind::Clsact => clsact(program, ifindex, direction, guarded),
        };
        match hook {
            Ok(hook) => Ok(Self { hook }),
            Err(source) => Err(KernelError::Attach {
                ifindex,
                hook: kind.name(),
                source,
            }),
        }
    }

    /// Puts another program in the place of this one, at the same place among others and so that
    /// each packet meets the one or the other. Sockets and XDP stay as they are.
    ///
    /// # Errors
    /// The kernel refuses; then the program before stays.
    pub fn replace(&mut self, program: BorrowedFd<'_>) -> Result<(), KernelError> {
        let refused = |source| KernelError::System {
            what: "cannot replace a program on an interface",
            source,
        };
        match &mut self.hook {
            Hook::Link(HookKind::Tcx, link) => {
                // SAFETY: both are valid descriptors; no options.
                let result = unsafe {
                    libbpf_sys::bpf_link_update(
                        link.as_raw_fd(),
                        program.as_raw_fd(),
                        std::ptr::null(),
                    )
                };
                match result {
                    0 => Ok(()),
                    error => Err(refused(io::Error::from_raw_os_error(-error))),
                }
            }
            Hook::Clsact {
                netns,
                classifier,
                guarded,
                ..
            } => {
                let before = *classifier;
                let after = Classifier {
                    program: program_id(program).map_err(refused)?,
                    ..before
                };
                if *guarded {
                    orphans::attaching(netns, after);
                }
                let program = program.try_clone_to_owned().map_err(refused)?;
                let replaced = in_namespace(netns, || {
                    let point = hook_point(after.ifindex, after.direction);
                    let mut options = classifier_options(after.handle, Some(program.as_fd()));
                    // SAFETY: both structs are valid, with their sizes set, and outlive the call.
                    match unsafe { libbpf_sys::bpf_tc_attach(&point, &mut options) } {
                        0 => Ok(()),
                        error => Err(io::Error::from_raw_os_error(-error)),
                    }
                });
                let over = match replaced {
                    Ok(()) => before,
                    Err(_) => after,
                };
                if *guarded {
                    orphans::detached(netns, over);
                }
                replaced.map_err(refused)?;
                *classifier = after;
                Ok(())
            }
            Hook::Link(..) | Hook::Socket(_) => Err(refused(io::ErrorKind::Unsupported.into())),
        }
    }

    /// Keeps it attached when the process ends without having dropped it, until the path is removed, which
    /// is also required after a drop. tcx only: the others are detached with the process.
    pub(crate) fn pin(&self, path: &Path) -> io::Result<()> {
        match &self.hook {
            Hook::Link(HookKind::Tcx, link) => pin(link.as_fd(), path),
            _ => Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "only tcx links (6.6) outlive a process",
            )),
        }
    }

    /// Whether it is still attached to an interface: a link outlives its interface. True for other hooks,
    /// for which this is not known.
    pub fn is_there(&self) -> bool {
        let Hook::Link(HookKind::Tcx, link) = &self.hook else {
            return true;
        };
        let mut info = libbpf_sys::bpf_link_info::default();
        let mut size = size_of_val(&info) as u32;
        // SAFETY: link is open, and info is as long as size says.
        let result = unsafe {
            libbpf_sys::bpf_link_get_info_by_fd(link.as_raw_fd(), &raw mut info, &raw mut size)
        };
        // SAFETY: the kernel has filled in the member for the link's type, which is tcx.
        result < 0 || unsafe { info.__bindgen_anon_1.tcx.ifindex } != 0
    }

    /// The kind of hook.
    pub fn kind(&self) -> HookKind {
        match self.hook {
            Hook::Link(kind, _) => kind,
            Hook::Socket(_) => HookKind::Socket,
            Hook::Clsact { .. } => HookKind::Clsact,
        }
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        match &self.hook {
            Hook::Link(_, link) => {
                // SAFETY: the call takes a descriptor alone. That the interface was removed does not matter.
                unsafe { libbpf_sys::bpf_link_detach(link.as_raw_fd()) };
            }
            Hook::Socket(socket) => {
                let nothing = 0i32;
                // SAFETY: the value outlives the call, and its size is given. It is not looked at.
                unsafe {
                    libc::setsockopt(
                        socket.as_raw_fd(),
                        libc::SOL_SOCKET,
                        libc::SO_DETACH_BPF,
                        (&raw const nothing).cast(),
                        size_of_val(&nothing) as libc::socklen_t,
                    );
                }
            }
            Hook::Clsact {
                netns,
                classifier,
                guarded,
                ..
            } => {
                if let Err(error) = in_namespace(netns, || detach_clsact(*classifier)) {
                    // The interface was removed, and the classifier with it.
                    tracing::debug!(?classifier, %error, "was removed before it was detached");
                }
                if *guarded {
                    orphans::detached(netns, *classifier);
                }
            }
        }
    }
}

/// Runs `work` on a thread of its own inside a network namespace.
pub(crate) fn in_namespace(
    netns: &File,
    work: impl FnOnce() -> io::Result<()> + Send,
) -> io::Result<()> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().spawn_scoped(scope, || {
            // SAFETY: setns takes any descriptor and changes only this thread, which ends here.
            if unsafe { libc::setns(netns.as_raw_fd(), libc::CLONE_NEWNET) } < 0 {
                return Err(io::Error::last_os_error());
            }
            work()
        })?;
        thread
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("thread died")))
    })
}

/// `place`: before or behind those that are there.
fn tcx(
    program: BorrowedFd<'_>,
    ifindex: u32,
    direction: Direction,
    place: u32,
) -> io::Result<OwnedFd> {
    let attach_type = match direction {
        Direction::Ingress => libbpf_sys::BPF_TCX_INGRESS,
        Direction::Egress => libbpf_sys::BPF_TCX_EGRESS,
    };
    let options = libbpf_sys::bpf_link_create_opts {
        sz: size_of::<libbpf_sys::bpf_link_create_opts>() as _,
        flags: place,
        ..Default::default()
    };
    // SAFETY: program is a valid descriptor and options outlives the call.
    let fd = unsafe {
        libbpf_sys::bpf_link_create(program.as_raw_fd(), ifindex as i32, attach_type, &options)
    };
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// In the driver or, where it cannot, generic, which is said.
fn xdp(program: BorrowedFd<'_>, ifindex: u32) -> io::Result<(HookKind, OwnedFd)> {
    let refused = match xdp_in(program, ifindex, libbpf_sys::XDP_FLAGS_DRV_MODE) {
        Ok(fd) => return Ok((HookKind::Xdp, fd)),
        Err(refused) => refused,
    };
    let fd = match refused.kind() {
        io::ErrorKind::ResourceBusy => Err(refused),
        _ => xdp_in(program, ifindex, libbpf_sys::XDP_FLAGS_SKB_MODE).inspect(|_| {
            tracing::warn!(
                ifindex, %refused,
                "the driver takes no XDP program (an MTU that is too large for it is one reason): XDP is generic \
                 here, and a packet joined from segments (GSO, GRO) counts as one; --type ebpf counts its segments"
            );
        }),
    };
    fd.map(|fd| (HookKind::XdpGeneric, fd))
}

fn xdp_in(program: BorrowedFd<'_>, ifindex: u32, mode: u32) -> io::Result<OwnedFd> {
    let options = libbpf_sys::bpf_link_create_opts {
        sz: size_of::<libbpf_sys::bpf_link_create_opts>() as _,
        flags: mode,
        ..Default::default()
    };
    // SAFETY: program is a valid descriptor and options outlives the call.
    let fd = unsafe {
        libbpf_sys::bpf_link_create(
            program.as_raw_fd(),
            ifindex as i32,
            libbpf_sys::BPF_XDP,
            &options,
        )
    };
    if fd >= 0 {
        // SAFETY: a new descriptor that nobody else owns.
        return Ok(unsafe { OwnedFd::from_raw_fd(fd) });
    }
    Err(match -fd {
        // EEXIST: one is there in the other mode.
        libc::EBUSY | libc::EEXIST => io::Error::new(
            io::ErrorKind::ResourceBusy,
            format!(
                "the interface has an XDP program already{} and takes one only",
                name_of_xdp(ifindex).unwrap_or_default()
            ),
        ),
        error => io::Error::from_raw_os_error(error),
    })
}

/// Name and number of the XDP program on an interface of the calling thread's network namespace.
fn name_of_xdp(ifindex: u32) -> Option<String> {
    let mut options = libbpf_sys::bpf_xdp_query_opts {
        sz: size_of::<libbpf_sys::bpf_xdp_query_opts>() as _,
        ..Default::default()
    };
    // SAFETY: options is valid, with its size set, and outlives the call.
    let result = unsafe { libbpf_sys::bpf_xdp_query(ifindex as i32, 0, &mut options) };
    let numbers = [
        options.prog_id,
        options.drv_prog_id,
        options.skb_prog_id,
        options.hw_prog_id,
    ];
    let id = numbers.into_iter().find(|id| result == 0 && *id != 0)?;
    let info = crate::program_info(id).ok()?;
    Some(format!(" ({}, number {id})", info.name))
}

/// A packet socket whose filter is the program. It is bound last, so that no packet passes it unfiltered.
fn socket(program: BorrowedFd<'_>, ifindex: u32) -> io::Result<OwnedFd> {
    // SAFETY: no pointers; the result is checked.
    let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor that nobody else owns.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    let number = program.as_raw_fd();
    // SAFETY: the option's value is one int, and the length says so.
    let set = unsafe {
        libc::setsockopt(
            fd,
            libc::SOL_SOCKET,
            libc::SO_ATTACH_BPF,
            (&raw const number).cast(),
            size_of::<i32>() as u32,
        )
    };
    if set < 0 {
        return Err(io::Error::last_os_error());
    }
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: (libc::ETH_P_ALL as u16).to_be(),
        sll_ifindex: ifindex as i32,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    // SAFETY: address is a sockaddr_ll and the length is its size.
    let bound = unsafe {
        libc::bind(
            fd,
            (&raw const address).cast(),
            size_of::<libc::sockaddr_ll>() as u32,
        )
    };
    if bound < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(socket)
}

/// Gives something of the kernel's a name in the BPF file system, which keeps it.
pub(crate) fn pin(what: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: an open descriptor and a NUL-terminated path.
    match unsafe { libbpf_sys::bpf_obj_pin(what.as_raw_fd(), path.as_ptr()) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(-error)),
    }
}

fn hook_point(ifindex: u32, direction: Direction) -> libbpf_sys::bpf_tc_hook {
    libbpf_sys::bpf_tc_hook {
        sz: size_of::<libbpf_sys::bpf_tc_hook>() as _,
        ifindex: ifindex as i32,
        attach_point: match direction {
            Direction::Ingress => libbpf_sys::BPF_TC_INGRESS,
            Direction::Egress => libbpf_sys::BPF_TC_EGRESS,
        },
        ..Default::default()
    }
}

/// Claims a handle of our own in the calling thread's namespace. The owner of a handle holds an abstract
/// Unix address, which the kernel frees when the process ends: a classifier under a handle whose address is
/// free was left behind.
fn claim_handle(
    ifindex: u32,
    direction: Direction,
    program: u32,
) -> io::Result<(u32, Option<OwnedFd>)> {
    for number in 0..CLSACT_HANDLES {
        let name = format!("skua/clsact/{ifindex}/{}/{number}", direction as u8);
        let socket = rustix::net::socket_with(
            AddressFamily::UNIX,
            SocketType::DGRAM,
            SocketFlags::CLOEXEC,
            None,
        )?;
        let address = SocketAddrUnix::new_abstract_name(name.as_bytes())?;
        match rustix::net::bind(&socket, &address) {
            Ok(()) => return Ok((CLSACT_HANDLE + number, Some(socket))),
            Err(rustix::io::Errno::ADDRINUSE) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok((0x4000_0000 | program, None))
}

fn classifier_options(handle: u32, program: Option<BorrowedFd<'_>>) -> libbpf_sys::bpf_tc_opts {
    libbpf_sys::bpf_tc_opts {
        sz: size_of::<libbpf_sys::bpf_tc_opts>() as _,
        prog_fd: program.map_or(0, |p| p.as_raw_fd()),
        flags: if program.is_some() {
            libbpf_sys::BPF_TC_F_REPLACE
        } else {
            0
        },
        handle,
        priority: CLSACT_PRIORITY,
        ..Default::default()
    }
}

/// Identifier of a loaded program.
fn program_id(program: BorrowedFd<'_>) -> io::Result<u32> {
    Ok(program_info(program)?.id)
}

/// Length of a loaded program's instructions, in bytes.
pub(crate) fn program_size(program: BorrowedFd<'_>) -> io::Result<usize> {
    Ok(program_info(program)?.xlated_prog_len as usize)
}

fn program_info(program: BorrowedFd<'_>) -> io::Result<libbpf_sys::bpf_prog_info> {
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut size = size_of_val(&info) as u32;
    // SAFETY: info is as long as size says, and zero is a valid request for nothing further.
    let error = unsafe {
        libbpf_sys::bpf_prog_get_info_by_fd(program.as_raw_fd(), &raw mut info, &raw mut size)
    };
    match error {
        0 => Ok(info),
        error => Err(io::Error::from_raw_os_error(-error)),
    }
}

fn clsact(
    program: BorrowedFd<'_>,
    ifindex: u32,
    direction: Direction,
    guarded: bool,
) -> io::Result<Hook> {
    let netns = File::open("/proc/thread-self/ns/net")?;
    let mut point = hook_point(ifindex, direction);
    // SAFETY: point is a valid bpf_tc_hook with its size set.
    let created = unsafe { libbpf_sys::bpf_tc_hook_create(&mut point) };
    if created < 0 && -created != libc::EEXIST {
        return Err(io::Error::from_raw_os_error(-created));
    }
    let id = program_id(program)?;
    let (handle, claim) = claim_handle(ifindex, direction, id)?;
    let classifier = Classifier {
        ifindex,
        direction,
        handle,
        program: id,
    };
    if guarded {
        orphans::attaching(&netns, classifier);
    }
    // From here on its end is announced, also when it cannot be attached.
    let attachment = Hook::Clsact {
        netns,
        classifier,
        guarded,
        claim,
    };
    let mut options = classifier_options(handle, Some(program));
    // SAFETY: both structs are valid, with their sizes set, and outlive the call.
    match unsafe { libbpf_sys::bpf_tc_attach(&point, &mut options) } {
        0 => Ok(attachment),
        error => {
            drop(Attachment { hook: attachment });
            Err(io::Error::from_raw_os_error(-error))
        }
    }
}

/// Removes our classifier from the interface in the calling thread's namespace; leaves it when it
/// is another run's by now. The clsact queueing discipline stays: others may use it.
pub(crate) fn detach_clsact(classifier: Classifier) -> io::Result<()> {
    let point = hook_point(classifier.ifindex, classifier.direction);
    let mut found = classifier_options(classifier.handle, None);
    // SAFETY: both structs are valid, with their sizes set, and outlive the call.
    match unsafe { libbpf_sys::bpf_tc_query(&point, &mut found) } {
        0 if found.prog_id != classifier.program => return Ok(()),
        0 => {}
        error => return Err(io::Error::from_raw_os_error(-error)),
    }
    let options = classifier_options(classifier.handle, None);
    // SAFETY: both structs are valid, with their sizes set, and outlive the call.
    match unsafe { libbpf_sys::bpf_tc_detach(&point, &options) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(-error)),
    }
}
