//! Memory that only the start of a process needed.

use std::{ffi::c_int, io};

/// Releases memory that only the start needed: the heap's free pages, and mapped pages of code and
/// constants of this program and its libraries.
///
/// The latter only unmaps file pages: they stay in the page cache, where the kernel may reclaim them when
/// memory is short, and code that is still used is mapped again on access (a minor fault for each 64 KiB).
/// Pages that were written to, relocations among them, stay. So afterwards the resident memory is that of
/// the running code.
pub fn release_start_memory() {
    release_free_memory();
    // SAFETY: the callback keeps to the protocol, and nothing is passed to it.
    unsafe {
        libc::dl_iterate_phdr(Some(unmap_clean), std::ptr::null_mut());
    }
}

/// Releases the heap's free pages, which the allocator may keep after large work.
pub fn release_free_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: no memory of ours is passed; the allocator gives back pages of which nobody has anything.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Unmaps the segments of one object that are never written to. The loader's lock is held meanwhile, so that no
/// object can go.
unsafe extern "C" fn unmap_clean(
    object: *mut libc::dl_phdr_info,
    _: libc::size_t,
    _: *mut libc::c_void,
) -> c_int {
    // SAFETY: the loader passes a valid description of an object that is loaded.
    let object = unsafe { &*object };
    if object.dlpi_phdr.is_null() {
        return 0;
    }
    // SAFETY: there are as many headers as it says, and they stay as long as the object.
    let headers = unsafe { std::slice::from_raw_parts(object.dlpi_phdr, object.dlpi_phnum.into()) };
    let page = rustix::param::page_size() as u64;
    // The kernel's own object has no file; only its name in the dynamic loader's list identifies it.
    if is_vdso(object) {
        return 0;
    }
    for header in headers {
        if header.p_type != libc::PT_LOAD || header.p_flags & libc::PF_W != 0 {
            continue;
        }
        let begin = object.dlpi_addr + header.p_vaddr;
        // The page of its end may contain the start of the next segment, which may be written to.
        let end = (begin + header.p_memsz) / page * page;
        let begin = begin.next_multiple_of(page);
        if begin < end {
            unmap(begin as usize, (end - begin) as usize);
        }
    }
    0
}

fn is_vdso(object: &libc::dl_phdr_info) -> bool {
    if object.dlpi_name.is_null() {
        return false;
    }
    // SAFETY: a name that is there ends with a zero.
    let name = unsafe { std::ffi::CStr::from_ptr(object.dlpi_name) };
    name.to_bytes().starts_with(b"linux-vdso")
}

fn unmap(begin: usize, length: usize) {
    // SAFETY: whole pages of a private mapping of a file that is loaded and that nobody writes to (a segment
    // without PF_W, and the kernel forbids writes to a file that runs): whoever reads them next gets the same
    // bytes from the file.
    let done = unsafe { libc::madvise(begin as *mut _, length, libc::MADV_DONTNEED) };
    if done != 0 {
        tracing::debug!(error = %io::Error::last_os_error(), "memory of the start stays mapped");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hint::black_box;

    /// Constants of several pages, which the file has.
    static CONSTANTS: [u64; 4_096] = {
        let mut numbers = [0; 4_096];
        let mut at = 0;
        while at < numbers.len() {
            numbers[at] = (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            at += 1;
        }
        numbers
    };
    /// Needs relocations in a position-independent program.
    static POINTERS: [&str; 3] = ["alpha", "beta", "gamma"];

    fn resident_of_files() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|l| l.starts_with("RssFile:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    fn sum() -> u64 {
        let sum = |sum: u64, n: &u64| sum.rotate_left(7) ^ n;
        black_box(&CONSTANTS).iter().fold(0, sum)
    }

    #[test]
    fn what_is_unmapped_comes_back_as_it_was() {
        let before = sum();
        let resident = resident_of_files();
        release_start_memory();
        let after = resident_of_files();
        assert!(after < resident, "{after} kB of files, {resident} before");
        assert_eq!(sum(), before);
        assert_eq!(black_box(&POINTERS).concat(), "alphabetagamma");
        assert_eq!(format!("{:?}", vec![1.5, 2.5]), "[1.5, 2.5]");
    }
}
