//! What is sent is what the schema in `proto/` says, by protobuf's own compiler.

use std::{
    io::Write as _,
    process::{Command, Stdio},
};

use skua_collect::graph::GraphLine;
use skua_kafka::LineMessage;

use crate::support::line;

#[test]
#[ignore = "wants protoc: make test-kafka"]
fn protoc_reads_every_field_by_its_name() {
    let mut bytes = Vec::new();
    skua_kafka::encode(&line(7), &mut bytes);
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../proto");
    let mut protoc = Command::new("protoc")
        .args(["--decode=skua.collect.v1.Line", "-I", folder])
        .arg("skua/collect/v1/line.proto")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    protoc.stdin.take().unwrap().write_all(&bytes).unwrap();
    let output = protoc.wait_with_output().unwrap();
    assert!(output.status.success());
    let expected = "\
version: 1
window_ns: 1800000000000000000
length_ns: 10000000000
protocol: 6
client_address: \"10.0.0.7\"
server_address: \"2001:db8::1\"
port: 443
service_by: \"kernel\"
client_packets: 9
client_bytes: 9000
server_packets: 10
server_bytes: 10000
client_retransmitted: 13
server_retransmitted: 14
begun: 15
ended: 16
reset: 17
handshakes: 18
handshake_sum_us: 19
handshake_min_us: 20
handshake_max_us: 21
client_ports: 50001
client_ports: 50002
client_ports_beyond: 23
records: 24
samples: 25
agents: 3
joined: 27
between_client_packets: 28
between_client_bytes: 28000
between_server_packets: 30
between_server_bytes: 30000
client_service: \"curl\"
server_service: \"web.service\"
refused: 32
timed_out: 33
rtts: 3
rtt_sum_us: 1800
rtt_min_us: 100
rtt_max_us: 1600
rtt_classes {
  us: 99
  times: 2
}
rtt_classes {
  us: 1579
  times: 1
}
";
    assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
}

#[test]
fn fields_of_a_newer_schema_are_stepped_over_and_another_version_is_not_counted() {
    let mut message = LineMessage::of(&line(7)).unwrap();
    let mut bytes = Vec::new();
    skua_kafka::encode(&line(7), &mut bytes);
    // Field 200, a string.
    bytes.extend(b"\xc2\x0c\x05newer");
    assert_eq!(LineMessage::read(&bytes).unwrap(), message);
    assert_eq!(message.graph_line(), Some(GraphLine::from(&line(7))));
    message.version += 1;
    assert_eq!(message.graph_line(), None);
}
