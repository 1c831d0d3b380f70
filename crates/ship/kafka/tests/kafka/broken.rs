//! Lines that cannot arrive are counted by cause, and hold nothing up.

use std::net::TcpListener;

use skua_kafka::{Cause, Producer, Target};
use skua_testkit::broker::Broker;

use crate::support::{line, lost, producer, wait_for};

#[test]
#[ignore = "wants a broker: make test-kafka"]
fn a_missing_topic_is_counted_until_someone_makes_it() {
    let broker = Broker::shared();
    // Topics may be new and not known everywhere: the client waits before it believes it.
    let name = format!(
        "kafka://{}/missing?topic.metadata.propagation.max.ms=500&topic.metadata.refresh.interval.ms=1000",
        broker.address()
    );
    let mut one = producer(&name);
    for number in 0..10 {
        one.put(&line(number));
    }
    wait_for("refusal", || lost(&one, Cause::TopicMissing) == 10);
    broker.topic("missing", 1, &[]);
    let mut more = 0;
    wait_for("acknowledgement", || {
        more += 1;
        one.put(&line(100 + more));
        one.acknowledged() > 0
    });
    one.finish();
    let lines = one.acknowledged() + lost(&one, Cause::TopicMissing);
    assert_eq!(lines, 10 + u64::from(more));
    assert_eq!(broker.read("missing").len() as u64, one.acknowledged());
}

#[test]
#[ignore = "wants a broker: make test-kafka"]
fn lines_that_are_too_large_are_counted() {
    let broker = Broker::shared();
    broker.topic("small", 1, &["max.message.bytes=100"]);
    let mut one = producer(&format!("kafka://{}/small", broker.address()));
    for number in 0..5 {
        one.put(&line(number));
    }
    one.finish();
    assert_eq!(
        (one.acknowledged(), one.lost()),
        (0, vec![(Cause::TooLarge, 5)])
    );
    assert_eq!(broker.read("small"), []);
}

#[test]
#[ignore = "waits ten seconds: make test-kafka"]
fn a_queue_that_nobody_empties_has_a_limit() {
    let nobody = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let mut one = producer(&format!(
        "kafka://{nobody}/lines?queue.buffering.max.messages=10"
    ));
    for number in 0..15 {
        one.put(&line(number));
    }
    one.finish();
    assert_eq!(one.acknowledged(), 0);
    assert_eq!(one.lost(), [(Cause::QueueFull, 5), (Cause::NotSent, 10)]);
}

#[test]
fn properties_that_there_are_not_are_said_without_their_values() {
    let target: Target = "kafka://one/lines?fast.as.possible=secret".parse().unwrap();
    let Err(error) = Producer::open(&target) else {
        panic!("it is taken");
    };
    let error = error.to_string();
    assert!(
        error.contains("fast.as.possible") && !error.contains("secret"),
        "{error}"
    );
}
