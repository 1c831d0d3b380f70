//! Made of `bpf/tap/tap.h`, `bpf/tap/sockets.h` by `tests/bindings.rs`: change those.

pub const TAP_HOSTS4: u32 = 1;
pub const TAP_HOSTS6: u32 = 2;
pub const TAP_PREFIXES4: u32 = 4;
pub const TAP_PREFIXES6: u32 = 8;
pub const TAP_MACS: u32 = 16;
pub const TAP_SOCKETS: u32 = 32;
pub const TAP_DEDUP: u32 = 64;
pub const TAP_RATE: u32 = 128;
pub const TAP_BALANCE: u32 = 256;
pub const TAP_PARTIES: u32 = 31;
pub const ROLE_SOURCE: u32 = 1;
pub const ROLE_DESTINATION: u32 = 2;
pub const OUTPUTS: u32 = 64;
pub const MAX_SOURCES: u32 = 1024;
pub const HOST_BITS: u32 = 19;
pub const HOST_FACTOR: u32 = 2654435761;
pub const FROM_EGRESS: u32 = 2147483648;
pub const TAP_DUPLICATE: TapCause = 0;
pub const TAP_SAMPLED: TapCause = 1;
pub const TAP_RATE_LIMIT: TapCause = 2;
pub const TAP_NO_MONITOR: TapCause = 3;
pub const TAP_FULL: TapCause = 4;
pub const TAP_TOO_BIG: TapCause = 5;
pub const TAP_FAILED: TapCause = 6;
pub const TAP_COPY: TapCause = 7;
pub const TAP_CAUSES: TapCause = 8;
pub type TapCause = u32;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct TapCount {
    pub packets: u64,
    pub bytes: u64,
}

#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct TapCounters {
    pub matched: TapCount,
    pub copied: TapCount,
    pub dropped: [TapCount; 8],
}

#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct TapMonitorCounters {
    pub sent: TapCount,
    pub cut: TapCount,
    pub too_big: TapCount,
    pub failed: TapCount,
    pub strange: TapCount,
}

#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct TapSettings {
    pub process: u32,
    pub tap: u32,
    pub flags: u32,
    pub sampling: u32,
    pub packet_time: u64,
    pub bit_time: u64,
    pub burst: u64,
    pub cut: u32,
    pub vlan: u32,
}

#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct TapSource {
    pub number: u32,
    pub tapped: u32,
}

#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct TapOutput {
    pub ifindex: u32,
    pub monitor: u32,
    pub mtu: u32,
    pub pad: u32,
}

pub const TAP_PLAIN: TapEncapsulation = 0;
pub const TAP_VXLAN: TapEncapsulation = 1;
pub const TAP_GENEVE: TapEncapsulation = 2;
pub const TAP_ERSPAN: TapEncapsulation = 3;
pub type TapEncapsulation = u32;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct TapMonitor {
    pub ifindex: u32,
    pub mtu: u32,
    pub encapsulation: u32,
    pub id: u32,
    pub remote: [u8; 16],
    pub local: [u8; 16],
    pub remote_mac: [u8; 6],
    pub local_mac: [u8; 6],
    pub port: u16,
    pub ipv6: u8,
    pub ttl: u8,
}

#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct TapPacket {
    pub time: u64,
    pub length: u32,
    pub captured: u32,
    pub source: u32,
    pub tag_protocol: u16,
    pub tag: u16,
}

#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct TapSocket {
    pub local: [u8; 16],
    pub remote: [u8; 16],
    pub local_port: u16,
    pub remote_port: u16,
    pub protocol: u8,
    pub pad: [u8; 3],
}

pub const TASK_PROCESS: TapTaskKind = 0;
pub const TASK_NAME: TapTaskKind = 1;
pub const TASK_GROUP: TapTaskKind = 2;
pub type TapTaskKind = u32;
crate::plain::plain!(
    TapCount,
    TapCounters,
    TapMonitorCounters,
    TapSettings,
    TapSource,
    TapOutput,
    TapMonitor,
    TapPacket,
    TapSocket
);
