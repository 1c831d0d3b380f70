//! Files that say whose addresses and ports are.

use std::path::{Path, PathBuf};

use skua_networks::Files;

use crate::section::section;

/// Where systems have it.
const SERVICES: &str = "/etc/services";

section! {
    /// Files that say whose addresses and ports are; they are read again when they have changed.
    NetworkSettings {
        /// files in the MMDB format with countries and autonomous systems, as MaxMind and IPinfo publish them
        databases: Vec<String> = Vec::new();
        /// files with names of ranges of addresses (bogons, clouds, sites): CSV of prefix and name, or JSON
        ranges: Vec<String> = Vec::new();
        /// file with names of services; empty: no names
        services: String = SERVICES.into();
    }
}

impl NetworkSettings {
    /// The files. Not every system has the usual one of services.
    pub fn files(&self) -> Files {
        let paths = |list: &[String]| list.iter().map(PathBuf::from).collect();
        let services = Path::new(&self.services);
        let missing = self.services == SERVICES && !services.exists();
        Files {
            databases: paths(&self.databases),
            ranges: paths(&self.ranges),
            services: (!self.services.is_empty() && !missing).then(|| services.to_owned()),
        }
    }
}
