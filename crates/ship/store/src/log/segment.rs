//! Files of a log: a head, frames, and in finished files an index and a foot.
//!
//! The head has 32 bytes, little-endian: `SKUAHIST`, version of the format (4), kind of log (4), time of
//! creation in ms since the Unix epoch (8), random number of the log (4), CRC-32 of the 28 bytes before (4).
//! All files of a log have the same number, so that it is known also if a head is damaged; with the file's
//! own number it makes the salt of its frames. The index is a frame; the foot has 16 bytes: `SkEn`, CRC-32 of the 8 bytes that follow, offset of the index.

use super::frame::{Frame, Header, Item, Kind, walk};
use crate::{StoreError, lock::FORMAT};
use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    ops::ControlFlow,
    os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

/// Bytes of a head.
pub const HEAD: usize = 32;
const FOOT: usize = 16;
const MAGIC: [u8; 8] = *b"SKUAHIST";
const FOOT_MAGIC: [u8; 4] = *b"SkEn";
/// Frames are read together up to this size.
const GROUP: u64 = 256 << 10;

/// Frames that lie one after the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Group {
    /// Offset of the first.
    pub start: u64,
    /// Where the last ends.
    pub end: u64,
    /// Least time in them, ms since the Unix epoch.
    pub from: i64,
    /// Greatest time.
    pub to: i64,
    /// Records in them.
    pub count: u64,
}

impl Group {
    const BYTES: usize = 40;

    fn write(&self, out: &mut Vec<u8>) {
        for word in [self.start, self.end, self.count] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        for time in [self.from, self.to] {
            out.extend_from_slice(&time.to_le_bytes());
        }
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let word = |at: usize| <[u8; 8]>::try_from(bytes.get(at..at + 8)?).ok();
        Some(Self {
            start: u64::from_le_bytes(word(0)?),
            end: u64::from_le_bytes(word(8)?),
            count: u64::from_le_bytes(word(16)?),
            from: i64::from_le_bytes(word(24)?),
            to: i64::from_le_bytes(word(32)?),
        })
    }
}

/// A file of a log, open for reading. Deleting it does not disturb readers.
#[derive(Debug)]
pub struct Segment {
    file: File,
    path: PathBuf,
    /// Its index among the files of the log.
    pub number: u64,
    /// See [`Header::read`].
    pub salt: u32,
    /// When it was begun, ms since the Unix epoch.
    pub created: i64,
}

impl Segment {
    /// Its bytes from `start` to `end`.
    pub fn read(&self, start: u64, end: u64, into: &mut Vec<u8>) -> io::Result<()> {
        let len = usize::try_from(end.saturating_sub(start)).map_err(io::Error::other)?;
        into.resize(len, 0);
        self.file.read_exact_at(into, start)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Syncs the file to the disk.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

/// The content of a file, known without reading payloads.
#[derive(Default)]
pub struct Contents {
    /// In the order of the file.
    pub groups: Vec<Group>,
    /// Where the last frame ends.
    pub end: u64,
    /// Records that were written to the log before this file.
    pub first: u64,
    /// Records in it and before it.
    pub next: u64,
    /// Damaged positions: offset, length and number of records.
    pub damage: Vec<(u64, u64, u64)>,
    /// Bytes at the end that are no frames.
    pub torn: u64,
    /// Whether it has an index.
    pub finished: bool,
}

impl Contents {
    /// Adds a frame at `offset`.
    pub fn add(&mut self, offset: u64, len: u64, count: u32, (from, to): (i64, i64)) {
        let end = offset + len;
        match self.groups.last_mut() {
            Some(last) if last.end == offset && end - last.start <= GROUP => {
                last.end = end;
                last.from = last.from.min(from);
                last.to = last.to.max(to);
                last.count = last.count.saturating_add(count.into());
            }
            _ => self.groups.push(Group {
                start: offset,
                end,
                from,
                to,
                count: count.into(),
            }),
        }
        self.end = end;
        self.next = self.next.saturating_add(count.into());
    }

    /// Least and greatest time.
    pub fn span(&self) -> Option<(i64, i64)> {
        let from = self.groups.iter().map(|group| group.from).min()?;
        let to = self.groups.iter().map(|group| group.to).max()?;
        Some((from, to))
    }
}

/// The head of a file.
#[derive(Clone, Copy)]
struct Head {
    version: u32,
    tag: u32,
    created: i64,
    log: u32,
}

impl Head {
    fn write(self) -> [u8; HEAD] {
        let mut head = [0; HEAD];
        head[..8].copy_from_slice(&MAGIC);
        head[8..12].copy_from_slice(&self.version.to_le_bytes());
        head[12..16].copy_from_slice(&self.tag.to_le_bytes());
        head[16..24].copy_from_slice(&self.created.to_le_bytes());
        head[24..28].copy_from_slice(&self.log.to_le_bytes());
        let crc = crc32fast::hash(&head[..28]);
        head[28..].copy_from_slice(&crc.to_le_bytes());
        head
    }

    /// None when it is damaged.
    fn read(file: &File) -> Option<Self> {
        let mut head = [0; HEAD];
        file.read_exact_at(&mut head, 0).ok()?;
        let word = |at: usize| {
            let mut word = [0; 4];
            word.copy_from_slice(&head[at..at + 4]);
            u32::from_le_bytes(word)
        };
        let mut created = [0; 8];
        created.copy_from_slice(&head[16..24]);
        let sound = head[..8] == MAGIC && crc32fast::hash(&head[..28]) == word(28);
        sound.then(|| Self {
            version: word(8),
            tag: word(12),
            created: i64::from_le_bytes(created),
            log: word(24),
        })
    }
}

fn salt(log: u32, number: u64) -> u32 {
    let mut salt = crc32fast::Hasher::new_with_initial(log);
    salt.update(&number.to_le_bytes());
    salt.finalize()
}

/// The number of the log that a file belongs to, if its head can be read.
pub fn log_of(path: &Path) -> Option<u32> {
    Some(Head::read(&File::open(path).ok()?)?.log)
}

/// Creates a file and writes its head. On failure no file is left.
pub fn create(path: &Path, number: u64, tag: u32, created: i64, log: u32) -> io::Result<Segment> {
    let head = Head {
        version: FORMAT,
        tag,
        created,
        log,
    };
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    if let Err(error) = file.write_all(&head.write()) {
        let _ = std::fs::remove_file(path);
        return Err(error);
    }
    Ok(Segment {
        file,
        path: path.to_owned(),
        number,
        salt: salt(log, number),
        created,
    })
}

impl Segment {
    /// Appends bytes at `offset`, the file's end. On failure the former length is restored, if the
    /// file system allows it.
    pub fn append(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, offset).inspect_err(|_| {
            let _ = self.file.set_len(offset);
        })
    }

    /// Adds index and foot.
    pub fn finish(&self, contents: &Contents) -> io::Result<u64> {
        let mut index = Vec::with_capacity(16 + contents.groups.len() * Group::BYTES);
        index.extend_from_slice(&contents.first.to_le_bytes());
        index.extend_from_slice(&contents.next.to_le_bytes());
        for group in &contents.groups {
            group.write(&mut index);
        }
        let span = contents.span().unwrap_or_default();
        let Some(mut frame) = Frame::new(Kind::Index, 0, span, &index) else {
            return Ok(contents.end);
        };
        let mut bytes = frame
            .finish(contents.next, self.salt, contents.end)
            .to_vec();
        let offset = contents.end.to_le_bytes();
        bytes.extend_from_slice(&FOOT_MAGIC);
        bytes.extend_from_slice(&crc32fast::hash(&offset).to_le_bytes());
        bytes.extend_from_slice(&offset);
        self.append(&bytes, contents.end)?;
        Ok(contents.end + bytes.len() as u64)
    }

    /// Reopens the file read-only: a file open for writing would prevent remounting its file system
    /// read-only.
    pub fn for_reading(&self) -> io::Result<Self> {
        Ok(Self {
            file: File::open(&self.path)?,
            path: self.path.clone(),
            ..*self
        })
    }

    /// The same for writing, too.
    pub fn for_writing(&self) -> io::Result<Self> {
        Ok(Self {
            file: OpenOptions::new().read(true).write(true).open(&self.path)?,
            path: self.path.clone(),
            ..*self
        })
    }

    /// Truncates the file after the last frame.
    pub fn cut(&self, end: u64) -> io::Result<()> {
        self.file.set_len(end)
    }
}

/// Opens a file of the log `tag` with the number `log` for reading; none when it belongs to another one.
pub fn open(
    path: &Path,
    number: u64,
    tag: u32,
    log: u32,
) -> Result<Option<(Segment, Contents)>, StoreError> {
    let file = File::open(path).map_err(StoreError::io("open", path))?;
    let about = file
        .metadata()
        .map_err(StoreError::io("read the metadata of", path))?;
    let len = about.len();
    let known = Head::read(&file);
    let head = known.unwrap_or(Head {
        version: FORMAT,
        tag,
        created: about.mtime().saturating_mul(1_000),
        log,
    });
    if head.version > FORMAT {
        return Err(StoreError::Newer {
            dir: path.to_owned(),
            found: head.version,
            known: FORMAT,
        });
    }
    if head.tag != tag {
        return Ok(None);
    }
    let segment = Segment {
        file,
        path: path.to_owned(),
        number,
        salt: salt(head.log, number),
        created: head.created,
    };
    let mut contents = match read_index(&segment, len) {
        Some(contents) => contents,
        None => scan(&segment, len).map_err(StoreError::io("read", path))?,
    };
    if known.is_none() {
        contents.damage.push((0, len.min(HEAD as u64), 0));
    }
    Ok(Some((segment, contents)))
}

fn read_index(segment: &Segment, len: u64) -> Option<Contents> {
    let foot_at = len.checked_sub(FOOT as u64)?;
    let mut bytes = Vec::new();
    segment.read(foot_at, len, &mut bytes).ok()?;
    let crc = u32::from_le_bytes(bytes.get(4..8)?.try_into().ok()?);
    let offset = bytes.get(8..16)?;
    if bytes[..4] != FOOT_MAGIC || crc32fast::hash(offset) != crc {
        return None;
    }
    let offset = u64::from_le_bytes(offset.try_into().ok()?);
    if offset < HEAD as u64 || offset > foot_at {
        return None;
    }
    segment.read(offset, foot_at, &mut bytes).ok()?;
    let header = Header::read(&bytes, segment.salt, offset)?;
    let index = (header.kind == Some(Kind::Index)).then(|| header.payload(&bytes))??;
    let number = |at: usize| {
        let bytes = index.get(at..at + 8)?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    };
    let groups: Option<Vec<Group>> = index
        .get(16..)?
        .chunks(Group::BYTES)
        .map(Group::read)
        .collect();
    let groups = groups?;
    let inside = |group: &Group| {
        HEAD as u64 <= group.start && group.start <= group.end && group.end <= offset
    };
    groups.iter().all(inside).then_some(Contents {
        groups,
        end: offset,
        first: number(0)?,
        next: number(8)?,
        damage: Vec::new(),
        torn: 0,
        finished: true,
    })
}

/// Most bytes that are read at once.
const WINDOW: u64 = 80 << 20;

/// Finds the frames of a file without an index.
fn scan(segment: &Segment, len: u64) -> io::Result<Contents> {
    let mut contents = Contents {
        end: HEAD as u64,
        ..Contents::default()
    };
    let mut known = false;
    let mut bytes = Vec::new();
    let mut base = HEAD as u64;
    // Files end at a fraction of this, so that nearly always there is one window.
    while base < len {
        let end = len.min(base + WINDOW);
        segment.read(base, end, &mut bytes)?;
        let mut next = end;
        let _ = walk(&bytes, segment.salt, base, |met| {
            let (at, header) = match met {
                Item::Frame(at, header) => (at, header),
                Item::Damage(at, len) => {
                    contents.damage.push((base + at as u64, len as u64, 0));
                    return ControlFlow::Continue(());
                }
                Item::Torn(at, _) if end < len && at > 0 => {
                    // The damage may extend beyond the window.
                    next = base + at as u64;
                    return ControlFlow::Break(());
                }
                Item::Torn(at, _) => {
                    contents.torn = len - (base + at as u64);
                    next = len;
                    return ControlFlow::Break(());
                }
            };
            if header.kind == Some(Kind::Index) {
                return ControlFlow::Continue(());
            }
            if !known {
                (contents.first, contents.next) = (header.first, header.first);
                known = true;
            }
            if header.first > contents.next {
                let lost = header.first - contents.next;
                if let Some(last) = contents.damage.last_mut() {
                    last.2 = lost;
                }
                contents.next = header.first;
            }
            let offset = base + at as u64;
            contents.add(
                offset,
                header.size() as u64,
                header.count,
                (header.from, header.to),
            );
            ControlFlow::Continue(())
        });
        base = next;
    }
    Ok(contents)
}
