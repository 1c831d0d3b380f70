//! Lines of collectors.

use std::num::NonZeroU32;

use skua_collect::{
    Collector, CollectorConfig, Drain, Enrichment, Exporter, ExporterConfig, Offered, Tcp,
};
use skua_flow::FlowRecord;
use skua_wire::sflow::{Name, ServiceName};

use super::*;

/// Calls the client `shop` and the server `payments`.
struct Names;

impl Enrichment for Names {
    fn name(&self, owner: NonZeroU32) -> Option<Name<'_>> {
        Some(Name {
            by: ServiceName::Unit,
            process: "sh",
            unit: ["shop", "payments"].get(owner.get() as usize - 1)?,
            ..Name::default()
        })
    }

    fn tcp(&self, _: &FlowRecord) -> Option<Tcp> {
        None
    }
}

#[test]
fn top_talkers_of_a_fleet_can_be_queried_by_the_names_of_services() {
    let place = TestLake::new();
    let writer = Writer::open(&place.config(), Table::Services).unwrap();
    let mut collector = Collector::new(&CollectorConfig::default());
    let now = BEGIN + 2 * SECOND;
    let mut exporter = Exporter::new(ExporterConfig {
        agent: [10, 0, 0, 1].into(),
        sub_agent: 0,
        instance: 7,
        started_ns: BEGIN,
        datagram: 1_400,
        both_directions: false,
    });
    let mut records: Vec<FlowRecord> = (1..=20).map(|number| record(number, 0)).collect();
    for (number, record) in records.iter_mut().enumerate() {
        record.owners = [NonZeroU32::new(1), NonZeroU32::new(2)];
        if number < 4 {
            // The attempt was answered with RST.
            record.tcp.flags = [0x02, 0x14];
            record.end = Some(EndReason::Closed);
        }
    }
    let drain = Drain {
        enrichment: &Names,
        ..Drain::at(now)
    };
    exporter.export(records.iter(), &drain, |bytes| {
        collector.datagram(std::net::IpAddr::from([10, 0, 0, 1]), bytes, now);
        Offered::Queued
    });
    let mut sent = 0;
    let mut times = 0;
    collector.finish(now, &mut |line| {
        sent += line.client_sent.packets;
        times += line.rtt.sums.count;
        writer.line("collector-1", line);
    });
    assert!(writer.flush(MINUTE));
    let us = (BEGIN / 1_000) as i64;
    let ask_by = |by: &[&str]| {
        let mut question = Question::new(Table::Services, us - 60_000_000, us + 60_000_000);
        let fields = by
            .iter()
            .map(|name| crate::query::Field::named(Table::Services, name));
        question.by = fields.map(Result::unwrap).collect();
        lines(&ask(&place.lake(), question))
    };
    let groups = ask_by(&["client_service", "server_service"]);
    assert_eq!(groups.len(), 1, "{groups:?}");
    assert_eq!(groups[0]["client_service"], "shop");
    assert_eq!(groups[0]["server_service"], "payments");
    assert_eq!(groups[0]["received"]["packets"], sent);
    let sum = |name: &str| {
        let groups = ask_by(&["client", name]);
        let values = groups
            .iter()
            .map(|group| group[name].as_i64().unwrap() * group["rows"].as_i64().unwrap_or(1));
        values.sum::<i64>()
    };
    assert_eq!(sum("refused"), 4);
    assert!(times > 0);
    assert_eq!(sum("round_trip_count"), times as i64);
}
