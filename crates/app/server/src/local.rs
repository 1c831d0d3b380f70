//! The unix socket for users of this host: the kernel names the user (SO_PEERCRED).

use std::{
    fs::Permissions,
    io::ErrorKind,
    os::{
        fd::AsFd as _,
        unix::{
            fs::{DirBuilderExt as _, FileTypeExt as _, PermissionsExt as _},
            net::{UnixListener, UnixStream},
        },
    },
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use rustix::process::{getegid, geteuid};
use skua_config::{AUTO, Api, Others};

use crate::auth::{LocalUser, Role};

/// Default socket of `skua run` and `skua analyzer`.
pub const USUAL: &str = "/run/skua/skua.sock";
/// Default socket of `skua agent`.
pub const USUAL_OF_AGENTS: &str = "/run/skua-agent/skua.sock";
/// The group whose members have all rights.
const GROUP: &str = "skua";

/// The rights of local users.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    /// Our own user, who has all rights anyway.
    own: u32,
    /// The group whose members have all rights.
    group: Option<u32>,
    /// What others may do.
    others: Option<Role>,
}

impl Rules {
    fn role(&self, uid: u32, groups: &[u32]) -> Option<Role> {
        let member = self.group.is_some_and(|group| groups.contains(&group));
        match uid == 0 || uid == self.own || member {
            true => Some(Role::Admin),
            false => self.others,
        }
    }

    /// The user at the other end of a connection.
    pub fn user(&self, stream: &tokio::net::UnixStream) -> std::io::Result<LocalUser> {
        let peer = stream.peer_cred()?;
        // If the kernel does not report all groups, only the first counts.
        let mut groups = skua_kernel::peer::groups(stream.as_fd()).unwrap_or_default();
        groups.push(peer.gid());
        let name = match peer.uid() {
            0 => "root".into(),
            uid => format!("uid {uid}").into(),
        };
        Ok(LocalUser {
            name,
            role: self.role(peer.uid(), &groups),
        })
    }
}

/// A bound socket.
pub struct LocalSocket {
    pub listener: UnixListener,
    pub path: PathBuf,
    pub rules: Rules,
}

/// The number of a group of this host.
fn group_number(list: &str, name: &str) -> Option<u32> {
    list.lines().find_map(|line| {
        let mut parts = line.split(':');
        let named = parts.next() == Some(name);
        named.then(|| parts.nth(1)?.parse().ok()).flatten()
    })
}

/// Binds the configured socket; with `auto` `usual`, if possible.
pub fn bind(api: &Api, usual: &str) -> anyhow::Result<Option<LocalSocket>> {
    let bound = match api.socket.as_str() {
        "" => return Ok(None),
        AUTO => bind_at(Path::new(usual), api.others),
        path => return bind_at(Path::new(path), api.others).map(Some),
    };
    match bound {
        Ok(socket) => Ok(Some(socket)),
        Err(error) => {
            tracing::warn!(
                "{error:#}: commands on this host cannot use it (choose another path with --socket)"
            );
            Ok(None)
        }
    }
}

fn bind_at(path: &Path, others: Others) -> anyhow::Result<LocalSocket> {
    let name = path.display();
    if let Some(folder) = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
    {
        match std::fs::DirBuilder::new().mode(0o755).create(folder) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                return Err(error).with_context(|| format!("cannot make {}", folder.display()));
            }
            _ => {}
        }
    }
    remove_left_over(path)?;
    let listener = UnixListener::bind(path).with_context(|| format!("cannot listen at {name}"))?;
    let list = std::fs::read_to_string("/etc/group").unwrap_or_default();
    let group = group_number(&list, GROUP);
    let own_group = getegid().as_raw();
    // Who may connect; the rules alone decide about rights.
    let mode = match (others, group) {
        (Others::None, None) => 0o600,
        (Others::None, Some(_)) => 0o660,
        _ => 0o666,
    };
    if let Some(group) = group.filter(|group| *group != own_group)
        && let Err(error) = std::os::unix::fs::chown(path, None, Some(group))
    {
        tracing::warn!("{name} cannot be given to the group {GROUP}: {error}");
    }
    std::fs::set_permissions(path, Permissions::from_mode(mode))
        .with_context(|| format!("cannot set who may connect to {name}"))?;
    listener.set_nonblocking(true)?;
    Ok(LocalSocket {
        listener,
        path: path.to_owned(),
        rules: Rules {
            own: geteuid().as_raw(),
            group,
            others: role_of(others),
        },
    })
}

/// Removes a socket that a process left which has ended.
fn remove_left_over(path: &Path) -> anyhow::Result<()> {
    let name = path.display();
    let data = match std::fs::symlink_metadata(path) {
        Ok(data) => data,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error).with_context(|| format!("cannot check {name}")),
    };
    if !data.file_type().is_socket() {
        bail!("{name} is not a socket; Skua leaves it as it is");
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path).with_context(|| format!("cannot remove {name}"))
        }
        _ => bail!("another skua answers at {name}"),
    }
}

/// The role of users who are neither root nor in the group skua.
fn role_of(others: Others) -> Option<Role> {
    match others {
        Others::None => None,
        Others::Read => Some(Role::Read),
        Others::Admin => Some(Role::Admin),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_we_and_the_group_may_do_all_and_others_as_configured() {
        let rules = |others: Others| Rules {
            own: 900,
            group: Some(77),
            others: role_of(others),
        };
        for others in [Others::None, Others::Read] {
            for (uid, groups) in [(0, vec![]), (900, vec![]), (1000, vec![5, 77])] {
                assert_eq!(rules(others).role(uid, &groups), Some(Role::Admin), "{uid}");
            }
        }
        assert_eq!(rules(Others::None).role(1000, &[5, 900]), None);
        assert_eq!(rules(Others::Read).role(1000, &[5]), Some(Role::Read));
        let nobody = Rules {
            group: None,
            ..rules(Others::None)
        };
        assert_eq!(nobody.role(65_534, &[0, 77]), None);
    }

    #[test]
    fn groups_are_found_by_name() {
        let list = "root:x:0:\nskuas:x:5:\nskua:x:998:alice,bob\n";
        assert_eq!(group_number(list, "skua"), Some(998));
        assert_eq!(group_number(list, "sku"), None);
        assert_eq!(group_number("skua:x:-1:\nskua", "skua"), None);
    }

    #[test]
    fn a_left_over_socket_is_replaced_and_one_in_use_is_not() {
        let path = skua_testkit::scratch::scratch("sock");
        let bind = || bind_at(&path, Others::None);
        let first = bind().unwrap();
        let error = format!("{:#}", bind().err().unwrap());
        assert!(error.contains("another skua answers"), "{error}");
        drop(first);
        let second = bind().unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert!([0o600, 0o660].contains(&(mode & 0o777)), "{mode:o}");
        drop(second);
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "precious").unwrap();
        assert!(bind().is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
    }
}
