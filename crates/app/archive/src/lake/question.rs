//! From what people write to what is asked.

use std::{
    net::IpAddr,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, bail};
use skua_lake::{
    Table, now_us,
    query::{Order, PacketFilter, Question},
};

use skua_watch::filter::{Understood, understand};

/// The last hour, without `since`.
const USUAL: &str = "1h";

/// A question to a lake.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    pub since: Option<String>,
    pub until: Option<String>,
    pub by: Option<String>,
    pub filter: Option<String>,
    pub conditions: Vec<String>,
    pub sort: Option<String>,
    pub top: Option<usize>,
    pub table: Option<String>,
}

/// A time ago like `1h`, or a moment like `2026-11-21T10:00:00Z`, in µs since the Unix epoch.
pub fn moment(text: &str, now: i64) -> anyhow::Result<i64> {
    if let Ok(ago) = humantime::parse_duration(text) {
        let ago = i64::try_from(ago.as_micros()).unwrap_or(i64::MAX);
        return Ok(now.saturating_sub(ago));
    }
    let at: SystemTime = humantime::parse_rfc3339_weak(text).with_context(|| {
        format!("\"{text}\" is no time: write it like 1h, 3days or 2026-11-21T10:00:00Z")
    })?;
    let since: Duration = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}

impl Asked {
    /// What is grouped by.
    fn groups(&self, table: Table) -> &str {
        match (self.by.as_deref(), table) {
            (Some("point"), Table::Flows) => "interface,protocol,a_address,a_port,b_address,b_port",
            (Some(by), _) => by,
            (None, Table::Flows) => "protocol,a_address,a_port,b_address,b_port",
            (None, Table::Services) => "protocol,client,server,port",
        }
    }

    /// The question.
    pub fn question(&self) -> anyhow::Result<Question> {
        let table = match self.table.as_deref() {
            None => Table::Flows,
            Some(name) => Table::named(name)
                .with_context(|| format!("there is no table \"{name}\": flows or services"))?,
        };
        let now = now_us();
        let since = moment(self.since.as_deref().unwrap_or(USUAL), now)?;
        let until = match self.until.as_deref() {
            // What came in this moment belongs to it.
            None => i64::MAX,
            Some(text) => moment(text, now)?,
        };
        if since >= until {
            bail!("nothing is since then and before the end: until is not after since");
        }
        let mut question = Question::new(table, since, until).by(self.groups(table))?;
        question.now = now;
        for condition in &self.conditions {
            question = question.where_(condition)?;
        }
        if let Some(sort) = &self.sort {
            question.order = Order::named(sort)?;
        }
        question.top = self.top.unwrap_or(question.top);
        if let Some(expression) = &self.filter {
            let Understood {
                expression: packets,
                conditions,
            } = understand(expression)?;
            if let Some(text) = conditions {
                question = question.where_(&text)?;
            }
            let Some((filter, expression)) = packets else {
                return Ok(question);
            };
            if table != Table::Flows {
                bail!("filters on packets are of flows; for services use conditions like port:443");
            }
            question.filter = Some(PacketFilter {
                matches: Box::new(move |key, flags| filter.matches_key(key, flags)),
                addresses: addresses(&expression),
            });
        }
        Ok(question)
    }
}

/// Addresses that every packet has which matches: those after `host` where all parts must hold.
fn addresses(expression: &str) -> Vec<IpAddr> {
    let words: Vec<&str> = expression.split_whitespace().collect();
    let simple = words
        .iter()
        .all(|word| !matches!(*word, "or" | "not") && !word.contains(['|', '!', '(', '[']));
    if !simple {
        return Vec::new();
    }
    let pairs = words.windows(2).filter(|pair| pair[0] == "host");
    pairs.filter_map(|pair| pair[1].parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_ago_or_moments() {
        let now = 1_795_298_400_000_000;
        assert_eq!(moment("1h", now).unwrap(), now - 3_600_000_000);
        assert_eq!(moment("2026-11-21T22:00:00Z", 0).unwrap(), now);
        assert_eq!(moment("2026-11-21 22:00:00", 0).unwrap(), now);
        let error = moment("yesterday", now).unwrap_err().to_string();
        assert!(error.contains("write it like 1h"), "{error}");
    }

    #[test]
    fn addresses_are_taken_where_they_must_be() {
        let ips = |text: &str| addresses(text).len();
        assert_eq!(ips("host 10.0.0.1 and tcp port 80"), 1);
        assert_eq!(ips("src host 10.0.0.1 and dst host 10.0.0.2"), 2);
        assert_eq!(ips("ether host 02:00:00:00:00:01"), 0);
        for other in [
            "host 10.0.0.1 or port 80",
            "not host 10.0.0.1",
            "!(host 10.0.0.1)",
            "host 10.0.0.1 || udp",
            "net 10.0.0.0/8",
        ] {
            assert_eq!(ips(other), 0, "{other}");
        }
    }

    #[test]
    fn questions_that_make_no_sense_are_refused() {
        let asked = |change: fn(&mut Asked)| {
            let mut asked = Asked::default();
            change(&mut asked);
            asked.question().err().map(|error| error.to_string())
        };
        assert_eq!(asked(|_| {}), None);
        for (error, part) in [
            (asked(|a| a.table = Some("x".into())), "no table \"x\""),
            (asked(|a| a.by = Some("x".into())), "no field \"x\""),
            (asked(|a| a.sort = Some("x".into())), "cannot sort by"),
            (asked(|a| a.until = Some("2h".into())), "until is not after"),
            (
                asked(|a| a.conditions = vec!["x:1".into()]),
                "no field \"x\"",
            ),
        ] {
            let error = error.unwrap();
            assert!(error.contains(part), "{error}");
        }
    }
}
