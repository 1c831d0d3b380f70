//! DNS with a real server and real clients: each question that the server counted is a record or a counted omission.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use skua_testkit::{process::Process, scratch};

use crate::{
    lab::{
        Net, Skua, Wire, root_tests,
        skua::{self, parse_lines},
        wait_for,
    },
    queries,
};

/// Address of the server, in the far namespace, and of an address of it where nobody answers.
const SERVER: &str = "10.7.0.1";

/// A name server, and the file of its log.
struct Server {
    process: Process,
    log: scratch::Scratch,
}

impl Server {
    /// Answers every name below `example.test` with its own address, and refuses others.
    fn start(net: &Net) -> Self {
        let log = scratch::scratch("dnsmasq.log");
        let mut command = net.command("dnsmasq");
        command.args([
            "--keep-in-foreground",
            "--conf-file=/dev/null",
            "--no-hosts",
        ]);
        command.args([
            "--no-resolv",
            "--bind-interfaces",
            "--user=root",
            "--pid-file",
        ]);
        command.arg(format!("--listen-address={SERVER}"));
        command.arg(format!("--address=/example.test/{SERVER}"));
        command.arg(format!("--log-facility={}", log.path()));
        let process = Process::start(&mut command);
        wait_for("the name server", || {
            dig(net, "+tries=1 +time=1 ready.example.test")
                .contains(SERVER)
                .then_some(())
        });
        Self { process, log }
    }

    /// How many questions over UDP it has answered until now.
    fn answered(&self) -> u64 {
        let before = std::fs::read_to_string(self.log.path()).unwrap();
        self.process.signal(Signal::USR1);
        let text = wait_for("the server's numbers", || {
            let text = std::fs::read_to_string(self.log.path()).unwrap();
            let new = text[before.len()..].to_owned();
            new.contains("answered locally").then_some(new)
        });
        let number = text.split("answered locally ").nth(1).unwrap();
        number.split_whitespace().next().unwrap().parse().unwrap()
    }
}

fn dig(net: &Net, args: &str) -> String {
    let mut command = net.command("dig");
    command
        .arg(format!("@{SERVER}"))
        .args(args.split_whitespace());
    let output = command.output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// A running `skua run` that reads DNS.
fn watch(wire: &Wire, more: &[(&str, &str)]) -> Skua {
    let mut command = skua::command(&wire.near);
    command
        .args(["run", "--listen", "127.0.0.1:0", "--summary", "json"])
        .args(["--interface", "x0", "--scan-interval", "200ms"])
        .env("SKUA_APP_ENABLED", "true")
        .envs(more.iter().copied());
    Skua::run_command(&wire.near, &mut command)
}

fn lookups(skua: &Skua, query: &str) -> Vec<Value> {
    parse_lines(&skua.get(&format!("/api/dns?{query}")))
}

/// Sum of the samples of a metric whose line contains a text.
fn metric(skua: &Skua, name: &str, with: &str) -> u64 {
    let text = skua.get("/metrics");
    let lines = text
        .lines()
        .filter(|l| l.starts_with(name) && l.contains(with));
    lines
        .map(|l| l.rsplit(' ').next().unwrap().parse::<f64>().unwrap() as u64)
        .sum()
}

#[test]
fn lookups_are_records_and_their_names_are_shown_on_conversations() {
    if !root_tests() {
        return;
    }
    let wire = Wire::new().with_addresses();
    let server = Server::start(&wire.far);
    let skua = watch(&wire, &[("SKUA_APP_TIMEOUT", "300ms")]);
    let before = server.answered();
    dig(&wire.near, "api.example.test A");
    dig(&wire.near, "nothing.invalid AAAA");
    dig(&wire.near, "+tcp tcp.example.test A");
    // Nobody has this address: a neighbour that does not exist gets no packets, this one drops them.
    wire.far.ip("addr add 10.7.0.9/24 dev g0");
    let listener = crate::sockets::python(
        &wire.far,
        "import socket\n\
         s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
         s.bind(('10.7.0.9', 53))\n\
         print('on')\n\
         while True: s.recv(1000)\n",
    );
    let silent = wire
        .near
        .command("dig")
        .args("@10.7.0.9 +tries=2 +time=1 lost.example.test".split(' '))
        .output();
    assert!(!silent.unwrap().status.success());
    drop(listener);
    let all = wait_for("all lookups", || {
        let all = lookups(&skua, "");
        (all.iter().filter(|l| l["outcome"] == "timeout").count() == 2).then_some(all)
    });
    let of = |name: &str| {
        let found: Vec<&Value> = all.iter().filter(|l| l["name"] == name).collect();
        assert!(!found.is_empty(), "{name}: {all:?}");
        found
    };
    let api = of("api.example.test")[0];
    assert_eq!(
        (&api["type"], &api["code"]),
        (&"A".into(), &"NOERROR".into())
    );
    assert_eq!(api["answers"], serde_json::json!([format!("A {SERVER}")]));
    assert_eq!(api["client"]["address"], "10.7.0.2");
    assert!(api["latency"].as_u64().unwrap() > 0);
    assert_eq!(of("nothing.invalid")[0]["code"], "REFUSED");
    assert_eq!(of("tcp.example.test")[0]["transport"], "tcp");
    // dig asks again from another port.
    assert_eq!(of("lost.example.test").len(), 2);
    assert_eq!(server.answered() - before, 2, "over UDP");
    assert_eq!(all.len(), 5);
    assert_eq!(lookups(&skua, "errors=true").len(), 3);
    assert_eq!(lookups(&skua, "name=*.example.test&type=a").len(), 4);
    let sums = lookups(&skua, "summary=true");
    assert_eq!(
        (&sums[0]["server"], &sums[0]["lookups"]),
        (&SERVER.into(), &3.into())
    );

    // What is reached by a name has it.
    let web = crate::sockets::python(
        &wire.far,
        "import socket\n\
         s = socket.create_server(('10.7.0.1', 7480))\n\
         print('on')\n\
         while True: s.accept()[0].close()\n",
    );
    dig(&wire.near, "web.example.test A");
    let connect = "import socket; socket.create_connection(('10.7.0.1', 7480)).recv(10)";
    skua_testkit::lab::run(wire.near.command("python3").args(["-c", connect]));
    let flow = wait_for("the flow with its name", || {
        let flows = parse_lines(&skua.get("/api/flows?where=name:web.example.test%20port:7480"));
        flows.into_iter().next()
    });
    drop(web);
    let sides = [&flow["a"], &flow["b"]];
    let server_side = sides.iter().find(|side| side["port"] == 7480).unwrap();
    assert_eq!(server_side["name"], "web.example.test");
    let ask = |query: &str| queries::ask(&wire.near, &skua, query);
    let named = ask("G.Flows().Has('DNS.Name', 'web.example.test', 'Transport.B', 7480).Count()");
    assert_eq!(named, 1, "{flow}");
    let dns = ask("G.Flows().Has('Application', 'DNS').Count()")
        .as_u64()
        .unwrap();
    assert!(dns >= 4, "{dns}");
    // The command, as people see it.
    let args = format!("dns --errors --analyzer {}", skua.address);
    let table = String::from_utf8(skua::output(&wire.near, &args).stdout).unwrap();
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines.len(), 4, "{table}");
    assert!(
        lines[0].starts_with("TIME") && table.contains("timeout"),
        "{table}"
    );
    skua.stop();
}

#[test]
fn each_question_that_the_server_counted_is_a_record_or_an_omission() {
    if !root_tests() {
        return;
    }
    let wire = Wire::new().with_addresses();
    let server = Server::start(&wire.far);
    let questions = scratch::scratch("questions");
    let names: String = (0..500).map(|i| format!("h{i}.example.test A\n")).collect();
    std::fs::write(questions.path(), names).unwrap();
    let load = |rate: &str| {
        let before = server.answered();
        let mut command = wire.near.command("dnsperf");
        command.args(["-s", SERVER, "-d", questions.path(), "-l", "2", "-Q", rate]);
        skua_testkit::lab::run(&mut command);
        server.answered() - before
    };
    // All of them, at some thousand a second.
    let skua = watch(
        &wire,
        &[
            ("SKUA_APP_RECORDS", "100000"),
            ("SKUA_APP_TIMEOUT", "500ms"),
        ],
    );
    let asked = load("4000");
    assert!(asked > 1000, "{asked}");
    let settled = |skua: &Skua| {
        std::thread::sleep(Duration::from_millis(600));
        let of = |outcome: &str| lookups(skua, &format!("outcome={outcome}")).len() as u64;
        let omitted = metric(skua, "skua_noted_packets_total", "cause=\"head_");
        (of("answered"), of("timeout"), of("unasked"), omitted)
    };
    assert_eq!(settled(&skua), (asked, 0, 0, 0));
    assert_eq!(metric(&skua, "skua_dns_messages_total", ""), 2 * asked);
    skua.stop();
    // With a limit each message is read or counted.
    let skua = watch(
        &wire,
        &[("SKUA_APP_RATE", "100"), ("SKUA_APP_TIMEOUT", "500ms")],
    );
    let asked = load("1000");
    let (.., omitted) = settled(&skua);
    let read = metric(&skua, "skua_dns_messages_total", "");
    assert!(omitted > 0 && read > 0, "{read} read, {omitted} not");
    assert_eq!(read + omitted, 2 * asked);
    let records = metric(&skua, "skua_dns_lookups_total", "");
    let answered = metric(&skua, "skua_dns_lookups_total", "\"answered\"");
    assert_eq!(records + answered, read, "each message is in one record");
    skua.stop();
}

#[test]
fn clients_of_tls_say_whom_they_want_and_dns_is_found_at_any_port() {
    if !root_tests() {
        return;
    }
    let wire = Wire::new().with_addresses();
    let skua = watch(&wire, &[]);
    let directory = scratch::directory("tls");
    let place = |name: &str| format!("{}/{name}", directory.path());
    let mut make = wire.far.command("openssl");
    make.args(
        "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1 -subj /CN=x"
            .split(' '),
    );
    make.args(["-keyout", &place("key"), "-out", &place("certificate")]);
    skua_testkit::lab::run(make.stderr(std::process::Stdio::null()));
    let mut server = wire.far.command("openssl");
    server.args([
        "s_server",
        "-accept",
        "10.7.0.1:7443",
        "-www",
        "-key",
        &place("key"),
    ]);
    let mut server = Process::start(server.args(["-cert", &place("certificate")]));
    server.wait_for_line("ACCEPT");
    let connect = |more: &str| {
        let mut client = wire.near.command("openssl");
        client
            .args("s_client -connect 10.7.0.1:7443".split(' '))
            .args(more.split(' '));
        client.stdin(std::process::Stdio::null());
        assert!(client.output().unwrap().status.success(), "{more}");
    };
    // The second hello is longer than a segment, as those with keys of ML-KEM are.
    connect("-servername api.example.test -alpn h2,http/1.1");
    let many: Vec<String> = (0..150).map(|i| format!("protocol{i:03}")).collect();
    connect(&format!(
        "-tls1_2 -servername old.example.test -alpn {}",
        many.join(",")
    ));
    connect("-noservername");
    let tls = |name: &str| {
        wait_for("the flow of a client", || {
            let flows = parse_lines(&skua.get("/api/flows?where=port:7443"));
            flows
                .into_iter()
                .map(|flow| flow["tls"].clone())
                .find(|tls| tls["sni"] == name)
        })
    };
    let new = tls("api.example.test");
    assert_eq!(
        (&new["alpn"], &new["version"]),
        (&"h2,http/1.1".into(), &"TLS 1.3".into())
    );
    let ja4 = new["ja4"].as_str().unwrap();
    assert!(ja4.starts_with("t13d") && ja4.len() == 36, "{ja4}");
    let old = tls("old.example.test");
    assert_eq!(old["version"], "TLS 1.2");
    assert!(old["ja4"].as_str().unwrap().starts_with("t12d"));
    let ask = |query: &str| queries::ask(&wire.near, &skua, query);
    assert_eq!(
        ask("G.Flows().Has('TLS.SNI', 'old.example.test').Count()"),
        1
    );
    let with = parse_lines(&skua.get("/api/flows?where=port:7443%20tls.sni:*.example.test"));
    assert_eq!(with.len(), 2, "one has no name");
    drop(server);
    // A name server at another port.
    let odd = crate::sockets::python(
        &wire.far,
        "import socket\n\
         s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
         s.bind(('10.7.0.1', 5300))\n\
         print('on')\n\
         while True:\n\
         \x20   data, client = s.recvfrom(2000)\n\
         \x20   s.sendto(data[:2] + bytes([0x81, 0x83]) + data[4:], client)\n",
    );
    dig(&wire.near, "-p 5300 odd.example.test");
    let found = wait_for("the lookup at another port", || {
        let found = lookups(&skua, "name=odd.example.test");
        (!found.is_empty()).then_some(found)
    });
    assert_eq!((found.len(), &found[0]["code"]), (1, &"NXDOMAIN".into()));
    drop(odd);
    skua.stop();
}

#[test]
fn without_it_nothing_is_read() {
    if !root_tests() {
        return;
    }
    let wire = Wire::new().with_addresses();
    let skua = Skua::run(&wire.near, "--interface x0");
    let args = format!("dns --analyzer {}", skua.address);
    let output = skua::output(&wire.near, &args);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        !output.status.success() && said.contains("app.enabled"),
        "{said}"
    );
    assert!(!skua.get("/metrics").contains("skua_dns_lookups_total{"));
    skua.stop();
}
