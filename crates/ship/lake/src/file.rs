//! Reads a file: the footer, the row groups that may match, and their columns.
//!
//! Only bytes with a matching checksum are decoded: the file's name has the footer's, the footer has all
//! others. Against forged checksums, sizes are checked before memory is reserved.

use std::{ops::Range, sync::Arc};

use bytes::{Buf as _, Bytes};
use parquet::{
    bloom_filter::Sbbf,
    column::reader::{ColumnReader, get_column_reader},
    data_type::ByteArray,
    errors::ParquetError,
    file::{
        metadata::{ColumnChunkMetaData, ParquetMetaData, ParquetMetaDataReader},
        reader::{ChunkReader, Length},
        serialized_reader::SerializedPageReader,
        statistics::Statistics,
    },
    schema::types::ColumnDescPtr,
};

use crate::{
    batch::{Data, NO_TEXT, NULL, Texts},
    encode::{CHECKS_KEY, VERSION_KEY, bloom_range, footer, is_of, value},
    error::{LakeError, Result},
    name::FileName,
    pages,
    schema::{Kind, Table, VERSION},
    storage::Storage,
};

/// Read at once from the end: mostly the footer is in it.
const TAIL: u64 = 128 << 10;
/// Bytes of a footer at most.
const FOOTER: u64 = 16 << 20;
/// Rows of a row group at most.
const ROWS: i64 = 1 << 20;
/// Bytes of a chunk at most, packed and unpacked.
const CHUNK: i64 = 256 << 20;
/// Bytes of a bloom filter at most.
const BLOOM: usize = 8 << 20;
/// Values that are read at once.
const BATCH: usize = 8_192;

#[cfg(test)]
thread_local! {
    /// Skips checksums, as if they were forged.
    pub(crate) static FORGED: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// A file that was opened.
pub(crate) struct File<'a> {
    storage: &'a dyn Storage,
    path: String,
    table: Table,
    size: u64,
    metadata: ParquetMetaData,
    checks: Vec<u32>,
    /// The file's index of each of our columns; files of other versions may lack some.
    leaves: Vec<Option<usize>>,
}

impl<'a> File<'a> {
    /// Reads a file's footer.
    pub fn open(storage: &'a dyn Storage, name: &FileName, size: u64) -> Result<Self> {
        let path = name.path();
        let table = name.partition.table;
        let damaged = |reason: &str| LakeError::damaged(&path, reason);
        let read = |range: Range<u64>| storage.read(&path, range);
        let mut tail = read(size.saturating_sub(TAIL)..size)?;
        let length = tail
            .len()
            .checked_sub(8)
            .and_then(|at| tail.get(at..at + 4)?.try_into().ok())
            .map_or(0, u32::from_le_bytes);
        let length = u64::from(length) + 8;
        if length > FOOTER || length > size {
            return Err(damaged("its footer has an impossible length"));
        }
        if length > tail.len() as u64 {
            tail = read(size - length..size)?;
        }
        let footer = footer(&tail).ok_or_else(|| damaged("it has no footer"))?;
        if crc32fast::hash(footer) != name.check {
            return Err(damaged("the checksum of its footer is wrong"));
        }
        let metadata = ParquetMetaDataReader::decode_metadata(&footer[..footer.len() - 8])
            .map_err(|error| LakeError::damaged(&path, error))?;
        if !is_of(&metadata, table) {
            return Err(damaged("it is of another table"));
        }
        match value(&metadata, VERSION_KEY).and_then(|version| version.parse::<u32>().ok()) {
            Some(version) if version <= VERSION => {}
            _ => return Err(damaged("its schema is newer than this skua")),
        }
        let checks = value(&metadata, CHECKS_KEY)
            .and_then(checks)
            .ok_or_else(|| damaged("it has no checksums"))?;
        let mut file = Self {
            storage,
            table,
            size,
            checks,
            leaves: Vec::new(),
            metadata,
            path,
        };
        file.leaves = file.find_leaves()?;
        file.check_sizes()?;
        Ok(file)
    }

    /// Row groups.
    pub fn groups(&self) -> usize {
        self.metadata.num_row_groups()
    }

    /// Rows of a row group.
    pub fn rows(&self, group: usize) -> usize {
        usize::try_from(self.metadata.row_group(group).num_rows()).unwrap_or(0)
    }

    /// Rows of all.
    pub fn all_rows(&self) -> usize {
        (0..self.groups()).map(|group| self.rows(group)).sum()
    }

    fn damaged(&self, reason: impl ToString) -> LakeError {
        LakeError::damaged(&self.path, reason)
    }

    fn find_leaves(&self) -> Result<Vec<Option<usize>>> {
        let theirs = self.metadata.file_metadata().schema_descr();
        let ours = self.table.schema()?;
        let find = |ours: &ColumnDescPtr| {
            let mut places = theirs.columns().iter().enumerate();
            let Some((place, found)) = places.find(|(_, column)| column.path() == ours.path())
            else {
                return Ok(None);
            };
            let same = found.physical_type() == ours.physical_type()
                && found.max_rep_level() == ours.max_rep_level()
                && found.max_def_level() == ours.max_def_level();
            match same {
                true => Ok(Some(place)),
                false => Err(self.damaged(format!("column {} has another type", ours.path()))),
            }
        };
        ours.columns().iter().map(find).collect()
    }

    /// What a file may claim.
    fn check_sizes(&self) -> Result<()> {
        let wrong = || self.damaged("it claims impossible sizes");
        for group in self.metadata.row_groups() {
            if !(0..=ROWS).contains(&group.num_rows()) {
                return Err(wrong());
            }
            for chunk in group.columns() {
                let range = chunk_range(chunk).ok_or_else(wrong)?;
                let bloom = bloom_range(chunk);
                let fits = range.end <= self.size
                    && (0..=CHUNK).contains(&chunk.uncompressed_size())
                    && bloom.is_none_or(|b| b.end as u64 <= self.size && b.len() <= BLOOM);
                if !fits {
                    return Err(wrong());
                }
            }
        }
        Ok(())
    }

    /// Where the checksums of a column are among all, and how many.
    fn check_of(&self, group: usize, leaf: usize) -> Option<&[u32]> {
        // Those of the file's own columns, which may be more than ours.
        let schema = self.metadata.file_metadata().schema_descr();
        let bloom = |leaf: usize| {
            let path = schema.column(leaf).path().string();
            let mut ours = self.table.columns().iter();
            usize::from(ours.any(|column| column.bloom && column.name == path))
        };
        let width: usize = (0..schema.num_columns()).map(|leaf| 1 + bloom(leaf)).sum();
        let before: usize = (0..leaf).map(|leaf| 1 + bloom(leaf)).sum();
        let from = width.checked_mul(group)?.checked_add(before)?;
        self.checks.get(from..from + 1 + bloom(leaf))
    }

    /// A part of the file, if its checksum fits.
    fn part(&self, range: Range<u64>, check: Option<u32>, what: &str) -> Result<Bytes> {
        let bytes = self.storage.read(&self.path, range)?;
        #[cfg(test)]
        let check = match FORGED.get() {
            true => Some(crc32fast::hash(&bytes)),
            false => check,
        };
        match check == Some(crc32fast::hash(&bytes)) {
            true => Ok(bytes),
            false => Err(self.damaged(format!("the checksum of {what} is wrong"))),
        }
    }

    /// Whether all checksums fit, of each column and each bloom filter.
    pub fn check_all(&self) -> Result<()> {
        for (group, metadata) in self.metadata.row_groups().iter().enumerate() {
            for (leaf, chunk) in metadata.columns().iter().enumerate() {
                let checks = self.check_of(group, leaf).unwrap_or_default();
                let range = chunk_range(chunk).ok_or_else(|| self.damaged("impossible sizes"))?;
                self.part(range, checks.first().copied(), "a column")?;
                if let Some(range) = bloom_range(chunk) {
                    let range = range.start as u64..range.end as u64;
                    self.part(range, checks.get(1).copied(), "a bloom filter")?;
                }
            }
        }
        Ok(())
    }

    /// Minimum and maximum of a number column in a row group, if known.
    pub fn number_range(&self, group: usize, column: usize) -> Option<(i64, i64)> {
        let chunk = self.chunk(group, column)?;
        match chunk.statistics()? {
            Statistics::Int64(values) => Some((*values.min_opt()?, *values.max_opt()?)),
            Statistics::Int32(values) => {
                Some(((*values.min_opt()?).into(), (*values.max_opt()?).into()))
            }
            _ => None,
        }
    }

    /// Bounds of a text column in a row group, if known; they may be wider.
    pub fn text_range(&self, group: usize, column: usize) -> Option<(&[u8], &[u8])> {
        let chunk = self.chunk(group, column)?;
        match chunk.statistics()? {
            Statistics::ByteArray(values) => {
                Some((values.min_bytes_opt()?, values.max_bytes_opt()?))
            }
            _ => None,
        }
    }

    /// Whether a row group may contain a text in a column, by its bloom filter.
    pub fn may_have(&self, group: usize, column: usize, text: &str) -> Result<bool> {
        let Some(leaf) = self.leaves[column] else {
            return Ok(true);
        };
        let chunk = self.metadata.row_group(group).column(leaf);
        let Some(range) = bloom_range(chunk) else {
            return Ok(true);
        };
        let range = range.start as u64..range.end as u64;
        let check = self.check_of(group, leaf).and_then(|checks| checks.get(1));
        let part = Part {
            base: range.start,
            bytes: self.part(range, check.copied(), "a bloom filter")?,
        };
        let filter = Sbbf::read_from_column_chunk(chunk, &part).map_err(|e| self.damaged(e))?;
        Ok(filter.is_none_or(|filter| filter.num_blocks() == 0 || filter.check(text.as_bytes())))
    }

    fn chunk(&self, group: usize, column: usize) -> Option<&ColumnChunkMetaData> {
        let leaf = self.leaves[column]?;
        Some(self.metadata.row_group(group).column(leaf))
    }

    /// Adds the values of a column in a row group to `data`; a column that the file lacks has none.
    pub fn read(
        &self,
        group: usize,
        column: usize,
        texts: &mut Texts,
        data: &mut Data,
    ) -> Result<()> {
        let rows = self.rows(group);
        let Some(leaf) = self.leaves[column] else {
            match data {
                Data::Numbers(values) => values.resize(values.len() + rows, NULL),
                Data::Texts(values) => values.resize(values.len() + rows, NO_TEXT),
                Data::Lists(ends, values) => ends.resize(ends.len() + rows, values.len() as u32),
            }
            return Ok(());
        };
        let metadata = self.metadata.row_group(group).column(leaf);
        let described = &self.table.columns()[column];
        let range = chunk_range(metadata).ok_or_else(|| self.damaged("impossible sizes"))?;
        let check = self.check_of(group, leaf).and_then(|checks| checks.first());
        let what = format!("column {}", described.name);
        let part = Part {
            base: range.start,
            bytes: self.part(range, check.copied(), &what)?,
        };
        pages::check(&part.bytes).map_err(|reason| self.damaged(reason))?;
        let wrong = |error: ParquetError| self.damaged(format!("{what}: {error}"));
        let pages = SerializedPageReader::new(Arc::new(part), metadata, rows, None);
        let reader =
            get_column_reader(metadata.column_descr_ptr(), Box::new(pages.map_err(wrong)?));
        let read = match (reader, data) {
            (ColumnReader::Int64ColumnReader(mut reader), Data::Numbers(values)) => read_levels(
                rows,
                described.optional(),
                |most, levels, found: &mut Vec<i64>| reader.read_records(most, levels, None, found),
                |value| values.push(value.map_or(NULL, |value| *value)),
            ),
            (ColumnReader::Int32ColumnReader(mut reader), Data::Numbers(values)) => read_levels(
                rows,
                described.optional(),
                |most, levels, found: &mut Vec<i32>| reader.read_records(most, levels, None, found),
                |value| values.push(value.map_or(NULL, |value| (*value).into())),
            ),
            (ColumnReader::ByteArrayColumnReader(mut reader), Data::Texts(values)) => {
                let mut known = KnownTexts::default();
                read_levels(
                    rows,
                    described.optional(),
                    |most, levels, found: &mut Vec<ByteArray>| {
                        reader.read_records(most, levels, None, found)
                    },
                    |value| values.push(value.map_or(NO_TEXT, |value| known.number(value, texts))),
                )
            }
            (ColumnReader::Int32ColumnReader(mut reader), Data::Lists(ends, values))
                if described.kind == Kind::Ints =>
            {
                let (mut defined, mut repeated, mut found) = (Vec::new(), Vec::new(), Vec::new());
                let mut done = 0;
                while done < rows {
                    let (records, _, _) = reader
                        .read_records(
                            rows - done,
                            Some(&mut defined),
                            Some(&mut repeated),
                            &mut found,
                        )
                        .map_err(wrong)?;
                    if records == 0 {
                        break;
                    }
                    done += records;
                }
                lists(&defined, &repeated, &found, ends, values);
                Ok(done)
            }
            _ => return Err(self.damaged(format!("{what} has another type"))),
        };
        match read.map_err(wrong)? == rows {
            true => Ok(()),
            false => Err(self.damaged(format!("{what} is too short"))),
        }
    }
}

/// Reads the values of a column that has no lists; returns how many.
fn read_levels<T>(
    rows: usize,
    optional: bool,
    mut read: impl FnMut(
        usize,
        Option<&mut Vec<i16>>,
        &mut Vec<T>,
    ) -> std::result::Result<(usize, usize, usize), ParquetError>,
    mut put: impl FnMut(Option<&T>),
) -> std::result::Result<usize, ParquetError> {
    let (mut levels, mut found, mut done) = (Vec::new(), Vec::new(), 0);
    while done < rows {
        levels.clear();
        found.clear();
        let most = BATCH.min(rows - done);
        let (records, _, _) = read(most, optional.then_some(&mut levels), &mut found)?;
        if records == 0 {
            break;
        }
        done += records;
        let mut found = found.iter();
        if !optional {
            found
                .by_ref()
                .take(records)
                .for_each(|value| put(Some(value)));
            continue;
        }
        for level in levels.iter().take(records) {
            put(if *level == 0 { None } else { found.next() });
        }
    }
    Ok(done)
}

fn lists(
    defined: &[i16],
    repeated: &[i16],
    found: &[i32],
    ends: &mut Vec<u32>,
    values: &mut Vec<i32>,
) {
    let mut found = found.iter();
    for (place, (defined, repeated)) in defined.iter().zip(repeated).enumerate() {
        if *repeated == 0 && place > 0 {
            ends.push(values.len() as u32);
        }
        if *defined > 0 {
            values.extend(found.next());
        }
    }
    if !defined.is_empty() {
        ends.push(values.len() as u32);
    }
}

/// Numbers of texts read before: texts of a dictionary share their bytes.
#[derive(Default)]
struct KnownTexts {
    numbers: std::collections::HashMap<(usize, usize), u32, foldhash::fast::RandomState>,
    /// Keeps the bytes allocated, so that addresses stay unique.
    kept: Vec<ByteArray>,
}

/// Texts remembered at most.
const KNOWN: usize = 65_536;

impl KnownTexts {
    fn number(&mut self, value: &ByteArray, texts: &mut Texts) -> u32 {
        let bytes = value.data();
        let key = (bytes.as_ptr() as usize, bytes.len());
        if let Some(number) = self.numbers.get(&key) {
            return *number;
        }
        let number = texts.number(&String::from_utf8_lossy(bytes));
        if self.kept.len() < KNOWN {
            self.numbers.insert(key, number);
            self.kept.push(value.clone());
        }
        number
    }
}

/// Where a chunk's pages are.
fn chunk_range(chunk: &ColumnChunkMetaData) -> Option<Range<u64>> {
    let from = match chunk.dictionary_page_offset() {
        Some(dictionary) => dictionary.min(chunk.data_page_offset()),
        None => chunk.data_page_offset(),
    };
    let length = chunk.compressed_size();
    let from = u64::try_from(from).ok()?;
    (0..=CHUNK)
        .contains(&length)
        .then(|| from..from.saturating_add(length.cast_unsigned()))
}

/// The checksums of a file.
fn checks(text: &str) -> Option<Vec<u32>> {
    if !text.is_ascii() {
        return None;
    }
    let parts = text.as_bytes().chunks(8);
    parts
        .map(|part| u32::from_str_radix(str::from_utf8(part).ok()?, 16).ok())
        .collect()
}

/// A part of a file, at its offset.
struct Part {
    base: u64,
    bytes: Bytes,
}

impl Part {
    fn from(&self, start: u64) -> std::result::Result<Bytes, ParquetError> {
        let at = start
            .checked_sub(self.base)
            .and_then(|at| usize::try_from(at).ok())
            .filter(|at| *at <= self.bytes.len());
        match at {
            Some(at) => Ok(self.bytes.slice(at..)),
            None => Err(ParquetError::EOF("beyond the chunk".into())),
        }
    }
}

impl Length for Part {
    fn len(&self) -> u64 {
        self.base + self.bytes.len() as u64
    }
}

impl ChunkReader for Part {
    type T = bytes::buf::Reader<Bytes>;

    fn get_read(&self, start: u64) -> std::result::Result<Self::T, ParquetError> {
        Ok(self.from(start)?.reader())
    }

    fn get_bytes(&self, start: u64, length: usize) -> std::result::Result<Bytes, ParquetError> {
        let mut bytes = self.from(start)?;
        if bytes.len() < length {
            return Err(ParquetError::EOF("beyond the chunk".into()));
        }
        bytes.truncate(length);
        Ok(bytes)
    }
}
