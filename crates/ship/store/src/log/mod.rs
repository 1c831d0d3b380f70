//! A log: append-only files within limits of age and size.
//!
//! A process never appends to a file of an earlier one: it finishes that and starts its own. So a
//! killed process leaves at most one incomplete frame, which is truncated.

mod damage;
pub mod frame;
mod loss;
pub mod segment;

pub use damage::{Damage, DamageNotes};
pub use loss::{Cause, Lost};

use crate::{Limits, StoreError};
use frame::{Frame, Header, Item, walk};
use segment::{Contents, Group, Segment};
use std::{
    collections::VecDeque,
    fs::{self, File},
    hash::{BuildHasher, RandomState},
    io,
    ops::ControlFlow,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

/// Files occupy complete blocks.
const BLOCK: u64 = 4_096;
/// Largest file before a new one is started for its size.
const MOST_FILE: u64 = 64 << 20;

/// A file and its content.
struct Stored {
    segment: Arc<Segment>,
    contents: Contents,
    /// Of the file.
    len: u64,
    /// When it was begun, ms since the Unix epoch.
    created: i64,
}

impl Stored {
    /// With the index that it is to get.
    fn on_disk(&self) -> u64 {
        let index = 128 + 40 * (self.contents.groups.len() as u64 + 1);
        (self.len + index).next_multiple_of(BLOCK)
    }
}

/// Time and cause of the write failure.
struct Failing {
    cause: Cause,
    error: String,
    /// No attempts before this time.
    until: Instant,
    /// Records lost since.
    lost: u64,
}

/// Frames to be read, which lie one after the other in a file.
#[derive(Clone)]
pub struct Part {
    segment: Arc<Segment>,
    /// Where.
    pub group: Group,
}

/// A frame that was read, without its payload.
#[derive(Clone, Copy)]
pub struct FrameAt {
    /// Offset in the bytes read.
    pub at: usize,
    /// Its header.
    pub header: Header,
}

impl Part {
    /// Number of its file.
    pub fn file(&self) -> u64 {
        self.segment.number
    }

    /// Reads the frames; other bytes are recorded as damage.
    pub fn frames(&self, bytes: &mut Vec<u8>, notes: &DamageNotes) -> Vec<FrameAt> {
        let Group { start, end, .. } = self.group;
        let mut found = Vec::new();
        let file = self.segment.number;
        if self.segment.read(start, end, bytes).is_err() {
            notes.add(file, start, end - start, self.group.count);
            return found;
        }
        let mut count = 0;
        let _ = walk(bytes, self.segment.salt, start, |met| {
            match met {
                Item::Frame(at, header) => {
                    count += u64::from(header.count);
                    found.push(FrameAt { at, header });
                }
                Item::Damage(at, len) | Item::Torn(at, len) => {
                    notes.add(file, start + at as u64, len as u64, 0);
                }
            }
            ControlFlow::Continue(())
        });
        if count < self.group.count {
            notes.add_records(file, start, self.group.count - count);
        }
        found
    }

    /// The payload of a frame of [`Part::frames`]; damage is recorded.
    pub fn payload<'a>(
        &self,
        bytes: &'a [u8],
        placed: FrameAt,
        notes: &DamageNotes,
    ) -> Option<std::borrow::Cow<'a, [u8]>> {
        let payload = placed.header.payload(bytes.get(placed.at..)?);
        if payload.is_none() {
            self.note(placed, notes);
        }
        payload
    }

    /// Notes that a frame is damaged.
    pub fn note(&self, placed: FrameAt, notes: &DamageNotes) {
        let offset = self.group.start + placed.at as u64;
        let Header { count, .. } = placed.header;
        let len = placed.header.size() as u64;
        notes.add(self.segment.number, offset, len, count.into());
    }
}

/// How a log is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LogStats {
    /// Bytes on the disk, in complete blocks.
    pub bytes: u64,
    /// Files.
    pub files: usize,
    /// Records stored.
    pub records: u64,
    /// Time of the oldest record, ms since the Unix epoch.
    pub oldest: Option<i64>,
    /// Time of the newest.
    pub newest: Option<i64>,
    /// Records (events of the graph, changes of flows) that were written since the start.
    pub written: u64,
    /// Records that were not written, by cause.
    pub lost: Lost,
    /// What could not be read.
    pub damage: Damage,
    /// Bytes at the ends of files that an earlier, killed process had not finished.
    pub torn_bytes: u64,
    /// Records deleted because of the limits, since the start.
    pub expired: u64,
    /// Why writes fail at present.
    pub failing: Option<String>,
}

/// A log that is open for writing.
pub struct Log {
    dir: PathBuf,
    name: &'static str,
    tag: u32,
    /// Random number of the log, part of its frames' checksums.
    number: u32,
    limits: Limits,
    retry: Duration,
    /// Oldest first.
    files: VecDeque<Stored>,
    active: Option<Stored>,
    next_number: u64,
    next_record: u64,
    failing: Option<Failing>,
    /// Files written since the last sync.
    dirty: Vec<Arc<Segment>>,
    notes: Arc<DamageNotes>,
    stats: LogStats,
}

/// Ms since the Unix epoch.
pub fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| {
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    })
}

/// Whether only a part of the disk is bad: the rest can be used.
fn is_bad_disk(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error())
}

fn ms(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

impl Log {
    /// Opens the log `name` in `dir`.
    pub fn open(
        dir: &Path,
        name: &'static str,
        tag: u32,
        limits: Limits,
        retry: Duration,
    ) -> Result<Self, StoreError> {
        let dir = dir.join(name);
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&dir)
            .map_err(StoreError::io("create", &dir))?;
        let mut log = Self {
            dir,
            name,
            tag,
            number: 0,
            limits,
            retry,
            files: VecDeque::new(),
            active: None,
            next_number: 1,
            next_record: 0,
            failing: None,
            dirty: Vec::new(),
            notes: Arc::default(),
            stats: LogStats::default(),
        };
        log.open_files()?;
        Ok(log)
    }

    fn path(&self, number: u64) -> PathBuf {
        self.dir.join(format!("{number:016x}.log"))
    }

    fn open_files(&mut self) -> Result<(), StoreError> {
        let mut numbers = Vec::new();
        let entries = fs::read_dir(&self.dir).map_err(StoreError::io("list", &self.dir))?;
        for entry in entries {
            let entry = entry.map_err(StoreError::io("list", &self.dir))?;
            let name = entry.file_name();
            let number = name.to_str().and_then(|name| name.strip_suffix(".log"));
            let number = number.filter(|number| number.len() == 16);
            let number = number.and_then(|number| u64::from_str_radix(number, 16).ok());
            numbers.extend(number);
        }
        numbers.sort_unstable();
        let mut known = numbers.iter().map(|number| self.path(*number));
        let known = known.find_map(|path| segment::log_of(&path));
        self.number = known.unwrap_or_else(|| RandomState::new().hash_one(0) as u32);
        // Unknown after the file before.
        let mut next = None;
        for number in numbers {
            self.next_number = self.next_number.max(number.saturating_add(1));
            let path = self.path(number);
            let (segment, contents) = match segment::open(&path, number, self.tag, self.number) {
                Ok(Some(opened)) => opened,
                Ok(None) => {
                    tracing::warn!(file = %path.display(), "skipping a file of another log");
                    continue;
                }
                Err(StoreError::Io { source, .. }) if is_bad_disk(&source) => {
                    tracing::warn!(file = %path.display(), error = %source, "a file of the history cannot be read");
                    self.notes.add(number, 0, 0, 0);
                    continue;
                }
                Err(error) => return Err(error),
            };
            if let Some(next) = next.filter(|next| contents.first > *next) {
                self.notes.add_records(number, 0, contents.first - next);
            }
            if !contents.groups.is_empty() {
                next = Some(contents.next);
                self.next_record = self.next_record.max(contents.next);
            }
            self.adopt(segment, contents)?;
        }
        self.report_damage();
        Ok(())
    }

    /// Adds a file of an earlier process.
    fn adopt(&mut self, segment: Segment, mut contents: Contents) -> Result<(), StoreError> {
        for (at, bytes, records) in std::mem::take(&mut contents.damage) {
            self.notes.add(segment.number, at, bytes, records);
        }
        let path = segment.path().to_owned();
        let about = fs::metadata(&path).map_err(StoreError::io("read the metadata of", &path))?;
        let mut len = about.len();
        if !contents.finished {
            self.stats.torn_bytes += contents.torn;
            // As far as the disk allows; otherwise the next start does it.
            if contents.groups.is_empty() {
                let _ = fs::remove_file(&path);
                return Ok(());
            }
            if let Ok(writable) = segment.for_writing()
                && writable.cut(contents.end).is_ok()
            {
                len = writable.finish(&contents).unwrap_or(contents.end);
            }
        }
        self.files.push_back(Stored {
            created: segment.created,
            segment: Arc::new(segment),
            contents,
            len,
        });
        Ok(())
    }

    fn report_damage(&self) {
        let damage = self.notes.sum();
        if damage.bytes > 0 || damage.records > 0 {
            tracing::warn!(
                log = self.name,
                bytes = damage.bytes,
                records = damage.records,
                "parts of the history are damaged and were left out"
            );
        }
    }

    /// What could not be read is noted here.
    pub fn notes(&self) -> Arc<DamageNotes> {
        self.notes.clone()
    }

    /// Most bytes of a file. A file may exceed it by its last frame.
    fn file_bytes(&self) -> u64 {
        (self.limits.max_bytes / 8).clamp(BLOCK, MOST_FILE)
    }

    fn used(&self) -> u64 {
        let files = self.files.iter().chain(&self.active);
        files.map(Stored::on_disk).sum()
    }

    /// Whether the next frame should start a new file with a state of `state` bytes. States must not be
    /// most of the log.
    pub fn wants_new_file(&self, now: i64, state: u64) -> bool {
        self.active.as_ref().is_none_or(|active| {
            active.len >= self.file_bytes().max(state.saturating_mul(2))
                || now.saturating_sub(active.created) >= ms(self.limits.max_age) / 16
        })
    }

    /// Whether a write may be tried: not during the pause after a failure.
    pub fn is_ready(&self) -> bool {
        let failing = self.failing.as_ref();
        failing.is_none_or(|failing| failing.until <= Instant::now())
    }

    /// Why the last write failed, if it did.
    pub fn failing_cause(&self) -> Option<Cause> {
        self.failing.as_ref().map(|failing| failing.cause)
    }

    /// Whether there is a file that frames are added to.
    pub fn has_file(&self) -> bool {
        self.active.is_some()
    }

    /// Records that the data is too large, and pauses.
    pub fn refuse(&mut self, why: &str) {
        if self.failing.is_none() {
            tracing::warn!(log = self.name, why, "the history is not written");
        }
        self.failing = Some(Failing {
            cause: Cause::TooLarge,
            error: why.to_owned(),
            until: Instant::now() + self.retry * 60,
            lost: 0,
        });
    }

    /// Finishes the current file.
    pub fn finish_file(&mut self) {
        let Some(mut active) = self.active.take() else {
            return;
        };
        // Without an index it is only slower to open.
        if let Ok(len) = active.segment.finish(&active.contents) {
            active.len = len;
            active.contents.finished = true;
        }
        if let Ok(readable) = active.segment.for_reading() {
            active.segment = Arc::new(readable);
            let last = self.dirty.last_mut();
            if let Some(last) = last.filter(|last| last.number == active.segment.number) {
                *last = active.segment.clone();
            }
        }
        self.files.push_back(active);
    }

    /// Writes a frame, in a new file if `new_file` or the last one is full. What cannot be written is
    /// counted as lost.
    pub fn append(&mut self, frame: &mut Frame, new_file: bool) -> Result<(), Cause> {
        let records = u64::from(frame.count);
        if !self.is_ready()
            && let Some(failing) = &mut self.failing
        {
            failing.lost += records;
            self.stats.lost.add(failing.cause, records);
            return Err(failing.cause);
        }
        match self.write(frame, new_file) {
            Ok(()) => {
                self.stats.written += records;
                if let Some(failing) = self.failing.take() {
                    tracing::info!(
                        log = self.name,
                        lost = failing.lost,
                        "the history can be written again"
                    );
                }
                Ok(())
            }
            Err(error) => {
                let cause = Cause::of(&error);
                self.stats.lost.add(cause, records);
                self.fail(cause, &error.to_string(), records);
                Err(cause)
            }
        }
    }

    fn fail(&mut self, cause: Cause, error: &str, records: u64) {
        // The end of this file is unknown: start a new one.
        self.finish_file();
        if cause == Cause::TooLarge {
            tracing::warn!(log = self.name, error, "not written to the history");
            return;
        }
        let before = self.failing.take();
        if before.is_none() {
            tracing::warn!(
                log = self.name,
                directory = %self.dir.display(),
                error,
                "the history cannot be written; until then new records are only in memory"
            );
        }
        self.failing = Some(Failing {
            cause,
            error: error.to_owned(),
            until: Instant::now() + self.retry,
            lost: before.map_or(0, |before| before.lost) + records,
        });
    }

    fn write(&mut self, frame: &mut Frame, new_file: bool) -> io::Result<()> {
        if new_file {
            self.finish_file();
        }
        self.make_room(frame.size() as u64)?;
        let now = now_ms();
        let mut active = match self.active.take() {
            Some(active) => active,
            None => self.begin_file(now)?,
        };
        let offset = active.contents.end;
        let bytes = frame.finish(self.next_record, active.segment.salt, offset);
        let written = active.segment.append(bytes, offset);
        if written.is_ok() {
            let len = bytes.len() as u64;
            let span = (frame.from, frame.to);
            active.contents.add(offset, len, frame.count, span);
            active.len = active.contents.end;
            if self
                .dirty
                .last()
                .is_none_or(|last| last.number != active.segment.number)
            {
                self.dirty.push(active.segment.clone());
            }
            self.next_record = active.contents.next;
            self.active = Some(active);
        } else if active.contents.groups.is_empty() {
            let _ = fs::remove_file(active.segment.path());
        } else {
            self.active = Some(active);
        }
        written
    }

    fn begin_file(&mut self, now: i64) -> io::Result<Stored> {
        let number = self.next_number;
        let path = self.path(number);
        let segment = segment::create(&path, number, self.tag, now, self.number)?;
        self.next_number += 1;
        Ok(Stored {
            segment: Arc::new(segment),
            contents: Contents {
                end: segment::HEAD as u64,
                first: self.next_record,
                next: self.next_record,
                ..Contents::default()
            },
            len: segment::HEAD as u64,
            created: now,
        })
    }

    /// Deletes the oldest files until a frame of `len` bytes fits.
    fn make_room(&mut self, len: u64) -> io::Result<()> {
        // Head, index and a part of a block at worst.
        let needed = (len + 512).next_multiple_of(BLOCK);
        if needed > self.limits.max_bytes {
            return Err(io::Error::new(
                io::ErrorKind::FileTooLarge,
                format!("{len} bytes at once exceed the limit of the history"),
            ));
        }
        while self.used() + needed > self.limits.max_bytes {
            if self.files.is_empty() {
                self.finish_file();
            }
            self.drop_oldest()?;
        }
        Ok(())
    }

    fn drop_oldest(&mut self) -> io::Result<()> {
        let Some(oldest) = self.files.pop_front() else {
            return Ok(());
        };
        match fs::remove_file(oldest.segment.path()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                self.files.push_front(oldest);
                Err(error)
            }
            _ => {
                let groups = oldest.contents.groups.iter();
                self.stats.expired += groups.map(|group| group.count).sum::<u64>();
                Ok(())
            }
        }
    }

    /// Deletes records written too long before `now`, ms since the Unix epoch. The times of their
    /// packets do not count: a capture may replay old packets.
    pub fn expire(&mut self, now: i64) {
        let (age, part) = (ms(self.limits.max_age), ms(self.limits.max_age) / 16);
        loop {
            let mut files = self.files.iter().chain(&self.active);
            let Some(oldest) = files.next() else {
                return;
            };
            // A file ends when the next one starts, or after one part of the age limit.
            let longest = oldest.created.saturating_add(part);
            let ended = files
                .next()
                .map_or(longest, |next| next.created.min(longest));
            if ended >= now.saturating_sub(age) {
                return;
            }
            if self.files.is_empty() {
                self.finish_file();
            }
            if let Err(error) = self.drop_oldest() {
                tracing::debug!(log = self.name, %error, "cannot delete old files");
                return;
            }
        }
    }

    /// Files to sync ([`sync`]), and their directory.
    pub fn take_unsynced(&mut self) -> Option<(Vec<Arc<Segment>>, PathBuf)> {
        let dirty = std::mem::take(&mut self.dirty);
        (!dirty.is_empty()).then(|| (dirty, self.dir.clone()))
    }

    /// Reports that syncing [`Log::take_unsynced`] failed: written data may not be on the disk.
    pub fn sync_failed(&mut self, error: &io::Error) {
        self.fail(Cause::of(error), &error.to_string(), 0);
    }

    /// Counts records that never got here.
    pub fn lose(&mut self, cause: Cause, records: u64) {
        self.stats.lost.add(cause, records);
    }

    /// What may have something of the time from `from` to `to` (ms since the Unix epoch), in the order
    /// in which it was written.
    pub fn parts(&self, from: i64, to: i64) -> Vec<Part> {
        let mut parts = Vec::new();
        for file in self.files.iter().chain(&self.active) {
            let groups = file.contents.groups.iter();
            let touched = groups.filter(|group| group.from <= to && group.to >= from);
            parts.extend(touched.map(|group| Part {
                segment: file.segment.clone(),
                group: *group,
            }));
        }
        parts
    }

    /// How it is.
    pub fn stats(&self) -> LogStats {
        let files = || self.files.iter().chain(&self.active);
        let spans = || files().filter_map(|file| file.contents.span());
        LogStats {
            bytes: self.used(),
            files: files().count(),
            records: files()
                .flat_map(|file| &file.contents.groups)
                .map(|group| group.count)
                .sum(),
            oldest: spans().map(|(from, _)| from).min(),
            newest: spans().map(|(_, to)| to).max(),
            damage: self.notes.sum(),
            failing: self.failing.as_ref().map(|failing| failing.error.clone()),
            ..self.stats.clone()
        }
    }
}

/// Forces files and their directory onto the disk.
pub fn sync(segments: &[Arc<Segment>], dir: &Path) -> io::Result<()> {
    for segment in segments {
        segment.sync()?;
    }
    File::open(dir)?.sync_all()
}

impl Drop for Log {
    fn drop(&mut self) {
        self.finish_file();
        if let Some((segments, dir)) = self.take_unsynced()
            && let Err(error) = sync(&segments, &dir)
        {
            tracing::warn!(log = self.name, %error, "the end of the history may not be on the disk");
        }
    }
}

/// Visits the payloads of a file of any content, of either log.
pub(crate) fn check(path: &Path, visit: &mut dyn FnMut(&[u8])) {
    let opened = (1..=2).find_map(|tag| segment::open(path, 1, tag, 0).ok()?);
    let Some((segment, contents)) = opened else {
        return;
    };
    let notes = DamageNotes::default();
    let segment = Arc::new(segment);
    let mut bytes = Vec::new();
    for group in contents.groups {
        let part = Part {
            segment: segment.clone(),
            group,
        };
        for placed in part.frames(&mut bytes, &notes) {
            if let Some(payload) = part.payload(&bytes, placed, &notes) {
                visit(&payload);
            }
        }
    }
}
