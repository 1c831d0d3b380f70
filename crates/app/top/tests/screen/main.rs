//! Screens on fixed data, beside those in `screens/`; `UPDATE_SCREENS=1` writes these anew.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod data;

use std::{fmt::Write as _, path::Path, time::Duration};

use data::{answer_all, status, watched};
use proptest::prelude::*;
use serde_json::json;
use skua_top::{
    app::{App, Effect, Overlay},
    draw,
    ratatui::{
        Terminal,
        backend::TestBackend,
        buffer::Buffer,
        crossterm::event::{KeyCode, KeyEvent, KeyModifiers},
        style::{Color, Modifier},
    },
    theme::{Palette, Theme},
    view::{Answer, Failure, Topic, View},
};

const COLORED: Theme = Theme {
    palette: Palette::Terminal,
    color: true,
    ascii: false,
};
const PLAIN: Theme = Theme {
    palette: Palette::Terminal,
    color: false,
    ascii: true,
};
const SMALL: (u16, u16) = (80, 24);
const LARGE: (u16, u16) = (200, 60);

fn buffer(app: &mut App, (width, height): (u16, u16)) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, app)).unwrap();
    terminal.backend().buffer().clone()
}

/// The text of a screen, without what is empty at the right.
fn text(buffer: &Buffer) -> String {
    let mut text = String::new();
    for y in 0..buffer.area.height {
        let mut line = String::new();
        for x in 0..buffer.area.width {
            line += buffer[(x, y)].symbol();
        }
        writeln!(text, "{}", line.trim_end()).unwrap();
    }
    text
}

fn screen(app: &mut App, size: (u16, u16)) -> String {
    // The first drawing says how many rows fit, and so how many are asked for.
    buffer(app, size);
    answer_all(app, 9);
    text(&buffer(app, size))
}

fn press(app: &mut App, keys: &str) -> Option<Effect> {
    let mut effect = None;
    for key in keys.chars() {
        let code = match key {
            '\n' => KeyCode::Enter,
            '\x1b' => KeyCode::Esc,
            '↓' => KeyCode::Down,
            '→' => KeyCode::Right,
            '←' => KeyCode::Left,
            '⌫' => KeyCode::Backspace,
            key => KeyCode::Char(key),
        };
        effect = app.key(KeyEvent::new(code, KeyModifiers::NONE));
    }
    effect
}

fn app(theme: Theme, view: View, size: (u16, u16)) -> App {
    let mut app = App::new("127.0.0.1:8082", theme);
    app.view = view;
    buffer(&mut app, size);
    watched(&mut app, view);
    app
}

#[track_caller]
fn golden(name: &str, screen: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/screens")
        .join(format!("{name}.txt"));
    if std::env::var_os("UPDATE_SCREENS").is_some() {
        std::fs::write(&path, screen).unwrap();
    }
    let wanted = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(screen, wanted, "{name}: UPDATE_SCREENS=1 writes it anew");
}

#[test]
fn each_view_on_a_small_and_a_large_terminal() {
    for view in View::ALL {
        for (size, name) in [(SMALL, "80x24"), (LARGE, "200x60")] {
            let mut app = app(COLORED, view, size);
            golden(&format!("{}-{name}", view.name()), &screen(&mut app, size));
        }
    }
}

#[test]
fn overlays_cover_a_view() {
    for (keys, name) in [
        ("?", "help"),
        ("\n", "details"),
        ("/tcp port 4", "filter"),
        ("c", "capture"),
        ("t⌫⌫⌫⌫⌫⌫mon0", "tap"),
    ] {
        let mut app = app(COLORED, View::Flows, SMALL);
        press(&mut app, keys);
        golden(name, &screen(&mut app, SMALL));
    }
}

#[test]
fn without_colours_and_without_unicode() {
    for view in View::ALL {
        for keys in ["", "?", "\n", "c", "t", " "] {
            let mut app = app(PLAIN, view, SMALL);
            press(&mut app, keys);
            let text = screen(&mut app, SMALL);
            assert!(text.is_ascii(), "{text}");
            let buffer = buffer(&mut app, SMALL);
            let colored = |x, y| {
                let cell = &buffer[(x, y)];
                (cell.fg, cell.bg) != (Color::Reset, Color::Reset)
            };
            assert!(!(0..80).any(|x| (0..24).any(|y| colored(x, y))));
        }
    }
    golden(
        "topology-ascii",
        &screen(&mut app(PLAIN, View::Topology, SMALL), SMALL),
    );
}

#[test]
fn no_background_is_set() {
    for view in View::ALL {
        let mut app = app(COLORED, view, LARGE);
        let buffer = buffer(&mut app, LARGE);
        assert!(buffer.content.iter().all(|cell| cell.bg == Color::Reset));
    }
}

#[test]
fn an_order_and_a_filter_are_requested() {
    let mut app = app(COLORED, View::Flows, SMALL);
    press(&mut app, "s/tcp port 443\n");
    let request = app.requests().pop().unwrap();
    let asked = format!("{request:?}");
    assert!(asked.contains(r#"("sort", "bytes")"#), "{asked}");
    assert!(asked.contains(r#"("filter", "tcp port 443")"#), "{asked}");
    assert!(asked.contains(r#"("limit", "32")"#), "{asked}");
    app.handle_answer(
        &request,
        Err(Failure::Refused("syntax error in 'tcp prt'".into())),
        Duration::from_secs(10),
    );
    let text = text(&buffer(&mut app, SMALL));
    assert!(text.contains("syntax error in 'tcp prt'"), "{text}");
    press(&mut app, "\x1b");
    assert!(!format!("{:?}", app.requests()).contains("filter"));

    let mut app = self::app(COLORED, View::Sockets, SMALL);
    press(&mut app, "/listen process=nginx\n");
    let asked = format!("{:?}", app.requests());
    assert!(
        asked.contains(r#"("listen", "true"), ("process", "nginx")"#),
        "{asked}"
    );
}

#[test]
fn a_frozen_view_requests_and_changes_nothing() {
    let mut app = app(COLORED, View::Flows, SMALL);
    let late = app.requests().pop().unwrap();
    press(&mut app, " ");
    assert!(app.requests().is_empty());
    let before = screen(&mut app, SMALL);
    assert!(before.contains("FROZEN"), "{before}");
    app.handle_answer(&late, Ok(Answer::Rows(Vec::new())), Duration::from_secs(10));
    app.event("added", "veth", "veth9", "");
    app.tick(Duration::from_secs(99));
    assert_eq!(before, screen(&mut app, SMALL));
    press(&mut app, " ");
    assert_eq!(app.requests().len(), 2);
}

#[test]
fn without_answers_the_last_view_stays_greyed() {
    let mut app = app(COLORED, View::Flows, SMALL);
    screen(&mut app, SMALL);
    let request = app.requests().remove(0);
    app.handle_answer(
        &request,
        Err(Failure::Unreachable("connection refused".into())),
        Duration::from_secs(10),
    );
    let gone = buffer(&mut app, SMALL);
    golden("gone", &text(&gone));
    let greyed = |y| gone[(1, y)].modifier.contains(Modifier::DIM);
    assert!(!greyed(1) && greyed(3) && greyed(4) && greyed(20));
    app.handle_answer(
        &request,
        Ok(Answer::Object(status(11))),
        Duration::from_secs(11),
    );
    assert!(text(&buffer(&mut app, SMALL)).contains("answers again"));
    assert!(
        !buffer(&mut app, SMALL)[(1, 4)]
            .modifier
            .contains(Modifier::DIM)
    );
    // Silence is noticed, too.
    app.tick(Duration::from_secs(20));
    assert!(text(&buffer(&mut app, SMALL)).contains("no answer for 5 s"));
}

#[test]
fn captures_and_taps_are_made_after_a_confirmation() {
    let mut app = app(COLORED, View::Flows, SMALL);
    assert_eq!(press(&mut app, "c"), None);
    assert_eq!(press(&mut app, "\x1b"), None);
    assert!(app.overlay.is_none());
    let Some(Effect::Make(make)) = press(&mut app, "c\n") else {
        panic!("nothing is made");
    };
    assert_eq!(
        make.body()["BPFFilter"],
        "tcp and host 192.0.2.1 and port 40000 and host 198.51.100.7 and port 443"
    );
    app.made(&make, Err("captures are forbidden".into()));
    assert!(text(&buffer(&mut app, SMALL)).contains("no capture: captures are forbidden"));
    app.made(&make, Ok(json!({"UUID": "u-1"})));
    assert!(text(&buffer(&mut app, SMALL)).contains("`skua capture delete u-1` ends it"));
    // In the name of a monitor `n` and `q` are letters.
    let Some(Effect::Make(tap)) = press(&mut app, "t⌫⌫⌫⌫⌫⌫nqy\n") else {
        panic!("nothing is made");
    };
    assert_eq!(tap.body()["To"], json!(["nqy"]));
}

#[test]
fn keys() {
    let mut app = app(COLORED, View::Overview, SMALL);
    for (key, view) in ["1", "2", "3", "4", "5", "6", "7"].iter().zip(View::ALL) {
        assert_eq!(press(&mut app, key), None);
        assert_eq!(app.view, view);
    }
    press(&mut app, "2");
    screen(&mut app, SMALL);
    press(&mut app, "↓↓");
    let Some(Effect::Copy(row)) = press(&mut app, "y") else {
        panic!("nothing is copied");
    };
    let row: serde_json::Value = serde_json::from_str(&row).unwrap();
    assert_eq!(row["id"], "000000000002");
    press(&mut app, "\n↓");
    assert!(matches!(
        app.overlay,
        Some(Overlay::Details { from: 1, .. })
    ));
    assert_eq!(press(&mut app, "q"), None);
    assert_eq!(press(&mut app, "q"), Some(Effect::Quit));
    let ctrl_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    press(&mut app, "/");
    assert_eq!(app.key(ctrl_c), Some(Effect::Quit));
}

#[test]
fn nodes_are_opened_and_requested() {
    let mut app = app(COLORED, View::Topology, SMALL);
    screen(&mut app, SMALL);
    press(&mut app, "↓↓↓→");
    let asked = format!("{:?}", app.requests());
    assert!(asked.contains(r#"Within(\"server1\", \"red\")"#), "{asked}");
    press(&mut app, "←");
    assert!(!format!("{:?}", app.requests()).contains("red"));
}

#[test]
fn flows_of_agents_are_requested_in_gremlin() {
    let mut app = app(COLORED, View::Flows, SMALL);
    let request = app.requests().remove(0);
    let status = json!({"rung": "", "fleet": {"agents": []}});
    app.handle_answer(
        &request,
        Ok(Answer::Object(status)),
        Duration::from_secs(10),
    );
    press(&mut app, "/Has(\"Network\", \"10.0.0.1\")\n");
    let request = app.requests().pop().unwrap();
    let asked = format!("{:?}", request.question);
    assert!(asked.contains("G.Flows().Has("), "{asked}");
    let flow = json!({
        "Host": "web1", "Interface": "eth0", "NodeTID": "t-1", "UUID": "u", "LayersPath": "Ethernet/IPv4/TCP",
        "Network": {"A": "10.0.0.1", "B": "10.0.0.2"}, "Transport": {"Protocol": "TCP", "A": 5, "B": 443},
    });
    app.handle_answer(
        &request,
        Ok(Answer::Rows(vec![flow])),
        Duration::from_secs(11),
    );
    let text = text(&buffer(&mut app, SMALL));
    assert!(text.contains("10.0.0.2:443"), "{text}");
    let Some(Effect::Make(make)) = press(&mut app, "c\n") else {
        panic!("nothing is made");
    };
    assert_eq!(make.body()["GremlinQuery"], r#"G.V().Has("TID", "t-1")"#);
}

#[test]
fn services_by_who_calls_whom() {
    let mut app = app(COLORED, View::Services, SMALL);
    press(&mut app, "d");
    golden("dependencies-80x24", &screen(&mut app, SMALL));
}

fn any_json() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(json!(null)),
        any::<u64>().prop_map(|n| json!(n)),
        any::<f64>().prop_map(|n| json!(n)),
        any::<String>().prop_map(|text| json!(text)),
    ];
    let keys = prop_oneof![
        Just("summary".to_owned()),
        Just("seen".to_owned()),
        Just("interfaces".to_owned()),
        Just("a".to_owned()),
        Just("id".to_owned()),
        Just("Metadata".to_owned()),
        Just("rate".to_owned()),
        Just("ID".to_owned()),
        Just("lost".to_owned()),
        any::<String>(),
    ];
    leaf.prop_recursive(4, 32, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(|items| json!(items)),
            prop::collection::btree_map(keys.clone(), inner, 0..4).prop_map(|map| json!(map)),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn no_answer_no_key_and_no_size_breaks_it(
        answers in prop::collection::vec(any_json(), 1..6),
        keys in "[1-7sSrdyct?/ jkGgl\n\u{1b}a-z⌫↓→←]{0,24}",
        width in 1u16..120, height in 1u16..40,
    ) {
        let mut app = App::new("127.0.0.1:8082", COLORED);
        for (at, key) in keys.chars().chain(['2', '6', '1']).enumerate() {
            let _ = press(&mut app, &key.to_string());
            for request in app.requests() {
                let answer = match request.topic {
                    Topic::Status => Answer::Object(answers[0].clone()),
                    _ => Answer::Rows(answers.clone()),
                };
                app.handle_answer(&request, Ok(answer), Duration::from_secs(at as u64));
            }
            let drawn = buffer(&mut app, (width, height));
            let shown = text(&drawn);
            let drives = |c: char| c != '\n' && c.is_control() || c == '\u{202e}';
            prop_assert!(!shown.chars().any(drives));
        }
    }
}
