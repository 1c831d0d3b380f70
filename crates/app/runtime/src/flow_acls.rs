//! The ACLs of OVN that decide about flows of queries.

use skua_ovsdb::{AclFinder, Asking, Conversation, Icmp};
use skua_query::{AclSource, FlowRecord, SourceError};
use skua_topology::Value;
use std::{
    net::IpAddr,
    sync::{Mutex, PoisonError},
};

/// ICMP echo: protocol, types of the request and of its reply.
const ECHO: [(u8, u8, u8); 2] = [(1, 8, 0), (58, 128, 129)];

/// For one query.
pub struct FlowAcls<'a> {
    finder: &'a AclFinder,
    asking: Mutex<Option<Asking<'a>>>,
}

impl<'a> FlowAcls<'a> {
    /// Asks nothing before a flow is asked for.
    pub fn new(finder: &'a AclFinder) -> Self {
        Self {
            finder,
            asking: Mutex::new(None),
        }
    }
}

impl AclSource for FlowAcls<'_> {
    fn of_flow(&self, flow: &dyn FlowRecord) -> Result<Vec<Value>, SourceError> {
        let failed = |error: skua_ovsdb::Error| SourceError(error.to_string());
        let mut asking = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        let asking = match &mut *asking {
            Some(asking) => asking,
            none => none.insert(self.finder.begin().map_err(failed)?),
        };
        match conversation(flow) {
            Some(conversation) => asking.about(&conversation).map_err(failed),
            None => {
                Ok(vec![asking.unknown(
                    "ACLs are looked up for TCP, UDP, SCTP and ICMP echo",
                )])
            }
        }
    }
}

fn number<T: TryFrom<i64>>(flow: &dyn FlowRecord, key: &str) -> Option<T> {
    T::try_from(flow.get(key)?.as_int()?).ok()
}

fn text(flow: &dyn FlowRecord, key: &str) -> Option<Value> {
    flow.get(key).filter(|value| value.as_str().is_some())
}

/// What a flow says of its first packet.
fn conversation(flow: &dyn FlowRecord) -> Option<Conversation> {
    let address = |key: &str| text(flow, key)?.as_str()?.parse::<IpAddr>().ok();
    let mac = |key: &str| skua_ovsdb::read_mac(text(flow, key)?.as_str()?);
    let addresses = [address("Network.A")?, address("Network.B")?];
    let (protocol, icmp) = match text(flow, "Transport.Protocol") {
        Some(name) => match name.as_str()? {
            "TCP" => (6, None),
            "UDP" => (17, None),
            "SCTP" => (132, None),
            _ => return None,
        },
        None => {
            let six = usize::from(addresses[0].is_ipv6());
            let (protocol, kind, answer) = *ECHO.get(six)?;
            text(flow, "ICMP.Type").filter(|kind| kind.as_str() == Some("ECHO"))?;
            let icmp = Icmp {
                kind,
                answer,
                code: 0,
                id: number(flow, "ICMP.ID"),
            };
            (protocol, Some(icmp))
        }
    };
    Some(Conversation {
        macs: [mac("Link.A"), mac("Link.B")],
        addresses,
        protocol,
        ports: ["Transport.A", "Transport.B"].map(|key| number(flow, key).unwrap_or(0)),
        icmp,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value as Json, from_value, json};
    use skua_query::memory::ValueFlow;

    fn read(flow: Json) -> Option<Conversation> {
        conversation(&ValueFlow(from_value(flow).unwrap()))
    }

    #[test]
    fn a_flow_says_what_its_first_packet_was() {
        let tcp = read(json!({
            "Link": {"A": "02:00:00:00:00:01", "B": "nothing"}, "Network": {"A": "10.0.0.1", "B": "10.0.0.2"},
            "Transport": {"Protocol": "TCP", "A": 40000, "B": 80},
        }));
        let tcp = tcp.unwrap();
        assert_eq!(tcp.macs, [Some([2, 0, 0, 0, 0, 1]), None]);
        assert_eq!(
            tcp.addresses.map(|ip| ip.to_string()),
            ["10.0.0.1", "10.0.0.2"]
        );
        assert_eq!((tcp.protocol, tcp.ports, tcp.icmp), (6, [40000, 80], None));
        for (a, b, protocol, kind, answer) in [
            ("10.0.0.1", "10.0.0.2", 1, 8, 0),
            ("fd00::1", "fd00::2", 58, 128, 129),
        ] {
            let echo = read(
                json!({"Network": {"A": a, "B": b}, "ICMP": {"Type": "ECHO", "Code": 0, "ID": 7}}),
            );
            let echo = echo.unwrap();
            let icmp = Icmp {
                kind,
                answer,
                code: 0,
                id: Some(7),
            };
            assert_eq!(
                (echo.protocol, echo.ports, echo.icmp),
                (protocol, [0, 0], Some(icmp))
            );
        }
        for other in [
            json!({"Application": "ARP", "Link": {"A": "02:00:00:00:00:01"}}),
            json!({"Network": {"A": "10.0.0.1", "B": "10.0.0.2"}, "ICMP": {"Type": "REDIRECT"}}),
            json!({"Network": {"A": "10.0.0.1", "B": "10.0.0.2"}, "Transport": {"Protocol": "DCCP", "A": 1, "B": 2}}),
            json!({"Network": {"A": "10.0.0.1", "B": "10.0.0.2"}}),
        ] {
            assert!(read(other.clone()).is_none(), "{other}");
        }
    }
}
