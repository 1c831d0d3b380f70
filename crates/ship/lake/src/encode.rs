//! From rows to a Parquet file in memory.

use std::sync::Arc;

use bytes::Bytes;
use parquet::{
    basic::{Compression, Encoding, ZstdLevel},
    column::writer::{ColumnCloseResult, ColumnWriter, get_column_writer},
    data_type::ByteArray,
    errors::ParquetError,
    file::{
        metadata::{KeyValue, ParquetMetaData},
        properties::{EnabledStatistics, WriterProperties, WriterPropertiesPtr},
        writer::{SerializedFileWriter, SerializedPageWriter, TrackedWrite},
    },
    schema::types::{ColumnDescPtr, ColumnPath},
};

use crate::{
    batch::{Batch, Data, NO_TEXT, NULL, Texts},
    error::Result,
    schema::{Column, Kind, Table, VERSION},
};

/// Rows of a row group.
pub(crate) const GROUP: usize = 65_536;
/// Key of the table's name in a file's metadata.
pub(crate) const TABLE_KEY: &str = "skua.table";
/// Key of the schema's version.
pub(crate) const VERSION_KEY: &str = "skua.version";
/// Key of the checksums: of each row group, each column's chunk and then its bloom filter if it is to have
/// one, CRC-32 in 8 hexadecimal digits.
pub(crate) const CHECKS_KEY: &str = "skua.checks";

/// A file in memory.
#[derive(Debug)]
pub(crate) struct Encoded {
    pub bytes: Vec<u8>,
    /// CRC-32 of the footer, its length and the magic number behind it.
    pub check: u32,
    pub rows: usize,
}

/// Called with a column's values and texts.
pub(crate) type With<'a> = &'a mut dyn FnMut(&Data, &Texts) -> Result<()>;

/// Makes a file of some rows of a batch, in this order.
pub(crate) fn encode_batch(batch: &Batch, rows: &[u32]) -> Result<Encoded> {
    encode(batch.table(), rows, &mut |column, with| {
        with(batch.column(column), batch.texts())
    })
}

/// Encodes a file of rows in this order. Columns are requested one by one: only one need be in memory.
pub(crate) fn encode(
    table: Table,
    rows: &[u32],
    column: &mut dyn FnMut(usize, With<'_>) -> Result<()>,
) -> Result<Encoded> {
    let properties = Arc::new(properties(table)?);
    let schema = table.schema()?;
    let groups: Vec<&[u32]> = rows.chunks(GROUP).collect();
    let mut chunks: Vec<Vec<(Bytes, ColumnCloseResult)>> = Vec::new();
    chunks.resize_with(groups.len(), Vec::new);
    for (place, described) in table.columns().iter().enumerate() {
        column(place, &mut |data, texts| {
            let arrays = arrays(data, texts);
            for (rows, chunks) in groups.iter().zip(&mut chunks) {
                let made = chunk(
                    described,
                    schema.column(place),
                    &properties,
                    &Values {
                        data,
                        arrays: &arrays,
                        rows,
                    },
                )?;
                chunks.push(made);
            }
            Ok(())
        })?;
    }
    let mut file = SerializedFileWriter::new(Vec::new(), schema.root_schema_ptr(), properties)?;
    let mut checks = String::new();
    for chunks in chunks {
        put_group(&mut file, table, chunks, &mut checks)?;
    }
    file.append_key_value_metadata(KeyValue::new(TABLE_KEY.into(), table.name().to_owned()));
    file.append_key_value_metadata(KeyValue::new(VERSION_KEY.into(), VERSION.to_string()));
    file.append_key_value_metadata(KeyValue::new(CHECKS_KEY.into(), checks));
    let bytes = file.into_inner()?;
    let check = footer(&bytes).map(crc32fast::hash).unwrap_or(0);
    Ok(Encoded {
        bytes,
        check,
        rows: rows.len(),
    })
}

/// Footer, its length and the magic number, at the end of a file.
pub(crate) fn footer(bytes: &[u8]) -> Option<&[u8]> {
    let (rest, magic) = bytes.split_last_chunk::<4>()?;
    let (_, length) = rest.split_last_chunk::<4>()?;
    let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
    let from = bytes.len().checked_sub(length.checked_add(8)?)?;
    (magic == b"PAR1").then(|| bytes.get(from..)).flatten()
}

fn put_group(
    file: &mut SerializedFileWriter<Vec<u8>>,
    table: Table,
    chunks: Vec<(Bytes, ColumnCloseResult)>,
    checks: &mut String,
) -> Result<()> {
    let hashes: Vec<u32> = chunks
        .iter()
        .map(|(bytes, _)| crc32fast::hash(bytes))
        .collect();
    let mut group = file.next_row_group()?;
    for (bytes, closed) in chunks {
        group.append_column(&bytes, closed)?;
    }
    let metadata = group.close()?;
    // Bloom filters are behind the row group, in what may still be buffered.
    file.flush().map_err(ParquetError::from)?;
    let written = file.inner();
    for (place, (column, hash)) in table.columns().iter().zip(hashes).enumerate() {
        *checks += &format!("{hash:08x}");
        if column.bloom {
            let filter = file
                .flushed_row_groups()
                .last()
                .and_then(|group| bloom_range(group.column(place)))
                .and_then(|range| written.get(range));
            *checks += &format!("{:08x}", crc32fast::hash(filter.unwrap_or_default()));
        }
    }
    drop(metadata);
    Ok(())
}

/// Where a chunk's bloom filter is.
pub(crate) fn bloom_range(
    chunk: &parquet::file::metadata::ColumnChunkMetaData,
) -> Option<std::ops::Range<usize>> {
    let from = usize::try_from(chunk.bloom_filter_offset()?).ok()?;
    let length = usize::try_from(chunk.bloom_filter_length()?).ok()?;
    Some(from..from.checked_add(length)?)
}

fn properties(table: Table) -> Result<WriterProperties> {
    let mut builder = WriterProperties::builder()
        .set_created_by(concat!("skua ", env!("CARGO_PKG_VERSION")).into())
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(3)?))
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_statistics_truncate_length(Some(64))
        .set_offset_index_disabled(true)
        .set_data_page_row_count_limit(GROUP);
    for column in table.columns() {
        let path = ColumnPath::from(column.name);
        if column.bloom {
            builder = builder
                .set_column_bloom_filter_enabled(path.clone(), true)
                .set_column_bloom_filter_fpp(path.clone(), 0.01)
                .set_column_bloom_filter_max_ndv(path.clone(), GROUP as u64);
        }
        // Values are almost unique.
        if column.kind == Kind::Time || column.name == "id" {
            builder = builder.set_column_dictionary_enabled(path.clone(), false);
        }
        if column.kind == Kind::Time {
            builder = builder.set_column_encoding(path, Encoding::DELTA_BINARY_PACKED);
        }
    }
    Ok(builder.build())
}

/// Texts as Parquet's arrays, by number.
fn arrays(data: &Data, texts: &Texts) -> Vec<ByteArray> {
    match data {
        Data::Texts(_) => texts
            .all()
            .iter()
            .map(|text| ByteArray::from(Bytes::copy_from_slice(text.as_bytes())))
            .collect(),
        _ => Vec::new(),
    }
}

/// The values of a chunk.
struct Values<'a> {
    data: &'a Data,
    arrays: &'a [ByteArray],
    rows: &'a [u32],
}

impl Values<'_> {
    /// Numbers of a column, and definition levels when values may be missing.
    fn numbers<T>(&self, optional: bool, fit: impl Fn(i64) -> T) -> (Vec<T>, Option<Vec<i16>>) {
        let Data::Numbers(values) = self.data else {
            return (Vec::new(), None);
        };
        let all = self.rows.iter().map(|row| values[*row as usize]);
        if optional {
            let levels = all.clone().map(|value| i16::from(value != NULL)).collect();
            let there = all.filter(|value| *value != NULL);
            (there.map(fit).collect(), Some(levels))
        } else {
            (all.map(|value| fit(value.max(0))).collect(), None)
        }
    }

    fn texts(&self, optional: bool) -> (Vec<ByteArray>, Option<Vec<i16>>) {
        let Data::Texts(values) = self.data else {
            return (Vec::new(), None);
        };
        let all = self.rows.iter().map(|row| values[*row as usize]);
        let array = |number: u32| {
            let array = self.arrays.get(number as usize);
            array.cloned().unwrap_or_else(|| ByteArray::from(""))
        };
        if optional {
            let levels = all
                .clone()
                .map(|value| i16::from(value != NO_TEXT))
                .collect();
            let there = all.filter(|value| *value != NO_TEXT);
            (there.map(array).collect(), Some(levels))
        } else {
            (all.map(array).collect(), None)
        }
    }

    /// Values of lists with their definition and repetition levels.
    fn lists(&self) -> (Vec<i32>, Vec<i16>, Vec<i16>) {
        let (mut values, mut defined, mut repeated) = (Vec::new(), Vec::new(), Vec::new());
        for row in self.rows {
            let list = self.data.list(*row as usize);
            values.extend_from_slice(list);
            if list.is_empty() {
                defined.push(0);
                repeated.push(0);
            }
            for place in 0..list.len() {
                defined.push(1);
                repeated.push(i16::from(place > 0));
            }
        }
        (values, defined, repeated)
    }
}

fn chunk(
    column: &Column,
    described: ColumnDescPtr,
    properties: &WriterPropertiesPtr,
    values: &Values<'_>,
) -> Result<(Bytes, ColumnCloseResult)> {
    let mut sink = TrackedWrite::new(Vec::new());
    let pages = Box::new(SerializedPageWriter::new(&mut sink));
    let mut writer = get_column_writer(described, properties.clone(), pages);
    let optional = column.optional();
    match &mut writer {
        ColumnWriter::Int64ColumnWriter(writer) => {
            let (numbers, levels) = values.numbers(optional, |value| value);
            writer.write_batch(&numbers, levels.as_deref(), None)?;
        }
        ColumnWriter::Int32ColumnWriter(writer) if column.kind == Kind::Ints => {
            let (numbers, defined, repeated) = values.lists();
            writer.write_batch(&numbers, Some(&defined), Some(&repeated))?;
        }
        ColumnWriter::Int32ColumnWriter(writer) => {
            let fit = |value| i32::try_from(value).unwrap_or(i32::MAX);
            let (numbers, levels) = values.numbers(optional, fit);
            writer.write_batch(&numbers, levels.as_deref(), None)?;
        }
        ColumnWriter::ByteArrayColumnWriter(writer) => {
            let (texts, levels) = values.texts(optional);
            writer.write_batch(&texts, levels.as_deref(), None)?;
        }
        _ => return Err(ParquetError::General("no such column".into()).into()),
    }
    let closed = writer.close()?;
    Ok((Bytes::from(sink.into_inner()?), closed))
}

/// Whether metadata are of this table in a version that we read.
pub(crate) fn is_of(metadata: &ParquetMetaData, table: Table) -> bool {
    value(metadata, TABLE_KEY) == Some(table.name())
}

/// A value of a file's metadata.
pub(crate) fn value<'a>(metadata: &'a ParquetMetaData, key: &str) -> Option<&'a str> {
    let pairs = metadata.file_metadata().key_value_metadata()?;
    let pair = pairs.iter().find(|pair| pair.key == key)?;
    pair.value.as_deref()
}
