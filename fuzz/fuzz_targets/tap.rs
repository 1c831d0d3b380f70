//! Any bytes as a tap, or as a change of one: it is refused with one line, or what it is to do is within
//! its limits, and its monitors, written as they are shown, mean the same again.

#![no_main]

use libfuzzer_sys::fuzz_target;
use skua_control::tap::{Tap, spec};
use skua_tap::{Space, Target};

/// Words of expressions that are tried. Others may be names of hosts, which are looked up by DNS.
const WORDS: [&str; 10] = [
    "tcp", "udp", "ip", "ip6", "port", "vlan", "and", "or", "not", "net",
];

fn may_compile(expression: &str) -> bool {
    let mut words = expression.split(|c: char| !c.is_ascii_alphanumeric());
    expression.is_ascii()
        && words.all(|word| word.parse::<u16>().is_ok() || word.is_empty() || WORDS.contains(&word))
}

fn one_line(error: &str) {
    assert!(!error.is_empty() && error.len() < 64 << 10);
}

fn read(kind: u8, body: &[u8]) -> Option<Tap> {
    if kind.is_multiple_of(2) {
        return serde_json::from_slice(body).ok();
    }
    let patch: json_patch::Patch = serde_json::from_slice(body).ok()?;
    let tap = Tap {
        from: vec!["eth0".into()],
        to: vec!["mon0".into()],
        ..Tap::default()
    };
    let mut value = serde_json::to_value(tap).expect("a tap is an object");
    json_patch::patch(&mut value, &patch).ok()?;
    serde_json::from_value(value).ok()
}

fn shown(name: &str, space: &Space) -> String {
    Target::Interface {
        name: name.to_owned(),
        space: space.clone(),
    }
    .to_string()
}

fuzz_target!(|data: &[u8]| {
    let [kind, body @ ..] = data else { return };
    let Some(tap) = read(*kind, body) else { return };
    if !may_compile(&tap.r#match) {
        return;
    }
    let asked = match spec(&tap) {
        Ok(asked) => asked,
        Err(error) => return one_line(&error),
    };
    assert!(asked.targets.len() <= 32 && asked.sources.len() <= 1_024);
    assert!(asked.choice.addresses.len() <= 100_000);
    assert!(asked.choice.vlan < 4_095 && asked.choice.sampling > 0);
    assert!(!asked.directions.is_empty());
    for target in &asked.targets {
        let Target::Interface { name, space } = target else {
            continue;
        };
        assert!(!asked.sources.contains(&(name.clone(), space.clone())));
    }
    let again = Tap {
        from: asked
            .sources
            .iter()
            .map(|(name, space)| shown(name, space))
            .collect(),
        to: match asked.targets.is_empty() {
            true => tap.to.clone(),
            false => asked.targets.iter().map(ToString::to_string).collect(),
        },
        ..tap
    };
    assert_eq!(spec(&again).expect("it was taken before"), asked);
});
