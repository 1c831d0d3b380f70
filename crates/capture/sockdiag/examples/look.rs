//! Measures looks at many sockets: `look PROCESSES CONNECTIONS [LOOKS]` starts so many processes
//! that each hold so many connections over loopback (two sockets each) in the network namespace
//! that it is started in, prints how long looks take, runs `ss` beside them when `SS` is set, and
//! then ends the processes and reads the ends.
#![allow(clippy::print_stdout, reason = "it is what it is for")]

use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
use skua_link::Namespace;
use skua_sockdiag::{DiagSocket, SockDiag};
use std::error::Error;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |place: usize, otherwise: usize| {
        let text = arguments.get(place);
        text.map_or(Ok(otherwise), |text| text.parse::<usize>())
    };
    if arguments.first().is_some_and(|first| first == "hold") {
        return hold(number(1, 0)?, number(2, 0)?);
    }
    let (processes, connections, looks) = (number(0, 0)?, number(1, 0)?, number(2, 5)?);
    let own = Namespace::own()?;
    let mut probe = SockDiag::start(std::iter::once(&own))?;
    for status in probe.describe() {
        println!(
            "{}: {}: {:?} {}",
            status.capability, status.hook, status.state, status.reason
        );
    }
    let mut children = Vec::new();
    for place in 0..processes {
        children.push(spawn(place, connections)?);
    }

    let mut query = DiagSocket::open()?;
    for _ in 0..looks {
        let begin = Instant::now();
        let mut printed = 0;
        query.dump_all(&mut |_| printed += 1)?;
        println!("dump alone: {printed} sockets, {:.1} ms", millis(begin));
        let begin = Instant::now();
        let (mut open, mut owned) = (0, 0);
        probe.open(&mut |update| {
            open += 1;
            owned += u32::from(update.task.pid != 0);
        });
        let took = millis(begin);
        println!("look: {open} sockets, {owned} with an owner, {took:.1} ms");
        if std::env::var_os("SS").is_some() {
            for options in ["-tin", "-tinp"] {
                let begin = Instant::now();
                let mut ss = Command::new("ss");
                ss.args([options, "-O"]).stdout(Stdio::null()).status()?;
                println!("ss {options}: {:.1} ms", millis(begin));
            }
        }
    }
    let status = std::fs::read_to_string("/proc/self/status")?;
    for line in status.lines().filter(|line| line.starts_with("VmRSS")) {
        println!("{line}");
    }

    for child in &mut children {
        child.kill()?;
        child.wait()?;
    }
    std::thread::sleep(Duration::from_secs(3));
    let begin = Instant::now();
    let mut ended = 0;
    probe.ended(&mut |_| ended += 1);
    let took = millis(begin);
    println!("ends: {ended}, {took:.1} ms; {:?}", probe.losses());
    Ok(())
}

/// Starts a process that holds connections, and waits until it has them.
fn spawn(place: usize, connections: usize) -> Result<Child, Box<dyn Error>> {
    let mut child = Command::new(std::env::current_exe()?)
        .args(["hold", &place.to_string(), &connections.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let ready = child.stdout.as_mut().ok_or("no output")?;
    ready.read_exact(&mut [0])?;
    Ok(child)
}

/// Holds connections until it is killed.
fn hold(place: usize, connections: usize) -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let to = listener.local_addr()?;
    let mut kept: Vec<(TcpStream, TcpStream)> = Vec::with_capacity(connections);
    let [.., low] = place.to_be_bytes();
    for _ in 0..connections {
        // The ports of one address would not do for all processes.
        let client = socket(AddressFamily::INET, SocketType::STREAM, None)?;
        bind(&client, &SocketAddr::from(([127, 1, 1, low], 0)))?;
        connect(&client, &to)?;
        kept.push((client.into(), listener.accept()?.0));
    }
    std::io::stdout().write_all(b"+")?;
    std::io::stdout().flush()?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

fn millis(begin: Instant) -> f64 {
    begin.elapsed().as_secs_f64() * 1000.0
}
