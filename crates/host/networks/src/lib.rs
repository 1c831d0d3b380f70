//! What files say of addresses and ports: countries and autonomous systems (MMDB, as MaxMind and IPinfo publish them),
//! ranges with names of the user's own, and names of services (`/etc/services`).
//!
//! Values are looked up when a record is written, and nothing of them is in records: a new file is right for old records,
//! too. A thread remembers the last addresses, so each costs two searches once, however many fields are asked for.

mod database;
mod ranges;
mod services;

use std::{
    cell::RefCell,
    fs::File,
    io::Read as _,
    net::IpAddr,
    path::{Path, PathBuf},
    sync::{
        Arc, LazyLock, Mutex, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use database::Database;
use ranges::Ranges;
use services::Services;

/// Bytes of a file at most.
const LARGEST: u64 = 1 << 30;
/// Bytes of a name at most; the rest is cut off.
const LONGEST: usize = 128;

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}: {reason}", .file.display())]
pub struct FileError {
    /// The file.
    pub file: PathBuf,
    /// Why.
    pub reason: String,
}

/// Which files there are.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Files {
    /// In the MMDB format.
    pub databases: Vec<PathBuf>,
    /// CSV or JSON of prefixes and names.
    pub ranges: Vec<PathBuf>,
    /// In the format of services(5); none: no names of services.
    pub services: Option<PathBuf>,
}

/// What is known of an address.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Known {
    /// ISO 3166-1, two letters.
    pub country: Option<Arc<str>>,
    /// Number of the autonomous system.
    pub asn: Option<u32>,
    /// Who runs it.
    pub organization: Option<Arc<str>>,
    /// Name of the smallest range with it.
    pub network: Option<Arc<str>>,
}

/// The content of the files.
#[derive(Debug, Default)]
pub struct Networks {
    databases: Vec<Database>,
    ranges: Ranges,
    services: Services,
}

fn read(file: &Path) -> Result<Vec<u8>, FileError> {
    let fail = |reason: String| FileError {
        file: file.to_owned(),
        reason,
    };
    let mut bytes = Vec::new();
    let opened = File::open(file).map_err(|error| fail(error.to_string()))?;
    let read = opened.take(LARGEST + 1).read_to_end(&mut bytes);
    read.map_err(|error| fail(error.to_string()))?;
    match bytes.len() as u64 > LARGEST {
        true => Err(fail(format!("larger than {} MiB", LARGEST >> 20))),
        false => Ok(bytes),
    }
}

/// A name without what would disturb a line, cut off where it is too long.
fn name(text: &str) -> Arc<str> {
    let mut end = text.len().min(LONGEST);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    text[..end]
        .chars()
        .map(plain)
        .collect::<String>()
        .trim()
        .into()
}

impl Networks {
    /// Reads the files.
    ///
    /// # Errors
    ///
    /// When one of them cannot be read, or is not what it should be.
    pub fn read(files: &Files) -> Result<Self, FileError> {
        let mut networks = Self::default();
        let fail = |file: &Path| {
            let file = file.to_owned();
            move |reason: String| FileError { file, reason }
        };
        for file in &files.databases {
            let database = Database::new(read(file)?).map_err(fail(file))?;
            networks.databases.push(database);
        }
        for file in &files.ranges {
            networks.ranges.add(&read(file)?).map_err(fail(file))?;
        }
        if let Some(file) = &files.services {
            networks.services = Services::parse(&read(file)?);
        }
        Ok(networks)
    }

    /// What is known of an address. The first database that knows something counts.
    pub fn known(&self, address: IpAddr) -> Known {
        let address = address.to_canonical();
        let mut known = Known {
            network: self.ranges.name(address),
            ..Known::default()
        };
        for database in &self.databases {
            database.look_up(address, &mut known);
        }
        known
    }

    /// The name of a service.
    pub fn service(&self, protocol: u8, port: u16) -> Option<Arc<str>> {
        self.services.name(protocol, port)
    }
}

static CURRENT: RwLock<Option<Arc<Networks>>> = RwLock::new(None);
/// Of [`CURRENT`], 0 while there is nothing.
static GENERATION: AtomicU64 = AtomicU64::new(0);

/// Addresses that a thread remembers.
const REMEMBERED: usize = 256;

#[derive(Default)]
struct Recent {
    generation: u64,
    networks: Option<Arc<Networks>>,
    known: Vec<Option<(IpAddr, Arc<Known>)>>,
}

thread_local! {
    static RECENT: RefCell<Recent> = RefCell::default();
}

impl Recent {
    /// As of now.
    fn fresh(&mut self) -> Option<&Arc<Networks>> {
        let generation = GENERATION.load(Ordering::Acquire);
        if self.generation != generation {
            self.generation = generation;
            self.networks = CURRENT
                .read()
                .unwrap_or_else(PoisonError::into_inner)
                .clone();
            self.known = vec![None; REMEMBERED];
        }
        self.networks.as_ref()
    }
}

/// The files that are followed, and how they were when they were read.
struct Followed {
    files: Files,
    stamps: Vec<Stamp>,
}

/// Size and time of change; none: there is no such file.
type Stamp = Option<(u64, SystemTime)>;

static FOLLOWED: Mutex<Option<Followed>> = Mutex::new(None);
/// When the files are looked at again, ms since [`BEGIN`].
static LOOK: AtomicU64 = AtomicU64::new(0);
static BEGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
/// How often they are looked at, at most, and only while records are written.
const PAUSE: Duration = Duration::from_secs(10);

impl Files {
    fn all(&self) -> impl Iterator<Item = &PathBuf> {
        let lists = self.databases.iter().chain(&self.ranges);
        lists.chain(&self.services)
    }

    fn stamps(&self) -> Vec<Stamp> {
        let stamp = |file: &PathBuf| {
            let data = std::fs::metadata(file).ok()?;
            Some((data.len(), data.modified().ok()?))
        };
        self.all().map(stamp).collect()
    }
}

/// Reads the files, and again when they have changed: a file that cannot be used then leaves what was read before in force.
///
/// # Errors
///
/// When one of them cannot be used now.
pub fn follow(files: Files) -> Result<(), FileError> {
    // Before reading: a change meanwhile is then noticed later.
    let stamps = files.stamps();
    install(Networks::read(&files)?);
    let any = files.all().next().is_some();
    let mut followed = FOLLOWED.lock().unwrap_or_else(PoisonError::into_inner);
    *followed = any.then_some(Followed { files, stamps });
    Ok(())
}

/// Reads the files again if they have changed.
fn reload() {
    let mut followed = FOLLOWED.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(followed) = followed.as_mut() else {
        return;
    };
    let stamps = followed.files.stamps();
    if stamps == followed.stamps {
        return;
    }
    followed.stamps = stamps;
    match Networks::read(&followed.files) {
        Ok(networks) => {
            install(networks);
            tracing::info!("the files of networks were read again");
        }
        Err(error) => {
            tracing::warn!("networks: {error}; what was read before stays in force");
        }
    }
}

/// Has the files looked at on a thread of its own, now and then: a large file takes longer than a record.
fn look_again() {
    let now = BEGIN.elapsed().as_millis() as u64;
    let due = LOOK.load(Ordering::Relaxed);
    let next = now + PAUSE.as_millis() as u64;
    if now < due
        || LOOK
            .compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed)
            .is_err()
    {
        return;
    }
    let started = std::thread::Builder::new()
        .name("networks".into())
        .spawn(reload);
    if let Err(error) = started {
        tracing::warn!(%error, "files of networks are not looked at");
    }
}

/// From now on records are written with what these know.
pub fn install(networks: Networks) {
    let mut current = CURRENT.write().unwrap_or_else(PoisonError::into_inner);
    *current = Some(Arc::new(networks));
    GENERATION.fetch_add(1, Ordering::Release);
}

fn with<T>(ask: impl FnOnce(&mut Recent, &Arc<Networks>) -> Option<T>) -> Option<T> {
    if GENERATION.load(Ordering::Acquire) == 0 {
        return None;
    }
    RECENT.with_borrow_mut(|recent| {
        let networks = recent.fresh()?.clone();
        ask(recent, &networks)
    })
}

/// What is known of an address; none without files.
pub fn of(address: IpAddr) -> Option<Arc<Known>> {
    with(|recent, networks| {
        let last = match address {
            IpAddr::V4(v4) => u32::from(v4),
            IpAddr::V6(v6) => (u128::from(v6) ^ u128::from(v6) >> 64) as u32,
        };
        // The spread of a multiplication is in its upper bits.
        let place = (last.wrapping_mul(0x9e37_79b1) >> 24) as usize;
        let slot = recent.known.get_mut(place % REMEMBERED)?;
        if let Some((_, known)) = slot.as_ref().filter(|(of, _)| *of == address) {
            return Some(known.clone());
        }
        let known = Arc::new(networks.known(address));
        *slot = Some((address, known.clone()));
        Some(known)
    })
}

/// The name of a service; none without files, or when it has none.
pub fn service(protocol: u8, port: u16) -> Option<Arc<str>> {
    with(|_, networks| {
        look_again();
        networks.service(protocol, port)
    })
}

#[cfg(test)]
mod tests;
