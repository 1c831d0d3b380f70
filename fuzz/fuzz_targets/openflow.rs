//! Any bytes as a message of an OpenFlow switch: it is read or refused, and what is made of it is bounded.

#![no_main]

use libfuzzer_sys::fuzz_target;
use skua_openflow::{
    Message, Rule, Update, Version,
    message::{read, with_length},
};

/// No text of a rule is longer than what its actions may have.
const MOST: usize = 4 << 20;

fn rule(rule: &Rule) {
    assert!(rule.text().len() < MOST);
    let _ = (rule.flag_map(), rule.actions(), rule.write_actions());
}

fuzz_target!(|bytes: &[u8]| {
    for version in [Version::V13, Version::V14] {
        // As it is, and with the length that it has.
        for bytes in [bytes.to_vec(), with_length(bytes)] {
            match read(&bytes, version) {
                Message::Rules(rules, _) => rules.iter().for_each(rule),
                Message::Updates(updates) => {
                    for update in updates {
                        if let Update::Set(new) = update {
                            rule(&new);
                        }
                    }
                }
                Message::Groups(groups, _) => {
                    for group in groups {
                        assert!(group.text().len() < MOST);
                        let _ = group.bucket_values();
                    }
                }
                _ => {}
            }
        }
    }
});
