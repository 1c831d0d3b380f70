//! Errors in a detector's definition.

/// Why a detector is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SteerError {
    /// The file is no YAML, or has other keys or kinds of values.
    #[error("{0}")]
    Yaml(String),
    /// A value cannot be.
    #[error("detector \"{detector}\": {place} {problem}")]
    Value {
        /// Name of the detector.
        detector: String,
        /// Which key, like `value.width`.
        place: String,
        /// What is wrong, and the values that are allowed.
        problem: String,
    },
    /// The pcap expression is wrong.
    #[error("detector \"{detector}\": match: {source}")]
    Match {
        /// Name of the detector.
        detector: String,
        /// libpcap's reason.
        source: Box<skua_filter::FilterError>,
    },
}
