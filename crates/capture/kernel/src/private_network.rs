//! A network namespace of a thread's own, in which to talk to ourselves.

use crate::KernelError;

/// Puts the calling thread into a new network namespace with loopback up. The thread should end
/// soon: it cannot go back.
pub(crate) fn enter() -> Result<(), KernelError> {
    // SAFETY: changes only this thread.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } < 0 {
        return Err(KernelError::last(
            "cannot make a network namespace (CAP_SYS_ADMIN)",
        ));
    }
    set_up_loopback()
}

fn set_up_loopback() -> Result<(), KernelError> {
    let failed = || KernelError::last("cannot set up loopback");
    // SAFETY: no pointers; the result is checked.
    let socket = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    if socket < 0 {
        return Err(failed());
    }
    // SAFETY: an all-zero ifreq is valid; the name is shorter than its field.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name[0] = b'l' as libc::c_char;
    request.ifr_name[1] = b'o' as libc::c_char;
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as i16;
    // SAFETY: SIOCSIFFLAGS reads an ifreq; the descriptor is ours and closed just after.
    let set = unsafe { libc::ioctl(socket, libc::SIOCSIFFLAGS as _, &request) };
    let error = failed();
    // SAFETY: the descriptor is ours and not used again.
    unsafe { libc::close(socket) };
    if set < 0 { Err(error) } else { Ok(()) }
}
