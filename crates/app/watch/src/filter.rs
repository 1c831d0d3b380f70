//! What people write to say which flows they want: conditions, or a pcap expression.

use std::net::IpAddr;

use anyhow::bail;
use skua_condition::{Conditions, Looks, looks};
use skua_state::filter::FlowFilter;

use crate::record_filter::RecordFilter;

/// How conditions are written, for who wrote neither them nor a pcap expression.
pub const HOW: &str = "write conditions like process:curl port:443 rate>1Mbit \"text\" -user:root, or a pcap expression like tcp port 443";

/// A filter in its language.
#[derive(Default)]
pub struct Understood {
    /// The pcap expression with its text.
    pub expression: Option<(RecordFilter, String)>,
    /// The conditions.
    pub conditions: Option<String>,
}

/// Whether a word is an address or a prefix.
fn is_address(word: &str) -> bool {
    let address = word.split_once('/').map_or(word, |(address, _)| address);
    let prefix = || Conditions::parse(&format!("address:{word}")).is_ok();
    address.parse::<IpAddr>().is_ok() && prefix()
}

/// Finds out in which language a filter is. One word that is no pcap expression is a text to search.
///
/// # Errors
///
/// It is in neither: what is wrong and where, and what to write.
pub fn understand(filter: &str) -> anyhow::Result<Understood> {
    let conditions = || {
        Conditions::parse(filter)?;
        Ok(Understood {
            conditions: Some(filter.to_owned()),
            ..Understood::default()
        })
    };
    let expression = |compiled| Understood {
        expression: Some((compiled, filter.to_owned())),
        ..Understood::default()
    };
    match (looks(filter), RecordFilter::compile(filter)) {
        (Looks::Empty, _) => Ok(Understood::default()),
        (Looks::Conditions, _) => conditions(),
        (_, Ok(compiled)) => Ok(expression(compiled)),
        (Looks::Word | Looks::Unclear, Err(_)) if is_address(filter.trim()) => Ok(Understood {
            conditions: Some(format!("address:{}", filter.trim())),
            ..Understood::default()
        }),
        (Looks::Unclear | Looks::Word, Err(_)) => conditions(),
        (Looks::Expression, Err(error)) => bail!("{error:#}; {HOW}"),
    }
}

/// Which flows a filter and conditions select together.
///
/// # Errors
///
/// One of them cannot be read.
pub fn flow_filter(filter: Option<&str>, conditions: &[String]) -> anyhow::Result<FlowFilter> {
    let understood = understand(filter.unwrap_or_default())?;
    let mut all = Conditions::default();
    for text in understood.conditions.iter().chain(conditions) {
        all.and(text)?;
    }
    Ok(FlowFilter {
        packets: understood.expression.map(|(compiled, _)| {
            let matches = move |record: &_| compiled.matches(record);
            Box::new(matches) as _
        }),
        conditions: all,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_conditions_or_a_pcap_expression() {
        let of = |text: &str| {
            let understood = understand(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            (
                understood.expression.is_some(),
                understood.conditions.is_some(),
            )
        };
        assert_eq!(of(""), (false, false));
        for text in ["tcp", "tcp port 443", "host fe80::1", "!(udp)"] {
            assert_eq!(of(text), (true, false), "{text}");
        }
        for text in [
            "curl",
            "process:curl",
            "-process:curl",
            "\"a b\" rate>1M",
            "-udp",
        ] {
            assert_eq!(of(text), (false, true), "{text}");
        }
        for (text, conditions) in [
            ("10.0.0.1", "address:10.0.0.1"),
            ("10.0.0.0/8", "address:10.0.0.0/8"),
            ("fe80::1", "address:fe80::1"),
        ] {
            let understood = understand(text).unwrap();
            assert_eq!(understood.conditions.as_deref(), Some(conditions));
        }
        for (text, expected) in [
            ("prt 80", "write conditions like process:curl"),
            ("proces:curl", "did you mean `process`?"),
            ("len > 100", "no packet length"),
        ] {
            let error = understand(text).err().map(|error| error.to_string());
            let error = error.unwrap_or_default();
            assert!(error.contains(expected), "{text}: {error}");
            assert!(!error.contains('\n'), "{error}");
        }
    }
}
