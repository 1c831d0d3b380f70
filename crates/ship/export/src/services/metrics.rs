//! Metrics of services and of links between them: how many connections (rate), how many failed, how long a round trip takes,
//! what was sent again.

use std::collections::{BTreeMap, BTreeSet};

use skua_collect::graph::{Edge, EdgeKey, EdgeSums};
use skua_process::metrics::{Exposition, Metric};

skua_process::metrics! { "Services"
    CONNECTIONS counter "skua_service_connections_total" ["service", "protocol", "port"] "Connections to a service and attempts; conversations where there are no connections.";
    FAILURES counter "skua_service_failures_total" ["service", "protocol", "port", "cause"] "Connections to a service that failed: refused, timed_out (not answered), or reset after an answer.";
    BYTES counter "skua_service_bytes_total" ["service", "protocol", "port", "sent_by"] "Bytes between a service and its clients, with link-layer headers.";
    RETRANSMITTED counter "skua_service_retransmitted_segments_total" ["service", "protocol", "port", "sent_by"] "Segments between a service and its clients that came again.";
    RTT counter "skua_service_rtt_seconds_total" ["service", "protocol", "port"] "Sum of round-trip times between a service and its clients, one of each conversation and window.";
    RTTS counter "skua_service_rtt_samples_total" ["service", "protocol", "port"] "Round-trip times in that sum.";
    LINK_CONNECTIONS counter "skua_link_connections_total" ["client", "service", "protocol", "port"] "Connections and attempts of a client to a service.";
    LINK_FAILURES counter "skua_link_failures_total" ["client", "service", "protocol", "port", "cause"] "Connections of a client to a service that failed, by cause; those that never did have no series.";
    LINK_BYTES counter "skua_link_bytes_total" ["client", "service", "protocol", "port", "sent_by"] "Bytes between a client and a service.";
    LINK_RETRANSMITTED counter "skua_link_retransmitted_segments_total" ["client", "service", "protocol", "port", "sent_by"] "Segments between a client and a service that came again; without any there is no series.";
    LINK_RTT counter "skua_link_rtt_seconds_total" ["client", "service", "protocol", "port"] "Sum of round-trip times between a client and a service.";
    LINK_RTTS counter "skua_link_rtt_samples_total" ["client", "service", "protocol", "port"] "Round-trip times in that sum.";
    LEFT_OUT gauge "skua_services_left_out" ["kind"] "Services and links without series of their own, because there are too many: their sums are under (others).";
}

/// Services with series of their own.
const SERVICES: usize = 100;
/// Links with series of their own.
const LINKS: usize = 200;
/// All others.
const OTHERS: &str = "(others)";

/// Labels of a service: its name or address, protocol, port.
type Service = [String; 3];
/// Labels of a link: the client before them.
type Link = [String; 4];

/// Which have series of their own: those with the most bytes when they came, and then for as long as they are known, so that
/// no counter goes back.
#[derive(Debug)]
pub(super) struct Series {
    services: Shown<Service>,
    links: Shown<Link>,
}

#[derive(Debug)]
struct Shown<K> {
    keys: BTreeSet<K>,
    most: usize,
}

impl Default for Series {
    fn default() -> Self {
        Self::with(SERVICES, LINKS)
    }
}

impl Series {
    fn with(services: usize, links: usize) -> Self {
        Self {
            services: Shown::new(services),
            links: Shown::new(links),
        }
    }
}

/// What is counted of a service, or of a link.
#[derive(Clone, Copy, Default)]
struct Sums {
    connections: u64,
    failures: [u64; 3],
    bytes: [u64; 2],
    retransmitted: [u64; 2],
    rtt_us: u64,
    rtts: u64,
}

const CAUSES: [&str; 3] = ["refused", "timed_out", "reset"];
const SIDES: [&str; 2] = ["client", "server"];

impl Sums {
    fn add(&mut self, sums: &EdgeSums) {
        let add = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more);
        add(&mut self.connections, sums.connections);
        let failures = [sums.refused, sums.timed_out, sums.reset];
        for (sum, more) in self.failures.iter_mut().zip(failures) {
            add(sum, more);
        }
        for side in 0..2 {
            add(&mut self.bytes[side], sums.sent[side].bytes);
            add(&mut self.retransmitted[side], sums.retransmitted[side]);
        }
        add(&mut self.rtt_us, sums.rtt_sum_us);
        add(&mut self.rtts, sums.rtt_count);
    }
}

fn service(key: &EdgeKey) -> Service {
    [
        key.server.to_string(),
        skua_output::protocol(key.protocol).to_string(),
        key.port.to_string(),
    ]
}

fn link(key: &EdgeKey) -> Link {
    let [name, protocol, port] = service(key);
    [key.client.to_string(), name, protocol, port]
}

impl<K: Ord + Clone> Shown<K> {
    fn new(most: usize) -> Self {
        Self {
            keys: BTreeSet::new(),
            most,
        }
    }

    /// Sums by key, the others under `others`; and how many these are. Edges with most bytes come first.
    fn sums(
        &mut self,
        edges: &[Edge],
        key: impl Fn(&EdgeKey) -> K,
        others: K,
    ) -> (BTreeMap<K, Sums>, usize) {
        let keys: Vec<K> = edges.iter().map(|edge| key(&edge.key)).collect();
        let known: BTreeSet<&K> = keys.iter().collect();
        self.keys.retain(|key| known.contains(key));
        let (mut sums, mut left_out) = (BTreeMap::<K, Sums>::new(), BTreeSet::new());
        for (key, edge) in keys.iter().zip(edges) {
            if self.keys.len() < self.most {
                self.keys.insert(key.clone());
            }
            let under = match self.keys.contains(key) {
                true => key,
                false => {
                    left_out.insert(key);
                    &others
                }
            };
            sums.entry(under.clone()).or_default().add(&edge.sums);
        }
        (sums, left_out.len())
    }
}

fn labels<'a, const N: usize>(key: &'a [String], more: &'a [&str]) -> [&'a str; N] {
    let mut all = key.iter().map(String::as_str).chain(more.iter().copied());
    std::array::from_fn(|_| all.next().unwrap_or_default())
}

/// The metrics of services, or of links.
struct Of<const N: usize, const M: usize> {
    connections: &'static Metric<N>,
    failures: &'static Metric<M>,
    bytes: &'static Metric<M>,
    retransmitted: &'static Metric<M>,
    rtt: &'static Metric<N>,
    rtts: &'static Metric<N>,
    /// Also failures and retransmits that never were: of services, so that their first one is seen to be new.
    zeros: bool,
}

impl<const N: usize, const M: usize> Of<N, M> {
    fn write(&self, out: &mut Exposition, sums: &BTreeMap<[String; N], Sums>) {
        let mut of = |metric: &'static Metric<N>, value: &dyn Fn(&Sums) -> Option<f64>| {
            let mut samples = out.family(metric);
            for (key, sums) in sums {
                if let Some(value) = value(sums) {
                    samples.value(labels(key, &[]), value);
                }
            }
        };
        of(self.connections, &|sums| Some(sums.connections as f64));
        let known = |sums: &Sums, value: f64| (sums.rtts > 0).then_some(value);
        of(self.rtt, &|sums| known(sums, sums.rtt_us as f64 / 1e6));
        of(self.rtts, &|sums| known(sums, sums.rtts as f64));
        let mut by = |metric: &'static Metric<M>,
                      names: &[&str],
                      zeros: bool,
                      value: &dyn Fn(&Sums, usize) -> u64| {
            let mut samples = out.family(metric);
            for (key, sums) in sums {
                for (index, name) in names.iter().enumerate() {
                    let value = value(sums, index);
                    if value > 0 || zeros {
                        samples.value(labels(key, &[name]), value);
                    }
                }
            }
        };
        by(self.failures, &CAUSES, self.zeros, &|sums, cause| {
            sums.failures[cause]
        });
        by(self.bytes, &SIDES, true, &|sums, side| sums.bytes[side]);
        by(self.retransmitted, &SIDES, self.zeros, &|sums, side| {
            sums.retransmitted[side]
        });
    }
}

/// Writes the metrics of edges, those with most bytes first.
pub(super) fn write(out: &mut Exposition, edges: &[Edge], series: &mut Series) {
    let others = || OTHERS.to_owned();
    let (services, services_left_out) =
        series
            .services
            .sums(edges, service, [others(), String::new(), String::new()]);
    let (links, links_left_out) = series.links.sums(
        edges,
        link,
        [others(), others(), String::new(), String::new()],
    );
    Of {
        connections: &CONNECTIONS,
        failures: &FAILURES,
        bytes: &BYTES,
        retransmitted: &RETRANSMITTED,
        rtt: &RTT,
        rtts: &RTTS,
        zeros: true,
    }
    .write(out, &services);
    Of {
        connections: &LINK_CONNECTIONS,
        failures: &LINK_FAILURES,
        bytes: &LINK_BYTES,
        retransmitted: &LINK_RETRANSMITTED,
        rtt: &LINK_RTT,
        rtts: &LINK_RTTS,
        zeros: false,
    }
    .write(out, &links);
    let mut left_out = out.family(&LEFT_OUT);
    left_out.value(["service"], services_left_out);
    left_out.value(["link"], links_left_out);
}

#[cfg(test)]
mod tests {
    use skua_collect::graph::{Endpoint, edges};

    use super::*;

    /// An edge of a client to a service, with so many connections.
    fn edge(client: &str, server: &str, port: u16, connections: u64) -> Edge {
        let mut edge = Edge {
            key: EdgeKey {
                client: Endpoint::Service(client.into()),
                server: Endpoint::Service(server.into()),
                protocol: 6,
                port,
            },
            sums: EdgeSums::default(),
            quantiles: [None; 3],
            recent: None,
            change: None,
        };
        edge.sums.connections = connections;
        edge.sums.sent[0].bytes = connections * 100;
        edge.sums.rtt_count = connections;
        edge.sums.rtt_sum_us = connections * 500;
        edge
    }

    fn written(edges: &[Edge], series: &mut Series) -> String {
        let mut out = Exposition::default();
        write(&mut out, edges, series);
        out.into_text()
    }

    fn total(text: &str, name: &str) -> f64 {
        let lines = text
            .lines()
            .filter(|line| line.starts_with(&format!("{name}{{")));
        lines
            .map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap())
            .sum()
    }

    #[test]
    fn a_service_has_what_all_its_clients_add_up_to() {
        assert!(edges([]).is_empty());
        let mut refused = edge("web", "db", 5432, 3);
        refused.sums.refused = 2;
        refused.sums.retransmitted = [0, 7];
        let text = written(
            &[edge("api", "db", 5432, 5), refused],
            &mut Series::default(),
        );
        for line in [
            r#"skua_service_connections_total{service="db",protocol="tcp",port="5432"} 8"#,
            r#"skua_service_failures_total{service="db",protocol="tcp",port="5432",cause="refused"} 2"#,
            r#"skua_service_failures_total{service="db",protocol="tcp",port="5432",cause="reset"} 0"#,
            r#"skua_service_retransmitted_segments_total{service="db",protocol="tcp",port="5432",sent_by="server"} 7"#,
            r#"skua_service_rtt_seconds_total{service="db",protocol="tcp",port="5432"} 0.004"#,
            r#"skua_service_rtt_samples_total{service="db",protocol="tcp",port="5432"} 8"#,
            r#"skua_link_connections_total{client="web",service="db",protocol="tcp",port="5432"} 3"#,
            r#"skua_link_failures_total{client="web",service="db",protocol="tcp",port="5432",cause="refused"} 2"#,
        ] {
            assert!(
                text.lines()
                    .any(|found| found == line || found == format!("{line}.0")),
                "{line}\n{text}"
            );
        }
        // Links have no series of what never happened.
        assert!(!text.contains(r#"skua_link_failures_total{client="api""#));
        assert_eq!(total(&text, "skua_services_left_out"), 0.0);
    }

    #[test]
    fn beyond_the_limit_the_sums_stay_and_no_counter_goes_back() {
        let mut series = Series::with(2, 3);
        let many = |first: u64| -> Vec<Edge> {
            let edges = (0..10).map(|n| {
                edge(
                    "web",
                    &format!("s{n}"),
                    80,
                    if n == 0 { first } else { 20 - n },
                )
            });
            let mut edges: Vec<_> = edges.collect();
            edges.sort_by_key(|edge| std::cmp::Reverse(edge.bytes()));
            edges
        };
        let before = written(&many(1), &mut series);
        let all: u64 = 1 + (1..10).map(|n| 20 - n).sum::<u64>();
        for name in [
            "skua_service_connections_total",
            "skua_link_connections_total",
        ] {
            assert_eq!(total(&before, name), all as f64, "{name}");
        }
        assert!(
            before.contains(r#"skua_services_left_out{kind="service"} 8"#),
            "{before}"
        );
        assert!(
            before.contains(r#"skua_services_left_out{kind="link"} 7"#),
            "{before}"
        );
        // Another one is the largest now: it stays under (others), whose sum only grows.
        let after = written(&many(500), &mut series);
        assert_eq!(
            total(&after, "skua_service_connections_total"),
            (all + 499) as f64
        );
        let own = |text: &str| -> Vec<String> {
            let lines = text
                .lines()
                .filter(|line| line.starts_with("skua_service_connections_total{"));
            lines
                .map(|line| line.split(' ').next().unwrap().to_owned())
                .collect()
        };
        assert_eq!(own(&before), own(&after));
    }
}
