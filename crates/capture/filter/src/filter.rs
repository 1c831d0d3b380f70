//! A compiled filter.

use std::{sync::Arc, thread};

use pcap::{Capture, Dead, Linktype};

use crate::cache;
use crate::classic::{Instruction, Program, ProgramError};
use crate::diagnose;
use crate::error::FilterError;
use crate::interpret;
use crate::names::{self, Checked};
use crate::token::tokens;

/// Longest expression that is taken, in bytes.
pub const MAX_EXPRESSION: usize = 16 * 1024;

/// Most words and signs that an expression may have. libpcap's time grows with at least the square
/// of them.
pub const MAX_WORDS: usize = 400;

/// Most classic BPF instructions for libpcap's optimizer: 8,000 (a list of 125 ports) take it some 0.4
/// seconds, 20,000 take 4.7.
pub const MAX_RAW_INSTRUCTIONS: usize = 8_000;

/// Expressions of fewer words are surely below [`MAX_RAW_INSTRUCTIONS`].
const SURELY_SMALL: usize = 100;

/// libpcap's code generator recurses once for each block of the program, which may exceed a usual thread's
/// stack. Only used pages take memory.
const COMPILER_STACK: usize = 64 * 1024 * 1024;

/// What a packet begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LinkType {
    /// Ethernet header (`DLT_EN10MB`).
    Ethernet,
    /// IPv4 or IPv6 header (`DLT_RAW`): tun devices, IP tunnels.
    RawIp,
}

impl LinkType {
    fn dlt(self) -> Linktype {
        match self {
            LinkType::Ethernet => Linktype(1),
            // Linux's DLT_RAW; the crate's constant is the number in files, which the compiler
            // does not know.
            LinkType::RawIp => Linktype(12),
        }
    }
}

/// A filter expression, compiled by libpcap for a link type. An empty expression accepts all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter(Arc<Compiled>);

#[derive(Debug, PartialEq, Eq)]
struct Compiled {
    expression: String,
    link: LinkType,
    instructions: Vec<Instruction>,
    program: Program,
}

impl Filter {
    /// Compiles an expression (`man 7 pcap-filter`), or returns a cached result: the last 64 are kept. One
    /// is compiled at a time.
    ///
    /// Names of ports and protocols are those of /etc/services and /etc/protocols; names of hosts and
    /// networks are refused, so no DNS query is sent.
    /// `ip broadcast` has no netmask: it means 0.0.0.0 and 255.255.255.255.
    ///
    /// # Errors
    /// libpcap rejects the expression, or it needs something that is not in the packet.
    pub fn compile(expression: &str, link: LinkType) -> Result<Self, FilterError> {
        check_size(expression)?;
        cache::compiled(expression, link, || Self::compile_anew(expression, link))
    }

    fn compile_anew(expression: &str, link: LinkType) -> Result<Self, FilterError> {
        let instructions = thread::scope(|scope| {
            let compiler = thread::Builder::new()
                .stack_size(COMPILER_STACK)
                .spawn_scoped(scope, || compile(expression, link))
                .map_err(|error| FilterError::Library(error.to_string()))?;
            compiler
                .join()
                .unwrap_or_else(|_| Err(FilterError::Library("the compiler died".to_owned())))
        })?;
        match Program::decode(&instructions) {
            Ok(program) => Ok(Filter(Arc::new(Compiled {
                expression: expression.to_owned(),
                link,
                instructions,
                program,
            }))),
            Err(ProgramError::Ancillary { .. }) => Err(FilterError::NotInPacket {
                expression: expression.to_owned(),
            }),
            Err(error) => Err(error.into()),
        }
    }

    /// Uses a ready classic BPF program (as `tcpdump -ddd` prints) in place of an expression.
    ///
    /// # Errors
    /// The program is invalid.
    pub fn from_instructions(
        instructions: &[Instruction],
        link: LinkType,
    ) -> Result<Self, FilterError> {
        let program = Program::decode(instructions)?;
        Ok(Filter(Arc::new(Compiled {
            expression: String::new(),
            link,
            instructions: instructions.to_vec(),
            program,
        })))
    }

    /// True if the filter accepts the packet, which is wholly there.
    pub fn matches(&self, packet: &[u8]) -> bool {
        self.matches_captured(packet, u32::try_from(packet.len()).unwrap_or(u32::MAX))
    }

    /// True if the filter accepts the packet, of which only the beginning may have been captured;
    /// `wire_len` is its length in bytes on the wire (`len`, `less`, `greater`).
    pub fn matches_captured(&self, packet: &[u8], wire_len: u32) -> bool {
        interpret::run(&self.0.program, packet, wire_len)
    }

    /// The expression; empty for a program from instructions.
    pub fn expression(&self) -> &str {
        &self.0.expression
    }

    /// What packets must begin with.
    pub fn link_type(&self) -> LinkType {
        self.0.link
    }

    /// libpcap's classic BPF program.
    pub fn instructions(&self) -> &[Instruction] {
        &self.0.instructions
    }

    pub(crate) fn program(&self) -> &Program {
        &self.0.program
    }
}

fn check_size(expression: &str) -> Result<(), FilterError> {
    if expression.len() > MAX_EXPRESSION {
        return Err(too_big(
            expression,
            expression.len(),
            MAX_EXPRESSION,
            "bytes",
        ));
    }
    let words = tokens(expression).len();
    if words > MAX_WORDS {
        return Err(too_big(expression, words, MAX_WORDS, "words"));
    }
    Ok(())
}

fn too_big(expression: &str, size: usize, limit: usize, unit: &'static str) -> FilterError {
    FilterError::TooBig {
        expression: expression.to_owned(),
        size,
        limit,
        unit,
    }
}

fn compile(expression: &str, link: LinkType) -> Result<Vec<Instruction>, FilterError> {
    let library =
        Capture::dead(link.dlt()).map_err(|error| FilterError::Library(error.to_string()))?;
    let explain = |reason: String| diagnose::explain(&library, expression, &reason);
    if tokens(expression).len() > SURELY_SMALL {
        let raw = compile_with(&library, expression, false).map_err(explain)?;
        if raw.len() > MAX_RAW_INSTRUCTIONS {
            let size = raw.len();
            return Err(too_big(
                expression,
                size,
                MAX_RAW_INSTRUCTIONS,
                "instructions",
            ));
        }
    }
    compile_with(&library, expression, true).map_err(explain)
}

/// Compiles an expression, or gives libpcap's reason.
pub(crate) fn compile_with(
    library: &Capture<Dead>,
    expression: &str,
    optimize: bool,
) -> Result<Vec<Instruction>, String> {
    match names::check(expression) {
        Checked::Fine => {}
        Checked::Foreign => return Err("syntax error".to_owned()),
        Checked::Name { name, without } => {
            return Err(match library.compile(&without, false).map_err(reason) {
                Err(reason) if reason.contains("syntax error") => reason,
                _ => format!("{} '{name}'", names::REFUSED),
            });
        }
    }
    let program = library.compile(expression, optimize).map_err(reason)?;
    program
        .get_instructions()
        .iter()
        // The crate keeps the fields private; its text form ("code jt jf k") gives access to them.
        .map(|instruction| parse(&instruction.to_string()))
        .collect::<Option<Vec<_>>>()
        .ok_or_else(|| "libpcap gave an instruction that cannot be read".to_owned())
}

fn reason(error: pcap::Error) -> String {
    match error {
        pcap::Error::PcapError(reason) => reason,
        other => other.to_string(),
    }
}

fn parse(text: &str) -> Option<Instruction> {
    let mut fields = text.split(' ');
    Some(Instruction {
        code: fields.next()?.parse().ok()?,
        jt: fields.next()?.parse().ok()?,
        jf: fields.next()?.parse().ok()?,
        k: fields.next()?.parse().ok()?,
    })
}
