//! The tap's own veth pair from a namespace with sources to one with monitors.

use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use skua_kernel::{Attachment, Direction, HookKind, tap::MonitorPrograms};
use skua_link::{
    Ethtool, LinkSocket, Namespace, OWN_PREFIX, create_veth, delete_link, is_own_interface,
};

use crate::TapError;

/// What the near end must not put off to others: packets leave it as a wire has them.
const OFFLOADS: &[&str] = &[
    "tx-tcp-segmentation",
    "tx-tcp-ecn-segmentation",
    "tx-tcp-mangleid-segmentation",
    "tx-tcp6-segmentation",
    "tx-udp-segmentation",
    "tx-udp_tnl-segmentation",
    "tx-udp_tnl-csum-segmentation",
    "tx-gre-segmentation",
    "tx-gre-csum-segmentation",
    "tx-ipxip4-segmentation",
    "tx-ipxip6-segmentation",
    "tx-sctp-segmentation",
    "tx-esp-segmentation",
    "tx-gso-partial",
    "tx-gso-list",
    "tx-fcoe-segmentation",
    "tx-tunnel-remcsum-segmentation",
    "tx-gso-robust",
    "tx-checksum-ip-generic",
    "tx-checksum-ipv4",
    "tx-checksum-ipv6",
    "tx-checksum-sctp",
    "tx-checksum-fcoe-crc",
];

/// Features of an interface that gets super-packets, or packets with incomplete checksums.
pub(crate) const UNREAL: &[&str] = &[
    "tx-tcp-segmentation",
    "tx-tcp6-segmentation",
    "tx-udp-segmentation",
    "tx-checksum-ip-generic",
    "tx-checksum-ipv4",
    "tx-checksum-ipv6",
];

/// A veth pair. Dropping it removes it.
pub(crate) struct VethPair {
    near: u32,
    far: u32,
    delivers: Option<Attachment>,
    namespace: OwnedFd,
    /// Marks the pair as in use.
    _claim: OwnedFd,
}

/// Claims an abstract socket name that ends with this process: a pair whose name is free was left
/// behind.
fn claim(pair: &str) -> std::io::Result<OwnedFd> {
    let socket = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    let address = SocketAddrUnix::new_abstract_name(format!("skua/tap/{pair}").as_bytes())?;
    rustix::net::bind(&socket, &address)?;
    Ok(socket)
}

/// Removes pairs that a process left behind that was killed. Those of others stay.
pub(crate) fn clean_up(namespace: &Namespace) -> Result<(), TapError> {
    for link in LinkSocket::open_in(namespace)?.list()? {
        if !is_own_interface(&link.name) || !link.name.ends_with('a') {
            continue;
        }
        let pair = &link.name[..link.name.len() - 1];
        if namespace.enter(|| claim(pair).is_ok())? {
            tracing::info!(
                interface = link.name,
                "removing what an earlier run left behind"
            );
            delete_link(namespace, link.ifindex)?;
        }
    }
    Ok(())
}

impl VethPair {
    /// Makes a pair and puts the delivering program on its far end.
    pub fn open(
        near: &Namespace,
        far: &Namespace,
        programs: &MonitorPrograms,
        hook: HookKind,
    ) -> Result<Self, TapError> {
        let pair = format!("{OWN_PREFIX}{:06x}", fastrand::u32(..1 << 24));
        let (near_name, far_name) = (format!("{pair}a"), format!("{pair}b"));
        let other = |error: std::io::Error| TapError::Other(error.to_string());
        let namespace = near.file.try_clone().map_err(other)?;
        let claim = near.enter(|| claim(&pair))?.map_err(other)?;
        let (near_index, far_index) = create_veth((near, &near_name), (far, &far_name))?;
        let mut pair = Self {
            near: near_index,
            far: far_index,
            delivers: None,
            namespace,
            _claim: claim,
        };
        near.enter(|| turn_off_offloads(near_index))??;
        let delivers = far.enter(|| {
            let program = programs.deliver()?;
            Attachment::new(program, far_index, Direction::Ingress, hook)
        })??;
        pair.delivers = Some(delivers);
        LinkSocket::open_in(far)?.set_up(far_index)?;
        LinkSocket::open_in(near)?.set_up(near_index)?;
        Ok(pair)
    }

    /// Index of the end that copies enter.
    pub fn near(&self) -> u32 {
        self.near
    }

    /// Whether both ends are still there.
    pub fn is_whole(&self, near: &Namespace) -> bool {
        let link = LinkSocket::open_in(near).and_then(|mut links| links.get(self.near));
        link.is_ok_and(|link| link.is_some_and(|link| link.link == Some(self.far)))
    }

    /// Replaces the programs by another generation.
    pub fn replace(&mut self, programs: &MonitorPrograms) -> Result<(), TapError> {
        if let Some(delivers) = &mut self.delivers {
            delivers.replace(programs.deliver()?)?;
        }
        Ok(())
    }
}

fn turn_off_offloads(ifindex: u32) -> Result<(), TapError> {
    let no = || TapError::Other("this kernel has no ethtool over netlink (5.7)".into());
    let mut ethtool = Ethtool::open()?.ok_or_else(no)?;
    let known = ethtool.feature_names()?;
    let wanted: Vec<&str> = OFFLOADS
        .iter()
        .copied()
        .filter(|name| known.iter().any(|known| known == name))
        .collect();
    ethtool.turn_off(ifindex, &wanted)?;
    let active = ethtool.active_features(ifindex)?;
    match UNREAL.iter().find(|name| active.contains(**name)) {
        None => Ok(()),
        Some(name) => Err(TapError::Other(format!("{name} cannot be turned off"))),
    }
}

impl Drop for VethPair {
    fn drop(&mut self) {
        let near = self.near;
        let namespace = &self.namespace;
        let removed = std::thread::scope(|scope| {
            let work = scope.spawn(|| {
                use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
                use std::os::fd::AsFd as _;
                move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
                    .map_err(|error| TapError::Other(error.to_string()))?;
                Ok::<_, TapError>(delete_link(&Namespace::own()?, near)?)
            });
            work.join()
        });
        if let Ok(Err(error)) = removed {
            // The namespace was removed, and the pair with it.
            tracing::debug!(%error, "the tap's own interfaces no longer existed");
        }
    }
}
