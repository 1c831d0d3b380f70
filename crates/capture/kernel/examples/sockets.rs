//! Shows what the socket programs see for some seconds: `sockets [SECONDS] [aggregate]`.
#![allow(clippy::unwrap_used)]

use skua_kernel::socket::{SocketTracer, SocketTracerConfig};

fn main() {
    if std::env::var_os("LIBBPF_LOG").is_none() {
        skua_kernel::capture_libbpf_log();
    }
    let mut arguments = std::env::args().skip(1);
    let seconds = arguments.next().and_then(|s| s.parse().ok()).unwrap_or(0);
    let config = SocketTracerConfig {
        aggregate: arguments.next().is_some(),
        ..Default::default()
    };
    let mut tracer = SocketTracer::start(config).unwrap();
    println!("{}", tracer.describe());
    for hook in tracer.hooks() {
        println!("{hook:?}");
    }
    println!("{:?}", tracer.map_memory());
    std::thread::sleep(std::time::Duration::from_secs(seconds));
    let mut count = 0;
    let name = |b: &[u8]| String::from_utf8_lossy(b).trim_end_matches('\0').to_owned();
    let mut show = |kind: &str, u: &skua_socket::SocketUpdate| {
        count += 1;
        if count < 300 {
            println!(
                "{kind} {:x} {:?} {:?} {} -> {:?} {:?} {}/{}/{} {:?} cg {} {:?} sent {:?} received {:?} rtt {:?}",
                u.id,
                u.protocol,
                u.state,
                u.local,
                u.remote,
                u.opener,
                u.task.pid,
                name(&u.task.comm),
                name(&u.task.exe),
                u.task_rule,
                u.task.cgroup,
                u.end,
                u.tcp.map(|t| t.bytes_sent),
                u.tcp.map(|t| t.bytes_received),
                u.tcp.map(|t| t.srtt_us)
            );
        }
    };
    let (mut open, before) = (0, std::time::Instant::now());
    tracer.open(&mut |_| open += 1).unwrap();
    println!("a look at {open} sockets took {:?}", before.elapsed());
    tracer.open(&mut |u| show("open", u)).unwrap();
    tracer.ended(&mut |u| show("ended", u)).unwrap();
    tracer.pairs(&mut |p| println!("{p:?}")).unwrap();
    tracer.cgroups(&mut |id, path| println!("cgroup {id} {}", name(path)));
    println!("{:?}", tracer.losses());
}
