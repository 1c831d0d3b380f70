//! How tests get into the API of a `skua` that they start: by a token that is no secret.

#![allow(clippy::expect_used, reason = "tests")]

use std::{
    fs::File,
    io::Write as _,
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, chown},
    path::PathBuf,
    process::Command,
    sync::OnceLock,
};

/// The token, of role admin.
pub const TOKEN: &str = "skua_tests-of-skua-all-have-this-token-0000000000";
/// What `Authorization` has to say.
pub const BEARER: &str = "Bearer skua_tests-of-skua-all-have-this-token-0000000000";
/// A line of `api.tokens` for it.
const LINE: &str =
    "tests admin - sha256:b70b6bf7eaa96940f13825b1dd9da5972ef85b482fd278a3b6599dc55c0414b3\n";

fn own() -> u32 {
    std::fs::metadata("/proc/self")
        .expect("the own process")
        .uid()
}

/// A file for `api.tokens`, which only this user may read.
///
/// # Panics
///
/// When it cannot be written.
pub fn tokens() -> PathBuf {
    static FILE: OnceLock<PathBuf> = OnceLock::new();
    FILE.get_or_init(|| tokens_of(own())).clone()
}

/// The same for another user.
///
/// # Panics
///
/// When it cannot be written.
pub fn tokens_of(user: u32) -> PathBuf {
    let path = std::env::temp_dir().join(format!("skua-test-tokens-{user}"));
    let fresh = path.with_extension(format!("{}", std::process::id()));
    let mut file = File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&fresh)
        .expect("a file for tokens");
    file.write_all(LINE.as_bytes()).expect("a file for tokens");
    chown(&fresh, Some(user), None).expect("its owner");
    // Other tests have the same.
    std::fs::rename(&fresh, &path).expect("a file for tokens");
    path
}

/// Has a `skua` let the token in, or ask with it, and leave the socket of this machine alone.
pub fn let_in(command: &mut Command) -> &mut Command {
    command
        .env("SKUA_API_TOKENS", tokens())
        .env("SKUA_API_SOCKET", "")
        .env("SKUA_AGENT_SOCKET", "")
        .env("SKUA_TOKEN", TOKEN)
}
