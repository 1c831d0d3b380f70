//! Lines arrive.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::PermissionsExt as _,
    sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    time::Duration,
};

use skua_kafka::{Cause, LineMessage};
use skua_testkit::broker::Broker;

use crate::support::{line, lost, producer, wait_for};

/// Clients of the lines in a topic, and how often each is there.
fn clients(broker: &Broker, topic: &str) -> BTreeMap<String, u32> {
    let mut clients = BTreeMap::new();
    for message in broker.read(topic) {
        let line = LineMessage::read(&message.payload).unwrap();
        *clients.entry(line.client_address).or_default() += 1;
    }
    clients
}

#[test]
#[ignore = "wants a broker: make test-kafka"]
fn lines_arrive_as_they_were_with_the_service_as_key() {
    let broker = Broker::shared();
    broker.topic("lines", 3, &[]);
    let name = format!("kafka://{}/lines", broker.address());
    let mut one = producer(&name);
    let mut expected = BTreeMap::new();
    for number in 0..1_000 {
        one.put(&line(number));
        let message = LineMessage::of(&line(number)).unwrap();
        let key = format!("6/{}/443", message.server_address);
        expected.insert(message.client_address.clone(), (key, message));
    }
    one.finish();
    assert_eq!((one.acknowledged(), one.lost()), (1_000, vec![]));
    for message in broker.read("lines") {
        let line = LineMessage::read(&message.payload).unwrap();
        let (key, expected) = expected.remove(&line.client_address).unwrap();
        assert_eq!(line, expected);
        assert_eq!(message.key, key.as_bytes());
    }
    assert_eq!(expected.len(), 0);

    // The same topic as JSON.
    let mut other = producer(&format!("{name}?format=json"));
    other.put(&line(5_000));
    other.finish();
    let all = broker.read("lines");
    let wanted = serde_json::to_value(line(5_000)).unwrap();
    let found = all
        .iter()
        .filter_map(|message| serde_json::from_slice::<serde_json::Value>(&message.payload).ok());
    assert_eq!(found.collect::<Vec<_>>(), [wanted]);
}

#[test]
#[ignore = "wants a broker: make test-kafka"]
fn a_killed_broker_loses_and_doubles_nothing() {
    const PART: u32 = 5_000;
    let broker = Broker::start();
    broker.topic("lines", 3, &[]);
    // Nobody is there when it begins.
    broker.kill();
    // Small batches, so that many are under way at each moment.
    let name = format!(
        "kafka://{}/lines?linger.ms=0&batch.num.messages=20&reconnect.backoff.max.ms=500",
        broker.address()
    );
    let mut one = producer(&name);
    let (put, acknowledged) = (AtomicU32::new(0), AtomicU32::new(0));
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Goes on, slowly, until the broker has been killed often enough.
            while !over.load(Relaxed) {
                acknowledged.store(one.acknowledged() as u32, Relaxed);
                // Enough is on its way: a broker may take long to come back.
                if put.load(Relaxed) < acknowledged.load(Relaxed) + 3 * PART {
                    for _ in 0..100 {
                        one.put(&line(put.fetch_add(1, Relaxed)));
                    }
                }
                one.look();
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        let beyond = |count: &AtomicU32, least: u32| {
            wait_for("lines", || count.load(Relaxed) >= least);
        };
        beyond(&put, PART);
        for _ in 0..2 {
            broker.start_again();
            // In the midst of what has waited.
            let so_far = acknowledged.load(Relaxed);
            beyond(&acknowledged, so_far + PART / 2);
            broker.kill();
        }
        broker.start_again();
        over.store(true, Relaxed);
    });
    let lines = put.into_inner();
    wait_for("acknowledgements", || {
        one.acknowledged() == u64::from(lines) || !one.lost().is_empty()
    });
    one.finish();
    assert_eq!((one.acknowledged(), one.lost()), (lines.into(), vec![]));
    let clients = clients(&broker, "lines");
    assert_eq!(clients.len() as u32, lines);
    let often: BTreeSet<_> = clients.into_values().collect();
    assert_eq!(often, [1].into());
}

#[test]
#[ignore = "wants a broker: make test-kafka"]
fn tls_and_passwords() {
    let broker = Broker::shared();
    broker.topic("secret", 1, &[]);
    let file = broker.certificate().with_file_name("properties");
    let ca = broker.certificate();
    let user = |user: &str, password: &str| {
        let properties = format!(
            "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.username={user}\n\
             sasl.password={password}\nssl.ca.location={}\n",
            ca.display()
        );
        fs::write(&file, properties).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        let name = format!(
            "kafka://{}/secret?config={}",
            broker.tls_address(),
            file.display()
        );
        producer(&name)
    };
    let mut skua = user("skua", "skua");
    skua.put(&line(1));
    skua.finish();
    assert_eq!((skua.acknowledged(), skua.lost()), (1, vec![]));

    // One who is known, but may not.
    let mut guest = user("guest", "guest");
    guest.put(&line(2));
    wait_for("refusal", || {
        guest.look();
        lost(&guest, Cause::NotAuthorized) == 1
    });
    guest.finish();

    // One who is not let in: lines wait, and are given up at the end.
    let mut stranger = user("skua", "wrong");
    stranger.put(&line(3));
    stranger.finish();
    assert_eq!(stranger.lost(), [(Cause::NotSent, 1)]);
    assert_eq!(clients(&broker, "secret").len(), 1);
}
