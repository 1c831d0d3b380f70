//! Clients' first messages of TLS.

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use skua_apps::tls::{ClientHello, Handshake};

fn with_length<const N: usize>(body: &[u8]) -> Vec<u8> {
    let length = (body.len() as u64).to_be_bytes();
    [&length[8 - N..], body].concat()
}

fn words(values: &[u16]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_be_bytes())
        .collect()
}

fn extension(kind: u16, data: &[u8]) -> Vec<u8> {
    [&kind.to_be_bytes()[..], &with_length::<2>(data)].concat()
}

/// The body of the message that JA4's description has as its example: a browser's, with values of GREASE.
fn body(more: &[u8]) -> Vec<u8> {
    let ciphers = [
        0x0a0a, 0x1301, 0x1302, 0x1303, 0xc02b, 0xc02f, 0xc02c, 0xc030, 0xcca9, 0xcca8, 0xc013,
        0xc014, 0x009c, 0x009d, 0x002f, 0x0035,
    ];
    let signatures = [
        0x0403, 0x0804, 0x0401, 0x0503, 0x0805, 0x0501, 0x0806, 0x0601,
    ];
    let name = [&[0][..], &with_length::<2>(b"api.example.com")].concat();
    let protocols = [with_length::<1>(b"h2"), with_length::<1>(b"http/1.1")].concat();
    let mut extensions = [
        extension(0x1a1a, &[]),
        extension(0x0000, &with_length::<2>(&name)),
        extension(0x0010, &with_length::<2>(&protocols)),
        extension(0x000d, &with_length::<2>(&words(&signatures))),
        extension(0x002b, &with_length::<1>(&words(&[0x2a2a, 0x0304, 0x0303]))),
    ]
    .concat();
    for kind in [
        0x001b, 0x0033, 0x4469, 0x0017, 0x002d, 0x0005, 0x0023, 0x0012, 0xff01, 0x000b, 0x000a,
        0x0015,
    ] {
        extensions.extend(extension(kind, &[]));
    }
    extensions.extend(more);
    [
        &[3, 3][..],
        &[7; 32],
        &with_length::<1>(&[9; 32]),
        &with_length::<2>(&words(&ciphers)),
        &with_length::<1>(&[0]),
        &with_length::<2>(&extensions),
    ]
    .concat()
}

fn records(body: &[u8], of: usize) -> Vec<u8> {
    let message = [&[1][..], &with_length::<3>(body)].concat();
    let record = |part: &[u8]| [&[22, 3, 1][..], &with_length::<2>(part)].concat();
    message.chunks(of).flat_map(record).collect()
}

fn read(stream: &[u8], cuts: &[usize]) -> Vec<ClientHello> {
    let (mut handshake, mut found) = (Handshake::default(), Vec::new());
    let mut begin = 0;
    for end in cuts.iter().copied().chain([stream.len()]) {
        let end = end.clamp(begin, stream.len());
        handshake.feed(&stream[begin..end], &mut |hello| found.push(hello));
        begin = end;
    }
    found
}

#[test]
fn what_a_client_says_is_read_and_its_fingerprint_is_that_of_the_description() {
    let found = read(&records(&body(&[]), 16_384), &[]);
    let [hello] = &found[..] else {
        panic!("{found:?}")
    };
    assert_eq!(hello.server_name, "api.example.com");
    assert_eq!(hello.protocols, ["h2", "http/1.1"]);
    assert_eq!(hello.version_name(), "TLS 1.3");
    assert_eq!(hello.ja4, "t13d1516h2_8daaf6152771_e5627efa2ab1");
    assert!(!hello.encrypted);
    let with = extension(0xfe0d, &[0; 100]);
    assert!(read(&records(&body(&with), 16_384), &[])[0].encrypted);
}

#[test]
fn any_cut_and_any_records_give_the_same() {
    // As long as those with keys of ML-KEM.
    let long = body(&extension(0x0039, &[5; 1300]));
    let whole = read(&records(&long, 16_384), &[]);
    assert_eq!(whole.len(), 1);
    for of in [1, 3, 100, 1400] {
        let stream = records(&long, of);
        assert_eq!(read(&stream, &[]), whole);
        for cut in (1..stream.len()).step_by(7) {
            assert_eq!(read(&stream, &[cut]), whole, "{of} {cut}");
        }
        let each: Vec<usize> = (1..stream.len()).collect();
        assert_eq!(read(&stream, &each), whole);
    }
}

#[test]
fn other_things_end_at_once() {
    for other in [
        &b"GET / HTTP/1.1\r\n"[..],
        b"\x16\x03\x01\x00\x00",
        b"\x16\x03\x01\xff\xff",
        b"\x16\x03\x03\x00\x04\x02\x00\x00\x00",
        b"\x17\x03\x03\x00\x10",
        b"\x16\x03\x01\x00\x04\x01\xff\xff\xff",
    ] {
        let mut handshake = Handshake::default();
        assert!(handshake.feed(other, &mut |_| panic!()), "{other:?}");
        assert!(handshake.feed(other, &mut |_| panic!()));
    }
    // Drips that never end: what waits has a bound.
    let mut handshake = Handshake::default();
    let mut record = vec![22, 3, 1, 0x40, 0, 1, 0, 0x7f, 0xff];
    record.extend([0; 16_380]);
    let over = record
        .repeat(4)
        .chunks(1)
        .filter(|byte| handshake.feed(byte, &mut |_| {}))
        .count();
    assert!(over > 0);
    // Names that are none, and a list that ends too early.
    for cut in 0..body(&[]).len() {
        let _ = ClientHello::read(&body(&[])[..cut]);
    }
    let odd = [&[0][..], &with_length::<2>(b"a\0\x1b[31mb")].concat();
    let odd = extension(0, &with_length::<2>(&odd));
    let hello = ClientHello::read(&body(&odd)).unwrap();
    assert!(!hello.server_name.contains(char::is_control), "{hello:?}");
}

proptest! {
    #[test]
    fn no_bytes_make_it_fail(bytes in proptest::collection::vec(any::<u8>(), 0..400), at in 0usize..300, with in any::<u8>()) {
        let _ = ClientHello::read(&bytes);
        read(&bytes, &[5, 9]);
        let mut changed = records(&body(&[]), 100);
        let at = at.min(changed.len() - 1);
        changed[at] = with;
        for hello in read(&changed, &[at]) {
            prop_assert!(!hello.server_name.contains(char::is_control));
            prop_assert!(hello.ja4.is_ascii());
        }
    }
}
