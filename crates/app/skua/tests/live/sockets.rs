//! Sockets, services and whose flows are, as a user meets them. The programs see the sockets of the
//! whole host: every test has ports of its own, and asks for these.

use std::{
    collections::HashMap,
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream, UdpSocket},
    process::{Child, Command},
};

use serde_json::Value;
use skua_testkit::process::{Group, Process};

use crate::lab::{Net, Skua, Wire, root_tests, skua, skua::parse_lines, wait_for};

/// Starts a script of Python; it is ready when it has written a line.
pub fn python(net: &Net, script: &str) -> Process {
    Process::python(net, script, &[]).ready()
}

/// A server that answers `bytes` bytes to each connection.
fn server(net: &Net, port: u16, bytes: usize) -> Process {
    python(
        net,
        &format!(
            "import socket\n\
             s = socket.create_server(('10.7.0.2', {port}))\n\
             print('on')\n\
             while True:\n\
             \x20   c, _ = s.accept()\n\
             \x20   c.recv(100)\n\
             \x20   c.sendall(b'x' * {bytes})\n\
             \x20   c.close()\n"
        ),
    )
}

/// A client that comes and goes: one request, the whole answer.
fn call(net: &Net, port: u16) {
    let script = format!(
        "import socket\n\
         s = socket.create_connection(('10.7.0.2', {port}))\n\
         s.sendall(b'hello')\n\
         while s.recv(65536): pass\n"
    );
    let out = net
        .command("python3")
        .args(["-c", &script])
        .output()
        .unwrap();
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
}

fn get(skua: &Skua, path: &str) -> Vec<Value> {
    parse_lines(&skua.get(path))
}

fn wire() -> Wire {
    Wire::new().with_addresses()
}

/// What `skua ARGS…` prints that asks a running one.
fn ask(net: &Net, skua: &Skua, args: &str) -> String {
    let out = skua::output(net, &format!("{args} --analyzer {}", skua.address));
    assert!(
        out.status.success(),
        "{args}: {}",
        String::from_utf8_lossy(&out.stderr)
    );
    String::from_utf8(out.stdout).unwrap()
}

#[test]
fn connections_have_their_processes_and_numbers() {
    if !root_tests() {
        return;
    }
    let wire = wire();
    let skua = Skua::run(&wire.near, "--interface x0 --max-entries 1000");
    let served = server(&wire.near, 7100, 100_000);
    for _ in 0..5 {
        call(&wire.far, 7100);
    }
    let sockets = wait_for("ends of both sides", || {
        let found = get(&skua, "/api/sockets?closed=true&port=7100&protocol=tcp");
        (found.len() == 10).then_some(found)
    });
    let (servers, clients): (Vec<_>, Vec<_>) = sockets
        .iter()
        .partition(|s| s["local"]["address"] == "10.7.0.2");
    assert_eq!((servers.len(), clients.len()), (5, 5));
    for socket in &servers {
        assert_eq!(socket["pid"], served.id(), "{socket}");
        assert_eq!(socket["opened_by"], "remote");
        assert_eq!(socket["service"]["side"], "local");
        assert_eq!(socket["sent"]["bytes"], 100_000, "{socket}");
        assert_eq!(socket["received"]["bytes"], 5);
    }
    let mut pids = Vec::new();
    for socket in &clients {
        assert_eq!(socket["process"], "python3");
        assert_eq!(socket["opened_by"], "local");
        assert_eq!(socket["service"]["by"], "kernel");
        assert_eq!(socket["sent"]["bytes"], 5);
        assert_eq!(socket["received"]["bytes"], 100_000, "{socket}");
        assert_eq!(socket["end"], "closed");
        assert!(socket["tcp"]["srtt"].as_u64().unwrap() > 0);
        pids.push(socket["pid"].as_u64().unwrap());
    }
    pids.sort_unstable();
    pids.dedup();
    assert_eq!(pids.len(), 5, "each its own process");

    // The flows have the same names, on both sides.
    let flows: Vec<_> = skua
        .flows()
        .into_iter()
        .filter(|f| f["b"]["port"] == 7100)
        .collect();
    assert_eq!(flows.len(), 5);
    for flow in &flows {
        assert_eq!(flow["b"]["pid"], served.id(), "{flow}");
        assert!(pids.contains(&flow["a"]["pid"].as_u64().unwrap()), "{flow}");
        assert_eq!(flow["service"]["side"], "b");
        assert_eq!(flow["service"]["by"], "kernel");
    }

    // The sums.
    let services = get(&skua, "/api/services?port=7100");
    assert_eq!(services.len(), 1, "{services:?}");
    let service = &services[0];
    assert_eq!(service["connections"], 5);
    assert_eq!(service["open"], 0);
    assert_eq!(service["bytes"]["to_client"], 500_000);
    assert_eq!(service["bytes"]["to_server"], 25);
    assert_eq!(service["rtt"]["samples"], 5);
    let dependencies = get(&skua, "/api/dependencies?port=7100");
    assert_eq!(dependencies.len(), 1, "{dependencies:?}");
    assert_eq!(dependencies[0]["connections"], 5, "counted once");
    assert!(dependencies[0]["client"]["service"].is_string());

    // By process: each flow with both.
    let groups = get(&skua, "/api/flows?by=service");
    let group = groups.iter().find(|g| g["port"] == 7100).unwrap();
    assert_eq!(group["flows"], 5);
    assert!(group["sent"]["bytes"].as_u64() > Some(500_000), "{group}");

    let report = skua.stop();
    assert!(report.0["sockets"]["ended"].as_u64() >= Some(10));
    assert_eq!(report.0["sockets"]["lost"], serde_json::json!({}));
}

#[test]
fn the_kernels_sums_tell_the_same() {
    if !root_tests() {
        return;
    }
    let wire = wire();
    let config = std::env::temp_dir().join(format!("lv-{}-aggregate.yaml", std::process::id()));
    std::fs::write(&config, "sockets:\n  mode: aggregate\n").unwrap();
    let skua = Skua::run(
        &wire.near,
        &format!(
            "--interface x0 --max-entries 1000 --config {}",
            config.display()
        ),
    );
    std::fs::remove_file(&config).unwrap();
    let _served = server(&wire.near, 7200, 1000);
    for _ in 0..5 {
        call(&wire.far, 7200);
    }
    let dependency = wait_for("five connections", || {
        let found = get(&skua, "/api/dependencies?port=7200");
        (found.len() == 1 && found[0]["connections"] == 5).then(|| found[0].clone())
    });
    assert_eq!(dependency["bytes"]["to_client"], 5000, "{dependency}");
    assert_eq!(dependency["bytes"]["to_server"], 25);
    assert_eq!(dependency["rtt"]["samples"], 5);
    // None of them is a record by itself.
    let ended = get(&skua, "/api/sockets?closed=true&port=7200&protocol=tcp");
    assert!(ended.iter().all(|s| s["end"].is_null()), "{ended:?}");
    skua.stop();
}

#[test]
fn the_node_of_the_host_has_its_sockets_on_request() {
    if !root_tests() {
        return;
    }
    let wire = wire();
    let config = std::env::temp_dir().join(format!("lv-{}-metadata.yaml", std::process::id()));
    std::fs::write(&config, "topology: {sockets: true}\n").unwrap();
    let args = "--interface x0 --max-entries 1000 --scan-interval 100ms --config";
    let skua = Skua::run(&wire.near, &format!("{args} {}", config.display()));
    std::fs::remove_file(&config).unwrap();
    let bind = || TcpListener::bind("10.7.0.2:7400").unwrap();
    let listener = wire.near.inside(bind);
    let connect = || TcpStream::connect("10.7.0.2:7400").unwrap();
    let far = wire.far.inside(connect);
    let (accepted, _) = listener.accept().unwrap();
    // State, other port and process of the sockets at the listener's port.
    let known = || {
        let output = crate::lab::skua::command(&wire.near)
            .args(["query", "G.V().Has('Type', 'host')", "--format", "json"])
            .env("SKUA_ANALYZER", &skua.address)
            .output()
            .unwrap();
        let hosts: Value = serde_json::from_slice(&output.stdout).unwrap();
        let sockets = hosts[0]["Metadata"]["Sockets"].as_array().cloned();
        let ours = sockets.unwrap_or_default().into_iter();
        ours.filter(|socket| socket["LocalPort"] == 7400)
            .collect::<Vec<_>>()
    };
    let other = far.local_addr().unwrap().port();
    wait_for("the listener and its connection", || {
        let known = known();
        let has = |state: &str, remote: u16| {
            known.iter().any(|socket| {
                socket["State"] == state
                    && socket["RemotePort"] == remote
                    && socket["Pid"] == std::process::id()
                    && socket["LocalAddress"] == "10.7.0.2"
            })
        };
        // What changes with each packet is not there: each change would be a version in the history.
        let still = known.iter().all(|socket| socket["BytesSent"].is_null());
        (known.len() == 2 && has("LISTEN", 0) && has("ESTABLISHED", other) && still).then_some(())
    });
    drop((far, accepted));
    wait_for("the listener alone", || (known().len() == 1).then_some(()));
    skua.stop();
}

#[test]
fn open_listening_and_refused_sockets_are_shown() {
    if !root_tests() {
        return;
    }
    let wire = wire();
    let listener = wire
        .near
        .inside(|| TcpListener::bind("10.7.0.2:7300"))
        .unwrap();
    let mut old = wire
        .far
        .inside(|| TcpStream::connect("10.7.0.2:7300"))
        .unwrap();
    let (mut accepted, _) = listener.accept().unwrap();
    // Older than `skua run`.
    let skua = Skua::run(&wire.near, "--interface x0 --max-entries 1000");
    old.write_all(b"0123456789").unwrap();
    let mut read = [0; 10];
    accepted.read_exact(&mut read).unwrap();
    let own = std::process::id();

    let open = wait_for("bytes of an old connection", || {
        let found = get(&skua, &format!("/api/sockets?port=7300&pid={own}"));
        let bytes = |s: &Value| s["sent"]["bytes"].as_u64().unwrap();
        (found.len() == 2 && found.iter().map(bytes).sum::<u64>() == 10).then_some(found)
    });
    for socket in &open {
        assert_eq!(socket["state"], "established", "{socket}");
        assert!(socket["start"].is_null(), "{socket}");
        let serves = socket["local"]["port"] == 7300;
        let side = if serves { "local" } else { "remote" };
        assert_eq!(socket["service"]["side"], side, "{socket}");
    }
    // Another test's child has our files between its fork and its exec: then the next look is right.
    let listening = wait_for("the listener as ours", || {
        let found = get(&skua, "/api/sockets?listen=true&port=7300");
        assert_eq!(found.len(), 1, "{found:?}");
        (found[0]["pid"] == own).then_some(found)
    });
    assert_eq!(listening[0]["backlog"]["waiting"], 0);

    let refused = wire.far.inside(|| TcpStream::connect("10.7.0.2:7301"));
    assert!(refused.is_err());
    let found = wait_for("the refused attempt", || {
        get(&skua, "/api/sockets?closed=true&port=7301")
            .into_iter()
            .find(|s| s["end"] == "refused")
    });
    assert_eq!(found["pid"], own, "{found}");
    let of_state = |state| {
        get(
            &skua,
            &format!("/api/sockets?closed=true&port=7301&state={state}"),
        )
    };
    assert_eq!(of_state("refused").len(), 1);
    assert_eq!(of_state("timed-out").len(), 0);
    let calls = get(&skua, "/api/dependencies?port=7301");
    assert_eq!(
        (&calls[0]["failed"], &calls[0]["refused"]),
        (&1.into(), &1.into())
    );

    // UDP without connect, on both sides.
    let server = wire
        .near
        .inside(|| UdpSocket::bind("0.0.0.0:7302"))
        .unwrap();
    let mut client = wire.far.inside(|| UdpSocket::bind("0.0.0.0:0")).unwrap();
    wait_for("a UDP flow of ours", || {
        client = wire.far.inside(|| UdpSocket::bind("0.0.0.0:0")).unwrap();
        client.send_to(b"hello", "10.7.0.2:7302").unwrap();
        let (_, from) = server.recv_from(&mut [0; 10]).unwrap();
        server.send_to(b"you", from).unwrap();
        let flow = wait_for("the UDP flow", || {
            let ours = |f: &Value| f["b"]["port"] == 7302 && f["a"]["port"] == from.port();
            skua.flows().into_iter().find(ours)
        });
        (flow["b"]["pid"] == own).then_some(())
    });
    let udp = wait_for("the client as ours", || {
        let found = get(
            &skua,
            &format!("/api/sockets?protocol=udp&port=7302&pid={own}"),
        );
        (found.len() == 1).then_some(found)
    });
    assert_eq!(udp[0]["opened_by"], "local");

    // What is wrong is said.
    let error = skua::output(
        &wire.near,
        &format!("sockets --state open --analyzer {}", skua.address),
    );
    assert!(String::from_utf8_lossy(&error.stderr).contains("syn-sent"));
    skua.stop();
}

#[test]
fn commands_ask_the_running_one() {
    if !root_tests() {
        return;
    }
    let wire = wire();
    let skua = Skua::run(&wire.near, "--interface x0 --max-entries 1000");
    let _served = server(&wire.near, 7400, 10);
    call(&wire.far, 7400);
    wait_for("the connection", || {
        (get(&skua, "/api/sockets?closed=true&port=7400&protocol=tcp").len() == 2).then_some(())
    });
    let near = &wire.near;
    let table = ask(near, &skua, "sockets --closed --port 7400 --protocol tcp");
    let lines: Vec<_> = table.lines().collect();
    assert_eq!(lines.len(), 3, "{table}");
    assert!(lines[0].starts_with("PROTO  PROCESS"), "{table}");
    assert!(table.contains("10.7.0.2:7400") && table.contains("closed"));

    let csv = ask(
        near,
        &skua,
        "sockets --closed --port 7400 --protocol tcp --output csv --process python3",
    );
    let lines: Vec<_> = csv.lines().collect();
    assert_eq!(lines.len(), 3, "{csv}");
    assert!(lines[0].starts_with("protocol,state,process,pid,"), "{csv}");
    assert_eq!(
        lines[0].split(',').count(),
        lines[1].split(',').count(),
        "{csv}"
    );

    let services = ask(near, &skua, "services --port 7400");
    assert!(services.starts_with("SERVICE"), "{services}");
    assert!(services.contains("7400"), "{services}");
    let whom = ask(near, &skua, "services --dependencies --port 7400");
    assert!(whom.contains("10.7.0.2:7400"), "{whom}");
    let by = ask(near, &skua, "flows --by process --output json");
    assert!(
        parse_lines(&by).iter().any(|g| g["name"] == "python3"),
        "{by}"
    );
    let doctor = ask(near, &skua, "doctor");
    assert!(doctor.contains("tcp state"), "{doctor}");
    let metrics = skua.get("/metrics");
    for name in [
        "skua_sockets_open ",
        "skua_sockets_lost_total{cause=\"ring_full\"} 0",
        "skua_socket_map_bytes{",
    ] {
        assert!(metrics.contains(name), "{name}: {metrics}");
    }
    skua.stop();
}

#[test]
fn without_a_running_one_sockets_are_looked_at_on_the_spot() {
    if !root_tests() {
        return;
    }
    let wire = wire();
    let served = server(&wire.near, 7500, 10);
    let out = skua::output(
        &wire.near,
        "sockets --listen --port 7500 --output json --duration 1s",
    );
    let found = parse_lines(&String::from_utf8(out.stdout).unwrap());
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0]["pid"], served.id());
    assert_eq!(found[0]["state"], "listen");
    // Who asks another host is not shown this one.
    for command in ["sockets", "services", "flows", "flows --since 1h"] {
        let out = skua::output(&wire.near, &format!("{command} --analyzer 127.0.0.1:1"));
        let text = String::from_utf8_lossy(&out.stderr);
        assert!(!out.status.success() && out.stdout.is_empty(), "{command}");
        assert!(text.contains("nothing answers at 127.0.0.1:1"), "{text}");
    }
}

#[test]
fn without_rights_for_programs_sock_diag_serves() {
    if !root_tests() {
        return;
    }
    let wire = wire();
    let served = server(&wire.near, 7600, 10);
    // What afpacket needs alone: flows go on, and so do sockets.
    let caps = "-all,+net_raw,+net_admin,+sys_ptrace,+dac_read_search";
    let mut command = wire.near.command("setpriv");
    command
        .args([
            &format!("--bounding-set={caps}"),
            &format!("--inh-caps={caps}"),
        ])
        .arg(skua_testkit::program!())
        .args(["run", "--interface", "x0", "--listen", "127.0.0.1:0"])
        .args(["--summary", "json", "--type", "afpacket"])
        .env("SKUA_CONFIG", "/dev/null")
        .env("SKUA_HISTORY_DIRECTORY", "");
    let skua = Skua::run_command(&wire.near, &mut command);
    let status: Value = serde_json::from_str(&skua.get("/api/status")).unwrap();
    let fallback = status["sockets"]["fallback"].as_str().unwrap();
    assert!(fallback.contains("CAP_SYS_ADMIN"), "{status}");
    let listening = get(&skua, "/api/sockets?listen=true&port=7600");
    assert_eq!(listening[0]["pid"], served.id(), "{listening:?}");
    skua.stop();
}

/// The children of a process.
fn children(pid: u32) -> Vec<u32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    text.split_whitespace()
        .map(|pid| pid.parse().unwrap())
        .collect()
}

/// Waits at 10.7.0.2, at a port that says which number it has for itself.
const NUMBERED: &str = "import os, socket, time\n\
     s = socket.create_server(('10.7.0.2', 7660 + os.getpid()))\n\
     print('on')\n\
     time.sleep(600)\n";

#[test]
fn a_process_in_a_container_has_the_hosts_number_and_its_own() {
    if !root_tests() {
        return;
    }
    let wire = wire();
    let skua = Skua::run(&wire.near, "--interface x0");
    let namespace = ["--pid", "--fork", "--kill-child", "--mount-proc", "--"];
    let mut inside = wire.near.command("unshare");
    inside
        .args(namespace)
        .args(["python3", "-u", "-c", NUMBERED]);
    let inside = Process::start(&mut inside).ready();
    let pid = children(inside.id())[0];
    let found = wait_for("its socket", || {
        get(&skua, "/api/sockets?listen=true&port=7661").pop()
    });
    assert_eq!((&found["pid"], &found["ns_pid"]), (&pid.into(), &1.into()));
    let query = "G.V().Has('Type', 'process', 'Listens.Port', 7661).ValueMap('PID', 'NSPID')";
    wait_for("its node", || {
        let text = ask_query(&wire.near, &skua, query);
        let found: Value = serde_json::from_str(&text).unwrap();
        (found == serde_json::json!([{"PID": pid, "NSPID": 1}])).then_some(())
    });
    // It has one number here.
    let here = server(&wire.near, 7662, 10);
    let found = wait_for("its socket", || {
        get(&skua, "/api/sockets?listen=true&port=7662").pop()
    });
    assert_eq!(found["pid"], here.id());
    assert!(found["ns_pid"].is_null(), "{found}");
    skua.stop();
}

/// In a container of its own it sees other processes under other numbers: it never takes one for another.
#[test]
fn in_a_pid_namespace_the_kernels_numbers_are_the_hosts() {
    if !root_tests() {
        return;
    }
    let wire = wire();
    let skua = Skua::run_among(&wire.near, &[&wire.near], "--interface x0");
    // The kernel lists open sockets by the processes that we see: what begins now needs no list.
    let served = server(&wire.near, 7663, 10);
    let found = wait_for("its socket", || {
        get(&skua, "/api/sockets?listen=true&port=7663").pop()
    });
    assert_eq!(found["pid"], served.id());
    assert_eq!(found["process"], "python3");
    // The path is in a /proc that is not ours.
    let executable = found["executable"].as_str().unwrap();
    assert!(!executable.contains('/'), "{executable}");
    skua.stop();
}

#[test]
fn in_a_pid_namespace_sock_diag_knows_no_numbers_of_the_host() {
    if !root_tests() {
        return;
    }
    let wire = wire();
    let caps = "-all,+net_raw,+net_admin,+sys_ptrace,+dac_read_search";
    let mut command = wire.near.command("unshare");
    command
        .args(["--pid", "--fork", "--kill-child", "--mount-proc", "--"])
        .args([
            "bash",
            "-c",
            "python3 -u -c \"$1\" & shift; exec \"$@\"",
            "sh",
            NUMBERED,
        ])
        .args([
            "setpriv",
            &format!("--bounding-set={caps}"),
            &format!("--inh-caps={caps}"),
        ])
        .arg(skua_testkit::program!())
        .args(["run", "--interface", "x0", "--listen", "127.0.0.1:0"])
        .args(["--summary", "json", "--type", "afpacket"])
        .env("SKUA_CONFIG", "/dev/null")
        .env("SKUA_HISTORY_DIRECTORY", "");
    let skua = Skua::run_command(&wire.near, &mut command);
    let found = wait_for("its socket", || {
        let waits = get(&skua, "/api/sockets?listen=true&process=python3");
        let port = |socket: &Value| socket["local"]["port"].as_u64().unwrap();
        let mine = |socket: &Value| (7660..7700).contains(&port(socket));
        let found = waits.into_iter().find(mine)?;
        Some((port(&found), found))
    });
    let (port, found) = found;
    assert!(found["pid"].is_null(), "{found}");
    assert_eq!(found["ns_pid"], port - 7660, "{found}");
    assert!(found["executable"].as_str().unwrap().starts_with('/'));
}

#[test]
fn sockets_can_be_left_alone() {
    if !root_tests() {
        return;
    }
    let wire = wire();
    let mut command: Command = skua::command(&wire.near);
    command
        .args(["run", "--interface", "x0", "--listen", "127.0.0.1:0"])
        .args(["--summary", "json"])
        .env("SKUA_SOCKETS_ENABLED", "false");
    let skua = Skua::run_command(&wire.near, &mut command);
    let out = skua::output(&wire.near, &format!("sockets --analyzer {}", skua.address));
    let text = String::from_utf8(out.stderr).unwrap();
    assert!(text.contains("sockets.enabled"), "{text}");
    assert!(skua.stop().0["sockets"].is_null());
}

/// What a query finds, as JSON.
fn ask_query(net: &Net, skua: &Skua, query: &str) -> String {
    let out = skua::command(net)
        .args(["query", query, "--format", "json", "--analyzer"])
        .arg(&skua.address)
        .output()
        .unwrap();
    let err = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{query}: {err}");
    String::from_utf8(out.stdout).unwrap()
}

/// What waits in a namespace, as `ss` says: protocol, address, port and process.
fn listening(net: &Net) -> Vec<(String, String, i64, i64)> {
    let mut found = Vec::new();
    for (option, protocol) in [("-Hltnp", "TCP"), ("-Hlunp", "UDP")] {
        let out = net.command("ss").arg(option).output().unwrap();
        for line in String::from_utf8(out.stdout).unwrap().lines() {
            let local = line.split_whitespace().nth(3).unwrap();
            let (address, port) = local.rsplit_once(':').unwrap();
            let address = match address.trim_matches(['[', ']']) {
                "*" => "::",
                address => address,
            };
            let pid = line.split("pid=").nth(1).unwrap();
            let pid = pid.split(',').next().unwrap().parse().unwrap();
            let port = port.parse().unwrap();
            found.push((protocol.to_owned(), address.to_owned(), port, pid));
        }
    }
    found.sort();
    found
}

#[test]
fn queries_find_the_sockets_that_ss_finds() {
    if !root_tests() {
        return;
    }
    let wire = wire();
    let skua = Skua::run(&wire.near, "--interface x0 --max-entries 1000");
    let served = python(
        &wire.near,
        "import socket, time\n\
         a = [socket.create_server(('10.7.0.2', 7900 + n)) for n in range(3)]\n\
         b = socket.create_server(('::', 7910), family=socket.AF_INET6)\n\
         c = socket.socket(type=socket.SOCK_DGRAM)\n\
         c.bind(('10.7.0.2', 7920))\n\
         print('on')\n\
         time.sleep(600)\n",
    );
    let query =
        |query: &str| serde_json::from_str::<Value>(&ask_query(&wire.near, &skua, query)).unwrap();
    let wanted = listening(&wire.near);
    assert!(wanted.len() >= 5, "{wanted:?}");
    wait_for("all that waits", || {
        let found = query("G.V().Has('Type', 'host').Sockets()");
        let by_node = found.get(0)?.as_object().unwrap();
        let mut seen: Vec<_> = by_node
            .values()
            .flat_map(|list| list.as_array().unwrap())
            .filter(|socket| socket["RemotePort"] == 0)
            .map(|socket| {
                let text = |key: &str| socket[key].as_str().unwrap_or_default().to_owned();
                let number = |key: &str| socket[key].as_i64().unwrap_or_default();
                let local = (text("Protocol"), text("LocalAddress"));
                (local.0, local.1, number("LocalPort"), number("Pid"))
            })
            .collect();
        seen.sort();
        (seen == wanted).then_some(())
    });
    // The process has a node, which is the host's, and the same sockets.
    let node = format!("G.V().Has('Type', 'process', 'PID', {})", served.id());
    wait_for("the process", || {
        let found = query(&node);
        (found.as_array()?.len() == 1).then_some(())
    });
    let ports = query(&format!("{node}.Sockets().Values('LocalPort').Dedup()"));
    let mut ports: Vec<i64> = serde_json::from_value(ports).unwrap();
    ports.sort_unstable();
    assert_eq!(ports, [7900, 7901, 7902, 7910, 7920]);
    assert_eq!(
        query(&format!("{node}.In().Values('Type')")),
        serde_json::json!(["host"])
    );
    let listens = query(&format!("{node}.Values('Listens')"));
    assert_eq!(listens[0].as_array().unwrap().len(), 5, "{listens}");
    // It ends, and so does its node.
    drop(served);
    wait_for("the end of the process", || {
        query(&node).as_array()?.is_empty().then_some(())
    });
    skua.stop();
}

/// A client that calls once for each line that it gets.
fn caller(net: &Net, port: u16) -> Process {
    python(
        net,
        &format!(
            "import socket, sys\n\
             print('on')\n\
             for line in sys.stdin:\n\
             \x20   s = socket.create_connection(('10.7.0.2', {port}))\n\
             \x20   s.sendall(b'hello')\n\
             \x20   while s.recv(65536): pass\n\
             \x20   s.close()\n"
        ),
    )
}

/// Podman's socket never answers, Docker's does. They end with the process that becomes `skua`.
const RUNTIMES: &str = r#"
import ctypes, os, socket, sys, threading
ctypes.CDLL(None).prctl(1, 9)
def serve(path, answer):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    s = socket.socket(socket.AF_UNIX)
    s.bind(path + '.new')
    s.listen(9)
    os.rename(path + '.new', path)
    kept = []
    def loop():
        while True:
            c, _ = s.accept()
            c.recv(4096)
            if answer is None:
                kept.append(c)
                continue
            c.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n' % len(answer) + answer)
            c.close()
    threading.Thread(target=loop).start()
serve('/run/podman/podman.sock', None)
serve('/run/docker.sock', b'{"Id":"%s","Name":"/shop","Config":{"Image":"shop:1","Labels":{"tier":"web"}}}' % sys.argv[1].encode())
"#;

#[test]
fn containers_have_names_and_a_runtime_that_hangs_holds_up_nothing() {
    if !root_tests() {
        return;
    }
    let wire = wire();
    let id = |last: char| format!("{}{last}", &"0123456789abcdef".repeat(4)[1..]);
    let (docker, podman) = (id('d'), format!("f{}", &id('e')[1..]));
    let groups = [
        Group::new(&format!("docker-{docker}.scope")),
        Group::new(&format!("libpod-{podman}.scope")),
    ];
    let mut hidden = wire.near.command("unshare");
    hidden
        .args(["--mount", "--", "bash", "-c"])
        .arg(
            "mount -t tmpfs none /run && { python3 -c \"$1\" \"$2\" >/dev/null 2>&1 & } && \
             until [ -S /run/docker.sock ]; do sleep 0.05; done; shift 2; exec \"$@\"",
        )
        .args(["sh", RUNTIMES, &docker])
        .arg(skua_testkit::program!())
        .args(["run", "--listen", "127.0.0.1:0", "--summary", "json"])
        .args(["--interface", "x0", "--max-entries", "1000"])
        .env("SKUA_CONFIG", "/dev/null")
        .env("SKUA_HISTORY_DIRECTORY", "");
    let skua = Skua::run_command(&wire.near, &mut hidden);
    let _served = server(&wire.near, 7700, 10);
    let mut callers = [caller(&wire.far, 7700), caller(&wire.far, 7700)];
    for (group, caller) in groups.iter().zip(&mut callers) {
        group.add(caller);
        caller.write_line("");
    }

    let path = "/api/sockets?closed=true&port=7700&protocol=tcp";
    let of = |pid: u32| get(&skua, &format!("{path}&pid={pid}"));
    let named = wait_for("the container's name", || {
        of(callers[0].id())
            .into_iter()
            .find(|socket| socket["container"] == "shop")
    });
    assert_eq!(named["process"], "python3", "{named}");
    // The graph says the same, and whose sockets are whose.
    let query = |query: &str| {
        let text = ask_query(&wire.near, &skua, query);
        serde_json::from_str::<Value>(&text).unwrap()
    };
    let node = wait_for("the container's node", || {
        let found = query("G.V().Has('Type', 'container', 'Name', 'shop')");
        found.get(0).map(|node| node["Metadata"].clone())
    });
    assert_eq!(node["Container"]["ID"], docker, "{node}");
    assert_eq!(node["Container"]["Image"], "shop:1");
    assert_eq!(node["Container"]["Labels"]["tier"], "web");
    assert_eq!(node["Container"]["InitProcessPID"], callers[0].id());
    let found = query("G.Flows().Has('Transport', 7700).Sockets().Values('Container')");
    let mut found: Vec<_> = found.as_array().unwrap().iter().collect();
    found.sort_by_key(|name| name.to_string());
    assert_eq!(found, [&Value::from(&*podman), &Value::from("shop")]);
    let past = query(
        "G.At(NOW, 600).V().Has('Type', 'container', 'Name', 'shop').Sockets().Values('RemotePort')",
    );
    assert_eq!(past, serde_json::json!([7700]));
    // Nobody tells the other's name: it stays its id, and all goes on.
    let nameless = of(callers[1].id());
    assert_eq!(nameless.len(), 1, "{nameless:?}");
    assert_eq!(nameless[0]["container"], podman);
    let found = get(&skua, &format!("{path}&container={}", &podman[..12]));
    assert_eq!(found.len(), 1, "{found:?}");

    // A flow gets its owners with the drain after its socket is known.
    wait_for("each container's flow in a sum of its own", || {
        let sums = get(&skua, "/api/flows?by=container");
        let flows_of = |name: &str| {
            sums.iter()
                .find(|sum| sum["name"].as_str().is_some_and(|n| n.starts_with(name)))
                .map(|sum| sum["flows"].clone())
        };
        ["shop", &podman[..12]]
            .iter()
            .all(|name| flows_of(name) == Some(1.into()))
            .then_some(())
    });
    // One row, though its first connection came before its name.
    callers[0].write_line("");
    let row = wait_for("the second connection", || {
        let rows: Vec<_> = get(&skua, "/api/dependencies?port=7700")
            .into_iter()
            .filter(|row| row["client"]["service"] != podman[..12])
            .collect();
        (rows[0]["connections"] == 2).then_some(rows)
    });
    assert_eq!(row.len(), 1, "{row:?}");
    assert_eq!(row[0]["client"]["service"], "shop");
    drop(callers);
    skua.stop();
}

/// What a process calls itself is no text that a terminal or a table should get as it is; and with
/// its /proc hidden the kernel's word is all that there is.
#[test]
fn foreign_names_are_safe_and_hidden_processes_are_known() {
    if !root_tests() {
        return;
    }
    let wire = wire();
    let capabilities = "-all,+net_admin,+sys_admin";
    let mut hidden = wire.near.command("unshare");
    hidden
        .args(["--mount", "--", "bash", "-c"])
        .arg("mount -t proc -o hidepid=2 proc /proc && exec \"$@\"")
        .args(["sh", "setpriv", "--reuid", "nobody", "--clear-groups"])
        .arg(format!("--inh-caps={capabilities}"))
        .arg(format!("--ambient-caps={capabilities}"))
        .arg(skua_testkit::program!())
        .args(["run", "--listen", "127.0.0.1:0", "--summary", "json"])
        .args(["--interface", "x0", "--max-entries", "1000"])
        .env("SKUA_CONFIG", "/dev/null")
        .env("SKUA_HISTORY_DIRECTORY", "");
    skua_testkit::access::let_in(&mut hidden);
    let nobody = skua_testkit::access::tokens_of(65_534);
    hidden.env("SKUA_API_TOKENS", nobody);
    let skua = Skua::run_command(&wire.near, &mut hidden);
    let served = python(
        &wire.near,
        "import ctypes, socket, time\n\
         ctypes.CDLL(None).prctl(15, b'a\\x1b[31m\\n,\"\\xff\\xe2\\x80\\xaex')\n\
         s = socket.create_server(('10.7.0.2', 7800))\n\
         print('on')\n\
         time.sleep(100)\n",
    );
    let name = "a\\x1b[31m\\x0a,\"\\xff\\u{202e}x";
    let found = get(&skua, "/api/sockets?listen=true&port=7800");
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0]["process"], name);
    assert_eq!(found[0]["pid"], served.id());
    // Its path is what is hidden.
    let executable = found[0]["executable"].as_str().unwrap();
    assert!(!executable.contains('/'), "{executable}");

    let table = ask(&wire.near, &skua, "sockets --listen --port 7800");
    assert!(table.contains(name), "{table}");
    assert!(!table.contains('\x1b'), "{table}");
    assert_eq!(table.lines().count(), 2, "{table}");
    let csv = ask(&wire.near, &skua, "sockets --listen --port 7800 -o csv");
    assert!(
        csv.contains(&format!("\"{}\"", name.replace('"', "\"\""))),
        "{csv}"
    );
    assert_eq!(csv.lines().count(), 2, "{csv}");
    skua.stop();
}

/// Packets that are noted for a cause.
fn noted(skua: &Skua, cause: &str) -> usize {
    let metrics = skua.get("/metrics");
    let cause = format!("cause=\"{cause}\"}}");
    let lines = metrics
        .lines()
        .filter(|line| line.starts_with("skua_noted_packets_total{") && line.contains(&cause));
    let numbers = lines.filter_map(|line| line.split(' ').next_back()?.parse::<usize>().ok());
    numbers.sum()
}

/// Connects so often, each time by the next of 100 ports that is free, and ends each connection with a RST, so
/// that the port can be used again at once. What it sends says which client it is.
const CLIENT: &str = "
import errno, socket, struct, sys, time
number, times = int(sys.argv[1]), int(sys.argv[2])
port = number * 25
while times:
    port = (port + 1) % 100
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        s.bind(('10.7.0.1', 21000 + port))
        s.connect(('10.7.0.2', 7250))
        s.sendall(b'x' * 1000 * (number + 1))
        s.recv(1)
        times -= 1
    except OSError as error:
        if error.errno not in (errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.ECONNRESET):
            raise
    s.close()
    # Faster than times are exact no use of a port could be told from the next one.
    time.sleep(0.001)
";

const ANSWERS: &str = "
import socket
s = socket.create_server(('10.7.0.2', 7250), backlog=128)
print('on')
while True:
    c, _ = s.accept()
    try:
        c.recv(1)
        c.sendall(b'y')
        while c.recv(65536): pass
    except OSError:
        pass
    c.close()
";

#[test]
fn ports_that_are_used_again_at_once_never_name_another_process() {
    const CLIENTS: usize = 4;
    const EACH: usize = 5_000;
    if !root_tests() {
        return;
    }
    let wire = wire();
    // A client is known by its bytes: none come twice because an answer is late on a busy machine.
    wire.far.sysctl("ipv4/tcp_early_retrans", "0");
    wire.far
        .ip("route change 10.7.0.0/24 dev g0 src 10.7.0.1 rto_min 20s");
    let server = python(&wire.near, ANSWERS);
    let skua = Skua::run(&wire.near, "--interface x0 --scan-interval 1s");
    let mut clients: Vec<Child> = (0..CLIENTS)
        .map(|number| {
            wire.far
                .command("python3")
                .args(["-c", CLIENT, &number.to_string(), &EACH.to_string()])
                .spawn()
                .unwrap()
        })
        .collect();
    for client in &mut clients {
        assert!(client.wait().unwrap().success());
    }
    let (mut flows, mut merged, mut named, mut wrong) = (0, 0, 0, Vec::new());
    wait_for("all connections", || {
        (flows, named) = (0, 0);
        wrong.clear();
        // Where the drain comes too late on a busy machine, connections are counted in the previous one with the same ports.
        merged = noted(&skua, "reuse_merged");
        for flow in get(&skua, "/api/flows?limit=100000") {
            let (a, b) = (&flow["a"], &flow["b"]);
            // Some try a port that is in use at the server's end still: nothing was sent.
            let bytes = flow["ab"]["bytes"].as_u64().unwrap();
            if b["port"] != 7250 || bytes < 1_000 {
                continue;
            }
            flows += 1;
            // Connections in one record begin with other sequence numbers. The SYN of one may also come before the RST of
            // the other, from another processor.
            let gaps = ["ab_skipped", "ba_skipped"].map(|key| flow["tcp"][key].as_u64());
            if gaps.iter().any(|gaps| gaps.unwrap_or(0) > 0) {
                merged += 1;
                continue;
            }
            let client = clients.get(bytes as usize / 1_000 - 1);
            let client = client
                .unwrap_or_else(|| panic!("no client sent so much: {flow:#}"))
                .id();
            named += usize::from(a["pid"] == client);
            if (a["pid"].is_u64() && a["pid"] != client)
                || (b["pid"].is_u64() && b["pid"] != server.id())
            {
                wrong.push(flow);
            }
        }
        (flows + merged >= CLIENTS * EACH).then_some(())
    });
    println!("{flows} connections, {merged} in the records of others, {named} with their process");
    assert!(merged > 0 || flows == CLIENTS * EACH, "{flows}");
    assert!(
        wrong.is_empty(),
        "{} wrong: {:#?}",
        wrong.len(),
        &wrong[..1]
    );
    // Times are exact to some ms: of uses that follow one another faster none need be named.
    assert!(
        named > (CLIENTS * EACH).saturating_sub(merged) / 2,
        "only {named} of {flows} have a process"
    );
}

/// Answers each datagram with its pid.
const WORKER: &str = "
import os, socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
s.bind(('10.7.0.2', 7260))
print('on')
while True:
    _, peer = s.recvfrom(100)
    s.sendto(str(os.getpid()).encode(), peer)
";

const ASKS: &str = "
import socket, time
kept = []
for _ in range(40):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.connect(('10.7.0.2', 7260))
    s.send(b'x')
    print(s.getsockname()[1], s.recv(100).decode())
    kept.append(s)
time.sleep(100)
";

#[test]
fn udp_workers_that_wait_at_one_port_are_named_by_what_they_share() {
    if !root_tests() {
        return;
    }
    let wire = wire();
    let workers: Vec<Process> = (0..4).map(|_| python(&wire.near, WORKER)).collect();
    let skua = Skua::run(&wire.near, "--interface x0 --scan-interval 1s");
    // Their sockets are known.
    let waiting = get(&skua, "/api/sockets?listen=true&port=7260");
    assert_eq!(waiting.len(), workers.len(), "{waiting:#?}");
    let mut client = Process::python(&wire.far, ASKS, &[]);
    let answered: HashMap<u64, u64> = (0..40)
        .map(|_| {
            let numbers = client.numbers();
            (numbers[0].into(), numbers[1].into())
        })
        .collect();
    let flows = wait_for("all conversations", || {
        let mut flows = get(&skua, "/api/flows?limit=1000");
        flows.retain(|flow| flow["b"]["port"] == 7260 && flow["a"]["pid"].is_u64());
        flows.retain(|flow| flow["b"]["process"].is_string());
        (flows.len() == 40).then_some(flows)
    });
    let mut shared = 0;
    for flow in &flows {
        let (a, b) = (&flow["a"], &flow["b"]);
        assert_eq!(a["pid"], client.id(), "{flow:#?}");
        assert_eq!(b["process"], waiting[0]["process"], "{flow:#?}");
        assert_eq!(b["user"], waiting[0]["user"], "{flow:#?}");
        // At each look a socket knows to whom it sent last; of the others nobody can tell from outside who answered.
        match b["pid"].as_u64() {
            None => shared += 1,
            Some(pid) => assert_eq!(answered[&a["port"].as_u64().unwrap()], pid, "{flow:#?}"),
        }
    }
    assert!(shared >= 20, "{shared}");
    let summary = skua.stop().0;
    let ambiguous = &summary["sockets"]["not_kept"]["ambiguous"];
    assert!(ambiguous.as_u64() >= Some(shared as u64), "{summary:#?}");
}
