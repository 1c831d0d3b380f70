//! The files of a lake: listing, compaction, retention.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bytes::Bytes;

use crate::{
    batch::{Data, Texts, sort},
    encode::encode,
    error::{LakeError, Result},
    file::File,
    name::{self, FileName, HOUR, Partition, without_replaced},
    schema::Table,
    storage::{Location, Storage, Stored},
};

/// Rows of a file at most, compacted.
pub(crate) const ROWS: usize = 1 << 20;
/// Most packed bytes of the files that are compacted into one, since they are in memory meanwhile.
const BYTES: u64 = 64 << 20;
/// Of an hour that is not over, this many uncompacted files are compacted into one.
const YOUNG: usize = 10;
/// An hour is over this long after its end, since rows arrive late.
const LATE: i64 = 10 * 60 * 1_000_000;

/// A file with its size.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct FoundFile {
    pub name: FileName,
    pub size: u64,
}

/// Files of an hour of a table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listed {
    /// The table.
    pub table: Table,
    /// The hour: its directory.
    pub directory: String,
    /// Its beginning, µs since the Unix epoch.
    pub begins: i64,
    /// Files that are read.
    pub files: usize,
    /// Their bytes.
    pub bytes: u64,
    /// Files that have been compacted into others and are yet to be deleted.
    pub replaced: usize,
}

/// Work done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tidied {
    /// Files that were compacted.
    pub from: usize,
    /// Files written.
    pub into: usize,
    /// Rows in these.
    pub rows: usize,
    /// Files that were deleted.
    pub deleted: usize,
    /// Bytes of these.
    pub deleted_bytes: u64,
    /// Files that could not be read and were left as they are.
    pub damaged: usize,
}

impl std::ops::AddAssign for Tidied {
    fn add_assign(&mut self, other: Self) {
        self.from += other.from;
        self.into += other.into;
        self.rows += other.rows;
        self.deleted += other.deleted;
        self.deleted_bytes += other.deleted_bytes;
        self.damaged += other.damaged;
    }
}

/// How long files are kept.
#[derive(Clone, Copy, Debug)]
pub struct Retention {
    /// Older files are deleted, by the hour.
    pub max_age: Duration,
    /// Most bytes of the lake: the oldest hours are deleted first.
    pub max_bytes: u64,
}

/// A lake.
#[derive(Clone)]
pub struct Lake {
    pub(crate) storage: Arc<dyn Storage>,
    location: Location,
}

impl Lake {
    /// Opens a lake, without access to it.
    ///
    /// # Errors
    ///
    /// If this build has no client for the location.
    pub fn open(location: &Location) -> Result<Self> {
        Ok(Self {
            storage: location.open()?,
            location: location.clone(),
        })
    }

    /// Where it is.
    pub fn location(&self) -> &Location {
        &self.location
    }

    /// Files of hours, without those that have been compacted into others, which are the second list.
    pub(crate) fn files(
        &self,
        table: Table,
        hours: Option<(i64, i64)>,
    ) -> Result<(Vec<FoundFile>, Vec<FoundFile>)> {
        let mut found = Vec::new();
        for directory in directories(table, hours) {
            for item in self.storage.list(&directory)? {
                if let Some(name) = FileName::parse(&item.path) {
                    found.push(FoundFile {
                        name,
                        size: item.size,
                    });
                }
            }
        }
        if let Some((from, to)) = hours {
            found.retain(|found| (from..=to).contains(&found.name.partition.hour));
        }
        let replaced = without_replaced(&mut found, |found| &found.name);
        Ok((found, replaced))
    }

    /// Files that have the rows of a time, from `since` to before `until` (µs since the Unix epoch), and
    /// of others of these hours. What has been compacted into others is not among them.
    ///
    /// # Errors
    ///
    /// When storage fails.
    pub fn stored(&self, table: Table, since: i64, until: i64) -> Result<Vec<Stored>> {
        if since >= until {
            return Ok(Vec::new());
        }
        let (files, _) = self.files(table, Some(hours(since, until)))?;
        let stored = files.iter().map(|found| Stored {
            path: found.name.path(),
            size: found.size,
        });
        Ok(stored.collect())
    }

    /// Reads a stored file.
    ///
    /// # Errors
    ///
    /// If the storage fails, or the file no longer exists.
    pub fn read(&self, file: &Stored) -> Result<Bytes> {
        self.storage.read(&file.path, 0..file.size)
    }

    /// What there is, hour by hour.
    ///
    /// # Errors
    ///
    /// When storage fails.
    pub fn list(&self) -> Result<Vec<Listed>> {
        let mut all = BTreeMap::new();
        for table in Table::ALL {
            let (files, replaced) = self.files(table, None)?;
            let files = files.into_iter().map(|found| (found, false));
            for (found, is_replaced) in files.chain(replaced.into_iter().map(|f| (f, true))) {
                let partition = found.name.partition;
                let listed = all.entry(partition).or_insert_with(|| Listed {
                    table,
                    directory: partition.directory(),
                    begins: partition.begins(),
                    files: 0,
                    bytes: 0,
                    replaced: 0,
                });
                if is_replaced {
                    listed.replaced += 1;
                } else {
                    listed.files += 1;
                    listed.bytes += found.size;
                }
            }
        }
        Ok(all.into_values().collect())
    }

    /// Compacts small files of hours that are over; of other hours only if there are many. With a `host` only its own
    /// files, for the process that writes them. Deletes files that an earlier call has compacted: readers from that
    /// time have finished, or start again.
    ///
    /// # Errors
    ///
    /// If the storage fails, or another process of this host compacts.
    pub fn compact(&self, host: Option<&str>, now_us: i64) -> Result<Tidied> {
        let mut done = Tidied::default();
        let writer = host.map(name::writer);
        for table in Table::ALL {
            let (files, replaced) = self.files(table, None)?;
            let own = |found: &FoundFile| writer.as_ref().is_none_or(|w| *w == found.name.writer);
            if files.is_empty() && replaced.is_empty() {
                continue;
            }
            let _lock = self.storage.lock(table.name(), ".compact")?;
            self.storage.settle(table.name(), false)?;
            for found in replaced.into_iter().filter(own) {
                self.remove(&found, &mut done)?;
            }
            let mut parts: BTreeMap<(Partition, String), Vec<FoundFile>> = BTreeMap::new();
            for found in files.into_iter().filter(own) {
                let key = (found.name.partition, found.name.writer.clone());
                parts.entry(key).or_default().push(found);
            }
            for ((partition, _), files) in parts {
                let over = partition.ends().saturating_add(LATE) <= now_us;
                for run in runs(&files, over) {
                    done += self.merge(partition, run)?;
                }
            }
            self.storage.settle(table.name(), true)?;
        }
        Ok(done)
    }

    /// Compacts files that follow each other; a file that cannot be read stays unchanged, and ends the group before it.
    fn merge(&self, partition: Partition, run: &[FoundFile]) -> Result<Tidied> {
        let mut done = Tidied::default();
        let (mut inputs, mut from) = (Vec::new(), 0);
        for (at, found) in run.iter().enumerate() {
            match Input::read(self.storage.as_ref(), found) {
                Ok(input) => {
                    let rows: usize = inputs.iter().map(Input::rows).sum();
                    if rows + input.rows() > ROWS {
                        done += self.merge_read(partition, &run[from..at], &inputs)?;
                        inputs.clear();
                        from = at;
                    }
                    inputs.push(input);
                }
                Err(error @ LakeError::Damaged { .. }) => {
                    tracing::warn!(%error, "a file of the lake is left out of compaction");
                    done.damaged += 1;
                    done += self.merge_read(partition, &run[from..at], &inputs)?;
                    inputs.clear();
                    from = at + 1;
                }
                Err(error) if error.is_gone() => return Ok(done),
                Err(error) => return Err(error),
            }
        }
        done += self.merge_read(partition, &run[from..], &inputs)?;
        Ok(done)
    }

    fn remove(&self, found: &FoundFile, done: &mut Tidied) -> Result<()> {
        self.storage.delete(&found.name.path())?;
        done.deleted += 1;
        done.deleted_bytes += found.size;
        Ok(())
    }

    fn merge_read(
        &self,
        partition: Partition,
        run: &[FoundFile],
        inputs: &[Input],
    ) -> Result<Tidied> {
        let (Some(first), Some(last), true) = (run.first(), run.last(), run.len() > 1) else {
            return Ok(Tidied::default());
        };
        let files: Result<Vec<File<'_>>> = inputs.iter().map(Input::open).collect();
        let files = files?;
        let table = partition.table;
        let read = |column: usize| -> Result<(Data, Texts)> {
            let mut data = Data::new(table.columns()[column].kind);
            let mut texts = Texts::default();
            for file in &files {
                for group in 0..file.groups() {
                    file.read(group, column, &mut texts, &mut data)?;
                }
            }
            Ok((data, texts))
        };
        let rows = files.iter().map(File::all_rows).sum();
        let keys: Result<Vec<(Data, Vec<u32>)>> = table
            .order()
            .iter()
            .map(|column| read(*column).map(|(data, texts)| (data, texts.ranks())))
            .collect();
        let keys = keys?;
        let keys: Vec<_> = keys
            .iter()
            .map(|(data, ranks)| (data, ranks.as_slice()))
            .collect();
        let order = sort(rows, &keys);
        let encoded = encode(table, &order, &mut |column, with| {
            let (data, texts) = read(column)?;
            with(&data, &texts)
        })?;
        let name = FileName {
            partition,
            writer: first.name.writer.clone(),
            from: first.name.from,
            to: last.name.to,
            check: encoded.check,
        };
        let old: Vec<String> = run.iter().map(|found| found.name.path()).collect();
        self.storage
            .replace(&name.path(), &Bytes::from(encoded.bytes), &old)?;
        Ok(Tidied {
            from: run.len(),
            into: 1,
            rows,
            deleted: run.len(),
            deleted_bytes: run.iter().map(|found| found.size).sum(),
            damaged: 0,
        })
    }

    /// Deletes files that are too old, and the oldest hours if the lake is too large.
    ///
    /// # Errors
    ///
    /// If the storage fails.
    pub fn expire(&self, retention: &Retention, now_us: i64) -> Result<Tidied> {
        let mut all = Vec::new();
        for table in Table::ALL {
            let (files, replaced) = self.files(table, None)?;
            all.extend(files);
            all.extend(replaced);
        }
        // Oldest first. A replaced file before its replacement, or its rows would count again.
        all.sort_by(|one, other| {
            let key = |f: &FoundFile| (f.name.partition.hour, f.name.to - f.name.from);
            key(one).cmp(&key(other))
        });
        let mut bytes: u64 = all.iter().map(|found| found.size).sum();
        let age = i64::try_from(retention.max_age.as_micros()).unwrap_or(i64::MAX);
        let oldest = now_us.saturating_sub(age);
        let mut done = Tidied::default();
        for found in all {
            let old = found.name.partition.ends() <= oldest;
            if !old && bytes <= retention.max_bytes {
                // Those behind it are not older.
                break;
            }
            self.remove(&found, &mut done)?;
            bytes -= found.size;
        }
        Ok(done)
    }
}

/// Directories that have the files of hours: of each day, when there are not too many.
fn directories(table: Table, hours: Option<(i64, i64)>) -> Vec<String> {
    const DAYS: i64 = 40;
    match hours {
        Some((from, to)) if to / 24 - from / 24 < DAYS => (from / 24..=to / 24)
            .map(|day| {
                let partition = Partition {
                    table,
                    hour: day * 24,
                };
                let hour = partition.directory();
                hour.trim_end_matches("/hour=00").to_owned()
            })
            .collect(),
        _ => vec![table.name().into()],
    }
}

/// Files that are worth compacting into one, in the order of their flushes.
fn runs(files: &[FoundFile], over: bool) -> Vec<&[FoundFile]> {
    let mut runs = Vec::new();
    let (mut from, mut bytes) = (0, 0);
    let young = |found: &FoundFile| found.name.from == found.name.to;
    let mut end = |from: usize, to: usize| {
        let run = &files[from..to];
        if run.len() > 1 && (over || run.len() >= YOUNG) {
            runs.push(run);
        }
    };
    for (at, found) in files.iter().enumerate() {
        // Large files stay; in an hour that is not over so do files that are compacted already.
        let alone = found.size > BYTES / 2 || !(over || young(found));
        if alone || bytes + found.size > BYTES {
            end(from, at);
            (from, bytes) = (if alone { at + 1 } else { at }, 0);
        }
        if !alone {
            bytes += found.size;
        }
    }
    end(from, files.len());
    runs
}

/// A file to compact, in packed form.
struct Input {
    found: FoundFile,
    bytes: InMemory,
    rows: usize,
}

impl Input {
    fn read(storage: &dyn Storage, found: &FoundFile) -> Result<Self> {
        let bytes = storage.read(&found.name.path(), 0..found.size)?;
        let mut input = Self {
            found: found.clone(),
            bytes: InMemory(bytes),
            rows: 0,
        };
        let file = input.open()?;
        file.check_all()?;
        input.rows = file.all_rows();
        Ok(input)
    }

    fn open(&self) -> Result<File<'_>> {
        File::open(&self.bytes, &self.found.name, self.found.size)
    }

    fn rows(&self) -> usize {
        self.rows
    }
}

/// A file in memory, to be read as if it were stored.
struct InMemory(Bytes);

impl Storage for InMemory {
    fn list(&self, _: &str) -> Result<Vec<Stored>> {
        Ok(Vec::new())
    }

    fn read(&self, path: &str, range: std::ops::Range<u64>) -> Result<Bytes> {
        let range = usize::try_from(range.start)
            .ok()
            .zip(usize::try_from(range.end).ok());
        match range {
            Some((from, to)) if from <= to && to <= self.0.len() => Ok(self.0.slice(from..to)),
            _ => Err(LakeError::damaged(path, "it is cut off")),
        }
    }

    fn put(&self, path: &str, _: &Bytes) -> Result<()> {
        Err(read_only(path))
    }

    fn delete(&self, path: &str) -> Result<()> {
        Err(read_only(path))
    }

    fn lock(&self, _: &str, _: &str) -> Result<Option<std::fs::File>> {
        Ok(None)
    }
}

fn read_only(path: &str) -> LakeError {
    LakeError::storage(path, std::io::ErrorKind::ReadOnlyFilesystem.into())
}

/// Hours of a time from `since` to before `until`, µs.
pub(crate) fn hours(since: i64, until: i64) -> (i64, i64) {
    (since.max(0) / HOUR, (until.max(1) - 1) / HOUR)
}
