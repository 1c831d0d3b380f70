//! A compiled filter.

use std::thread;

use pcap::{Capture, Dead, Linktype};

use crate::classic::{Instruction, Program, ProgramError};
use crate::diagnose;
use crate::error::FilterError;
use crate::interpret;
use crate::token::tokens;

/// Longest expression that is taken, in bytes.
pub const MAX_EXPRESSION: usize = 16 * 1024;

/// Most words and signs that an expression may have. libpcap's time grows with at least the square
/// of them: 1,000 (a list of 500 ports) take it some 5 seconds even without optimizer.
pub const MAX_WORDS: usize = 1_000;

/// Most classic BPF instructions that libpcap's optimizer is given; 20,000 (a list of 300 ports)
/// take it some 4 seconds, twice as many ten times as long.
pub const MAX_RAW_INSTRUCTIONS: usize = 20_000;

/// Expressions of fewer words are surely below [`MAX_RAW_INSTRUCTIONS`].
const SURELY_SMALL: usize = 100;

/// libpcap's code generator calls itself once for each block of the program: that may be more than
/// the stack of a usual thread holds. Memory is taken only as far as it is used.
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
pub struct Filter {
    expression: String,
    link: LinkType,
    instructions: Vec<Instruction>,
    program: Program,
}

impl Filter {
    /// Compiles an expression (`man 7 pcap-filter`).
    ///
    /// Names of hosts, networks, ports and protocols are looked up now, the first by DNS.
    /// `ip broadcast` knows no netmask: it means 0.0.0.0 and 255.255.255.255.
    ///
    /// # Errors
    /// libpcap does not take the expression, or it asks for something that is not in the packet.
    pub fn compile(expression: &str, link: LinkType) -> Result<Self, FilterError> {
        check_size(expression)?;
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
            Ok(program) => Ok(Filter {
                expression: expression.to_owned(),
                link,
                instructions,
                program,
            }),
            Err(ProgramError::Ancillary { .. }) => Err(FilterError::NotInPacket {
                expression: expression.to_owned(),
            }),
            Err(error) => Err(error.into()),
        }
    }

    /// Takes a ready classic BPF program (as `tcpdump -ddd` prints) in place of an expression.
    ///
    /// # Errors
    /// It is not a program that can run.
    pub fn from_instructions(
        instructions: &[Instruction],
        link: LinkType,
    ) -> Result<Self, FilterError> {
        let program = Program::decode(instructions)?;
        Ok(Filter {
            expression: String::new(),
            link,
            instructions: instructions.to_vec(),
            program,
        })
    }

    /// True if the filter accepts the packet, which is wholly there.
    pub fn matches(&self, packet: &[u8]) -> bool {
        self.matches_captured(packet, u32::try_from(packet.len()).unwrap_or(u32::MAX))
    }

    /// True if the filter accepts the packet, of which only the beginning may have been captured;
    /// `wire_len` is its length in bytes on the wire (`len`, `less`, `greater`).
    pub fn matches_captured(&self, packet: &[u8], wire_len: u32) -> bool {
        interpret::run(&self.program, packet, wire_len)
    }

    /// The expression; empty for a program from instructions.
    pub fn expression(&self) -> &str {
        &self.expression
    }

    /// What packets must begin with.
    pub fn link_type(&self) -> LinkType {
        self.link
    }

    /// libpcap's classic BPF program.
    pub fn instructions(&self) -> &[Instruction] {
        &self.instructions
    }

    pub(crate) fn program(&self) -> &Program {
        &self.program
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
    let program = library.compile(expression, optimize).map_err(reason)?;
    program
        .get_instructions()
        .iter()
        // The crate keeps the fields private; its text form ("code jt jf k") is the way to them.
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
