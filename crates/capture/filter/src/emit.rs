//! Instruction list with labels: jumps are written before their target is known.

use crate::insn::{Insn, JumpOp};
use crate::translate::TranslateError;

/// A place in the program, bound by [`Emitter::bind`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Label(usize);

#[derive(Debug, Default)]
pub(crate) struct Emitter {
    insns: Vec<Insn>,
    /// Index of the instruction at each label.
    labels: Vec<Option<usize>>,
    /// Jumps, and their labels.
    jumps: Vec<(usize, Label)>,
}

impl Emitter {
    pub(crate) fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// Puts the label at the next instruction.
    pub(crate) fn bind(&mut self, label: Label) {
        let here = self.insns.len();
        if let Some(place) = self.labels.get_mut(label.0) {
            *place = Some(here);
        }
    }

    pub(crate) fn push(&mut self, insn: Insn) {
        self.insns.push(insn);
    }

    pub(crate) fn extend(&mut self, insns: &[Insn]) {
        self.insns.extend_from_slice(insns);
    }

    /// Adds a jump instruction (of any kind); its distance is set by [`Emitter::finish`].
    pub(crate) fn push_jump(&mut self, insn: Insn, label: Label) {
        self.jumps.push((self.insns.len(), label));
        self.insns.push(insn);
    }

    pub(crate) fn jump(&mut self, label: Label) {
        self.push_jump(Insn::jump(0), label);
    }

    /// Jumps if the 64-bit register compares so with the immediate.
    pub(crate) fn jump_if(&mut self, op: JumpOp, register: u8, imm: i32, label: Label) {
        self.push_jump(Insn::jump64_imm(op, register, imm, 0), label);
    }

    /// True if a jump so far goes to the label. The verifier rejects unreachable instructions.
    pub(crate) fn is_used(&self, label: Label) -> bool {
        self.jumps.iter().any(|&(_, to)| to == label)
    }

    /// Fills in the distances.
    pub(crate) fn finish(mut self) -> Result<Vec<Insn>, TranslateError> {
        let length = self.insns.len();
        for &(at, label) in &self.jumps {
            let target = self
                .labels
                .get(label.0)
                .copied()
                .flatten()
                .unwrap_or(length);
            let distance = target as i64 - (at as i64 + 1);
            let insn = self
                .insns
                .get_mut(at)
                .ok_or(TranslateError::TooLong { length })?;
            insn.off = i16::try_from(distance).map_err(|_| TranslateError::TooLong { length })?;
        }
        Ok(self.insns)
    }
}
