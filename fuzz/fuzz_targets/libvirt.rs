//! Any file as a domain of libvirt: nothing panics, and what is read is within its bounds and safe to show.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(domain) = skua_discover::libvirt_domain(bytes) else {
        return;
    };
    assert!(domain.interfaces.len() <= 256);
    let of = domain.interfaces.iter().flat_map(|interface| {
        [
            &interface.mac,
            &interface.target,
            &interface.alias,
            &interface.bus_type,
        ]
    });
    for text in [&domain.name, &domain.uuid].into_iter().chain(of) {
        assert!(text.chars().count() <= 256 && !text.contains(char::is_control));
    }
});
