//! Sends what waits for a collector, asks whether it is there, and keeps on disk what it does not get.
//!
//! With a spool a datagram is in one of three places: in the queue; on its way, until an answer says that one that
//! was sent later has arrived; on disk, from when the collector is found gone. While something is on disk that was not
//! sent, all that is new goes behind it, so that the collector gets everything in its order.

use std::{
    collections::VecDeque,
    io::{self, ErrorKind},
    net::{SocketAddr, UdpSocket},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use rustix::{io::Errno, net::RecvFlags};
use skua_collect::greet;
use skua_process::host::unix_ns;
use skua_wire::sflow::{
    self, Counters, Header, Hello, Sample,
    own::{ReportInPlace, report},
};

use crate::export::{
    answers::Answers,
    queue::{BURST, Next, Queue},
    seal::KeyFile,
    spool::Spool,
};

/// After a whole burst there is a pause, so that those of a large drain do not overrun the receiver's queue.
const PAUSE: Duration = Duration::from_millis(1);
/// Datagrams on their way at most, when there is a spool.
const FLYING: usize = 1_024;
/// A datagram that was on its way for so long while the collector answers was lost in the network, which the collector counts.
const LANDED_NS: u64 = 3_000_000_000;
/// The longest wait for the last answer.
const LAST: Duration = Duration::from_secs(1);

/// A datagram on its way.
struct Flying {
    instance: u64,
    sequence: u32,
    sent_ns: u64,
    /// None: it is on disk.
    bytes: Option<Vec<u8>>,
}

/// What there is to send, and to which collector.
pub struct Sender {
    /// Connected.
    pub socket: UdpSocket,
    /// Where the collector has moved to, when it has.
    pub moves: Arc<Mutex<Option<SocketAddr>>>,
    /// What waits.
    pub queue: Arc<Queue>,
    /// The stream's header, with the sequence number of what was sent last.
    pub header: Header,
    /// The agent's run.
    pub instance: u64,
    /// Whether the collector answers.
    pub answers: Answers,
    /// By which datagrams are sealed, and answers known.
    pub keys: Option<KeyFile>,
    /// For a time without the collector.
    pub spool: Option<Spool>,
    /// Datagrams a second out of the spool at most.
    pub rate: u32,
    /// 1 when it has answered.
    pub heard: Arc<AtomicU64>,
}

/// While it runs.
pub struct Sending {
    of: Sender,
    began: Instant,
    flying: VecDeque<Flying>,
    /// Datagrams that may go out of the spool now.
    tokens: f64,
    filled_ns: u64,
    /// Without a spool: datagrams that no answer has confirmed.
    unanswered: u64,
    buffer: Vec<u8>,
    sealed: Vec<u8>,
}

/// What happened to one.
#[derive(PartialEq, Eq)]
enum Sent {
    Yes,
    /// The collector is gone or unreachable: the datagram is to be kept.
    Gone,
    /// It was lost for another reason, which was counted.
    Lost,
}

impl Sender {
    /// Sends until the queue is closed.
    pub fn run(self) {
        Sending {
            of: self,
            began: Instant::now(),
            flying: VecDeque::new(),
            tokens: 0.0,
            filled_ns: 0,
            unanswered: 0,
            buffer: Vec::new(),
            sealed: Vec::new(),
        }
        .run();
    }
}

impl Sending {
    fn now_ns(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn run(&mut self) {
        let queue = self.of.queue.clone();
        let mut batch = Vec::with_capacity(BURST);
        loop {
            self.check_answers();
            if self.flying.len() >= FLYING && !self.of.answers.gone() {
                std::thread::sleep(PAUSE);
                continue;
            }
            match queue.next_batch(&mut batch, self.wait()) {
                Next::Batch => {
                    // Much time may have passed.
                    self.follow();
                    self.pass(&mut batch);
                    if batch.len() == BURST {
                        std::thread::sleep(PAUSE);
                    }
                }
                Next::Nothing => {}
                Next::Closed => break,
            }
            self.catch_up();
        }
        self.finish();
    }

    /// How long nothing may come.
    fn wait(&self) -> Option<Duration> {
        let catches_up = !self.of.answers.gone() && self.unsent();
        let millis = match () {
            () if catches_up => 10,
            () if self.of.answers.waits(self.now_ns()) => 100,
            () if !self.flying.is_empty() => 500,
            () => return None,
        };
        Some(Duration::from_millis(millis))
    }

    /// Whether something on disk was not sent.
    fn unsent(&self) -> bool {
        self.of.spool.as_ref().is_some_and(|spool| !spool.is_read())
    }

    /// Reads answers, and acts on them or on their absence.
    fn check_answers(&mut self) {
        self.follow();
        self.read_answers();
        let now_ns = self.now_ns();
        let was_gone = self.of.answers.gone();
        let step = self.of.answers.next_step(now_ns);
        if step.ask {
            self.ask();
        }
        if step.silent {
            self.of.queue.gone.fetch_add(1, Relaxed);
        }
        if self.of.answers.gone() && !was_gone {
            self.withdraw();
        }
        if !self.of.answers.gone() {
            // A collector that does not answer confirms nothing.
            let sure = !self.of.answers.expects() || !self.of.answers.waits(now_ns);
            let landed = |one: &Flying| now_ns.saturating_sub(one.sent_ns) >= LANDED_NS;
            let count = self.flying.iter().take_while(|one| sure && landed(one));
            let count = count.count();
            self.land(count);
        }
    }

    /// Goes on where the collector has moved to.
    fn follow(&mut self) {
        let moves = &self.of.moves;
        let to = moves.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(to) = to
            && let Err(error) = self.of.socket.connect(to)
        {
            tracing::warn!(%to, %error, "the new address of the collector cannot be reached");
        }
    }

    fn read_answers(&mut self) {
        let mut buffer = [0; 512];
        loop {
            match rustix::net::recv(&self.of.socket, &mut buffer, RecvFlags::DONTWAIT) {
                Ok((length, _)) => self.process_answer(buffer.get(..length).unwrap_or_default()),
                Err(Errno::INTR) => {}
                Err(Errno::CONNREFUSED) => self.refused(),
                Err(_) => return,
            }
        }
    }

    fn process_answer(&mut self, bytes: &[u8]) {
        if let Some(keys) = &self.of.keys
            && keys.get().check(bytes, unix_ns()).is_err()
        {
            return;
        }
        let Some(hello) = answer(bytes) else { return };
        let ours = hello.instance == self.of.instance;
        let flies = |one: &Flying| one.instance == hello.instance;
        // Who does not know the number of the run is a stranger.
        if !ours && !self.flying.iter().any(flies) {
            return;
        }
        self.of.answers.answered();
        self.of.heard.store(self.of.answers.heard().into(), Relaxed);
        if ours {
            let behind = self.of.header.sequence.wrapping_sub(hello.sequence);
            self.unanswered = self.unanswered.min(behind.into());
        }
        let come = |one: &Flying| {
            flies(one) && hello.sequence.wrapping_sub(one.sequence).cast_signed() >= 0
        };
        let count = self
            .flying
            .iter()
            .rposition(come)
            .map_or(0, |last| last + 1);
        self.land(count);
    }

    /// So many of those on their way are there.
    fn land(&mut self, count: usize) {
        let landed = self.flying.drain(..count);
        let of_spool = landed.filter(|one| one.bytes.is_none()).count();
        if let Some(spool) = self.of.spool.as_mut().filter(|_| of_spool > 0) {
            spool.confirm(of_spool);
        }
    }

    /// Asks by a datagram that is nothing else.
    fn ask(&mut self) {
        let front = self.flying.front().map(|one| one.instance);
        let hello = Hello {
            instance: front.unwrap_or(self.of.instance),
            ..Hello::default()
        };
        greet(&mut self.buffer, &self.of.header, &hello);
        let question = std::mem::take(&mut self.buffer);
        if self.put(&question).is_err_and(|error| is_refusal(&error)) {
            // About the one before.
            let _ = self.put(&question);
        }
        self.buffer = question;
    }

    /// Gives a datagram to the kernel, with a seal if there is a key.
    fn put(&mut self, datagram: &[u8]) -> io::Result<usize> {
        let Some(keys) = &self.of.keys else {
            return self.of.socket.send(datagram);
        };
        self.sealed.clear();
        self.sealed.extend_from_slice(datagram);
        keys.get().seal(&mut self.sealed, unix_ns());
        self.of.socket.send(&self.sealed)
    }

    /// A datagram that was sent before was refused.
    fn refused(&mut self) {
        let was_gone = self.of.answers.gone();
        self.of.answers.refused(self.now_ns());
        self.of.queue.gone.fetch_add(1, Relaxed);
        // What goes to one that is gone is counted as not answered, if that is expected.
        if self.of.spool.is_none() && !(was_gone && self.of.answers.expects()) {
            self.of.queue.losses.refused.fetch_add(1, Relaxed);
            self.unsend(1);
            self.unanswered = self.unanswered.saturating_sub(1);
        }
        if !was_gone {
            self.withdraw();
        }
    }

    fn unsend(&self, count: u64) {
        let sent = &self.of.queue.sent;
        sent.fetch_sub(count.min(sent.load(Relaxed)), Relaxed);
    }

    /// The collector is gone: what is on its way goes to disk, or is lost.
    fn withdraw(&mut self) {
        let Some(spool) = &mut self.of.spool else {
            if self.of.answers.expects() {
                let lost = std::mem::take(&mut self.unanswered);
                self.of.queue.losses.unanswered.fetch_add(lost, Relaxed);
                self.unsend(lost);
            }
            return;
        };
        spool.rewind();
        let mut count = 0;
        for one in self.flying.drain(..) {
            count += 1;
            if let Some(bytes) = one.bytes {
                spool.append(&bytes);
            }
        }
        self.unsend(count);
    }

    /// Sends a batch of the queue, or keeps it on disk.
    fn pass(&mut self, batch: &mut [Vec<u8>]) {
        let count = batch.len();
        for (number, datagram) in batch.iter_mut().enumerate() {
            let keeps = self.of.spool.is_some() && (self.of.answers.gone() || self.unsent());
            let sent = match keeps {
                true => Sent::Gone,
                false => self.send(datagram, number + 1 == count),
            };
            match (sent, &mut self.of.spool) {
                (Sent::Gone, Some(spool)) => spool.append(datagram),
                (Sent::Yes, Some(_)) => self.flies(datagram, Some(datagram.clone())),
                _ => {}
            }
        }
    }

    /// Remembers a datagram that is on its way.
    fn flies(&mut self, datagram: &[u8], bytes: Option<Vec<u8>>) {
        let (instance, sequence) = identity(datagram);
        self.flying.push_back(Flying {
            instance,
            sequence,
            sent_ns: self.now_ns(),
            bytes,
        });
    }

    /// Sends what is on disk, as fast as is allowed.
    fn catch_up(&mut self) {
        let now_ns = self.now_ns();
        let passed = now_ns.saturating_sub(self.filled_ns) as f64 / 1e9;
        self.filled_ns = now_ns;
        let rate = f64::from(self.of.rate);
        // What was not used for a tenth of a second is gone.
        self.tokens = (self.tokens + passed * rate).min((rate / 10.0).max(1.0));
        let room = FLYING.saturating_sub(self.flying.len()).min(BURST);
        let count = (self.tokens as usize).min(room);
        for number in 0..count {
            if self.of.answers.gone() {
                return;
            }
            let spool = self.of.spool.as_mut();
            let Some(mut datagram) = spool.and_then(Spool::next) else {
                return;
            };
            if let Some(mut place) = ReportInPlace::of(&mut datagram) {
                place.kept_until(unix_ns());
            }
            self.tokens -= 1.0;
            let asks = number + 1 == count || !self.unsent();
            match self.send(&mut datagram, asks) {
                // It stays where it was.
                Sent::Gone => {
                    if let Some(spool) = &mut self.of.spool {
                        spool.rewind();
                    }
                    return;
                }
                Sent::Yes | Sent::Lost => self.flies(&datagram, None),
            }
        }
    }

    /// Sends one now.
    fn send(&mut self, datagram: &mut [u8], asks: bool) -> Sent {
        if asks && let Some(mut place) = ReportInPlace::of(datagram) {
            place.set(report::ASKS);
            let now_ns = self.now_ns();
            self.of.answers.asked(now_ns);
        }
        let (instance, sequence) = identity(datagram);
        if instance == self.of.instance {
            self.of.header.sequence = sequence;
        }
        let mut sent = self.put(datagram);
        if sent.as_ref().is_err_and(is_refusal) {
            // That is about one that was sent before; this one was not sent yet.
            self.refused();
            if self.of.spool.is_some() {
                return Sent::Gone;
            }
            sent = self.put(datagram);
        }
        match sent {
            Ok(_)
                if self.of.spool.is_none()
                    && self.of.answers.gone()
                    && self.of.answers.expects() =>
            {
                self.of.queue.losses.unanswered.fetch_add(1, Relaxed);
                Sent::Yes
            }
            Ok(_) => {
                self.of.queue.sent.fetch_add(1, Relaxed);
                self.unanswered += 1;
                Sent::Yes
            }
            Err(error) => self.failed(&error),
        }
    }

    fn failed(&mut self, error: &io::Error) -> Sent {
        use ErrorKind::{
            ConnectionRefused, HostUnreachable, NetworkDown, NetworkUnreachable, PermissionDenied,
            WouldBlock,
        };
        let unreachable = matches!(
            error.kind(),
            ConnectionRefused
                | HostUnreachable
                | NetworkUnreachable
                | NetworkDown
                | PermissionDenied
        );
        if unreachable && self.of.spool.is_some() {
            self.refused();
            return Sent::Gone;
        }
        let losses = &self.of.queue.losses;
        let cause = match error.kind() {
            ConnectionRefused => &losses.refused,
            WouldBlock => &losses.would_block,
            HostUnreachable | NetworkUnreachable => &losses.unreachable,
            _ => {
                tracing::debug!(%error, "cannot export to a collector");
                &losses.failed
            }
        };
        cause.fetch_add(1, Relaxed);
        Sent::Lost
    }

    /// Nothing more comes: what has not arrived is kept.
    fn finish(&mut self) {
        if self.of.spool.is_some() && self.of.answers.expects() {
            let end = Instant::now() + LAST;
            while !self.flying.is_empty() && !self.of.answers.gone() && Instant::now() < end {
                self.check_answers();
                std::thread::sleep(PAUSE);
            }
            self.withdraw();
        }
    }
}

fn is_refusal(error: &io::Error) -> bool {
    error.kind() == ErrorKind::ConnectionRefused
}

/// The run of the agent that has written a datagram, and its number.
fn identity(datagram: &[u8]) -> (u64, u32) {
    let Ok(read) = sflow::decode(datagram) else {
        return (0, 0);
    };
    let instance = match first(&read) {
        Some(Counters::Agent(report)) => report.instance,
        _ => 0,
    };
    (instance, read.header.sequence)
}

fn first(datagram: &sflow::Datagram<'_>) -> Option<Counters> {
    match datagram.samples().next()?.ok()? {
        Sample::Counters(sample) => sample.records().next()?.ok(),
        _ => None,
    }
}

fn answer(bytes: &[u8]) -> Option<Hello> {
    match first(&sflow::decode(bytes).ok()?)? {
        Counters::Hello(hello) => Some(hello).filter(|hello| hello.answers),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
