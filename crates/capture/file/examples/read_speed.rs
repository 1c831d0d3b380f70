//! How long the reader takes per packet: `cargo run --release -p skua-file --example read_speed
//! -- FILE [PASSES]`. Prints ns per packet of the fastest pass, the file being in the page cache.

use std::path::Path;
use std::time::Instant;

use skua_file::{CaptureFile, FileError};

fn pass(path: &Path) -> Result<(u64, u64), FileError> {
    let mut file = CaptureFile::open(path)?;
    let (mut packets, mut bytes) = (0, 0);
    while let Some(packet) = file.next_packet()? {
        packets += 1;
        bytes += u64::from(packet.wire_len) + u64::from(packet.data.first().copied().unwrap_or(0));
    }
    Ok((packets, std::hint::black_box(bytes)))
}

fn main() -> Result<(), FileError> {
    let mut arguments = std::env::args_os().skip(1);
    let path = arguments.next().unwrap_or_default();
    let passes = arguments
        .next()
        .and_then(|n| n.to_str()?.parse().ok())
        .unwrap_or(5);
    let mut best = f64::MAX;
    for _ in 0..passes {
        let start = Instant::now();
        let (packets, _) = pass(Path::new(&path))?;
        best = best.min(start.elapsed().as_secs_f64() * 1e9 / packets as f64);
        println!("{packets} packets, best {best:.1} ns per packet");
    }
    Ok(())
}
