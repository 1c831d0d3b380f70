//! Priority of this process's disk accesses (ioprio_set(2)).

use std::io;

/// When accesses are served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IoPriority {
    /// Best effort, of a level from 0 (first) to 7.
    BestEffort(u8),
    /// Only while the disk is idle.
    Idle,
}

/// linux/ioprio.h
const IOPRIO_WHO_PROCESS: libc::c_int = 1;
const IOPRIO_CLASS_SHIFT: libc::c_int = 13;
const IOPRIO_CLASS_BE: libc::c_int = 2;
const IOPRIO_CLASS_IDLE: libc::c_int = 3;

/// Sets it for the calling thread and those that it starts from then on.
///
/// # Errors
///
/// The kernel's.
pub fn set_io_priority(priority: IoPriority) -> io::Result<()> {
    let value = match priority {
        IoPriority::BestEffort(level) => {
            IOPRIO_CLASS_BE << IOPRIO_CLASS_SHIFT | libc::c_int::from(level.min(7))
        }
        IoPriority::Idle => IOPRIO_CLASS_IDLE << IOPRIO_CLASS_SHIFT,
    };
    const OWN: libc::c_int = 0;
    // SAFETY: three integers, no memory.
    let done = unsafe { libc::syscall(libc::SYS_ioprio_set, IOPRIO_WHO_PROCESS, OWN, value) };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_takes_it_for_this_thread() {
        std::thread::spawn(|| {
            set_io_priority(IoPriority::BestEffort(6)).unwrap();
            // SAFETY: two integers, no memory.
            let now = unsafe { libc::syscall(libc::SYS_ioprio_get, IOPRIO_WHO_PROCESS, 0) };
            assert_eq!(now, 2 << 13 | 6);
        })
        .join()
        .unwrap();
    }
}
