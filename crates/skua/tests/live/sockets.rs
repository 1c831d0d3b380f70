//! Sockets, services and whose flows are, as a user meets them. The programs see the sockets of the
//! whole host: every test has ports of its own, and asks for these.

use std::{
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream, UdpSocket},
    process::{Child, Command, Stdio},
};

use serde_json::Value;

use crate::lab::{Net, Skua, Wire, root_tests, skua, skua::parse_lines, wait_for};

/// A program inside a namespace that ends with the value.
struct Process(Child);

impl Process {
    /// Runs a script of Python; it has begun when it has written a line.
    fn python(net: &Net, script: &str) -> Self {
        let mut child = net
            .command("python3")
            .args(["-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut began = [0; 1];
        child
            .stdout
            .as_mut()
            .unwrap()
            .read_exact(&mut began)
            .unwrap();
        Self(child)
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A server that answers `bytes` bytes to each connection.
fn server(net: &Net, port: u16, bytes: usize) -> Process {
    Process::python(
        net,
        &format!(
            "import socket\n\
             s = socket.create_server(('10.7.0.2', {port}))\n\
             print('on', flush=True)\n\
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
        assert_eq!(socket["pid"], served.pid(), "{socket}");
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
        assert_eq!(flow["b"]["pid"], served.pid(), "{flow}");
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
    let listening = get(&skua, "/api/sockets?listen=true&port=7300");
    assert_eq!(listening.len(), 1, "{listening:?}");
    assert_eq!(listening[0]["pid"], own);
    assert_eq!(listening[0]["backlog"]["waiting"], 0);

    let refused = wire.far.inside(|| TcpStream::connect("10.7.0.2:7301"));
    assert!(refused.is_err());
    let found = wait_for("the refused attempt", || {
        get(&skua, "/api/sockets?closed=true&port=7301")
            .into_iter()
            .find(|s| s["end"] == "refused")
    });
    assert_eq!(found["pid"], own, "{found}");
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
    let client = wire.far.inside(|| UdpSocket::bind("0.0.0.0:0")).unwrap();
    client.send_to(b"hello", "10.7.0.2:7302").unwrap();
    let (_, from) = server.recv_from(&mut [0; 10]).unwrap();
    server.send_to(b"you", from).unwrap();
    let flow = wait_for("the UDP flow", || {
        skua.flows().into_iter().find(|f| f["b"]["port"] == 7302)
    });
    assert_eq!(flow["b"]["pid"], own, "{flow}");
    let udp = get(
        &skua,
        &format!("/api/sockets?protocol=udp&port=7302&pid={own}"),
    );
    assert_eq!(udp.len(), 1, "{udp:?}");
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
        "sockets --listen --port 7500 --output json --analyzer 127.0.0.1:1",
    );
    let found = parse_lines(&String::from_utf8(out.stdout).unwrap());
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0]["pid"], served.pid());
    assert_eq!(found[0]["state"], "listen");
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
        .arg(env!("CARGO_BIN_EXE_skua"))
        .args(["run", "--interface", "x0", "--listen", "127.0.0.1:0"])
        .args(["--summary", "json", "--type", "afpacket"])
        .env("SKUA_CONFIG", "/dev/null");
    let skua = Skua::run_command(&wire.near, &mut command);
    let status: Value = serde_json::from_str(&skua.get("/api/status")).unwrap();
    let fallback = status["sockets"]["fallback"].as_str().unwrap();
    assert!(fallback.contains("CAP_SYS_ADMIN"), "{status}");
    let listening = get(&skua, "/api/sockets?listen=true&port=7600");
    assert_eq!(listening[0]["pid"], served.pid(), "{listening:?}");
    skua.stop();
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
