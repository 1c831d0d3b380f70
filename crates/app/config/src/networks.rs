//! Files that say whose addresses are, and names of ports.

use std::path::{Path, PathBuf};

use skua_networks::Files;

use crate::section::section;

/// Where systems have it.
const SERVICES: &str = "/etc/services";

section! {
    /// Files that say whose addresses are, and names of ports. Skua reads them again when they have changed.
    NetworkSettings {
        /// files in the MMDB format with countries and autonomous systems, as MaxMind and IPinfo publish them, a list; of
        /// the first that knows something it counts
        databases: Vec<String> = Vec::new();
        /// files with names of ranges of addresses (sites, clouds, bogons), a list: CSV of prefix and name, or JSON; the
        /// smallest range with an address counts
        ranges: Vec<String> = Vec::new();
        /// file with names of ports (services(5)); empty: no names
        services: String = SERVICES.into();
    }
}

impl NetworkSettings {
    /// Records are written with what the files say, from now on and in the whole process.
    pub fn follow(&self) {
        let paths = |list: &[String]| list.iter().map(PathBuf::from).collect();
        let services = Path::new(&self.services);
        // Not every system has the usual one.
        let missing = self.services == SERVICES && !services.exists();
        skua_networks::follow(&Files {
            databases: paths(&self.databases),
            ranges: paths(&self.ranges),
            services: (!self.services.is_empty() && !missing).then(|| services.to_owned()),
        });
    }
}
