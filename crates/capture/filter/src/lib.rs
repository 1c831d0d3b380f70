//! libpcap filter expressions in the kernel and in user space.
//!
//! [`Filter::compile`] has libpcap compile an expression to classic BPF. [`Filter::matches`] runs that
//! in user space; [`translate`] makes an eBPF program of it that comes to the same verdict on the same
//! packet, also when the kernel has moved the packet's VLAN tag out of the frame.
//!
//! ```
//! use skua_filter::{Context, Epilogue, Filter, LinkType, translate};
//!
//! let filter = Filter::compile("tcp port 443", LinkType::Ethernet)?;
//! let program = translate(&filter, Context::Skb, &Epilogue::verdicts(1, 0))?;
//! assert!(program.last().is_some_and(|insn| insn.is_exit()));
//!
//! let error = Filter::compile("tcp port=443", LinkType::Ethernet).unwrap_err();
//! assert_eq!(
//!     error.to_string(),
//!     "filter 'tcp port=443': syntax error at column 9, near '='; did you mean 'tcp port 443'?"
//! );
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod cache;
mod classic;
mod diagnose;
mod emit;
mod error;
mod filter;
pub mod insn;
mod interpret;
mod names;
mod suggest;
mod token;
mod translate;

pub use classic::{Instruction, MAX_BACKWARD_JUMPS, ProgramError};
pub use error::{FilterError, Position};
pub use filter::{Filter, LinkType, MAX_EXPRESSION, MAX_RAW_INSTRUCTIONS, MAX_WORDS};
pub use insn::Insn;
pub use translate::{Context, Epilogue, TranslateError, translate};
