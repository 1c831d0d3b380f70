//! In place of `sys.rs` where DPDK is not linked: nothing can be started, so nothing else is called.
#![allow(dead_code, reason = "so that all else is compiled in the same way")]

use std::ffi::{CStr, CString};

use crate::port::{Packet, PortInfo, PortStats};

/// Whether DPDK is linked.
pub const BUILT: bool = false;

/// ENOSYS.
const MISSING: i32 = -38;

pub(crate) fn start(_: Vec<CString>) -> Result<(), i32> {
    Err(MISSING)
}

pub(crate) fn find(_: &CStr) -> Option<u16> {
    None
}

pub(crate) fn probe(_: &CStr) -> Result<(), i32> {
    Err(MISSING)
}

pub(crate) struct Opened {
    pub(crate) queues: u16,
}

impl Opened {
    pub(crate) fn open(_: u16, _: u16, _: u16, _: bool) -> Result<Self, i32> {
        Err(MISSING)
    }

    pub(crate) fn info(&self) -> Result<PortInfo, i32> {
        Err(MISSING)
    }

    pub(crate) fn stats(&self) -> Result<PortStats, i32> {
        Err(MISSING)
    }
}

#[derive(Default)]
pub(crate) struct Buffers {
    _none: (),
}

impl Buffers {
    pub(crate) fn receive(&mut self, _: &Opened, _: u16) -> usize {
        0
    }

    pub(crate) fn packet(&self, _: usize) -> Packet<'_> {
        Packet::default()
    }

    pub(crate) fn free(&mut self) {}
}

pub(crate) struct Registered;

impl Registered {
    pub(crate) fn new() -> Option<Self> {
        None
    }
}
