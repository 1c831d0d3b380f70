use std::path::PathBuf;

/// Why lines cannot go to Kafka.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The name of the sink is not one.
    #[error("{0}: write it like kafka://broker:9092,other:9092/topic")]
    Name(&'static str),
    /// A topic cannot have this name.
    #[error("`{0}` cannot be a topic: up to 249 of letters, digits, `.`, `_` and `-`")]
    Topic(String),
    /// An option that there is not.
    #[error(
        "there is no option `{0}`; there are config, format, and the properties of librdkafka, which have a dot"
    )]
    Option(String),
    /// A format that there is not.
    #[error("there is no format `{0}`; there are json and protobuf")]
    Format(String),
    /// A property that Skua sets itself.
    #[error("`{0}` is set by Skua, so that nothing is lost or doubled")]
    Ours(String),
    /// A secret where others can see it.
    #[error(
        "`{0}` is a secret: others see it on the command line. Put it into a file (config=FILE) or into the \
         environment as {1}"
    )]
    Secret(String, String),
    /// A file with secrets that others can read.
    #[error("{0} has secrets and others may read it: chmod o-rwx {0}")]
    Readable(PathBuf),
    /// A file that cannot be read.
    #[error("{0}: {1}")]
    File(PathBuf, std::io::Error),
    /// A line of a file without `name=value`.
    #[error("{0}, line {1}: write it like name=value")]
    Line(PathBuf, usize),
    /// librdkafka rejects the settings.
    #[error("Kafka's client refuses its settings: {0}")]
    Client(String),
    /// The client is not built in.
    #[error("this build has no Kafka: build it with --features kafka")]
    NotBuilt,
}
