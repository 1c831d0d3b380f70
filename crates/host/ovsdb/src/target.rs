//! Where a server is.

use crate::Error;
use std::{fmt, net::SocketAddr, path::PathBuf, str::FromStr};

/// Where a server listens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Target {
    /// A unix socket.
    Unix(PathBuf),
    /// A TCP port. Names are not resolved.
    Tcp(SocketAddr),
}

impl Default for Target {
    /// The socket of the distributions' packages.
    fn default() -> Self {
        Self::Unix("/run/openvswitch/db.sock".into())
    }
}

impl FromStr for Target {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = || Error::Target(text.to_owned());
        match text.split_once(':').ok_or_else(wrong)? {
            ("unix", path) if !path.is_empty() => Ok(Self::Unix(path.into())),
            ("tcp", address) => Ok(Self::Tcp(address.parse().map_err(|_| wrong())?)),
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(address) => write!(f, "tcp:{address}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_read_as_they_are_written() {
        for text in [
            "unix:/run/openvswitch/db.sock",
            "tcp:127.0.0.1:6640",
            "tcp:[::1]:6640",
        ] {
            assert_eq!(text.parse::<Target>().unwrap().to_string(), text);
        }
        assert_eq!(
            Target::default().to_string(),
            "unix:/run/openvswitch/db.sock"
        );
    }

    #[test]
    fn what_is_no_target_is_refused_with_an_example() {
        for text in [
            "",
            "unix:",
            "tcp:",
            "tcp:localhost:6640",
            "tcp:1.2.3.4",
            "ssl:1.2.3.4:1",
        ] {
            let error = text.parse::<Target>().unwrap_err().to_string();
            assert!(error.contains("tcp:127.0.0.1:6640"), "{error}");
        }
    }
}
