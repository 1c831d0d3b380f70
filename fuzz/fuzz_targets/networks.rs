//! Files that say whose addresses are: any bytes are read or refused, and asked, within limits.

#![no_main]

use std::net::IpAddr;

use libfuzzer_sys::fuzz_target;
use skua_networks::{Database, Networks, Ranges, Services};

fuzz_target!(|bytes: &[u8]| {
    let mut networks = Networks::default();
    if let Ok(database) = Database::new(bytes.to_vec()) {
        networks.databases.push(database.into());
    }
    if let Ok(ranges) = Ranges::parse(bytes) {
        networks.ranges.push(ranges.into());
    }
    networks.services = Services::parse(bytes).into();
    // Addresses of the seeds, and what the bytes begin with.
    let mut own = [0; 16];
    for (to, from) in own.iter_mut().zip(bytes) {
        *to = *from;
    }
    let seeds = [[198, 51, 100, 1], [203, 0, 113, 200], [10, 1, 2, 3]].map(IpAddr::from);
    for address in seeds.into_iter().chain([own.into()]) {
        let known = networks.known(address);
        assert!(matches!(known.country.len(), 0 | 2));
        for name in [known.organization, known.network] {
            assert!(name.len() <= 256 && !name.contains(char::is_control));
        }
    }
    networks.port(6, 443);
});
