//! What is wrong with a detector.

/// Why a detector cannot be taken.
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
        /// What is wrong, and what would be right.
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
