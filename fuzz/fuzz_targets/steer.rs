//! Any text as a file of detectors, any bytes as packets for them and as values: nothing panics, values
//! are within their limit, and what a detector counts adds up.

#![no_main]

use libfuzzer_sys::fuzz_target;
use skua_steer::{ByteOrder, Classification, Encoding, MOST, Reference, ValueField, decode, parse};

fuzz_target!(|bytes: &[u8]| {
    let mut parts = bytes.splitn(2, |byte| *byte == 0xff);
    let text = String::from_utf8_lossy(parts.next().unwrap_or_default());
    let packet = parts.next().unwrap_or_default();
    values(packet);
    // Expressions may have names of hosts, which are looked up by DNS: they are not for here.
    if text.contains("match") || text.contains('\\') {
        return;
    }
    let Ok(detectors) = parse(&text) else { return };
    for detector in &detectors {
        let mut reference = Reference::new(detector).expect("it was checked");
        for time in 0..70 {
            let Classification::Sampled {
                channel,
                value,
                verdict,
            } = reference.matched(packet, time).fate
            else {
                continue;
            };
            assert!(channel < detector.channels);
            assert!(value.unsigned_abs() <= MOST);
            assert!(
                verdict.count < u64::from(detector.ring) || verdict.after.unsigned_abs() <= MOST
            );
        }
        let tally = reference.tally();
        assert_eq!(tally.matched, 70);
        assert_eq!(
            tally.matched,
            tally.sampled + tally.untouched.values().sum::<u64>()
        );
    }
});

fn values(bytes: &[u8]) {
    let Some((&[fraction, width], bytes)) = bytes.split_first_chunk() else {
        return;
    };
    for encoding in [
        Encoding::Unsigned,
        Encoding::Signed,
        Encoding::Float,
        Encoding::Double,
        Encoding::Decimal,
    ] {
        for order in [ByteOrder::Big, ByteOrder::Little] {
            let width = match encoding {
                Encoding::Float => 4,
                Encoding::Double => 8,
                Encoding::Decimal => 1 + width % 20,
                _ => 1 << (width % 4),
            };
            let field = ValueField {
                offset: 0,
                width,
                encoding,
                order,
            };
            if let Ok(value) = decode(bytes, &field, fraction % 25) {
                assert!(value.unsigned_abs() <= MOST);
            }
        }
    }
}
