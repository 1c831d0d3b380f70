//! Any bytes as a file of the history, and as what its checksums would let through.

#![no_main]

use libfuzzer_sys::fuzz_target;
use std::{fs, path::PathBuf, sync::LazyLock};

static FILE: LazyLock<PathBuf> = LazyLock::new(|| {
    let name = format!("skua-fuzz-history-{}", std::process::id());
    std::env::temp_dir().join(name)
});

fuzz_target!(|bytes: &[u8]| {
    skua_store::check::payload(bytes);
    fs::write(&*FILE, bytes).expect("there is room");
    skua_store::check::file(&FILE);
});
