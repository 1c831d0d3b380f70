//! Who is at the other end of a socket of this host.

use std::{
    io,
    os::fd::{AsRawFd as _, BorrowedFd},
};

/// The supplementary groups that the other end had when it connected (SO_PEERGROUPS, Linux 4.13).
///
/// # Errors
///
/// The kernel's.
pub fn groups(socket: BorrowedFd<'_>) -> io::Result<Vec<u32>> {
    let mut groups: Vec<libc::gid_t> = vec![0; 32];
    loop {
        let room = groups.len() * size_of::<libc::gid_t>();
        let mut bytes = libc::socklen_t::try_from(room).map_err(io::Error::other)?;
        // SAFETY: the kernel writes at most `bytes` bytes there, which are numbers, and how many it
        // wrote, or would have, into `bytes`; both live until it returns.
        let done = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &raw mut bytes,
            )
        };
        let number = bytes as usize / size_of::<libc::gid_t>();
        if done == 0 {
            groups.truncate(number);
            return Ok(groups);
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::ERANGE) || number <= groups.len() {
            return Err(error);
        }
        groups.resize(number, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::{fd::AsFd as _, unix::net::UnixStream};

    #[test]
    fn groups_of_the_other_end_are_ours() {
        let (one, _other) = UnixStream::pair().unwrap();
        // SAFETY: asked for no groups, the kernel says how many there are.
        let count = unsafe { libc::getgroups(0, std::ptr::null_mut()) };
        assert_eq!(groups(one.as_fd()).unwrap().len(), count as usize);
    }
}
