//! Loads and attaches the kernel programs in `bpf/`; the only user of libbpf.
//!
//! Everything `unsafe` that Skua does on the kernel's behalf stands here: mapped memory, system
//! calls that libraries do not wrap, and libbpf.

mod attach;
mod bindings;
mod btf;
mod budget;
mod clock;
mod embedded;
mod error;
pub mod flow;
mod grace;
mod log;
mod mapping;
mod memory;
pub mod orphans;
pub mod peer;
mod plain;
pub mod priority;
mod private_network;
mod programs;
mod ring;
mod sink;
pub mod socket;
pub mod steer;
pub mod tap;
mod ticks;

pub use attach::{Attachment, Direction, HookKind};
pub use btf::KernelTypes;
pub use budget::{MOST_PROGRAMS, has_room_for_namespaces, loaded_programs};
pub use clock::{monotonic_ns, next_tick, unix_offset_ns};
pub use error::KernelError;
pub use log::capture_libbpf_log;
pub use memory::{release_free_memory, release_start_memory};
pub use programs::{ProgramInfo, attached_tcx, program_info};
