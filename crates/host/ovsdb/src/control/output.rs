//! The interface that a mirror's packets come out of.

use crate::Error;
use skua_link::{LinkSocket, Namespace};
use std::{fs, io};

/// Brings it up. It gets no IPv6: what the kernel itself would send on it would be captured among
/// the packets of the mirror.
pub(super) fn bring_up(namespace: &Namespace, name: &str) -> Result<(), Error> {
    namespace.enter(|| {
        let setting = format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6");
        match fs::write(setting, "1") {
            // The kernel has no IPv6.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => other.map_err(|source| Error::Io {
                target: name.to_owned(),
                action: "switching off IPv6",
                source,
            })?,
        }
        let mut socket = LinkSocket::open()?;
        let links = socket.list()?;
        let link = links.iter().find(|link| link.name == name);
        let link = link.ok_or_else(|| Error::Interface {
            name: name.to_owned(),
            error: "the kernel does not have it in this network namespace".to_owned(),
        })?;
        Ok(socket.set_up(link.ifindex)?)
    })?
}
