//! Classifiers outlive the process that attached them, unlike links. So that they do not outlive a killed
//! process, a second process keeps a list of them and detaches them when the first ends.
//!
//! The second process is the program itself, started with the subcommand [`SUBCOMMAND`] and one end of a
//! socket pair as its standard input. The first process announces each classifier before it attaches it and
//! after it has detached it. When the other end closes, for any reason, the second process detaches the
//! rest.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::process::CommandExt as _,
    },
    process::{Command, Stdio},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use rustix::{
    io::Errno,
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
    },
};

use crate::{
    Direction,
    attach::{detach_clsact, in_namespace},
};

/// The subcommand under which a program that calls [`guard`] must call [`serve`].
pub const SUBCOMMAND: &str = "detach-when-orphaned";

/// What the second process says once it listens.
const READY: &[u8] = b"r";

/// Whether this program has the subcommand.
static GUARDED: AtomicBool = AtomicBool::new(false);

/// The socket to the second process, once there is one; `Err` when there cannot be one.
static GUARD: Mutex<Option<Result<OwnedFd, ()>>> = Mutex::new(None);

/// Has classifiers detached also when this process is killed. The second process starts with the
/// first classifier; where links do the work there is none.
pub fn guard() {
    GUARDED.store(true, Ordering::Release);
}

/// One classifier in some namespace.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Classifier {
    pub ifindex: u32,
    pub direction: Direction,
    /// Which of ours at that place.
    pub handle: u32,
    /// Identifier of its program.
    pub program: u32,
}

/// What is announced about a classifier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Event {
    Attaching,
    Detached,
}

const MESSAGE: usize = 14;

fn encode(event: Event, classifier: Classifier) -> [u8; MESSAGE] {
    let mut message = [0; MESSAGE];
    message[0] = u8::from(event == Event::Detached);
    message[1] = u8::from(classifier.direction == Direction::Egress);
    message[2..6].copy_from_slice(&classifier.ifindex.to_ne_bytes());
    message[6..10].copy_from_slice(&classifier.program.to_ne_bytes());
    message[10..].copy_from_slice(&classifier.handle.to_ne_bytes());
    message
}

fn decode(message: [u8; MESSAGE]) -> (Event, Classifier) {
    let [event, direction, index @ .., p0, p1, p2, p3, h0, h1, h2, h3] = message;
    (
        if event == 0 {
            Event::Attaching
        } else {
            Event::Detached
        },
        Classifier {
            ifindex: u32::from_ne_bytes(index),
            direction: if direction == 0 {
                Direction::Ingress
            } else {
                Direction::Egress
            },
            handle: u32::from_ne_bytes([h0, h1, h2, h3]),
            program: u32::from_ne_bytes([p0, p1, p2, p3]),
        },
    )
}

/// Call this before attaching a classifier: if this process is killed just after, the second process knows
/// of it.
pub(crate) fn attaching(netns: &File, classifier: Classifier) {
    log_event(Event::Attaching, netns, classifier);
}

/// Announces that a classifier was detached.
pub(crate) fn detached(netns: &File, classifier: Classifier) {
    log_event(Event::Detached, netns, classifier);
}

fn log_event(event: Event, netns: &File, classifier: Classifier) {
    if !GUARDED.load(Ordering::Acquire) {
        return;
    }
    let mut guard = GUARD.lock().unwrap_or_else(PoisonError::into_inner);
    let socket = guard.get_or_insert_with(|| start().map_err(complain));
    if let Ok(open) = socket
        && let Err(error) = send(open.as_fd(), event, netns, classifier)
    {
        complain(error);
        *socket = Err(());
    }
}

fn complain(error: io::Error) {
    tracing::warn!(%error, "classifiers will stay on the interfaces should this process be killed");
}

fn start() -> io::Result<OwnedFd> {
    let (ours, theirs) = socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?;
    // Never waited for: it ends after this process, and should it end before, sending fails.
    Command::new("/proc/self/exe")
        .arg0("skua")
        .arg(SUBCOMMAND)
        .current_dir("/")
        .stdin(Stdio::from(theirs))
        .stdout(Stdio::null())
        .spawn()?;
    // Only once it has left our process group is it safe from what may end us.
    let mut ready = [0; READY.len()];
    let read = loop {
        match rustix::io::read(&ours, &mut ready) {
            Err(Errno::INTR) => {}
            other => break other?,
        }
    };
    if ready[..read] != *READY {
        return Err(io::Error::other("the process that would detach them died"));
    }
    Ok(ours)
}

fn send(
    socket: BorrowedFd<'_>,
    event: Event,
    netns: &File,
    classifier: Classifier,
) -> io::Result<()> {
    let descriptors = [netns.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
    let message = encode(event, classifier);
    loop {
        let parts = [IoSlice::new(&message)];
        match sendmsg(socket, &parts, &mut ancillary, SendFlags::NOSIGNAL) {
            Err(Errno::INTR) => {}
            done => return done.map(|_| ()).map_err(io::Error::from),
        }
    }
}

fn receive(socket: BorrowedFd<'_>) -> io::Result<Option<(Event, Classifier, File)>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut message = [0; MESSAGE];
    let bytes = loop {
        let mut parts = [IoSliceMut::new(&mut message)];
        match recvmsg(socket, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            done => break done?.bytes,
        }
    };
    if bytes == 0 {
        return Ok(None);
    }
    let netns = ancillary.drain().find_map(|part| match part {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    match netns {
        Some(netns) if bytes == MESSAGE => {
            let (event, classifier) = decode(message);
            Ok(Some((event, classifier, netns.into())))
        }
        _ => Err(io::Error::other("a message without its namespace")),
    }
}

/// Classifiers of one namespace.
struct NamespaceClassifiers {
    netns: File,
    classifiers: BTreeSet<Classifier>,
}

/// All that are attached, by device and inode of their namespace.
#[derive(Default)]
struct AttachedClassifiers(BTreeMap<(u64, u64), NamespaceClassifiers>);

impl AttachedClassifiers {
    fn note(&mut self, event: Event, classifier: Classifier, netns: File) -> io::Result<()> {
        let stat = rustix::fs::fstat(&netns)?;
        let id = (stat.st_dev, stat.st_ino);
        let namespace = self.0.entry(id).or_insert_with(|| NamespaceClassifiers {
            netns,
            classifiers: BTreeSet::new(),
        });
        match event {
            Event::Attaching => namespace.classifiers.insert(classifier),
            Event::Detached => namespace.classifiers.remove(&classifier),
        };
        // An open file keeps a namespace alive.
        if namespace.classifiers.is_empty() {
            self.0.remove(&id);
        }
        Ok(())
    }
}

/// The second process: listens until the other end of `socket` closes, then detaches the
/// classifiers that are left, and returns how many there were.
pub fn serve(socket: BorrowedFd<'_>) -> io::Result<usize> {
    let mut attached = AttachedClassifiers::default();
    rustix::io::write(socket, READY)?;
    while let Some((event, classifier, netns)) = receive(socket)? {
        attached.note(event, classifier, netns)?;
    }
    let mut count = 0;
    for namespace in attached.0.values() {
        count += namespace.classifiers.len();
        let done = in_namespace(&namespace.netns, || {
            for classifier in &namespace.classifiers {
                if let Err(error) = detach_clsact(*classifier) {
                    tracing::debug!(?classifier, %error, "was detached already");
                }
            }
            Ok(())
        });
        if let Err(error) = done {
            tracing::warn!(%error, "cannot enter a network namespace to detach classifiers");
        }
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .unwrap()
    }

    fn classifier(ifindex: u32, direction: Direction) -> Classifier {
        Classifier {
            ifindex,
            direction,
            handle: 0x0a0b_0c0d,
            program: 0x0102_0304,
        }
    }

    #[test]
    fn a_message_arrives_with_its_namespace() {
        let (one, two) = pair();
        let netns = File::open("/proc/self/ns/net").unwrap();
        let sent = classifier(0x0506_0708, Direction::Egress);
        send(one.as_fd(), Event::Detached, &netns, sent).unwrap();
        drop(one);
        let (event, received, file) = receive(two.as_fd()).unwrap().unwrap();
        assert_eq!((event, received), (Event::Detached, sent));
        let inode = |file: &File| rustix::fs::fstat(file).unwrap().st_ino;
        assert_eq!(inode(&file), inode(&netns));
        assert!(receive(two.as_fd()).unwrap().is_none());
    }

    #[test]
    fn what_was_detached_is_forgotten_and_its_namespace_let_go() {
        let mut attached = AttachedClassifiers::default();
        let mut note = |event, classifier| {
            let netns = File::open("/proc/self/ns/net").unwrap();
            attached.note(event, classifier, netns).unwrap();
            attached
                .0
                .values()
                .map(|r| r.classifiers.len())
                .sum::<usize>()
        };
        let ingress = classifier(2, Direction::Ingress);
        let egress = classifier(2, Direction::Egress);
        assert_eq!(note(Event::Attaching, ingress), 1);
        assert_eq!(note(Event::Attaching, egress), 2);
        assert_eq!(note(Event::Detached, ingress), 1);
        assert_eq!(note(Event::Detached, egress), 0);
        assert!(attached.0.is_empty());
    }

    #[test]
    fn a_message_without_a_namespace_is_refused() {
        let (one, two) = pair();
        rustix::io::write(&one, &[0; MESSAGE]).unwrap();
        assert!(receive(two.as_fd()).is_err());
    }
}
