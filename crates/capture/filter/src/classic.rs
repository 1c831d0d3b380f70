//! Classic BPF: decoding and checking of the instructions that libpcap makes.
//!
//! Encoding as in libpcap's `pcap/bpf.h` (and `linux/bpf_common.h`, which agrees with it).

use thiserror::Error;

/// Number of words of scratch memory (`BPF_MEMWORDS`).
pub(crate) const MEMORY_WORDS: u32 = 16;

/// Backward jumps that a program may make before the packet is rejected. Only `protochain` makes any: one
/// for each extension header that it skips. A bound is needed because the kernel's verifier walks every
/// round, and because libpcap's code for AH headers can jump for ever on a crafted packet.
pub const MAX_BACKWARD_JUMPS: u32 = 32;

/// Start of the offsets by which Linux's own classic BPF names things that are not in the packet
/// (`SKF_LL_OFF`, `linux/filter.h`).
const FIRST_ANCILLARY_OFFSET: u32 = (-0x20_0000_i32).cast_unsigned();

/// One classic BPF instruction (`struct bpf_insn` of libpcap, `struct sock_filter` of Linux).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instruction {
    /// Opcode.
    pub code: u16,
    /// Instructions to skip when the condition holds.
    pub jt: u8,
    /// Instructions to skip when it does not.
    pub jf: u8,
    /// Operand.
    pub k: u32,
}

/// Why a classic BPF program is not one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ProgramError {
    /// There is no instruction at all.
    #[error("the program is empty")]
    Empty,
    /// The opcode is unknown.
    #[error("instruction {at} has the unknown opcode {code:#06x}")]
    Opcode {
        /// Index of the instruction.
        at: usize,
        /// Its opcode.
        code: u16,
    },
    /// A jump leads out of the program, or the last instruction does not end it.
    #[error("instruction {at} leads out of the program")]
    Target {
        /// Index of the instruction.
        at: usize,
    },
    /// A scratch memory index of 16 or above, or a constant division by zero.
    #[error("instruction {at} has the impossible operand {k}")]
    Operand {
        /// Index of the instruction.
        at: usize,
        /// Its operand.
        k: u32,
    },
    /// The program reads what the kernel knows about a packet (its direction, for instance) instead of the
    /// packet.
    #[error("instruction {at} reads something that is not in the packet")]
    Ancillary {
        /// Index of the instruction.
        at: usize,
    },
}

/// Bytes that a packet load takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Size {
    Byte,
    Half,
    Word,
}

impl Size {
    pub(crate) const fn bytes(self) -> u32 {
        match self {
            Size::Byte => 1,
            Size::Half => 2,
            Size::Word => 4,
        }
    }
}

/// Second operand of arithmetic and comparisons.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operand {
    K(u32),
    X,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arithmetic {
    Add,
    Sub,
    Mul,
    Div,
    Mod,
    Or,
    And,
    Xor,
    Lsh,
    Rsh,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Condition {
    Equal,
    Greater,
    GreaterOrEqual,
    AnySet,
}

/// A decoded instruction; jump targets are absolute indices inside the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    LoadAbsolute(Size, u32),
    LoadIndirect(Size, u32),
    LoadLength,
    LoadImmediate(u32),
    LoadMemory(u32),
    LoadXImmediate(u32),
    LoadXMemory(u32),
    LoadXLength,
    /// `X = 4 * (packet[k] & 0xf)`.
    LoadXHeaderLength(u32),
    Store(u32),
    StoreX(u32),
    Arithmetic(Arithmetic, Operand),
    Negate,
    Jump(usize),
    JumpIf {
        condition: Condition,
        operand: Operand,
        yes: usize,
        no: usize,
    },
    Return(u32),
    ReturnA,
    AToX,
    XToA,
}

/// A checked program: every jump stays inside, and it cannot run off its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Program {
    ops: Vec<Op>,
}

impl Program {
    pub(crate) fn decode(instructions: &[Instruction]) -> Result<Self, ProgramError> {
        if instructions.is_empty() {
            return Err(ProgramError::Empty);
        }
        let mut ops = Vec::with_capacity(instructions.len());
        for (at, &instruction) in instructions.iter().enumerate() {
            ops.push(decode_one(at, instruction, instructions.len())?);
        }
        Ok(Program { ops })
    }

    pub(crate) fn ops(&self) -> &[Op] {
        &self.ops
    }
}

fn decode_one(at: usize, insn: Instruction, len: usize) -> Result<Op, ProgramError> {
    let Instruction { code, jt, jf, k } = insn;
    let target = |distance: usize| {
        // `at` and the distances are far below usize::MAX: no sum of them overflows.
        let target = at + 1 + distance;
        if target < len {
            Ok(target)
        } else {
            Err(ProgramError::Target { at })
        }
    };
    let memory = || {
        if k < MEMORY_WORDS {
            Ok(k)
        } else {
            Err(ProgramError::Operand { at, k })
        }
    };
    let packet = || {
        if k < FIRST_ANCILLARY_OFFSET {
            Ok(k)
        } else {
            Err(ProgramError::Ancillary { at })
        }
    };
    let unknown = Err(ProgramError::Opcode { at, code });
    let operand = if code & 0x08 == 0 {
        Operand::K(k)
    } else {
        Operand::X
    };

    let op = match code {
        0x20 => Op::LoadAbsolute(Size::Word, packet()?),
        0x28 => Op::LoadAbsolute(Size::Half, packet()?),
        0x30 => Op::LoadAbsolute(Size::Byte, packet()?),
        0x40 => Op::LoadIndirect(Size::Word, k),
        0x48 => Op::LoadIndirect(Size::Half, k),
        0x50 => Op::LoadIndirect(Size::Byte, k),
        0x80 => Op::LoadLength,
        0x00 => Op::LoadImmediate(k),
        0x60 => Op::LoadMemory(memory()?),
        0x01 => Op::LoadXImmediate(k),
        0x61 => Op::LoadXMemory(memory()?),
        0x81 => Op::LoadXLength,
        0xb1 => Op::LoadXHeaderLength(packet()?),
        0x02 => Op::Store(memory()?),
        0x03 => Op::StoreX(memory()?),
        0x84 => Op::Negate,
        // Backward jumps (a negative distance) are libpcap's extension for `protochain`.
        0x05 => Op::Jump(
            isize::try_from(k.cast_signed())
                .ok()
                .and_then(|distance| (at + 1).checked_add_signed(distance))
                .filter(|&target| target < len)
                .ok_or(ProgramError::Target { at })?,
        ),
        0x06 => return Ok(Op::Return(k)),
        0x16 => return Ok(Op::ReturnA),
        0x07 => Op::AToX,
        0x87 => Op::XToA,
        _ if code & !0xf8 == 0x04 => {
            let arithmetic = match code & 0xf0 {
                0x00 => Arithmetic::Add,
                0x10 => Arithmetic::Sub,
                0x20 => Arithmetic::Mul,
                0x30 => Arithmetic::Div,
                0x40 => Arithmetic::Or,
                0x50 => Arithmetic::And,
                0x60 => Arithmetic::Lsh,
                0x70 => Arithmetic::Rsh,
                0x90 => Arithmetic::Mod,
                0xa0 => Arithmetic::Xor,
                _ => return unknown,
            };
            if matches!(arithmetic, Arithmetic::Div | Arithmetic::Mod) && operand == Operand::K(0) {
                return Err(ProgramError::Operand { at, k });
            }
            Op::Arithmetic(arithmetic, operand)
        }
        _ if code & !0xf8 == 0x05 => {
            let condition = match code & 0xf0 {
                0x10 => Condition::Equal,
                0x20 => Condition::Greater,
                0x30 => Condition::GreaterOrEqual,
                0x40 => Condition::AnySet,
                _ => return unknown,
            };
            let (yes, no) = (target(jt.into())?, target(jf.into())?);
            return Ok(Op::JumpIf {
                condition,
                operand,
                yes,
                no,
            });
        }
        _ => return unknown,
    };
    if !matches!(op, Op::Jump(_)) {
        target(0)?;
    }
    Ok(op)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(code: u16, jt: u8, jf: u8, k: u32) -> Result<Program, ProgramError> {
        let ret = Instruction {
            code: 6,
            jt: 0,
            jf: 0,
            k: 1,
        };
        Program::decode(&[Instruction { code, jt, jf, k }, ret])
    }

    #[test]
    fn refuses_what_cannot_run() {
        assert_eq!(Program::decode(&[]), Err(ProgramError::Empty));
        let bad = |code| Err(ProgramError::Opcode { at: 0, code });
        assert_eq!(decode(0xff, 0, 0, 0), bad(0xff));
        assert_eq!(decode(0xc4, 0, 0, 0), bad(0xc4));
        assert_eq!(decode(0x8c, 0, 0, 0), bad(0x8c));
        assert_eq!(decode(0x55, 0, 0, 0), bad(0x55));
        assert_eq!(decode(0x15, 1, 0, 0), Err(ProgramError::Target { at: 0 }));
        assert_eq!(decode(0x05, 0, 0, 1), Err(ProgramError::Target { at: 0 }));
        assert_eq!(
            decode(0x05, 0, 0, u32::MAX - 1),
            Err(ProgramError::Target { at: 0 })
        );
        assert_eq!(
            decode(0x60, 0, 0, 16),
            Err(ProgramError::Operand { at: 0, k: 16 })
        );
        assert_eq!(
            decode(0x34, 0, 0, 0),
            Err(ProgramError::Operand { at: 0, k: 0 })
        );
        assert_eq!(
            decode(0x28, 0, 0, 0xffff_f004),
            Err(ProgramError::Ancillary { at: 0 })
        );
        let unended = [Instruction {
            code: 0,
            jt: 0,
            jf: 0,
            k: 0,
        }];
        assert_eq!(
            Program::decode(&unended),
            Err(ProgramError::Target { at: 0 })
        );
    }
}
