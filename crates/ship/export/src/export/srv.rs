//! Collectors that an SRV record names (RFC 2782). The C library has no call for these: the servers of
//! `/etc/resolv.conf` are asked here.

use std::{
    fs,
    io::{self, Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs as _, UdpSocket},
    time::Duration,
};

use resolv_conf::{Config, ScopedIp};
use simple_dns::{
    CLASS, Name, Packet, PacketFlag, QCLASS, QTYPE, Question, RCODE, TYPE, rdata::RData,
};

/// Servers that are asked at most, as by the C library.
const SERVERS: usize = 3;
/// How long one has to answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// Targets at most.
const TARGETS: usize = 64;

/// A host and its port.
type Target = (String, u16);

/// Addresses of all targets of the best priority.
///
/// # Errors
///
/// No server answers, or there is no such record, or none of its targets has an address.
pub fn addresses(name: &str) -> io::Result<Vec<SocketAddr>> {
    let text = fs::read("/etc/resolv.conf").unwrap_or_default();
    let config = Config::parse(text).map_err(io::Error::other)?;
    let servers: Vec<_> = config.nameservers.iter().map(server).collect();
    let (mut all, mut wrong) = (Vec::new(), None);
    for (host, port) in targets(name, &servers, config.get_last_search_or_domain())? {
        // A target that has no address now does not hide the others.
        match (host.as_str(), port).to_socket_addrs() {
            Ok(found) => all.extend(found),
            Err(error) => wrong = Some(error),
        }
    }
    match wrong {
        Some(error) if all.is_empty() => Err(error),
        _ => Ok(all),
    }
}

fn server(address: &ScopedIp) -> SocketAddr {
    (IpAddr::from(address), 53).into()
}

/// Asks for a name, and for it in each domain that is searched.
fn targets<'d>(
    name: &str,
    servers: &[SocketAddr],
    domains: impl Iterator<Item = &'d String>,
) -> io::Result<Vec<Target>> {
    let plain = name.trim_end_matches('.');
    let whole = std::iter::once(plain.to_owned());
    let searched = domains.map(|domain| format!("{plain}.{}", domain.trim_end_matches('.')));
    let mut last = io::Error::other("/etc/resolv.conf names no server");
    for name in whole.chain(searched.filter(|_| !name.ends_with('.'))) {
        match ask_any(&name, servers) {
            Ok(found) if !found.is_empty() => return Ok(found),
            Ok(_) => last = io::Error::other(format!("{name} has no SRV record")),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn ask_any(name: &str, servers: &[SocketAddr]) -> io::Result<Vec<Target>> {
    let mut last = io::Error::other("/etc/resolv.conf names no server");
    for server in servers.iter().take(SERVERS) {
        match ask(name, *server) {
            Ok(found) => return Ok(found),
            Err(error) => {
                last = io::Error::other(format!("the name server {server}: {error}"));
            }
        }
    }
    Err(last)
}

/// Asks one server, by TCP when the answer is too long for a datagram.
fn ask(name: &str, server: SocketAddr) -> io::Result<Vec<Target>> {
    let mut id = [0; 2];
    getrandom::fill(&mut id).map_err(io::Error::other)?;
    let id = u16::from_ne_bytes(id);
    let question = question(name, id)?;
    let any: IpAddr = match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    // Connected: the kernel takes answers of this server only.
    socket.connect(server)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.send(&question)?;
    let mut buffer = vec![0; 65_535];
    let length = socket.recv(&mut buffer)?;
    let answer = buffer.get(..length).unwrap_or_default();
    match read(answer, id)? {
        Some(found) => Ok(found),
        None => read(&by_tcp(&question, server)?, id)?
            .ok_or_else(|| io::Error::other("the answer is cut off")),
    }
}

fn by_tcp(question: &[u8], server: SocketAddr) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect_timeout(&server, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let length = u16::try_from(question.len()).map_err(io::Error::other)?;
    stream.write_all(&[&length.to_be_bytes(), question].concat())?;
    let mut length = [0; 2];
    stream.read_exact(&mut length)?;
    let mut answer = vec![0; u16::from_be_bytes(length).into()];
    stream.read_exact(&mut answer)?;
    Ok(answer)
}

fn question(name: &str, id: u16) -> io::Result<Vec<u8>> {
    let name = Name::new(name).map_err(|error| io::Error::other(error.to_string()))?;
    let mut packet = Packet::new_query(id);
    packet.set_flags(PacketFlag::RECURSION_DESIRED);
    packet.questions.push(Question::new(
        name,
        QTYPE::TYPE(TYPE::SRV),
        QCLASS::CLASS(CLASS::IN),
        false,
    ));
    packet
        .build_bytes_vec()
        .map_err(|error| io::Error::other(error.to_string()))
}

/// Targets of the best priority; none when the answer is cut off.
fn read(answer: &[u8], id: u16) -> io::Result<Option<Vec<Target>>> {
    let packet = Packet::parse(answer).map_err(|error| io::Error::other(error.to_string()))?;
    if packet.id() != id || !packet.has_flags(PacketFlag::RESPONSE) {
        return Err(io::Error::other("this is no answer to what was asked"));
    }
    if packet.has_flags(PacketFlag::TRUNCATION) {
        return Ok(None);
    }
    match packet.rcode() {
        RCODE::NoError => {}
        RCODE::NameError => return Ok(Some(Vec::new())),
        code => return Err(io::Error::other(format!("it answers {code:?}"))),
    }
    let records = packet
        .answers
        .iter()
        .filter_map(|record| match &record.rdata {
            // "." says that there is no such service.
            RData::SRV(srv) if !srv.target.get_labels().is_empty() => Some(srv),
            _ => None,
        });
    let best = records.clone().map(|srv| srv.priority).min();
    let best = records.filter(|srv| Some(srv.priority) == best);
    let mut all: Vec<_> = best.map(|srv| (srv.target.to_string(), srv.port)).collect();
    all.sort_unstable();
    all.truncate(TARGETS);
    Ok(Some(all))
}

#[cfg(test)]
mod tests {
    use std::{net::TcpListener, thread};

    use simple_dns::{ResourceRecord, rdata::SRV};

    use super::*;

    /// An answer with records of (priority, port, target) to a question.
    fn answer(question: &[u8], records: &[(u16, u16, &str)]) -> Vec<u8> {
        let mut packet = Packet::parse(question).unwrap().into_reply();
        let name = packet.questions[0].qname.clone();
        for (priority, port, target) in records {
            packet.answers.push(ResourceRecord::new(
                name.clone(),
                CLASS::IN,
                30,
                RData::SRV(SRV {
                    priority: *priority,
                    weight: 1,
                    port: *port,
                    target: Name::new(target).unwrap(),
                }),
            ));
        }
        packet.build_bytes_vec_compressed().unwrap()
    }

    /// What answers a question.
    type Answer = fn(&[u8]) -> Vec<u8>;

    /// A server that answers so many questions by UDP.
    fn server(answers: Vec<Answer>) -> (SocketAddr, thread::JoinHandle<()>) {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let thread = thread::spawn(move || {
            for answer in answers {
                let mut buffer = [0; 512];
                let (length, from) = socket.recv_from(&mut buffer).unwrap();
                socket.send_to(&answer(&buffer[..length]), from).unwrap();
            }
        });
        (address, thread)
    }

    fn asked_for(question: &[u8]) -> String {
        Packet::parse(question).unwrap().questions[0]
            .qname
            .to_string()
    }

    #[test]
    fn targets_of_the_best_priority_are_taken_and_domains_are_searched() {
        let (address, thread) = server(vec![
            |question| {
                assert_eq!(asked_for(question), "_skua._udp.collectors");
                answer(question, &[])
            },
            |question| {
                assert_eq!(asked_for(question), "_skua._udp.collectors.example.org");
                answer(
                    question,
                    &[
                        (20, 1, "spare"),
                        (10, 6_343, "two.example"),
                        (10, 6_344, "one.example"),
                    ],
                )
            },
        ]);
        let domain = ["example.org".to_owned()];
        let found = targets("_skua._udp.collectors", &[address], domain.iter()).unwrap();
        assert_eq!(
            found,
            [("one.example".into(), 6_344), ("two.example".into(), 6_343)]
        );
        thread.join().unwrap();
    }

    #[test]
    fn a_long_answer_comes_by_tcp() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let socket = UdpSocket::bind(address).unwrap();
        let thread = thread::spawn(move || {
            let mut buffer = [0; 512];
            let (length, from) = socket.recv_from(&mut buffer).unwrap();
            let mut packet = Packet::parse(&buffer[..length]).unwrap().into_reply();
            packet.set_flags(PacketFlag::TRUNCATION);
            socket
                .send_to(&packet.build_bytes_vec().unwrap(), from)
                .unwrap();
            let (mut stream, _) = listener.accept().unwrap();
            let mut question = vec![0; length + 2];
            stream.read_exact(&mut question).unwrap();
            let answer = answer(&question[2..], &[(0, 9, "one.example")]);
            let length = (answer.len() as u16).to_be_bytes();
            stream.write_all(&[&length[..], &answer].concat()).unwrap();
        });
        let found = targets("_skua._udp.example.org.", &[address], [].iter()).unwrap();
        assert_eq!(found, [("one.example".into(), 9)]);
        thread.join().unwrap();
    }

    #[test]
    fn what_is_no_answer_is_an_error_in_a_line() {
        let error = |answer: Answer| {
            let (address, thread) = server(vec![answer]);
            let error = targets("_skua._udp.example.org", &[address], [].iter()).unwrap_err();
            thread.join().unwrap();
            error.to_string()
        };
        assert!(error(|_| b"nonsense".to_vec()).starts_with("the name server 127.0.0.1:"));
        assert!(error(<[u8]>::to_vec).contains("no answer to what was asked"));
        assert!(error(|question| answer(question, &[])).contains("has no SRV record"));
        // That there is no such service.
        assert!(error(|question| answer(question, &[(0, 0, "")])).contains("has no SRV record"));
        assert!(
            error(|question| {
                let mut packet = Packet::parse(question).unwrap().into_reply();
                *packet.rcode_mut() = RCODE::ServerFailure;
                packet.build_bytes_vec().unwrap()
            })
            .contains("ServerFailure")
        );
        let nobody = targets("_skua._udp.example.org", &[], [].iter()).unwrap_err();
        assert!(nobody.to_string().contains("names no server"));
    }
}
