//! HTTP over a socket of this host, for the client.

use std::{
    io::{self, ErrorKind, Read as _, Write as _},
    net::SocketAddr,
    os::unix::net::UnixStream,
    path::PathBuf,
    time::Duration,
};

use ureq::{
    Error,
    config::Config,
    http::Uri,
    unversioned::{
        resolver::{ResolvedSocketAddrs, Resolver},
        transport::{Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, Transport},
    },
};

/// Connects to this path, whatever the URL.
#[derive(Debug)]
pub struct UnixConnector(pub PathBuf);

impl Connector for UnixConnector {
    type Out = UnixTransport;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        _: Option<()>,
    ) -> Result<Option<UnixTransport>, Error> {
        let config = &details.config;
        Ok(Some(UnixTransport {
            stream: UnixStream::connect(&self.0)?,
            buffers: LazyBuffers::new(config.input_buffer_size(), config.output_buffer_size()),
        }))
    }
}

/// Resolves no names: a unix socket needs none.
#[derive(Debug)]
pub struct NoResolver;

impl Resolver for NoResolver {
    fn resolve(&self, _: &Uri, _: &Config, _: NextTimeout) -> Result<ResolvedSocketAddrs, Error> {
        let mut found = self.empty();
        found.push(SocketAddr::from(([127, 0, 0, 1], 80)));
        Ok(found)
    }
}

/// A connection.
pub struct UnixTransport {
    stream: UnixStream,
    buffers: LazyBuffers,
}

impl std::fmt::Debug for UnixTransport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UnixTransport").finish_non_exhaustive()
    }
}

/// The remaining time; none: unlimited.
fn left(timeout: &NextTimeout) -> Result<Option<Duration>, Error> {
    match (timeout.after.is_not_happening(), *timeout.after) {
        (true, _) => Ok(None),
        (false, Duration::ZERO) => Err(Error::Timeout(timeout.reason)),
        (false, left) => Ok(Some(left)),
    }
}

fn or_timeout<T>(done: io::Result<T>, timeout: &NextTimeout) -> Result<T, Error> {
    done.map_err(|error| match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => Error::Timeout(timeout.reason),
        _ => error.into(),
    })
}

impl Transport for UnixTransport {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        self.stream.set_write_timeout(left(&timeout)?)?;
        let output = &self.buffers.output()[..amount];
        match self.stream.write_all(output) {
            // The server may answer, mostly with a refusal, before it has read all: the answer can
            // be read.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
            done => or_timeout(done, &timeout),
        }
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        self.stream.set_read_timeout(left(&timeout)?)?;
        let input = self.buffers.input_append_buf();
        let read = loop {
            match self.stream.read(input) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => break read,
            }
        };
        let amount = or_timeout(read, &timeout)?;
        self.buffers.input_appended(amount);
        Ok(amount > 0)
    }

    fn is_open(&mut self) -> bool {
        // Open, without unexpected data.
        let quiet = |stream: &mut UnixStream| {
            stream.set_nonblocking(true)?;
            let read = stream.read(&mut [0]);
            stream.set_nonblocking(false)?;
            io::Result::Ok(matches!(read, Err(error) if error.kind() == ErrorKind::WouldBlock))
        };
        quiet(&mut self.stream).unwrap_or(false)
    }
}
