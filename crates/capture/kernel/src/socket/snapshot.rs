//! Snapshots of open sockets, by the kernel's iterators or its dump.

use std::io::Read as _;

use libbpf_rs::{Iter, Link};

use super::{
    dump::Dump,
    layout::{Plain as _, RawRecord},
    object::Attached,
};
use crate::KernelError;

/// A read of an iterator gives at most 32 KiB (BPF_SEQ_FILE_BUFF of kernel/bpf/bpf_iter.c).
const READ_BYTES: usize = 64 << 10;

/// How a rung takes a snapshot of open sockets.
pub(super) enum Snapshot {
    /// By iterators: over the file tables, then over the sockets that are known.
    Iterators {
        files: Link,
        open: Link,
        buffer: IteratorBuffer,
    },
    /// By the kernel's own dump.
    Dump(Dump),
}

impl Snapshot {
    /// Records the open sockets and their owners in the kernel's map.
    pub(super) fn find(&mut self, main: &Attached) -> Result<(), KernelError> {
        match self {
            Self::Iterators { files, buffer, .. } => buffer.run(files, &mut |_| {}),
            Self::Dump(dump) => dump.run(main, &mut |_| {}),
        }
    }

    /// The same, and shows it.
    pub(super) fn run(
        &mut self,
        main: &Attached,
        sink: &mut dyn FnMut(&RawRecord),
    ) -> Result<(), KernelError> {
        match self {
            Self::Iterators {
                files,
                open,
                buffer,
            } => {
                buffer.run(files, &mut |_| {})?;
                buffer.run(open, sink)
            }
            Self::Dump(dump) => dump.run(main, sink),
        }
    }
}

/// The buffer of reads, kept to save allocations.
pub(super) struct IteratorBuffer(Box<[u8]>);

impl IteratorBuffer {
    pub(super) fn new() -> Self {
        Self(vec![0; READ_BYTES].into())
    }

    /// Runs an iterator to its end.
    pub(super) fn run(
        &mut self,
        link: &Link,
        sink: &mut dyn FnMut(&RawRecord),
    ) -> Result<(), KernelError> {
        let failed = |source: std::io::Error| KernelError::System {
            what: "cannot list open sockets",
            source,
        };
        let mut iterator = Iter::new(link).map_err(|e| failed(std::io::Error::other(e)))?;
        let mut filled = 0;
        loop {
            let read = match iterator.read(&mut self.0[filled..]) {
                Ok(read) => read,
                // A signal, or sockets changed meanwhile: the kernel continues.
                Err(e)
                    if matches!(
                        e.kind(),
                        std::io::ErrorKind::Interrupted | std::io::ErrorKind::WouldBlock
                    ) =>
                {
                    continue;
                }
                Err(e) => return Err(failed(e)),
            };
            if read == 0 {
                return Ok(());
            }
            filled += read;
            let mut parsed = 0;
            while let Some(record) = RawRecord::read(&self.0[parsed..filled]) {
                sink(&record);
                parsed += size_of::<RawRecord>();
            }
            self.0.copy_within(parsed..filled, 0);
            filled -= parsed;
        }
    }
}
