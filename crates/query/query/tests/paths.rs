//! Which differences between two places of a conversation are loss.
#![allow(clippy::unwrap_used)]

mod lab;

use lab::Lab;
use serde_json::json;
use skua_query::output;
use std::time::{SystemTime, UNIX_EPOCH};

/// A record at a place, with times in ms before now.
struct Seen {
    place: &'static str,
    start: i64,
    last: i64,
    /// Packets from A to B and back; what the last reading added.
    packets: [i64; 2],
    lately: [i64; 2],
    /// Since when the place is watched.
    since: Option<i64>,
    tcp: bool,
    syn: bool,
}

const HELD: Seen = Seen {
    place: "x",
    start: 60_000,
    last: 50_000,
    packets: [10, 10],
    lately: [0, 0],
    since: Some(400_000),
    tcp: true,
    syn: true,
};

/// What is lost between the places by direction, in the order of hops; null where they cannot be compared.
fn lost(seen: &[Seen]) -> Vec<Option<[i64; 2]>> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let now = i64::try_from(now.as_millis()).unwrap();
    let flows = seen.iter().map(|seen| {
        let at = |before: i64| now - before;
        let mut flow = json!({
            "UUID": seen.place, "NodeTID": seen.place, "TrackingID": "T", "Start": at(seen.start), "Last": at(seen.last),
            "StartNs": at(seen.start) * 1_000_000,
            "Network": {"A": "10.0.0.1", "B": "10.0.0.2"},
            "Transport": {"Protocol": if seen.tcp { "TCP" } else { "UDP" }, "A": 40_000, "B": 80},
            "Metric": {"ABPackets": seen.packets[0], "BAPackets": seen.packets[1]},
            "LastUpdateMetric": {
                "ABPackets": seen.lately[0], "BAPackets": seen.lately[1], "Start": at(seen.last + 1_000), "Last": at(seen.last),
            },
        });
        if let Some(since) = seen.since {
            flow["PlaceSinceNs"] = json!(at(since) * 1_000_000);
        }
        if seen.syn {
            flow["TCPMetric"] = json!({"ABSynStart": at(seen.start)});
        }
        flow
    });
    let flows = json!({"Flows": flows.collect::<Vec<_>>(), "Metrics": {}, "Packets": {}});
    let lab = Lab::with_flows(&flows.to_string());
    let answer = lab.query("G.Flows().Path()").unwrap();
    let answer = output::json(&answer);
    let hops = answer[0]["T"].as_array().unwrap();
    let compared = hops.iter().filter(|hop| hop["Hop"] != 1);
    compared
        .map(|hop| Some([hop["LostAB"].as_i64()?, hop["LostBA"].as_i64()?]))
        .collect()
}

#[test]
fn what_both_places_saw_from_its_beginning_is_compared() {
    let y = Seen {
        place: "y",
        packets: [8, 10],
        ..HELD
    };
    assert_eq!(lost(&[HELD, y]), [Some([2, 0])]);
    // Of a datagram's conversation, too, and a later place may have more.
    let udp = |place, packets| Seen {
        place,
        packets,
        tcp: false,
        syn: false,
        ..HELD
    };
    assert_eq!(
        lost(&[udp("x", [10, 0]), udp("y", [7, 0]), udp("z", [9, 0])]),
        [Some([3, 0]), Some([-2, 0])]
    );
    // The SYN was lost on the way and sent again.
    let late = Seen {
        place: "y",
        start: 58_900,
        packets: [9, 10],
        ..HELD
    };
    assert_eq!(lost(&[HELD, late]), [Some([1, 0])]);
}

#[test]
fn what_may_have_begun_before_a_place_was_watched_is_not() {
    // A stream that ran when the second place was attached, 0.4 s after the first.
    let stream = |place, start, since| Seen {
        place,
        start,
        since,
        packets: [1_000 - start / 100, 0],
        tcp: false,
        syn: false,
        ..HELD
    };
    let at_once = [
        stream("x", 60_000, Some(60_001)),
        stream("y", 59_600, Some(59_601)),
    ];
    assert_eq!(lost(&at_once), [None]);
    let later = [
        stream("x", 60_000, Some(90_000)),
        stream("y", 59_600, Some(59_601)),
    ];
    assert_eq!(lost(&later), [None]);
    // Where that is not known, only the same packet is a common beginning.
    let unknown = [stream("x", 60_000, None), stream("y", 59_600, None)];
    assert_eq!(lost(&unknown), [None]);
    let same = [stream("x", 60_000, None), stream("y", 60_000, None)];
    assert_eq!(lost(&same), [Some([0, 0])]);
    // A connection whose SYN only one place saw, and one whose SYN was sent again when the second place was there.
    let half = Seen {
        place: "y",
        start: 59_999,
        since: Some(59_999),
        syn: false,
        ..HELD
    };
    assert_eq!(lost(&[HELD, half]), [None]);
    let again = Seen {
        place: "y",
        start: 58_900,
        since: Some(59_500),
        ..HELD
    };
    assert_eq!(lost(&[HELD, again]), [None]);
}

#[test]
fn records_of_one_connection_are_added_and_of_several_kept_apart() {
    // The first RST was lost between y and x: for x the second SYN belongs to the first try, for y it begins a new one.
    let x = Seen {
        last: 59_000,
        packets: [2, 1],
        ..HELD
    };
    let y = |start| Seen {
        place: "y",
        start,
        last: start,
        packets: [1, 1],
        ..HELD
    };
    assert_eq!(lost(&[x, y(60_000), y(59_000)]), [Some([0, 1])]);
    // The same ports again, much later: y did not see the first connection, x not the second.
    let second = Seen {
        place: "y",
        start: 30_000,
        last: 20_000,
        ..HELD
    };
    let third = |place, start| Seen {
        place,
        start,
        last: start,
        packets: [5, 5],
        ..HELD
    };
    assert_eq!(
        lost(&[HELD, second, third("x", 9_000), third("y", 9_000)]),
        [Some([0, 0])]
    );
}

#[test]
fn what_may_be_under_way_is_not_lost() {
    let running = |place, packets, lately| Seen {
        place,
        last: 0,
        packets,
        lately,
        ..HELD
    };
    // Read in the middle of a burst of 20; 15 before it are missing.
    let burst = [
        running("x", [100, 50], [20, 10]),
        running("y", [70, 50], [5, 10]),
    ];
    assert_eq!(lost(&burst), [Some([10, 0])]);
    let read_first = [
        running("x", [100, 50], [20, 10]),
        running("y", [85, 58], [5, 10]),
    ];
    assert_eq!(lost(&read_first), [Some([0, 0])]);
    // After a pause it is exact.
    let paused = [
        Seen {
            last: 5_000,
            ..running("x", [100, 50], [20, 10])
        },
        Seen {
            last: 5_000,
            ..running("y", [85, 58], [5, 10])
        },
    ];
    assert_eq!(lost(&paused), [Some([15, 8])]);
}
