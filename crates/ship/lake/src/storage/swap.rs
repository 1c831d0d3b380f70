//! Replaces files of a directory by one, at one moment for readers.
//!
//! A copy of the hour's directory is made beside the table, with the new file and links to the files that stay, and is
//! exchanged with the hour by one rename (`RENAME_EXCHANGE`, Linux 3.15). A lock keeps out writers and deletion
//! meanwhile: their changes would be lost with the old directory.

use std::{
    fs::{self, File, Permissions},
    io::{self, Write as _},
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown},
    path::Path,
    time::Duration,
};

use rustix::{
    fs::{CWD, FlockOperation, RenameFlags, flock, renameat_with},
    io::Errno,
};

use super::local::sync;

/// Where directories are made, and where those lie that have been replaced.
const ASIDE: &str = ".compacting";
/// A reader that has opened a replaced directory has listed it after this time; shorter in tests.
const LISTING: Duration = Duration::from_millis(if cfg!(test) { 50 } else { 1_000 });

/// Locks a table: shared against exchanges of directories; exclusive, to exchange, against changes in
/// them.
pub(super) fn guard(table: &Path, exchanging: bool) -> io::Result<File> {
    let mut open = File::options();
    open.create(true).truncate(false).write(true);
    let file = open.open(table.join(".files.lock"))?;
    let how = match exchanging {
        true => FlockOperation::LockExclusive,
        false => FlockOperation::LockShared,
    };
    flock(&file, how)?;
    Ok(file)
}

/// Whether the file system cannot exchange directories, or not with this content.
fn impossible(error: &io::Error) -> bool {
    let which = Errno::from_io_error(error);
    which.is_some_and(|which| {
        matches!(
            which,
            Errno::INVAL
                | Errno::NOSYS
                | Errno::OPNOTSUPP
                | Errno::XDEV
                | Errno::PERM
                | Errno::MLINK
                | Errno::BUSY
        )
    })
}

/// Replaces files of the hour `table`/`hour` by a new one. False if it cannot be atomic here.
pub(super) fn replace(
    root: &Path,
    table: &str,
    hour: &str,
    new: (&str, &[u8]),
    old: &[&str],
) -> io::Result<bool> {
    let aside = root.join(ASIDE).join(table);
    let made = aside.join(hour.replace('/', ","));
    let hour = root.join(table).join(hour);
    match exchange(&root.join(table), &hour, &aside, &made, new, old) {
        Ok(()) => Ok(true),
        Err(error) => {
            // It is a copy as long as the exchange failed.
            let _ = fs::remove_dir_all(&made);
            match impossible(&error) {
                true => Ok(false),
                false => Err(error),
            }
        }
    }
}

fn exchange(
    table: &Path,
    hour: &Path,
    aside: &Path,
    made: &Path,
    (name, bytes): (&str, &[u8]),
    old: &[&str],
) -> io::Result<()> {
    if made.exists() {
        fs::remove_dir_all(made)?;
    }
    fs::create_dir_all(made)?;
    let wanted = fs::metadata(hour)?;
    fs::set_permissions(made, Permissions::from_mode(wanted.mode() & 0o7777))?;
    let have = fs::metadata(made)?;
    if (have.uid(), have.gid()) != (wanted.uid(), wanted.gid()) {
        chown(made, Some(wanted.uid()), Some(wanted.gid()))?;
    }
    let mut file = File::create(made.join(name))?;
    file.write_all(bytes)?;
    file.sync_all()?;
    let _guard = guard(table, true)?;
    for entry in fs::read_dir(hour)? {
        let entry = entry?;
        let stays = entry.file_name().to_str().is_none_or(|n| !old.contains(&n));
        if stays {
            fs::hard_link(entry.path(), made.join(entry.file_name()))?;
        }
    }
    sync(made)?;
    renameat_with(CWD, made, CWD, hour, RenameFlags::EXCHANGE)?;
    sync(aside)?;
    hour.parent().map_or(Ok(()), sync)
}

/// Deletes replaced directories. Readers that have just opened one get time to list it, unless it is from an
/// earlier process.
pub(super) fn settle(root: &Path, table: &str, just_now: bool) -> io::Result<()> {
    let aside = root.join(ASIDE).join(table);
    let mut entries = match fs::read_dir(&aside) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    if just_now && entries.next().is_some() {
        std::thread::sleep(LISTING);
    }
    fs::remove_dir_all(&aside)?;
    // That of other tables may still be in use.
    let _ = fs::remove_dir(root.join(ASIDE));
    Ok(())
}
