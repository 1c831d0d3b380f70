//! Why an answer is empty: nothing is known at all, or nothing of it is as was asked.

use skua_condition::{Looks, looks};
use skua_output::OutputFormat;
use skua_watch::filter::HOW;

/// What was asked for, as it was written.
pub struct Asked<'a> {
    /// What the records are, in the plural: `conversations`.
    pub records: &'a str,
    /// The pcap expression or conditions of `--filter`.
    pub filter: Option<&'a str>,
    /// Conditions.
    pub conditions: &'a [String],
    /// Other options that leave records out: `--active`.
    pub options: Vec<String>,
    /// What to say if there are none at all.
    pub none: &'a str,
}

/// The sentence for an empty answer; `any`: whether there is a record at all.
fn sentence(asked: &Asked<'_>, any: bool) -> String {
    let records = asked.records;
    let filter = asked.filter.filter(|filter| !filter.trim().is_empty());
    let mut written: Vec<String> = filter
        .into_iter()
        .chain(asked.conditions.iter().map(String::as_str))
        .map(|text| format!("`{}`", text.trim()))
        .collect();
    written.extend(asked.options.iter().cloned());
    if !any || written.is_empty() {
        return asked.none.to_owned();
    }
    let mut sentence = format!("none of the {records} matches {}", written.join(" and "));
    let is_word = |text: &str| matches!(looks(text), Looks::Word);
    let word = filter
        .into_iter()
        .chain(asked.conditions.iter().map(String::as_str))
        .find(|text| is_word(text));
    if let Some(word) = word {
        let word = word.trim();
        sentence += &format!(
            ". `{word}` alone is searched in names (process, container, pod, unit, user), addresses, interfaces, services, \
             protocols and states; {HOW}"
        );
    }
    sentence
}

/// Says on stderr why a table is empty. `any` finds out whether there is a record at all; it is asked only if something was
/// left out.
pub fn explain(
    format: OutputFormat,
    lines: &[u8],
    asked: &Asked<'_>,
    any: impl FnOnce() -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    if format != OutputFormat::Table || !lines.is_empty() {
        return Ok(());
    }
    let narrowed =
        asked.filter.is_some() || !asked.conditions.is_empty() || !asked.options.is_empty();
    eprintln!("skua: {}", sentence(asked, narrowed && any()?));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_answer_says_why() {
        let of = |filter: Option<&str>, conditions: &[&str], options: &[&str], any| {
            let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
            let conditions: Vec<String> = owned(conditions);
            let asked = Asked {
                records: "conversations",
                filter,
                conditions: &conditions,
                options: owned(options),
                none: "nothing yet",
            };
            sentence(&asked, any)
        };
        assert_eq!(of(None, &[], &[], true), "nothing yet");
        assert_eq!(of(None, &["port:1"], &[], false), "nothing yet");
        assert_eq!(
            of(Some("tcp port 1"), &["process:x"], &["--active"], true),
            "none of the conversations matches `tcp port 1` and `process:x` and --active"
        );
        let word = of(None, &["fast"], &[], true);
        assert!(
            word.starts_with("none of the conversations matches `fast`. `fast` alone is searched")
                && word.contains("write conditions like process:curl"),
            "{word}"
        );
    }
}
