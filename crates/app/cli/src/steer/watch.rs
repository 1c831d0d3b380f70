//! `skua steer watch`: live channels and events of a detector.

use std::{
    collections::HashMap,
    io::{self, IsTerminal as _, Write},
    time::Duration,
};

use clap::Args;
use serde_json::{Value, json};
use skua_client::Client;
use skua_config::arguments::Printing;
use skua_output as output;

use crate::steer::{interval, is_json, path_of};

/// Events shown below the channels.
const EVENTS_SHOWN: usize = 8;
/// Heights of a sparkline.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

#[derive(Args, Debug)]
pub struct WatchArguments {
    /// Name or UUID of the detector
    name: String,
    /// Most channels to show: those that have fired, then those that fired most often
    #[arg(long, value_name = "N", default_value_t = 16)]
    channels: usize,
    /// Interval of updates
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    interval: Duration,
    /// End after this many updates
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    // JSON is a line for each update and each event.
    #[command(flatten)]
    printing: Printing,
}

/// State after the last update.
#[derive(Default)]
struct Progress {
    next_event: u64,
    events: Vec<Value>,
    /// Samples and fired of channels.
    channels: HashMap<u64, (u64, u64)>,
}

/// Follows a detector until Ctrl-C, or for `count` updates.
pub fn watch(client: &Client, arguments: &WatchArguments) -> anyhow::Result<()> {
    let json = is_json(arguments.printing)?;
    let path = path_of(&arguments.name)?;
    let mut progress = Progress::default();
    let mut updates = 0;
    loop {
        let view = client.object(&path)?;
        let channels = format!("{path}/channels?limit={}", arguments.channels);
        let channels = client.object(&channels)?;
        let events = client.object(&format!("{path}/events?since={}", progress.next_event))?;
        progress.next_event = events["Next"].as_u64().unwrap_or(progress.next_event);
        let new: Vec<Value> = events["Events"].as_array().cloned().unwrap_or_default();
        let mut out = io::BufWriter::new(io::stdout().lock());
        if json {
            for event in &new {
                writeln!(out, "{event}")?;
            }
            let update = json!({
                "State": view["State"],
                "Reason": view["Reason"],
                "Counts": view["Counts"],
                "Channels": channels["Channels"],
                "Used": channels["Used"],
            });
            writeln!(out, "{update}")?;
        } else {
            progress.events.extend(new);
            let old = progress.events.len().saturating_sub(EVENTS_SHOWN);
            progress.events.drain(..old);
            let seconds = (updates > 0).then_some(arguments.interval.as_secs_f64());
            draw(&mut out, &view, &channels, &mut progress, seconds)?;
        }
        out.flush()?;
        drop(out);
        updates += 1;
        if arguments.count.is_some_and(|count| updates >= count) {
            return Ok(());
        }
        std::thread::sleep(arguments.interval);
    }
}

fn draw(
    out: &mut impl Write,
    view: &Value,
    channels: &Value,
    progress: &mut Progress,
    seconds: Option<f64>,
) -> io::Result<()> {
    if io::stdout().is_terminal() {
        // Cursor to the top left; clear the rest.
        write!(out, "\x1b[H\x1b[J")?;
    }
    let counts = &view["Counts"];
    let number = |value: &Value| output::count(value.as_u64().unwrap_or(0));
    write!(
        out,
        "{} on {}: {}",
        output::text(&view["Name"]),
        output::text(&view["Interface"]),
        output::text(&view["State"])
    )?;
    if let Some(reason) = view["Reason"].as_str() {
        write!(out, ", {reason}")?;
    }
    writeln!(
        out,
        "\n{} matched, {} sampled, {} passed, {} fired",
        number(&counts["Matched"]),
        number(&counts["Sampled"]),
        number(&counts["Passed"]),
        number(&counts["Fired"])
    )?;
    let named = |key: &str| {
        let all = counts[key].as_object().into_iter().flatten();
        let some = all.filter(|(_, count)| **count != 0);
        some.map(|(name, count)| format!("{} {name}", number(count)))
            .collect::<Vec<_>>()
            .join(", ")
    };
    for (title, key) in [("done", "Results"), ("untouched", "Untouched")] {
        match named(key) {
            text if text.is_empty() => {}
            text => writeln!(out, "{title}: {text}")?,
        }
    }
    writeln!(
        out,
        "\n{:>7} {:<10} {:>11} {:>11} {:>8} {:>8} {:>8}  LAST",
        "CHANNEL", "STATE", "VALUE", "AVERAGE", "PASSED", "FIRED", "PER S"
    )?;
    for channel in channels["Channels"].as_array().into_iter().flatten() {
        line(out, channel, progress, seconds)?;
    }
    let shown = channels["Channels"].as_array().map_or(0, Vec::len);
    let used = channels["Used"].as_u64().unwrap_or(0);
    if used > shown as u64 {
        writeln!(out, "{shown} of {used} channels (--channels)")?;
    }
    for event in &progress.events {
        writeln!(
            out,
            "{} channel {} {}: value {}, average {} -> {}",
            time(event["Time"].as_u64().unwrap_or(0)),
            event["Channel"],
            output::text(&event["Event"]),
            short(&event["Value"]),
            short(&event["Before"]),
            short(&event["After"])
        )?;
    }
    Ok(())
}

fn line(
    out: &mut impl Write,
    channel: &Value,
    progress: &mut Progress,
    seconds: Option<f64>,
) -> io::Result<()> {
    let number = channel["Channel"].as_u64().unwrap_or(0);
    let (passed, fired) = (
        channel["Passed"].as_u64().unwrap_or(0),
        channel["Fired"].as_u64().unwrap_or(0),
    );
    let before = progress.channels.insert(number, (passed, fired));
    let rate = seconds.zip(before).map(|(seconds, before)| {
        let new = (passed + fired).saturating_sub(before.0 + before.1);
        output::count((new as f64 / seconds).round() as u64)
    });
    writeln!(
        out,
        "{number:>7} {:<10} {:>11} {:>11} {:>8} {:>8} {:>8}  {}",
        output::text(&channel["State"]),
        short(&channel["Value"]),
        short(&channel["Average"]),
        output::count(passed),
        output::count(fired),
        rate.unwrap_or_else(|| "-".into()),
        sparkline(&channel["Ring"])
    )
}

/// A number in few characters.
fn short(value: &Value) -> String {
    let Some(value) = value.as_f64() else {
        return "-".into();
    };
    match value.abs() {
        0.0 => "0".into(),
        0.001..100_000.0 => {
            let text = format!("{value:.3}");
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        }
        _ => format!("{value:.3e}"),
    }
}

/// Numbers as bars, the least the lowest.
fn sparkline(ring: &Value) -> String {
    let numbers = ring.as_array().into_iter().flatten();
    let numbers: Vec<f64> = numbers.filter_map(Value::as_f64).collect();
    let least = numbers.iter().copied().fold(f64::INFINITY, f64::min);
    let most = numbers.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    // The last ones, when there are many.
    let skip = numbers.len().saturating_sub(10);
    let bar = |value: &f64| {
        let part = match most - least {
            0.0 => 0.0,
            span => (value - least) / span,
        };
        let place = (part * (BARS.len() - 1) as f64).round() as usize;
        BARS.get(place).copied().unwrap_or(' ')
    };
    numbers.iter().skip(skip).map(bar).collect()
}

/// Time of the day in UTC, from ns since the Unix epoch.
fn time(ns: u64) -> String {
    let ms = ns / 1_000_000;
    let (seconds, ms) = (ms / 1_000 % 86_400, ms % 1_000);
    let (hours, minutes, seconds) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    format!("{hours:02}:{minutes:02}:{seconds:02}.{ms:03}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        for (value, text) in [
            (json!(0), "0"),
            (json!(12.5), "12.5"),
            (json!(-3.12349), "-3.123"),
            (json!(100.0), "100"),
            (json!(1e9), "1.000e9"),
            (json!(0.00001), "1.000e-5"),
            (Value::Null, "-"),
        ] {
            assert_eq!(short(&value), text);
        }
    }

    #[test]
    fn sparklines_go_from_the_least_to_the_most() {
        assert_eq!(sparkline(&json!([0, 7, 3.5])), "▁█▅");
        assert_eq!(sparkline(&json!([5, 5])), "▁▁");
        assert_eq!(sparkline(&json!([])), "");
    }

    #[test]
    fn times_of_the_day() {
        assert_eq!(time(1_700_000_000_123_456_789), "22:13:20.123Z");
    }
}
