//! An Open vSwitch of its own, with the userspace datapath, between two namespaces; gone afterwards.

use std::{
    fs,
    net::UdpSocket,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use skua_testkit::lab::{Net, run, wait_for};

use crate::collected::Folder;

const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";
/// Packets under way at a time, fewer than any queue on the way holds.
const WINDOW: usize = 16;

/// Two hosts on a switch.
pub struct Switch {
    folder: Folder,
    /// Where the switch runs.
    pub net: Net,
    pub hosts: [Net; 2],
}

impl Switch {
    pub fn new(name: &str) -> Self {
        let hosts = [Net::new(), Net::new()];
        let net = Net::new();
        for (number, host) in hosts.iter().enumerate() {
            let (own, other) = (number + 1, 2 - number);
            let end = format!("port address 02:00:00:00:00:0{own}");
            host.pair(&end, &net, &format!("p{own}"));
            // The datapath takes frames as they are: what a card would have to fill in must be there.
            host.ethtool("port", "tx off gso off tso off");
            host.ip(&format!("addr add 10.79.0.{own}/24 dev port"));
            host.ip(&format!(
                "neigh add 10.79.0.{other} lladdr 02:00:00:00:00:0{other} dev port"
            ));
        }
        let switch = Self {
            folder: Folder::new(name),
            net,
            hosts,
        };
        switch.start();
        switch
    }

    pub fn path(&self, name: &str) -> String {
        self.folder.0.join(name).display().to_string()
    }

    /// Runs a program of Open vSwitch in the switch's namespace, its arguments split at spaces.
    fn ovs(&self, command: &str) -> String {
        let mut words = command.split_whitespace();
        let mut command = self.net.command(words.next().unwrap());
        for name in ["RUN", "LOG", "DB"] {
            command.env(format!("OVS_{name}DIR"), &self.folder.0);
        }
        run(command.args(words))
    }

    fn start(&self) {
        let (database, socket) = (self.path("conf.db"), self.path("db.sock"));
        self.ovs(&format!("ovsdb-tool create {database} {SCHEMA}"));
        self.ovs(&format!(
            "ovsdb-server {database} --remote=punix:{socket} --detach --no-chdir -vconsole:off \
             --pidfile={} --log-file={}",
            self.path("ovsdb.pid"),
            self.path("ovsdb.log")
        ));
        self.vsctl("--no-wait init");
        self.ovs(&format!(
            "ovs-vswitchd unix:{socket} --disable-system --detach --no-chdir -vconsole:off \
             --pidfile={} --log-file={}",
            self.path("vswitchd.pid"),
            self.path("vswitchd.log")
        ));
        self.vsctl(
            "add-br br0 -- set bridge br0 datapath_type=netdev -- add-port br0 p1 -- add-port br0 p2",
        );
        // Each side has been seen once, so that nothing is flooded.
        self.talk(1, 100, 39_000);
    }

    pub fn vsctl(&self, command: &str) -> String {
        let said = self.ovs(&format!(
            "ovs-vsctl --db=unix:{} {command}",
            self.path("db.sock")
        ));
        // Flows that the datapath has go on as before until they are looked at again, which may take seconds.
        if let Ok(pid) = fs::read_to_string(self.path("vswitchd.pid")) {
            let control = self.path(&format!("ovs-vswitchd.{}.ctl", pid.trim()));
            self.ovs(&format!("ovs-appctl -t {control} revalidator/purge"));
        }
        said
    }

    /// ifIndex of the port of a host, 1 or 2.
    pub fn ifindex(&self, host: u8) -> u64 {
        self.net.ifindex(&format!("p{host}")).into()
    }

    /// The first host sends datagrams with so many bytes from a port to port 9000 of the second,
    /// which answers each. Every packet arrives.
    pub fn talk(&self, packets: usize, bytes: usize, port: u16) {
        let bind = |host: usize, address: String| {
            // The socket before is still held by a child that another test starts, until it executes its program.
            let free = || self.hosts[host].inside(|| UdpSocket::bind(&address).ok());
            let socket = wait_for("a free port", free);
            socket
                .set_read_timeout(Some(Duration::from_millis(100)))
                .unwrap();
            socket
        };
        let client = bind(0, format!("10.79.0.1:{port}"));
        let server = bind(1, "10.79.0.2:9000".to_owned());
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut buffer = [0; 2_000];
                while !done.load(Ordering::Relaxed) {
                    if let Ok((length, from)) = server.recv_from(&mut buffer) {
                        server.send_to(&buffer[..length], from).unwrap();
                    }
                }
            });
            let (payload, mut buffer) = (vec![0; bytes], [0; 2_000]);
            let mut left = packets;
            while left > 0 {
                let window = left.min(WINDOW);
                for _ in 0..window {
                    client.send_to(&payload, "10.79.0.2:9000").unwrap();
                }
                for _ in 0..window {
                    // Ports need a moment at the start.
                    let answered = (0..100).any(|_| client.recv(&mut buffer).is_ok());
                    assert!(answered, "a packet was lost at the switch");
                }
                left -= window;
            }
            done.store(true, Ordering::Relaxed);
        });
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        for name in ["vswitchd.pid", "ovsdb.pid"] {
            let Ok(text) = fs::read_to_string(self.path(name)) else {
                continue;
            };
            let pid = text.trim().parse().ok().and_then(Pid::from_raw);
            if let Some(pid) = pid {
                let _ = kill_process(pid, Signal::TERM);
                // Its namespace is removed next.
                for _ in 0..500 {
                    if rustix::process::test_kill_process(pid).is_err() {
                        break;
                    }
                    thread::sleep(Duration::from_millis(10));
                }
            }
        }
    }
}
