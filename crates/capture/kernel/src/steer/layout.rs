//! The structs of `bpf/steer/steer.h`.

use std::net::IpAddr;

use skua_steer::{Action, Clock, Detector, Threshold, WhenLost};

use crate::{bindings::steer as c, flow::LinkKind, ticks::Ticks};
pub(super) use crate::{
    bindings::steer::{
        SteerChannel, SteerControl as Control, SteerEvent, SteerSample, SteerSettings as Settings,
    },
    plain::Plain,
};

fn nanoseconds(span: std::time::Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// Kind and amount.
fn threshold(threshold: Threshold) -> (u8, u32) {
    match threshold {
        Threshold::Shift(shift) => (c::STEER_SHIFT as u8, shift.into()),
        Threshold::Parts(parts) => (c::STEER_PARTS as u8, parts),
    }
}

impl Settings {
    /// `checks_target`: the program itself reads whether its target is up.
    pub(super) fn new(
        detector: &Detector,
        link: LinkKind,
        checks_target: bool,
        ticks: Ticks,
    ) -> Self {
        let (threshold_kind, threshold) = self::threshold(detector.threshold);
        let (release_kind, release) = self::threshold(detector.release);
        let mut settings = Self {
            hold: nanoseconds(detector.hold),
            tick_ns: ticks.length_ns as u64,
            tick_0: ticks.offset as u64,
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
            looks: checks_target.into(),
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
            Action::Report => c::STEER_REPORT,
            Action::Redirect(_) => c::STEER_REDIRECT,
            Action::Mirror(_) => c::STEER_MIRROR,
            Action::Mark(_) => c::STEER_MARK,
            Action::Drop => c::STEER_DROP,
        } as u8;
        if let Action::Mark(mark) = action {
            self.mark = *mark;
        }
        let Some(destination) = action.destination() else {
            return;
        };
        // A copy for a monitor is as the packet came.
        if matches!(action, Action::Redirect(_)) || destination.mac.is_some() {
            self.rewrite = c::STEER_REWRITE_MACS as u8;
        }
        if let Some(port) = destination.port {
            self.rewrite |= c::STEER_REWRITE_PORT as u8;
            self.port = port.to_be();
        }
        if let Some(address) = destination.address {
            self.rewrite |= c::STEER_REWRITE_ADDRESS as u8;
            match address {
                IpAddr::V4(four) => self.address[..4].copy_from_slice(&four.octets()),
                IpAddr::V6(six) => self.address = six.octets(),
            }
            self.address_six = address.is_ipv6().into();
        }
    }
}
