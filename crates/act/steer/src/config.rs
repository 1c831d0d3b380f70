//! A detector with all its settings, checked.

use std::{net::IpAddr, time::Duration};

use serde::Serialize;

/// Channels of a detector at most.
pub const MOST_CHANNELS: u32 = 65_536;
/// Samples in the ring of a channel at most (`STEER_DEPTH` of `bpf/steer/steer.h`).
pub const MOST_DEPTH: u32 = 64;
/// Bits behind the point of a sample at most.
pub const MOST_FRACTION: u8 = 24;
/// Characters of a decimal number at most (`STEER_TEXT`).
pub const MOST_TEXT: u8 = 20;

/// What offsets begin at.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = OffsetBase))]
#[serde(rename_all = "lowercase")]
pub enum From {
    /// What UDP or TCP carries.
    #[default]
    Payload,
    /// The header of IP.
    Ip,
    /// The frame.
    Frame,
}

/// Order of bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum ByteOrder {
    /// Network order.
    #[default]
    Big,
    /// Least significant byte first.
    Little,
}

/// How a value is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Encoding {
    /// Unsigned integer of 1, 2, 4 or 8 bytes.
    Unsigned,
    /// Two's complement of 1, 2, 4 or 8 bytes.
    Signed,
    /// IEEE 754 binary32.
    Float,
    /// IEEE 754 binary64.
    Double,
    /// ASCII, like `-12.5`.
    Decimal,
}

impl Encoding {
    /// Number in `bpf/steer/steer.h`.
    pub fn number(self) -> u8 {
        self as u8
    }
}

/// Position of the channel's number: an unsigned integer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct ChannelField {
    /// Bytes from where offsets begin.
    pub offset: u32,
    /// 1, 2, 4 or 8 bytes.
    pub width: u8,
    /// Order of bytes.
    pub order: ByteOrder,
}

/// Position of the value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct ValueField {
    /// Bytes from where offsets begin.
    pub offset: u32,
    /// Bytes; of a decimal number the most.
    pub width: u8,
    /// How it is written.
    pub encoding: Encoding,
    /// Order of bytes.
    pub order: ByteOrder,
}

/// How much the average must move, relative to the average before.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Threshold {
    /// More than the average shifted right by this.
    Shift(u8),
    /// More than this many ten-thousandths of the average.
    Parts(u32),
}

/// Where packets are sent, and which MAC addresses are written into them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Destination {
    /// Interface: of a pod the host's end of its veth pair.
    pub to: String,
    /// Destination MAC address; else that of the other end of a veth pair.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// Source MAC address; else that of `to`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_mac: Option<String>,
    /// Destination address; only for redirect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub address: Option<IpAddr>,
    /// Destination port; only for redirect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
}

/// What happens to the packets of a channel that has fired.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// The event is reported and the packets pass.
    Report,
    /// Packets are redirected.
    Redirect(Destination),
    /// Copies are sent.
    Mirror(Destination),
    /// The packet's mark is set.
    Mark(u32),
    /// They are discarded.
    Drop,
}

impl Action {
    /// Name as in files.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Report => "report",
            Self::Redirect(_) => "redirect",
            Self::Mirror(_) => "mirror",
            Self::Mark(_) => "mark",
            Self::Drop => "drop",
        }
    }

    /// Where packets or copies are sent, if anywhere.
    pub fn destination(&self) -> Option<&Destination> {
        match self {
            Self::Redirect(destination) | Self::Mirror(destination) => Some(destination),
            _ => None,
        }
    }
}

/// What happens to the action when user space no longer answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum WhenLost {
    /// Packets pass again.
    #[default]
    Release,
    /// The action continues while the program is attached.
    Stay,
}

/// Guards against a user space that no longer answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Watchdog {
    /// What happens then.
    pub when_lost: WhenLost,
    /// Time without an answer.
    #[serde(with = "humantime_text")]
    pub after: Duration,
}

/// Order among the programs of the interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = ProgramOrder))]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// After the present programs: they see each packet first and may decide about it.
    #[default]
    Last,
    /// Before the present programs.
    First,
}

/// By which clock samples are timed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Clock {
    /// The kernel's tick, 1 to 10 ms: almost free.
    #[default]
    Coarse,
    /// Nanoseconds.
    Exact,
}

/// A detector.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Detector {
    /// Unique among the detectors of a host.
    pub name: String,
    /// The interface that receives the packets.
    pub interface: String,
    /// Named network namespace that it is in; empty: that of `skua run`.
    pub netns: String,
    /// pcap expression; empty: all packets.
    #[serde(rename = "match")]
    pub expression: String,
    /// What offsets begin at.
    pub from: From,
    /// Number of channels.
    pub channels: u32,
    /// None: all packets are of channel 0.
    pub channel: Option<ChannelField>,
    /// The value.
    pub value: ValueField,
    /// Bits behind the point of samples and averages.
    pub fraction: u8,
    /// Samples in the ring of a channel; a channel cannot fire before its ring is full.
    pub ring: u32,
    /// The average moves by the difference to the sample >> this.
    pub smoothing: u8,
    /// What fires.
    pub threshold: Threshold,
    /// The channel stays fired while the average exceeds this; default: `threshold`.
    pub release: Threshold,
    /// Samples behind the first full ring that are not judged either.
    pub warm_up: u32,
    /// Least time that a channel stays fired.
    #[serde(with = "humantime_text")]
    pub hold: Duration,
    /// What happens to the packets of a channel that has fired.
    pub action: Action,
    /// Everything runs, except the action.
    pub dry_run: bool,
    /// Guard.
    pub watchdog: Watchdog,
    /// Order among the programs of the interface.
    pub order: Order,
    /// By which clock.
    pub clock: Clock,
}

/// Durations as text, like `10s`.
pub(crate) mod humantime_text {
    use std::time::Duration;

    use serde::Serializer;

    pub fn serialize<S: Serializer>(value: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&humantime::format_duration(*value))
    }
}
