//! Messages of a real Open vSwitch 3.1, as they are and damaged.

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use skua_openflow::{
    Message, Update, Version,
    message::{read, with_length},
};

const RULES: &[u8] = include_bytes!("messages/rules");
const UPDATE: &[u8] = include_bytes!("messages/update");
const GROUPS: &[u8] = include_bytes!("messages/groups");
const GROUP_COUNTERS: &[u8] = include_bytes!("messages/group_counters");

#[test]
fn messages_of_a_switch_are_read() {
    let Message::Rules(rules, false) = read(RULES, Version::V14) else {
        panic!("no rules");
    };
    assert!(rules.len() > 40);
    assert!(rules.iter().all(|rule| rule.counters.is_some()));
    let texts: Vec<String> = rules.iter().map(|rule| rule.text()).collect();
    assert!(texts.contains(&"table=0,priority=0,in_port=1 actions=resubmit(,1)".to_owned()));
    assert!(
        texts
            .iter()
            .all(|text| !text.contains("unknown") && !text.contains("field_")),
        "{texts:?}"
    );
    let Message::Updates(updates) = read(UPDATE, Version::V14) else {
        panic!("no update");
    };
    let [Update::Set(rule)] = &updates[..] else {
        panic!("{updates:?}");
    };
    assert_eq!(
        rule.text(),
        "table=40,priority=32768,ct_state=+trk,ip actions=ct(commit,nat(src=10.0.0.1:5-9)),\
         learn(table=3,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[]),output:2"
    );
    let Message::Groups(groups, false) = read(GROUPS, Version::V14) else {
        panic!("no groups");
    };
    assert_eq!(
        groups[0].text(),
        "group_id=1,type=select,bucket=weight:5,actions=output:2,bucket=weight:1,actions=set_field:0x1->reg0,output:3"
    );
    let Message::GroupCounters(counters, false) = read(GROUP_COUNTERS, Version::V14) else {
        panic!("no counters");
    };
    assert_eq!(counters[0].id, 1);
}

/// Whatever is read can be written.
fn use_up(message: Message) {
    match message {
        Message::Rules(rules, _) => {
            for rule in rules {
                let _ = (
                    rule.text(),
                    rule.actions(),
                    rule.write_actions(),
                    rule.flag_map(),
                );
            }
        }
        Message::Groups(groups, _) => {
            for group in groups {
                let _ = (group.text(), group.bucket_values());
            }
        }
        _ => {}
    }
}

#[test]
fn actions_in_actions_end() {
    // A clone of clones, as deep as a message can have them.
    let mut actions = Vec::new();
    for _ in 0..3_000 {
        let length = u16::try_from(actions.len() + 16).unwrap();
        let mut clone = vec![0xff, 0xff];
        clone.extend(length.to_be_bytes());
        clone.extend([0, 0, 0x23, 0x20, 0, 42, 0, 0, 0, 0, 0, 0]);
        clone.extend(&actions);
        actions = clone;
    }
    let mut entry = vec![0; 46];
    entry.extend([0, 1, 0, 4, 0, 0, 0, 0, 0, 4]);
    entry.extend(u16::try_from(actions.len() + 8).unwrap().to_be_bytes());
    entry.extend([0; 4]);
    entry.extend(&actions);
    let mut message = vec![5, 19, 0, 0, 0, 0, 0, 2, 0, 1, 0, 0, 0, 0, 0, 0];
    message.extend(u16::try_from(entry.len() + 2).unwrap().to_be_bytes());
    message.extend(entry);
    let Message::Rules(rules, _) = read(&with_length(&message), Version::V14) else {
        panic!("not read");
    };
    let text = rules[0].text();
    assert!(
        text.ends_with(&format!("clone(...{}", ")".repeat(8))),
        "{text}"
    );
}

proptest! {
    #[test]
    fn damaged_messages_are_read_or_refused(
        which in 0..4_usize,
        cut in any::<prop::sample::Index>(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
    ) {
        let mut bytes = [RULES, UPDATE, GROUPS, GROUP_COUNTERS][which].to_vec();
        for (place, byte) in damage {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        use_up(read(&bytes, Version::V14));
        bytes.truncate(cut.index(bytes.len()) + 1);
        for version in [Version::V13, Version::V14] {
            use_up(read(&bytes, version));
            use_up(read(&with_length(&bytes), version));
        }
    }
}
