//! Domains of libvirt's QEMU driver, from the files that it keeps for itself: the state of those that run, and the
//! definitions of all. They say what a connection to libvirt would, to whoever may read them, and need no library.

use crate::LibvirtFolders;
use quick_xml::{
    Reader,
    events::{BytesStart, Event},
};
use rustix::fs::inotify;
use std::{
    collections::BTreeMap,
    mem::MaybeUninit,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    path::Path,
};
use thiserror::Error;

use super::procfs;

/// Longest file that is read, bytes.
const LONGEST: usize = 1 << 20;
/// Elements in each other at most.
const DEEPEST: usize = 64;
/// Interfaces of a domain at most.
const MOST_INTERFACES: usize = 256;
/// Domains at most.
const MOST: usize = 4_096;
/// Longest text, characters.
const TEXT: usize = 256;

/// Why a file is no domain.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum DomainError {
    /// More than is read.
    #[error("longer than {LONGEST} bytes")]
    TooLong,
    /// Elements in elements.
    #[error("more than {DEEPEST} elements in each other")]
    TooDeep,
    /// Not XML.
    #[error("no XML: {0}")]
    Xml(String),
    /// Without name or identifier.
    #[error("a domain without {0}")]
    Without(&'static str),
}

/// A domain.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Domain {
    /// Its name.
    pub name: String,
    /// Its identifier, which stays.
    pub uuid: String,
    /// Its number while it runs.
    pub id: Option<u32>,
    /// Skydive's word for its state; that of a domain that does not run is `DOWN`.
    pub state: &'static str,
    /// Its process.
    pub pid: Option<u32>,
    /// Its network interfaces.
    pub interfaces: Vec<DomainInterface>,
}

/// An interface of a domain.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DomainInterface {
    /// Address that the guest has.
    pub mac: String,
    /// The device on the host.
    pub target: String,
    /// libvirt's name for it.
    pub alias: String,
    /// Kind of the bus in the guest, and the place there.
    pub bus_type: String,
    /// Like `0000:00:03.0`.
    pub bus_info: String,
}

/// Reads a definition or a state.
///
/// # Errors
///
/// What is wrong, in one line.
pub fn domain(xml: &[u8]) -> Result<Domain, DomainError> {
    if xml.len() > LONGEST {
        return Err(DomainError::TooLong);
    }
    let mut reader = Reader::from_reader(xml);
    let wrong =
        |error: quick_xml::Error| DomainError::Xml(procfs::shown(error.to_string().as_bytes()));
    let mut reading = Reading::default();
    loop {
        match reader.read_event().map_err(wrong)? {
            Event::Start(start) => {
                reading.begin(&start)?;
            }
            Event::Empty(start) => {
                reading.begin(&start)?;
                reading.end();
            }
            Event::End(_) => reading.end(),
            Event::Text(text) => reading.text(&text),
            Event::GeneralRef(reference) => {
                let char = match &*reference {
                    b"amp" => Some('&'),
                    b"lt" => Some('<'),
                    b"gt" => Some('>'),
                    b"quot" => Some('"'),
                    b"apos" => Some('\''),
                    _ => reference.resolve_char_ref().ok().flatten(),
                };
                if let Some(char) = char {
                    reading.text(char.encode_utf8(&mut [0; 4]).as_bytes());
                }
            }
            Event::Eof => break,
            _ => {}
        }
    }
    reading.finish()
}

#[derive(Default)]
struct Reading {
    /// Names of the elements that are open, those of the domain only.
    path: Vec<Vec<u8>>,
    depth: usize,
    domain: Domain,
    name: Vec<u8>,
    uuid: Vec<u8>,
    interface: Option<DomainInterface>,
}

impl Reading {
    /// Whether these elements are open, from the domain on.
    fn is_at(&self, names: &[&[u8]]) -> bool {
        let path = match self.path.first() {
            Some(first) if first == b"domstatus" => &self.path[1..],
            _ => &self.path[..],
        };
        path.len() == names.len() && path.iter().zip(names).all(|(a, b)| a == b)
    }

    fn begin(&mut self, start: &BytesStart<'_>) -> Result<(), DomainError> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(DomainError::TooDeep);
        }
        self.path.push(start.name().as_ref().to_vec());
        let value = |key: &str| {
            let attribute = start.try_get_attribute(key).ok().flatten()?;
            let text = attribute.normalized_value(quick_xml::XmlVersion::default());
            Some(shown(text.ok()?.as_bytes()))
        };
        if self.depth == 1 && start.name().as_ref() == b"domstatus" {
            self.domain.state = state(&value("state").unwrap_or_default());
            self.domain.pid = value("pid").and_then(|pid| pid.parse().ok());
        }
        if self.is_at(&[b"domain"]) {
            self.domain.id = value("id").and_then(|id| id.parse().ok());
        }
        const INTERFACE: [&[u8]; 3] = [b"domain", b"devices", b"interface"];
        if self.is_at(&INTERFACE) {
            self.interface = Some(DomainInterface::default());
        }
        let within = |name: &'static [u8]| [INTERFACE[0], INTERFACE[1], INTERFACE[2], name];
        let at = |name| self.is_at(&within(name));
        let (mac, target, alias) = (at(b"mac"), at(b"target"), at(b"alias"));
        let address = at(b"address");
        if let Some(interface) = &mut self.interface {
            if mac {
                interface.mac = value("address").unwrap_or_default();
            } else if target {
                interface.target = value("dev").unwrap_or_default();
            } else if alias {
                interface.alias = value("name").unwrap_or_default();
            } else if address {
                interface.bus_type = value("type").unwrap_or_default();
                let part = |key| {
                    let text = value(key).unwrap_or_default();
                    text.strip_prefix("0x").unwrap_or(&text).to_owned()
                };
                let [domain, bus, slot, function] = ["domain", "bus", "slot", "function"].map(part);
                if interface.bus_type == "pci" {
                    interface.bus_info = format!("{domain}:{bus}:{slot}.{function}");
                }
            }
        }
        Ok(())
    }

    fn end(&mut self) {
        if self.is_at(&[b"domain", b"devices", b"interface"])
            && let Some(interface) = self.interface.take()
            && self.domain.interfaces.len() < MOST_INTERFACES
        {
            self.domain.interfaces.push(interface);
        }
        self.path.pop();
        self.depth = self.depth.saturating_sub(1);
    }

    fn text(&mut self, text: &[u8]) {
        let to = if self.is_at(&[b"domain", b"name"]) {
            &mut self.name
        } else if self.is_at(&[b"domain", b"uuid"]) {
            &mut self.uuid
        } else {
            return;
        };
        to.extend_from_slice(text);
    }

    fn finish(mut self) -> Result<Domain, DomainError> {
        if self.depth > 0 {
            return Err(DomainError::Xml("it is not complete".into()));
        }
        self.domain.name = shown(self.name.trim_ascii());
        self.domain.uuid = shown(self.uuid.trim_ascii());
        if self.domain.name.is_empty() {
            return Err(DomainError::Without("name"));
        }
        if self.domain.uuid.is_empty() {
            return Err(DomainError::Without("uuid"));
        }
        if self.domain.state.is_empty() {
            self.domain.state = "DOWN";
        }
        Ok(self.domain)
    }
}

/// Text that is safe to show.
fn shown(bytes: &[u8]) -> String {
    procfs::shown(bytes).chars().take(TEXT).collect()
}

/// Skydive's word for a state of libvirt.
fn state(name: &str) -> &'static str {
    match name {
        "running" => "UP",
        "blocked" => "BLOCKED",
        "paused" => "PAUSED",
        "shutdown" | "shutoff" => "DOWN",
        "crashed" => "CRASHED",
        "pmsuspended" => "PMSUSPENDED",
        _ => "UNDEFINED",
    }
}

/// The folders, and what announces their changes.
pub(super) struct Libvirt {
    folders: LibvirtFolders,
    inotify: Option<OwnedFd>,
    watched: [bool; 2],
    /// Files that could not be read, so that each is said once.
    refused: BTreeMap<std::path::PathBuf, String>,
}

impl Libvirt {
    pub fn new(folders: &LibvirtFolders) -> Self {
        let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
        Self {
            folders: folders.clone(),
            inotify: inotify::init(flags).ok(),
            watched: [false; 2],
            refused: BTreeMap::new(),
        }
    }

    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.inotify.as_ref().map(|fd| fd.as_fd())
    }

    /// Whether changes of a folder are not announced, because it is not there.
    pub fn has_unwatched(&self) -> bool {
        let folders = [&self.folders.status, &self.folders.definitions];
        let wanted = folders.map(|folder| !folder.as_os_str().is_empty());
        wanted
            .iter()
            .zip(self.watched)
            .any(|(wanted, watched)| *wanted && !watched)
    }

    /// Watches the folders that are there, and forgets what was announced: all is read. True: there is one more
    /// than before.
    pub fn watch(&mut self) -> bool {
        use inotify::WatchFlags as Watch;
        let Some(inotify) = &self.inotify else {
            return false;
        };
        let mut buffer = [const { MaybeUninit::<u8>::uninit() }; 8_192];
        let mut reader = inotify::Reader::new(inotify, &mut buffer);
        while reader.next().is_ok() {}
        let mut more = false;
        let folders = [&self.folders.status, &self.folders.definitions];
        for (folder, watched) in folders.into_iter().zip(&mut self.watched) {
            let changes = Watch::CLOSE_WRITE | Watch::DELETE | Watch::MOVE | Watch::DELETE_SELF;
            let is = !folder.as_os_str().is_empty()
                && inotify::add_watch(inotify, folder, changes | Watch::ONLYDIR).is_ok();
            more |= is && !*watched;
            *watched = is;
        }
        more
    }

    /// All domains, those that run with their state.
    pub fn domains(&mut self) -> Vec<Domain> {
        let mut found: BTreeMap<String, Domain> = BTreeMap::new();
        let mut refused = BTreeMap::new();
        for folder in [&self.folders.definitions, &self.folders.status] {
            let Ok(entries) = std::fs::read_dir(folder) else {
                continue;
            };
            for entry in entries.flatten() {
                let path = entry.path();
                if path.extension().is_none_or(|kind| kind != "xml") || found.len() >= MOST {
                    continue;
                }
                match read(&path) {
                    Ok(domain) => {
                        found.insert(domain.uuid.clone(), domain);
                    }
                    Err(error) => {
                        if self.refused.get(&path) != Some(&error) {
                            tracing::warn!(path = %path.display(), "no domain of libvirt: {error}");
                        }
                        refused.insert(path, error);
                    }
                }
            }
        }
        self.refused = refused;
        found.into_values().collect()
    }
}

fn read(path: &Path) -> Result<Domain, String> {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(|error| error.to_string())?;
    let limited = file.take(LONGEST as u64 + 1).read_to_end(&mut bytes);
    limited.map_err(|error| error.to_string())?;
    domain(&bytes).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUNNING: &str = "<!-- generated -->\n<domstatus state='paused' reason='user' pid='4711'>\n\
        <monitor path='/x' type='unix'/><devices><device alias='net0'/></devices>\n\
        <domain type='kvm' id='3'><name>a&amp;b&#x21;</name><uuid>07bfc711-e7f3-442f-908d-3c6e7860aaab</uuid>\n\
        <metadata><x:name xmlns:x='u'>other</x:name><name>no</name></metadata>\n\
        <devices><controller><address type='pci' domain='0x0000' bus='0x00' slot='0x01' function='0x2'/></controller>\n\
        <interface type='bridge'><mac address='52:54:00:11:22:33'/><source bridge='br0'><address type='x'/></source>\n\
        <target dev='vnet0'/><alias name='net0'/>\n\
        <address type='pci' domain='0x0000' bus='0x00' slot='0x03' function='0x0'/></interface>\n\
        <interface type='user'/></devices></domain></domstatus>";

    #[test]
    fn a_running_domain_has_state_process_and_interfaces() {
        let found = domain(RUNNING.as_bytes()).unwrap();
        let expected = Domain {
            name: "a&b!".into(),
            uuid: "07bfc711-e7f3-442f-908d-3c6e7860aaab".into(),
            id: Some(3),
            state: "PAUSED",
            pid: Some(4711),
            interfaces: vec![
                DomainInterface {
                    mac: "52:54:00:11:22:33".into(),
                    target: "vnet0".into(),
                    alias: "net0".into(),
                    bus_type: "pci".into(),
                    bus_info: "0000:00:03.0".into(),
                },
                DomainInterface::default(),
            ],
        };
        assert_eq!(found, expected);
    }

    #[test]
    fn a_definition_is_down() {
        let xml =
            "<domain type='kvm'><name>db</name><uuid>u-1</uuid><name>\u{1b}[31m</name></domain>";
        let found = domain(xml.as_bytes()).unwrap();
        assert_eq!((found.state, found.id, found.pid), ("DOWN", None, None));
        assert!(!found.name.contains('\u{1b}'));
    }

    #[test]
    fn what_is_wrong_is_said_in_a_line() {
        let deep = "<a>".repeat(100);
        let many = "<interface/>".repeat(1000);
        let many =
            format!("<domain><name>n</name><uuid>u</uuid><devices>{many}</devices></domain>");
        assert_eq!(
            domain(many.as_bytes()).unwrap().interfaces.len(),
            MOST_INTERFACES
        );
        for (xml, error) in [
            ("", "a domain without name"),
            ("<domain><name>x</name></domain>", "a domain without uuid"),
            ("<domain><name>x", "no XML: it is not complete"),
            (&*deep, "more than 64 elements in each other"),
            (&"x".repeat(LONGEST + 1), "longer than 1048576 bytes"),
        ] {
            assert_eq!(domain(xml.as_bytes()).unwrap_err().to_string(), error);
        }
        let error = domain(b"<domain></name>").unwrap_err().to_string();
        assert!(
            error.starts_with("no XML: ") && !error.contains('\n'),
            "{error}"
        );
    }
}
