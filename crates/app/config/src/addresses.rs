//! The address set as users write it: lists of prefixes in the configuration, in flags, in files
//! and in the API.

use std::{
    fs::File,
    io::{self, Read},
};
use utoipa::ToSchema;

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};
use skua_flow::{AddressSet, Mark, Prefix};

/// Bytes of a file of prefixes at most.
const FILE_LIMIT: u64 = 64 << 20;

/// Prefixes of both kinds, as text.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = AddressLists)]
#[serde(deny_unknown_fields, default)]
pub struct Lists {
    pub include: Vec<String>,
    pub exclude: Vec<String>,
}

impl Lists {
    /// The prefixes with their marks. `place` is the prefix of list names in errors.
    pub fn marks(&self, place: &str) -> anyhow::Result<Vec<(Prefix, Mark)>> {
        marks(place, &self.include, &self.exclude)
    }

    /// What a set has.
    pub fn of(set: &AddressSet) -> Self {
        let mut lists = Self::default();
        for (prefix, mark) in set.iter() {
            match mark {
                Mark::Include => &mut lists.include,
                Mark::Exclude => &mut lists.exclude,
            }
            .push(prefix.to_string());
        }
        lists
    }
}

/// As [`Lists::marks`].
pub fn marks(
    place: &str,
    include: &[String],
    exclude: &[String],
) -> anyhow::Result<Vec<(Prefix, Mark)>> {
    let mut seen = AddressSet::default();
    let mut marks = Vec::with_capacity(include.len() + exclude.len());
    for (mark, texts) in [(Mark::Include, include), (Mark::Exclude, exclude)] {
        for (i, text) in texts.iter().enumerate() {
            let name = mark.name();
            let prefix: Prefix = text
                .parse()
                .with_context(|| format!("{place}{name}[{i}]"))?;
            match seen.insert(prefix, mark) {
                Some(other) if other != mark => {
                    bail!("{prefix} is to be included and excluded; it can only be one")
                }
                _ => marks.push((prefix, mark)),
            }
        }
    }
    Ok(marks)
}

/// Prefixes of a flag: each a prefix, `@FILE` with one a line, or `-` for standard input.
pub fn expand(flag: &str, arguments: &[String]) -> anyhow::Result<Vec<String>> {
    let mut prefixes = Vec::new();
    for argument in arguments {
        match argument.strip_prefix('@') {
            _ if argument == "-" || argument == "@-" => {
                read(&mut prefixes, "standard input", io::stdin().lock())?;
            }
            Some(file) => {
                let open = File::open(file).with_context(|| format!("cannot read {file}"))?;
                read(&mut prefixes, file, open)?;
            }
            None => {
                let prefix: Prefix = argument.parse().with_context(|| flag.to_owned())?;
                prefixes.push(prefix.to_string());
            }
        }
    }
    Ok(prefixes)
}

/// One prefix a line; empty lines and text after `#` are ignored.
fn read(prefixes: &mut Vec<String>, name: &str, from: impl Read) -> anyhow::Result<()> {
    let mut bytes = Vec::new();
    from.take(FILE_LIMIT + 1)
        .read_to_end(&mut bytes)
        .with_context(|| format!("cannot read {name}"))?;
    if bytes.len() as u64 > FILE_LIMIT {
        bail!("{name} is longer than {} MiB", FILE_LIMIT >> 20);
    }
    let text = String::from_utf8_lossy(&bytes);
    for (number, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if !line.is_empty() {
            let prefix: Prefix = line
                .parse()
                .with_context(|| format!("{name}: line {}", number + 1))?;
            prefixes.push(prefix.to_string());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|&text| text.to_owned()).collect()
    }

    #[test]
    fn errors_say_where() {
        let lists = Lists {
            include: list(&["10.0.0.0/8", "10.0.0.1/8"]),
            exclude: Vec::new(),
        };
        let error = format!("{:#}", lists.marks("flow.addresses.").unwrap_err());
        assert!(
            error.starts_with("flow.addresses.include[1]: 10.0.0.1/8 has host bits set"),
            "{error}"
        );
        let both = marks("", &list(&["::/0"]), &list(&["10.0.0.0/8", "::/0"])).unwrap_err();
        assert_eq!(
            both.to_string(),
            "::/0 is to be included and excluded; it can only be one"
        );
    }

    #[test]
    fn files_have_comments_and_line_numbers() {
        let mut prefixes = Vec::new();
        let text = "# ours\n\n10.0.0.0/8 # all of it\r\n  fd00::/8\n192.0.2.1\n";
        read(&mut prefixes, "list", text.as_bytes()).unwrap();
        assert_eq!(prefixes, ["10.0.0.0/8", "fd00::/8", "192.0.2.1/32"]);
        let text = "10.0.0.0/8\n\n10.0.0.0/8\nfd00::1/8\n";
        let error = read(&mut prefixes, "list", text.as_bytes()).unwrap_err();
        assert!(
            format!("{error:#}").starts_with("list: line 4: fd00::1/8 has host bits set"),
            "{error:#}"
        );
        // Bytes that are no text.
        assert!(read(&mut prefixes, "list", &b"\xff\xfe\x00"[..]).is_err());
    }
}
