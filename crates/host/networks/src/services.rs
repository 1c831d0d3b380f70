//! Names of ports, in the format of services(5).

use std::collections::HashMap;

use crate::names;

/// Names by protocol and port.
#[derive(Debug, Default)]
pub struct Services(HashMap<(u8, u16), &'static str>);

impl Services {
    /// Lines that say nothing are passed over, as the C library does.
    pub fn parse(bytes: &[u8]) -> Self {
        let mut services = HashMap::new();
        for line in String::from_utf8_lossy(bytes).lines() {
            let line = line.split('#').next().unwrap_or_default();
            let mut words = line.split_whitespace();
            let (Some(name), Some(port)) = (words.next(), words.next()) else {
                continue;
            };
            let Some((port, protocol)) = port.split_once('/') else {
                continue;
            };
            let protocol = match protocol {
                "tcp" => 6,
                "udp" => 17,
                "dccp" => 33,
                "sctp" => 132,
                _ => continue,
            };
            if let Ok(port) = port.parse() {
                // The first name of a port counts.
                services
                    .entry((protocol, port))
                    .or_insert_with(|| names::keep(&names::plain(name)));
            }
        }
        Self(services)
    }

    /// The name of a port, empty for none.
    pub fn name(&self, protocol: u8, port: u16) -> &'static str {
        self.0.get(&(protocol, port)).copied().unwrap_or_default()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
