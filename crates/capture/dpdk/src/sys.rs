//! The calls into `shim.c`: all unsafe code of this crate.

use std::{
    ffi::{CStr, CString, c_char, c_int, c_void},
    marker::PhantomData,
    mem::MaybeUninit,
    panic::{AssertUnwindSafe, catch_unwind},
    ptr::NonNull,
};

use crate::port::{Packet, PortInfo, PortStats};

/// Whether DPDK is linked.
pub const BUILT: bool = true;

/// Packets of a burst (SKUA_DPDK_MOST).
const MOST: usize = 32;
/// Bytes of a packet that came in several buffers: a jumbo frame.
const LONGEST: usize = 10_240;
/// Of names (SKUA_DPDK_NAME).
const NAME: usize = 64;

/// `struct rte_mbuf`, opaque outside DPDK.
#[repr(C)]
struct Mbuf {
    _data: [u8; 0],
}

/// `struct rte_mempool`.
#[repr(C)]
struct Mempool {
    _data: [u8; 0],
}

#[repr(C)]
struct Info {
    name: [c_char; NAME],
    driver: [c_char; NAME],
    mac: [u8; 6],
    mtu: u16,
    speed: u32,
    ifindex: u32,
    up: u8,
    removed: u8,
    queues: u16,
}

#[repr(C)]
struct Stats {
    packets: u64,
    bytes: u64,
    missed: u64,
    errors: u64,
    no_buffer: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct View {
    data: *const u8,
    captured: u32,
    length: u32,
    tci: u16,
    tagged: u16,
    segment: u32,
}

impl View {
    const NONE: Self = Self {
        data: std::ptr::null(),
        captured: 0,
        length: 0,
        tci: 0,
        tagged: 0,
        segment: 0,
    };
}

unsafe extern "C" {
    fn skua_dpdk_start(
        count: c_int,
        arguments: *mut *mut c_char,
        log: extern "C" fn(u32, *const c_char, usize),
    ) -> c_int;
    fn skua_dpdk_find(name: *const c_char, port: *mut u16) -> c_int;
    fn skua_dpdk_probe(device: *const c_char) -> c_int;
    fn skua_dpdk_open(port: u16, queues: u16, descriptors: u16, pool: *mut *mut Mempool) -> c_int;
    fn skua_dpdk_read_info(port: u16, info: *mut Info) -> c_int;
    fn skua_dpdk_read_stats(port: u16, stats: *mut Stats) -> c_int;
    fn skua_dpdk_close(port: u16, pool: *mut Mempool, remove: bool);
    fn skua_dpdk_register_thread() -> c_int;
    fn skua_dpdk_unregister_thread();
    fn skua_dpdk_receive(port: u16, queue: u16, burst: *mut *mut Mbuf) -> u16;
    fn skua_dpdk_view(mbuf: *const Mbuf, wanted: u32, buffer: *mut u8, packet: *mut View);
    fn skua_dpdk_free(burst: *mut *mut Mbuf, count: u16);
}

fn checked(result: c_int) -> Result<c_int, i32> {
    if result < 0 { Err(result) } else { Ok(result) }
}

extern "C" fn log(level: u32, text: *const c_char, length: usize) {
    if text.is_null() {
        return;
    }
    // SAFETY: the stream's buffer has `length` bytes there, and keeps them until this returns.
    let bytes = unsafe { std::slice::from_raw_parts(text.cast::<u8>(), length) };
    // A panic must not go through C.
    let _ = catch_unwind(AssertUnwindSafe(|| {
        crate::eal::logged(level, &String::from_utf8_lossy(bytes));
    }));
}

/// Starts DPDK. To be called once.
pub(crate) fn start(arguments: Vec<CString>) -> Result<(), i32> {
    let count = c_int::try_from(arguments.len()).unwrap_or(c_int::MAX);
    // DPDK may change and keep what it gets: it is given away.
    let arguments = arguments.into_iter().map(CString::into_raw);
    let arguments = arguments.chain([std::ptr::null_mut()]);
    let arguments = Box::leak(arguments.collect::<Vec<_>>().into_boxed_slice());
    // SAFETY: as many texts as said, and a null pointer; they and the function stay for ever.
    checked(unsafe { skua_dpdk_start(count, arguments.as_mut_ptr(), log) }).map(drop)
}

/// The port of this name, if there is one.
pub(crate) fn find(name: &CStr) -> Option<u16> {
    let mut port = 0;
    // SAFETY: a text with its end; the number is written to our variable.
    let result = unsafe { skua_dpdk_find(name.as_ptr(), &mut port) };
    (result == 0).then_some(port)
}

/// Adds a device to DPDK.
pub(crate) fn probe(device: &CStr) -> Result<(), i32> {
    // SAFETY: a text with its end, which DPDK copies.
    checked(unsafe { skua_dpdk_probe(device.as_ptr()) }).map(drop)
}

/// A port that receives. Dropping it stops it: not before all [`Buffers`] that were received from it are
/// freed.
pub(crate) struct Opened {
    port: u16,
    pool: *mut Mempool,
    /// Added by us, to be removed by us.
    remove: bool,
    pub(crate) queues: u16,
}

// SAFETY: DPDK's functions for a port may be called from any thread; that two threads do not configure at
// the same time is what `port::CONTROL` is for. The pool is only touched when the port is dropped.
unsafe impl Send for Opened {}
// SAFETY: shared, only its information and counters are read, which DPDK allows at any time, and packets
// received, of each queue by one thread, since each `Queue` is there once.
unsafe impl Sync for Opened {}

impl Opened {
    pub(crate) fn open(
        port: u16,
        queues: u16,
        descriptors: u16,
        remove: bool,
    ) -> Result<Self, i32> {
        let mut opened = Self {
            port,
            pool: std::ptr::null_mut(),
            remove,
            queues: 0,
        };
        // SAFETY: the pool is written to our variable; the port's number came from DPDK. What was made
        // before a failure goes when `opened` is dropped.
        let result = unsafe { skua_dpdk_open(port, queues, descriptors, &mut opened.pool) };
        opened.queues = u16::try_from(checked(result)?).unwrap_or(u16::MAX);
        Ok(opened)
    }

    pub(crate) fn info(&self) -> Result<PortInfo, i32> {
        let mut info = MaybeUninit::<Info>::zeroed();
        // SAFETY: it is as large as the C side's, which writes it.
        checked(unsafe { skua_dpdk_read_info(self.port, info.as_mut_ptr()) })?;
        // SAFETY: all bits 0 is a value of it, and so is what was written.
        let info = unsafe { info.assume_init() };
        Ok(PortInfo {
            name: text(&info.name),
            driver: text(&info.driver),
            mac: info.mac,
            mtu: info.mtu,
            speed: info.speed,
            ifindex: info.ifindex,
            up: info.up != 0,
            removed: info.removed != 0,
            queues: info.queues,
        })
    }

    pub(crate) fn stats(&self) -> Result<PortStats, i32> {
        let mut stats = MaybeUninit::<Stats>::zeroed();
        // SAFETY: it is as large as the C side's, which writes it.
        checked(unsafe { skua_dpdk_read_stats(self.port, stats.as_mut_ptr()) })?;
        // SAFETY: all bits 0 is a value of it, and so is what was written.
        let stats = unsafe { stats.assume_init() };
        Ok(PortStats {
            packets: stats.packets,
            bytes: stats.bytes,
            missed: stats.missed,
            errors: stats.errors,
            no_buffer: stats.no_buffer,
        })
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // SAFETY: nobody receives from it any more, since `self` is not shared any more, and all packets
        // are freed (see above); the pool is the port's or null.
        unsafe { skua_dpdk_close(self.port, self.pool, self.remove) }
    }
}

fn text(field: &[c_char; NAME]) -> String {
    let bytes: Vec<u8> = field
        .iter()
        .map(|c| *c as u8)
        .take_while(|byte| *byte != 0)
        .collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Where the packets of a burst are.
pub(crate) struct Buffers {
    packets: [*mut Mbuf; MOST],
    views: [View; MOST],
    count: usize,
    /// For packets that came in several buffers, each its own part.
    pieces: Box<[u8]>,
}

// SAFETY: packets belong to whoever received them, and any thread may free them.
unsafe impl Send for Buffers {}

impl Default for Buffers {
    fn default() -> Self {
        Self {
            packets: [std::ptr::null_mut(); MOST],
            views: [View::NONE; MOST],
            count: 0,
            pieces: vec![0; MOST * LONGEST].into_boxed_slice(),
        }
    }
}

impl Buffers {
    /// Frees the previous packets and receives from a queue; returns how many.
    pub(crate) fn receive(&mut self, port: &Opened, queue: u16) -> usize {
        self.free();
        // SAFETY: there is room for MOST packets; the port is open, and only one thread has this queue.
        let count = unsafe { skua_dpdk_receive(port.port, queue, self.packets.as_mut_ptr()) };
        self.count = usize::from(count).min(MOST);
        let all = self.packets[..self.count].iter();
        let pieces = self.pieces.chunks_exact_mut(LONGEST);
        for ((mbuf, view), piece) in all.zip(&mut self.views).zip(pieces) {
            // SAFETY: the packet was received just now and is not freed yet; there is room for LONGEST
            // bytes, as said.
            unsafe { skua_dpdk_view(*mbuf, LONGEST as u32, piece.as_mut_ptr(), view) };
        }
        self.count
    }

    /// One of them.
    pub(crate) fn packet(&self, number: usize) -> Packet<'_> {
        let view = &self.views[..self.count][number];
        let data = match NonNull::new(view.data.cast_mut()) {
            // SAFETY: these bytes are of the packet, or of `pieces`. Both stay, and nobody writes to them,
            // until `receive` or `free`, which need `self` for themselves.
            Some(data) => unsafe {
                std::slice::from_raw_parts(data.as_ptr(), view.captured as usize)
            },
            None => &[],
        };
        Packet {
            data,
            length: view.length,
            stripped_vlan: (view.tagged != 0).then_some(view.tci),
            segment: u16::try_from(view.segment).ok().filter(|size| *size > 0),
        }
    }

    /// Gives the packets back.
    pub(crate) fn free(&mut self) {
        if self.count > 0 {
            // SAFETY: so many packets are there and ours; they are forgotten with this.
            unsafe { skua_dpdk_free(self.packets.as_mut_ptr(), self.count as u16) };
            self.count = 0;
        }
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        self.free();
    }
}

/// The calling thread is known to DPDK: then it has packets' buffers at hand. Ends with the thread.
pub(crate) struct Registered {
    /// It stays on its thread.
    _here: PhantomData<*const c_void>,
}

impl Registered {
    /// None when there are too many.
    pub(crate) fn new() -> Option<Self> {
        // SAFETY: any thread may call this; twice changes nothing.
        let known = unsafe { skua_dpdk_register_thread() } == 0;
        known.then_some(Self { _here: PhantomData })
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // SAFETY: of the thread that was registered, since this is not Send.
        unsafe { skua_dpdk_unregister_thread() }
    }
}
