//! Names of files, each kept once and until the end of the process: a record borrows them without asking how long.

use std::{
    collections::HashSet,
    sync::{LazyLock, Mutex, PoisonError},
};

/// Bytes of a name at most; the rest is cut off.
const LONGEST: usize = 128;
/// Bytes of all names at most. The names of all autonomous systems take some 3 MiB; only those that were asked for are
/// here, and a name of a new file that was in the one before needs no more.
const MOST: usize = 32 << 20;

#[derive(Default)]
struct Names {
    kept: HashSet<&'static str>,
    bytes: usize,
    full: bool,
}

static NAMES: LazyLock<Mutex<Names>> = LazyLock::new(Mutex::default);

/// A name without what would disturb a line, cut off where it is too long.
pub(crate) fn plain(text: &str) -> String {
    let mut end = text.len().min(LONGEST);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let shown = |c: char| if c.is_control() { ' ' } else { c };
    let plain: String = text[..end].chars().map(shown).collect();
    plain.trim().to_owned()
}

/// Keeps a name; none when there is no more space.
pub(crate) fn keep(text: &str) -> &'static str {
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(kept) = names.kept.get(text) {
        return kept;
    }
    if names.bytes + text.len() > MOST {
        if !std::mem::replace(&mut names.full, true) {
            tracing::warn!(
                "networks: the names take {} MiB: records have no further ones",
                MOST >> 20
            );
        }
        return "";
    }
    names.bytes += text.len();
    let kept: &'static str = Box::leak(text.into());
    names.kept.insert(kept);
    kept
}
