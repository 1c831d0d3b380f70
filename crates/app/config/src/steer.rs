//! Detectors in the configuration file.

use std::path::Path;

use anyhow::{Context as _, bail};
use skua_steer::{Detector, Written, parse_written};

use crate::{Permission, section::section};

section! {
    /// Settings of detectors.
    SteerSettings {
        /// detectors at a time (`skua steer`)
        max: u32 = 64;
        /// detectors that run from the start, a list (docs/steer.md)
        detectors: Vec<Written> = Vec::new();
        /// files with more of them, a list
        files: Vec<String> = Vec::new();
    }
}

/// The detectors of a file, - for standard input, checked but as they were written.
pub fn written(path: &Path) -> anyhow::Result<Vec<Written>> {
    let name = path.display();
    let text = match path.as_os_str().as_encoded_bytes() {
        b"-" => std::io::read_to_string(std::io::stdin()),
        _ => std::fs::read_to_string(path),
    };
    let text = text.with_context(|| format!("cannot read {name}"))?;
    let all = parse_written(&text).with_context(|| name.to_string())?;
    Ok(all.into_iter().map(|(written, _)| written).collect())
}

/// The detectors of a file.
pub fn read(path: &Path) -> anyhow::Result<Vec<Detector>> {
    let all = written(path)?;
    let checked = all.iter().map(Written::checked);
    Ok(checked.collect::<Result<_, _>>()?)
}

impl SteerSettings {
    /// All declared detectors; the error is the first mistake, with its position.
    pub fn declared(&self, permission: Permission) -> anyhow::Result<Vec<Detector>> {
        if self.detectors.is_empty() && self.files.is_empty() {
            return Ok(Vec::new());
        }
        if permission == Permission::Forbidden {
            bail!("steer declares detectors, which policy.steer forbids");
        }
        let mut all: Vec<Detector> = Vec::new();
        for (i, written) in self.detectors.iter().enumerate() {
            let place = || format!("steer.detectors[{i}]");
            all.push(written.checked().with_context(place)?);
        }
        for file in &self.files {
            all.extend(read(Path::new(file)).context("steer.files")?);
        }
        for (i, detector) in all.iter().enumerate() {
            let name = &detector.name;
            if all.iter().take(i).any(|other| other.name == *name) {
                bail!("steer declares a detector \"{name}\" twice");
            }
        }
        if all.len() > self.max as usize {
            bail!(
                "steer declares {} detectors, steer.max is {}",
                all.len(),
                self.max
            );
        }
        Ok(all)
    }
}
