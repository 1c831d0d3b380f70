//! The same in Suricata's form (EVE JSON), so that its tests and tools can be used.

use serde_json::{Map, Value, json};
use skua_record::time::UnixNs;

use crate::{
    HelloSent,
    dns::{Data, Dialect, Message, Resource, Sent, flag, numbers},
};

/// The line of a message of DNS as Suricata 8 writes it (version 3 of its records), `packet` being its packet's place in
/// the file, from 1 on.
pub fn dns(sent: &Sent<'_>, packet: u64) -> Value {
    let message = sent.message;
    let mut dns = Map::new();
    let answer = message.is_answer();
    let mdns = sent.dialect() == Dialect::Mdns;
    if !mdns {
        dns.insert("version".into(), json!(3));
    }
    dns.insert(
        "type".into(),
        json!(if answer { "response" } else { "request" }),
    );
    dns.insert("tx_id".into(), json!(0));
    dns.insert("id".into(), json!(message.id));
    dns.insert("flags".into(), json!(format!("{:x}", message.flags)));
    for (bit, name) in [
        (flag::QR, "qr"),
        (flag::AA, "aa"),
        (flag::TC, "tc"),
        (flag::RD, "rd"),
        (flag::RA, "ra"),
        (flag::Z, "z"),
    ] {
        if message.flags & bit != 0 {
            dns.insert(name.into(), true.into());
        }
    }
    dns.insert("opcode".into(), json!(message.opcode()));
    if answer {
        dns.insert("rcode".into(), json!(numbers::code(message.code())));
    }
    let kind = |number: u16| match mdns {
        true => numbers::kind(number).to_lowercase(),
        false => numbers::kind(number).into_owned(),
    };
    let questions: Vec<Value> = message
        .questions
        .iter()
        .map(|q| json!({"rrname": q.name, "rrtype": kind(q.kind)}))
        .collect();
    if !questions.is_empty() {
        dns.insert("queries".into(), questions.into());
    }
    if answer {
        let names = ["answers", "authorities", "additionals"];
        for (name, section) in names.into_iter().zip(&message.sections) {
            let records = section.iter().flat_map(|r| records(r, &kind, mdns));
            let records: Vec<Value> = records.collect();
            if !records.is_empty() {
                dns.insert(name.into(), records.into());
            }
        }
        let grouped = grouped(message);
        if !grouped.is_empty() && !mdns {
            dns.insert("grouped".into(), grouped.into());
        }
    }
    let event = if mdns { "mdns" } else { "dns" };
    json!({
        "timestamp": UnixNs(sent.time_ns).to_string(),
        "pcap_cnt": packet,
        "event_type": event,
        "src_ip": sent.from.ip(),
        "src_port": sent.from.port(),
        "dest_ip": sent.to.ip(),
        "dest_port": sent.to.port(),
        "proto": if sent.tcp { "TCP" } else { "UDP" },
        event: dns,
    })
}

/// A resource record; each text of DNS (TXT) is one of its own.
fn records(one: &Resource, kind: &dyn Fn(u16) -> String, mdns: bool) -> Vec<Value> {
    let Data::Text(texts) = &one.data else {
        return vec![record(one, kind, mdns)];
    };
    if mdns {
        return vec![record(one, kind, mdns)];
    }
    let each = texts.iter().map(|text| Resource {
        data: Data::Text(vec![text.clone()]),
        ..one.clone()
    });
    each.map(|one| record(&one, kind, mdns)).collect()
}

/// The line of a client's first message of TLS, as far as Suricata's has the same.
pub fn tls(sent: &HelloSent, packet: u64) -> Value {
    let hello = &sent.hello;
    let mut tls = Map::new();
    if !hello.server_name.is_empty() {
        tls.insert("sni".into(), json!(hello.server_name));
    }
    if !hello.protocols.is_empty() {
        tls.insert("client_alpns".into(), json!(hello.protocols));
    }
    tls.insert("ja4".into(), json!(hello.ja4));
    json!({
        "timestamp": UnixNs(sent.time_ns).to_string(),
        "pcap_cnt": packet,
        "event_type": "tls",
        "src_ip": sent.from.ip(),
        "src_port": sent.from.port(),
        "dest_ip": sent.to.ip(),
        "dest_port": sent.to.port(),
        "proto": "TCP",
        "tls": tls,
    })
}

fn record(record: &Resource, kind: &dyn Fn(u16) -> String, mdns: bool) -> Value {
    let mut line = Map::new();
    line.insert("rrname".into(), json!(record.name));
    line.insert("rrtype".into(), json!(kind(record.kind)));
    line.insert("ttl".into(), json!(record.ttl));
    let (name, value) = match &record.data {
        Data::Address(_) | Data::Name(_) | Data::Mail { .. } if !mdns => {
            ("rdata", text(&record.data).into())
        }
        Data::Name(name) => (
            match record.kind {
                numbers::PTR => "ptr",
                numbers::CNAME => "cname",
                _ => "rdata",
            },
            json!(name),
        ),
        Data::Text(texts) if mdns => ("txt", json!(texts)),
        Data::Text(texts) => ("rdata", texts.concat().into()),
        Data::Service {
            numbers: [priority, weight, port],
            target,
        } => (
            "srv",
            json!({"priority": priority, "weight": weight, "port": port, "name": target}),
        ),
        Data::Authority {
            mname,
            rname,
            numbers: [serial, refresh, retry, expire, minimum],
        } => (
            "soa",
            json!({"mname": mname, "rname": rname, "serial": serial, "refresh": refresh, "retry": retry,
                "expire": expire, "minimum": minimum}),
        ),
        Data::Fingerprint {
            numbers: [algorithm, kind],
            print,
        } => {
            let print: Vec<String> = print.iter().map(|byte| format!("{byte:02x}")).collect();
            (
                "sshfp",
                json!({"fingerprint": print.join(":"), "algo": algorithm, "type": kind}),
            )
        }
        other => ("rdata", text(other).into()),
    };
    line.insert(name.into(), value);
    line.into()
}

fn text(data: &Data) -> String {
    match data {
        Data::Mail { exchange, .. } => exchange.clone(),
        Data::Other(bytes) => {
            let escaped = bytes.iter().map(|byte| match byte {
                ..0x80 => char::from(*byte).to_string(),
                byte => format!("\\x{byte:02x}"),
            });
            escaped.collect()
        }
        other => other.to_string(),
    }
}

/// Data of the answers by type.
fn grouped(message: &Message) -> Map<String, Value> {
    let mut groups = Map::new();
    for answer in message.answers() {
        let kind = |number| numbers::kind(number).into_owned();
        for line in records(answer, &kind, false) {
            let data = ["rdata", "srv", "soa", "sshfp"]
                .into_iter()
                .find_map(|name| line.get(name));
            let group = groups.entry(numbers::kind(answer.kind));
            if let (Value::Array(list), Some(data)) = (group.or_insert_with(|| json!([])), data) {
                list.push(data.clone());
            }
        }
    }
    groups
}
