//! eBPF instructions: the little of an assembler that the translator and its callers need.
//!
//! Encoding as in the kernel's `Documentation/bpf/standardization/instruction-set.rst` (RFC 9669).

/// Register 0: a helper's result, the program's return value.
pub const R0: u8 = 0;
/// Register 1: first argument; at the start of a program its context.
pub const R1: u8 = 1;
/// Register 2: second argument.
pub const R2: u8 = 2;
/// Register 3: third argument.
pub const R3: u8 = 3;
/// Register 4: fourth argument.
pub const R4: u8 = 4;
/// Register 5: fifth argument.
pub const R5: u8 = 5;
/// Register 6: kept over calls; holds the context in every program made by [`crate::translate`].
pub const R6: u8 = 6;
/// Register 7: kept over calls.
pub const R7: u8 = 7;
/// Register 8: kept over calls.
pub const R8: u8 = 8;
/// Register 9: kept over calls.
pub const R9: u8 = 9;
/// Register 10: read-only end of the 512-byte stack.
pub const R10: u8 = 10;

/// Helper `bpf_tail_call` (12).
pub const BPF_TAIL_CALL: i32 = 12;
/// Helper `bpf_skb_load_bytes` (26; for socket filters since kernel 4.16).
pub const BPF_SKB_LOAD_BYTES: i32 = 26;
/// Helper `bpf_xdp_get_buff_len` (188, kernel 5.18).
pub const BPF_XDP_GET_BUFF_LEN: i32 = 188;
/// Helper `bpf_xdp_load_bytes` (189, kernel 5.18).
pub const BPF_XDP_LOAD_BYTES: i32 = 189;

/// Source register value that makes a 64-bit immediate a map's file descriptor.
const BPF_PSEUDO_MAP_FD: u8 = 1;

/// Width of a memory access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Width {
    /// 1 byte.
    Byte,
    /// 2 bytes.
    Half,
    /// 4 bytes.
    Word,
    /// 8 bytes.
    Double,
}

impl Width {
    const fn bits(self) -> u8 {
        match self {
            Width::Word => 0x00,
            Width::Half => 0x08,
            Width::Byte => 0x10,
            Width::Double => 0x18,
        }
    }
}

/// Arithmetic operation (the high four bits of the opcode).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum AluOp {
    /// Addition.
    Add = 0x00,
    /// Subtraction.
    Sub = 0x10,
    /// Multiplication.
    Mul = 0x20,
    /// Unsigned division; by zero gives 0.
    Div = 0x30,
    /// Bitwise or.
    Or = 0x40,
    /// Bitwise and.
    And = 0x50,
    /// Shift left by the operand modulo the width.
    Lsh = 0x60,
    /// Logical shift right by the operand modulo the width.
    Rsh = 0x70,
    /// Two's complement; takes no operand.
    Neg = 0x80,
    /// Unsigned remainder; by zero leaves the register as it is.
    Mod = 0x90,
    /// Bitwise exclusive or.
    Xor = 0xa0,
    /// Copy.
    Mov = 0xb0,
}

/// Condition of a jump (the high four bits of the opcode); comparisons are unsigned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum JumpOp {
    /// Equal.
    Eq = 0x10,
    /// Greater.
    Gt = 0x20,
    /// Greater or equal.
    Ge = 0x30,
    /// Any of the operand's bits set.
    Set = 0x40,
    /// Not equal.
    Ne = 0x50,
    /// Less.
    Lt = 0xa0,
    /// Less or equal.
    Le = 0xb0,
}

/// One eBPF instruction, laid out as the kernel's `struct bpf_insn`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Insn {
    /// Opcode.
    pub code: u8,
    /// Destination and source register, four bits each, in the order of the machine's bit fields.
    pub regs: u8,
    /// Jump distance in instructions, or memory offset in bytes.
    pub off: i16,
    /// Immediate operand.
    pub imm: i32,
}

impl Insn {
    const fn new(code: u8, dst: u8, src: u8, off: i16, imm: i32) -> Self {
        // `struct bpf_insn` has bit fields: their order in the byte follows the byte order.
        let regs = if cfg!(target_endian = "little") {
            dst | (src << 4)
        } else {
            src | (dst << 4)
        };
        Insn {
            code,
            regs,
            off,
            imm,
        }
    }

    /// The instruction's bytes in the machine's order, as `BPF_PROG_LOAD` takes them.
    pub fn encode(self) -> [u8; 8] {
        let [o0, o1] = self.off.to_ne_bytes();
        let [i0, i1, i2, i3] = self.imm.to_ne_bytes();
        [self.code, self.regs, o0, o1, i0, i1, i2, i3]
    }

    /// 64-bit `dst op= imm` (sign-extended).
    pub const fn alu64_imm(op: AluOp, dst: u8, imm: i32) -> Self {
        Insn::new(0x07 | op as u8, dst, 0, 0, imm)
    }

    /// 64-bit `dst op= src`.
    pub const fn alu64_reg(op: AluOp, dst: u8, src: u8) -> Self {
        Insn::new(0x0f | op as u8, dst, src, 0, 0)
    }

    /// 32-bit `dst op= imm`; clears the upper half of `dst`.
    pub const fn alu32_imm(op: AluOp, dst: u8, imm: i32) -> Self {
        Insn::new(0x04 | op as u8, dst, 0, 0, imm)
    }

    /// 32-bit `dst op= src`; clears the upper half of `dst`.
    pub const fn alu32_reg(op: AluOp, dst: u8, src: u8) -> Self {
        Insn::new(0x0c | op as u8, dst, src, 0, 0)
    }

    /// `dst = imm`, zero-extended to 64 bits.
    pub const fn mov_imm(dst: u8, imm: u32) -> Self {
        Insn::alu32_imm(AluOp::Mov, dst, imm.cast_signed())
    }

    /// `dst = src`, 64 bits.
    pub const fn mov_reg(dst: u8, src: u8) -> Self {
        Insn::alu64_reg(AluOp::Mov, dst, src)
    }

    /// Converts the low `bits` (16, 32 or 64) of `dst` between big-endian and the machine's order
    /// and clears the rest.
    pub const fn big_endian(dst: u8, bits: i32) -> Self {
        Insn::new(0xdc, dst, 0, 0, bits)
    }

    /// `dst = *(src + off)`, zero-extended.
    pub const fn load(width: Width, dst: u8, src: u8, off: i16) -> Self {
        Insn::new(0x61 | width.bits(), dst, src, off, 0)
    }

    /// `*(dst + off) = src`.
    pub const fn store_reg(width: Width, dst: u8, off: i16, src: u8) -> Self {
        Insn::new(0x63 | width.bits(), dst, src, off, 0)
    }

    /// `*(dst + off) = imm`.
    pub const fn store_imm(width: Width, dst: u8, off: i16, imm: i32) -> Self {
        Insn::new(0x62 | width.bits(), dst, 0, off, imm)
    }

    /// `dst = file descriptor's map`: two instructions.
    pub const fn load_map_fd(dst: u8, fd: i32) -> [Self; 2] {
        [
            Insn::new(0x18, dst, BPF_PSEUDO_MAP_FD, 0, fd),
            Insn::new(0, 0, 0, 0, 0),
        ]
    }

    /// Calls the helper with this number.
    pub const fn call(helper: i32) -> Self {
        Insn::new(0x85, 0, 0, 0, helper)
    }

    /// Ends the program with the verdict in `R0`.
    pub const fn exit() -> Self {
        Insn::new(0x95, 0, 0, 0, 0)
    }

    /// Jumps over `off` instructions.
    pub const fn jump(off: i16) -> Self {
        Insn::new(0x05, 0, 0, off, 0)
    }

    /// Jumps over `off` instructions if the 64-bit `dst op imm` (sign-extended) holds.
    pub const fn jump64_imm(op: JumpOp, dst: u8, imm: i32, off: i16) -> Self {
        Insn::new(0x05 | op as u8, dst, 0, off, imm)
    }

    /// Jumps over `off` instructions if the 64-bit `dst op src` holds.
    pub const fn jump64_reg(op: JumpOp, dst: u8, src: u8, off: i16) -> Self {
        Insn::new(0x0d | op as u8, dst, src, off, 0)
    }

    /// Jumps over `off` instructions if the 32-bit `dst op imm` holds (kernel 5.1).
    pub const fn jump32_imm(op: JumpOp, dst: u8, imm: i32, off: i16) -> Self {
        Insn::new(0x06 | op as u8, dst, 0, off, imm)
    }

    /// Jumps over `off` instructions if the 32-bit `dst op src` holds (kernel 5.1).
    pub const fn jump32_reg(op: JumpOp, dst: u8, src: u8, off: i16) -> Self {
        Insn::new(0x0e | op as u8, dst, src, off, 0)
    }

    /// True for [`Insn::exit`].
    pub const fn is_exit(self) -> bool {
        self.code == 0x95
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_endian = "little")]
    fn encodes_as_the_kernels_own_macros_do() {
        // BPF_MOV64_REG(BPF_REG_6, BPF_REG_1)
        assert_eq!(
            Insn::mov_reg(R6, R1).encode(),
            [0xbf, 0x16, 0, 0, 0, 0, 0, 0]
        );
        // BPF_LDX_MEM(BPF_W, BPF_REG_2, BPF_REG_6, 80)
        assert_eq!(
            Insn::load(Width::Word, R2, R6, 80).encode(),
            [0x61, 0x62, 80, 0, 0, 0, 0, 0]
        );
        // BPF_ST_MEM(BPF_DW, BPF_REG_10, -8, 0)
        assert_eq!(
            Insn::store_imm(Width::Double, R10, -8, 0).encode(),
            [0x7a, 0x0a, 0xf8, 0xff, 0, 0, 0, 0]
        );
        // BPF_JMP32_IMM(BPF_JGT, BPF_REG_7, 0x800, 5)
        assert_eq!(
            Insn::jump32_imm(JumpOp::Gt, R7, 0x800, 5).encode(),
            [0x26, 0x07, 5, 0, 0, 8, 0, 0]
        );
        // BPF_ENDIAN(BPF_TO_BE, BPF_REG_7, 16), BPF_LD_MAP_FD(BPF_REG_2, 7)
        assert_eq!(
            Insn::big_endian(R7, 16).encode(),
            [0xdc, 0x07, 0, 0, 16, 0, 0, 0]
        );
        assert_eq!(
            Insn::load_map_fd(R2, 7)[0].encode(),
            [0x18, 0x12, 0, 0, 7, 0, 0, 0]
        );
    }
}
