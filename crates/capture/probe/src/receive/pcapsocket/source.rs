//! The bytes of a connection, as a reader of capture files takes them.

use std::{
    cell::Cell,
    io::{self, Read},
    net::TcpStream,
    os::fd::{AsFd as _, OwnedFd},
    rc::Rc,
    time::{Duration, Instant},
};

use rustix::{event::Timespec, net::sockopt};

use super::connection::Connection;
use crate::receive::worker::{Readable, await_readable};

/// What has arrived is still taken at the end, but for no longer than this.
const LAST_BYTES: Duration = Duration::from_secs(1);
/// A peer that vanished is noticed after about two minutes.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// A connection's bytes. They end when the peer says so, or when the thread is to end.
pub(super) struct Source<'a> {
    socket: TcpStream,
    connection: &'a Connection,
    end: &'a OwnedFd,
    /// Until when the head of the capture must have come; none when it has.
    deadline: Rc<Cell<Option<Instant>>>,
    /// Set when the thread has to stop: until then received bytes are still read.
    ending: Option<Instant>,
}

impl<'a> Source<'a> {
    pub(super) fn new(
        socket: TcpStream,
        connection: &'a Connection,
        end: &'a OwnedFd,
        deadline: Rc<Cell<Option<Instant>>>,
    ) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        sockopt::set_socket_keepalive(&socket, true)?;
        sockopt::set_tcp_keepidle(&socket, KEEPALIVE_IDLE)?;
        sockopt::set_tcp_keepintvl(&socket, KEEPALIVE_INTERVAL)?;
        sockopt::set_tcp_keepcnt(&socket, 4)?;
        Ok(Self {
            socket,
            connection,
            end,
            deadline,
            ending: None,
        })
    }

    /// Waits for bytes; an error when they do not come in time.
    fn wait(&mut self) -> io::Result<()> {
        let timeout = match self.deadline.get() {
            None => None,
            Some(deadline) => {
                let rest = deadline.saturating_duration_since(Instant::now());
                if rest.is_zero() {
                    return Err(io::Error::new(
                        io::ErrorKind::TimedOut,
                        "no capture began in time",
                    ));
                }
                Some(Timespec {
                    tv_sec: rest.as_secs() as i64,
                    tv_nsec: i64::from(rest.subsec_nanos()),
                })
            }
        };
        if await_readable(self.socket.as_fd(), self.end, timeout.as_ref()) == Readable::End {
            self.ending = Some(Instant::now() + LAST_BYTES);
        }
        Ok(())
    }
}

impl Read for Source<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.ending.is_some_and(|until| Instant::now() >= until) {
                return Ok(0);
            }
            match self.socket.read(buffer) {
                Ok(length) => {
                    self.connection.count_received(length);
                    return Ok(length);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if self.ending.is_some() {
                        return Ok(0);
                    }
                    self.wait()?;
                }
                Err(error) => return Err(error),
            }
        }
    }
}
