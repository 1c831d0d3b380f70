//! Any bytes as what a client says first in TLS: nothing panics, what is kept has its bounds, and any cut gives the same.

#![no_main]

use libfuzzer_sys::fuzz_target;
use skua_apps::tls::{ClientHello, Handshake};

fn read(stream: &[u8], piece: usize) -> Vec<ClientHello> {
    let (mut handshake, mut found) = (Handshake::default(), Vec::new());
    for piece in stream.chunks(piece) {
        handshake.feed(piece, &mut |hello| found.push(hello));
    }
    found
}

fuzz_target!(|bytes: &[u8]| {
    let Some((cut, stream)) = bytes.split_first() else {
        return;
    };
    // The body alone, too, which few bytes lead to otherwise.
    let body = ClientHello::read(stream);
    let whole = read(stream, stream.len().max(1));
    assert_eq!(whole, read(stream, usize::from(*cut).max(1)));
    assert!(whole.len() <= 1);
    for hello in whole.iter().chain(&body) {
        // A byte becomes four of text at most.
        assert!(hello.server_name.len() <= 4 * 255);
        assert!(hello.protocols.len() <= 16);
        let texts = hello.protocols.iter().chain([&hello.server_name]);
        assert!(
            texts
                .chain([&hello.ja4])
                .all(|t| !t.contains(char::is_control))
        );
    }
});
