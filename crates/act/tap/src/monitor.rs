//! Monitors: what they are now, and which conversations fall to which.

use skua_kernel::tap::{Encapsulation, Monitor, OUTPUTS};
use skua_link::{Ethtool, LinkSocket, Namespace, Reach};
use std::{
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

use crate::{TapError, Target, Tunnel, veth_pair::UNREAL};

/// How often and how long is waited for a neighbour to answer.
const ATTEMPTS: u32 = 5;
const PATIENCE: Duration = Duration::from_millis(20);

/// A monitor as it is now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct FoundMonitor {
    /// Inode number of its namespace.
    pub netns: u64,
    /// The monitor's settings for the kernel program.
    pub monitor: Monitor,
    /// The interface needs packets as the wire has them: segmented, with checksums.
    pub real: bool,
}

/// Finds a monitor in its namespace.
pub(crate) fn find(target: &Target, namespace: &Namespace) -> Result<FoundMonitor, TapError> {
    match target {
        Target::Interface { name, .. } => find_interface(target, name, namespace),
        Target::Tunnel {
            tunnel,
            remote,
            port,
            id,
            ..
        } => {
            let (reach, mac) = reach(target, *remote, namespace)?;
            let link = LinkSocket::open_in(namespace)?.get(reach.ifindex)?;
            let link = link.filter(|link| link.has_ethernet_header() && link.up);
            let no = || TapError::Other(format!("the interface to {target} is not Ethernet"));
            let link = link.ok_or_else(no)?;
            Ok(FoundMonitor {
                netns: namespace.id.inode,
                monitor: Monitor {
                    ifindex: reach.ifindex,
                    mtu: link.mtu,
                    encapsulation: match tunnel {
                        Tunnel::Vxlan => Encapsulation::Vxlan,
                        Tunnel::Geneve => Encapsulation::Geneve,
                        Tunnel::Erspan => Encapsulation::Erspan,
                    },
                    id: *id,
                    addresses: (reach.source, *remote),
                    macs: (link.mac.ok_or_else(no)?, mac),
                    port: *port,
                },
                // Only the tap's own veth pair encapsulates.
                real: false,
            })
        }
    }
}

/// Finds the route to a remote monitor. A neighbour that is not in the kernel's table is resolved.
fn reach(
    target: &Target,
    remote: IpAddr,
    namespace: &Namespace,
) -> Result<(Reach, [u8; 6]), TapError> {
    for attempt in 0..ATTEMPTS {
        if attempt > 0 {
            std::thread::sleep(PATIENCE);
        }
        let found = namespace.enter(|| Reach::find(remote))??;
        let Some(reach) = found else {
            return Err(TapError::Other(format!("no route leads to {target}")));
        };
        if let Some(mac) = reach.mac {
            return Ok((reach, mac));
        }
    }
    Err(TapError::Other(format!(
        "the next hop to {target} does not answer"
    )))
}

fn find_interface(
    target: &Target,
    name: &str,
    namespace: &Namespace,
) -> Result<FoundMonitor, TapError> {
    let links = LinkSocket::open_in(namespace)?.list()?;
    let link = links.into_iter().find(|link| link.name == *name);
    let link = link.ok_or_else(|| TapError::NoInterface(target.to_string()))?;
    if !link.has_ethernet_header() || link.is_loopback() {
        return Err(TapError::Other(format!(
            "{target} is not an Ethernet interface"
        )));
    }
    if !link.up || !link.running {
        return Err(TapError::Other(format!("{target} is down")));
    }
    let nobody = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    Ok(FoundMonitor {
        netns: namespace.id.inode,
        monitor: Monitor {
            ifindex: link.ifindex,
            mtu: link.mtu,
            encapsulation: Encapsulation::Plain,
            id: 0,
            addresses: (nobody, nobody),
            macs: ([0; 6], [0; 6]),
            port: 0,
        },
        // An interface without a kind is hardware, which segments and completes checksums itself.
        real: link.kind.is_none() || namespace.enter(|| is_real(link.ifindex))?,
    })
}

/// Whether an interface gets packets segmented and with checksums.
fn is_real(ifindex: u32) -> bool {
    let active = || -> Result<_, skua_link::Error> {
        match Ethtool::open()? {
            Some(mut ethtool) => Ok(Some(ethtool.active_features(ifindex)?)),
            None => Ok(None),
        }
    };
    let active = active().ok().flatten();
    active.is_some_and(|active| !UNREAL.iter().any(|name| active.contains(*name)))
}

/// A well-mixed number of two.
fn mix(a: u64, b: u64) -> u64 {
    // The finalizer of splitmix64.
    let x = (a << 32 ^ b).wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Assigns each output to one of the available monitors by rendezvous hashing: when a monitor
/// disappears, only its outputs move. A single monitor gets all.
pub(crate) fn spread(there: &[u32]) -> [Option<u32>; OUTPUTS] {
    std::array::from_fn(|place| {
        let best = |monitor: &&u32| mix(place as u64, u64::from(**monitor));
        there.iter().max_by_key(best).copied()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_a_monitor_that_goes_are_shared_and_others_stay() {
        let before = spread(&[0, 1, 2]);
        let after = spread(&[0, 2]);
        for (before, after) in before.iter().zip(after) {
            assert!(
                *before == after || *before == Some(1),
                "{before:?} {after:?}"
            );
        }
        for monitor in 0..3 {
            let share = before.iter().filter(|m| **m == Some(monitor)).count();
            assert!((10..=34).contains(&share), "{monitor}: {share}");
        }
        assert_eq!(spread(&[5]), [Some(5); OUTPUTS]);
        assert_eq!(spread(&[]), [None; OUTPUTS]);
    }
}
