//! A connection to a switch's management socket.

use crate::message::{self, HEADER, Message, Version};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with, sockopt,
};
use std::{
    io::{self, Read as _, Write as _},
    net::Shutdown,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// Error of a connection.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A system call failed.
    #[error("OpenFlow at {}: {action}: {source}", .path.display())]
    Io {
        /// The socket.
        path: PathBuf,
        /// What was being done.
        action: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The switch closed the connection.
    #[error("OpenFlow at {}: the switch closed the connection", .0.display())]
    Closed(PathBuf),
    /// The switch sent what no switch should.
    #[error("OpenFlow at {}: the switch breaks the protocol", .0.display())]
    Protocol(PathBuf),
    /// There is no common version.
    #[error(
        "OpenFlow at {}: the switch speaks neither OpenFlow 1.3 nor 1.4; \
         `ovs-vsctl add bridge NAME protocols OpenFlow14` lets it", .0.display()
    )]
    Version(PathBuf),
    /// The switch did not answer.
    #[error("OpenFlow at {}: no answer within {} s", .path.display(), .patience.as_secs())]
    Timeout {
        /// The socket.
        path: PathBuf,
        /// For how long was waited.
        patience: Duration,
    },
}

/// A connection that only reads what the switch has.
pub struct Connection {
    stream: UnixStream,
    path: PathBuf,
    version: Version,
    /// What was received; of this, what was used.
    buffer: Vec<u8>,
    used: usize,
    next_id: u32,
    patience: Duration,
    /// What has to be answered until when.
    awaited: Option<Instant>,
}

/// Bytes that are read at a time.
const CHUNK: usize = 64 << 10;

impl Connection {
    /// Connects and agrees on a version. The switch may take `patience` for each answer.
    pub fn open(path: &Path, patience: Duration) -> Result<Self, Error> {
        let failed = |action| {
            move |source: io::Error| Error::Io {
                path: path.to_owned(),
                action,
                source,
            }
        };
        // std's own connect waits for as long as the queue of the switch is full.
        let open = || -> io::Result<UnixStream> {
            let address = SocketAddrUnix::new(path)?;
            let fd = socket_with(
                AddressFamily::UNIX,
                SocketType::STREAM,
                SocketFlags::CLOEXEC,
                None,
            )?;
            sockopt::set_socket_timeout(&fd, sockopt::Timeout::Send, Some(patience))?;
            connect(&fd, &address)?;
            Ok(UnixStream::from(fd))
        };
        let mut connection = Self {
            stream: open().map_err(failed("connecting"))?,
            path: path.to_owned(),
            version: Version::V14,
            buffer: Vec::new(),
            used: 0,
            next_id: 2,
            patience,
            awaited: Some(Instant::now() + patience),
        };
        connection.send(&message::greeting())?;
        loop {
            match connection.next(patience)? {
                Some(Message::Hello(Some(version))) => {
                    connection.version = version;
                    connection.awaited = None;
                    return Ok(connection);
                }
                Some(Message::Hello(None) | Message::Refused(..)) => {
                    return Err(Error::Version(connection.path));
                }
                _ => {}
            }
        }
    }

    /// The version that both speak.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Ends the connection for whoever waits in [`Connection::next`].
    pub fn closer(&self) -> io::Result<impl Fn() + Send + 'static + use<>> {
        let stream = self.stream.try_clone()?;
        Ok(move || {
            let _ = stream.shutdown(Shutdown::Both);
        })
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.stream.write_all(bytes).map_err(|source| Error::Io {
            path: self.path.clone(),
            action: "sending",
            source,
        })
    }

    fn request(&mut self, make: fn(Version, u32) -> Vec<u8>) -> Result<(), Error> {
        self.next_id = self.next_id.wrapping_add(1).max(2);
        self.awaited = Some(Instant::now() + self.patience);
        self.send(&make(self.version, self.next_id))
    }

    /// Requests all rules.
    pub fn request_rules(&mut self) -> Result<(), Error> {
        self.request(message::rules)
    }

    /// Requests changes of rules from now on; the switch cannot do it before OpenFlow 1.4.
    pub fn follow_rules(&mut self) -> Result<bool, Error> {
        let can = self.version >= Version::V14;
        if can {
            self.request(message::monitor)?;
        }
        Ok(can)
    }

    /// Requests all groups.
    pub fn request_groups(&mut self) -> Result<(), Error> {
        self.request(message::groups)
    }

    /// Requests the counters of all groups.
    pub fn request_group_counters(&mut self) -> Result<(), Error> {
        self.request(message::group_counters)
    }

    /// Asks whether the switch is still there.
    pub fn probe(&mut self) -> Result<(), Error> {
        self.request(message::echo)
    }

    /// The next message; none when none comes in time.
    pub fn next(&mut self, patience: Duration) -> Result<Option<Message>, Error> {
        let end = Instant::now() + patience;
        loop {
            if let Some(message) = self.buffered()? {
                self.awaited = None;
                match message {
                    Message::Echo(answer) => self.send(&answer)?,
                    Message::Broken => return Err(Error::Protocol(self.path.clone())),
                    message => return Ok(Some(message)),
                }
                continue;
            }
            let now = Instant::now();
            if self.awaited.is_some_and(|until| now >= until) {
                return Err(Error::Timeout {
                    path: self.path.clone(),
                    patience: self.patience,
                });
            }
            let until = self.awaited.map_or(end, |until| until.min(end));
            let left = until.saturating_duration_since(now);
            if left.is_zero() {
                return Ok(None);
            }
            self.receive(left)?;
        }
    }

    fn buffered(&mut self) -> Result<Option<Message>, Error> {
        let bytes = self.buffer.get(self.used..).unwrap_or_default();
        let Some(length) = message::length(bytes) else {
            return Ok(None);
        };
        if length < HEADER {
            return Err(Error::Protocol(self.path.clone()));
        }
        let Some(bytes) = bytes.get(..length) else {
            return Ok(None);
        };
        let message = message::read(bytes, self.version);
        self.used += length;
        Ok(Some(message))
    }

    fn receive(&mut self, patience: Duration) -> Result<(), Error> {
        let failed = |action| {
            let path = self.path.clone();
            move |source| Error::Io {
                path,
                action,
                source,
            }
        };
        let timeout = self.stream.set_read_timeout(Some(patience));
        timeout.map_err(failed("setting up"))?;
        self.buffer.drain(..self.used);
        self.used = 0;
        let there = self.buffer.len();
        self.buffer.resize(there + CHUNK, 0);
        let read = self
            .stream
            .read(self.buffer.get_mut(there..).unwrap_or_default());
        self.buffer
            .truncate(there + read.as_ref().map_or(0, |read| *read));
        match read {
            Ok(0) => Err(Error::Closed(self.path.clone())),
            Ok(_) => Ok(()),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock
                | io::ErrorKind::TimedOut
                | io::ErrorKind::Interrupted => Ok(()),
                _ => Err(failed("reading")(error)),
            },
        }
    }
}
