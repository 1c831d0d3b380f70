//! Capture with an AF_PACKET socket and its ring.

use crate::filter::{DROP_ALL, MAX_INSTRUCTIONS, with_snaplen};
use crate::ring::{Block, Ring};
use crate::sys::{self, RingMemory, StatsV3};
use crate::{CaptureStats, Error, Fanout, Options, Packet, PacketSource};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

const TPACKET_V3: i32 = 2;
/// With TPACKET_V3 a frame takes as much of a block as it needs; the kernel only requires a size that
/// divides the block.
const FRAME_BYTES: u32 = 2048;
/// Have the kernel choose an unused number for a fanout group (since 4.13).
const FANOUT_UNIQUE_ID: i32 = 0x2000;
/// Most sockets that one interface is spread over.
const MAX_GROUP: usize = 64;
/// The kernel counts in 32 bits; read so often, they cannot overflow: a block holds at most 4 MiB
/// and a packet takes more than 64 bytes.
const BLOCKS_BETWEEN_STATS: u32 = 4096;
/// Rounds after which to stop waiting for packets that the kernel has counted and not handed over.
const FINISH_ROUNDS: u32 = 50;

/// A capture of one interface: a socket with a ring in memory shared with the kernel.
///
/// It captures in the network namespace of the thread that opened it, and may then be used from
/// any other. Dropping it closes it.
#[derive(Debug)]
pub struct AfPacketCapture {
    // Before the socket, so that it is unmapped first.
    ring: Ring,
    socket: OwnedFd,
    interface: String,
    ifindex: i32,
    snaplen: u32,
    block_timeout: Duration,
    stats: CaptureStats,
    blocks_since_stats: u32,
    state: State,
}

/// Whether packets are still to be expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Running,
    /// The interface went down; packets captured before are handed over until then.
    GoingDown(Instant),
    /// The interface is down, and that was reported.
    Down,
    Gone,
}

impl AfPacketCapture {
    /// Opens a capture in the calling thread's network namespace.
    ///
    /// On an interface that is down this succeeds, and the first wait reports it.
    pub fn open(options: &Options) -> Result<Self, Error> {
        let capture = Self::prepare(options)?;
        capture.start(options)?;
        Ok(capture)
    }

    /// Opens `sockets` captures that share the packets of one interface, one for each thread: each
    /// packet comes to exactly one of them.
    pub fn open_group(
        options: &Options,
        fanout: Fanout,
        sockets: usize,
    ) -> Result<Vec<Self>, Error> {
        if !(1..=MAX_GROUP).contains(&sockets) {
            return Err(Error::Options {
                interface: options.interface.clone(),
                what: format!("{sockets} sockets: from 1 to {MAX_GROUP}"),
            });
        }
        let mut captures = Vec::with_capacity(sockets);
        let mut group = None;
        for _ in 0..sockets {
            let capture = Self::prepare(options)?;
            group = Some(capture.join(fanout, group)?);
            captures.push(capture);
        }
        // Only now, so that no packet comes to two of them.
        for capture in &captures {
            capture.start(options)?;
        }
        Ok(captures)
    }

    /// Makes a socket with a ring, bound but with everything filtered out.
    fn prepare(options: &Options) -> Result<Self, Error> {
        options.check()?;
        let named = || options.interface.clone();
        let failed = |action: &'static str| {
            move |source: io::Error| match source.raw_os_error() {
                Some(libc::EPERM | libc::EACCES) => Error::Denied { interface: named() },
                Some(libc::ENODEV | libc::ENXIO) => Error::NoInterface { interface: named() },
                Some(libc::ENOPROTOOPT) => Error::Unsupported {
                    interface: named(),
                    action,
                    source,
                },
                _ => Error::System {
                    interface: named(),
                    action,
                    source,
                },
            }
        };
        let ifindex = options.ifindex as i32;
        let (blocks, block_bytes) = (options.blocks(), options.block_bytes as u32);

        let socket = sys::open_socket().map_err(failed("opening a packet socket"))?;
        let set = |option, value: i32| sys::set_option(&socket, libc::SOL_PACKET, option, &value);
        set(libc::PACKET_VERSION, TPACKET_V3)
            .map_err(failed("a ring of the third version (Linux 3.2)"))?;
        // Says how super-packets are cut. Has to come before the ring.
        set(libc::PACKET_VNET_HDR, 1)
            .map_err(failed("recognizing super-packets in a ring (Linux 4.6)"))?;
        if options.loopback {
            set(libc::PACKET_IGNORE_OUTGOING, 1)
                .map_err(failed("ignoring outgoing packets (Linux 4.20)"))?;
        }
        let request = libc::tpacket_req3 {
            tp_block_size: block_bytes,
            tp_block_nr: blocks as u32,
            tp_frame_size: FRAME_BYTES,
            tp_frame_nr: block_bytes / FRAME_BYTES * blocks as u32,
            tp_retire_blk_tov: options.block_timeout_ms,
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        sys::set_option(&socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &request)
            .map_err(failed("allocating the ring"))?;
        let memory = RingMemory::map(&socket, blocks, options.block_bytes)
            .map_err(failed("mapping the ring"))?;
        sys::attach_filter(&socket, &DROP_ALL).map_err(failed("attaching a filter"))?;
        sys::bind(&socket, ifindex, libc::ETH_P_ALL as u16)
            .map_err(failed("binding to the interface"))?;
        if options.promiscuous {
            let request = libc::packet_mreq {
                mr_ifindex: ifindex,
                mr_type: libc::PACKET_MR_PROMISC as u16,
                mr_alen: 0,
                mr_address: [0; 8],
            };
            sys::set_option(
                &socket,
                libc::SOL_PACKET,
                libc::PACKET_ADD_MEMBERSHIP,
                &request,
            )
            .map_err(failed("setting promiscuous"))?;
        }
        Ok(Self {
            ring: Ring::new(memory),
            socket,
            interface: options.interface.clone(),
            ifindex,
            snaplen: options.snaplen,
            block_timeout: Duration::from_millis(options.block_timeout_ms.into()),
            stats: CaptureStats::default(),
            blocks_since_stats: 0,
            state: State::Running,
        })
    }

    /// Joins a fanout group, or makes one; returns its number.
    fn join(&self, fanout: Fanout, group: Option<u16>) -> Result<u16, Error> {
        let kind = match fanout {
            Fanout::Hash => libc::PACKET_FANOUT_HASH,
            Fanout::Cpu => libc::PACKET_FANOUT_CPU,
        } as i32;
        // The number is in the lower 16 bits, the kind in the upper ones.
        let request = match group {
            Some(group) => i32::from(group) | kind << 16,
            None => (kind | FANOUT_UNIQUE_ID) << 16,
        };
        sys::set_option(
            &self.socket,
            libc::SOL_PACKET,
            libc::PACKET_FANOUT,
            &request,
        )
        .map_err(self.failed("sharing the interface among sockets"))?;
        let joined = sys::get_option(&self.socket, libc::SOL_PACKET, libc::PACKET_FANOUT, 0)
            .map_err(self.failed("asking for the group of sockets"))?;
        Ok(joined as u16)
    }

    /// Lets the wanted packets in.
    fn start(&self, options: &Options) -> Result<(), Error> {
        let refused = |what: String| Error::Filter {
            interface: self.interface.clone(),
            what,
        };
        if options.filter.len() > MAX_INSTRUCTIONS {
            return Err(refused(format!(
                "{} instructions, at most {MAX_INSTRUCTIONS} are allowed",
                options.filter.len()
            )));
        }
        sys::attach_filter(&self.socket, &with_snaplen(&options.filter, self.snaplen)).map_err(
            |e| match e.raw_os_error() {
                Some(libc::EINVAL) => refused("not a valid classic BPF program".to_owned()),
                _ => refused(e.to_string()),
            },
        )
    }

    /// Waits for a block of packets, at most `timeout`. The packets stay in the shared memory; dropping the
    /// block returns it to the kernel.
    ///
    /// When the interface goes down or vanishes, packets captured before come first, then
    /// [`Error::InterfaceDown`] once or [`Error::InterfaceGone`].
    pub fn poll(&mut self, timeout: Duration) -> Result<Option<Block<'_>>, Error> {
        if !self.wait(timeout)? {
            return Ok(None);
        }
        // Packets again: it is up.
        if self.state == State::Down {
            self.state = State::Running;
        }
        self.blocks_since_stats += 1;
        if self.blocks_since_stats >= BLOCKS_BETWEEN_STATS {
            self.read_stats()?;
        }
        let block = self.ring.next_block();
        if let Some(block) = &block {
            self.stats.delivered += block.len() as u64;
        }
        Ok(block)
    }

    /// Waits until a block is there: true; or until the time is over: false.
    fn wait(&mut self, timeout: Duration) -> Result<bool, Error> {
        let deadline = Instant::now().checked_add(timeout);
        loop {
            if self.ring.is_ready() {
                return Ok(true);
            }
            let now = Instant::now();
            match self.state {
                State::GoingDown(until) if now >= until => return Err(self.report_down()),
                State::Gone => return Err(self.report_gone()),
                _ => {}
            }
            let until = match (self.state, deadline) {
                (State::GoingDown(until), Some(deadline)) => Some(until.min(deadline)),
                (State::GoingDown(until), None) => Some(until),
                (_, deadline) => deadline,
            };
            let mut left = until.map(|until| until.saturating_duration_since(now));
            if matches!(self.state, State::GoingDown(_)) {
                // Nothing wakes us up for the last block of an interface that is down.
                left = left.map(|left| left.min(Duration::from_millis(5)));
            }
            let events = self.poll_socket(left)?;
            if events.intersects(PollFlags::ERR | PollFlags::HUP) {
                self.read_error()?;
            } else if events.is_empty() && deadline.is_some_and(|d| Instant::now() >= d) {
                if self.state == State::Down && self.is_gone() {
                    return Err(self.report_gone());
                }
                return Ok(self.ring.is_ready());
            }
        }
    }

    fn poll_socket(&self, timeout: Option<Duration>) -> Result<PollFlags, Error> {
        let mut fds = [PollFd::new(&self.socket, PollFlags::IN | PollFlags::ERR)];
        // A timeout that does not fit is as good as none.
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        match poll(&mut fds, timeout.as_ref()) {
            Ok(0) | Err(rustix::io::Errno::INTR) => Ok(PollFlags::empty()),
            Ok(_) => Ok(fds[0].revents()),
            Err(e) => Err(self.failed("waiting for packets")(e.into())),
        }
    }

    /// Reads the socket's pending error.
    fn read_error(&mut self) -> Result<(), Error> {
        let code = sys::get_option(&self.socket, libc::SOL_SOCKET, libc::SO_ERROR, 0)
            .map_err(self.failed("asking for the socket's error"))?;
        match code {
            libc::ENETDOWN => {
                // The block that is being filled comes when its timeout is over, for which the kernel may
                // need twice the configured time.
                self.state = State::GoingDown(
                    Instant::now() + 2 * self.block_timeout + Duration::from_millis(20),
                );
                Ok(())
            }
            code => Err(self.failed("waiting for packets")(
                io::Error::from_raw_os_error(code),
            )),
        }
    }

    fn report_down(&mut self) -> Error {
        if self.is_gone() {
            return self.report_gone();
        }
        self.state = State::Down;
        Error::InterfaceDown {
            interface: self.interface.clone(),
        }
    }

    fn report_gone(&mut self) -> Error {
        self.state = State::Gone;
        Error::InterfaceGone {
            interface: self.interface.clone(),
        }
    }

    fn is_gone(&self) -> bool {
        sys::bound_ifindex(&self.socket).is_ok_and(|ifindex| ifindex != self.ifindex)
    }

    /// Adds what the kernel has counted since the last time; it starts again at 0.
    fn read_stats(&mut self) -> Result<(), Error> {
        let new = sys::get_option(
            &self.socket,
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
            StatsV3::default(),
        )
        .map_err(self.failed("reading the counters"))?;
        self.stats.received += u64::from(new.packets);
        self.stats.drops += u64::from(new.drops);
        self.stats.freezes += u64::from(new.freezes);
        self.blocks_since_stats = 0;
        Ok(())
    }

    fn failed(&self, action: &'static str) -> impl FnOnce(io::Error) -> Error {
        let interface = self.interface.clone();
        move |source| Error::System {
            interface,
            action,
            source,
        }
    }
}

impl PacketSource for AfPacketCapture {
    fn dispatch(
        &mut self,
        timeout: Duration,
        packets: &mut dyn FnMut(&Packet<'_>),
    ) -> Result<u64, Error> {
        Ok(self
            .poll(timeout)?
            .map_or(0, |block| block.dispatch(packets)))
    }

    fn finish(&mut self, packets: &mut dyn FnMut(&Packet<'_>)) -> Result<CaptureStats, Error> {
        sys::attach_filter(&self.socket, &DROP_ALL).map_err(self.failed("attaching a filter"))?;
        for _ in 0..FINISH_ROUNDS {
            self.read_stats()?;
            // The block that is being filled comes when its time is over.
            if self.stats.delivered >= self.stats.received - self.stats.drops {
                break;
            }
            loop {
                match self.dispatch(self.block_timeout, packets) {
                    Ok(0) => break,
                    Ok(_) => {}
                    // No more packets will come, as expected here.
                    Err(Error::InterfaceDown { .. } | Error::InterfaceGone { .. }) => break,
                    Err(error) => return Err(error),
                }
            }
        }
        self.stats()
    }

    fn stats(&mut self) -> Result<CaptureStats, Error> {
        self.read_stats()?;
        self.stats.unreadable = self.ring.unreadable();
        Ok(self.stats)
    }
}

impl AsFd for AfPacketCapture {
    /// Descriptor that becomes readable when there is a block.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
