//! Writes the corpus as files: `cargo run -p skua-testkit --example corpus -- DIR`.
//!
//! Every capture in its own format (`NAME.pcap` or `NAME.pcapng`), and below `damaged/` the files
//! that a reader must refuse or warn about.

use std::path::Path;
use std::process::ExitCode;

use skua_testkit::{corpus, damaged};

fn write(directory: &Path) -> std::io::Result<()> {
    let below = directory.join("damaged");
    std::fs::create_dir_all(&below)?;
    for entry in corpus() {
        let capture = entry.capture();
        let name = capture.file_name();
        std::fs::write(directory.join(&name), capture.bytes())?;
        println!("{name}\t{} packets\t{}", capture.records.len(), entry.about);
    }
    for file in damaged() {
        std::fs::write(below.join(file.name), &file.bytes)?;
    }
    Ok(())
}

fn main() -> ExitCode {
    let Some(directory) = std::env::args_os().nth(1) else {
        eprintln!("usage: corpus DIR");
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
