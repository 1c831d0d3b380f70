//! One connection: bytes in and out, bounded in size and time.

use crate::{ClientConfig, Error, Target, wire::Message};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with, sockopt,
};
use serde_json::{Value, json};
use std::{
    cell::{Cell, RefCell},
    io::{self, BufReader, Read, Write},
    net::{Shutdown, TcpStream},
    os::unix::net::UnixStream,
    rc::Rc,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

enum Socket {
    Unix(UnixStream),
    Tcp(TcpStream),
}

/// A connection that several threads write to, each message as a whole.
pub(crate) struct Stream {
    socket: Socket,
    target: String,
    writing: Mutex<()>,
}

impl Stream {
    /// Connects within `patience`; no write takes longer than that.
    pub fn open(target: &Target, patience: Duration) -> Result<Self, Error> {
        let failed = |action| {
            move |source| Error::Io {
                target: target.to_string(),
                action,
                source,
            }
        };
        let socket = match target {
            Target::Unix(path) => {
                // std's own connect waits for as long as the server's queue is full.
                let open = || -> io::Result<UnixStream> {
                    let address = SocketAddrUnix::new(path)?;
                    let flags = SocketFlags::CLOEXEC;
                    let fd = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
                    sockopt::set_socket_timeout(&fd, sockopt::Timeout::Send, Some(patience))?;
                    connect(&fd, &address)?;
                    Ok(UnixStream::from(fd))
                };
                Socket::Unix(open().map_err(failed("connecting"))?)
            }
            Target::Tcp(address) => {
                let open = || -> io::Result<TcpStream> {
                    let stream = TcpStream::connect_timeout(address, patience)?;
                    stream.set_nodelay(true)?;
                    stream.set_write_timeout(Some(patience))?;
                    Ok(stream)
                };
                Socket::Tcp(open().map_err(failed("connecting"))?)
            }
        };
        Ok(Self {
            socket,
            target: target.to_string(),
            writing: Mutex::new(()),
        })
    }

    /// How long a read waits.
    fn set_read_timeout(&self, patience: Duration) -> io::Result<()> {
        match &self.socket {
            Socket::Unix(stream) => stream.set_read_timeout(Some(patience)),
            Socket::Tcp(stream) => stream.set_read_timeout(Some(patience)),
        }
    }

    /// Sends a message. After an error, which may have left half of it on the way, the connection is
    /// no longer used.
    pub fn send(&self, message: &Value) -> Result<(), Error> {
        let bytes = message.to_string();
        let guard = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let written = match &self.socket {
            Socket::Unix(stream) => { stream }.write_all(bytes.as_bytes()),
            Socket::Tcp(stream) => { stream }.write_all(bytes.as_bytes()),
        };
        drop(guard);
        written.map_err(|source| {
            self.close();
            Error::Io {
                target: self.target.clone(),
                action: "sending",
                source,
            }
        })
    }

    /// Shuts the connection down in both directions, which wakes up the reader.
    pub fn close(&self) {
        let _ = match &self.socket {
            Socket::Unix(stream) => stream.shutdown(Shutdown::Both),
            Socket::Tcp(stream) => stream.shutdown(Shutdown::Both),
        };
    }

    fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match &self.socket {
            Socket::Unix(stream) => { stream }.read(buffer),
            Socket::Tcp(stream) => { stream }.read(buffer),
        }
    }
}

/// What the layers of reading know of each other.
#[derive(Default)]
struct Gauge {
    /// Bytes of the message that is being read.
    taken: Cell<usize>,
    /// When it began.
    begun: Cell<Option<Instant>>,
    /// Until when something has to have happened, and what.
    deadline: Cell<Option<(Instant, &'static str)>>,
    /// Why reading failed: an [`io::Error`] cannot say it.
    reason: RefCell<Option<Error>>,
}

impl Gauge {
    fn fail(&self, reason: Error) -> io::Error {
        *self.reason.borrow_mut() = Some(reason);
        io::ErrorKind::Other.into()
    }
}

/// Reads what comes, and keeps the connection alive meanwhile.
struct Pump {
    stream: Arc<Stream>,
    gauge: Rc<Gauge>,
    config: ClientConfig,
    /// An echo was sent and nothing came since.
    probing: bool,
}

impl Pump {
    /// Fails when what was to happen did not happen in time.
    fn check(&self) -> io::Result<()> {
        let now = Instant::now();
        if let Some((deadline, what)) = self.gauge.deadline.get()
            && now > deadline
        {
            let patience = self.config.limits.patience;
            return Err(self.gauge.fail(Error::Timeout { what, patience }));
        }
        let patience = self.config.limits.message_time;
        let begun = self.gauge.begun.get();
        if begun.is_some_and(|begun| now.duration_since(begun) > patience) {
            let what = "end of a message";
            return Err(self.gauge.fail(Error::Timeout { what, patience }));
        }
        Ok(())
    }

    fn probe(&mut self) -> io::Result<()> {
        let patience = self.config.probe_interval;
        if std::mem::replace(&mut self.probing, true) {
            let what = "answer to an echo";
            return Err(self.gauge.fail(Error::Timeout { what, patience }));
        }
        let echo = json!({"id": "echo", "method": "echo", "params": []});
        self.stream.send(&echo).map_err(|e| self.gauge.fail(e))
    }
}

impl Read for Pump {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            self.check()?;
            match self.stream.read(buffer) {
                Ok(length) => {
                    self.probing = false;
                    return Ok(length);
                }
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => self.probe()?,
                    io::ErrorKind::Interrupted => {}
                    _ => return Err(error),
                },
            }
        }
    }
}

/// Counts the bytes of a message, up to the limit.
struct Metered {
    inner: BufReader<Pump>,
    gauge: Rc<Gauge>,
    limit: usize,
}

impl Read for Metered {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let taken = self.gauge.taken.get();
        if taken >= self.limit {
            let limit = self.limit;
            let what = "a message";
            return Err(self.gauge.fail(Error::TooLarge { what, limit }));
        }
        let most = buffer.len().min(self.limit - taken);
        let length = self.inner.read(&mut buffer[..most])?;
        self.gauge.taken.set(taken + length);
        // Between messages there may be space, and any time.
        let all_space = buffer[..length].iter().all(u8::is_ascii_whitespace);
        if self.gauge.begun.get().is_none() && !all_space {
            self.gauge.begun.set(Some(Instant::now()));
        }
        Ok(length)
    }
}

type Messages = serde_json::StreamDeserializer<'static, serde_json::de::IoRead<Metered>, Message>;

/// The messages of a connection.
pub(crate) struct Inbox {
    messages: Messages,
    gauge: Rc<Gauge>,
    target: String,
    patience: Duration,
}

impl Inbox {
    pub fn new(stream: Arc<Stream>, config: &ClientConfig) -> Result<Self, Error> {
        let target = stream.target.clone();
        let timeout = stream.set_read_timeout(config.probe_interval);
        timeout.map_err(|source| Error::Io {
            target: target.clone(),
            action: "setting up",
            source,
        })?;
        let gauge = Rc::new(Gauge::default());
        let pump = Pump {
            stream,
            gauge: gauge.clone(),
            config: config.clone(),
            probing: false,
        };
        let metered = Metered {
            inner: BufReader::with_capacity(64 << 10, pump),
            gauge: gauge.clone(),
            limit: config.limits.message,
        };
        Ok(Self {
            messages: serde_json::Deserializer::from_reader(metered).into_iter(),
            gauge,
            target,
            patience: config.limits.patience,
        })
    }

    /// From now on `what` has to come in time; none: no deadline.
    pub fn expect(&self, what: Option<&'static str>) {
        let deadline = what.map(|what| (Instant::now() + self.patience, what));
        self.gauge.deadline.set(deadline);
    }

    /// The next message and its length in bytes.
    pub fn next(&mut self) -> Result<(Message, usize), Error> {
        let next = self.messages.next();
        let length = self.gauge.taken.replace(0);
        self.gauge.begun.set(None);
        match next {
            Some(Ok(message)) => Ok((message, length)),
            None => Err(Error::Closed),
            Some(Err(error)) => Err(self.gauge.reason.take().unwrap_or_else(|| {
                if error.is_io() {
                    Error::Io {
                        target: self.target.clone(),
                        action: "reading",
                        source: error.into(),
                    }
                } else if error.is_eof() {
                    Error::Closed
                } else {
                    Error::Protocol(error.to_string())
                }
            })),
        }
    }
}
