//! What was exported to collectors, in /metrics and by the doctor.

use std::{
    io::{self, Write},
    net::SocketAddr,
};
use utoipa::ToSchema;

use serde::Serialize;
use serde_json::Value;
use skua_output as output;
use skua_output::each;
use skua_process::metrics::{Exposition, Metric};

/// What was exported to a collector.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
pub struct ExportStatus {
    /// Name of the collector, with its address when others have the name, too.
    pub collector: String,
    /// Its address; none: the name was never found.
    #[schema(value_type = Option<String>)]
    pub address: Option<SocketAddr>,
    /// Whether its name does not mean it any more: nothing new goes to it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub left: bool,
    /// Whether it takes what it is sent, as far as its answers and ICMP tell; while not, the others have its part.
    pub up: bool,
    /// Whether it has answered: else only ICMP shows whether it is there.
    pub answers: bool,
    /// How often others took its part.
    pub failovers: u64,
    /// Datagrams that were sent and not refused.
    pub datagrams: u64,
    /// Records in datagrams, sent or waiting.
    pub records: u64,
    /// Packets that records have added.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Records that are not exported because they are not of IP.
    pub not_ip: u64,
    /// Datagrams that wait.
    pub waiting: usize,
    /// Records beyond the limit of the queue, or that came while no collector was found.
    pub lost_records: u64,
    /// Datagrams that were lost here, by cause.
    pub lost: LostDatagrams,
    /// What is kept on disk, when there is a place for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spool: Option<SpoolStatus>,
}

/// What is kept on disk for a collector.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
pub struct SpoolStatus {
    /// Datagrams.
    pub datagrams: u64,
    /// Bytes of files.
    pub bytes: u64,
    /// Datagrams that were put there since the start.
    pub kept: u64,
}

/// Datagrams by cause of their loss.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
pub struct LostDatagrams {
    /// The queue was full.
    pub queue_full: u64,
    /// Nobody was there.
    pub send_refused: u64,
    /// The host, or a route to it, was not there.
    pub unreachable: u64,
    /// They were sent, and no answer came.
    pub unanswered: u64,
    /// The socket's buffer was full.
    pub would_block: u64,
    /// Anything else that the kernel said.
    pub send_failed: u64,
    /// The spool was full: the oldest go.
    pub spool_full: u64,
    /// They could not be written into the spool.
    pub spool_failed: u64,
    /// Places in the spool that could not be read, of at least one datagram each.
    pub spool_corrupt: u64,
}

skua_process::metrics! { "Export to collectors"
    DATAGRAMS counter "skua_export_datagrams_total" ["collector"] "Datagrams that were sent to a collector and not refused.";
    RECORDS counter "skua_export_records_total" ["collector"] "Records of flows in datagrams to a collector.";
    PACKETS counter "skua_export_packets_total" ["collector"] "Packets in records to a collector.";
    BYTES counter "skua_export_bytes_total" ["collector"] "Bytes in records to a collector.";
    NOT_IP counter "skua_export_not_ip_total" ["collector"] "Records that are not exported because they are not of IP.";
    WAITING gauge "skua_export_waiting" ["collector"] "Datagrams that wait to be sent to a collector.";
    UP gauge "skua_export_up" ["collector"] "1 while a collector takes what it is sent, as far as its answers and ICMP tell; 0 while others have its part.";
    ANSWERS gauge "skua_export_answers" ["collector"] "1 when a collector has answered: else only ICMP shows whether it is there.";
    SPOOL_DATAGRAMS gauge "skua_export_spool_datagrams" ["collector"] "Datagrams on disk until a collector is there.";
    SPOOL_BYTES gauge "skua_export_spool_bytes" ["collector"] "Bytes of files with datagrams until a collector is there.";
    SPOOL_KEPT counter "skua_export_spool_kept_total" ["collector"] "Datagrams that were put on disk because a collector was gone.";
    FAILOVERS counter "skua_export_failovers_total" ["collector"] "Times that other collectors took a collector's part.";
    LOST_RECORDS counter "skua_export_lost_records_total" ["collector"] "Records that were dropped as the queue to a collector was full, or while no collector was found.";
    LOST_DATAGRAMS counter "skua_export_lost_datagrams_total" ["collector", "cause"] "Datagrams to a collector that were lost here, by cause.";
}

/// For /metrics.
pub fn write_metrics(out: &mut Exposition, all: &[ExportStatus]) {
    type Read = fn(&ExportStatus) -> u64;
    let of_each: [(&'static Metric<1>, Read); 13] = [
        (&DATAGRAMS, |s| s.datagrams),
        (&RECORDS, |s| s.records),
        (&PACKETS, |s| s.packets),
        (&BYTES, |s| s.bytes),
        (&NOT_IP, |s| s.not_ip),
        (&WAITING, |s| s.waiting as u64),
        (&UP, |s| s.up.into()),
        (&ANSWERS, |s| s.answers.into()),
        (&SPOOL_DATAGRAMS, |s| {
            s.spool.map_or(0, |spool| spool.datagrams)
        }),
        (&SPOOL_BYTES, |s| s.spool.map_or(0, |spool| spool.bytes)),
        (&SPOOL_KEPT, |s| s.spool.map_or(0, |spool| spool.kept)),
        (&FAILOVERS, |s| s.failovers),
        (&LOST_RECORDS, |s| s.lost_records),
    ];
    for (metric, read) in of_each {
        let mut samples = out.family(metric);
        for status in all {
            samples.value([&status.collector], read(status));
        }
    }
    let mut samples = out.family(&LOST_DATAGRAMS);
    for status in all {
        let lost = &status.lost;
        for (cause, datagrams) in [
            ("queue_full", lost.queue_full),
            ("send_refused", lost.send_refused),
            ("unreachable", lost.unreachable),
            ("unanswered", lost.unanswered),
            ("would_block", lost.would_block),
            ("send_failed", lost.send_failed),
            ("spool_full", lost.spool_full),
            ("spool_failed", lost.spool_failed),
            ("spool_corrupt", lost.spool_corrupt),
        ] {
            samples.value([&status.collector, cause], datagrams);
        }
    }
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

/// Lines of the doctor.
pub fn print(out: &mut impl Write, status: &Value) -> io::Result<()> {
    for collector in each(status) {
        let kept = number(&collector["spool"]["datagrams"]);
        let kept = match kept {
            0 => String::new(),
            kept => format!(", {} on disk until it is there", output::count(kept)),
        };
        writeln!(
            out,
            "collector {}{}: {} records in {} datagrams{kept}",
            collector["collector"].as_str().unwrap_or_default(),
            match collector["up"].as_bool() {
                _ if collector["address"].is_null() => " (the name is not found)",
                _ if collector["left"] == true => " (its name does not mean it any more)",
                Some(false) => " (not there, others have its part)",
                _ => "",
            },
            output::count(number(&collector["records"])),
            output::count(number(&collector["datagrams"])),
        )?;
    }
    Ok(())
}

/// What is lost, and what helps.
pub fn advise(status: &Value, advice: &mut Vec<String>) {
    for collector in each(status) {
        let name = collector["collector"].as_str().unwrap_or_default();
        let lost = &collector["lost"];
        if collector["address"].is_null() {
            let lost = output::count(number(&collector["lost_records"]));
            advice.push(format!(
                "the collector {name} is not found in the DNS, nor in /etc/hosts; {lost} records lost as there was no other"
            ));
        }
        for (cause, what) in [
            (
                "queue_full",
                "were dropped as the queue was full (export.queue)",
            ),
            ("send_refused", "were refused: nobody listens there"),
            ("unreachable", "did not get there: the host is unreachable"),
            ("unanswered", "were not answered: it is gone"),
            ("would_block", "were dropped as the socket was full"),
            ("send_failed", "could not be sent"),
            (
                "spool_full",
                "went because the spool was full (export.spool.max_bytes)",
            ),
            (
                "spool_failed",
                "could not be written into the spool: is the disk full?",
            ),
            ("spool_corrupt", "or more could not be read in the spool"),
        ] {
            if number(&lost[cause]) > 0 {
                let lost = number(&lost[cause]);
                advice.push(format!("{lost} datagrams to the collector {name} {what}"));
            }
        }
    }
}
