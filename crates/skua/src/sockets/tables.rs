//! Tables of sockets, services and dependencies.

use serde_json::Value;

use crate::output::{self, Column, bytes, count, endpoint, text};

const fn column(title: &'static str, right: bool, rank: u8, cell: fn(&Value) -> String) -> Column {
    Column {
        title,
        right,
        rank,
        cell,
    }
}

/// What a process runs in: container, else unit.
pub fn place(value: &Value) -> String {
    for name in ["container", "pod", "unit"] {
        match value[name].as_str() {
            None => {}
            // An id, of which runtimes show 12 digits.
            Some(id) if id.len() == 64 && id.bytes().all(|b| b.is_ascii_hexdigit()) => {
                return id[..12].to_owned();
            }
            Some(name) => return name.to_owned(),
        }
    }
    String::new()
}

fn optional(value: &Value, show: impl FnOnce(u64) -> String) -> String {
    value.as_u64().map(show).unwrap_or_default()
}

fn microseconds(value: &Value) -> String {
    match value.as_f64() {
        None => String::new(),
        Some(us) => output::nanoseconds((us * 1e3) as u64),
    }
}

fn state(socket: &Value) -> String {
    match socket["end"].as_str() {
        None => text(&socket["state"]),
        Some("error") => format!("errno {}", socket["errno"]),
        Some(end) => end.to_owned(),
    }
}

fn opener(socket: &Value) -> String {
    match socket["opened_by"].as_str() {
        Some("local") => "->",
        Some("remote") => "<-",
        _ => "",
    }
    .to_owned()
}

fn age(socket: &Value) -> String {
    optional(&socket["age"], |ns| match ns {
        0..1_000_000_000 => output::nanoseconds(ns),
        _ => output::duration(ns),
    })
}

fn remote(socket: &Value) -> String {
    if socket["remote"].is_null() {
        return optional(&socket["backlog"]["waiting"], |waiting| {
            format!("{waiting} of {} wait", socket["backlog"]["limit"])
        });
    }
    endpoint(&socket["remote"])
}

/// Columns of `skua sockets`.
pub const SOCKETS: [Column; 21] = [
    column("PROTO", false, 5, |s| text(&s["protocol"])),
    column("PROCESS", false, 0, |s| text(&s["process"])),
    column("PID", true, 4, |s| optional(&s["pid"], |n| n.to_string())),
    column("USER", false, 9, |s| text(&s["user"])),
    column("CONTAINER/UNIT", false, 8, place),
    column("LOCAL", false, 0, |s| endpoint(&s["local"])),
    column("", false, 1, opener),
    column("REMOTE", false, 0, remote),
    column("STATE", false, 3, state),
    column("AGE", true, 6, age),
    column("SENT", true, 1, |s| optional(&s["sent"]["bytes"], bytes)),
    column("RECEIVED", true, 1, |s| {
        optional(&s["received"]["bytes"], bytes)
    }),
    column("RTT", true, 2, |s| microseconds(&s["tcp"]["srtt"])),
    column("RTTVAR", true, 10, |s| microseconds(&s["tcp"]["rttvar"])),
    column("MIN RTT", true, 10, |s| microseconds(&s["tcp"]["min_rtt"])),
    column("RETRANS", true, 7, |s| {
        optional(&s["tcp"]["retransmits"], count)
    }),
    column("LOST", true, 11, |s| optional(&s["tcp"]["lost"], count)),
    column("CWND", true, 12, |s| optional(&s["tcp"]["cwnd"], count)),
    column("MSS", true, 12, |s| optional(&s["tcp"]["mss"], count)),
    column("RATE", true, 11, |s| {
        optional(&s["tcp"]["delivery_rate"], |rate| {
            output::bit_rate(rate as f64 * 8.0)
        })
    }),
    column("SEGMENTS", true, 13, |s| {
        optional(&s["sent"]["segments"], |sent| {
            format!(
                "{}/{}",
                count(sent),
                optional(&s["received"]["segments"], count)
            )
        })
    }),
];

fn caller(end: &Value) -> String {
    let (name, address) = (text(&end["service"]), text(&end["address"]));
    if name.is_empty() { address } else { name }
}

fn called(calls: &Value) -> String {
    let name = text(&calls["server"]["service"]);
    let at = endpoint(&serde_json::json!({
        "address": calls["server"]["address"], "port": calls["port"],
    }));
    match (name.is_empty(), calls["server"]["address"].is_null()) {
        (true, _) => at,
        (false, true) => format!("{name}:{}", calls["port"]),
        (false, false) => format!("{name} {at}"),
    }
}

fn service(calls: &Value) -> String {
    let end = if calls["server"].is_null() {
        &calls["client"]
    } else {
        &calls["server"]
    };
    match text(&end["service"]) {
        name if name.is_empty() => match text(&end["address"]) {
            // A port that somebody listens on whom we do not know.
            _ if !calls["server"].is_null() => "?".to_owned(),
            address => address,
        },
        name => name,
    }
}

fn number(value: &Value) -> String {
    count(value.as_u64().unwrap_or(0))
}

fn rate(calls: &Value) -> String {
    match calls["rate"].as_f64() {
        Some(rate) if rate >= 99.5 => format!("{rate:.0}"),
        Some(rate) if rate > 0.0 => format!("{rate:.1}"),
        _ => "-".to_owned(),
    }
}

fn share(calls: &Value) -> String {
    calls["segments"]["share"]
        .as_f64()
        .map(|share| format!("{:.2}%", share * 100.0))
        .unwrap_or_default()
}

fn size(value: &Value) -> String {
    bytes(value.as_u64().unwrap_or(0))
}

const CONNECTIONS: Column = column("CONNS", true, 0, |c| number(&c["connections"]));
const NEW: Column = column("NEW/S", true, 1, rate);
const OPEN: Column = column("OPEN", true, 1, |c| number(&c["open"]));
const FAILED: Column = column("FAILED", true, 2, |c| number(&c["failed"]));
const RESET: Column = column("RESET", true, 5, |c| number(&c["reset"]));
const TIMED_OUT: Column = column("TIMED OUT", true, 8, |c| number(&c["timed_out"]));
const TO_SERVER: Column = column("TO SERVER", true, 3, |c| size(&c["bytes"]["to_server"]));
const TO_CLIENT: Column = column("TO CLIENT", true, 3, |c| size(&c["bytes"]["to_client"]));
const P50: Column = column("RTT P50", true, 4, |c| microseconds(&c["rtt"]["p50"]));
const P95: Column = column("P95", true, 6, |c| microseconds(&c["rtt"]["p95"]));
const P99: Column = column("P99", true, 6, |c| microseconds(&c["rtt"]["p99"]));
const RETRANSMITTED: Column = column("RETRANS", true, 7, share);

/// Columns of `skua services`, with or without `--clients`.
pub const SERVICES: [Column; 16] = [
    column("SERVICE", false, 0, service),
    column("PROTO", false, 1, |c| text(&c["protocol"])),
    column("PORT", true, 0, |c| optional(&c["port"], |p| p.to_string())),
    column("PEERS", true, 4, |c| number(&c["peers"])),
    CONNECTIONS,
    NEW,
    OPEN,
    FAILED,
    RESET,
    TIMED_OUT,
    TO_SERVER,
    TO_CLIENT,
    P50,
    P95,
    P99,
    RETRANSMITTED,
];

/// Columns of `skua services --dependencies`.
pub const DEPENDENCIES: [Column; 15] = [
    column("CLIENT", false, 0, |c| caller(&c["client"])),
    column("SERVER", false, 0, called),
    column("PROTO", false, 5, |c| text(&c["protocol"])),
    CONNECTIONS,
    NEW,
    OPEN,
    FAILED,
    RESET,
    TIMED_OUT,
    TO_SERVER,
    TO_CLIENT,
    P50,
    P95,
    P99,
    RETRANSMITTED,
];

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: &str = r#"{"protocol":"tcp","state":"established","process":"curl","pid":9131,"user":"root","unit":"cron.service","local":{"address":"10.0.0.1","port":60022},"remote":{"address":"10.0.0.2","port":8000},"opened_by":"local","age":2200000,"sent":{"bytes":77,"segments":7},"received":{"bytes":1229,"segments":5},"tcp":{"srtt":83,"rttvar":100,"min_rtt":10,"retransmits":0,"lost":0,"cwnd":12,"mss":1448,"delivery_rate":3890000}}"#;
    const SERVER: &str = r#"{"protocol":"tcp","state":"established","process":"nginx","pid":8012,"user":"www-data","container":"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef","local":{"address":"10.0.0.2","port":8000},"remote":{"address":"10.0.0.1","port":60022},"opened_by":"remote","end":"reset-remote","age":90000000000,"sent":{"bytes":1229,"segments":5},"received":{"bytes":77,"segments":7},"tcp":{"srtt":25000,"rttvar":9,"min_rtt":11,"retransmits":3,"lost":1,"cwnd":13,"mss":1448}}"#;
    const WAITS: &str = r#"{"protocol":"tcp","state":"listen","process":"nginx","pid":8012,"local":{"address":"::","port":8000},"backlog":{"waiting":2,"limit":511}}"#;

    fn table(columns: &'static [Column], lines: &[&str], width: usize) -> Vec<String> {
        let mut out = Vec::new();
        let lines = lines.join("\n");
        output::table(&mut out, columns, lines.as_bytes(), usize::MAX, width).unwrap();
        let text = String::from_utf8(out).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn sockets_fit_a_terminal_of_80_columns() {
        assert_eq!(
            table(&SOCKETS, &[CLIENT, SERVER], 80),
            [
                "PROCESS  LOCAL               REMOTE             SENT  RECEIVED      RTT",
                "curl     10.0.0.1:60022  ->  10.0.0.2:8000      77 B   1.2 KiB    83 us",
                "nginx    10.0.0.2:8000   <-  10.0.0.1:60022  1.2 KiB      77 B  25.0 ms",
            ]
        );
        for width in 30..250 {
            let lines = table(&SOCKETS, &[CLIENT, SERVER, WAITS], width);
            let fits = |line: &String| line.chars().count() <= width;
            assert!(lines.iter().all(fits), "{width}: {lines:?}");
        }
    }

    #[test]
    fn all_columns_of_sockets() {
        assert_eq!(
            table(&SOCKETS, &[CLIENT, SERVER], usize::MAX),
            [
                "PROTO  PROCESS   PID  USER      CONTAINER/UNIT  LOCAL               REMOTE          STATE            AGE     SENT  RECEIVED      RTT  RTTVAR  MIN RTT  RETRANS  LOST  CWND   MSS         RATE  SEGMENTS",
                "tcp    curl     9131  root      cron.service    10.0.0.1:60022  ->  10.0.0.2:8000   established   2.2 ms     77 B   1.2 KiB    83 us  100 us    10 us        0     0    12  1448  31.1 Mbit/s       7/5",
                "tcp    nginx    8012  www-data  0123456789ab    10.0.0.2:8000   <-  10.0.0.1:60022  reset-remote   1m30s  1.2 KiB      77 B  25.0 ms    9 us    11 us        3     1    13  1448                    5/7",
            ]
        );
    }

    #[test]
    fn what_waits_has_its_backlog() {
        assert_eq!(
            table(&SOCKETS, &[WAITS], 80),
            [
                "PROTO  PROCESS   PID  LOCAL      REMOTE         STATE",
                "tcp    nginx    8012  [::]:8000  2 of 511 wait  listen",
            ]
        );
    }

    const CALLS: &str = r#"{"protocol":"tcp","client":{"service":"curl"},"server":{"service":"nginx","address":"10.0.0.2"},"port":443,"connections":1234567,"open":41,"rate":12.54,"failed":2,"refused":1,"timed_out":1,"reset":3,"bytes":{"to_server":2048,"to_client":1048576},"rtt":{"samples":9,"min":90,"mean":1000,"p50":1100.4,"p95":6200.2,"p99":15000.1,"max":20000},"segments":{"sent":1000,"retransmitted":1,"share":0.001}}"#;

    #[test]
    fn services_and_dependencies_in_80_columns() {
        let server = CALLS.replace(r#""client":{"service":"curl"},"#, "");
        let server = server.replace(r#""port":443,"#, r#""port":443,"peers":7,"#);
        assert_eq!(
            table(&SERVICES, &[&server], 80),
            [
                "SERVICE  PROTO  PORT  CONNS  NEW/S  OPEN  FAILED  TO SERVER  TO CLIENT",
                "nginx    tcp     443   1.2M   12.5    41       2    2.0 KiB    1.0 MiB",
            ]
        );
        assert_eq!(
            table(&DEPENDENCIES, &[CALLS], 80),
            [
                "CLIENT  SERVER              CONNS  NEW/S  OPEN  FAILED  TO SERVER  TO CLIENT",
                "curl    nginx 10.0.0.2:443   1.2M   12.5    41       2    2.0 KiB    1.0 MiB",
            ]
        );
        let wide = table(&SERVICES, &[&server], usize::MAX);
        assert!(
            wide[1].ends_with("1.1 ms  6.2 ms  15.0 ms    0.10%"),
            "{wide:?}"
        );
    }

    #[test]
    fn who_is_not_known_is_an_address() {
        let unknown = r#"{"protocol":"udp","client":{"address":"192.0.2.1"},"server":{"address":"fd00::2"},"port":53,"connections":1,"open":0,"rate":0,"failed":0,"reset":0,"timed_out":0,"bytes":{"to_server":0,"to_client":0}}"#;
        let lines = table(&DEPENDENCIES, &[unknown], 80);
        assert!(lines[1].starts_with("192.0.2.1  [fd00::2]:53"), "{lines:?}");
    }
}
