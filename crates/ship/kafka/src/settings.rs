//! Properties of the client: from a file, the environment, the sink's name; later ones take precedence.

use std::{collections::BTreeMap, fs, os::unix::fs::PermissionsExt as _, path::Path};

use crate::{Error, Target};

/// Variables of the environment that set properties: `SKUA_KAFKA_SASL_PASSWORD` is `sasl.password`.
const VARIABLES: &str = "SKUA_KAFKA_";

/// Defaults.
const DEFAULTS: [(&str, &str); 8] = [
    ("client.id", "skua"),
    // A mistyped topic must not be created.
    ("allow.auto.create.topics", "false"),
    // The partitioner of Java's producers, so that other tools find the same partition by key.
    ("partitioner", "murmur2_random"),
    ("compression.type", "zstd"),
    // Closing a window produces many lines at once; a short delay makes larger batches.
    ("linger.ms", "50"),
    // Space for the lines of all keys that a collector has by default; more are counted as lost.
    ("queue.buffering.max.messages", "1000000"),
    ("queue.buffering.max.kbytes", "262144"),
    // Lines wait while the queue has space: brokers may be away for longer than any fixed time.
    ("message.timeout.ms", "0"),
];

/// Fixed settings: others could lose or duplicate acknowledged lines.
const OURS: [(&str, &str); 3] = [
    ("enable.idempotence", "true"),
    ("acks", "all"),
    ("socket.keepalive.enable", "true"),
];

/// Names for what Skua sets, and what would have the client do something else.
const KEPT: [&str; 8] = [
    "request.required.acks",
    "bootstrap.servers",
    "metadata.broker.list",
    "delivery.report.only.error",
    "transactional.id",
    "enable.gapless.guarantee",
    "plugin.library.paths",
    "queuing.strategy",
];

/// Whether a property may be set.
pub(crate) fn check(name: &str) -> Result<(), Error> {
    if OURS.iter().any(|(ours, _)| *ours == name) || KEPT.contains(&name) {
        return Err(Error::Ours(name.to_owned()));
    }
    match name.contains('.') || name == "partitioner" {
        true => Ok(()),
        false => Err(Error::Option(name.to_owned())),
    }
}

/// Whether the value is hidden in messages.
pub(crate) fn secret(name: &str) -> bool {
    ["password", "secret", ".pem", "sasl.oauthbearer.config"]
        .iter()
        .any(|part| name.contains(part))
        && name != "ssl.ca.pem"
        && name != "ssl.certificate.pem"
}

/// The variable of the environment that sets a property.
pub(crate) fn variable(name: &str) -> String {
    format!("{VARIABLES}{}", name.replace('.', "_").to_uppercase())
}

/// All properties.
pub(crate) fn all(
    target: &Target,
    environment: impl Iterator<Item = (String, String)>,
) -> Result<BTreeMap<String, String>, Error> {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    let mut all: BTreeMap<_, _> = DEFAULTS.iter().map(owned).collect();
    if let Some(file) = &target.config {
        for (name, value) in read(file)? {
            check(&name)?;
            all.insert(name, value);
        }
    }
    for (name, value) in environment {
        if let Some(name) = name.strip_prefix(VARIABLES) {
            let name = name.to_lowercase().replace('_', ".");
            check(&name)?;
            all.insert(name, value);
        }
    }
    all.extend(target.properties.iter().cloned());
    all.extend(OURS.iter().map(owned));
    all.insert("bootstrap.servers".to_owned(), target.brokers.clone());
    Ok(all)
}

/// `name=value` lines, as Kafka's own tools and kcat have them.
fn read(file: &Path) -> Result<Vec<(String, String)>, Error> {
    let wrong = |error| Error::File(file.to_owned(), error);
    let text = fs::read_to_string(file).map_err(wrong)?;
    let mut properties = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (name, value) = line
            .split_once('=')
            .ok_or_else(|| Error::Line(file.to_owned(), number + 1))?;
        properties.push((name.trim().to_owned(), value.trim().to_owned()));
    }
    let mode = fs::metadata(file).map_err(wrong)?.permissions().mode();
    if mode & 0o007 != 0 && properties.iter().any(|(name, _)| secret(name)) {
        return Err(Error::Readable(file.to_owned()));
    }
    Ok(properties)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_ones_go_before() {
        let file = std::env::temp_dir().join(format!("skua-kafka-{}", std::process::id()));
        fs::write(
            &file,
            "# mine\nlinger.ms = 1\nretry.backoff.ms=2\nsasl.password=a=b\n",
        )
        .unwrap();
        let target: Target = format!("kafka://one/t?linger.ms=4&config={}", file.display())
            .parse()
            .unwrap();
        let environment = [
            ("SKUA_KAFKA_RETRY_BACKOFF_MS", "3"),
            ("SKUA_KAFKA_LINGER_MS", "3"),
            ("OTHER", "x"),
        ];
        let environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned()));
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        let open = all(&target, environment.clone().into_iter());
        assert!(matches!(open, Err(Error::Readable(_))), "{open:?}");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        let properties = all(&target, environment.into_iter()).unwrap();
        fs::remove_file(&file).unwrap();
        for (name, value) in [
            ("linger.ms", "4"),
            ("retry.backoff.ms", "3"),
            ("sasl.password", "a=b"),
            ("compression.type", "zstd"),
            ("enable.idempotence", "true"),
            ("bootstrap.servers", "one"),
        ] {
            assert_eq!(
                properties.get(name).map(String::as_str),
                Some(value),
                "{name}"
            );
        }
        assert!(!properties.contains_key("other"));
    }

    #[test]
    fn secrets_are_known() {
        for name in [
            "sasl.password",
            "ssl.key.password",
            "ssl.key.pem",
            "sasl.oauthbearer.client.secret",
        ] {
            assert!(secret(name), "{name}");
        }
        for name in ["sasl.username", "ssl.ca.pem", "ssl.key.location"] {
            assert!(!secret(name), "{name}");
        }
    }
}
