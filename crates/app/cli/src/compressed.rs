//! Capture files that are compressed with gzip, zstd or lz4, read as streams: memory does not grow with what they contain.

use std::{
    fs::File,
    io::{self, Cursor, Read},
    path::Path,
};

use anyhow::Context as _;

/// Largest window of zstd, as a power of two: 128 MiB, what its own tool accepts.
const LARGEST_WINDOW: u32 = 27;

/// A compression, by the first bytes of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Compression {
    Gzip,
    Zstd,
    Lz4,
}

impl Compression {
    fn of(begin: &[u8]) -> Option<Self> {
        match begin {
            [0x1f, 0x8b, ..] => Some(Self::Gzip),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(Self::Zstd),
            [0x04, 0x22, 0x4d, 0x18, ..] => Some(Self::Lz4),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
            Self::Lz4 => "lz4",
        }
    }
}

/// Says of which compression the data is that cannot be read.
struct Named<R>(Compression, R);

impl<R: Read> Read for Named<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let name = self.0.name();
        self.1.read(buffer).map_err(|error| match error.kind() {
            io::ErrorKind::Interrupted => error,
            io::ErrorKind::UnexpectedEof => io::Error::new(
                io::ErrorKind::InvalidData,
                format!("the {name} data ends too early"),
            ),
            _ => io::Error::new(
                io::ErrorKind::InvalidData,
                format!("the {name} data is damaged: {error}"),
            ),
        })
    }
}

/// A reader of a capture, and whether it is compressed.
pub fn reader<'r>(mut file: impl Read + 'r) -> io::Result<(Box<dyn Read + 'r>, bool)> {
    let mut begin = Vec::with_capacity(4);
    Read::by_ref(&mut file).take(4).read_to_end(&mut begin)?;
    let compression = Compression::of(&begin);
    let whole = Cursor::new(begin).chain(file);
    let Some(compression) = compression else {
        return Ok((Box::new(whole), false));
    };
    let inside: Box<dyn Read + 'r> = match compression {
        Compression::Gzip => Box::new(flate2::read::MultiGzDecoder::new(io::BufReader::new(whole))),
        Compression::Zstd => {
            let mut decoder = zstd::stream::read::Decoder::new(whole)?;
            decoder.window_log_max(LARGEST_WINDOW)?;
            Box::new(decoder)
        }
        Compression::Lz4 => Box::new(lz4_flex::frame::FrameDecoder::new(whole)),
    };
    Ok((Box::new(Named(compression, inside)), true))
}

/// The reader of a file that is compressed; none when it is not.
pub fn open(path: &Path) -> anyhow::Result<Option<Box<dyn Read>>> {
    let mut begin = Vec::with_capacity(4);
    let Ok(file) = File::open(path) else {
        // Who reads it says why.
        return Ok(None);
    };
    if !file.metadata()?.is_file() {
        // What is read of a pipe is gone.
        return Ok(None);
    }
    file.take(4)
        .read_to_end(&mut begin)
        .with_context(|| format!("cannot read {}", path.display()))?;
    match Compression::of(&begin) {
        None => Ok(None),
        Some(_) => {
            let (reader, _) = reader(File::open(path)?)?;
            Ok(Some(reader))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn packed(compression: Compression, data: &[u8]) -> Vec<u8> {
        match compression {
            Compression::Gzip => {
                let mut out =
                    flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
                out.write_all(data).unwrap();
                out.finish().unwrap()
            }
            // With checksums, as the tools of both write them.
            Compression::Zstd => {
                let mut out = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
                out.include_checksum(true).unwrap();
                out.write_all(data).unwrap();
                out.finish().unwrap()
            }
            Compression::Lz4 => {
                let info = lz4_flex::frame::FrameInfo::new().content_checksum(true);
                let mut out = lz4_flex::frame::FrameEncoder::with_frame_info(info, Vec::new());
                out.write_all(data).unwrap();
                out.finish().unwrap()
            }
        }
    }

    const ALL: [Compression; 3] = [Compression::Gzip, Compression::Zstd, Compression::Lz4];

    fn unpacked(data: &[u8]) -> io::Result<Vec<u8>> {
        let mut all = Vec::new();
        reader(data)?.0.take(1 << 20).read_to_end(&mut all)?;
        Ok(all)
    }

    #[test]
    fn each_compression_is_recognised_and_read() {
        let data: Vec<u8> = (0..100_000u32)
            .flat_map(|n| (n * 7 / 3).to_le_bytes())
            .collect();
        for compression in ALL {
            let packed = packed(compression, &data);
            assert_eq!(unpacked(&packed).unwrap(), data, "{compression:?}");
        }
        assert_eq!(unpacked(&data).unwrap(), data);
        assert_eq!(unpacked(b"").unwrap(), b"");
        assert_eq!(unpacked(&[0x1f]).unwrap(), [0x1f]);
    }

    #[test]
    fn damage_is_one_line_that_names_the_compression() {
        let data: Vec<u8> = (0..50_000u32).flat_map(|n| (n * n).to_le_bytes()).collect();
        for compression in ALL {
            let whole = packed(compression, &data);
            let mut damaged = whole.clone();
            for byte in damaged.iter_mut().skip(20).step_by(97) {
                *byte ^= 0x5a;
            }
            for bad in [&whole[..whole.len() / 2], &damaged] {
                let read = unpacked(bad).map(|data| data.len());
                let error = read.unwrap_err().to_string();
                assert!(error.contains(compression.name()), "{error}");
                assert!(!error.contains('\n'), "{error}");
            }
        }
    }
}
