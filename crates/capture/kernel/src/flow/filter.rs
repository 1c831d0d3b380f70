//! A pcap expression before the flow program: a generated program that tail-calls it.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use skua_filter::{Context, Epilogue, Filter, LinkType, translate};

use super::{LinkKind, Rung};
use crate::{
    KernelError,
    budget::{Lease, Purpose},
};

/// Slots of the program array that a filter program tail-calls.
const MATCHED: u32 = 0;
const LEFT_OUT: u32 = 1;

/// An expression compiled for each kind of link.
pub(super) struct FilterSet {
    ethernet: Filter,
    /// Some expressions (`ether host …`) mean nothing without an Ethernet header.
    ip: Result<Filter, skua_filter::FilterError>,
}

impl FilterSet {
    /// None for an empty expression.
    pub(super) fn compile(expression: &str) -> Result<Option<Self>, KernelError> {
        if expression.trim().is_empty() {
            return Ok(None);
        }
        Ok(Some(Self {
            ethernet: Filter::compile(expression, LinkType::Ethernet)?,
            ip: Filter::compile(expression, LinkType::RawIp),
        }))
    }

    pub(super) fn of(&self, link: LinkKind) -> Result<&Filter, KernelError> {
        match link {
            LinkKind::Ethernet => Ok(&self.ethernet),
            LinkKind::Ip => self.ip.as_ref().map_err(|error| error.clone().into()),
        }
    }
}

/// The filter that all packets match.
pub(super) fn everything(link: LinkKind) -> Result<Filter, KernelError> {
    let link = match link {
        LinkKind::Ethernet => LinkType::Ethernet,
        LinkKind::Ip => LinkType::RawIp,
    };
    Ok(Filter::compile("", link)?)
}

/// The program to attach in place of the flow program.
pub(crate) struct FilterProgram {
    // Dropped before the lease.
    program: OwnedFd,
    /// Keeps the programs alive that it tail-calls.
    array: OwnedFd,
    _lease: Lease,
}

impl FilterProgram {
    /// Generates and loads it. `flow` counts what matches, `left` what does not.
    pub(super) fn load(
        filter: &Filter,
        rung: Rung,
        flow: BorrowedFd<'_>,
        left: BorrowedFd<'_>,
        purpose: Purpose,
    ) -> Result<Self, KernelError> {
        let lease = Lease::acquire(1, purpose)?;
        let array = program_array(2)?;
        join(&array, MATCHED, flow)?;
        join(&array, LEFT_OUT, left)?;
        // Neither call can miss: both places are filled before the program runs.
        let go_on = |place| {
            Epilogue::tail_call(array.as_raw_fd(), place, rung.verdict(), rung.verdict()).accept
        };
        let epilogue = Epilogue {
            accept: go_on(MATCHED),
            reject: go_on(LEFT_OUT),
        };
        Self::of(filter, rung, &epilogue, array, lease)
    }

    /// A program that tail-calls `matched`; other packets pass unchanged, and uncounted.
    pub(crate) fn before(
        filter: &Filter,
        rung: Rung,
        matched: BorrowedFd<'_>,
        purpose: Purpose,
    ) -> Result<Self, KernelError> {
        let lease = Lease::acquire(1, purpose)?;
        let array = program_array(2)?;
        join(&array, MATCHED, matched)?;
        let verdict = rung.verdict();
        let epilogue = Epilogue::tail_call(array.as_raw_fd(), MATCHED, verdict, verdict);
        Self::of(filter, rung, &epilogue, array, lease)
    }

    fn of(
        filter: &Filter,
        rung: Rung,
        epilogue: &Epilogue,
        array: OwnedFd,
        lease: Lease,
    ) -> Result<Self, KernelError> {
        let context = match rung {
            Rung::TcSwap | Rung::TcLock => Context::Tc,
            Rung::Socket => Context::Skb,
            Rung::Xdp => Context::Xdp,
        };
        let code: Vec<[u8; 8]> = translate(filter, context, epilogue)?
            .into_iter()
            .map(skua_filter::Insn::encode)
            .collect();
        Ok(Self {
            program: load_program(rung, &code)?,
            array,
            _lease: lease,
        })
    }

    /// Pins the array of the tail-called programs: without the pin the kernel drops them with the last
    /// process that has the array open, although the program itself is still attached.
    pub(crate) fn pin(&self, path: &std::path::Path) -> std::io::Result<()> {
        crate::attach::pin(self.array.as_fd(), path)
    }
}

/// Whether a socket's filter may be as long as the program is. The kernel charges the socket for what is attached to it,
/// up to `net.core.optmem_max` (20 KiB by default before Linux 6.7), and not for what that tail-calls.
pub(super) fn fits_socket(program: BorrowedFd<'_>) -> std::io::Result<bool> {
    /// `struct bpf_prog` without instructions, rounded up.
    const HEADER: usize = 256;
    /// The default for long, for where /proc/sys does not say it.
    const OPTMEM_MAX: usize = 20_480;
    let most = std::fs::read_to_string("/proc/sys/net/core/optmem_max")
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(OPTMEM_MAX);
    Ok(HEADER + crate::attach::program_size(program)? < most)
}

impl AsFd for FilterProgram {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.program.as_fd()
    }
}

/// Puts a program into a place of the array.
pub(super) fn join(
    array: &OwnedFd,
    place: u32,
    program: BorrowedFd<'_>,
) -> Result<(), KernelError> {
    let program = program.as_raw_fd();
    // SAFETY: key and value are 4 bytes each, as the map was created with.
    let result = unsafe {
        libbpf_sys::bpf_map_update_elem(
            array.as_raw_fd(),
            (&raw const place).cast(),
            (&raw const program).cast(),
            0,
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(KernelError::last(
            "cannot join the filter with the program behind it",
        )),
    }
}

pub(super) fn program_array(places: u32) -> Result<OwnedFd, KernelError> {
    // SAFETY: the name is NUL-terminated; no options.
    let fd = unsafe {
        libbpf_sys::bpf_map_create(
            libbpf_sys::BPF_MAP_TYPE_PROG_ARRAY,
            c"skua_filter".as_ptr(),
            4,
            4,
            places,
            std::ptr::null(),
        )
    };
    if fd < 0 {
        return Err(KernelError::last(
            "cannot create the array of programs behind the filter",
        ));
    }
    // SAFETY: a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

pub(super) fn load_program(rung: Rung, code: &[[u8; 8]]) -> Result<OwnedFd, KernelError> {
    let mut log = vec![0u8; 65_536];
    let mut options = libbpf_sys::bpf_prog_load_opts {
        sz: size_of::<libbpf_sys::bpf_prog_load_opts>() as _,
        log_buf: log.as_mut_ptr().cast(),
        log_size: log.len() as u32,
        // That of the tail-called programs: since 6.18 both must be the same.
        expected_attach_type: match rung {
            Rung::Xdp => libbpf_sys::BPF_XDP,
            _ => 0,
        },
        ..Default::default()
    };
    // SAFETY: code is whole instructions of 8 bytes, which bpf_insn is; all pointers outlive the call.
    let fd = unsafe {
        libbpf_sys::bpf_prog_load(
            rung.program_type(),
            c"skua_filter".as_ptr(),
            c"Dual BSD/GPL".as_ptr(),
            code.as_ptr().cast(),
            code.len() as _,
            &mut options,
        )
    };
    if fd < 0 {
        let error = std::io::Error::from_raw_os_error(-fd);
        let end = log.iter().position(|b| *b == 0).unwrap_or(log.len());
        let text = String::from_utf8_lossy(&log[..end]);
        let line = text
            .lines()
            .rev()
            .find(|l| !l.starts_with("processed "))
            .unwrap_or("");
        return Err(KernelError::Load {
            object: "filter",
            reason: format!("{error} (verifier: {line})"),
        });
    }
    // SAFETY: a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
