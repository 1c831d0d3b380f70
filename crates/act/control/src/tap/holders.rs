//! Packets chosen by whose sockets they come from or go to.

use super::Tap;
use skua_tap::WantedSockets;

/// Names in each list at most.
const NAMES: usize = 256;
/// Characters of a name at most.
const LENGTH: usize = 512;

/// Whose sockets are wanted: of each list that is not empty, one must fit.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Holders {
    /// Processes by name, number or path of the executable.
    pub processes: Vec<String>,
    /// Containers by name or begin of the identifier.
    pub containers: Vec<String>,
    /// Services by name, or units.
    pub services: Vec<String>,
}

/// Knows the sockets of this host and whose they are.
pub trait SocketFinder: Send + Sync {
    /// Finds the sockets of each of these, with one scan for all.
    ///
    /// # Errors
    /// Sockets are not known here; in words.
    fn find(&self, wanted: &[Holders]) -> Result<Vec<WantedSockets>, String>;
}

impl Holders {
    /// What a tap asks for.
    pub(super) fn of(tap: &Tap) -> Self {
        Self {
            processes: tap.processes.clone(),
            containers: tap.containers.clone(),
            services: tap.services.clone(),
        }
    }

    /// Whether anything is asked for.
    pub fn is_empty(&self) -> bool {
        self.processes.is_empty() && self.containers.is_empty() && self.services.is_empty()
    }

    /// What is wrong with it.
    pub(super) fn check(&self) -> Result<(), String> {
        let lists = [
            ("Processes", &self.processes),
            ("Containers", &self.containers),
            ("Services", &self.services),
        ];
        for (key, list) in lists {
            if list.len() > NAMES {
                return Err(format!("{key}: at most {NAMES} names"));
            }
            if let Some(name) = list
                .iter()
                .find(|name| name.trim().is_empty() || name.len() > LENGTH)
            {
                return Err(format!("{key}: \"{}\" is no name", name.trim()));
            }
        }
        Ok(())
    }
}
