//! Capture files as arguments, from wherever they are read.

use std::{
    io::{self, Read},
    path::Path,
};

use skua_file::CaptureFile;

use crate::compressed;

/// What is done with a capture file, from wherever it is read.
pub trait WithFile {
    /// Does it.
    fn run<R: Read>(self, file: CaptureFile<R>) -> anyhow::Result<()>;
}

/// Opens a capture file, also one that is compressed, or standard input (`-`).
pub fn open(path: &Path, with: impl WithFile) -> anyhow::Result<()> {
    if path == Path::new("-") {
        let (reader, _) = compressed::reader(io::stdin().lock())?;
        return with.run(CaptureFile::new("standard input", reader)?);
    }
    match compressed::open(path)? {
        Some(reader) => {
            let name = path.display().to_string();
            with.run(CaptureFile::new(&name, reader)?)
        }
        None => with.run(CaptureFile::open(path)?),
    }
}
