//! Any bytes as messages of DNS: nothing panics, what is kept has its bounds, and a stream gives the same messages however
//! it is cut.

#![no_main]

use std::net::SocketAddr;

use libfuzzer_sys::fuzz_target;
use skua_apps::{
    Stream,
    dns::{Exchanges, Framing, Limits, MOST_NAME, Message, Place, Sent},
    eve,
};

fn take(exchanges: &mut Exchanges, bytes: &[u8], time_ns: u64, tcp: bool, port: u16) {
    let Some(message) = Message::read(bytes) else {
        return;
    };
    let names = message.questions.iter().map(|q| &q.name);
    for name in names.chain(message.sections.iter().flatten().map(|r| &r.name)) {
        // A byte becomes four of text at most.
        assert!(name.len() <= 4 * MOST_NAME && !name.contains(char::is_control));
    }
    assert!(message.questions.len() <= 32);
    assert!(message.sections.iter().all(|section| section.len() <= 64));
    let ends = [
        SocketAddr::from(([192, 0, 2, 1], 4000)),
        SocketAddr::from(([192, 0, 2, 53], port)),
    ];
    let [from, to] = match message.is_answer() {
        true => [ends[1], ends[0]],
        false => ends,
    };
    let sent = Sent {
        message: &message,
        bytes: bytes.len() as u32,
        time_ns,
        place: Place::default(),
        tcp,
        from,
        to,
    };
    assert!(eve::dns(&sent, 1).is_object());
    exchanges.take(&sent, &mut |lookup| {
        assert!(lookup.answers.len() <= 32);
        assert!(serde_json::to_string(&lookup).is_ok());
    });
}

fuzz_target!(|bytes: &[u8]| {
    let Some((how, bytes)) = bytes.split_first() else {
        return;
    };
    let mut exchanges = Exchanges::new(Limits {
        questions: 16,
        ..Limits::default()
    });
    let port = [53, 5353, 5355, 8053][usize::from(how >> 6)];
    if how & 3 < 2 {
        // Several messages one after the other, divided by what no short name has.
        for (i, message) in bytes.split(|byte| *byte == 0xfe).enumerate() {
            take(&mut exchanges, message, i as u64 * 400_000_000, false, port);
        }
    } else if let Some((cut, stream)) = bytes.split_first() {
        let whole = messages(stream, stream.len().max(1));
        let cut = messages(stream, usize::from(*cut).max(1));
        assert_eq!(whole, cut);
        for (i, message) in whole.iter().enumerate() {
            take(&mut exchanges, message, i as u64, true, port);
        }
    }
    assert!(exchanges.len() <= 16);
    exchanges.finish(&mut |_| {});
    assert!(exchanges.is_empty());
});

/// The messages of a stream that comes in pieces, every other pair of them the wrong way round.
fn messages(bytes: &[u8], piece: usize) -> Vec<Vec<u8>> {
    let (mut stream, mut framing, mut found) = (Stream::default(), Framing::default(), Vec::new());
    let start = u32::MAX - 100;
    stream.begin(start.wrapping_sub(1));
    let pieces: Vec<&[u8]> = bytes.chunks(piece).collect();
    for (pair, both) in pieces.chunks(2).enumerate() {
        let mut places: Vec<usize> = (0..both.len()).collect();
        if pair % 2 == 1 {
            places.reverse();
        }
        for place in places {
            let at = (2 * pair + place) * piece;
            let seq = start.wrapping_add(at as u32);
            stream.segment(seq, both[place], 0, &mut |new| {
                framing.feed(new, &mut |message| found.push(message.to_vec()));
            });
        }
    }
    found
}
