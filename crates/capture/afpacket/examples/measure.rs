//! Measures what capturing costs: counts an interface's packets for some seconds and prints CPU time
//! and losses as one JSON object.
//!
//! `measure INTERFACE SECONDS [afpacket|pcap] [RING_KIB] [BLOCK_KIB] [SNAPLEN]`
//!
//! Run it in the network namespace of the interface, on another CPU than the sender:
//! `nsenter --net=/run/netns/NAME taskset -c 1 measure vb 10`.

use rustix::time::{ClockId, clock_gettime};
use skua_afpacket::{AfPacketCapture, Options, Packet, PacketSource};
use skua_link::LinkSocket;
use std::error::Error;
use std::time::{Duration, Instant};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().collect();
    let number = |position: usize, default: usize| {
        args.get(position)
            .map_or(Ok(default), |arg| arg.parse::<usize>())
    };
    let name = args.get(1).ok_or("which interface?")?;
    let seconds = number(2, 10)?;
    let kind = args.get(3).map_or("afpacket", String::as_str);
    let links = LinkSocket::open()?.list()?;
    let link = links
        .iter()
        .find(|link| link.name == *name)
        .ok_or("no such interface")?;
    let defaults = Options::new(link.ifindex, name);
    let options = Options {
        loopback: link.is_loopback(),
        ring_bytes: number(4, defaults.ring_bytes >> 10)? << 10,
        block_bytes: number(5, defaults.block_bytes >> 10)? << 10,
        snaplen: number(6, defaults.snaplen as usize)? as u32,
        ..defaults
    };
    let mut capture: Box<dyn PacketSource> = match kind {
        "afpacket" => Box::new(AfPacketCapture::open(&options)?),
        #[cfg(feature = "libpcap")]
        "pcap" => Box::new(skua_afpacket::pcap_live::PcapCapture::open(
            &skua_afpacket::pcap_live::Options {
                buffer_bytes: options.ring_bytes as u32,
                snaplen: options.snaplen,
                ..skua_afpacket::pcap_live::Options::new(name)
            },
        )?),
        other => return Err(format!("{other}: afpacket or pcap?").into()),
    };

    let mut bytes = 0_u64;
    let mut folded = 0_u8;
    // As a decoder would, look at the headers.
    let mut look = |packet: &Packet<'_>| {
        bytes += packet.wire_bytes();
        folded ^= packet.data.iter().take(54).fold(0, |a, b| a ^ b);
    };
    let start = Instant::now();
    let cpu = cpu_ns();
    let mut wakeups = 0_u64;
    // A reader that did not get a CPU for long explains losses.
    let (mut last, mut longest) = (start, Duration::ZERO);
    while start.elapsed() < Duration::from_secs(seconds as u64) {
        capture.dispatch(Duration::from_millis(100), &mut look)?;
        wakeups += 1;
        let now = Instant::now();
        longest = longest.max(now - last);
        last = now;
    }
    let used = cpu_ns() - cpu;
    let elapsed = start.elapsed();
    let stats = capture.finish(&mut look)?;
    std::hint::black_box(folded);
    println!(
        "{{\"kind\":\"{kind}\",\"received\":{},\"drops\":{},\"freezes\":{},\"bytes\":{bytes},\
         \"packets_per_second\":{:.0},\"cpu_ns_per_packet\":{:.1},\"cpu_share\":{:.4},\
         \"calls\":{wakeups},\"longest_call_ms\":{:.1}}}",
        stats.received,
        stats.drops,
        stats.freezes,
        stats.delivered as f64 / elapsed.as_secs_f64(),
        used as f64 / stats.delivered.max(1) as f64,
        used as f64 / elapsed.as_nanos() as f64,
        longest.as_secs_f64() * 1e3,
    );
    Ok(())
}

/// CPU time of this thread, user and system, in ns.
fn cpu_ns() -> i64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}
