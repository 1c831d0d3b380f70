//! Filter expressions: those of the pcap-filter manual and their kin, and random ones.

use super::rng::Rng;

/// For Ethernet. Each must accept some and reject some of the generated packets.
pub const ETHERNET: &[&str] = &[
    // host, net
    "host 10.0.0.1",
    "src host 10.0.0.1",
    "dst host 10.0.0.2",
    "src or dst host 10.1.2.3",
    "src and dst host 10.0.0.1",
    "host 2001:db8::1",
    "dst host 2001:db8:0:1::2",
    "ip host 192.168.1.10",
    "arp host 10.0.0.1",
    "arp src host 10.0.0.2 or rarp host 10.0.0.1",
    "host 10.0.0.1 and (10.0.0.2 or 10.1.2.3)",
    "ip host 10.0.0.1 and not 10.0.0.2",
    "net 10.0.0.0/8",
    "net 10",
    "net 192.168.1",
    "src net 172.16 mask 255.240.0.0",
    "not net 10.0.0.0/24",
    "net 2001:db8::/32",
    "src net 2001:db8:0:1::/64 or dst net fe80::/10",
    // ports
    "port 80",
    "tcp port 443",
    "udp port 53",
    "sctp port 5060",
    "src port 22",
    "tcp dst port 80 or 443 or 8080",
    "port http or domain",
    "portrange 1000-2000",
    "udp src portrange 0-1023",
    "not port 22",
    "tcp src port 80 and dst port 443 or udp",
    // protocols
    "ip",
    "ip6",
    "arp",
    "rarp",
    "tcp",
    "udp",
    "sctp",
    "icmp",
    "icmp6",
    "igmp",
    "ah",
    "esp",
    "pim",
    "vrrp",
    "not ip and not ip6",
    "ip proto 47",
    "ip6 proto \\tcp",
    "proto 50",
    "proto \\udp",
    "ip proto \\icmp or ip6 proto 58",
    "ip6 protochain 6",
    "ip6 protochain 17 and not port 53",
    "ip protochain 51",
    "protochain 58",
    // link layer
    "ether host 02:00:00:00:00:01",
    "ether src 02:00:00:00:00:02",
    "ether dst ff:ff:ff:ff:ff:ff",
    "ether proto 0x88cc",
    "ether proto \\ip6",
    "ether proto 0x8100",
    "ether proto \\loopback or \\decnet",
    "broadcast",
    "multicast",
    "ether broadcast or ip multicast",
    "ip6 multicast",
    "ip broadcast",
    "stp",
    "iso",
    "isis or clnp",
    "netbeui",
    "atalk or ipx",
    "aarp or decnet or lat or moprc",
    "llc",
    // VLAN, MPLS, PPPoE, Geneve
    "vlan",
    "vlan 100",
    "vlan 100 and vlan 200",
    "vlan and vlan and ip",
    "vlan and tcp port 443",
    "vlan 200 and host 10.0.0.1",
    "not vlan",
    "vlan and not ip6",
    "ip or vlan",
    "tcp port 80 or (vlan and tcp port 80)",
    "vlan and vlan and vlan and udp",
    "mpls",
    "mpls 1024",
    "mpls 100000 and mpls 1024",
    "mpls and host 10.0.0.1",
    "vlan and mpls and ip",
    "pppoes",
    "pppoes 0x27 and ip",
    "pppoed",
    "geneve",
    "geneve 0xb and ip",
    "geneve and tcp port 80",
    // packet data
    "ether[0] & 1 != 0",
    "ether[12:2] = 0x8100",
    "ether[12:4] = 0x81000064",
    "ether[10:4] = 0x00018100",
    "ether[11:4] & 0xffff00 = 0x810000",
    "ether[13:2] & 0xff = 0",
    "ether[14:4] & 0x0fff0000 = 0x00c80000",
    "ether[15:2] > 0x6400",
    "ether[16:2] = 0x0800",
    "ether[9] != ether[13]",
    "ip[0] & 0xf != 5",
    "ip[6:2] & 0x1fff != 0",
    "ip[8] < 5",
    "ip[16] >= 224",
    "ip6[6] = 44",
    "ip6[40:2] > 256",
    "tcp[13] = 18",
    "tcp[tcpflags] & (tcp-syn|tcp-fin) != 0",
    "tcp[tcpflags] & (tcp-rst|tcp-ack) == (tcp-rst|tcp-ack)",
    "tcp[tcpflags] == tcp-syn and not src and dst net 10",
    "tcp[((tcp[12:1] & 0xf0) >> 2):4] = 0x47455420",
    "tcp port 80 and (((ip[2:2] - ((ip[0]&0xf)<<2)) - ((tcp[12]&0xf0)>>2)) != 0)",
    "udp[4:2] > 50",
    "icmp[icmptype] != icmp-echo and icmp[icmptype] != icmp-echoreply",
    "icmp6[icmp6type] = icmp6-neighborsolicit",
    "icmp6[0] = 128 or icmp6[icmp6type] = icmp6-echoreply",
    "sctp[12] = 1",
    "arp[6:2] = 1",
    // length and arithmetic
    "len > 100",
    "less 60",
    "greater 1000",
    "len = 60 or len = 64",
    "len - 14 >= ip[2:2]",
    "len % 2 = 1",
    "len / 10 = 7",
    "ip[2:2] * 2 > 200",
    "ip[2:2] / ip[1] > 3",
    "ip[2:2] % ip[1] = 1",
    "(ip[8] << 3) ^ ip[9] = 513",
    "1 << ip[1] > 1",
    "len >> (ip[0] & 0xf) > 2",
    "ip[4:2] | 0x00ff = 0x12ff or ip[4] > 0x80",
    "-ip[8] = 0xffffffc0",
    "ether[ip[0] & 0xf] > 3",
    "ether[ether[0]:2] > 0x100",
    "ether[len - 4:4] & 1 = 1",
    "ether[len & 0xf:4] > 0x80000000",
    "ether[len & 0xf:1] = 0x81",
    "ether[len & 0xf:2] = 0x8100",
    "ether[14 + (len & 3):2] < 0x4500",
    "link[0] = 2 and link[5] = 1",
    "ip[ip[0] & 0xf] = 6",
    "ether[100] > 128",
    "ether[300:4] > 0x80000000",
    "ether[93:4] > 0x40000000",
    // and, or, not
    "tcp and not port 22",
    "(tcp or udp) and (port 80 or port 53) and not net 192.168.0.0/16",
    "!(arp || ip6) && !(tcp && (port 22 || port 443))",
    "not (vlan and ip) or ether dst ff:ff:ff:ff:ff:ff",
    "ip proto 47 or proto 4",
];

/// For packets that begin with the IP header. Each must accept some and reject some.
pub const RAW_IP: &[&str] = &[
    "ip",
    "ip6",
    "tcp",
    "tcp port 443",
    "udp port 53 and net 10.0.0.0/8",
    "host 2001:db8::1 and icmp6",
    "ip[6:2] & 0x1fff != 0",
    "tcp[tcpflags] & tcp-syn != 0",
    "len > 60",
    "ip6 protochain 17",
    "sctp or esp",
    "portrange 1000-2000",
    "ip[ip[0] & 0xf:2] > 300",
    "ip6[40] = 128",
];

/// A list of `count` ports.
pub fn ports(count: u16) -> String {
    let ports: Vec<String> = (0..count)
        .map(|index| (7000 + 13 * index).to_string())
        .collect();
    format!("tcp port {} or 443", ports.join(" or "))
}

/// Without `geneve`: right of `geneve or`, libpcap reads memory that it has not set.
const PRIMITIVES: &[&str] = &[
    "host 10.0.0.1",
    "src host 10.0.0.2",
    "dst net 192.168.0.0/16",
    "net 2001:db8::/32",
    "port 80",
    "tcp port 443",
    "udp src port 53",
    "portrange 1000-2000",
    "tcp",
    "udp",
    "ip",
    "ip6",
    "arp",
    "icmp",
    "icmp6",
    "sctp",
    "broadcast",
    "multicast",
    "ip6 multicast",
    "vlan",
    "vlan 100",
    "mpls",
    "pppoes",
    "less 90",
    "greater 70",
    "ether src 02:00:00:00:00:01",
    "ether proto 0x88cc",
    "ip proto 47",
    "esp",
    "stp",
];

const FIELDS: &[&str] = &["ether", "ip", "ip6", "tcp", "udp", "icmp", "arp"];

/// A random expression.
pub fn random(rng: &mut Rng, depth: usize) -> String {
    if depth == 0 || rng.one_in(4) {
        return if rng.one_in(2) {
            rng.pick(PRIMITIVES).to_owned()
        } else {
            let relation = rng.pick(&["=", "!=", "<", ">", "<=", ">="]);
            format!("{} {relation} {}", arithmetic(rng, 2), arithmetic(rng, 1))
        };
    }
    let (left, right) = (random(rng, depth - 1), random(rng, depth - 1));
    match rng.below(5) {
        0 | 1 => format!("({left}) and ({right})"),
        2 | 3 => format!("({left}) or ({right})"),
        _ => format!("not ({left})"),
    }
}

fn arithmetic(rng: &mut Rng, depth: usize) -> String {
    if depth == 0 || rng.one_in(3) {
        return match rng.below(5) {
            0 => "len".to_owned(),
            1 => rng
                .pick(&[0_u32, 1, 2, 6, 17, 60, 255, 0x800, 0x8100, u32::MAX])
                .to_string(),
            _ => {
                let (field, size) = (rng.pick(FIELDS), rng.pick(&[1, 1, 2, 4]));
                format!("{field}[{}:{size}]", rng.below(30))
            }
        };
    }
    if rng.one_in(6) {
        let field = rng.pick(FIELDS);
        return format!(
            "{field}[{} & 0x1f:{}]",
            arithmetic(rng, depth - 1),
            rng.pick(&[1, 2, 4])
        );
    }
    let operator = rng.pick(&["+", "-", "*", "/", "%", "&", "|", "^", "<<", ">>"]);
    format!(
        "({} {operator} {})",
        arithmetic(rng, depth - 1),
        arithmetic(rng, depth - 1)
    )
}
