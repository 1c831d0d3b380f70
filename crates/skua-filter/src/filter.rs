//! A compiled filter.

use pcap::{Capture, Dead, Linktype};

use crate::classic::{Instruction, Program, ProgramError};
use crate::diagnose;
use crate::error::FilterError;
use crate::interpret;

/// Longest expression that is taken, in bytes.
pub const MAX_EXPRESSION: usize = 64 * 1024;

/// libpcap's code generator calls itself for each level.
const MAX_NESTING: usize = 200;

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
        let library = open(link)?;
        let instructions = compile_with(&library, expression)
            .map_err(|reason| diagnose::explain(&library, expression, &reason))?;
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
    let too_big = |what, limit| {
        Err(FilterError::TooBig {
            expression: expression.to_owned(),
            what,
            limit,
        })
    };
    if expression.len() > MAX_EXPRESSION {
        return too_big("long", MAX_EXPRESSION);
    }
    if nesting(expression) > MAX_NESTING {
        return too_big("deeply nested", MAX_NESTING);
    }
    Ok(())
}

/// Levels of brackets plus the longest run of prefix operators, an upper bound of how deep libpcap
/// nests.
fn nesting(expression: &str) -> usize {
    let (mut depth, mut deepest, mut prefixes) = (0_usize, 0, 0);
    for sign in expression.chars() {
        match sign {
            '(' | '[' => depth += 1,
            ')' | ']' => depth = depth.saturating_sub(1),
            '!' | '-' => prefixes += 1,
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    let nots = expression.split(|sign: char| !sign.is_alphanumeric());
    let nots = nots.filter(|&word| word == "not").count();
    // Many separate negations are common in long lists; only runs of them nest.
    let run = expression.contains("not not") || expression.contains("!!");
    deepest + if run { nots + prefixes } else { 0 }
}

/// A libpcap handle that only compiles.
fn open(link: LinkType) -> Result<Capture<Dead>, FilterError> {
    Capture::dead(link.dlt()).map_err(|error| FilterError::Library(error.to_string()))
}

/// Compiles an expression, or gives libpcap's reason.
pub(crate) fn compile_with(
    library: &Capture<Dead>,
    expression: &str,
) -> Result<Vec<Instruction>, String> {
    let program = library.compile(expression, true).map_err(reason)?;
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
