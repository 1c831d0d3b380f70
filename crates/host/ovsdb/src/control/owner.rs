//! Owners of the rows that we make.

use crate::{Client, Error, Row};
use serde_json::{Value, json};
use std::{fs, io, thread, time::Duration};
use uuid::Uuid;

/// Key in `external_ids`: which control.
const OWNER: &str = "skua-owner";
/// Key in `external_ids`: which process.
const PROCESS: &str = "skua-process";

/// How often the lock of an ended process is requested, and how long apart.
const ATTEMPTS: u32 = 20;
const PAUSE: Duration = Duration::from_millis(100);

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The owner of a row. While its connection lasts it holds a lock of the database, which the server
/// releases when the connection ends, in any way: so clients on other hosts, too, see that it has ended.
/// When only its connection was lost, its process shows that it lives.
pub(super) struct Owner {
    id: Uuid,
    process: String,
}

impl Owner {
    pub fn new() -> Result<Self, Error> {
        let pid = std::process::id();
        let identify = || -> io::Result<String> {
            let boot = fs::read_to_string(BOOT_ID)?;
            let begun = started(pid).ok_or(io::ErrorKind::NotFound)?;
            Ok(format!("{}/{pid}/{begun}", boot.trim()))
        };
        Ok(Self {
            id: Uuid::new_v4(),
            process: identify().map_err(|source| Error::Io {
                target: "/proc".to_owned(),
                action: "identifying this process",
                source,
            })?,
        })
    }

    /// Name of its lock.
    pub fn lock(&self) -> String {
        lock_of(self.id)
    }

    /// `external_ids` of what it makes.
    pub fn external_ids(&self, more: Option<(&str, &str)>) -> Value {
        let id = self.id.to_string();
        let ours = [(OWNER, id.as_str()), (PROCESS, &self.process)];
        super::operation::map(ours.into_iter().chain(more))
    }

    /// The owner of a row, when it is another process of our kind.
    pub fn other(&self, row: &Row) -> Option<Other> {
        let id = Uuid::try_parse(row.text_at("external_ids", OWNER)?).ok()?;
        let process = row.text_at("external_ids", PROCESS).unwrap_or("");
        (id != self.id).then(|| Other {
            id,
            process: process.to_owned(),
        })
    }
}

/// Whether something of our kind made a row.
pub(super) fn is_owned(row: &Row) -> bool {
    row.text_at("external_ids", OWNER).is_some()
}

/// Another owner.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Other {
    id: Uuid,
    process: String,
}

impl Other {
    /// Whether it has ended, as far as that can be found out.
    pub fn has_ended(&self, client: &Client) -> Result<bool, Error> {
        let process = self.process();
        if process == Some(true) {
            return Ok(false);
        }
        // When a process ends the server may take a moment to notice that its connection has ended.
        let attempts = if process == Some(false) { ATTEMPTS } else { 1 };
        for attempt in 0..attempts {
            if attempt > 0 {
                thread::sleep(PAUSE);
            }
            match self.holds_lock(client) {
                Ok(true) => {}
                Ok(false) => return Ok(true),
                // A server without locks.
                Err(Error::Refused { .. }) => return Ok(process == Some(false)),
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    fn holds_lock(&self, client: &Client) -> Result<bool, Error> {
        let name = lock_of(self.id);
        let answer = client.request("lock", json!([name]))?;
        let answer = serde_json::from_str::<Value>(answer.get());
        client.request("unlock", json!([name]))?;
        Ok(!answer.is_ok_and(|answer| answer["locked"] == json!(true)))
    }

    /// Whether its process lives; none when it ran on another host, or before the last boot.
    fn process(&self) -> Option<bool> {
        let boot = fs::read_to_string(BOOT_ID).ok()?;
        let [its_boot, pid, begun] = self.process.split('/').collect::<Vec<_>>()[..] else {
            return None;
        };
        if its_boot != boot.trim() {
            return None;
        }
        let pid: u32 = pid.parse().ok()?;
        Some(started(pid).as_deref() == Some(begun))
    }
}

/// Locks have the names of identifiers (RFC 7047 section 3.1).
fn lock_of(id: Uuid) -> String {
    format!("skua_{}", id.simple())
}

/// When a process began, in clock ticks since boot; none when it is over (proc(5), field 22 of stat).
fn started(pid: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in brackets, may hold anything.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    if matches!(fields.next()?, "Z" | "X") {
        return None;
    }
    fields.nth(18).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_boot_number_and_start() {
        let owner = Owner::new().unwrap();
        let ids = owner.external_ids(None);
        let row: Row = serde_json::from_value(json!({ "external_ids": ids })).unwrap();
        assert_eq!(owner.other(&row), None);
        assert!(is_owned(&row));
        let other = Owner::new().unwrap().other(&row).unwrap();
        assert_eq!(other.process(), Some(true));
        let with = |process: String| Other {
            id: other.id,
            process,
        };
        let later = format!("{}0", owner.process);
        assert_eq!(with(later).process(), Some(false));
        assert_eq!(with("x/1/1".to_owned()).process(), None);
        assert_eq!(with(String::new()).process(), None);
        let boot = owner.process.split('/').next().unwrap();
        assert_eq!(with(format!("{boot}/4294967295/7")).process(), Some(false));
    }
}
