//! Any bytes as a capture file: nothing panics, memory stays bounded, and how the bytes come in
//! pieces makes no difference.

#![no_main]

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Read;

use libfuzzer_sys::fuzz_target;
use skua_file::CaptureFile;

/// Gives its bytes a few at a time.
struct Dribble<'a>(&'a [u8]);

impl Read for Dribble<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let n = self.0.len().min(buffer.len()).min(1 + self.0.len() % 37);
        let (now, later) = self.0.split_at(n);
        buffer[..n].copy_from_slice(now);
        self.0 = later;
        Ok(n)
    }
}

/// Everything that the reader says, as a hash and a line.
fn read(input: impl Read, total: usize) -> (u64, Option<String>) {
    let mut hasher = DefaultHasher::new();
    let mut file = match CaptureFile::new("file", input) {
        Ok(file) => file,
        Err(error) => return (0, Some(error.to_string())),
    };
    let end = loop {
        match file.next_packet() {
            Ok(Some(packet)) => {
                assert!(packet.data.len() <= packet.wire_len as usize);
                assert!(packet.data.len() <= total);
                packet.data.hash(&mut hasher);
                (packet.interface, packet.timestamp_ns, packet.wire_len).hash(&mut hasher);
                let interface = packet.interface as usize;
                assert!(interface < file.interfaces().len());
            }
            Ok(None) => break file.cut_off().map(|cut| cut.to_string()),
            Err(error) => break Some(error.to_string()),
        }
        assert!(file.offset() <= total as u64);
    };
    assert!(matches!(file.next_packet(), Ok(None)));
    if let Some(line) = &end {
        assert!(!line.contains('\n'));
    }
    // What is behind damage, until there is nothing more.
    while let Ok(Some(skipped)) = file.resume() {
        assert!(skipped > 0);
        while let Ok(Some(packet)) = file.next_packet() {
            assert!(packet.data.len() <= packet.wire_len as usize);
            packet.data.hash(&mut hasher);
        }
        assert!(file.offset() <= total as u64);
    }
    for interface in file.interfaces() {
        interface.name.hash(&mut hasher);
    }
    (hasher.finish(), end)
}

fuzz_target!(|bytes: &[u8]| {
    let whole = read(bytes, bytes.len());
    let pieces = read(Dribble(bytes), bytes.len());
    assert_eq!(whole, pieces);
});
