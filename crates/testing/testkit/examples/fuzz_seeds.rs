//! Writes seeds for the fuzzers: `cargo run -p skua-testkit --example fuzz_seeds -- DIR` makes
//! `DIR/capture_file` and `DIR/packet`.

use std::path::Path;
use std::process::ExitCode;

use skua_testkit::{corpus, damaged, scenario};

/// Larger files make the fuzzers slow.
const MAX_BYTES: usize = 16 * 1024;

fn write(directory: &Path) -> std::io::Result<()> {
    let (files, packets) = (directory.join("capture_file"), directory.join("packet"));
    std::fs::create_dir_all(&files)?;
    std::fs::create_dir_all(&packets)?;
    for entry in corpus() {
        let mut capture = entry.capture();
        // Of the long ones the beginning does.
        capture.records.truncate(60);
        let bytes = capture.bytes();
        if bytes.len() <= MAX_BYTES {
            std::fs::write(files.join(capture.file_name()), bytes)?;
        }
        let seed = scenario::seed(&capture, true);
        if let Some(bytes) = seed.filter(|bytes| bytes.len() <= MAX_BYTES) {
            std::fs::write(packets.join(entry.name), bytes)?;
        }
    }
    for file in damaged() {
        std::fs::write(files.join(file.name), &file.bytes)?;
    }
    Ok(())
}

fn main() -> ExitCode {
    let Some(directory) = std::env::args_os().nth(1) else {
        eprintln!("usage: fuzz_seeds DIR");
        return ExitCode::from(2);
    };
    match write(Path::new(&directory)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}: {error}", Path::new(&directory).display());
            ExitCode::FAILURE
        }
    }
}
