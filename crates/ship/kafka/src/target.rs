//! The target on the command line.

use std::{path::PathBuf, str::FromStr};

use crate::{Error, settings};

/// What a message is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Format {
    /// `proto/skua/collect/v1/line.proto`.
    #[default]
    Protobuf,
    /// As on standard output.
    Json,
}

impl FromStr for Format {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            "protobuf" => Ok(Self::Protobuf),
            "json" => Ok(Self::Json),
            _ => Err(Error::Format(text.to_owned())),
        }
    }
}

/// `kafka://broker:9092,other:9092/topic?option=value&…`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    /// Bootstrap brokers, separated by commas.
    pub brokers: String,
    /// Topic.
    pub topic: String,
    /// What messages are.
    pub format: Format,
    /// File with more properties.
    pub config: Option<PathBuf>,
    /// Properties of librdkafka.
    pub properties: Vec<(String, String)>,
}

/// Kafka's longest topic name.
const TOPIC: usize = 249;

impl FromStr for Target {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let rest = text
            .strip_prefix("kafka://")
            .ok_or(Error::Name("this is not a name of a Kafka topic"))?;
        let (place, options) = rest.split_once('?').unwrap_or((rest, ""));
        let (brokers, topic) = place
            .split_once('/')
            .ok_or(Error::Name("a topic is missing"))?;
        if brokers.split(',').any(|broker| broker.trim().is_empty()) {
            return Err(Error::Name("a broker is missing"));
        }
        let letter = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if topic.is_empty()
            || topic.len() > TOPIC
            || matches!(topic, "." | "..")
            || !topic.chars().all(letter)
        {
            return Err(Error::Topic(topic.to_owned()));
        }
        let mut target = Self {
            brokers: brokers.to_owned(),
            topic: topic.to_owned(),
            format: Format::default(),
            config: None,
            properties: Vec::new(),
        };
        for (name, value) in form_urlencoded::parse(options.as_bytes()) {
            match &*name {
                "format" => target.format = value.parse()?,
                "config" => target.config = Some(value.into_owned().into()),
                _ => {
                    settings::check(&name)?;
                    if settings::secret(&name) {
                        let variable = settings::variable(&name);
                        return Err(Error::Secret(name.into_owned(), variable));
                    }
                    let property = (name.into_owned(), value.into_owned());
                    target.properties.push(property);
                }
            }
        }
        Ok(target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_sinks_are_read() {
        let target: Target = "kafka://one:9092,two/skua.lines".parse().unwrap();
        assert_eq!(target.brokers, "one:9092,two");
        assert_eq!(target.topic, "skua.lines");
        assert_eq!(target.format, Format::Protobuf);
        let target: Target =
            "kafka://one/t?format=json&linger.ms=5&ssl.ca.location=/a%20b&config=/etc/k"
                .parse()
                .unwrap();
        assert_eq!(target.format, Format::Json);
        assert_eq!(target.config, Some("/etc/k".into()));
        let properties = [("linger.ms", "5"), ("ssl.ca.location", "/a b")];
        assert_eq!(
            target.properties,
            properties.map(|(name, value)| (name.to_owned(), value.to_owned()))
        );
    }

    #[test]
    fn errors_name_the_fault() {
        for (name, said) in [
            ("kafka://one", "a topic is missing"),
            ("kafka:///t", "a broker is missing"),
            ("kafka://one,/t", "a broker is missing"),
            ("kafka://one/", "cannot be a topic"),
            ("kafka://one/a/b", "cannot be a topic"),
            ("kafka://one/t?fast=1", "there is no option `fast`"),
            ("kafka://one/t?format=xml", "there is no format `xml`"),
            ("kafka://one/t?enable.idempotence=false", "is set by Skua"),
            ("kafka://one/t?acks=1", "is set by Skua"),
            ("kafka://one/t?sasl.password=x", "SKUA_KAFKA_SASL_PASSWORD"),
        ] {
            let error = name.parse::<Target>().unwrap_err().to_string();
            assert!(error.contains(said), "{name}: {error}");
        }
    }
}
