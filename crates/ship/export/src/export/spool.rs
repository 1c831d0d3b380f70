//! Datagrams on disk, until a collector that is gone is there again.
//!
//! A directory has files with datagrams one behind the other, each with its length and checksum. New ones go to the
//! end of the last file; what was read stays until it is confirmed, file by file. Beyond the most bytes the oldest file
//! goes. Nothing is synchronised to the disk: what is here survives the end of the process, not that of the kernel.

use std::{
    collections::VecDeque,
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use anyhow::Context as _;
use rustix::fs::FlockOperation;
use skua_config::export::SpoolSettings;

/// What a file begins with.
const MAGIC: &[u8; 8] = b"skuaspl1";
/// Length and checksum before each datagram.
const HEAD: usize = 8;
/// The longest datagram.
const LONGEST: usize = 65_535;
/// Bytes of a file at most, and at least.
const FILE: std::ops::RangeInclusive<u64> = (128 << 10)..=(4 << 20);
/// Where it was read up to, in a file of its own.
const PLACE: &str = "place";
/// Who has the directory.
const LOCK: &str = "lock";

/// The spool of a collector, if there is a place for it. `slot` tells those of one name apart, `share` is how
/// many bytes it may have.
pub fn open(
    settings: &SpoolSettings,
    collector: &str,
    slot: usize,
    share: Arc<AtomicU64>,
) -> anyhow::Result<Option<(Spool, Arc<Counts>)>> {
    if settings.directory.is_empty() {
        return Ok(None);
    }
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() || c == '.' || c == '-' {
            c
        } else {
            '_'
        }
    };
    let name: String = collector.chars().map(plain).collect();
    let name = match slot {
        0 => format!("to-{name}"),
        _ => format!("to-{name}-{}", slot + 1),
    };
    let directory = Path::new(&settings.directory).join(name);
    let counts = Arc::<Counts>::default();
    let spool = Spool::open(&directory, share, counts.clone()).with_context(|| {
        format!(
            "export.spool.directory: {} cannot be used",
            directory.display()
        )
    })?;
    Ok(Some((spool, counts)))
}

/// What a spool has, and what it lost.
#[derive(Debug, Default)]
pub struct Counts {
    /// Datagrams in it.
    pub datagrams: AtomicU64,
    /// Bytes of its files.
    pub bytes: AtomicU64,
    /// Datagrams that were put into it.
    pub kept: AtomicU64,
    /// Datagrams that went because it was full, the oldest first.
    pub full: AtomicU64,
    /// Datagrams that could not be written.
    pub failed: AtomicU64,
    /// Places in files that were not readable: at least one datagram each.
    pub corrupt: AtomicU64,
}

/// A file.
#[derive(Debug)]
struct Segment {
    number: u64,
    bytes: u64,
    datagrams: u64,
}

/// A place in the files: number of one, and bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Position {
    segment: u64,
    at: u64,
}

/// A spool.
pub struct Spool {
    directory: PathBuf,
    /// Bytes of files at most.
    most: Arc<AtomicU64>,
    segments: VecDeque<Segment>,
    writer: Option<File>,
    reader: Option<(u64, File)>,
    /// Where the next is read.
    next: Position,
    /// Where what was confirmed ends, and where each of those ends that were read since.
    confirmed: Position,
    read: VecDeque<Position>,
    /// Of those that were read and not confirmed, so many went because it was full.
    gone: usize,
    buffer: Vec<u8>,
    counts: Arc<Counts>,
    /// Holds the lock.
    lock: File,
}

impl Drop for Spool {
    fn drop(&mut self) {
        // A program that is being started has a copy of the descriptor until it executes: closing would unlock only then.
        let _ = rustix::fs::flock(&self.lock, FlockOperation::Unlock);
    }
}

impl Spool {
    /// Opens a directory, which is made if need be, with what it has from before.
    ///
    /// # Errors
    ///
    /// When it cannot be made or written, or another process has it.
    pub fn open(directory: &Path, most: Arc<AtomicU64>, counts: Arc<Counts>) -> io::Result<Self> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)?;
        let lock = options(true).open(directory.join(LOCK))?;
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        let mut spool = Self {
            directory: directory.to_owned(),
            most,
            segments: VecDeque::new(),
            writer: None,
            reader: None,
            next: Position::default(),
            confirmed: Position::default(),
            read: VecDeque::new(),
            gone: 0,
            buffer: Vec::new(),
            counts,
            lock,
        };
        spool.find()?;
        Ok(spool)
    }

    /// What is there from before.
    fn find(&mut self) -> io::Result<()> {
        let mut numbers = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            let name = entry?.file_name();
            let number = name.to_str().and_then(|name| name.strip_suffix(".spool"));
            numbers.extend(number.and_then(|number| number.parse::<u64>().ok()));
        }
        numbers.sort_unstable();
        let place = fs::read_to_string(self.directory.join(PLACE)).unwrap_or_default();
        let mut words = place.split(' ').map_while(|word| word.trim().parse().ok());
        let place = match (words.next(), words.next()) {
            (Some(segment), Some(at)) => Position { segment, at },
            _ => Position::default(),
        };
        for number in numbers {
            let from = if number == place.segment { place.at } else { 0 };
            let bytes = fs::metadata(self.path(number))?.len();
            // An order of magnitude: what is not readable is counted when it is read.
            let datagrams = self.count(number, from);
            self.segments.push_back(Segment {
                number,
                bytes,
                datagrams,
            });
            self.counts.datagrams.fetch_add(datagrams, Relaxed);
            self.counts.bytes.fetch_add(bytes, Relaxed);
        }
        self.next = match self.segments.front() {
            Some(first) if self.segments.iter().all(|s| s.number != place.segment) => Position {
                segment: first.number,
                at: 0,
            },
            // When there is none, its number is not used again.
            _ => place,
        };
        self.confirmed = self.next;
        Ok(())
    }

    fn path(&self, number: u64) -> PathBuf {
        self.directory.join(format!("{number:012}.spool"))
    }

    /// Datagrams of a file from a place on.
    fn count(&self, number: u64, from: u64) -> u64 {
        let Ok(mut file) = File::open(self.path(number)) else {
            return 0;
        };
        let (mut at, mut count) = (from, 0);
        let mut buffer = Vec::new();
        while let Ok(Some(end)) = read_at(&mut file, at, &mut buffer) {
            (at, count) = (end, count + 1);
        }
        count
    }

    /// Whether all was read.
    pub fn is_read(&self) -> bool {
        match self.segments.back() {
            None => true,
            Some(last) => {
                self.next.segment > last.number
                    || (self.next.segment == last.number && self.next.at >= last.bytes)
            }
        }
    }

    /// Datagrams that were not confirmed.
    pub fn len(&self) -> u64 {
        self.counts.datagrams.load(Relaxed)
    }

    /// Puts one at the end; what cannot be written is counted.
    pub fn append(&mut self, datagram: &[u8]) {
        match self.write(datagram) {
            Ok(()) => {
                self.counts.kept.fetch_add(1, Relaxed);
                self.counts.datagrams.fetch_add(1, Relaxed);
            }
            Err(error) => {
                tracing::debug!(%error, "the spool cannot be written");
                self.counts.failed.fetch_add(1, Relaxed);
            }
        }
    }

    fn write(&mut self, datagram: &[u8]) -> io::Result<()> {
        let size = (HEAD + datagram.len()) as u64;
        let most = self.most.load(Relaxed);
        let file = (most / 8).clamp(*FILE.start(), *FILE.end());
        let fits = |segment: &Segment| segment.bytes + size <= file;
        if self.writer.is_none() || !self.segments.back().is_some_and(fits) {
            self.begin()?;
        }
        while self.counts.bytes.load(Relaxed) + size > most && self.segments.len() > 1 {
            self.drop_oldest();
        }
        let (Some(writer), Some(segment)) = (&mut self.writer, self.segments.back_mut()) else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let record = &mut self.buffer;
        record.clear();
        record.extend_from_slice(&(datagram.len() as u32).to_le_bytes());
        record.extend_from_slice(&crc32fast::hash(datagram).to_le_bytes());
        record.extend_from_slice(datagram);
        if let Err(error) = writer.write_all(record) {
            // Half of it may be there.
            let back = writer.set_len(segment.bytes);
            if back
                .and_then(|()| writer.seek(SeekFrom::Start(segment.bytes)))
                .is_err()
            {
                self.writer = None;
            }
            return Err(error);
        }
        segment.bytes += size;
        segment.datagrams += 1;
        self.counts.bytes.fetch_add(size, Relaxed);
        Ok(())
    }

    /// Begins a file.
    fn begin(&mut self) -> io::Result<()> {
        let last = self.segments.back().map(|segment| segment.number);
        let number = last.unwrap_or(self.next.segment) + 1;
        let path = self.path(number);
        let mut file = options(false).truncate(true).open(&path)?;
        if let Err(error) = file.write_all(MAGIC) {
            let _ = fs::remove_file(path);
            return Err(error);
        }
        if self.segments.is_empty() {
            self.next = Position {
                segment: number,
                at: 0,
            };
            self.confirmed = self.next;
        }
        self.writer = Some(file);
        let bytes = MAGIC.len() as u64;
        self.counts.bytes.fetch_add(bytes, Relaxed);
        self.segments.push_back(Segment {
            number,
            bytes,
            datagrams: 0,
        });
        Ok(())
    }

    /// The oldest file goes, with what of it was not confirmed.
    fn drop_oldest(&mut self) {
        let Some(left) = self.remove_first() else {
            return;
        };
        self.counts.full.fetch_add(left, Relaxed);
        let first = self.segments.front().map_or(0, |segment| segment.number);
        let begin = Position {
            segment: first,
            at: 0,
        };
        let read = self.read.len();
        self.read.retain(|place| place.segment >= first);
        self.gone += read - self.read.len();
        if self.next.segment < first {
            self.next = begin;
        }
        self.confirmed = begin;
    }

    /// Removes the first file; how many datagrams it had that were not confirmed.
    fn remove_first(&mut self) -> Option<u64> {
        let segment = self.segments.pop_front()?;
        let _ = fs::remove_file(self.path(segment.number));
        self.counts.bytes.fetch_sub(segment.bytes, Relaxed);
        self.counts
            .datagrams
            .fetch_sub(segment.datagrams.min(self.len()), Relaxed);
        if self.segments.is_empty() {
            self.writer = None;
        }
        Some(segment.datagrams)
    }

    /// The next one, which stays until it is confirmed; none when all was read.
    pub fn next(&mut self) -> Option<Vec<u8>> {
        let mut datagram = Vec::new();
        while !self.is_read() {
            let number = self.next.segment;
            let end = self.segments.iter().find(|s| s.number == number)?.bytes;
            match self.read_next(&mut datagram) {
                Ok(Some(at)) => {
                    self.next.at = at;
                    self.read.push_back(self.next);
                    return Some(datagram);
                }
                // What is written now has no next file yet.
                Ok(None) if self.segments.back().is_some_and(|s| s.number == number) => {
                    self.next.at = end;
                }
                Ok(None) => self.step(),
                Err(error) => {
                    tracing::warn!(%error, "a file of the spool cannot be read further");
                    self.counts.corrupt.fetch_add(1, Relaxed);
                    self.forget_rest();
                    self.step();
                }
            }
        }
        None
    }

    fn read_next(&mut self, datagram: &mut Vec<u8>) -> io::Result<Option<u64>> {
        let Position { segment, at } = self.next;
        let reader = match &mut self.reader {
            Some((number, reader)) if *number == segment => reader,
            _ => {
                let file = File::open(self.path(segment))?;
                &mut self.reader.insert((segment, file)).1
            }
        };
        read_at(reader, at, datagram)
    }

    /// To the next file.
    fn step(&mut self) {
        let next = self.segments.iter().find(|s| s.number > self.next.segment);
        self.next = Position {
            segment: next.map_or(self.next.segment + 1, |segment| segment.number),
            at: 0,
        };
        // Nothing is written any more to one that was read to its end.
        if next.is_none() {
            self.writer = None;
        }
        if self.read.is_empty() {
            self.clear_until(self.next);
        }
    }

    /// Those that can no longer be read are in no count.
    fn forget_rest(&mut self) {
        let number = self.next.segment;
        let read = self.read.iter().filter(|place| place.segment == number);
        let read = read.count() as u64;
        if let Some(segment) = self.segments.iter_mut().find(|s| s.number == number) {
            let gone = segment.datagrams.saturating_sub(read);
            segment.datagrams -= gone;
            self.counts
                .datagrams
                .fetch_sub(gone.min(self.counts.datagrams.load(Relaxed)), Relaxed);
        }
    }

    /// So many of those that were read have come to the collector.
    pub fn confirm(&mut self, count: usize) {
        let gone = count.min(self.gone);
        self.gone -= gone;
        for _ in gone..count {
            let Some(place) = self.read.pop_front() else {
                return;
            };
            let segment = self.segments.iter_mut().find(|s| s.number == place.segment);
            if let Some(segment) = segment {
                segment.datagrams = segment.datagrams.saturating_sub(1);
                self.counts.datagrams.fetch_sub(self.len().min(1), Relaxed);
            }
            self.confirmed = place;
        }
        let until = match self.read.is_empty() && self.is_read() {
            true => Position {
                segment: u64::MAX,
                at: 0,
            },
            false => self.confirmed,
        };
        self.clear_until(until);
        self.note_place();
    }

    /// Removes files before that of a place.
    fn clear_until(&mut self, place: Position) {
        while self
            .segments
            .front()
            .is_some_and(|s| s.number < place.segment)
        {
            if let Some(left) = self.remove_first() {
                // Counted as unreadable, or none.
                tracing::debug!(left, "a file of the spool was sent");
            }
        }
        if self.segments.is_empty() {
            self.reader = None;
        }
    }

    /// What was read and not confirmed is read once more.
    pub fn rewind(&mut self) {
        self.read.clear();
        self.gone = 0;
        self.next = self.confirmed;
    }

    fn note_place(&self) {
        let Position { segment, at } = self.confirmed;
        // Without it what was sent is sent again after a restart, which the collector sees.
        let _ = fs::write(self.directory.join(PLACE), format!("{segment} {at}\n"));
    }
}

fn options(read: bool) -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(read).write(true).create(true).mode(0o600);
    options
}

/// Reads the datagram at a place of a file; where it ends, none at the end of the file.
fn read_at(file: &mut File, at: u64, datagram: &mut Vec<u8>) -> io::Result<Option<u64>> {
    let wrong = |what| io::Error::new(io::ErrorKind::InvalidData, what);
    let mut at = at;
    file.seek(SeekFrom::Start(at))?;
    if at == 0 {
        let mut magic = [0; MAGIC.len()];
        file.read_exact(&mut magic)?;
        if magic != *MAGIC {
            return Err(wrong("this is no file of a spool"));
        }
        at = MAGIC.len() as u64;
    }
    let mut head = [0; HEAD];
    match file.read(&mut head)? {
        0 => return Ok(None),
        HEAD => {}
        _ => return Err(wrong("it ends within a datagram")),
    }
    let [a, b, c, d, sum @ ..] = head;
    let length = u32::from_le_bytes([a, b, c, d]) as usize;
    if length == 0 || length > LONGEST {
        return Err(wrong("a length that cannot be"));
    }
    datagram.resize(length, 0);
    file.read_exact(datagram)?;
    if crc32fast::hash(datagram) != u32::from_le_bytes(sum) {
        return Err(wrong("a checksum does not fit"));
    }
    Ok(Some(at + (HEAD + length) as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory that is gone at the end.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let name = format!("skua-spool-{name}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            let _ = fs::remove_dir_all(&path);
            Self(path)
        }

        fn open(&self, most: u64) -> (Spool, Arc<Counts>) {
            let counts = Arc::<Counts>::default();
            let most = Arc::new(AtomicU64::new(most));
            (Spool::open(&self.0, most, counts.clone()).unwrap(), counts)
        }

        fn files(&self) -> Vec<PathBuf> {
            let all = fs::read_dir(&self.0).unwrap();
            let mut all: Vec<_> = all.map(|entry| entry.unwrap().path()).collect();
            all.retain(|path| path.extension().is_some_and(|end| end == "spool"));
            all.sort();
            all
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn datagram(number: u32) -> Vec<u8> {
        let mut bytes = number.to_le_bytes().to_vec();
        bytes.resize(1_000, 7);
        bytes
    }

    fn number(datagram: &[u8]) -> u32 {
        u32::from_le_bytes(datagram[..4].try_into().unwrap())
    }

    fn rest(spool: &mut Spool) -> Vec<u32> {
        std::iter::from_fn(|| spool.next().map(|bytes| number(&bytes))).collect()
    }

    #[test]
    fn what_was_kept_comes_in_its_order_until_it_is_confirmed_also_after_a_restart() {
        let scratch = Scratch::new("order");
        let (mut spool, counts) = scratch.open(1 << 20);
        assert!(spool.is_read());
        for number in 0..300 {
            spool.append(&datagram(number));
        }
        assert!(scratch.files().len() > 1);
        for expected in 0..200 {
            assert_eq!(number(&spool.next().unwrap()), expected);
        }
        spool.confirm(150);
        assert_eq!(spool.len(), 150);
        spool.rewind();
        assert_eq!(number(&spool.next().unwrap()), 150);
        // Nobody else may have it meanwhile.
        assert!(Spool::open(&scratch.0, Arc::default(), Arc::default()).is_err());
        drop(spool);
        let (mut spool, counts_then) = scratch.open(1 << 20);
        assert_eq!(counts_then.datagrams.load(Relaxed), 150);
        spool.append(&datagram(300));
        assert_eq!(rest(&mut spool), (150..=300).collect::<Vec<_>>());
        spool.confirm(151);
        assert!(spool.is_read() && scratch.files().is_empty());
        // What comes later has not been read.
        spool.append(&datagram(301));
        assert_eq!((rest(&mut spool), spool.len()), (vec![301], 1));
        drop(spool);
        let (mut spool, _) = scratch.open(1 << 20);
        assert_eq!(rest(&mut spool), [301]);
        for lost in [&counts.full, &counts.failed, &counts.corrupt] {
            assert_eq!(lost.load(Relaxed), 0);
        }
    }

    #[test]
    fn the_oldest_go_when_it_is_full_and_are_counted() {
        let scratch = Scratch::new("full");
        let (mut spool, counts) = scratch.open(1 << 20);
        for number in 0..50 {
            spool.append(&datagram(number));
        }
        assert_eq!(number(&spool.next().unwrap()), 0);
        for number in 50..3_000 {
            spool.append(&datagram(number));
            assert!(counts.bytes.load(Relaxed) <= 1 << 20);
        }
        let lost = counts.full.load(Relaxed);
        assert!((1_900..2_300).contains(&lost), "{lost}");
        assert_eq!(rest(&mut spool), (lost as u32..3_000).collect::<Vec<_>>());
        // The first was on its way when its file went.
        spool.confirm(1);
        assert_eq!(spool.len(), 3_000 - lost);
        spool.confirm(3_000 - lost as usize);
        assert_eq!((spool.len(), scratch.files().len()), (0, 0));
    }

    #[test]
    fn what_cannot_be_read_is_counted_and_stepped_over() {
        let scratch = Scratch::new("corrupt");
        let (mut spool, _) = scratch.open(1 << 20);
        for number in 0..400 {
            spool.append(&datagram(number));
        }
        drop(spool);
        let files = scratch.files();
        assert!(files.len() > 3);
        // One byte, the first bytes, the end.
        let mut bytes = fs::read(&files[0]).unwrap();
        bytes[5_000] ^= 1;
        fs::write(&files[0], bytes).unwrap();
        let mut bytes = fs::read(&files[1]).unwrap();
        bytes[0] ^= 1;
        fs::write(&files[1], bytes).unwrap();
        let bytes = fs::read(files.last().unwrap()).unwrap();
        fs::write(files.last().unwrap(), &bytes[..bytes.len() - 1]).unwrap();
        fs::write(scratch.0.join("000000000099.spool"), [0; 3]).unwrap();
        fs::write(scratch.0.join(PLACE), [0xff; 9]).unwrap();
        let (mut spool, counts) = scratch.open(1 << 20);
        let found = rest(&mut spool);
        assert_eq!(found[..4], [0, 1, 2, 3]);
        assert!(found.is_sorted() && found.last() == Some(&398), "{found:?}");
        assert_eq!(counts.corrupt.load(Relaxed), 4);
        assert_eq!(spool.len(), found.len() as u64);
        spool.confirm(found.len());
        spool.append(&datagram(400));
        assert_eq!(rest(&mut spool), [400]);
    }

    #[test]
    fn a_full_disk_is_counted_and_nothing_that_was_there_is_lost() {
        let scratch = Scratch::new("disk");
        let (mut spool, counts) = scratch.open(1 << 20);
        spool.append(&datagram(1));
        // Where each write says that there is no space.
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        spool.writer = Some(full);
        spool.append(&datagram(2));
        spool.append(&datagram(3));
        assert_eq!(counts.failed.load(Relaxed), 1);
        assert_eq!(rest(&mut spool), [1, 3]);
    }
}
