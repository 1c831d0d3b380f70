//! The same job on Samza, which shows that the topic's schema is not Flink's alone.

use crate::{
    job::{Job, after, broker, check, command, in_process, input, publish, rows},
    support::wait_for,
};

#[test]
#[ignore = "wants Samza: make test-samza"]
fn samza_and_the_graph_in_process_come_to_the_same() {
    let broker = broker();
    let input = input();
    publish(&broker, &input);
    publish(&broker, &after());
    let (expected, corrected) = in_process(&input);
    assert_eq!(corrected, 0);
    let state = std::env::temp_dir().join(format!("skua-samza-{}", std::process::id()));
    let job = Job::start(&mut command("samza", &broker), &state);
    wait_for("all rows", || rows(&broker).0.len() >= expected.len());
    let (found, again) = rows(&broker);
    assert_eq!(again, 0);
    check(&found, &expected);
    drop(job);
    std::fs::remove_dir_all(state).unwrap();
}
