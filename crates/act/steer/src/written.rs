//! Detectors as people write them.

use std::time::Duration;

use serde::{Deserialize, Serialize, de};
use skua_filter::{Filter, LinkType};

use crate::{
    Action, ByteOrder, ChannelField, Clock, Destination, Detector, Encoding, From, MOST_CHANNELS,
    MOST_DEPTH, MOST_FRACTION, MOST_TEXT, Order, SteerError, Threshold, ValueField, Watchdog,
    WhenLost,
};

/// Bytes of a file at most.
const MOST_BYTES: usize = 1 << 20;
/// Detectors of a file at most.
const MOST_DETECTORS: usize = 64;
/// Offsets reach as far as a packet can be long.
const MOST_OFFSET: u32 = 65_535;
/// Ten-thousandths in 1 %.
const PARTS_PER_PERCENT: f64 = 100.0;
/// 1,000 %: more cannot be computed without overflow.
const MOST_PARTS: f64 = 100_000.0;
/// The only preset.
const EWMA_64: &str = "ewma-64";

/// The number of the channel, as written.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = ChannelField))]
pub struct WrittenChannel {
    /// Bytes from the beginning.
    offset: u32,
    /// 1, 2, 4 or 8 bytes.
    width: u8,
    /// Order of bytes.
    #[serde(default)]
    order: ByteOrder,
}

/// The value, as written.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = ValueField))]
pub struct WrittenValue {
    /// Bytes from the beginning.
    offset: u32,
    /// 1, 2, 4 or 8 bytes of an integer, characters of a decimal number at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    width: Option<u8>,
    /// How it is written.
    encoding: Encoding,
    /// Order of bytes.
    #[serde(default)]
    order: ByteOrder,
}

/// A threshold, as written: one of both.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = Threshold))]
pub struct WrittenThreshold {
    /// The average moves by more than itself, shifted right by this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    shift: Option<u8>,
    /// The average moves by more than this percentage of itself, 0.01 to 1000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    percent: Option<f64>,
}

/// An action, as written: one of these.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = SteerAction))]
pub struct WrittenAction {
    /// Only the event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    report: Option<bool>,
    /// Packets are redirected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    redirect: Option<Destination>,
    /// Copies are sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mirror: Option<Destination>,
    /// The packets' mark, for routing rules and nftables.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mark: Option<u32>,
    /// They are discarded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    drop: Option<bool>,
}

/// The guard, as written.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = Watchdog))]
pub struct WrittenWatchdog {
    /// What happens when user space does not answer.
    when_lost: WhenLost,
    /// Time without an answer, like `5s`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    after: Option<Span>,
}

/// A time like `5s`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span(Duration);

impl<'a> Deserialize<'a> for Span {
    fn deserialize<D: de::Deserializer<'a>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        humantime::parse_duration(&text).map(Self).map_err(|e| {
            de::Error::custom(format!(
                "\"{text}\" is not a duration ({e}); write it like 10s"
            ))
        })
    }
}

impl Serialize for Span {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&humantime::format_duration(self.0))
    }
}

/// A detector as written in a file: settings that are left out come from the preset or have a
/// default.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = Detector))]
pub struct Written {
    /// Unique among the detectors of a host.
    name: String,
    /// `ewma-64`: values of settings that are left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    preset: Option<String>,
    /// The interface that receives the packets.
    interface: String,
    /// Named network namespace; empty: that of `skua run`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    netns: String,
    /// pcap expression; empty: all packets.
    #[serde(rename = "match", default, skip_serializing_if = "Option::is_none")]
    expression: Option<String>,
    /// What offsets begin at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    from: Option<From>,
    /// Channels at most, up to 65,536.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    channels: Option<u32>,
    /// Position of the channel's number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    channel: Option<WrittenChannel>,
    /// Position of the value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value: Option<WrittenValue>,
    /// Bits of the fraction, up to 24.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fraction: Option<u8>,
    /// Values that the average is of, up to 64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ring: Option<u32>,
    /// The average moves by the difference, shifted right by this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    smoothing: Option<u8>,
    /// What makes a value a jump.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    threshold: Option<WrittenThreshold>,
    /// A move beyond this keeps a channel fired; the threshold when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    release: Option<WrittenThreshold>,
    /// Values behind the first ring that are not judged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    warm_up: Option<u32>,
    /// How long a channel stays fired at least, like `5s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    hold: Option<Span>,
    /// What happens to the packets of a channel that has fired.
    action: WrittenAction,
    /// Only reports what it would do.
    #[serde(default)]
    dry_run: bool,
    /// Guards against a user space that no longer answers.
    #[serde(default)]
    watchdog: WrittenWatchdog,
    /// Order among the programs of the interface.
    #[serde(default)]
    order: Order,
    /// By which clock samples are timed.
    #[serde(default)]
    clock: Clock,
}

/// Reads the detectors of a YAML file, one a document.
///
/// # Errors
///
/// The first mistake, with its position.
pub fn parse(text: &str) -> Result<Vec<Detector>, SteerError> {
    let all = parse_written(text)?;
    Ok(all.into_iter().map(|(_, detector)| detector).collect())
}

/// As [`parse`]; each also as it was written.
///
/// # Errors
///
/// As there.
pub fn parse_written(text: &str) -> Result<Vec<(Written, Detector)>, SteerError> {
    if text.len() > MOST_BYTES {
        let most = MOST_BYTES >> 20;
        return Err(SteerError::Yaml(format!("longer than {most} MiB")));
    }
    let mut detectors: Vec<(Written, Detector)> = Vec::new();
    for document in serde_yaml_ng::Deserializer::from_str(text) {
        let written = Option::<Written>::deserialize(document)
            .map_err(|error| SteerError::Yaml(error.to_string()))?;
        // A document that is empty.
        let Some(written) = written else { continue };
        if detectors.len() == MOST_DETECTORS {
            let text = format!("more than {MOST_DETECTORS} detectors in a file");
            return Err(SteerError::Yaml(text));
        }
        let detector = written.checked()?;
        if detectors
            .iter()
            .any(|(other, _)| other.name == detector.name)
        {
            return Err(place(&detector.name, "name", "is there twice"));
        }
        detectors.push((written, detector));
    }
    if detectors.is_empty() {
        return Err(SteerError::Yaml("no detector in the file".into()));
    }
    Ok(detectors)
}

fn place(detector: &str, place: &str, problem: impl Into<String>) -> SteerError {
    SteerError::Value {
        detector: detector.escape_debug().to_string(),
        place: place.into(),
        problem: problem.into(),
    }
}

impl Written {
    /// Name as it was written.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Applies the preset and the defaults, and checks all settings.
    ///
    /// # Errors
    ///
    /// The first setting that is not allowed.
    pub fn checked(&self) -> Result<Detector, SteerError> {
        let wrong = |key: &str, problem: String| place(&self.name, key, problem);
        self.check_name()?;
        let preset = match self.preset.as_deref() {
            None => false,
            Some(EWMA_64) => true,
            Some(other) => {
                let problem = format!("is \"{}\"; there is {EWMA_64}", other.escape_debug());
                return Err(wrong("preset", problem));
            }
        };
        let threshold = match &self.threshold {
            Some(written) => self.threshold("threshold", written)?,
            None => Threshold::Shift(3),
        };
        let release = match &self.release {
            Some(written) => self.threshold("release", written)?,
            None => threshold,
        };
        let expression = match (&self.expression, preset) {
            (Some(expression), _) => expression.trim().to_owned(),
            (None, true) => "udp".into(),
            (None, false) => String::new(),
        };
        let detector = Detector {
            name: self.name.clone(),
            interface: self.interface.clone(),
            netns: self.netns.clone(),
            expression,
            from: self.from.unwrap_or_default(),
            channels: self.within("channels", self.channels.unwrap_or(64), 1, MOST_CHANNELS)?,
            channel: self.channel(preset)?,
            value: self.value(preset)?,
            fraction: self.small("fraction", self.fraction.unwrap_or(8), 0, MOST_FRACTION)?,
            ring: self.within("ring", self.ring.unwrap_or(10), 1, MOST_DEPTH)?,
            smoothing: self.small("smoothing", self.smoothing.unwrap_or(3), 0, 32)?,
            threshold,
            release,
            warm_up: self.warm_up.unwrap_or(0),
            hold: self.span("hold", self.hold, Duration::ZERO, Duration::ZERO)?,
            action: self.action()?,
            dry_run: self.dry_run,
            watchdog: Watchdog {
                when_lost: self.watchdog.when_lost,
                after: self.span(
                    "watchdog.after",
                    self.watchdog.after,
                    Duration::from_secs(3),
                    Duration::from_millis(100),
                )?,
            },
            order: self.order,
            clock: self.clock,
        };
        detector.filter()?;
        Ok(detector)
    }

    fn check_name(&self) -> Result<(), SteerError> {
        let fits = |text: &str| !text.is_empty() && text.len() <= 64;
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if !fits(&self.name) || !self.name.chars().all(plain) {
            let problem = "must be 1 to 64 of letters, digits, - _ and .";
            return Err(place(&self.name, "name", problem));
        }
        self.check_interface("interface", &self.interface)?;
        let no_path = |c: char| c != '/' && !c.is_control();
        if self.netns.len() > 255 || !self.netns.chars().all(no_path) || self.netns == ".." {
            return Err(place(
                &self.name,
                "netns",
                "is not a name of a network namespace",
            ));
        }
        Ok(())
    }

    fn check_interface(&self, key: &str, name: &str) -> Result<(), SteerError> {
        // IFNAMSIZ counts the zero at the end.
        let fits = !name.is_empty() && name.len() < 16;
        if !fits || name.chars().any(|c| c == '/' || c.is_whitespace()) {
            return Err(place(&self.name, key, "must be the name of an interface"));
        }
        Ok(())
    }

    fn within(&self, key: &str, value: u32, least: u32, most: u32) -> Result<u32, SteerError> {
        match (least..=most).contains(&value) {
            true => Ok(value),
            false => {
                let problem = format!("is {value}, must be {least} to {most}");
                Err(place(&self.name, key, problem))
            }
        }
    }

    fn small(&self, key: &str, value: u8, least: u8, most: u8) -> Result<u8, SteerError> {
        let value = self.within(key, value.into(), least.into(), most.into())?;
        // The number was read from 8 bits.
        Ok(u8::try_from(value).unwrap_or(most))
    }

    fn span(
        &self,
        key: &str,
        span: Option<Span>,
        default: Duration,
        least: Duration,
    ) -> Result<Duration, SteerError> {
        const MOST: Duration = Duration::from_secs(86_400);
        let value = span.map_or(default, |Span(value)| value);
        match (least..=MOST).contains(&value) {
            true => Ok(value),
            false => {
                let text = humantime::format_duration;
                let problem = format!("must be {} to {}", text(least), text(MOST));
                Err(place(&self.name, key, problem))
            }
        }
    }

    fn whole_width(&self, key: &str, width: u8) -> Result<u8, SteerError> {
        match width {
            1 | 2 | 4 | 8 => Ok(width),
            _ => {
                let problem = format!("is {width}, must be 1, 2, 4 or 8");
                Err(place(&self.name, key, problem))
            }
        }
    }

    fn channel(&self, preset: bool) -> Result<Option<ChannelField>, SteerError> {
        match &self.channel {
            Some(written) => Ok(Some(ChannelField {
                offset: self.within("channel.offset", written.offset, 0, MOST_OFFSET)?,
                width: self.whole_width("channel.width", written.width)?,
                order: written.order,
            })),
            None if preset => Ok(Some(ChannelField {
                offset: 0,
                width: 2,
                order: ByteOrder::Big,
            })),
            None => Ok(None),
        }
    }

    fn value(&self, preset: bool) -> Result<ValueField, SteerError> {
        let Some(written) = &self.value else {
            if preset {
                return Ok(ValueField {
                    offset: 2,
                    width: MOST_TEXT,
                    encoding: Encoding::Decimal,
                    order: ByteOrder::Big,
                });
            }
            let problem = "is missing: where the value is, like {offset: 2, encoding: decimal}";
            return Err(place(&self.name, "value", problem));
        };
        let key = "value.width";
        let exactly = |width: u8| match written.width {
            None => Ok(width),
            Some(given) if given == width => Ok(width),
            Some(given) => {
                let problem = format!("is {given}, must be {width} for this encoding");
                Err(place(&self.name, key, problem))
            }
        };
        let width = match written.encoding {
            Encoding::Float => exactly(4)?,
            Encoding::Double => exactly(8)?,
            Encoding::Decimal => {
                self.small(key, written.width.unwrap_or(MOST_TEXT), 1, MOST_TEXT)?
            }
            Encoding::Unsigned | Encoding::Signed => match written.width {
                Some(width) => self.whole_width(key, width)?,
                None => return Err(place(&self.name, key, "is missing: 1, 2, 4 or 8")),
            },
        };
        Ok(ValueField {
            offset: self.within("value.offset", written.offset, 0, MOST_OFFSET)?,
            width,
            encoding: written.encoding,
            order: written.order,
        })
    }

    fn threshold(&self, key: &str, written: &WrittenThreshold) -> Result<Threshold, SteerError> {
        match (written.shift, written.percent) {
            (Some(shift), None) => Ok(Threshold::Shift(self.small(
                &format!("{key}.shift"),
                shift,
                0,
                63,
            )?)),
            (None, Some(percent)) => {
                let parts = (percent * PARTS_PER_PERCENT).round();
                if !(1.0..=MOST_PARTS).contains(&parts) {
                    let problem = format!("is {percent}, must be 0.01 to 1000");
                    return Err(place(&self.name, &format!("{key}.percent"), problem));
                }
                Ok(Threshold::Parts(parts as u32))
            }
            _ => Err(place(&self.name, key, "must have either shift or percent")),
        }
    }

    fn action(&self) -> Result<Action, SteerError> {
        let written = &self.action;
        let mut given = Vec::new();
        for (key, flag, action) in [
            ("report", written.report, Action::Report),
            ("drop", written.drop, Action::Drop),
        ] {
            match flag {
                Some(true) => given.push(action),
                Some(false) => {
                    let key = format!("action.{key}");
                    return Err(place(&self.name, &key, "can only be true"));
                }
                None => {}
            }
        }
        given.extend(written.mark.map(Action::Mark));
        given.extend(written.redirect.clone().map(Action::Redirect));
        given.extend(written.mirror.clone().map(Action::Mirror));
        let [action] = &given[..] else {
            let problem = "must be one of redirect, mirror, mark, drop and report";
            return Err(place(&self.name, "action", problem));
        };
        if let Some(destination) = action.destination() {
            let key = format!("action.{}", action.name());
            self.destination(&key, action, destination)?;
        }
        Ok(action.clone())
    }

    fn destination(
        &self,
        key: &str,
        action: &Action,
        destination: &Destination,
    ) -> Result<(), SteerError> {
        self.check_interface(&format!("{key}.to"), &destination.to)?;
        if destination.to == self.interface {
            let problem = "is the interface that packets come from";
            return Err(place(&self.name, &format!("{key}.to"), problem));
        }
        for (name, mac) in [
            ("mac", &destination.mac),
            ("source_mac", &destination.source_mac),
        ] {
            if mac.as_deref().is_some_and(|mac| read_mac(mac).is_none()) {
                let key = format!("{key}.{name}");
                let problem = "is not a MAC address; write it like 02:00:00:00:00:0b";
                return Err(place(&self.name, &key, problem));
            }
        }
        let rewrites = destination.address.is_some() || destination.port.is_some();
        if rewrites && matches!(action, Action::Mirror(_)) {
            let problem = "copies packets as they are: address and port are for redirect";
            return Err(place(&self.name, key, problem));
        }
        if destination.port == Some(0) {
            return Err(place(&self.name, &format!("{key}.port"), "must not be 0"));
        }
        Ok(())
    }
}

/// A MAC address of six hexadecimal numbers of two digits.
fn read_mac(text: &str) -> Option<[u8; 6]> {
    let mut mac = [0; 6];
    let mut parts = text.split(':');
    for byte in &mut mac {
        let part = parts.next().filter(|part| part.len() == 2)?;
        let hex = part.bytes().all(|b| b.is_ascii_hexdigit());
        *byte = u8::from_str_radix(part, 16).ok().filter(|_| hex)?;
    }
    parts.next().is_none().then_some(mac)
}

impl Destination {
    /// The MAC addresses to write: destination, source.
    pub fn macs(&self) -> (Option<[u8; 6]>, Option<[u8; 6]>) {
        let read = |text: &Option<String>| text.as_deref().and_then(read_mac);
        (read(&self.mac), read(&self.source_mac))
    }
}

impl Detector {
    /// The compiled expression; none when all packets match.
    ///
    /// # Errors
    ///
    /// libpcap rejects the expression.
    pub fn filter(&self) -> Result<Option<Filter>, SteerError> {
        if self.expression.is_empty() {
            return Ok(None);
        }
        match Filter::compile(&self.expression, LinkType::Ethernet) {
            Ok(filter) => Ok(Some(filter)),
            Err(source) => Err(SteerError::Match {
                detector: self.name.clone(),
                source: Box::new(source),
            }),
        }
    }
}
