//! A real collector behind a socket that hides it or lets it answer.

use skua_collect::{Collector, CollectorConfig, Drain, Exporter, ExporterConfig, Offered};
use skua_config::export::Expected;
use std::{net::SocketAddr, path::PathBuf};

use crate::export::{sender::*, spool::Counts};

/// How long a condition may take.
const PATIENCE: Duration = Duration::from_secs(60);

struct Setup {
    queue: Arc<Queue>,
    exporter: Exporter,
    thread: std::thread::JoinHandle<()>,
}

fn start(to: SocketAddr, expected: Expected, spool: Option<Spool>) -> Setup {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(to).unwrap();
    let queue = Arc::new(Queue::new(10_000));
    let config = ExporterConfig {
        agent: [192, 0, 2, 1].into(),
        sub_agent: 0,
        instance: unix_ns(),
        started_ns: unix_ns(),
        datagram: 1_400,
        both_directions: false,
    };
    let sender = Sender {
        socket,
        moves: Arc::default(),
        queue: queue.clone(),
        header: Header {
            agent: config.agent,
            sub_agent: 0,
            sequence: 0,
            uptime_ms: 0,
        },
        instance: config.instance,
        answers: Answers::new(expected),
        keys: None,
        spool,
        rate: 10_000,
        heard: Arc::default(),
    };
    Setup {
        queue,
        exporter: Exporter::new(config),
        thread: std::thread::spawn(move || sender.run()),
    }
}

impl Setup {
    /// A datagram with nothing but the report.
    fn export(&mut self) {
        let queue = &self.queue;
        self.exporter
            .export([].into_iter(), &Drain::at(unix_ns()), |bytes| {
                let offered = queue.offer(bytes);
                assert_eq!(offered, Offered::Queued);
                offered
            });
    }

    fn stop(self) {
        self.queue.close();
        self.thread.join().unwrap();
    }
}

/// Takes what is in a socket, and answers; how many datagrams there were.
fn serve(socket: &UdpSocket, collector: &mut Collector, answers: bool) -> usize {
    let mut buffer = [0; 2_000];
    let mut count = 0;
    socket
        .set_read_timeout(Some(Duration::from_millis(20)))
        .unwrap();
    while let Ok((length, from)) = socket.recv_from(&mut buffer) {
        count += 1;
        let answer = collector.datagram(from.ip(), &buffer[..length], unix_ns());
        if let Some(answer) = answer.filter(|_| answers) {
            socket.send_to(answer, from).unwrap();
        }
    }
    count
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let name = format!("skua-sender-{name}-{}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }

    fn open(&self) -> (Spool, Arc<Counts>) {
        let counts = Arc::<Counts>::default();
        let spool = Spool::open(&self.0, Arc::new(AtomicU64::new(1 << 20)), counts.clone());
        (spool.unwrap(), counts)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_collector_that_falls_silent_gets_all_of_it_later_also_after_a_restart() {
    let scratch = Scratch::new("silent");
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = socket.local_addr().unwrap();
    let mut collector = Collector::new(&CollectorConfig::default());
    let (spool, counts) = scratch.open();
    let mut setup = start(to, Expected::Auto, Some(spool));
    setup.export();
    until("an answer", || {
        serve(&socket, &mut collector, true);
        collector.summary().datagrams > 0
    });
    // Silent, as behind a firewall that drops everything: nobody reads or answers, and no ICMP comes.
    until("what is sent to be kept", || {
        setup.export();
        std::thread::sleep(Duration::from_millis(50));
        counts.kept.load(Relaxed) > 20
    });
    assert!(setup.queue.refusals() > 0);
    let mut hidden = [0; 2_000];
    socket.set_nonblocking(true).unwrap();
    while socket.recv(&mut hidden).is_ok() {}
    socket.set_nonblocking(false).unwrap();
    let exported = setup.exporter.exported().datagrams;
    setup.stop();
    let left = counts.datagrams.load(Relaxed);
    assert!(left > 20, "{left}");
    // The next run sends it before what is its own; the collector is there from the beginning.
    let (spool, counts) = scratch.open();
    assert_eq!(counts.datagrams.load(Relaxed), left);
    let mut setup = start(to, Expected::Always, Some(spool));
    setup.export();
    until("all to be sent", || {
        serve(&socket, &mut collector, true);
        counts.datagrams.load(Relaxed) == 0
    });
    setup.stop();
    serve(&socket, &mut collector, true);
    let summary = collector.summary();
    assert_eq!(summary.lost, Default::default(), "{summary:?}");
    assert!(summary.kept_datagrams >= left, "{summary:?}");
    assert_eq!(summary.agents.len(), 1);
    assert_eq!(summary.agents[0].datagrams, exported + 1, "{summary:?}");
    assert_eq!(summary.agents[0].lost_datagrams, 0);
    // Time on disk is not the clock's.
    assert!(summary.agents[0].clock_ms.abs() < 5_000, "{summary:?}");
}

#[test]
fn a_collector_that_never_answers_is_told_all_the_same() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut collector = Collector::new(&CollectorConfig::default());
    let scratch = Scratch::new("never");
    let (spool, counts) = scratch.open();
    let to = socket.local_addr().unwrap();
    let mut setup = start(to, Expected::Auto, Some(spool));
    let mut count = 0;
    for _ in 0..300 {
        setup.export();
        count += serve(&socket, &mut collector, false);
    }
    until("all of them", || {
        count += serve(&socket, &mut collector, false);
        count == 300
    });
    assert_eq!(counts.kept.load(Relaxed), 0);
    assert_eq!(setup.queue.refusals(), 0);
    setup.stop();
}

#[test]
fn refusals_are_counted_without_a_spool() {
    let nobody = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = nobody.local_addr().unwrap();
    drop(nobody);
    let mut setup = start(to, Expected::Auto, None);
    for _ in 0..3 {
        setup.export();
    }
    let queue = setup.queue.clone();
    setup.stop();
    // The answer to the last is not waited for.
    assert!(queue.refusals() >= 1);
    assert!(queue.sent.load(Relaxed) <= 2);
}

#[test]
fn what_is_refused_is_kept_and_comes_when_somebody_listens() {
    let scratch = Scratch::new("refused");
    let nobody = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = nobody.local_addr().unwrap();
    drop(nobody);
    let (spool, counts) = scratch.open();
    let mut setup = start(to, Expected::Auto, Some(spool));
    until("what is sent to be kept", || {
        setup.export();
        std::thread::sleep(Duration::from_millis(20));
        counts.kept.load(Relaxed) > 20
    });
    let exported = setup.exporter.exported().datagrams;
    let socket = UdpSocket::bind(to).unwrap();
    let mut collector = Collector::new(&CollectorConfig::default());
    until("all to come", || {
        serve(&socket, &mut collector, true);
        let agents = collector.summary().agents;
        agents
            .first()
            .is_some_and(|agent| agent.datagrams >= exported)
            && counts.datagrams.load(Relaxed) == 0
    });
    setup.stop();
    assert_eq!(collector.summary().lost, Default::default());
}
