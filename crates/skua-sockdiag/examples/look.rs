//! Measures looks at many sockets: `look CONNECTIONS [LOOKS]` opens so many connections over
//! loopback (two sockets each) in the network namespace that it is started in, and prints how long
//! looks take, then how long ends take to read. `look 0` looks at what is there.
#![allow(clippy::print_stdout, reason = "it is what it is for")]

use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
use skua_link::Namespace;
use skua_sockdiag::{DiagSocket, SockDiag};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<usize>());
    let connections = arguments.next().transpose()?.unwrap_or(0);
    let looks = arguments.next().transpose()?.unwrap_or(5);
    let own = Namespace::own()?;
    let mut probe = SockDiag::start(std::iter::once(&own))?;
    for status in probe.describe() {
        println!(
            "{}: {}: {:?} {}",
            status.capability, status.hook, status.state, status.reason
        );
    }

    let listener = TcpListener::bind("127.0.0.1:0")?;
    let to = listener.local_addr()?;
    let mut kept: Vec<(TcpStream, TcpStream)> = Vec::with_capacity(connections);
    for number in 0..connections {
        // Ports of one address would not do.
        let [.., high, low] = (number / 20_000).to_be_bytes();
        let client = socket(AddressFamily::INET, SocketType::STREAM, None)?;
        bind(&client, &SocketAddr::from(([127, 1, high, low], 0)))?;
        connect(&client, &to)?;
        kept.push((client.into(), listener.accept()?.0));
    }

    let mut query = DiagSocket::open()?;
    for _ in 0..looks {
        let begin = Instant::now();
        let mut told = 0;
        query.dump_all(&mut |_| told += 1)?;
        println!("dump alone: {told} sockets, {:.1} ms", millis(begin));
        let begin = Instant::now();
        let (mut open, mut owned) = (0, 0);
        probe.open(&mut |update| {
            open += 1;
            owned += u32::from(update.task.pid != 0);
        });
        println!(
            "look: {open} sockets, {owned} with an owner, {:.1} ms",
            millis(begin)
        );
    }
    if std::env::var_os("WAIT").is_some() {
        println!("waiting for a line");
        std::io::stdin().read_line(&mut String::new())?;
    }

    let sockets = 2 * connections;
    drop(kept);
    std::thread::sleep(Duration::from_secs(2));
    let begin = Instant::now();
    let mut ended = 0;
    probe.ended(&mut |_| ended += 1);
    println!(
        "ends: {ended} of {sockets}, {:.1} ms; {:?}",
        millis(begin),
        probe.losses()
    );
    Ok(())
}

fn millis(begin: Instant) -> f64 {
    begin.elapsed().as_secs_f64() * 1000.0
}
