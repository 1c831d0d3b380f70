//! `skua steer run`: detectors on a capture file, in user space.

use std::{
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use clap::Args;
use serde_json::{Value, json};
use skua_config::{arguments::Printing, steer};
use skua_file::CaptureFile;
use skua_kernel::steer::Event;
use skua_output::counted;
use skua_packet::LinkType;
use skua_runtime::steer::view::{SteerEvent, fixed_point};
use skua_steer::{Classification, Detector, Reference};

use crate::steer::is_json;

/// Packets read from the file's buffer at a time.
const BATCH: usize = 256;

#[derive(Args, Debug)]
pub struct RunArguments {
    /// YAML file with detectors
    file: PathBuf,
    /// Capture file (pcap, pcapng; - for standard input)
    #[arg(long, value_name = "FILE")]
    pcap: PathBuf,
    // JSON is a line an event and a line a detector
    #[command(flatten)]
    printing: Printing,
}

/// Packets that no detector processed.
#[derive(Default)]
struct Skipped {
    /// Not Ethernet.
    other_link: u64,
    /// Captured incompletely.
    cut: u64,
}

/// Runs the detectors, and prints what they would have done.
pub fn run(arguments: &RunArguments) -> anyhow::Result<()> {
    let json = is_json(arguments.printing)?;
    let detectors = steer::read(&arguments.file)?;
    if arguments.pcap == Path::new("-") {
        let input = CaptureFile::new("standard input", io::stdin().lock())?;
        return feed(&detectors, input, json);
    }
    feed(&detectors, CaptureFile::open(&arguments.pcap)?, json)
}

fn feed<R: Read>(
    detectors: &[Detector],
    mut file: CaptureFile<R>,
    json: bool,
) -> anyhow::Result<()> {
    let mut references = detectors
        .iter()
        .map(Reference::new)
        .collect::<Result<Vec<_>, _>>()?;
    let mut over = Skipped::default();
    let mut out = io::BufWriter::new(io::stdout().lock());
    while let Some(packets) = file.next_batch(BATCH)? {
        for packet in packets {
            if packet.link_type != LinkType::Ethernet {
                over.other_link += 1;
                continue;
            }
            over.cut += u64::from(packet.data.len() < packet.wire_len as usize);
            for reference in &mut references {
                let fate = reference.packet(packet.data, packet.timestamp_ns).fate;
                if let Some(event) = event(reference.detector(), packet.timestamp_ns, fate) {
                    write_event(&mut out, &event, json)?;
                }
            }
        }
    }
    if let Some(cut_off) = file.cut_off() {
        tracing::warn!("{cut_off}");
    }
    if over.other_link > 0 {
        tracing::warn!(
            "{} packets are not Ethernet and were skipped",
            over.other_link
        );
    }
    if over.cut > 0 {
        tracing::warn!("{} packets were cut when they were captured", over.cut);
    }
    for reference in &references {
        summarize(&mut out, reference, json)?;
    }
    out.flush()?;
    Ok(())
}

fn event(detector: &Detector, time_ns: u64, fate: Classification) -> Option<Value> {
    let Classification::Sampled {
        channel,
        value,
        verdict,
    } = fate
    else {
        return None;
    };
    verdict.changed.then(|| {
        let event = Event {
            time_ns,
            channel,
            fired: verdict.fired,
            value,
            before: verdict.before,
            after: verdict.after,
            count: verdict.count,
        };
        let event = SteerEvent::of(detector, time_ns, &event);
        let mut view = json!(event);
        view["Detector"] = detector.name.as_str().into();
        view
    })
}

fn write_event(out: &mut impl Write, event: &Value, json: bool) -> io::Result<()> {
    if json {
        return writeln!(out, "{event}");
    }
    let ns = event["Time"].as_u64().unwrap_or(0);
    writeln!(
        out,
        "{}.{:06} {} channel {} {}: value {}, average {} -> {}",
        ns / 1_000_000_000,
        ns / 1_000 % 1_000_000,
        event["Detector"].as_str().unwrap_or_default(),
        event["Channel"],
        event["Event"].as_str().unwrap_or_default(),
        event["Value"],
        event["Before"],
        event["After"]
    )
}

fn summarize(out: &mut impl Write, reference: &Reference, json: bool) -> io::Result<()> {
    let (detector, tally) = (reference.detector(), reference.tally());
    let channels = reference.channels();
    if json {
        let channels: Vec<_> = channels
            .iter()
            .map(|(channel, state)| {
                let full = state.count >= u64::from(detector.ring);
                json!({
                    "Channel": channel,
                    "Samples": state.count,
                    "Fired": state.fired,
                    "Average": full.then(|| fixed_point(detector, state.ewma)),
                })
            })
            .collect();
        let whole = json!({"Detector": detector.name, "Counts": tally, "Channels": channels});
        return writeln!(out, "{whole}");
    }
    write!(
        out,
        "{}: {} matched, {} sampled on {}, {} would {}",
        detector.name,
        tally.matched,
        tally.sampled,
        counted(channels.len(), "channel"),
        tally.fired,
        detector.action.name()
    )?;
    for (cause, count) in &tally.untouched {
        write!(out, ", {count} {}", cause.name())?;
    }
    writeln!(out)
}
