//! Any text as conditions: it is read or refused within its limits, and asked of a record.

#![no_main]

use libfuzzer_sys::fuzz_target;
use skua_condition::{Conditions, SideField, Subject, completed, completions, looks};
use skua_flow::{FlowRecord, FlowUpdate};

fuzz_target!(|text: &str| {
    let _ = looks(text);
    for one in completions(text) {
        completed(text, &one.text);
    }
    match Conditions::parse(text) {
        Err(error) => {
            let shown = error.to_string();
            assert!(shown.len() < 2_048);
        }
        Ok(conditions) => {
            let record = FlowRecord::new(&FlowUpdate::default(), 1, 1, 1, 1);
            let line = record.line("blue/eth0");
            let subject = Subject {
                line: &line,
                service: "web",
            };
            conditions.hold_at(&subject);
            conditions.hold(&subject);
            conditions.hold_for(&subject, true, SideField::Process);
        }
    }
});
