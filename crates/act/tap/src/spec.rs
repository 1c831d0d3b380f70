//! What a tap is to do.

use std::{
    collections::BTreeSet,
    fmt,
    net::{IpAddr, SocketAddr},
};

use skua_kernel::{
    Direction,
    tap::{TapChoice, TapSocket, TapTask},
};

/// A network namespace as people name it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Space {
    /// That of this process.
    #[default]
    Own,
    /// One below /run/netns.
    Named(String),
    /// That of a process.
    Process(u32),
}

impl fmt::Display for Space {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Own => write!(f, "of Skua"),
            Self::Named(name) => write!(f, "{name}"),
            Self::Process(pid) => write!(f, "of process {pid}"),
        }
    }
}

/// A monitor.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Target {
    /// An interface, by name.
    Interface {
        /// Its name.
        name: String,
        /// Where it is.
        space: Space,
    },
    /// A monitor elsewhere, through a tunnel.
    Tunnel {
        /// Which kind.
        tunnel: Tunnel,
        /// Its address.
        remote: IpAddr,
        /// Its UDP port; 0 without UDP.
        port: u16,
        /// VNI, or session.
        id: u32,
        /// From where it is reached.
        space: Space,
    },
}

/// Kinds of tunnels.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Tunnel {
    /// VXLAN (RFC 7348).
    Vxlan,
    /// GENEVE (RFC 8926).
    Geneve,
    /// ERSPAN type III (draft-foschiano-erspan-03).
    Erspan,
}

impl Tunnel {
    /// All.
    pub const ALL: [Self; 3] = [Self::Vxlan, Self::Geneve, Self::Erspan];

    /// Name as users write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Vxlan => "vxlan",
            Self::Geneve => "geneve",
            Self::Erspan => "erspan",
        }
    }

    /// The registered UDP port; 0 without UDP.
    pub fn port(self) -> u16 {
        match self {
            Self::Vxlan => 4_789,
            Self::Geneve => 6_081,
            Self::Erspan => 0,
        }
    }

    /// The greatest VNI or session.
    pub fn most_id(self) -> u32 {
        match self {
            Self::Vxlan | Self::Geneve => (1 << 24) - 1,
            Self::Erspan => (1 << 10) - 1,
        }
    }
}

impl Target {
    /// Where it is, or from where it is reached.
    pub fn space(&self) -> &Space {
        match self {
            Self::Interface { space, .. } | Self::Tunnel { space, .. } => space,
        }
    }

    /// Pcap expression of the tap's own tunnel packets to the monitor.
    pub fn own_packets(&self) -> Option<String> {
        let Self::Tunnel {
            tunnel,
            remote,
            port,
            ..
        } = self
        else {
            return None;
        };
        let family = if remote.is_ipv6() { "ip6" } else { "ip" };
        Some(match tunnel {
            Tunnel::Vxlan | Tunnel::Geneve => {
                format!("({family} dst host {remote} and udp dst port {port})")
            }
            Tunnel::Erspan => format!("({family} dst host {remote} and {family} proto 47)"),
        })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Interface { name, .. } => write!(f, "{name}")?,
            Self::Tunnel {
                tunnel,
                remote,
                port,
                id,
                ..
            } => {
                let name = tunnel.name();
                match (port, remote) {
                    (0, IpAddr::V6(_)) => write!(f, "{name}://[{remote}]/{id}")?,
                    (0, IpAddr::V4(_)) => write!(f, "{name}://{remote}/{id}")?,
                    _ => write!(f, "{name}://{}/{id}", SocketAddr::new(*remote, *port))?,
                }
            }
        }
        match self.space() {
            Space::Own => Ok(()),
            Space::Named(space) => write!(f, "@{space}"),
            Space::Process(pid) => write!(f, "@pid:{pid}"),
        }
    }
}

/// An interface whose packets are copied.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Source {
    /// Inode number of its network namespace.
    pub netns: u64,
    /// Its index there.
    pub ifindex: u32,
    /// Its name.
    pub name: String,
}

/// Sockets whose packets are copied, as of one inventory.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct WantedSockets {
    /// Each with the inode number of its network namespace.
    pub sockets: Vec<(u64, TapSocket)>,
    /// Tasks whose new connections are copied from their first packet.
    pub tasks: BTreeSet<TapTask>,
    /// When the inventory began, ns of CLOCK_MONOTONIC.
    pub looked_ns: u64,
}

/// What a tap is to do.
#[derive(Clone, PartialEq, Debug)]
pub struct Spec {
    /// Sources by name; [`crate::Tap::set_sources`] adds more.
    pub sources: Vec<(String, Space)>,
    /// Which packets. The random numbers are the tap's to choose.
    pub choice: TapChoice,
    /// Received packets, sent ones, or both.
    pub directions: Vec<Direction>,
    /// Where copies go; several share the conversations. None: only to watching clients.
    pub targets: Vec<Target>,
    /// Super-packets are not segmented and checksums not completed.
    pub whole: bool,
}
