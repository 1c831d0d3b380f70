//! Where a collector is. Its name is asked for again while it is told, for collectors move.

use std::{
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _, UdpSocket},
    sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, channel, sync_channel},
    time::Duration,
};

use anyhow::Context as _;

/// Time between questions.
const AGAIN: Duration = Duration::from_secs(30);

/// The place of a collector, followed as long as this lives.
pub struct Place {
    name: String,
    address: SocketAddr,
    /// What the name meant at the last question; nothing comes for an address.
    answers: Receiver<Vec<SocketAddr>>,
    /// Dropped, it ends the questions.
    _stop: Option<SyncSender<()>>,
}

impl Place {
    /// Looks a name with a port up, now and then again.
    ///
    /// # Errors
    ///
    /// There is no such name, or it has no port.
    pub fn of(name: &str) -> anyhow::Result<Self> {
        let ask = |name: &str| name.to_socket_addrs().map(Iterator::collect);
        Self::asking(name, AGAIN, ask)
    }

    fn asking(
        name: &str,
        again: Duration,
        ask: impl Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + 'static,
    ) -> anyhow::Result<Self> {
        let found =
            ask(name).with_context(|| format!("collector {name}: write it like collector:6343"))?;
        // In the family that this host prefers.
        let preferred = found
            .first()
            .with_context(|| format!("collector {name} has no address"))?;
        let address = chosen(&found, preferred.is_ipv4()).unwrap_or(*preferred);
        let (found, answers) = channel();
        let stop = match name.parse::<SocketAddr>() {
            Ok(_) => None,
            Err(_) => {
                let (stop, stopped) = sync_channel(0);
                let name = name.to_owned();
                // A question may take long, and what is to be sent must not wait for it.
                std::thread::Builder::new()
                    .name("collector-name".into())
                    .spawn(move || {
                        while stopped.recv_timeout(again) == Err(RecvTimeoutError::Timeout) {
                            match ask(&name) {
                                Ok(addresses) => drop(found.send(addresses)),
                                Err(error) => tracing::debug!(%name, %error, "name not found"),
                            }
                        }
                    })?;
                Some(stop)
            }
        };
        Ok(Self {
            name: name.to_owned(),
            address,
            answers,
            _stop: stop,
        })
    }

    /// A socket that sends there.
    ///
    /// # Errors
    ///
    /// The kernel knows no way there.
    pub fn connect(&self) -> anyhow::Result<UdpSocket> {
        let any = match self.address {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let socket = UdpSocket::bind(SocketAddr::new(any, 0))?;
        socket
            .connect(self.address)
            .with_context(|| format!("collector {} cannot be reached", self.name))?;
        Ok(socket)
    }

    /// Has a socket of [`connect`](Self::connect) send to where the collector is now. It stays where it is as long
    /// as that is one of the name's addresses.
    pub fn follow(&mut self, socket: &UdpSocket) {
        let Some(found) = self.answers.try_iter().last() else {
            return;
        };
        if found.contains(&self.address) {
            return;
        }
        let Some(address) = chosen(&found, self.address.is_ipv4()) else {
            return;
        };
        match socket.connect(address) {
            Ok(()) => {
                tracing::info!(collector = %self.name, from = %self.address, to = %address, "the collector has moved");
                self.address = address;
            }
            Err(error) => {
                tracing::warn!(collector = %self.name, to = %address, %error, "no way there")
            }
        }
    }
}

/// Of a family the lowest address: all agents that ask take the same one.
fn chosen(addresses: &[SocketAddr], ipv4: bool) -> Option<SocketAddr> {
    let of_family = addresses.iter().filter(|one| one.is_ipv4() == ipv4);
    of_family.min().copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        sync::{Arc, Mutex},
        time::Instant,
    };

    fn at(addresses: &[&str]) -> Vec<SocketAddr> {
        addresses.iter().map(|one| one.parse().unwrap()).collect()
    }

    #[test]
    fn a_name_that_moves_is_followed_within_its_family() {
        let answer = Arc::new(Mutex::new(Ok(at(&[
            "127.0.0.3:9",
            "127.0.0.2:9",
            "[::1]:9",
        ]))));
        let asked = Arc::new(Mutex::new(0));
        let (theirs, counts) = (answer.clone(), asked.clone());
        let ask = move |name: &str| {
            assert_eq!(name, "collector:9");
            *counts.lock().unwrap() += 1;
            let found: &Result<Vec<SocketAddr>, ()> = &theirs.lock().unwrap();
            found.clone().map_err(|()| io::Error::other("no such name"))
        };
        let mut place = Place::asking("collector:9", Duration::from_millis(1), ask).unwrap();
        let socket = place.connect().unwrap();
        // Follows until the name was asked for twice more: once with this answer at least.
        let mut follow = |found: Result<Vec<SocketAddr>, ()>| {
            *answer.lock().unwrap() = found;
            let (before, end) = (
                *asked.lock().unwrap(),
                Instant::now() + Duration::from_secs(60),
            );
            while *asked.lock().unwrap() < before + 3 {
                assert!(Instant::now() < end);
                std::thread::sleep(Duration::from_millis(1));
            }
            place.follow(&socket);
            socket.peer_addr().unwrap().to_string()
        };
        assert_eq!(
            follow(Ok(at(&["127.0.0.1:9", "127.0.0.2:9"]))),
            "127.0.0.2:9"
        );
        assert_eq!(
            follow(Ok(at(&["127.0.0.5:9", "127.0.0.4:9"]))),
            "127.0.0.4:9"
        );
        // Nothing that it can go to, and no answer: it stays.
        assert_eq!(follow(Ok(at(&["[::1]:9"]))), "127.0.0.4:9");
        assert_eq!(follow(Err(())), "127.0.0.4:9");
        assert_eq!(follow(Ok(Vec::new())), "127.0.0.4:9");
        assert_eq!(follow(Ok(at(&["127.0.0.6:9"]))), "127.0.0.6:9");
    }

    #[test]
    fn an_address_is_not_asked_for_again() {
        let place = Place::of("127.0.0.1:6343").unwrap();
        assert!(place._stop.is_none());
        let error = |name| format!("{:#}", Place::of(name).err().unwrap());
        assert!(error("127.0.0.1").contains("write it like collector:6343"));
    }
}
