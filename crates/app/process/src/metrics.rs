//! Metrics, in the text format of OpenMetrics 1.0 by `prometheus-client`.
//!
//! A metric is declared once, beside its counter, with `metrics!`: name, labels, unit and help. Only declared metrics
//! can be written, so `docs/metrics.md`, generated from the declarations, is complete.

use std::fmt;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text},
    metrics::MetricType,
    registry::{Registry, Unit},
};

/// The media type of what `Exposition` writes.
pub const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What a value does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only grows while the process lives; its name ends with `_total`.
    Counter,
    /// A value that rises and falls.
    Gauge,
}

impl Kind {
    /// Its name in OpenMetrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
        }
    }
}

/// A metric's declaration.
#[derive(Clone, Copy, Debug)]
pub struct Description {
    /// The name under which samples are served. `_bytes` and `_seconds` in it are its unit.
    pub name: &'static str,
    pub kind: Kind,
    /// One sentence.
    pub help: &'static str,
    pub labels: &'static [&'static str],
}

impl Description {
    /// The base unit; none: it is a number of something.
    pub fn unit(&self) -> Option<&'static str> {
        let stem = self.stem();
        ["bytes", "seconds"]
            .into_iter()
            .find(|unit| stem.strip_suffix(unit).is_some_and(|s| s.ends_with('_')))
    }

    /// The name without `_total`.
    fn stem(&self) -> &'static str {
        self.name.strip_suffix("_total").unwrap_or(self.name)
    }
}

/// A metric with `L` labels.
#[derive(Debug)]
pub struct Metric<const L: usize>(Description);

impl<const L: usize> Metric<L> {
    /// For `metrics!`.
    pub const fn new(
        kind: Kind,
        name: &'static str,
        labels: &'static [&'static str; L],
        help: &'static str,
    ) -> Self {
        Self(Description {
            name,
            kind,
            help,
            labels,
        })
    }

    pub const fn description(&self) -> &Description {
        &self.0
    }
}

/// Metrics that are declared together.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    /// What they are of, as the title of a table.
    pub title: &'static str,
    pub metrics: &'static [&'static Description],
}

/// Declares metrics, and `METRICS`, the group of all of them:
///
/// ```
/// skua_process::metrics! { "The cache"
///     HITS counter "skua_cache_hits_total" ["level"] "Questions that the cache answered.";
///     USED gauge "skua_cache_used_bytes" [] "Memory of the cache.";
/// }
/// let mut out = skua_process::metrics::Exposition::default();
/// out.family(&HITS).value(["1"], 7_u64);
/// out.single(&USED, 4096_u64);
/// assert!(out.into_text().contains("skua_cache_hits_total{level=\"1\"} 7\n"));
/// ```
#[macro_export]
macro_rules! metrics {
    ($title:literal $($id:ident $kind:ident $name:literal [$($label:literal),*] $help:literal;)+) => {
        $(
            #[doc = $help]
            pub static $id: $crate::metrics::Metric<{ <[&str]>::len(&[$($label),*]) }> =
                $crate::metrics::Metric::new($crate::metrics!(@$kind), $name, &[$($label),*], $help);
        )+
        #[doc = "All of these."]
        pub static METRICS: $crate::metrics::Group = $crate::metrics::Group {
            title: $title,
            metrics: &[$($id.description()),+],
        };
    };
    (@counter) => { $crate::metrics::Kind::Counter };
    (@gauge) => { $crate::metrics::Kind::Gauge };
}

/// A value of a metric.
#[derive(Clone, Copy, Debug)]
pub enum Number {
    Integer(u64),
    Real(f64),
}

impl From<u64> for Number {
    fn from(value: u64) -> Self {
        Self::Integer(value)
    }
}

impl From<u32> for Number {
    fn from(value: u32) -> Self {
        Self::Integer(value.into())
    }
}

impl From<usize> for Number {
    fn from(value: usize) -> Self {
        Self::Integer(value as u64)
    }
}

/// 1 when it is so.
impl From<bool> for Number {
    fn from(value: bool) -> Self {
        Self::Integer(value.into())
    }
}

impl From<f64> for Number {
    fn from(value: f64) -> Self {
        Self::Real(value)
    }
}

#[derive(Debug)]
struct Family {
    of: &'static Description,
    samples: Vec<(Vec<String>, Number)>,
}

/// Values of metrics at a moment.
#[derive(Debug, Default)]
pub struct Exposition(Families);

#[derive(Debug, Default)]
struct Families(Vec<Family>);

/// Writes the samples of a metric.
pub struct Samples<'a, const L: usize>(&'a mut Family);

impl<const L: usize> Samples<'_, L> {
    /// The value for these labels, in the order in which they are declared.
    pub fn value(&mut self, labels: [&str; L], value: impl Into<Number>) {
        let labels = labels.map(str::to_owned).into();
        self.0.samples.push((labels, value.into()));
    }
}

impl Exposition {
    /// Begins the samples of a metric; at most once for each.
    pub fn family<const L: usize>(&mut self, metric: &'static Metric<L>) -> Samples<'_, L> {
        let Families(all) = &mut self.0;
        all.push(Family {
            of: &metric.0,
            samples: Vec::new(),
        });
        let last = all.len() - 1;
        Samples(&mut all[last])
    }

    /// The one sample of a metric without labels.
    pub fn single(&mut self, metric: &'static Metric<0>, value: impl Into<Number>) {
        self.family(metric).value([], value);
    }

    /// All metrics as text.
    pub fn into_text(self) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self.0));
        let mut out = String::new();
        // Writing to a `String` cannot fail.
        let _ = text::encode(&mut out, &registry);
        out
    }
}

impl Collector for Families {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for Family { of, samples } in &self.0 {
            let unit = of.unit().map(|unit| Unit::Other(unit.to_owned()));
            let stem = of.stem();
            let name = match of.unit() {
                Some(unit) => &stem[..stem.len() - unit.len() - 1],
                None => stem,
            };
            let kind = match of.kind {
                Kind::Counter => MetricType::Counter,
                Kind::Gauge => MetricType::Gauge,
            };
            let mut metric = encoder.encode_descriptor(name, of.help, unit.as_ref(), kind)?;
            for (values, number) in samples {
                let labels: Vec<_> = of
                    .labels
                    .iter()
                    .copied()
                    .zip(values.iter().map(|v| &**v))
                    .collect();
                if labels.is_empty() {
                    encode(&mut metric, of.kind, *number)?;
                } else {
                    encode(&mut metric.encode_family(&labels)?, of.kind, *number)?;
                }
            }
        }
        Ok(())
    }
}

fn encode(sample: &mut MetricEncoder<'_>, kind: Kind, number: Number) -> Result<(), fmt::Error> {
    match (kind, number) {
        (Kind::Counter, Number::Integer(value)) => {
            sample.encode_counter::<NoLabelSet, _, u64>(&value, None)
        }
        (Kind::Counter, Number::Real(value)) => {
            sample.encode_counter::<NoLabelSet, _, u64>(&value, None)
        }
        (Kind::Gauge, Number::Integer(value)) => sample.encode_gauge(&value),
        (Kind::Gauge, Number::Real(value)) => sample.encode_gauge(&value),
    }
}

/// A table of each group, for `docs/metrics.md`.
pub fn documentation(groups: &[Group]) -> String {
    let mut text = String::new();
    for group in groups {
        text += &format!(
            "\n## {}\n\n| metric | type | unit | labels | |\n|---|---|---|---|---|\n",
            group.title
        );
        for one in group.metrics {
            let labels: Vec<_> = one
                .labels
                .iter()
                .map(|label| format!("`{label}`"))
                .collect();
            text += &format!(
                "| `{}` | {} | {} | {} | {} |\n",
                one.name,
                one.kind.name(),
                one.unit().unwrap_or_default(),
                labels.join(", "),
                one.help,
            );
        }
    }
    text
}

/// Violations of Prometheus' conventions in declarations, a line each.
pub fn faults(groups: &[Group]) -> Vec<String> {
    let mut faults = Vec::new();
    let mut names = std::collections::HashSet::new();
    for one in groups.iter().flat_map(|group| group.metrics) {
        let mut fault = |text: &str| faults.push(format!("{}: {text}", one.name));
        if !names.insert(one.name) {
            fault("declared twice");
        }
        if !["skua_", "process_"]
            .iter()
            .any(|prefix| one.name.starts_with(prefix))
        {
            fault("begins neither with skua_ nor, as of any program, with process_");
        }
        if (one.kind == Kind::Counter) != one.name.ends_with("_total") {
            fault("counters, and they alone, end with _total");
        }
        let odd = [
            "_ms",
            "_us",
            "_ns",
            "_milliseconds",
            "_nanoseconds",
            "_kib",
            "_percent",
        ];
        if odd.iter().any(|unit| one.stem().ends_with(unit)) {
            fault("units are base units: seconds, bytes, ratios");
        }
        if !one.help.ends_with('.') {
            fault("its help is not a sentence");
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::metrics! { "Things"
        MADE counter "skua_things_made_total" ["kind", "why"] "Things that were made.";
        MEMORY gauge "skua_things_memory_bytes" [] "Memory of things.";
        TIME counter "skua_things_cpu_seconds_total" [] "CPU time that things took.";
        LEFT gauge "skua_things_left" ["kind"] "Things that are left.";
    }

    #[test]
    fn metrics_are_written_as_openmetrics_with_units_and_escaped_labels() {
        let mut out = Exposition::default();
        let mut made = out.family(&MADE);
        made.value(["a\"b", "c\\d\n"], 7_u64);
        made.value(["e", ""], 0_u64);
        out.single(&MEMORY, 4096_usize);
        out.single(&TIME, 1.5);
        out.family(&LEFT);
        let expected = "\
# HELP skua_things_made Things that were made.
# TYPE skua_things_made counter
skua_things_made_total{kind=\"a\\\"b\",why=\"c\\\\d\\n\"} 7
skua_things_made_total{kind=\"e\",why=\"\"} 0
# HELP skua_things_memory_bytes Memory of things.
# TYPE skua_things_memory_bytes gauge
# UNIT skua_things_memory_bytes bytes
skua_things_memory_bytes 4096
# HELP skua_things_cpu_seconds CPU time that things took.
# TYPE skua_things_cpu_seconds counter
# UNIT skua_things_cpu_seconds seconds
skua_things_cpu_seconds_total 1.5
# HELP skua_things_left Things that are left.
# TYPE skua_things_left gauge
# EOF
";
        assert_eq!(out.into_text(), expected);
    }

    #[test]
    fn declarations_against_the_conventions_are_named() {
        crate::metrics! { "Bad"
            TWICE gauge "skua_things_left" [] "Again.";
            COUNTER counter "skua_bad" [] "A counter.";
            MILLI gauge "bad_ms" [] "Not a sentence";
        }
        assert!(faults(&[super::tests::METRICS]).is_empty());
        let bad = METRICS;
        assert_eq!(TWICE.description().labels.len(), 0);
        assert_eq!((COUNTER.0.name, MILLI.0.name), ("skua_bad", "bad_ms"));
        let found = faults(&[super::tests::METRICS, bad]);
        assert_eq!(found.len(), 5, "{found:?}");
    }

    #[test]
    fn the_inventory_has_a_row_for_each() {
        let text = documentation(&[METRICS]);
        assert!(text.contains("\n## Things\n"), "{text}");
        let row = "| `skua_things_memory_bytes` | gauge | bytes |  | Memory of things. |\n";
        assert!(text.contains(row), "{text}");
        let row =
            "| `skua_things_made_total` | counter |  | `kind`, `why` | Things that were made. |\n";
        assert!(text.contains(row), "{text}");
    }
}
