//! Classic BPF in user space, with the semantics of libpcap's `bpf_filter.c`.
//!
//! libpcap's own interpreter cannot be used as it is: the `pcap` crate gives it the captured length
//! as the packet's length, so `len`, `less` and `greater` would be wrong for packets that a snap
//! length cut; its program cannot be shared between threads; and on `protochain` it does not
//! return from some hostile packets.

use crate::classic::{
    Arithmetic, Condition, MAX_BACKWARD_JUMPS, MEMORY_WORDS, Op, Operand, Program, Size,
};

/// True if the program accepts the packet. `wire_len` is what `len` means.
pub(crate) fn run(program: &Program, packet: &[u8], wire_len: u32) -> bool {
    execute(program, packet, wire_len).unwrap_or(false)
}

/// `None` where libpcap's interpreter ends with verdict 0 in mid-program.
fn execute(program: &Program, packet: &[u8], wire_len: u32) -> Option<bool> {
    let mut a = 0_u32;
    let mut x = 0_u32;
    let mut memory = [0_u32; MEMORY_WORDS as usize];
    let mut backward = 0;
    let mut at = 0;
    loop {
        let mut next = at + 1;
        match *program.ops().get(at)? {
            Op::LoadAbsolute(size, k) => a = load(packet, u64::from(k), size)?,
            Op::LoadIndirect(size, k) => a = load(packet, u64::from(x) + u64::from(k), size)?,
            Op::LoadLength => a = wire_len,
            Op::LoadImmediate(k) => a = k,
            Op::LoadMemory(k) => a = *memory.get(k as usize)?,
            Op::LoadXImmediate(k) => x = k,
            Op::LoadXMemory(k) => x = *memory.get(k as usize)?,
            Op::LoadXLength => x = wire_len,
            Op::LoadXHeaderLength(k) => {
                x = (load(packet, u64::from(k), Size::Byte)? & 0xf) << 2;
            }
            Op::Store(k) => *memory.get_mut(k as usize)? = a,
            Op::StoreX(k) => *memory.get_mut(k as usize)? = x,
            Op::Arithmetic(operation, operand) => {
                let b = value(operand, x);
                a = match operation {
                    Arithmetic::Add => a.wrapping_add(b),
                    Arithmetic::Sub => a.wrapping_sub(b),
                    Arithmetic::Mul => a.wrapping_mul(b),
                    Arithmetic::Div => a.checked_div(b)?,
                    Arithmetic::Mod => a.checked_rem(b)?,
                    Arithmetic::Or => a | b,
                    Arithmetic::And => a & b,
                    Arithmetic::Xor => a ^ b,
                    Arithmetic::Lsh => a.checked_shl(b).unwrap_or(0),
                    Arithmetic::Rsh => a.checked_shr(b).unwrap_or(0),
                };
            }
            Op::Negate => a = a.wrapping_neg(),
            Op::Jump(target) => {
                if target <= at {
                    backward += 1;
                    if backward > MAX_BACKWARD_JUMPS {
                        return None;
                    }
                }
                next = target;
            }
            Op::JumpIf {
                condition,
                operand,
                yes,
                no,
            } => {
                let b = value(operand, x);
                let holds = match condition {
                    Condition::Equal => a == b,
                    Condition::Greater => a > b,
                    Condition::GreaterOrEqual => a >= b,
                    Condition::AnySet => a & b != 0,
                };
                next = if holds { yes } else { no };
            }
            Op::Return(k) => return Some(k != 0),
            Op::ReturnA => return Some(a != 0),
            Op::AToX => x = a,
            Op::XToA => a = x,
        }
        at = next;
    }
}

fn value(operand: Operand, x: u32) -> u32 {
    match operand {
        Operand::K(k) => k,
        Operand::X => x,
    }
}

fn load(packet: &[u8], offset: u64, size: Size) -> Option<u32> {
    let rest = packet.get(usize::try_from(offset).ok()?..)?;
    match size {
        Size::Byte => rest.first().map(|&byte| byte.into()),
        Size::Half => rest
            .first_chunk()
            .map(|&bytes| u16::from_be_bytes(bytes).into()),
        Size::Word => rest.first_chunk().map(|&bytes| u32::from_be_bytes(bytes)),
    }
}
