//! Rules of nftables, as the command `nft` prints them.
//!
//! The kernel announces that rules have changed (NFNLGRP_NFTABLES); only `nft` prints them in the known
//! syntax.

use super::{
    Common,
    place::{self, Space},
    worker::Source,
};
use crate::counters;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use skua_kernel::next_tick;
use skua_link::{Monitor, Namespace, Protocol};
use skua_topology::Value;
use std::{
    collections::{HashMap, HashSet},
    io::{self, Read as _},
    os::fd::{AsFd as _, BorrowedFd},
    process::{Child, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

/// Key of nodes of namespaces.
pub(super) const KEY: &str = "Nftables";
/// Longest text in a node, bytes; longer ones are cut.
const MOST_TEXT: usize = 256 << 10;
/// Namespaces that are followed at most.
const MOST: usize = 4_096;
/// Room for notifications: that there are any is all that matters.
const QUEUE: usize = 64 << 10;
const READ_AT_ONCE: usize = 1_024;
/// NFNLGRP_NFTABLES of linux/netfilter/nfnetlink.h.
const GROUP: u32 = 7;
/// Rules change in bursts, and reading long ones takes a while.
const PAUSE: Duration = Duration::from_millis(200);
const SHARE: u32 = 20;
/// Longest that `nft` may take.
const PATIENCE: Duration = Duration::from_secs(5);
const CUT: &str = "\n# cut here\n";

struct Followed {
    node: Arc<str>,
    monitor: Monitor,
    /// Whether rules may be other ones than those that are shown.
    changed: bool,
    has_rules: bool,
}

/// Follows rules.
pub(super) struct Rules {
    common: Common,
    followed: HashMap<u64, Followed>,
    /// Namespaces that could not be followed.
    refused: HashSet<u64>,
    missing: bool,
    next: Option<Instant>,
    earliest: Instant,
}

impl Rules {
    pub fn new(common: Common) -> Self {
        let now = Instant::now();
        Self {
            common,
            followed: HashMap::new(),
            refused: HashSet::new(),
            missing: false,
            next: None,
            earliest: now,
        }
    }

    /// Follows the present namespaces. One that has ended must not be kept alive.
    fn find(&mut self) -> HashMap<u64, Space> {
        let spaces = place::spaces(&self.common.graph, &self.common.host);
        self.followed.retain(|inode, followed| {
            spaces
                .get(inode)
                .is_some_and(|space| space.node == followed.node)
        });
        self.refused.retain(|inode| spaces.contains_key(inode));
        for (inode, space) in &spaces {
            if self.followed.contains_key(inode) || self.refused.contains(inode) {
                continue;
            }
            let Some(namespace) = space.open() else {
                continue;
            };
            if self.followed.len() >= MOST {
                self.refused.insert(*inode);
                counters::add(&self.common.counters.omitted_entries, 1);
                continue;
            }
            match Monitor::open_in(Protocol::Netfilter, &[GROUP], QUEUE, &namespace) {
                Ok(monitor) => {
                    let followed = Followed {
                        node: space.node.clone(),
                        monitor,
                        changed: true,
                        has_rules: false,
                    };
                    self.followed.insert(*inode, followed);
                }
                Err(error) => {
                    tracing::debug!(%error, "no rules of nftables from this namespace");
                    counters::add(&self.common.counters.rulesets_failed, 1);
                    self.refused.insert(*inode);
                }
            }
        }
        spaces
    }

    /// Whether there are rules that could not be read yet.
    fn waits(&self) -> bool {
        !self.missing && self.followed.values().any(|followed| followed.changed)
    }

    fn refresh(&mut self) {
        let spaces = self.find();
        for (inode, followed) in &mut self.followed {
            let mut events_read = 0;
            let read = followed.monitor.read(READ_AT_ONCE, |_| events_read += 1);
            counters::add(&self.common.counters.events, events_read);
            followed.changed |= events_read > 0 || read.is_err();
            if !followed.changed || self.missing {
                continue;
            }
            let Some(namespace) = spaces.get(inode).and_then(Space::open) else {
                continue;
            };
            match ruleset(&namespace) {
                Ok(text) => {
                    followed.changed = false;
                    followed.has_rules = !text.is_empty();
                    let value = followed.has_rules.then(|| Value::from(text.as_str()));
                    let Common {
                        graph, counters, ..
                    } = &self.common;
                    place::show(graph, counters, &followed.node, KEY, value);
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    tracing::warn!("rules of nftables are not shown: there is no command `nft`");
                    counters::add(&self.common.counters.rulesets_failed, 1);
                    self.missing = true;
                    // It may be there after the next start; what an earlier run left may be wrong.
                    let Common {
                        graph,
                        counters,
                        host,
                        ..
                    } = &self.common;
                    place::clear(graph, counters, host, KEY);
                }
                Err(error) => {
                    // With the next change, or the next interval.
                    tracing::debug!(%error, "rules of nftables cannot be read");
                    counters::add(&self.common.counters.rulesets_failed, 1);
                }
            }
        }
        let with_rules = self.followed.values().filter(|f| f.has_rules).count();
        counters::set(&self.common.counters.rulesets, with_rules);
    }
}

/// What `nft` prints of the rules in a namespace, without the state of counters and sets, which change
/// all the time.
fn ruleset(namespace: &Namespace) -> io::Result<String> {
    let spawned = namespace.enter(|| {
        Command::new("nft")
            .args(["--stateless", "list", "ruleset"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
    });
    let mut child = spawned.map_err(|error| io::Error::other(error.to_string()))??;
    let read = output(&mut child);
    let complete = matches!(&read, Ok((_, true)));
    if !complete {
        let _ = child.kill();
    }
    let status = child.wait()?;
    let (bytes, complete) = read?;
    if complete && !status.success() {
        return Err(io::Error::other(format!("nft: {status}")));
    }
    let mut text = String::from_utf8_lossy(&bytes).into_owned();
    if !complete {
        text += CUT;
    }
    Ok(text)
}

/// A command's output up to the limit, and whether that was all.
fn output(child: &mut Child) -> io::Result<(Vec<u8>, bool)> {
    let Some(out) = &mut child.stdout else {
        return Ok((Vec::new(), true));
    };
    let end = Instant::now() + PATIENCE;
    let mut text = Vec::new();
    let mut buffer = vec![0; 16 << 10];
    loop {
        let rest = end.saturating_duration_since(Instant::now());
        let timeout = Timespec {
            tv_sec: rest.as_secs() as i64,
            tv_nsec: rest.subsec_nanos().into(),
        };
        let mut waiting = [PollFd::from_borrowed_fd(out.as_fd(), PollFlags::IN)];
        match poll(&mut waiting, Some(&timeout)) {
            Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
        let got = out.read(&mut buffer)?;
        if got == 0 {
            return Ok((text, true));
        }
        text.extend_from_slice(&buffer[..got]);
        if text.len() > MOST_TEXT {
            text.truncate(MOST_TEXT);
            return Ok((text, false));
        }
    }
}

impl Source for Rules {
    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.followed.values().map(|f| f.monitor.as_fd()).collect()
    }

    fn next(&self) -> Option<Instant> {
        self.next
    }

    fn quiet_until(&self) -> Instant {
        self.earliest
    }

    fn work(&mut self, called: bool) {
        let now = Instant::now();
        if called || self.waits() {
            self.refresh();
        }
        let end = Instant::now();
        self.earliest = end + PAUSE.max((end - now) * SHARE);
        self.next = self.waits().then(|| next_tick(self.common.interval));
    }
}
