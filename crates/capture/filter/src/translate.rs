//! Classic BPF to eBPF.
//!
//! Registers: r6 the context, r7 `A`, r8 `X` (both always zero-extended), r9 the packet's length.
//!
//! The first bytes of the packet are copied to the stack once, as far as the program's loads with constant
//! offset reach; those loads then are plain stack reads. All other loads read the packet. Both read its
//! memory directly where the program type allows it and the bytes are in the linear part, otherwise through
//! a helper: socket filters have only the helper, and a packet may consist of several pieces.
//!
//! A VLAN tag that the kernel moved out of the frame into `skb->vlan_tci` is put back into the copy
//! (bytes 12–15), and offsets behind it are lowered by 4 when they go to the helper, so that the
//! verdict is that on the frame as it was on the wire.

use thiserror::Error;

use crate::classic::{
    Arithmetic, Condition, MAX_BACKWARD_JUMPS, MEMORY_WORDS, Op, Operand, Program, Size,
};
use crate::emit::{Emitter, Label};
use crate::filter::{Filter, LinkType};
use crate::insn::*;

/// What the generated program is given as its context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Context {
    /// `struct __sk_buff` in program type `SOCKET_FILTER`, kernel 5.4 and later. The program loads as
    /// `SCHED_CLS` too, but is slower than that of [`Context::Tc`].
    Skb,
    /// `struct __sk_buff` in program type `SCHED_CLS` (tcx and tc), kernel 5.4 and later.
    Tc,
    /// `struct xdp_md`: program type `XDP`, kernel 5.18 and later.
    Xdp,
}

/// What the generated program does with its verdict: two instruction sequences, each of which must
/// end with [`Insn::exit`]. When they start, r6 holds the context; the other registers
/// and the stack are theirs to use. Jumps in them must stay inside them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Epilogue {
    /// For packets that match.
    pub accept: Vec<Insn>,
    /// For packets that do not.
    pub reject: Vec<Insn>,
}

impl Epilogue {
    /// Returns one of two constants.
    pub fn verdicts(accept: i32, reject: i32) -> Self {
        Epilogue {
            accept: give(accept),
            reject: give(reject),
        }
    }

    /// Matching packets tail-call the program at `index` of a program array; `missed` is returned when
    /// there is none. The others get the verdict `reject`.
    pub fn tail_call(program_array_fd: i32, index: u32, missed: i32, reject: i32) -> Self {
        let mut accept = vec![Insn::mov_reg(R1, R6)];
        accept.extend(Insn::load_map_fd(R2, program_array_fd));
        accept.extend([Insn::mov_imm(R3, index), Insn::call(BPF_TAIL_CALL)]);
        accept.extend(give(missed));
        Epilogue {
            accept,
            reject: give(reject),
        }
    }
}

/// Returns the constant, sign-extended as C's `int` is (`TCX_NEXT` is −1).
fn give(verdict: i32) -> Vec<Insn> {
    vec![Insn::alu64_imm(AluOp::Mov, R0, verdict), Insn::exit()]
}

/// Why a filter cannot become an eBPF program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum TranslateError {
    /// A jump would be longer than an eBPF jump can be (32,767 instructions).
    #[error("the filter is too long for the kernel: {length} eBPF instructions")]
    TooLong {
        /// eBPF instructions that it would have taken.
        length: usize,
    },
    /// A sequence of the epilogue does not end with `exit`.
    #[error("the {0} sequence of the epilogue does not end with exit")]
    OpenEpilogue(&'static str),
}

/// Makes an eBPF program of the filter: for every packet it comes to `epilogue.accept` or
/// `epilogue.reject`, by the verdict that libpcap has on the same packet in a file.
///
/// `len` is the packet's whole length, for GSO and GRO super-packets that of the super-packet.
/// The link type says what is at offset 0: for [`Context::Skb`] and [`Context::Tc`] the program must be attached where
/// that is the Ethernet header (tc ingress and egress, AF_PACKET sockets of type `SOCK_RAW`), or on an
/// interface without link header, the IP header.
///
/// # Errors
/// The filter is too long, or the epilogue is not closed.
pub fn translate(
    filter: &Filter,
    context: Context,
    epilogue: &Epilogue,
) -> Result<Vec<Insn>, TranslateError> {
    for (name, sequence) in [("accept", &epilogue.accept), ("reject", &epilogue.reject)] {
        if !sequence.last().is_some_and(|insn| insn.is_exit()) {
            return Err(TranslateError::OpenEpilogue(name));
        }
    }
    let plan = Plan::new(filter.program(), context, filter.link_type());
    let mut translator = Translator::new(filter.program(), plan);
    translator.prologue();
    translator.body();
    translator.finish(epilogue)
}

/// Offsets of `struct __sk_buff` (`linux/bpf.h`).
mod skb {
    pub(super) const LEN: i16 = 0;
    pub(super) const VLAN_PRESENT: i16 = 20;
    /// Host order.
    pub(super) const VLAN_TCI: i16 = 24;
    /// Network order, in the low 16 bits.
    pub(super) const VLAN_PROTO: i16 = 28;
    /// Packet memory; only for `SCHED_CLS`.
    pub(super) const DATA: i16 = 76;
    pub(super) const DATA_END: i16 = 80;
}

/// Offsets of `struct xdp_md` (`linux/bpf.h`).
mod xdp {
    pub(super) const DATA: i16 = 0;
    pub(super) const DATA_END: i16 = 4;
}

/// Highest offset that is read directly from packet memory; the verifier allows up to 65,535.
const MAX_DIRECT: i32 = 0x7fff;

/// Where the VLAN tag belongs: behind the two MAC addresses.
const TAG_OFFSET: u32 = 12;
const TAG_END: u32 = 16;
const TAG_LENGTH: i32 = 4;

/// A packet is copied to the stack up to this offset; enough for Ethernet, two VLAN tags, IPv6 and
/// TCP.
const MAX_COPY: u32 = 96;

/// Stack slots, relative to r10.
///
/// Every register value is stored as 4 bytes in the upper half of an aligned double word: there the
/// verifier (up to 6.18 at least) does not track what it knew about the value. That is intended: if it knew
/// more about each round of a loop, it would walk every path of every round again, until its limit.
mod stack {
    /// Where a register is stored and loaded again to be forgotten.
    pub(super) const FORGET: i16 = -4;
    /// 4 bytes into which a helper loads.
    pub(super) const LOADED: i16 = -8;
    /// 4 if a VLAN tag was put back, else 0.
    pub(super) const TAG: i16 = -12;
    /// Packet length, in programs that need r9 to count rounds.
    pub(super) const LENGTH: i16 = -20;
    /// 16 words of scratch memory, the upper halves of double words.
    pub(super) const MEMORY: i16 = -24 - 16 * 8;
}

const CONTEXT: u8 = R6;
const A: u8 = R7;
const X: u8 = R8;
const LENGTH: u8 = R9;

/// What one program needs.
#[derive(Debug, Clone, Copy)]
struct Plan {
    context: Context,
    /// The packet's length is used (every load compares with it).
    length: bool,
    /// A VLAN tag may stand outside the frame.
    tag: bool,
    /// Bytes of the packet that are copied to the stack; 0: none.
    copy: u32,
    /// Which of them are read, by bit.
    read: u128,
    /// Indirect loads may fall before or into the tag: they then read the copy.
    indirect_tag: bool,
    /// There are backward jumps: r9 counts them, the length is in its stack slot.
    rounds: bool,
    /// Bytes of stack before the copy that make its fields aligned: in Ethernet the IP
    /// header starts at 14.
    pad: i16,
}

impl Plan {
    fn new(program: &Program, context: Context, link: LinkType) -> Self {
        let reachable = reachable(program);
        let ops = || {
            program
                .ops()
                .iter()
                .enumerate()
                .filter(|&(at, _)| reachable[at])
        };
        let mut plan = Plan {
            context,
            length: false,
            tag: false,
            copy: 0,
            read: 0,
            indirect_tag: false,
            rounds: false,
            pad: if link == LinkType::Ethernet { 2 } else { 0 },
        };
        let may_have_tag = context != Context::Xdp && link == LinkType::Ethernet;
        for (at, op) in ops() {
            match *op {
                Op::LoadAbsolute(size, k) => plan.needs_bytes(k, size),
                Op::LoadXHeaderLength(k) => plan.needs_bytes(k, Size::Byte),
                Op::LoadIndirect(_, k) => {
                    plan.length = true;
                    plan.indirect_tag |= may_have_tag && k < TAG_END;
                }
                Op::LoadLength | Op::LoadXLength => plan.length = true,
                Op::Jump(target) => plan.rounds |= target <= at,
                _ => {}
            }
        }
        plan.tag = may_have_tag && plan.length;
        if plan.indirect_tag {
            // Three aligned double words: a 4-byte load at offset 15 ends at 19.
            plan.copy = plan.copy.max(24 - u32::from(plan.pad.unsigned_abs()));
            plan.read = u128::MAX;
        }
        plan
    }

    fn needs_bytes(&mut self, offset: u32, size: Size) {
        self.length = true;
        let end = u64::from(offset) + u64::from(size.bytes());
        if end <= u64::from(MAX_COPY) {
            self.copy = self.copy.max(offset + size.bytes());
            self.read |= ((1 << size.bytes()) - 1) << offset;
        }
    }

    /// Where the context has the packet's memory, and its end.
    fn direct(&self) -> Option<(i16, i16)> {
        match self.context {
            Context::Skb => None,
            Context::Tc => Some((skb::DATA, skb::DATA_END)),
            Context::Xdp => Some((xdp::DATA, xdp::DATA_END)),
        }
    }

    /// Bytes of stack that the copy and its padding take.
    fn room(&self) -> i16 {
        // At most MAX_COPY + 2, rounded up.
        (self.copy as i16 + self.pad + 7) & !7
    }

    /// Stack address of the room.
    fn room_at(&self) -> i16 {
        stack::MEMORY - self.room()
    }

    /// Stack address of the packet's byte `offset`, which must be below `copy`.
    fn copy_at(&self, offset: u32) -> i16 {
        self.room_at() + self.pad + offset as i16
    }
}

/// Where execution continues after an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Destination {
    At(usize),
    Accept,
    Reject,
}

/// Follows forward jumps and constant verdicts, which need no instruction of their own.
fn resolve(program: &Program, mut at: usize) -> Destination {
    loop {
        match program.ops().get(at) {
            Some(&Op::Return(0)) | None => return Destination::Reject,
            Some(&Op::Return(_)) => return Destination::Accept,
            Some(&Op::Jump(target)) if target > at => at = target,
            Some(_) => return Destination::At(at),
        }
    }
}

/// Which instructions can be come to, jumps and verdicts that [`resolve`] skips left out.
fn reachable(program: &Program) -> Vec<bool> {
    let mut reached = vec![false; program.ops().len()];
    let mut open = vec![resolve(program, 0)];
    while let Some(destination) = open.pop() {
        let Destination::At(at) = destination else {
            continue;
        };
        if std::mem::replace(&mut reached[at], true) {
            continue;
        }
        match program.ops()[at] {
            Op::Return(_) | Op::ReturnA => {}
            Op::Jump(target) => open.push(resolve(program, target)),
            Op::JumpIf { yes, no, .. } => {
                open.extend([resolve(program, yes), resolve(program, no)]);
            }
            _ => open.push(resolve(program, at + 1)),
        }
    }
    reached
}

struct Translator<'a> {
    program: &'a Program,
    plan: Plan,
    out: Emitter,
    /// One for each classic instruction.
    labels: Vec<Label>,
    accept: Label,
    reject: Label,
}

impl<'a> Translator<'a> {
    fn new(program: &'a Program, plan: Plan) -> Self {
        let mut out = Emitter::default();
        let labels = program.ops().iter().map(|_| out.label()).collect();
        let (accept, reject) = (out.label(), out.label());
        Translator {
            program,
            plan,
            out,
            labels,
            accept,
            reject,
        }
    }

    fn finish(mut self, epilogue: &Epilogue) -> Result<Vec<Insn>, TranslateError> {
        for (label, sequence) in [
            (self.accept, &epilogue.accept),
            (self.reject, &epilogue.reject),
        ] {
            if self.out.is_used(label) {
                self.out.bind(label);
                self.out.extend(sequence);
            }
        }
        self.out.finish()
    }

    fn label_at(&self, at: usize) -> Label {
        match resolve(self.program, at) {
            Destination::At(at) => self.labels[at],
            Destination::Accept => self.accept,
            Destination::Reject => self.reject,
        }
    }

    fn prologue(&mut self) {
        self.out.push(Insn::mov_reg(CONTEXT, R1));
        if self.plan.length {
            match self.plan.context {
                Context::Skb | Context::Tc => {
                    self.out
                        .push(Insn::load(Width::Word, LENGTH, CONTEXT, skb::LEN))
                }
                Context::Xdp => {
                    self.out.push(Insn::call(BPF_XDP_GET_BUFF_LEN));
                    self.out.push(Insn::mov_reg(LENGTH, R0));
                }
            }
            let body = self.out.label();
            if self.plan.tag {
                let untagged = self.out.label();
                self.out
                    .push(Insn::load(Width::Word, R1, CONTEXT, skb::VLAN_PRESENT));
                self.out.jump_if(JumpOp::Eq, R1, 0, untagged);
                self.copy_tagged();
                self.out.jump(body);
                self.out.bind(untagged);
                self.out
                    .push(Insn::store_imm(Width::Word, R10, stack::TAG, 0));
            }
            self.copy_plain(body);
            self.out.bind(body);
        }
        if self.plan.rounds {
            if self.plan.length {
                self.out
                    .push(Insn::store_reg(Width::Word, R10, stack::LENGTH, LENGTH));
            }
            self.out.push(Insn::mov_imm(LENGTH, MAX_BACKWARD_JUMPS + 1));
        }
        self.out.push(Insn::mov_imm(A, 0));
        self.out.push(Insn::mov_imm(X, 0));
        for word in 0..MEMORY_WORDS {
            let is_read =
                |op: &Op| matches!(*op, Op::LoadMemory(k) | Op::LoadXMemory(k) if k == word);
            if self.program.ops().iter().any(is_read) {
                self.out
                    .push(Insn::store_imm(Width::Word, R10, memory_at(word), 0));
            }
        }
    }

    /// Copies the head of a frame that is whole to the stack.
    fn copy_plain(&mut self, body: Label) {
        let copy = self.plan.copy;
        if copy == 0 {
            return;
        }
        let short = self.out.label();
        if self.plan.indirect_tag && self.plan.pad > 0 {
            self.out
                .push(Insn::store_imm(Width::Half, R10, self.plan.room_at(), 0));
        }
        self.copy_directly(body);
        // Most packets are long enough: no need to clear the room for them.
        self.out.jump_if(JumpOp::Lt, LENGTH, copy as i32, short);
        self.out.push(Insn::mov_imm(R4, copy));
        self.copy_bytes(0, 0);
        self.out.jump(body);
        self.out.bind(short);
        self.clear_room();
        // The helper rejects a length of 0; from "not equal 0" 5.4 does not conclude "at least 1".
        self.out.jump_if(JumpOp::Lt, LENGTH, 1, body);
        self.out.push(Insn::mov_reg(R4, LENGTH));
        self.copy_bytes(0, 0);
    }

    /// Copies the head of a frame from the packet's memory and jumps to the body; falls through where not
    /// all of it is in one piece.
    fn copy_directly(&mut self, body: Label) {
        let Some((data, data_end)) = self.plan.direct() else {
            return;
        };
        let elsewhere = self.out.label();
        self.out.push(Insn::load(Width::Word, R1, CONTEXT, data));
        self.out
            .push(Insn::load(Width::Word, R2, CONTEXT, data_end));
        self.out.push(Insn::mov_reg(R3, R1));
        self.out
            .push(Insn::alu64_imm(AluOp::Add, R3, self.plan.copy as i32));
        self.out
            .push_jump(Insn::jump64_reg(JumpOp::Gt, R3, R2, 0), elsewhere);
        let mut offset = 0;
        let mut spilled = None;
        while offset < self.plan.copy {
            let at = self.plan.copy_at(offset);
            let (width, bytes) = [(Width::Word, 4), (Width::Half, 2)]
                .into_iter()
                // The stack must be written aligned, the packet need not be read so.
                .find(|&(_, bytes)| offset + bytes <= self.plan.copy && at % bytes as i16 == 0)
                .unwrap_or((Width::Byte, 1));
            if at % 8 == 0 {
                self.unspill(spilled.take());
            }
            if self.plan.read >> offset & ((1 << bytes) - 1) != 0 {
                self.out.push(Insn::load(width, R3, R1, offset as i16));
                self.out.push(Insn::store_reg(width, R10, at, R3));
                spilled = (at % 8 == 0).then_some(at);
            }
            offset += bytes;
        }
        self.unspill(spilled);
        self.out.jump(body);
        self.out.bind(elsewhere);
    }

    /// Makes a stack slot ordinary bytes, of which only the first part was written and the rest is not
    /// read.
    ///
    /// A register's value stored at the start of an aligned double word counts as spilled, and the verifier
    /// tracks it (since kernel 6.8 for any width). In the copy this must not happen: where one path spills
    /// and another has a helper write the same slot, the verifier of 6.18 fails when it traces the origin
    /// of an offset, and rejects the program ("verifier bug: stack slot 22, total slots 0"). Any write into
    /// the rest of the slot ends the tracking.
    fn unspill(&mut self, slot: Option<i16>) {
        if let Some(at) = slot {
            self.out.push(Insn::store_imm(Width::Byte, R10, at + 7, 0));
        }
    }

    /// Copies the head of a frame and puts its VLAN tag back.
    fn copy_tagged(&mut self) {
        self.out
            .push(Insn::store_imm(Width::Word, R10, stack::TAG, TAG_LENGTH));
        let copy = self.plan.copy;
        if copy > 0 {
            let copied = self.out.label();
            self.clear_room();
            self.out.push(Insn::mov_imm(R4, copy.min(TAG_OFFSET)));
            self.copy_bytes(0, 0);
            if copy > TAG_OFFSET {
                self.out
                    .push(Insn::load(Width::Word, R1, CONTEXT, skb::VLAN_PROTO));
                let at = self.plan.copy_at(TAG_OFFSET);
                self.out.push(Insn::store_reg(Width::Half, R10, at, R1));
            }
            if copy > TAG_OFFSET + 2 {
                self.out
                    .push(Insn::load(Width::Word, R1, CONTEXT, skb::VLAN_TCI));
                self.out.push(Insn::big_endian(R1, 16));
                let at = self.plan.copy_at(TAG_OFFSET + 2);
                self.out.push(Insn::store_reg(Width::Half, R10, at, R1));
                self.unspill(Some(at));
            }
            if copy > TAG_END {
                self.out
                    .jump_if(JumpOp::Le, LENGTH, TAG_OFFSET as i32, copied);
                self.out.push(Insn::mov_reg(R4, LENGTH));
                self.out
                    .push(Insn::alu64_imm(AluOp::Sub, R4, TAG_OFFSET as i32));
                let rest = copy - TAG_END;
                self.out
                    .push(Insn::jump64_imm(JumpOp::Le, R4, rest as i32, 1));
                self.out.push(Insn::mov_imm(R4, rest));
                self.copy_bytes(TAG_OFFSET, TAG_END);
            }
            self.out.bind(copied);
        }
        self.out
            .push(Insn::alu64_imm(AluOp::Add, LENGTH, TAG_LENGTH));
    }

    /// Copies r4 bytes from the frame's offset `from` to the copy's offset `to`.
    fn copy_bytes(&mut self, from: u32, to: u32) {
        self.out.push(Insn::mov_imm(R2, from));
        self.helper_load(self.plan.copy_at(to));
    }

    /// Calls the load helper: r2 the offset and r4 the length are set. Rejects on failure.
    fn helper_load(&mut self, stack_at: i16) {
        let helper = match self.plan.context {
            Context::Skb | Context::Tc => BPF_SKB_LOAD_BYTES,
            Context::Xdp => BPF_XDP_LOAD_BYTES,
        };
        self.out.push(Insn::mov_reg(R1, CONTEXT));
        self.out.push(Insn::mov_reg(R3, R10));
        self.out
            .push(Insn::alu64_imm(AluOp::Add, R3, stack_at.into()));
        self.out.push(Insn::call(helper));
        self.out.jump_if(JumpOp::Ne, R0, 0, self.reject);
    }

    /// The verifier requires that memory is initialised of which an unknown part is written.
    fn clear_room(&mut self) {
        let mut at = self.plan.room_at();
        while at < stack::MEMORY {
            self.out.push(Insn::store_imm(Width::Double, R10, at, 0));
            at += 8;
        }
    }

    fn body(&mut self) {
        let program = self.program;
        let reached = reachable(program);
        if resolve(program, 0) != Destination::At(0) {
            let start = self.label_at(0);
            self.out.jump(start);
        }
        for (at, &op) in program.ops().iter().enumerate() {
            if !reached[at] {
                continue;
            }
            self.out.bind(self.labels[at]);
            self.instruction(at, op);
            let goes_on = !matches!(
                op,
                Op::Jump(_) | Op::JumpIf { .. } | Op::Return(_) | Op::ReturnA
            );
            if goes_on && resolve(program, at + 1) != Destination::At(at + 1) {
                let next = self.label_at(at + 1);
                self.out.jump(next);
            }
        }
    }

    fn instruction(&mut self, at: usize, op: Op) {
        match op {
            Op::LoadAbsolute(size, k) => self.load_absolute(A, size, k),
            Op::LoadIndirect(size, k) => self.load_indirect(size, k),
            Op::LoadLength => self.length_to(A),
            Op::LoadXLength => self.length_to(X),
            Op::LoadImmediate(k) => self.out.push(Insn::mov_imm(A, k)),
            Op::LoadXImmediate(k) => self.out.push(Insn::mov_imm(X, k)),
            Op::LoadMemory(k) => {
                self.out.push(Insn::load(Width::Word, A, R10, memory_at(k)));
            }
            Op::LoadXMemory(k) => {
                self.out.push(Insn::load(Width::Word, X, R10, memory_at(k)));
            }
            Op::LoadXHeaderLength(k) => {
                self.load_absolute(X, Size::Byte, k);
                self.out.push(Insn::alu32_imm(AluOp::And, X, 0xf));
                self.out.push(Insn::alu32_imm(AluOp::Lsh, X, 2));
            }
            Op::Store(k) => self
                .out
                .push(Insn::store_reg(Width::Word, R10, memory_at(k), A)),
            Op::StoreX(k) => self
                .out
                .push(Insn::store_reg(Width::Word, R10, memory_at(k), X)),
            Op::Arithmetic(arithmetic, operand) => self.arithmetic(arithmetic, operand),
            Op::Negate => self.out.push(Insn::alu32_imm(AluOp::Neg, A, 0)),
            Op::Jump(target) => {
                if target <= at {
                    self.forget(A);
                    self.forget(X);
                    self.out.push(Insn::alu64_imm(AluOp::Sub, LENGTH, 1));
                    self.out.jump_if(JumpOp::Eq, LENGTH, 0, self.reject);
                }
                let target = self.label_at(target);
                self.out.jump(target);
            }
            Op::JumpIf {
                condition,
                operand,
                yes,
                no,
            } => {
                self.conditional(at, condition, operand, yes, no);
            }
            Op::Return(0) => self.out.jump(self.reject),
            Op::Return(_) => self.out.jump(self.accept),
            Op::ReturnA => {
                self.out.jump_if(JumpOp::Eq, A, 0, self.reject);
                self.out.jump(self.accept);
            }
            Op::AToX => self.out.push(Insn::mov_reg(X, A)),
            Op::XToA => self.out.push(Insn::mov_reg(A, X)),
        }
    }

    /// Makes the verifier forget what it knows about a register (see [`stack`]).
    fn forget(&mut self, register: u8) {
        self.out
            .push(Insn::store_reg(Width::Word, R10, stack::FORGET, register));
        self.out
            .push(Insn::load(Width::Word, register, R10, stack::FORGET));
    }

    fn length_to(&mut self, register: u8) {
        // As 32 bits: a frame of more than 4 GiB does not exist, and A and X are 32 bits.
        let length = self.length(register);
        self.out.push(Insn::alu32_reg(AluOp::Mov, register, length));
    }

    /// The register that holds the packet's length: r9, or `scratch` after loading it.
    fn length(&mut self, scratch: u8) -> u8 {
        if !self.plan.rounds {
            return LENGTH;
        }
        self.out
            .push(Insn::load(Width::Word, scratch, R10, stack::LENGTH));
        scratch
    }

    fn load_absolute(&mut self, register: u8, size: Size, k: u32) {
        let Some(end) = k.checked_add(size.bytes()) else {
            return self.reject_always();
        };
        if end <= self.plan.copy {
            let length = self.length(R0);
            self.out
                .jump_if(JumpOp::Lt, length, end as i32, self.reject);
            return self.read_copy(register, size, k);
        }
        self.out.push(Insn::mov_imm(R1, end));
        let length = self.length(R0);
        self.out
            .push_jump(Insn::jump64_reg(JumpOp::Gt, R1, length, 0), self.reject);
        self.out.push(Insn::mov_imm(R2, k));
        if self.plan.tag {
            // Behind the tag in any case: nearer ones are in the copy.
            self.out.push(Insn::load(Width::Word, R1, R10, stack::TAG));
            self.out.push(Insn::alu64_reg(AluOp::Sub, R2, R1));
        }
        self.load_at_r2(register, size);
    }

    /// Jumps to the reject path, but so that what follows still counts as led to.
    fn reject_always(&mut self) {
        self.out.push(Insn::mov_imm(R0, 0));
        self.out.jump_if(JumpOp::Eq, R0, 0, self.reject);
    }

    /// Reads the copy on the stack by aligned accesses, the only ones that the verifier allows.
    fn read_copy(&mut self, register: u8, size: Size, k: u32) {
        let at = self.plan.copy_at(k);
        let parts: &[(Width, i32)] = match (size, at & 3) {
            (Size::Byte, _) => &[(Width::Byte, 8)],
            (Size::Half, 0 | 2) => &[(Width::Half, 16)],
            (Size::Half, _) => &[(Width::Byte, 8), (Width::Byte, 8)],
            (Size::Word, 0) => &[(Width::Word, 32)],
            (Size::Word, 2) => &[(Width::Half, 16), (Width::Half, 16)],
            (Size::Word, _) => &[(Width::Byte, 8), (Width::Half, 16), (Width::Byte, 8)],
        };
        let mut offset = at;
        for (index, &(width, bits)) in parts.iter().enumerate() {
            let into = if index == 0 { register } else { R1 };
            self.out.push(Insn::load(width, into, R10, offset));
            if bits > 8 {
                self.out.push(Insn::big_endian(into, bits));
            }
            if index > 0 {
                self.out.push(Insn::alu32_imm(AluOp::Lsh, register, bits));
                self.out.push(Insn::alu32_reg(AluOp::Or, register, R1));
            }
            offset += (bits / 8) as i16;
        }
    }

    /// Loads from the frame's offset r2, which is known to be inside.
    fn load_at_r2(&mut self, register: u8, size: Size) {
        let (width, bits) = match size {
            Size::Byte => (Width::Byte, 8),
            Size::Half => (Width::Half, 16),
            Size::Word => (Width::Word, 32),
        };
        let loaded = self.out.label();
        if let Some((data, data_end)) = self.plan.direct() {
            let elsewhere = self.out.label();
            // Where the verifier knows that the offset exceeds the maximum, 6.8 to 6.12 walk the other
            // branch all the same, and reject the program for it.
            self.forget(R2);
            self.out.jump_if(JumpOp::Gt, R2, MAX_DIRECT, elsewhere);
            self.out.push(Insn::load(Width::Word, R1, CONTEXT, data));
            self.out
                .push(Insn::load(Width::Word, R3, CONTEXT, data_end));
            self.out.push(Insn::alu64_reg(AluOp::Add, R1, R2));
            self.out.push(Insn::mov_reg(R4, R1));
            self.out
                .push(Insn::alu64_imm(AluOp::Add, R4, size.bytes() as i32));
            self.out
                .push_jump(Insn::jump64_reg(JumpOp::Gt, R4, R3, 0), elsewhere);
            self.out.push(Insn::load(width, register, R1, 0));
            self.out.jump(loaded);
            self.out.bind(elsewhere);
        }
        self.out.push(Insn::mov_imm(R4, size.bytes()));
        self.helper_load(stack::LOADED);
        self.out
            .push(Insn::load(width, register, R10, stack::LOADED));
        self.out.bind(loaded);
        if bits > 8 {
            self.out.push(Insn::big_endian(register, bits));
        }
    }

    fn load_indirect(&mut self, size: Size, k: u32) {
        // 64-bit sums: libpcap does not let X + k wrap round either.
        self.out.push(Insn::mov_reg(R2, X));
        if k != 0 {
            self.out.push(Insn::mov_imm(R1, k));
            self.out.push(Insn::alu64_reg(AluOp::Add, R2, R1));
        }
        self.out.push(Insn::mov_reg(R1, R2));
        self.out
            .push(Insn::alu64_imm(AluOp::Add, R1, size.bytes() as i32));
        let length = self.length(R0);
        self.out
            .push_jump(Insn::jump64_reg(JumpOp::Gt, R1, length, 0), self.reject);

        let done = self.out.label();
        if self.plan.tag {
            self.out.push(Insn::load(Width::Word, R1, R10, stack::TAG));
            if k < TAG_END {
                let from_frame = self.out.label();
                self.out.jump_if(JumpOp::Eq, R1, 0, from_frame);
                self.out.jump_if(JumpOp::Ge, R2, TAG_END as i32, from_frame);
                self.read_copy_at_r2(size);
                self.out.jump(done);
                self.out.bind(from_frame);
            }
            self.out.push(Insn::alu64_reg(AluOp::Sub, R2, R1));
        }
        self.load_at_r2(A, size);
        self.out.bind(done);
    }

    /// Reads the copy at an offset (r2, below 16) that is known only at run time. Stack reads need
    /// a constant address (until kernel 5.12): so the value is shifted out of two neighbouring
    /// double words.
    fn read_copy_at_r2(&mut self, size: Size) {
        let room = self.plan.room_at();
        let chosen = self.out.label();
        self.out
            .push(Insn::alu64_imm(AluOp::Add, R2, self.plan.pad.into()));
        self.out.push(Insn::load(Width::Double, R1, R10, room));
        self.out.push(Insn::load(Width::Double, R3, R10, room + 8));
        self.out.jump_if(JumpOp::Lt, R2, 8, chosen);
        self.out.push(Insn::mov_reg(R1, R3));
        self.out.push(Insn::load(Width::Double, R3, R10, room + 16));
        self.out.push(Insn::alu64_imm(AluOp::Sub, R2, 8));
        self.out.jump_if(JumpOp::Lt, R2, 8, chosen);
        self.out.push(Insn::mov_reg(R1, R3));
        self.out.push(Insn::mov_imm(R3, 0));
        self.out.push(Insn::alu64_imm(AluOp::Sub, R2, 8));
        self.out.bind(chosen);
        self.out.push(Insn::big_endian(R1, 64));
        self.out.push(Insn::big_endian(R3, 64));
        self.out.push(Insn::alu64_imm(AluOp::Lsh, R2, 3));
        let first_only = self.out.label();
        // Also because a shift by 64 would be one by 0.
        self.out.jump_if(JumpOp::Eq, R2, 0, first_only);
        self.out.push(Insn::mov_imm(R4, 64));
        self.out.push(Insn::alu64_reg(AluOp::Sub, R4, R2));
        self.out.push(Insn::alu64_reg(AluOp::Lsh, R1, R2));
        self.out.push(Insn::alu64_reg(AluOp::Rsh, R3, R4));
        self.out.push(Insn::alu64_reg(AluOp::Or, R1, R3));
        self.out.bind(first_only);
        self.out.push(Insn::alu64_imm(
            AluOp::Rsh,
            R1,
            64 - 8 * size.bytes() as i32,
        ));
        self.out.push(Insn::mov_reg(A, R1));
    }

    fn arithmetic(&mut self, arithmetic: Arithmetic, operand: Operand) {
        let op = match arithmetic {
            Arithmetic::Add => AluOp::Add,
            Arithmetic::Sub => AluOp::Sub,
            Arithmetic::Mul => AluOp::Mul,
            Arithmetic::Div => AluOp::Div,
            Arithmetic::Mod => AluOp::Mod,
            Arithmetic::Or => AluOp::Or,
            Arithmetic::And => AluOp::And,
            Arithmetic::Xor => AluOp::Xor,
            Arithmetic::Lsh => AluOp::Lsh,
            Arithmetic::Rsh => AluOp::Rsh,
        };
        let shift = matches!(arithmetic, Arithmetic::Lsh | Arithmetic::Rsh);
        let divide = matches!(arithmetic, Arithmetic::Div | Arithmetic::Mod);
        match operand {
            Operand::K(32..) if shift => self.out.push(Insn::mov_imm(A, 0)),
            Operand::K(k) => self.out.push(Insn::alu32_imm(op, A, k.cast_signed())),
            Operand::X if shift => {
                // eBPF uses the distance modulo 32, libpcap does not.
                let (in_range, done) = (self.out.label(), self.out.label());
                self.out.jump_if(JumpOp::Lt, X, 32, in_range);
                self.out.push(Insn::mov_imm(A, 0));
                self.out.jump(done);
                self.out.bind(in_range);
                self.out.push(Insn::alu32_reg(op, A, X));
                self.out.bind(done);
            }
            Operand::X => {
                if divide {
                    self.out.jump_if(JumpOp::Eq, X, 0, self.reject);
                }
                self.out.push(Insn::alu32_reg(op, A, X));
            }
        }
    }

    fn conditional(
        &mut self,
        at: usize,
        condition: Condition,
        operand: Operand,
        yes: usize,
        no: usize,
    ) {
        let (op, inverse) = match condition {
            Condition::Equal => (JumpOp::Eq, Some(JumpOp::Ne)),
            Condition::Greater => (JumpOp::Gt, Some(JumpOp::Le)),
            Condition::GreaterOrEqual => (JumpOp::Ge, Some(JumpOp::Lt)),
            Condition::AnySet => (JumpOp::Set, None),
        };
        let insn = |op| match operand {
            Operand::K(k) => Insn::jump32_imm(op, A, k.cast_signed(), 0),
            Operand::X => Insn::jump32_reg(op, A, X, 0),
        };
        let next = Destination::At(at + 1);
        let (yes_label, no_label) = (self.label_at(yes), self.label_at(no));
        if resolve(self.program, no) == next {
            self.out.push_jump(insn(op), yes_label);
        } else if let (Some(inverse), true) = (inverse, resolve(self.program, yes) == next) {
            self.out.push_jump(insn(inverse), no_label);
        } else {
            self.out.push_jump(insn(op), yes_label);
            self.out.jump(no_label);
        }
    }
}

/// Stack address of a word of scratch memory (`k` below 16).
fn memory_at(k: u32) -> i16 {
    stack::MEMORY + 8 * k as i16 + 4
}
