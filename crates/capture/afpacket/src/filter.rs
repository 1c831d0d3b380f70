//! Classic BPF programs in front of a socket.

/// One instruction of classic BPF (`struct sock_filter`, linux/filter.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BpfInstruction {
    /// Operation.
    pub code: u16,
    /// Instructions to skip when a comparison holds.
    pub jt: u8,
    /// Instructions to skip when it does not.
    pub jf: u8,
    /// Operand.
    pub k: u32,
}

impl From<(u16, u8, u8, u32)> for BpfInstruction {
    /// From (code, jt, jf, k).
    fn from((code, jt, jf, k): (u16, u8, u8, u32)) -> Self {
        Self { code, jt, jf, k }
    }
}

/// Longest program that the kernel takes (BPF_MAXINSNS).
pub(crate) const MAX_INSTRUCTIONS: usize = 4096;
/// `ret #k`: keep k bytes of the packet, 0 drops it (BPF_RET | BPF_K).
const RET_K: u16 = 0x06;

/// Program that drops everything.
pub(crate) const DROP_ALL: [BpfInstruction; 1] = [BpfInstruction {
    code: RET_K,
    jt: 0,
    jf: 0,
    k: 0,
}];

/// The program that keeps at most `snaplen` bytes of what `filter` chooses; an empty filter
/// chooses everything. The kernel copies only what the program's result says.
pub(crate) fn with_snaplen(filter: &[BpfInstruction], snaplen: u32) -> Vec<BpfInstruction> {
    if filter.is_empty() {
        return vec![BpfInstruction {
            code: RET_K,
            jt: 0,
            jf: 0,
            k: snaplen,
        }];
    }
    let keep = |instruction: &BpfInstruction| match instruction.code {
        RET_K => BpfInstruction {
            k: instruction.k.min(snaplen),
            ..*instruction
        },
        _ => *instruction,
    };
    filter.iter().map(keep).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_returned_is_limited() {
        let filter: Vec<BpfInstruction> = [
            (0x28, 0, 0, 12),
            (0x15, 0, 1, 0x86dd),
            (0x06, 0, 0, 262_144),
            (0x06, 0, 0, 0),
        ]
        .map(BpfInstruction::from)
        .to_vec();
        let limited = with_snaplen(&filter, 512);
        assert_eq!(limited[..2], filter[..2]);
        assert_eq!((limited[2].k, limited[3].k), (512, 0));
        assert_eq!(
            with_snaplen(&[], 512),
            [BpfInstruction::from((0x06, 0, 0, 512))]
        );
    }
}
