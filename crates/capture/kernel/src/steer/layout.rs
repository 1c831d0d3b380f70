//! The structs of `bpf/steer/steer.h`.

use std::{
    net::IpAddr,
    sync::atomic::{AtomicU32, AtomicU64},
};

use skua_steer::{Action, Clock, Detector, Threshold, WhenLost};

use crate::{flow::LinkKind, mapping::Shared};

/// `enum steer_count`, without those of [`skua_steer::Cause`], which stand from 2 on.
pub(super) const MATCHED: usize = 0;
pub(super) const SAMPLED: usize = 1;
pub(super) const CAUSES: usize = 2;
pub(super) const FIRED: usize = 11;
pub(super) const FATES: usize = 12;
pub(super) const EVENTS_LOST: usize = 18;
pub(super) const COUNTS: usize = 19;

const REWRITE_MACS: u8 = 1;
const REWRITE_ADDRESS: u8 = 2;
const REWRITE_PORT: u8 = 4;

/// `struct steer_settings`.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Settings {
    hold: u64,
    patience: u64,
    channels: u32,
    depth: u32,
    channel_offset: u32,
    value_offset: u32,
    threshold: u32,
    release: u32,
    warm_up: u32,
    mark: u32,
    from: u8,
    ethernet: u8,
    channel_width: u8,
    channel_encoding: u8,
    channel_little: u8,
    value_width: u8,
    value_encoding: u8,
    value_little: u8,
    fraction: u8,
    smoothing: u8,
    threshold_kind: u8,
    release_kind: u8,
    action: u8,
    rewrite: u8,
    exact_clock: u8,
    address_six: u8,
    /// Network order.
    port: u16,
    looks: u8,
    pad: [u8; 5],
    address: [u8; 16],
}

const _: () = assert!(size_of::<Settings>() == 88);

fn nanoseconds(span: std::time::Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// Kind and amount.
fn threshold(threshold: Threshold) -> (u8, u32) {
    match threshold {
        Threshold::Shift(shift) => (0, shift.into()),
        Threshold::Parts(parts) => (1, parts),
    }
}

impl Settings {
    /// `looks`: the program looks itself whether its target is up.
    pub(super) fn new(detector: &Detector, link: LinkKind, looks: bool) -> Self {
        let (threshold_kind, threshold) = self::threshold(detector.threshold);
        let (release_kind, release) = self::threshold(detector.release);
        let mut settings = Self {
            hold: nanoseconds(detector.hold),
            patience: match detector.watchdog.when_lost {
                WhenLost::Release => nanoseconds(detector.watchdog.after),
                WhenLost::Stay => 0,
            },
            channels: detector.channels,
            depth: detector.ring,
            value_offset: detector.value.offset,
            threshold,
            release,
            warm_up: detector.warm_up,
            from: detector.from as u8,
            ethernet: (link == LinkKind::Ethernet).into(),
            value_width: detector.value.width,
            value_encoding: detector.value.encoding.number(),
            value_little: detector.value.order as u8,
            fraction: detector.fraction,
            smoothing: detector.smoothing,
            threshold_kind,
            release_kind,
            exact_clock: (detector.clock == Clock::Exact).into(),
            looks: looks.into(),
            ..Self::default()
        };
        if let Some(channel) = &detector.channel {
            settings.channel_offset = channel.offset;
            settings.channel_width = channel.width;
            settings.channel_little = channel.order as u8;
        }
        if !detector.dry_run {
            settings.set_action(&detector.action);
        }
        settings
    }

    fn set_action(&mut self, action: &Action) {
        self.action = match action {
            Action::Report => 0,
            Action::Redirect(_) => 1,
            Action::Mirror(_) => 2,
            Action::Mark(_) => 3,
            Action::Drop => 4,
        };
        if let Action::Mark(mark) = action {
            self.mark = *mark;
        }
        let Some(destination) = action.destination() else {
            return;
        };
        // A copy for a monitor is as the packet came.
        if matches!(action, Action::Redirect(_)) || destination.mac.is_some() {
            self.rewrite = REWRITE_MACS;
        }
        if let Some(port) = destination.port {
            self.rewrite |= REWRITE_PORT;
            self.port = port.to_be();
        }
        if let Some(address) = destination.address {
            self.rewrite |= REWRITE_ADDRESS;
            match address {
                IpAddr::V4(four) => self.address[..4].copy_from_slice(&four.octets()),
                IpAddr::V6(six) => self.address = six.octets(),
            }
            self.address_six = address.is_ipv6().into();
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: repr(C) without padding: all 88 bytes are initialised.
        unsafe { std::slice::from_raw_parts((&raw const *self).cast(), size_of::<Self>()) }
    }
}

/// `struct steer_control`.
#[repr(C)]
pub(super) struct Control {
    pub(super) heartbeat: AtomicU64,
    pub(super) target: AtomicU32,
    pub(super) peer: AtomicU32,
    pub(super) macs: [AtomicU32; 3],
    pub(super) pad: AtomicU32,
    pub(super) flags: [AtomicU64; 2],
    pub(super) state: AtomicU64,
}

const _: () = assert!(size_of::<Control>() == 56);

// SAFETY: all fields are atomics, every bit pattern is valid.
unsafe impl Shared for Control {}

/// Reads integers one after the other.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        match self.0.split_first_chunk() {
            Some((bytes, rest)) => {
                self.0 = rest;
                *bytes
            }
            None => [0; N],
        }
    }

    pub(super) fn u32(&mut self) -> u32 {
        u32::from_ne_bytes(self.take())
    }

    pub(super) fn u64(&mut self) -> u64 {
        u64::from_ne_bytes(self.take())
    }

    pub(super) fn i64(&mut self) -> i64 {
        i64::from_ne_bytes(self.take())
    }
}
