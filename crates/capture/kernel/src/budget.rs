//! How many programs this process has in the kernel at a time.
//!
//! A program is freed by a work item of the kernel's `events` queue, which runs at most 1,024 items
//! together. Each of these may wait for a mutex whose owner waits for another item of the same queue: when
//! more than 1,024 programs end together, as they do when a process is killed, all users of the queue block
//! for ever (seen on 6.18; docs/kernels.md). So a process never has nearly as many programs, however much
//! it watches.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::KernelError;

/// Programs that a process may have loaded.
pub const MOST_PROGRAMS: u32 = 600;

/// Of these, the programs of flow tables for further network namespaces: the rest is for sockets, taps and
/// steering.
pub const MOST_NAMESPACE_PROGRAMS: u32 = 480;

static LOADED: AtomicU32 = AtomicU32::new(0);
static OF_NAMESPACES: AtomicU32 = AtomicU32::new(0);

/// Programs that this process has loaded now.
pub fn loaded_programs() -> u32 {
    LOADED.load(Relaxed)
}

/// Whether the programs of a further network namespace can be loaded.
pub fn has_room_for_namespaces() -> bool {
    // Both directions of one kind of link, each with a filter and what it leaves out.
    const ONE: u32 = 6;
    LOADED.load(Relaxed) + ONE <= MOST_PROGRAMS
        && OF_NAMESPACES.load(Relaxed) + ONE <= MOST_NAMESPACE_PROGRAMS
}

/// What a program is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// The flow table in a further network namespace.
    Namespace,
    /// All else.
    Any,
}

/// The right to have some programs loaded; given back when dropped, which must be after the programs.
#[derive(Debug)]
pub(crate) struct Lease {
    programs: u32,
    purpose: Purpose,
}

impl Lease {
    /// # Errors
    ///
    /// When there would be too many.
    pub(crate) fn acquire(programs: u32, purpose: Purpose) -> Result<Self, KernelError> {
        let add = |counter: &AtomicU32, most: u32| {
            counter
                .fetch_update(Relaxed, Relaxed, |now| {
                    now.checked_add(programs).filter(|sum| *sum <= most)
                })
                .map_err(|loaded| KernelError::TooManyPrograms {
                    requested: programs,
                    loaded,
                    most,
                })
        };
        if purpose == Purpose::Namespace {
            add(&OF_NAMESPACES, MOST_NAMESPACE_PROGRAMS)?;
        }
        if let Err(error) = add(&LOADED, MOST_PROGRAMS) {
            if purpose == Purpose::Namespace {
                OF_NAMESPACES.fetch_sub(programs, Relaxed);
            }
            return Err(error);
        }
        Ok(Self { programs, purpose })
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.purpose == Purpose::Namespace {
            OF_NAMESPACES.fetch_sub(self.programs, Relaxed);
        }
        LOADED.fetch_sub(self.programs, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_leave_programs_for_taps_and_what_is_given_back_can_be_taken_again() {
        let mut leases = Vec::new();
        while let Ok(lease) = Lease::acquire(8, Purpose::Namespace) {
            leases.push(lease);
        }
        assert_eq!(leases.len(), MOST_NAMESPACE_PROGRAMS as usize / 8);
        let error = Lease::acquire(8, Purpose::Namespace).unwrap_err();
        assert!(error.to_string().contains("480"), "{error}");
        let tap = Lease::acquire(4, Purpose::Any);
        assert!(tap.is_ok());
        leases.pop();
        assert!(Lease::acquire(8, Purpose::Namespace).is_ok());
    }
}
