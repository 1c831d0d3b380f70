//! Known sockets: what the last poll saw, their owners, when they began.

use crate::account::{self, Before, Certainty};
use crate::record::Record;
use skua_socket::{End, Opener, Protocol, SocketState, SocketUpdate, Task, TaskRule, TcpMetrics};
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

/// Most sockets that are kept between polls.
const MAX_SOCKETS: usize = 1 << 19;
/// Most sockets that are remembered as vanished before the kernel has reported their end.
const MAX_VANISHED: usize = 1 << 16;
/// In how many polls a socket may be missing until it counts as vanished. Its end may be on the way: the
/// kernel sends it from a work queue.
const GRACE_POLLS: u32 = 1;

/// A socket: network namespace and cookie. Before Linux 5.10 cookies are of a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    netns: u32,
    cookie: u64,
}

#[derive(Debug)]
struct KnownSocket {
    record: Record,
    task: Task,
    rule: TaskRule,
    opener: Opener,
    /// The opener is sure.
    settled: bool,
    /// How often the socket connected again.
    generation: u16,
    start_ns: u64,
    established_ns: u64,
    /// Time of the poll that saw it last.
    seen_ns: u64,
    /// Number of that poll.
    poll: u32,
}

/// A listening socket's place: namespace, address (unspecified: all) and port.
type ListenerKey = (u32, IpAddr, u16);

/// The table.
#[derive(Debug, Default)]
pub(crate) struct Table {
    sockets: HashMap<Key, KnownSocket>,
    /// Owners of listening sockets.
    listeners: HashMap<ListenerKey, Task>,
    /// Sockets that were reported as vanished and whose end the kernel may still report.
    vanished: HashSet<Key>,
    /// Cookies are unique on the host.
    host_cookies: bool,
    poll: u32,
    poll_ns: u64,
    /// Time of the previous poll; 0: this is the first.
    before_ns: u64,
    table_full: u64,
    unrecorded: u64,
}

impl Table {
    /// Starts a poll.
    pub fn begin(&mut self, now_ns: u64) {
        self.poll = self.poll.wrapping_add(1);
        self.before_ns = self.poll_ns;
        self.poll_ns = now_ns;
    }

    /// Adds a socket that the poll has seen. An earlier connection of the same socket has ended: it is
    /// given to `sink`.
    pub fn observe(&mut self, netns: u32, record: &Record, sink: &mut dyn FnMut(&SocketUpdate)) {
        self.host_cookies |= record.cookie_of_host;
        let key = Key {
            netns,
            cookie: record.cookie,
        };
        let (poll, now_ns) = (self.poll, self.poll_ns);
        let mut generation = 0;
        if let Some(known) = self.sockets.get_mut(&key) {
            if known.poll == poll {
                // Changes during a dump make the kernel list some twice.
                return;
            }
            if known.is_same_connection(record) {
                known.refresh(record, poll, now_ns, self.before_ns);
                return;
            }
            // What was never connected is not ended by connecting it.
            if known.record.remote.port() != 0 {
                sink(&known.update(key, self.host_cookies, known.seen_ns, Some(End::Vanished)));
                generation = known.generation.wrapping_add(1);
            }
        } else if self.sockets.len() >= MAX_SOCKETS {
            self.table_full += 1;
            return;
        }
        let mut known = KnownSocket::new(record, generation, poll, now_ns);
        if self.before_ns != 0 {
            known.start_ns = began(record, now_ns, self.before_ns);
        }
        known.refresh(record, poll, now_ns, self.before_ns);
        self.sockets.insert(key, known);
    }

    /// Inodes of the sockets that the poll has seen.
    pub fn inodes(&self) -> HashSet<u32> {
        let seen = self
            .sockets
            .values()
            .filter(|known| known.poll == self.poll);
        seen.map(|known| known.record.inode)
            .filter(|inode| *inode != 0)
            .collect()
    }

    /// Ends a poll: gives every open socket to `sink`, and those that have vanished. `holder` gives an
    /// inode's owner; `complete` the namespaces of which all sockets were seen.
    pub fn finish<'a>(
        &mut self,
        holder: &dyn Fn(u32) -> Option<&'a Task>,
        complete: &dyn Fn(u32) -> bool,
        sink: &mut dyn FnMut(&SocketUpdate),
    ) {
        self.listeners.clear();
        for (key, known) in &mut self.sockets {
            if known.poll == self.poll {
                known.own(holder);
                if known.record.state == SocketState::Listen {
                    let local = known.record.local;
                    let place = (key.netns, local.ip(), local.port());
                    let task = self.listeners.entry(place).or_insert(known.task);
                    // Several listen there (SO_REUSEPORT): the last that started, as with files.
                    if known.task.start_ns > task.start_ns {
                        *task = known.task;
                    }
                }
            }
        }
        let (poll, host_cookies) = (self.poll, self.host_cookies);
        let (listeners, vanished) = (&self.listeners, &mut self.vanished);
        self.sockets.retain(|key, known| {
            if known.poll == poll {
                known.come_in(key.netns, listeners);
                sink(&known.update(*key, host_cookies, known.seen_ns, None));
                return true;
            }
            if !complete(key.netns) || poll.wrapping_sub(known.poll) <= GRACE_POLLS {
                // Still among the open ones, as last seen.
                sink(&known.update(*key, host_cookies, known.seen_ns, None));
                return true;
            }
            sink(&known.update(*key, host_cookies, known.seen_ns, Some(End::Vanished)));
            if vanished.len() < MAX_VANISHED {
                vanished.insert(*key);
            }
            false
        });
    }

    /// A socket was destroyed.
    pub fn destroyed(
        &mut self,
        netns: u32,
        syn_retries: u8,
        record: &Record,
        now_ns: u64,
        sink: &mut dyn FnMut(&SocketUpdate),
    ) {
        let key = Key {
            netns,
            cookie: record.cookie,
        };
        if self.vanished.remove(&key) {
            return;
        }
        let known = self.sockets.remove(&key);
        let connected = record.remote.port() != 0;
        let Some(mut known) = known else {
            if record.protocol == Protocol::Tcp && !connected {
                // Either it never connected, or its connection was wiped out (see below): then
                // the kernel has chosen new sequence numbers.
                self.unrecorded += u64::from(record.wqueue != 0);
            } else if record.local.port() != 0 {
                self.short_lived(key, syn_retries, record, now_ns, sink);
            }
            return;
        };
        let is_same = connected && known.is_same_connection(record);
        let Some(info) = record.info.filter(|_| is_same) else {
            // UDP, listening, or wiped out: closing without lingering sends a RST and forgets
            // the connection's numbers, as does dissolving it by connect(AF_UNSPEC).
            let was_connected =
                known.record.protocol == Protocol::Tcp && known.record.remote.port() != 0;
            let end = if was_connected && known.record.state != SocketState::SynSent {
                End::ResetLocal
            } else {
                End::Closed
            };
            sink(&known.update(key, self.host_cookies, now_ns, Some(end)));
            return;
        };
        let before = Before {
            opener: known.opener,
            no_listener: known.listener(netns, &self.listeners).is_none(),
            state: Some(known.record.state),
            syn_retries,
        };
        let ended = account::ended(record, &info, before);
        known.opener = ended.opener;
        if ended.established && known.established_ns == 0 && known.start_ns != 0 {
            known.established_ns = began(record, now_ns, known.start_ns);
        }
        let mut update = known.update(key, self.host_cookies, now_ns, Some(ended.end));
        update.tcp = Some(ended.metrics);
        sink(&update);
    }

    /// A socket that no poll has seen.
    fn short_lived(
        &self,
        key: Key,
        syn_retries: u8,
        record: &Record,
        now_ns: u64,
        sink: &mut dyn FnMut(&SocketUpdate),
    ) {
        let mut known = KnownSocket::new(record, 0, self.poll, now_ns);
        if self.poll_ns != 0 {
            known.start_ns = began(record, now_ns, self.poll_ns);
        }
        if let Some(info) = &record.info {
            known.come_in(key.netns, &self.listeners);
            let before = Before {
                opener: known.opener,
                // `come_in` would have found it.
                no_listener: self.poll != 0,
                state: None,
                syn_retries,
            };
            let ended = account::ended(record, info, before);
            known.opener = ended.opener;
            known.record.state = ended.state;
            if ended.established {
                known.established_ns = known.start_ns;
            } else {
                // It has no time of data: all that is known is that it began after the poll.
                known.start_ns = self.poll_ns;
            }
            let mut update = known.update(key, self.host_cookies, now_ns, Some(ended.end));
            update.tcp = Some(ended.metrics);
            sink(&update);
        } else {
            sink(&known.update(key, self.host_cookies, now_ns, Some(End::Closed)));
        }
    }

    /// Forgets the sockets of namespaces that are no longer watched.
    pub fn keep_namespaces(&mut self, keep: &dyn Fn(u32) -> bool) {
        self.sockets.retain(|key, _| keep(key.netns));
        self.vanished.retain(|key| keep(key.netns));
        self.listeners.retain(|place, _| keep(place.0));
    }

    /// Open sockets that did not fit into the table, once per poll.
    pub fn table_full(&self) -> u64 {
        self.table_full
    }

    /// Connections that are known to have been, without address or numbers.
    pub fn unrecorded(&self) -> u64 {
        self.unrecorded
    }
}

impl KnownSocket {
    fn new(record: &Record, generation: u16, poll: u32, now_ns: u64) -> Self {
        let opener = match record.state {
            SocketState::UdpConnected => Opener::Local,
            _ => Opener::Unknown,
        };
        Self {
            record: *record,
            task: Task {
                uid: record.uid,
                cgroup: record.cgroup,
                ..Task::default()
            },
            rule: TaskRule::Unknown,
            opener,
            settled: false,
            generation,
            start_ns: 0,
            established_ns: 0,
            seen_ns: now_ns,
            poll,
        }
    }

    /// Whether it is still the connection that it was.
    fn is_same_connection(&self, record: &Record) -> bool {
        self.record.remote == record.remote
    }

    fn refresh(&mut self, record: &Record, poll: u32, now_ns: u64, before_ns: u64) {
        let was_attempt = self.record.state == SocketState::SynSent;
        self.record = *record;
        self.seen_ns = now_ns;
        self.poll = poll;
        if record.protocol == Protocol::Tcp && !self.settled {
            let (opener, certainty) = account::opener_of_open(record);
            if opener != Opener::Unknown {
                self.opener = opener;
                self.settled = certainty == Certainty::Exact;
            }
        }
        let is_attempt = matches!(
            record.state,
            SocketState::SynSent | SocketState::SynRecv | SocketState::Listen
        );
        if record.info.is_some() && !is_attempt && self.established_ns == 0 {
            if was_attempt {
                self.established_ns = began(record, now_ns, before_ns.max(self.start_ns));
            } else {
                self.established_ns = self.start_ns;
            }
        }
    }

    /// Finds its owner by the socket's file; one that was found stays when the file is closed.
    fn own<'a>(&mut self, holder: &dyn Fn(u32) -> Option<&'a Task>) {
        let found = (self.record.inode != 0).then(|| holder(self.record.inode));
        if let Some(task) = found.flatten() {
            self.task = *task;
            self.rule = TaskRule::File;
        }
    }

    /// What follows from the listening socket at its local address: it came in by it, and belongs
    /// to its owner until someone accepts it.
    fn come_in(&mut self, netns: u32, listeners: &HashMap<ListenerKey, Task>) {
        if self.record.info.is_none()
            || matches!(
                self.record.state,
                SocketState::Listen | SocketState::SynSent
            )
        {
            return;
        }
        let Some(task) = self.listener(netns, listeners) else {
            return;
        };
        if self.opener == Opener::Unknown {
            self.opener = Opener::Remote;
        }
        // Without an inode no process has accepted it, or none has it any more.
        if self.rule == TaskRule::Unknown
            && self.opener == Opener::Remote
            && self.record.inode == 0
            && task.pid != 0
        {
            self.task = *task;
            self.rule = TaskRule::Listener;
        }
    }

    /// Owner of the listening socket at its local address.
    fn listener<'a>(
        &self,
        netns: u32,
        listeners: &'a HashMap<ListenerKey, Task>,
    ) -> Option<&'a Task> {
        let local = self.record.local;
        let any = [
            local.ip(),
            IpAddr::from([0_u8; 4]),
            IpAddr::from([0_u16; 8]),
        ];
        any.iter()
            .find_map(|address| listeners.get(&(netns, *address, local.port())))
    }

    fn tcp(&self) -> Option<TcpMetrics> {
        account::metrics_of_open(&self.record, self.opener)
    }

    fn update(&self, key: Key, host_cookies: bool, now_ns: u64, end: Option<End>) -> SocketUpdate {
        let record = &self.record;
        let is_tcp = record.protocol == Protocol::Tcp;
        let is_listening = record.state == SocketState::Listen;
        SocketUpdate {
            id: key.id(host_cookies, self.generation),
            protocol: record.protocol,
            state: record.state,
            netns: key.netns,
            local: record.local,
            remote: (record.remote.port() != 0).then_some(record.remote),
            opener: self.opener,
            task: self.task,
            task_rule: self.rule,
            start_ns: self.start_ns,
            established_ns: self.established_ns,
            now_ns,
            end,
            tcp: self.tcp().filter(|_| is_tcp),
            backlog: (is_tcp && is_listening).then_some((record.rqueue, record.wqueue)),
        }
    }
}

impl Key {
    /// An id for the connection that no other on this host gets: the cookie where that is enough.
    fn id(self, host_cookies: bool, generation: u16) -> u64 {
        // Cookies count up from 1 (and, in interrupts, down from 2⁶⁴): what is mixed into their
        // upper bits does not make two alike.
        let netns = if host_cookies {
            0
        } else {
            // Inodes of namespaces are given out from 0xf0000000 on.
            u64::from(self.netns & 0x0fff_ffff) << 36
        };
        self.cookie ^ netns ^ u64::from(generation) << 48
    }
}

/// Latest possible begin of a connection that did not exist at `earliest`: when it last had data, or was
/// established.
fn began(record: &Record, now_ns: u64, earliest: u64) -> u64 {
    let Some(info) = &record.info else {
        return now_ns;
    };
    let quiet_ms = info.last_data_sent_ms.max(info.last_data_recv_ms);
    now_ns
        .saturating_sub(u64::from(quiet_ms) * 1_000_000)
        .clamp(earliest.min(now_ns), now_ns)
}
