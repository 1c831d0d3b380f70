//! Paths and names of files.
//!
//! `flows/date=2026-11-21/hour=22/HOST-FROM-TO-CHECK.parquet`: the writer's host; the first and the last
//! flush in the file, as ms since the Unix epoch in 12 hexadecimal digits; the CRC-32 of the footer,
//! which has those of all other parts. A file whose flushes are all in another file of the same writer
//! was compacted into that one, and is ignored: the rename that makes the compacted file visible hides
//! the others at the same moment.

use skua_record::time::UnixNs;

use crate::schema::Table;

/// The end of all names of files.
const SUFFIX: &str = ".parquet";
/// µs in an hour.
pub(crate) const HOUR: i64 = 3_600_000_000;
/// The most characters of a writer's name.
const WRITER: usize = 100;

/// An hour of a table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Partition {
    pub table: Table,
    /// Hours since the Unix epoch.
    pub hour: i64,
}

impl Partition {
    /// That of a time in µs.
    pub fn of(table: Table, time: i64) -> Self {
        Self {
            table,
            hour: time.max(0) / HOUR,
        }
    }

    /// Its first µs.
    pub fn begins(self) -> i64 {
        self.hour.saturating_mul(HOUR)
    }

    /// The µs after its last.
    pub fn ends(self) -> i64 {
        self.begins().saturating_add(HOUR)
    }

    /// Its directory.
    pub fn directory(self) -> String {
        let text = time(self.begins());
        format!(
            "{}/date={}/hour={}",
            self.table.name(),
            &text[..10],
            &text[11..13]
        )
    }
}

/// A time of µs since the Unix epoch as RFC 3339.
pub fn time(us: i64) -> String {
    UnixNs(us.max(0).cast_unsigned().saturating_mul(1_000)).to_string()
}

/// µs of midnight of a date, `2026-11-21`.
fn midnight(date: &str) -> Option<i64> {
    let mut parts = date.splitn(3, '-').map(|part| part.parse::<i64>().ok());
    let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
    if !(1970..=2500).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // Years from March, as in `UnixNs`: the leap day is the last.
    let years = if month <= 2 { year - 1 } else { year };
    let month_from_march = (month + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let days = years * 365 + years / 4 - years / 100 + years / 400 + day_of_year - 719_468;
    Some(days * 24 * HOUR)
}

/// A file of the lake.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct FileName {
    pub partition: Partition,
    /// The writer's host.
    pub writer: String,
    /// First flush inside.
    pub from: u64,
    /// Last flush inside.
    pub to: u64,
    /// CRC-32 of the footer.
    pub check: u32,
}

impl FileName {
    /// Its path.
    pub fn path(&self) -> String {
        format!(
            "{}/{}-{:012x}-{:012x}-{:08x}{SUFFIX}",
            self.partition.directory(),
            self.writer,
            self.from,
            self.to,
            self.check
        )
    }

    /// What a path means, none when it is none of ours.
    pub fn parse(path: &str) -> Option<Self> {
        let mut parts = path.split('/');
        let table = Table::named(parts.next()?)?;
        let date = parts.next()?.strip_prefix("date=")?;
        let hour: i64 = parts.next()?.strip_prefix("hour=")?.parse().ok()?;
        let name = parts.next()?.strip_suffix(SUFFIX)?;
        if parts.next().is_some() || !(0..24).contains(&hour) {
            return None;
        }
        let mut ends = name.rsplitn(4, '-');
        let check = u32::from_str_radix(ends.next()?, 16).ok()?;
        let to = u64::from_str_radix(ends.next()?, 16).ok()?;
        let from = u64::from_str_radix(ends.next()?, 16).ok()?;
        let writer = ends.next()?.to_owned();
        let hours = midnight(date)? / HOUR + hour;
        let parsed = Self {
            partition: Partition { table, hour: hours },
            writer,
            from,
            to,
            check,
        };
        // One file has one name.
        (from <= to && parsed.path() == path).then_some(parsed)
    }

    /// Whether this file contains all of `other`.
    pub fn replaces(&self, other: &Self) -> bool {
        let wider = (self.from, self.to) != (other.from, other.to);
        self.partition == other.partition
            && self.writer == other.writer
            && wider
            && self.from <= other.from
            && other.to <= self.to
    }
}

/// A host's name as a writer's.
pub(crate) fn writer(host: &str) -> String {
    let fit = |c: char| match c {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '.' | '_' | '-' => c,
        _ => '_',
    };
    let name: String = host.chars().take(WRITER).map(fit).collect();
    match name.trim_start_matches(['.', '_', '-']) {
        "" => "host".into(),
        // Engines pass over names that begin with . or _.
        name => name.into(),
    }
}

/// Removes files that were compacted into others, and returns them.
pub(crate) fn without_replaced<T>(files: &mut Vec<T>, name: impl Fn(&T) -> &FileName) -> Vec<T> {
    // Of files with the same start the widest first: a replacement precedes the files that it
    // replaces.
    files.sort_by(|one, other| {
        let (one, other) = (name(one), name(other));
        (one.partition, &one.writer, one.from)
            .cmp(&(other.partition, &other.writer, other.from))
            .then(other.to.cmp(&one.to))
    });
    let (mut kept, mut replaced) = (Vec::<T>::new(), Vec::new());
    for file in files.drain(..) {
        match kept.last() {
            Some(last) if name(last).replaces(name(&file)) => replaced.push(file),
            _ => kept.push(file),
        }
    }
    *files = kept;
    replaced
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(from: u64, to: u64) -> FileName {
        FileName {
            partition: Partition::of(Table::Flows, 1_795_298_400_000_000),
            writer: "web-1".into(),
            from,
            to,
            check: 0xabc,
        }
    }

    #[test]
    fn names_are_read_as_they_are_written() {
        let path = file(0x19b, 0x19c).path();
        assert_eq!(
            path,
            "flows/date=2026-11-21/hour=22/web-1-00000000019b-00000000019c-00000abc.parquet"
        );
        assert_eq!(FileName::parse(&path).unwrap(), file(0x19b, 0x19c));
        for other in [
            "flows/date=2026-11-21/hour=22/other.parquet",
            "flows/date=2026-11-21/hour=24/web-1-00000000019b-00000000019c-00000abc.parquet",
            "flows/date=2026-11-21/hour=22/web-1-00000000019c-00000000019b-00000abc.parquet",
            "flows/date=2026-11-21/hour=22/web-1-19b-19c-abc.parquet",
            "flows/date=2026-02-30/hour=22/web-1-00000000019b-00000000019c-00000abc.parquet",
            "flows/date=-1/hour=22/web-1-00000000019b-00000000019c-00000abc.parquet",
            "flows/x",
            "",
        ] {
            assert_eq!(FileName::parse(other), None, "{other}");
        }
    }

    #[test]
    fn every_hour_is_found_again() {
        for hour in (0..600_000).step_by(23) {
            let partition = Partition {
                table: Table::Services,
                hour,
            };
            let name = FileName {
                partition,
                ..file(1, 1)
            };
            assert_eq!(FileName::parse(&name.path()), Some(name));
        }
    }

    #[test]
    fn compacted_files_are_skipped() {
        let mut files = vec![
            file(3, 3),
            file(1, 4),
            file(1, 1),
            file(4, 4),
            file(5, 5),
            file(5, 9),
            file(9, 9),
            file(10, 10),
        ];
        let replaced = without_replaced(&mut files, |f| f);
        assert_eq!(files, [file(1, 4), file(5, 9), file(10, 10)]);
        assert_eq!(
            replaced,
            [file(1, 1), file(3, 3), file(4, 4), file(5, 5), file(9, 9)]
        );
    }

    #[test]
    fn any_host_can_write() {
        for (host, name) in [
            ("web-1", "web-1"),
            ("../../etc", "etc"),
            ("", "host"),
            ("_x y/é", "x_y__"),
        ] {
            assert_eq!(writer(host), name);
        }
    }
}
