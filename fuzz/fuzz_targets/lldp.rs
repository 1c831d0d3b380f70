//! Any frame as LLDP: nothing panics, and what is read is within its bounds and safe to show.

#![no_main]

use libfuzzer_sys::fuzz_target;
use skua_packet::Lldp;

fuzz_target!(|bytes: &[u8]| {
    let Ok(found) = Lldp::read(bytes) else {
        return;
    };
    let (chassis, port) = (
        found.chassis.expect("a chassis"),
        found.port.expect("a port"),
    );
    let names = found.vlan_names.iter().map(|(_, name)| name);
    let texts = [&chassis.text, &port.text].into_iter();
    let texts = texts
        .chain(&found.system_name)
        .chain(&found.system_description);
    let texts = texts
        .chain(&found.port_description)
        .chain(&found.management);
    for text in texts.chain(names) {
        // A byte may become three of U+FFFD; an address of hardware takes three for each.
        assert!(text.len() <= 3 * 255 && !text.contains(char::is_control));
    }
    assert!(found.vlan_names.len() <= 64 && found.protocol_vlans.len() <= 64);
});
