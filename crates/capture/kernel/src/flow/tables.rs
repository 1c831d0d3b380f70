//! One set of programs for the tables of many captures: the kernel verifies it once (`bpf/flow/tables.h`).
//!
//! The set has outer maps, whose elements are the maps of the tables. An *entrance* is a small program, one for each
//! table, direction and kind of link, which is what is attached: it says which table it is and goes on to the programs
//! of the set.

use std::{
    collections::HashMap,
    io,
    os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

use libbpf_rs::{MapCore as _, MapFlags, OpenObject};

use super::{
    FlowObject, LinkKind, Rung,
    filter::{join, load_program, program_array},
    layout::{Plain as _, Settings},
};
use crate::{
    Direction, KernelError,
    budget::{Lease, Purpose},
};

/// Tables of a set: `MOST_TABLES` of `bpf/flow/tables.h`.
const MOST_TABLES: u32 = 1024;
/// Names of outer maps begin so.
const OUTER: &str = "all_";
/// Programs that a set has at most.
const PLACES: u32 = 8;
/// Sets that stay loaded although no table uses them, so that the next capture is quick.
const MOST_UNUSED: usize = 4;
/// The rung that a set is.
pub(super) const RUNG: Rung = Rung::TcSwap;

/// All sets of this process, the one used last at the end.
static SETS: Mutex<Vec<Arc<Set>>> = Mutex::new(Vec::new());

/// Programs for packets of one kind of link; filtered or not.
type Kind = (LinkKind, bool);

/// Programs and outer maps.
struct Set {
    settings: Vec<u8>,
    packets: bool,
    /// The first of them has the maps.
    objects: Mutex<Vec<(Kind, FlowObject)>>,
    /// Programs that entrances go on to.
    places: OwnedFd,
    next: AtomicU32,
    /// Numbers of tables in use.
    taken: Mutex<Vec<u32>>,
}

/// A table's part in a set.
pub(super) struct Member {
    set: Arc<Set>,
    number: u32,
    filtered: bool,
    entrances: HashMap<(Direction, LinkKind, bool), Entrance>,
    /// Inodes of the namespaces that it has, by number.
    inodes: HashMap<u16, u32>,
}

/// The program that is attached for a table.
struct Entrance {
    // Dropped before the lease.
    program: OwnedFd,
    _lease: Lease,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is behind the locks is changed in one step.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn place(direction: Direction, link: LinkKind, left: bool) -> u32 {
    u32::from(direction == Direction::Egress)
        | u32::from(link == LinkKind::Ip) << 1
        | u32::from(left) << 2
}

impl Set {
    /// The set for tables with these settings, with programs for Ethernet loaded; `maps` are those of one of them.
    fn of(settings: Settings, filtered: bool, maps: &FlowObject) -> Result<Arc<Self>, KernelError> {
        let bytes = settings.bytes();
        let mut sets = locked(&SETS);
        if let Some(at) = sets.iter().position(|set| set.settings == bytes) {
            let known = sets.remove(at);
            sets.push(known.clone());
            known.load((LinkKind::Ethernet, filtered), settings, maps)?;
            return Ok(known);
        }
        let set = Arc::new(Self {
            settings: bytes.to_vec(),
            packets: settings.packet_bytes > 0,
            objects: Mutex::default(),
            places: program_array(PLACES)?,
            next: AtomicU32::new(0),
            taken: Mutex::default(),
        });
        set.load((LinkKind::Ethernet, filtered), settings, maps)?;
        let unused = |set: &Arc<Self>| Arc::strong_count(set) == 1;
        while sets.iter().filter(|set| unused(set)).count() >= MOST_UNUSED {
            let Some(oldest) = sets.iter().position(unused) else {
                break;
            };
            sets.remove(oldest);
        }
        sets.push(set.clone());
        Ok(set)
    }

    /// Loads the programs for one kind of packets, where they are not yet.
    fn load(&self, kind: Kind, settings: Settings, maps: &FlowObject) -> Result<(), KernelError> {
        let mut objects = locked(&self.objects);
        if objects.iter().any(|(known, _)| *known == kind) {
            return Ok(());
        }
        let first = objects.first().map(|(_, object)| object);
        let prepare = |open: &mut OpenObject| prepare_maps(open, maps, first);
        let object = FlowObject::load_for_tables(self.packets, settings, kind, prepare)?;
        for direction in [Direction::Ingress, Direction::Egress] {
            let Some((flow, left)) = RUNG.program_names(direction, kind.0) else {
                continue;
            };
            let flow_place = place(direction, kind.0, false);
            join(&self.places, flow_place, object.program(flow)?)?;
            if kind.1 {
                let left_place = place(direction, kind.0, true);
                join(&self.places, left_place, object.program(left)?)?;
            }
        }
        objects.push((kind, object));
        Ok(())
    }

    /// A number that no table has. It is not used again soon: programs of the last one that had it may still be attached.
    fn number(&self) -> Result<u32, KernelError> {
        let mut taken = locked(&self.taken);
        for _ in 0..MOST_TABLES {
            let number = self.next.fetch_add(1, Relaxed) % MOST_TABLES;
            if !taken.contains(&number) {
                taken.push(number);
                return Ok(number);
            }
        }
        Err(KernelError::Missing("number of a flow table"))
    }

    /// Calls `with` for each outer map, with the name of those that it holds.
    fn each_outer(
        &self,
        mut with: impl FnMut(&str, &libbpf_rs::Map<'_>) -> Result<(), KernelError>,
    ) -> Result<(), KernelError> {
        let objects = locked(&self.objects);
        let Some((_, object)) = objects.first() else {
            return Ok(());
        };
        object.each_map(|name, map| match name.strip_prefix(OUTER) {
            Some(inner) => with(inner, map),
            None => Ok(()),
        })
    }

    fn change_namespaces(
        &self,
        change: impl FnOnce(&libbpf_rs::Map<'_>) -> libbpf_rs::Result<()>,
    ) -> Result<(), KernelError> {
        let objects = locked(&self.objects);
        let Some((_, object)) = objects.first() else {
            return Ok(());
        };
        change(&object.map("namespaces")?).map_err(failed)
    }
}

/// The maps of an object with programs of a set: outer maps, which the first object makes for elements like `maps`.
fn prepare_maps(
    open: &mut OpenObject,
    maps: &FlowObject,
    first: Option<&FlowObject>,
) -> libbpf_rs::Result<()> {
    let missing = |_| libbpf_rs::Error::from(io::Error::from(io::ErrorKind::NotFound));
    for mut map in open.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        let shared = name.starts_with(OUTER) || name == "namespaces" || name == "current_table";
        if FlowObject::is_of_table(&name) {
            // A program that uses it, instead of that of its table, does not load.
            map.set_autocreate(false)?;
        } else if let (true, Some(first)) = (shared, first) {
            map.reuse_fd(first.named(&name).map_err(missing)?.as_fd())?;
        } else if let Some(inner) = name.strip_prefix(OUTER) {
            map.set_inner_map_fd(maps.named(inner).map_err(missing)?.as_fd())?;
        }
    }
    Ok(())
}

impl Member {
    /// Has a table use the programs of a set. `maps` are its maps.
    ///
    /// # Errors
    ///
    /// When the kernel refuses: before 6.2, or without its types (BTF).
    pub(super) fn join(
        settings: Settings,
        filtered: bool,
        maps: &FlowObject,
    ) -> Result<Self, KernelError> {
        let set = Set::of(settings, filtered, maps)?;
        let member = Self {
            number: set.number()?,
            set,
            filtered,
            entrances: HashMap::new(),
            inodes: HashMap::new(),
        };
        let key = member.number.to_ne_bytes();
        member.set.each_outer(|name, outer| {
            let map = maps.named(name)?;
            let value = map.as_fd().as_raw_fd().to_ne_bytes();
            outer.update(&key, &value, MapFlags::ANY).map_err(failed)
        })?;
        Ok(member)
    }

    /// Adds a namespace.
    pub(super) fn add_namespace(&mut self, number: u16, inode: u64) -> Result<(), KernelError> {
        // Inodes of namespaces have 32 bits.
        let inode = inode as u32;
        if self.inodes.get(&number) == Some(&inode) {
            return Ok(());
        }
        let value = u32::from(number).to_ne_bytes();
        let key = self.key(inode);
        self.set
            .change_namespaces(|all| all.update(&key, &value, MapFlags::ANY))?;
        self.inodes.insert(number, inode);
        Ok(())
    }

    /// Forgets a namespace.
    pub(super) fn remove_namespace(&mut self, number: u16) {
        let Some(inode) = self.inodes.remove(&number) else {
            return;
        };
        // A newer namespace may have this inode now.
        if self.inodes.values().all(|other| *other != inode) {
            let key = self.key(inode);
            // A missing entry is as good as a deleted one.
            let _ = self.set.change_namespaces(|all| all.delete(&key));
        }
    }

    fn key(&self, inode: u32) -> Vec<u8> {
        [inode.to_ne_bytes(), self.number.to_ne_bytes()].concat()
    }

    /// The entrance to the flow program, or to that for packets that the filter leaves out.
    pub(super) fn entrance(
        &mut self,
        direction: Direction,
        link: LinkKind,
        left: bool,
        settings: Settings,
        maps: &FlowObject,
    ) -> Result<BorrowedFd<'_>, KernelError> {
        let key = (direction, link, left);
        if !self.entrances.contains_key(&key) {
            self.set.load((link, self.filtered), settings, maps)?;
            let entrance = Entrance::load(&self.set, self.number, place(direction, link, left))?;
            self.entrances.insert(key, entrance);
        }
        let found = self.entrances.get(&key);
        let found = found.ok_or(KernelError::Missing("entrance"))?;
        Ok(found.program.as_fd())
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.entrances.clear();
        let numbers: Vec<u16> = self.inodes.keys().copied().collect();
        for number in numbers {
            self.remove_namespace(number);
        }
        let key = self.number.to_ne_bytes();
        let emptied = self
            .set
            .each_outer(|_, outer| outer.delete(&key).map_err(failed));
        if let Err(error) = emptied {
            tracing::warn!(%error, "the maps of a flow table stay until its programs are unloaded");
        }
        locked(&self.set.taken).retain(|taken| *taken != self.number);
    }
}

impl Entrance {
    fn load(set: &Set, number: u32, place: u32) -> Result<Self, KernelError> {
        let lease = Lease::acquire(1, Purpose::Any)?;
        let objects = locked(&set.objects);
        let (_, object) = objects.first().ok_or(KernelError::Missing("programs"))?;
        let current = object.map("current_table")?;
        let code = instructions(current.as_fd(), set.places.as_fd(), number, place);
        Ok(Self {
            program: load_program(RUNG, &code)?,
            _lease: lease,
        })
    }
}

/// `*current_table = number; tail_call(places[place]);`
fn instructions(
    current: BorrowedFd<'_>,
    places: BorrowedFd<'_>,
    number: u32,
    place: u32,
) -> Vec<[u8; 8]> {
    /// One instruction (linux/bpf.h): code, registers, offset, immediate value.
    fn one(code: u8, to: u8, from: u8, offset: i16, value: i32) -> [u8; 8] {
        let ([o0, o1], [v0, v1, v2, v3]) = (offset.to_ne_bytes(), value.to_ne_bytes());
        let registers = if cfg!(target_endian = "little") {
            from << 4 | to
        } else {
            to << 4 | from
        };
        [code, registers, o0, o1, v0, v1, v2, v3]
    }
    const MOV_REGISTER: u8 = 0xbf;
    const MOV: u8 = 0xb7;
    const ADD: u8 = 0x07;
    const STORE_WORD: u8 = 0x62;
    const LOAD_WIDE: u8 = 0x18;
    const IF_EQUAL: u8 = 0x15;
    const CALL: u8 = 0x85;
    const EXIT: u8 = 0x95;
    const MAP_FD: u8 = 1;
    const LOOKUP: i32 = 1;
    const TAIL_CALL: i32 = 12;
    vec![
        one(MOV_REGISTER, 6, 1, 0, 0),
        one(STORE_WORD, 10, 0, -4, 0),
        one(MOV_REGISTER, 2, 10, 0, 0),
        one(ADD, 2, 0, 0, -4),
        one(LOAD_WIDE, 1, MAP_FD, 0, current.as_raw_fd()),
        one(0, 0, 0, 0, 0),
        one(CALL, 0, 0, 0, LOOKUP),
        one(IF_EQUAL, 0, 0, 6, 0),
        one(STORE_WORD, 0, 0, 0, number as i32),
        one(MOV_REGISTER, 1, 6, 0, 0),
        one(LOAD_WIDE, 2, MAP_FD, 0, places.as_raw_fd()),
        one(0, 0, 0, 0, 0),
        one(MOV, 3, 0, 0, place as i32),
        one(CALL, 0, 0, 0, TAIL_CALL),
        one(MOV, 0, 0, 0, RUNG.verdict()),
        one(EXIT, 0, 0, 0, 0),
    ]
}

fn failed(error: libbpf_rs::Error) -> KernelError {
    KernelError::System {
        what: "cannot change the maps of the programs that captures share",
        source: io::Error::other(error),
    }
}
