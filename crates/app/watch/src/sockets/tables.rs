//! Tables of sockets, services and dependencies.

pub use skua_top::columns::{DEPENDENCIES, SERVICES, SOCKETS, place};

#[cfg(test)]
mod tests {
    use super::*;
    use skua_output as output;
    use skua_output::Column;

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
