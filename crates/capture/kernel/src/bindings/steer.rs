//! Made of `bpf/steer/steer.h` by `tests/bindings.rs`: change those.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::AtomicU64;

pub const STEER_MOST: u64 = 1125899906842623;
pub const STEER_DEPTH: u32 = 64;
pub const STEER_TEXT: u32 = 20;
pub const STEER_DIGITS: u32 = 1000000000;
pub const STEER_REWRITE_MACS: u32 = 1;
pub const STEER_REWRITE_ADDRESS: u32 = 2;
pub const STEER_REWRITE_PORT: u32 = 4;
pub const STEER_SHIFT: SteerThreshold = 0;
pub const STEER_PARTS: SteerThreshold = 1;
pub type SteerThreshold = u32;
pub const STEER_REPORT: SteerAction = 0;
pub const STEER_REDIRECT: SteerAction = 1;
pub const STEER_MIRROR: SteerAction = 2;
pub const STEER_MARK: SteerAction = 3;
pub const STEER_DROP: SteerAction = 4;
pub type SteerAction = u32;
pub const STEER_MATCHED: SteerCount = 0;
pub const STEER_SAMPLED: SteerCount = 1;
pub const STEER_AGGREGATED: SteerCount = 2;
pub const STEER_NO_PAYLOAD: SteerCount = 3;
pub const STEER_FRAGMENT: SteerCount = 4;
pub const STEER_SHORT: SteerCount = 5;
pub const STEER_BEYOND: SteerCount = 6;
pub const STEER_CHANNEL: SteerCount = 7;
pub const STEER_NO_NUMBER: SteerCount = 8;
pub const STEER_OVERFLOW: SteerCount = 9;
pub const STEER_CONTENDED: SteerCount = 10;
pub const STEER_FIRED: SteerCount = 11;
pub const STEER_ACTED: SteerCount = 12;
pub const STEER_REPORTED: SteerCount = 13;
pub const STEER_NO_TARGET: SteerCount = 14;
pub const STEER_TOO_LONG: SteerCount = 15;
pub const STEER_REFUSED: SteerCount = 16;
pub const STEER_UNWATCHED: SteerCount = 17;
pub const STEER_EVENTS_LOST: SteerCount = 18;
pub const STEER_COUNTS: SteerCount = 19;
pub type SteerCount = u32;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct SteerSettings {
    pub hold: u64,
    pub tick_ns: u64,
    pub tick_0: u64,
    pub patience: u64,
    pub channels: u32,
    pub depth: u32,
    pub channel_offset: u32,
    pub value_offset: u32,
    pub threshold: u32,
    pub release: u32,
    pub warm_up: u32,
    pub mark: u32,
    pub from: u8,
    pub ethernet: u8,
    pub channel_width: u8,
    pub channel_encoding: u8,
    pub channel_little: u8,
    pub value_width: u8,
    pub value_encoding: u8,
    pub value_little: u8,
    pub fraction: u8,
    pub smoothing: u8,
    pub threshold_kind: u8,
    pub release_kind: u8,
    pub action: u8,
    pub rewrite: u8,
    pub exact_clock: u8,
    pub address_six: u8,
    pub port: u16,
    pub looks: u8,
    pub pad: [u8; 5],
    pub address: [u8; 16],
}

#[repr(C)]
pub struct SteerControl {
    pub heartbeat: AtomicU64,
    pub target: AtomicU32,
    pub peer: AtomicU32,
    pub macs: [AtomicU32; 3],
    pub pad: AtomicU32,
    pub flags: [AtomicU64; 2],
    pub state: AtomicU64,
}

#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct SteerDevice {
    pub ifindex: u32,
    pub veth: u32,
    pub flags: [u64; 2],
    pub state: u64,
}

#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct SteerChannel {
    pub word: u64,
    pub count: u64,
    pub fired: u64,
    pub until: u64,
    pub pad: [u64; 4],
}

#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct SteerSample {
    pub time: u64,
    pub value: i64,
}

#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct SteerEvent {
    pub time: u64,
    pub value: i64,
    pub before: i64,
    pub after: i64,
    pub count: u64,
    pub channel: u32,
    pub fired: u32,
}

crate::mapping::shared!(SteerControl);
crate::plain::plain!(
    SteerSettings,
    SteerDevice,
    SteerChannel,
    SteerSample,
    SteerEvent
);
