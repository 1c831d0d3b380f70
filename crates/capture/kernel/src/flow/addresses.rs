//! The address set in the kernel: two generations in one trie, of which one is in force.
//!
//! Programs read one word that says which generation that is, whether it has includes, or that
//! there is no set. A change is written into the generation that is not in force, which no program
//! can be reading, and comes into force with the word: a packet is judged by the whole set before or
//! by the whole set after.

use std::{
    net::IpAddr,
    os::fd::AsFd as _,
    sync::{Arc, atomic::Ordering::Release},
};

use libbpf_rs::{MapCore as _, MapFlags, MapHandle};
use skua_flow::{AddressSet, Mark, Prefix};

use super::{layout::Control, object::FlowObject};
use crate::{
    KernelError,
    bindings::flow::{self as c, AddressKey},
    grace::Grace,
    mapping::Window,
    plain::Plain as _,
};

const ADDRESSES_SET: u64 = c::ADDRESSES_SET as u64;
const ADDRESSES_GENERATION: u64 = c::ADDRESSES_GENERATION as u64;
const ADDRESSES_HAS_INCLUDE: u64 = c::ADDRESSES_HAS_INCLUDE as u64;

/// Elements of the trie for sets of this many prefixes: two generations, and one more for each, without
/// which kernels before 6.13 refuse to replace an element of a full trie.
pub(super) fn trie_elements(prefixes: u32) -> u32 {
    prefixes.saturating_mul(2).saturating_add(2)
}

/// The address set of a flow table. To be used by one thread at a time, which need not be the one
/// that has the table.
pub struct Addresses {
    trie: MapHandle,
    control: Window<Control>,
    grace: Grace,
    /// What each generation holds in the kernel.
    held: [AddressSet; 2],
    in_force: usize,
}

impl Addresses {
    pub(super) fn new(object: &FlowObject) -> Result<Self, KernelError> {
        let trie = MapHandle::try_from(&object.map("addresses")?).map_err(failed)?;
        Ok(Self {
            trie,
            control: Window::map(object.map("control")?.as_fd(), 0, 1)?,
            grace: Grace::new()?,
            held: [AddressSet::default(), AddressSet::default()],
            in_force: 0,
        })
    }

    /// Applies a set. When this returns all programs use it.
    ///
    /// # Errors
    ///
    /// When the kernel refuses: too many prefixes, no memory. Then the previous set stays in use.
    pub fn set(&mut self, set: &Arc<AddressSet>) -> Result<(), KernelError> {
        let spare = 1 - self.in_force;
        self.fill(spare, set)?;
        // Programs that began before it was filled, and that may have read ahead, have ended.
        self.grace.wait()?;
        let bit = |bit: u64, on: bool| if on { bit } else { 0 };
        let word = bit(ADDRESSES_SET, !set.is_empty())
            | bit(ADDRESSES_GENERATION, spare == 1)
            | bit(ADDRESSES_HAS_INCLUDE, set.counts().include > 0);
        self.control.elements()[0].address_set.store(word, Release);
        self.in_force = spare;
        // Those that read the old word: their generation is the next to be changed.
        self.grace.wait()
    }

    /// Makes a generation hold a set; what it already holds is left as it is.
    fn fill(&mut self, generation: usize, set: &AddressSet) -> Result<(), KernelError> {
        let held = &mut self.held[generation];
        let over: Vec<Prefix> = held
            .iter()
            .map(|(prefix, _)| prefix)
            .filter(|prefix| set.get(*prefix).is_none())
            .collect();
        for prefix in over {
            self.trie
                .delete(key(generation as u8, prefix).bytes())
                .map_err(failed)?;
            held.remove(prefix);
        }
        for (prefix, mark) in set.iter() {
            if held.get(prefix) != Some(mark) {
                let value: u32 = match mark {
                    Mark::Include => 1,
                    Mark::Exclude => 2,
                };
                let key = key(generation as u8, prefix);
                self.trie
                    .update(key.bytes(), &value.to_ne_bytes(), MapFlags::ANY)
                    .map_err(failed)?;
                held.insert(prefix, mark);
            }
        }
        Ok(())
    }
}

fn failed(error: libbpf_rs::Error) -> KernelError {
    KernelError::System {
        what: "cannot change the address set",
        source: std::io::Error::other(error),
    }
}

fn key(generation: u8, prefix: Prefix) -> AddressKey {
    let mut key = AddressKey {
        prefix_length: c::ADDRESS_KEY_HEAD + u32::from(prefix.length()),
        generation,
        ..AddressKey::default()
    };
    match prefix.address() {
        IpAddr::V4(v4) => {
            key.network = c::KIND_IPV4 as u8;
            key.address[..4].copy_from_slice(&v4.octets());
        }
        IpAddr::V6(v6) => {
            key.network = c::KIND_IPV6 as u8;
            key.address = v6.octets();
        }
    }
    key
}
