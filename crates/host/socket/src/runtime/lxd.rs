//! LXD's API, which Incus speaks, too.

use std::collections::BTreeMap;

use hyper::StatusCode;
use serde::Deserialize;

use super::http::Server;
use super::{Answer, Fail, Names};
use crate::container::Found;
use crate::text::shown;

/// Longest text that is kept, characters.
const TEXT: usize = 256;
/// Settings that are kept at most, and devices, and settings of one device.
const SETTINGS: usize = 256;
const DEVICES: usize = 64;
const DEVICE_SETTINGS: usize = 32;
/// Profiles at most.
const PROFILES: usize = 64;
/// Settings whose values are the users' own: passwords, keys, scripts.
const SECRET: [&str; 4] = ["cloud-init.", "environment.", "raw.", "user."];

/// Settings of an instance, of LXD or Incus. All text is safe to show.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Instance {
    /// Project; empty: the default one.
    pub project: String,
    /// Architecture, like `x86_64`.
    pub architecture: String,
    /// When it was made (RFC 3339).
    pub created_at: String,
    /// What its owner says of it.
    pub description: String,
    /// Whether it is removed when it stops.
    pub ephemeral: bool,
    /// Whether its state is kept when it stops.
    pub stateful: bool,
    /// `Running`, `Frozen`, …
    pub status: String,
    /// Snapshot that it was restored from.
    pub restore: String,
    /// Profiles, the last one counts most.
    pub profiles: Vec<String>,
    /// Settings by key, without those that may be secret.
    pub config: Vec<(String, String)>,
    /// Settings by key of each device.
    pub devices: Vec<(String, Vec<(String, String)>)>,
}

impl Instance {
    pub(crate) fn memory(&self) -> usize {
        let pairs = |pairs: &[(String, String)]| -> usize {
            let each = |(key, value): &(String, String)| key.capacity() + value.capacity();
            size_of_val(pairs) + pairs.iter().map(each).sum::<usize>()
        };
        let texts = [
            &self.project,
            &self.architecture,
            &self.created_at,
            &self.description,
            &self.status,
            &self.restore,
        ];
        let devices = self.devices.iter();
        size_of::<Self>()
            + texts.into_iter().map(String::capacity).sum::<usize>()
            + self.profiles.iter().map(String::capacity).sum::<usize>()
            + pairs(&self.config)
            + devices
                .map(|(name, of)| size_of_val(of) + name.capacity() + pairs(of))
                .sum::<usize>()
    }
}

/// The answer to `GET /1.0/instances/NAME`.
#[derive(Deserialize)]
struct Envelope {
    metadata: Raw,
}

/// Of an instance, what we want.
#[derive(Deserialize)]
struct Raw {
    name: String,
    #[serde(default)]
    architecture: String,
    #[serde(default)]
    created_at: String,
    #[serde(default)]
    description: String,
    #[serde(default)]
    ephemeral: bool,
    #[serde(default)]
    stateful: bool,
    #[serde(default)]
    status: String,
    #[serde(default)]
    restore: Option<String>,
    #[serde(default)]
    profiles: Option<Vec<String>>,
    #[serde(default)]
    config: Option<BTreeMap<String, String>>,
    #[serde(default)]
    expanded_devices: Option<BTreeMap<String, BTreeMap<String, String>>>,
}

/// Project and name in what LXC calls an instance: names have no `_`.
fn parts(id: &str) -> (&str, &str) {
    id.rsplit_once('_').unwrap_or(("", id))
}

fn text(text: &str) -> String {
    shown(text.as_bytes(), TEXT)
}

fn settings(all: &BTreeMap<String, String>, most: usize) -> Vec<(String, String)> {
    let open = |key: &&String| !SECRET.iter().any(|secret| key.starts_with(secret));
    let keys = all.keys().filter(open).take(most);
    keys.map(|key| (text(key), text(&all[key]))).collect()
}

pub(super) async fn query(server: Server<'_>, found: &Found) -> Answer {
    let (project, name) = parts(&found.id);
    // Names are letters, digits and hyphens; nothing else may become a part of the request.
    let plain = |text: &str| {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        text.bytes().all(allowed) && !text.starts_with('.')
    };
    if !plain(name) || !plain(project) {
        return Err(Fail::Unknown);
    }
    let project_or_default = if project.is_empty() {
        "default"
    } else {
        project
    };
    let path = format!("/1.0/instances/{name}?project={project_or_default}");
    let response = server.get(&path).await?;
    match response.status() {
        StatusCode::OK => {}
        StatusCode::NOT_FOUND => return Err(Fail::Unknown),
        _ => return Err(Fail::Rubbish),
    }
    let body = response.into_body().to_bytes();
    let Envelope { metadata: raw } = serde_json::from_slice(&body).map_err(|_| Fail::Rubbish)?;
    if raw.name != name {
        return Err(Fail::Rubbish);
    }
    Ok(names(project, &raw))
}

fn names(project: &str, raw: &Raw) -> Names {
    let config = raw.config.as_ref();
    let image = config.and_then(|config| config.get("image.description"));
    let devices = raw.expanded_devices.iter().flatten().take(DEVICES);
    let instance = Instance {
        project: text(project),
        architecture: text(&raw.architecture),
        created_at: text(&raw.created_at),
        description: text(&raw.description),
        ephemeral: raw.ephemeral,
        stateful: raw.stateful,
        status: text(&raw.status),
        restore: text(raw.restore.as_deref().unwrap_or_default()),
        profiles: raw
            .profiles
            .iter()
            .flatten()
            .take(PROFILES)
            .map(|profile| text(profile))
            .collect(),
        config: config.map_or_else(Vec::new, |config| settings(config, SETTINGS)),
        devices: devices
            .map(|(name, device)| (text(name), settings(device, DEVICE_SETTINGS)))
            .collect(),
    };
    Names {
        name: super::cri::text(&raw.name),
        image: image.and_then(|image| super::cri::text(image)),
        instance: Some(Box::new(instance)),
        ..Names::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_left_out_and_all_is_bounded() {
        let mut config: BTreeMap<String, String> = (0..1000)
            .map(|at| (format!("limits.{at:04}"), "x".repeat(1000)))
            .collect();
        for secret in [
            "user.user-data",
            "environment.TOKEN",
            "raw.lxc",
            "cloud-init.vendor-data",
        ] {
            config.insert(secret.into(), "password".into());
        }
        config.insert("image.description".into(), "busy\u{1b}[31mbox".into());
        let device = (0..100).map(|at| (format!("k{at}"), "v".into())).collect();
        let raw = Raw {
            name: "one".into(),
            architecture: "x86_64".into(),
            created_at: String::new(),
            description: String::new(),
            ephemeral: true,
            stateful: false,
            status: "Running".into(),
            restore: None,
            profiles: Some(vec!["default".into(); 100]),
            config: Some(config),
            expanded_devices: Some(
                (0..100)
                    .map(|at| (format!("eth{at}"), BTreeMap::clone(&device)))
                    .collect(),
            ),
        };
        let names = names("blue", &raw);
        assert_eq!(names.image.as_deref(), Some("busy\\x1b[31mbox"));
        let instance = names.instance.unwrap();
        assert_eq!(
            (instance.project.as_str(), instance.ephemeral),
            ("blue", true)
        );
        assert_eq!(instance.config.len(), SETTINGS);
        assert_eq!(
            (instance.devices.len(), instance.devices[0].1.len()),
            (DEVICES, DEVICE_SETTINGS)
        );
        assert_eq!(instance.profiles.len(), PROFILES);
        assert!(
            instance
                .config
                .iter()
                .all(|(_, value)| value != "password" && value.chars().count() <= TEXT)
        );
        assert!(instance.memory() > TEXT * 200 && instance.memory() < 400_000);
    }

    #[test]
    fn projects_are_before_the_last_underscore() {
        assert_eq!(parts("one"), ("", "one"));
        assert_eq!(parts("blue_one"), ("blue", "one"));
        assert_eq!(parts("a_b_one"), ("a_b", "one"));
    }
}
