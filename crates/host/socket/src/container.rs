//! What the path of a control group says about container, pod and unit.
//!
//! Paths are made by container runtimes and systemd, each in its way; `container/tests.rs` has them as
//! found in the field.

use std::fmt;

use crate::text::shown;

/// Longest id of a container: LXC and nspawn have names of up to 255 for one.
const ID: usize = 128;
/// Longest name of a unit that is kept, characters; systemd's own limit is 255.
const UNIT: usize = 255;

/// The runtime of a container.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[allow(missing_docs, reason = "names of products")]
pub enum Runtime {
    Docker,
    Containerd,
    CriO,
    Podman,
    /// A step of an image's build.
    BuildKit,
    /// LXC, LXD, Incus, Proxmox, libvirt-lxc.
    Lxc,
    /// LXD, which has said so.
    Lxd,
    /// Incus, which has said so.
    Incus,
    /// systemd-nspawn.
    Nspawn,
    /// A container, but the path does not say whose.
    Unknown,
}

impl Runtime {
    /// Name in records.
    pub fn name(self) -> &'static str {
        match self {
            Self::Docker => "docker",
            Self::Containerd => "containerd",
            Self::CriO => "cri-o",
            Self::Podman => "podman",
            Self::BuildKit => "buildkit",
            Self::Lxc => "lxc",
            Self::Lxd => "lxd",
            Self::Incus => "incus",
            Self::Nspawn => "nspawn",
            Self::Unknown => "unknown",
        }
    }
}

impl fmt::Display for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A container in a path.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Found {
    pub(crate) runtime: Runtime,
    /// As in the path: 64 hexadecimal digits, or a name with LXC and nspawn.
    pub(crate) id: String,
    /// Folder that holds it, where that may be a namespace of containerd.
    pub(crate) namespace: Option<String>,
    /// User of its slice: that user's own runtime made it, or claims so.
    pub(crate) user: Option<u32>,
}

/// What a path says.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct CgroupPath {
    /// The container that the host's runtime made: its socket may be queried about this one.
    pub(crate) outer: Option<Found>,
    /// The innermost one, where that is another: its id is chosen by the outer one's processes.
    pub(crate) inner: Option<Found>,
    /// UID of the pod, with dashes, or the hash of a static pod.
    pub(crate) pod: Option<String>,
    /// The last unit of systemd that is not a container's scope.
    pub(crate) unit: Option<String>,
}

/// Id of the innermost container that the path of a control group names, from the root of its
/// hierarchy; with LXC and nspawn its name.
pub fn container_of_cgroup(path: &[u8]) -> Option<String> {
    let CgroupPath { outer, inner, .. } = place(path);
    inner.or(outer).map(|found| found.id)
}

/// Reads a path, relative to the root of its hierarchy.
pub(crate) fn place(path: &[u8]) -> CgroupPath {
    let mut place = CgroupPath::default();
    let mut user = None;
    let mut parents: Vec<&[u8]> = Vec::new();
    for component in path.split(|&byte| byte == b'/') {
        if component.is_empty() || component == b".." {
            continue;
        }
        if place.outer.is_none() {
            user = user.or_else(|| user_slice(component));
        }
        if let Some(pod) = pod(component, &parents) {
            // In a container another kubelet's pods say nothing about the host's.
            if place.outer.is_none() {
                place.pod = Some(pod);
            }
        }
        match container(component, &parents) {
            Component::Container(mut found) => {
                found.user = user;
                if place.outer.is_none() {
                    place.outer = Some(found);
                } else {
                    place.inner = Some(found);
                }
                // Units outside made the container; those inside are its own.
                if parents
                    .last()
                    .is_none_or(|parent| !parent.ends_with(b".service"))
                {
                    place.unit = None;
                }
            }
            Component::Monitor => {}
            Component::Other => {
                if component.ends_with(b".service") || component.ends_with(b".scope") {
                    place.unit = Some(shown(component, UNIT));
                }
            }
        }
        parents.push(component);
    }
    place
}

enum Component {
    Container(Found),
    /// A runtime's process beside a container, which monitors it.
    Monitor,
    Other,
}

fn container(component: &[u8], parents: &[&[u8]]) -> Component {
    use Runtime::*;
    let parent = parents.last().copied().unwrap_or_default();
    let found = |runtime, id: &[u8]| {
        Component::Container(Found {
            runtime,
            id: shown(id, ID),
            namespace: None,
            user: None,
        })
    };

    // kubepods-pod….slice:cri-containerd:ID is what containerd makes of systemd's notation when its
    // own driver is cgroupfs.
    if let Some(colon) = component.iter().rposition(|&byte| byte == b':')
        && is_id(&component[colon + 1..])
    {
        return found(by_prefix(&component[..colon]), &component[colon + 1..]);
    }

    let bare = component.strip_suffix(b".scope").unwrap_or(component);
    if let Some(dash) = bare.iter().rposition(|&byte| byte == b'-') {
        let (prefix, id) = (&bare[..dash], &bare[dash + 1..]);
        if is_id(id) {
            return if prefix.ends_with(b"conmon") {
                Component::Monitor
            } else {
                found(by_prefix(prefix), id)
            };
        }
        // Amazon ECS on Fargate: ecs/TASK/TASK-NUMBER.
        let task = prefix.len() == 32 && is_hex(prefix) && parent == prefix;
        if task && id.iter().all(u8::is_ascii_digit) && !id.is_empty() {
            return found(Containerd, bare);
        }
    }

    // Podman's pods are named so.
    if is_id(component) && parent != b"libpod_parent" {
        let runtime = match parent {
            b"docker" => Docker,
            _ if parents.first() == Some(&&b"ecs"[..]) => Docker,
            b"k8s.io" | b"default" | b"moby" => Containerd,
            _ => Unknown,
        };
        let namespace = (parents.len() == 1 && matches!(runtime, Containerd | Unknown))
            .then(|| shown(parent, ID));
        return Component::Container(Found {
            runtime,
            id: shown(component, ID),
            namespace,
            user: None,
        });
    }

    match (parent, component) {
        (b"buildkit", id) if parents.contains(&&b"docker"[..]) || parents.len() == 1 => {
            found(BuildKit, id)
        }
        (b"lxc" | b"lxc.payload", id) => found(Lxc, id),
        (b"lxc.monitor", _) => Component::Monitor,
        (service, b"payload") if service.starts_with(b"systemd-nspawn@") => {
            let name = service.strip_prefix(b"systemd-nspawn@").unwrap_or(service);
            let name = name.strip_suffix(b".service").unwrap_or(name);
            found(Nspawn, &unescaped(name))
        }
        (_, name) => {
            if let Some(id) = name.strip_prefix(b"lxc.payload.") {
                return found(Lxc, id);
            }
            if name.starts_with(b"lxc.monitor.") {
                return Component::Monitor;
            }
            let machine = name
                .strip_prefix(b"machine-")
                .and_then(|name| name.strip_suffix(b".scope"))
                .map(unescaped);
            match machine.as_deref() {
                // libvirt's machines are KIND-NUMBER-NAME; virtual ones are no containers.
                Some(name) if name.starts_with(b"lxc-") => {
                    return found(Lxc, after_number(&name[4..]));
                }
                Some(name) if name.starts_with(b"qemu-") || name.starts_with(b"xen-") => {}
                Some(name) => return found(Nspawn, name),
                None => {}
            }
            Component::Other
        }
    }
}

/// The runtime that names its groups so.
fn by_prefix(prefix: &[u8]) -> Runtime {
    // Behind kubepods-….slice: only the last part is the runtime's.
    let prefix = prefix.rsplit(|&byte| byte == b':').next().unwrap_or(prefix);
    match prefix {
        b"docker" => Runtime::Docker,
        b"cri-containerd" | b"containerd" | b"nerdctl" => Runtime::Containerd,
        b"crio" | b"cri-o" => Runtime::CriO,
        b"libpod" | b"libpod-payload" => Runtime::Podman,
        _ => Runtime::Unknown,
    }
}

fn is_hex(bytes: &[u8]) -> bool {
    bytes
        .iter()
        .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Container ids are 64 hexadecimal digits with all runtimes that serve Kubernetes or Docker.
fn is_id(bytes: &[u8]) -> bool {
    bytes.len() == 64 && is_hex(bytes)
}

/// The UID in `…-pod<uid>.slice` (systemd, dashes written as `_`) or `pod<uid>` below kubepods.
fn pod(component: &[u8], parents: &[&[u8]]) -> Option<String> {
    let component = component
        .split(|&byte| byte == b':')
        .next()
        .unwrap_or(component);
    let uid = if let Some(slice) = component.strip_suffix(b".slice") {
        let at = slice.windows(4).rposition(|four| four == b"-pod")?;
        slice.windows(8).find(|eight| eight == b"kubepods")?;
        slice[at + 4..].to_vec()
    } else {
        let below = parents
            .iter()
            .any(|parent| parent.starts_with(b"kubepods") || parent.ends_with(b"kubepods"));
        if !below {
            return None;
        }
        component.strip_prefix(b"pod")?.to_vec()
    };
    let uid: Vec<u8> = uid
        .into_iter()
        .map(|byte| if byte == b'_' { b'-' } else { byte })
        .collect();
    let dashes = uid.iter().filter(|&&byte| byte == b'-').count();
    let digits = uid
        .iter()
        .all(|byte| byte.is_ascii_hexdigit() || *byte == b'-');
    let is_uuid = uid.len() == 36 && dashes == 4;
    // Static pods: the hash of their manifest.
    let is_hash = uid.len() == 32 && dashes == 0;
    (digits && (is_uuid || is_hash)).then(|| shown(&uid, 36))
}

/// The user of `user-1000.slice`.
fn user_slice(component: &[u8]) -> Option<u32> {
    let uid = component.strip_prefix(b"user-")?.strip_suffix(b".slice")?;
    std::str::from_utf8(uid).ok()?.parse().ok()
}

/// systemd's escapes in names of units undone: `\x2d` is `-`.
fn unescaped(name: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some((&first, after)) = rest.split_first() {
        let escaped = after
            .strip_prefix(b"x")
            .filter(|_| first == b'\\')
            .and_then(|digits| digits.split_at_checked(2))
            .and_then(|(digits, after)| {
                let digits = std::str::from_utf8(digits).ok()?;
                Some((u8::from_str_radix(digits, 16).ok()?, after))
            });
        let (byte, after) = escaped.unwrap_or((first, after));
        plain.push(byte);
        rest = after;
    }
    plain
}

fn after_number(name: &[u8]) -> &[u8] {
    match name.iter().position(|&byte| byte == b'-') {
        Some(dash) if name[..dash].iter().all(u8::is_ascii_digit) => &name[dash + 1..],
        _ => name,
    }
}

#[cfg(test)]
mod tests;
