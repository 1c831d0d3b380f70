//! Datagrams that wait to be sent, and who sends them.

use std::{
    collections::VecDeque,
    io::ErrorKind,
    net::UdpSocket,
    sync::{
        Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use skua_collect::Offered;

/// Datagrams that are sent at once; then there is a pause, so that those of a large drain do not
/// overrun the receiver's queue.
const BURST: usize = 32;
const PAUSE: Duration = Duration::from_millis(1);

/// Why datagrams did not get away.
#[derive(Debug, Default)]
pub struct Losses {
    /// The queue was full.
    pub queue_full: AtomicU64,
    /// Nobody was there (ICMP port unreachable).
    pub refused: AtomicU64,
    /// There was no way to the host, or it did not answer (ARP, ICMP host or network unreachable).
    pub unreachable: AtomicU64,
    /// The socket had no room.
    pub would_block: AtomicU64,
    /// Anything else that the kernel said.
    pub failed: AtomicU64,
}

#[derive(Debug, Default)]
struct Datagrams {
    waiting: VecDeque<Vec<u8>>,
    /// Buffers that were sent, to be used again.
    free: Vec<Vec<u8>>,
    closed: bool,
}

/// A queue that has a limit.
#[derive(Debug)]
pub struct Queue {
    datagrams: Mutex<Datagrams>,
    more: Condvar,
    most: usize,
    /// Datagrams that were sent.
    pub sent: AtomicU64,
    /// Those that were not.
    pub losses: Losses,
}

impl Queue {
    /// Room for so many datagrams.
    pub fn new(most: usize) -> Self {
        Self {
            datagrams: Mutex::default(),
            more: Condvar::new(),
            most,
            sent: AtomicU64::new(0),
            losses: Losses::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Datagrams> {
        // Nothing panics half-way through a change.
        self.datagrams
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts one in, if there is room.
    pub fn offer(&self, bytes: &[u8]) -> Offered {
        let mut datagrams = self.lock();
        if datagrams.waiting.len() >= self.most {
            self.losses.queue_full.fetch_add(1, Relaxed);
            return Offered::Refused;
        }
        let mut buffer = datagrams.free.pop().unwrap_or_default();
        buffer.clear();
        buffer.extend_from_slice(bytes);
        datagrams.waiting.push_back(buffer);
        drop(datagrams);
        self.more.notify_one();
        Offered::Taken
    }

    /// Times that nobody was there.
    pub fn refusals(&self) -> u64 {
        self.losses.refused.load(Relaxed) + self.losses.unreachable.load(Relaxed)
    }

    /// Datagrams that wait.
    pub fn waiting(&self) -> usize {
        self.lock().waiting.len()
    }

    /// Nothing more comes: [`send`](Self::send) returns when all is sent.
    pub fn close(&self) {
        self.lock().closed = true;
        self.more.notify_one();
    }

    /// Sends what comes until the queue is closed.
    pub fn send(&self, socket: &UdpSocket) {
        let mut batch = Vec::with_capacity(BURST);
        loop {
            {
                let mut datagrams = self.lock();
                datagrams.free.append(&mut batch);
                while datagrams.waiting.is_empty() {
                    if datagrams.closed {
                        return;
                    }
                    // A burst's buffers need not be kept until the next one.
                    datagrams.free.truncate(BURST);
                    datagrams.free.shrink_to_fit();
                    datagrams.waiting.shrink_to(BURST);
                    datagrams = self
                        .more
                        .wait(datagrams)
                        .unwrap_or_else(PoisonError::into_inner);
                }
                let count = datagrams.waiting.len().min(BURST);
                batch.extend(datagrams.waiting.drain(..count));
            }
            for datagram in &batch {
                self.send_one(socket, datagram);
            }
            if batch.len() == BURST {
                std::thread::sleep(PAUSE);
            }
        }
    }

    fn send_one(&self, socket: &UdpSocket, datagram: &[u8]) {
        let mut sent = socket.send(datagram);
        if sent
            .as_ref()
            .is_err_and(|e| e.kind() == ErrorKind::ConnectionRefused)
        {
            // That is about one that was sent before; this one was not sent yet.
            self.losses.refused.fetch_add(1, Relaxed);
            self.sent
                .fetch_sub(u64::from(self.sent.load(Relaxed) > 0), Relaxed);
            sent = socket.send(datagram);
        }
        let cause = match sent {
            Ok(_) => &self.sent,
            Err(error) => match error.kind() {
                ErrorKind::ConnectionRefused => &self.losses.refused,
                ErrorKind::WouldBlock => &self.losses.would_block,
                ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => {
                    &self.losses.unreachable
                }
                _ => {
                    tracing::debug!(%error, "a collector cannot be told");
                    &self.losses.failed
                }
            },
        };
        cause.fetch_add(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_finds_no_room_is_counted_and_the_rest_is_sent() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(receiver.local_addr().unwrap()).unwrap();
        let queue = Queue::new(2);
        let offered = [b"one", b"two", b"six"].map(|bytes| queue.offer(bytes));
        assert_eq!(offered, [Offered::Taken, Offered::Taken, Offered::Refused]);
        assert_eq!(queue.waiting(), 2);
        queue.close();
        queue.send(&socket);
        let mut buffer = [0; 8];
        for expected in [b"one", b"two"] {
            let length = receiver.recv(&mut buffer).unwrap();
            assert_eq!(&buffer[..length], expected);
        }
        assert_eq!(queue.sent.load(Relaxed), 2);
        assert_eq!(queue.losses.queue_full.load(Relaxed), 1);
    }

    #[test]
    fn refusals_are_counted() {
        let nobody = UdpSocket::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(nobody).unwrap();
        let queue = Queue::new(8);
        for _ in 0..3 {
            assert_eq!(queue.offer(b"lost"), Offered::Taken);
        }
        queue.close();
        queue.send(&socket);
        // The answer to the last is not waited for.
        assert!(queue.losses.refused.load(Relaxed) >= 2);
        assert!(queue.sent.load(Relaxed) <= 1);
    }
}
