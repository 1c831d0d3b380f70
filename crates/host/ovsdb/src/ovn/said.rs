//! What a switch says of packets: the text of a trace, and the lines of its table of connections.

use std::net::IpAddr;

/// Rules at most of a trace that are kept: a packet passes some hundreds of tables.
const MOST_RULES: usize = 4_096;

/// What the rules do with a packet.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Trace {
    /// Cookies of the rules that it matches, in order, as far as OVN made them.
    pub cookies: Vec<u32>,
    /// Whether it leaves at a port.
    pub passes: bool,
    /// Whether it leaves through a tunnel, to rules elsewhere.
    pub tunnel: bool,
}

impl Trace {
    /// Of the answer to `ofproto/trace`.
    pub fn read(text: &str) -> Self {
        let mut trace = Self::default();
        for line in text.lines() {
            let line = line.trim_start();
            if let Some(actions) = line.strip_prefix("Datapath actions: ") {
                trace.passes |= outputs(actions, 0);
                trace.tunnel |= actions.contains("tnl_push(") || actions.contains("set(tunnel(");
            } else if trace.cookies.len() < MOST_RULES {
                trace.cookies.extend(cookie(line));
            }
        }
        trace.passes |= trace.tunnel;
        trace
    }
}

/// Of a line like `16. udp,metadata=0x1, priority 1100, cookie 0xab8d31b5`.
fn cookie(line: &str) -> Option<u32> {
    let (table, rest) = line.split_once(". ")?;
    table.parse::<u8>().ok()?;
    let (_, cookie) = rest.rsplit_once(", cookie 0x")?;
    u32::from_str_radix(cookie.trim_end(), 16).ok()
}

/// Actions in whose brackets are actions, and how deep such a text is looked into.
const NESTED: [&str; 6] = [
    "clone(",
    "check_pkt_len(",
    "gt(",
    "le(",
    "sample(",
    "actions(",
];
const DEEPEST: usize = 8;

/// Whether actions of the datapath have a port: a number that stands alone.
fn outputs(actions: &str, depth: usize) -> bool {
    let mut rest = actions;
    while !rest.is_empty() {
        let (action, after) = part(rest);
        rest = after;
        if !action.is_empty() && action.bytes().all(|byte| byte.is_ascii_digit()) {
            return true;
        }
        let inner = NESTED.iter().find_map(|name| action.strip_prefix(name));
        if let Some(inner) = inner.and_then(|inner| inner.strip_suffix(')'))
            && depth < DEEPEST
            && outputs(inner, depth + 1)
        {
            return true;
        }
    }
    false
}

/// The part up to the next comma that is in no brackets, and what is behind that.
fn part(text: &str) -> (&str, &str) {
    let mut depth = 0_u32;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'(' => depth += 1,
            b')' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => return (text[..at].trim(), &text[at + 1..]),
            _ => {}
        }
    }
    (text.trim(), "")
}

/// A connection in the table of connections.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Connection {
    /// `tcp`, `udp`, `icmp`, …
    pub protocol: Box<str>,
    /// Addresses of the first packet: of its sender, and where it went.
    pub addresses: [IpAddr; 2],
    /// Ports in the same order, as far as there are any.
    pub ports: [u16; 2],
    /// Identifier of ICMP echo.
    pub id: Option<u16>,
    /// 128 bits that rules have put there.
    pub label: u128,
}

impl Connection {
    /// Of a line of `dpctl/dump-conntrack`; none if it is no such line.
    pub fn read(line: &str) -> Option<Self> {
        let (protocol, mut rest) = part(line);
        let mut found = None;
        let mut label = 0;
        while !rest.is_empty() {
            let (field, after) = part(rest);
            rest = after;
            if let Some(tuple) = field.strip_prefix("orig=(") {
                found = Some(tuple.strip_suffix(')')?);
            } else if let Some(number) = field.strip_prefix("labels=0x") {
                label = u128::from_str_radix(number, 16).ok()?;
            }
        }
        let tuple = found?;
        let value = |name: &str| {
            let fields = tuple.split(',');
            fields
                .filter_map(|field| field.split_once('='))
                .find_map(|(key, value)| match key == name {
                    true => Some(value),
                    false => None,
                })
        };
        let port = |name| match value(name) {
            None => Some(0),
            Some(number) => number.parse().ok(),
        };
        Some(Self {
            protocol: protocol.into(),
            addresses: [value("src")?.parse().ok()?, value("dst")?.parse().ok()?],
            ports: [port("sport")?, port("dport")?],
            id: value("id").and_then(|id| id.parse().ok()),
            label,
        })
    }

    /// The label that the ACL gave it which let it pass; OVN keeps it in the upper 32 bits. 0: none.
    pub fn acl_label(&self) -> u32 {
        u32::try_from(self.label >> 96).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_trace_has_the_cookies_of_rules_and_where_the_packet_goes() {
        let text = "Flow: udp,in_port=1\n\nbridge(\"br-int\")\n----------------\n \
            0. in_port=1, priority 100, cookie 0x9c805a2b\n    set_field:0x2->reg13\n    resubmit(,73)\n    \
            73. No match.\n            drop\n 8. metadata=0x1, priority 50, cookie 0x2\n\n\
            Megaflow: recirc_id=0,eth,udp\nDatapath actions: ct(zone=2),recirc(0x1)\n\n\
            16. udp,tp_dst=9, priority 1100, cookie 0xab8d31b5\n";
        let begin = Trace::read(text);
        assert_eq!(begin.cookies, [0x9c80_5a2b, 2, 0xab8d_31b5]);
        assert!(!begin.passes && !begin.tunnel);
        let ends = |actions: &str| {
            let trace = Trace::read(&format!("{text}Datapath actions: {actions}\n"));
            (trace.passes, trace.tunnel)
        };
        let logged = "userspace(pid=0,controller(reason=1,rule_cookie=0xab8d31b5,max_len=65535))";
        assert_eq!(ends("drop"), (false, false));
        assert_eq!(ends(logged), (false, false));
        assert_eq!(
            ends("ct_clear,ct(commit,zone=4,mark=0/0x1,nat(src)),3"),
            (true, false)
        );
        assert_eq!(
            ends(&format!("{logged},ct(commit,zone=4),3")),
            (true, false)
        );
        assert_eq!(ends("clone(ct(zone=1),recirc(0x3))"), (false, false));
        assert_eq!(
            ends("check_pkt_len(size=1500,gt(drop),le(clone(ct_clear,3)))"),
            (true, false)
        );
        assert_eq!(ends("set(tunnel(tun_id=0x1,dst=10.0.0.2)),4"), (true, true));
        let tunnel = "clone(tnl_push(tnl_port(4),header(size=50,type=5)),out_port(2)),1)";
        assert_eq!(ends(tunnel), (true, true));
    }

    #[test]
    fn a_connection_has_its_first_packet_and_its_label() {
        let line = "tcp,orig=(src=10.0.0.1,dst=10.0.0.2,sport=51890,dport=80),reply=(src=10.0.0.2,dst=10.0.0.1,\
            sport=80,dport=51890),zone=2,labels=0x4d2000000000000000000000001,protoinfo=(state=TIME_WAIT)";
        let connection = Connection::read(line).unwrap();
        assert_eq!(&*connection.protocol, "tcp");
        assert_eq!(
            connection.addresses.map(|ip| ip.to_string()),
            ["10.0.0.1", "10.0.0.2"]
        );
        assert_eq!((connection.ports, connection.id), ([51890, 80], None));
        assert_eq!((connection.label & 1, connection.acl_label()), (1, 1234));
        let echo = "icmpv6,orig=(src=fd00::1,dst=fd00::2,id=7,type=128,code=0),reply=(src=fd00::2,dst=fd00::1,id=7,type=129,code=0)";
        let echo = Connection::read(echo).unwrap();
        assert_eq!(
            (echo.id, echo.ports, echo.acl_label()),
            (Some(7), [0, 0], 0)
        );
        for wrong in [
            "",
            "tcp",
            "tcp,orig=(src=x,dst=y)",
            "tcp,orig=(src=1.1.1.1",
            "tcp,orig=(src=1.1.1.1,dst=1.1.1.2,sport=70000)",
        ] {
            assert_eq!(Connection::read(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn no_text_breaks_the_reading(text in "(ct|clone|[0-9]{1,2}\\. |, cookie 0x|[(),=\\n a-f0-9é]|orig=|labels=0x|Datapath actions: ){0,60}") {
            let _ = Trace::read(&text);
            let _ = Connection::read(&text);
        }
    }
}
