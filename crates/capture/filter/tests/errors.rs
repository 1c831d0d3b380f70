//! Every error message is one line that says what is wrong, where, and what would do.
#![allow(clippy::unwrap_used)]

use skua_filter::{
    Filter, FilterError, Instruction, LinkType, MAX_EXPRESSION, MAX_WORDS, ProgramError,
};

fn error(expression: &str) -> FilterError {
    Filter::compile(expression, LinkType::Ethernet).unwrap_err()
}

fn message(expression: &str) -> String {
    let message = error(expression).to_string();
    assert!(
        !message.contains(|sign: char| sign.is_control()),
        "{message:?}"
    );
    message
}

#[test]
fn says_what_is_wrong_where_and_what_would_do() {
    let cases = [
        (
            "port=443",
            "syntax error at column 5, near '='; did you mean 'port 443'?",
        ),
        ("tcp port:443", "; did you mean 'tcp port 443'?"),
        (
            "tcp prot 443",
            "syntax error at column 5, near 'prot'; did you mean 'tcp port 443'?",
        ),
        (
            "hots 1.2.3.4",
            "syntax error at column 1, near 'hots'; did you mean 'host 1.2.3.4'?",
        ),
        (
            "udp and not prt 53",
            " at column 13, near 'prt'; did you mean 'udp and not port 53'?",
        ),
        (
            "brodcast",
            "syntax error at column 1, near 'brodcast'; did you mean 'broadcast'?",
        ),
        ("tcp port", "syntax error at column 9, at the end"),
        ("ip[2:2]", "syntax error at column 8, at the end"),
        (
            "tcp and (port 80",
            " at column 17, at the end; did you mean 'tcp and (port 80)'?",
        ),
        (
            "tcp )",
            "syntax error at column 5, near ')'; did you mean 'tcp'?",
        ),
        (
            "tcp port 80 udp",
            " at column 13, near 'udp'; did you mean 'tcp port 80 and udp'?",
        ),
        (
            "port 1 or or port 2",
            " at column 11, near 'or'; did you mean 'port 1 or port 2'?",
        ),
        (
            "port 80,443",
            "syntax error at column 8, near ','; did you mean 'port 80 or 443'?",
        ),
        (
            "tcp AND dst port 1",
            " at column 5, near 'AND'; did you mean 'tcp and dst port 1'?",
        ),
        (
            "tcp 443",
            "syntax error at column 5, near '443'; did you mean 'tcp port 443'?",
        ),
        (
            "tcp.dstport==443",
            " at column 1, near 'tcp.dstport'; did you mean 'tcp dst port 443'?",
        ),
        (
            "ip.addr == 1.2.3.4",
            "near 'ip.addr'; did you mean 'host 1.2.3.4'?",
        ),
        (
            "ipv6",
            "syntax error at column 1, near 'ipv6'; did you mean 'ip6'?",
        ),
        (
            "src ip 1.2.3.4",
            " at column 5, near 'ip'; did you mean 'src host 1.2.3.4'?",
        ),
        ("tcp $ udp", "syntax error at column 5, near '$'"),
        ("host é", "syntax error at column 6, near 'é'"),
        (
            "udp or host example.com",
            "names of hosts and networks are not resolved: give the address of 'example.com' \
             at column 13",
        ),
        (
            "net backbone",
            "names of hosts and networks are not resolved: give the address of 'backbone' \
             at column 5",
        ),
        ("port foo", "unknown port 'foo' at column 6"),
        ("ip proto foo", "unknown ip proto 'foo' at column 10"),
        (
            "port 70000",
            "illegal port number 70000 > 65535 at column 6",
        ),
        (
            "port 80-90",
            "unknown port '80-90' at column 6; did you mean 'portrange 80-90'?",
        ),
        (
            "net 10.0.0.1/8",
            " at column 5; did you mean 'net 10.0.0.0/8'?",
        ),
        (
            "host 10.0.0.0/8",
            "Mask syntax for networks only at column 6, near '10.0.0.0/8'; \
                             did you mean 'net 10.0.0.0/8'?",
        ),
        (
            "ip[0:3] = 1",
            "data size must be 1, 2, or 4 at column 6, near '3'",
        ),
        (
            "tcp and ip[0] / 0 = 1",
            "division by zero at column 17, near '0'",
        ),
        (
            "vlan 5000",
            "VLAN tag 5000 greater than maximum 4095 at column 6",
        ),
        ("tcp and udp", "expression rejects all packets"),
        (
            "inbound",
            "cannot be filtered on; every flow has both directions",
        ),
        (
            "tcp\nport=80",
            "syntax error at column 9, near '='; did you mean 'tcp port 80'?",
        ),
    ];
    for (expression, expected) in cases {
        let message = message(expression);
        let expression = expression.escape_debug();
        assert!(
            message.starts_with(&format!("filter '{expression}': ")),
            "{message}"
        );
        assert!(
            message.ends_with(expected),
            "{message}\nshould end: {expected}"
        );
    }
}

#[test]
fn every_suggestion_compiles() {
    for expression in [
        "port=443",
        "TCP.port==1",
        "src 10.0.0.1/8",
        "https or (dns",
        "udp 53,54",
    ] {
        let FilterError::Invalid { suggestion, .. } = error(expression) else {
            panic!("{expression}")
        };
        let suggestion = suggestion.unwrap();
        assert!(
            Filter::compile(&suggestion, LinkType::Ethernet).is_ok(),
            "{suggestion}"
        );
    }
}

#[test]
fn names_the_place_in_a_long_expression() {
    let ports: Vec<String> = (1..100).map(|port| format!("port {port}")).collect();
    let expression = format!("{} or prot 7 or udp", ports.join(" or "));
    let message = message(&expression);
    let column = expression.find("prot").unwrap() + 1;
    assert!(
        message.contains(&format!("unknown port 'prot' at column {column}")),
        "{message}"
    );
    assert!(message.contains("or prot 7 or udp': "), "{message}");
    assert!(
        message.ends_with("or port 7 or udp'?") && message.len() < 400,
        "{message}"
    );
}

#[test]
fn hostile_expressions_are_errors() {
    for expression in [
        "\0".to_owned(),
        "tcp\0udp".to_owned(),
        "\u{1b}[2J".to_owned(),
        "(".repeat(900),
        ")".repeat(900),
        "not ".repeat(900),
        "ip[".repeat(400),
        "-".repeat(MAX_EXPRESSION) + "1",
        "'\"\\%s%n".to_owned(),
        "\u{202e}pct".to_owned(),
        "=".repeat(500),
        "tcp and ".repeat(MAX_WORDS) + "tcp",
        "1".repeat(MAX_EXPRESSION + 1),
        "ip[0] = 99999999999999999999".to_owned(),
    ] {
        message(&expression);
    }
    let deep = format!("{}tcp{}", "(".repeat(190), ")".repeat(190));
    assert!(Filter::compile(&deep, LinkType::Ethernet).is_ok());
}

#[test]
fn what_would_take_libpcap_minutes_is_refused() {
    let list = |count: u32| {
        let ports: Vec<String> = (1..=count).map(|port| port.to_string()).collect();
        format!("port {}", ports.join(" or "))
    };
    assert!(Filter::compile(&list(100), LinkType::Ethernet).is_ok());
    assert!(message(&list(150)).contains("too long: 9542 instructions, at most 8000"));
    assert!(message(&list(290)).contains("too long: 580 words, at most 400"));
}

#[test]
fn ready_programs_are_checked() {
    let ret = Instruction {
        code: 6,
        jt: 0,
        jf: 0,
        k: 1,
    };
    let jump = Instruction {
        code: 0x15,
        jt: 9,
        jf: 0,
        k: 1,
    };
    assert!(
        Filter::from_instructions(&[ret], LinkType::RawIp)
            .unwrap()
            .matches(&[])
    );
    assert_eq!(
        Filter::from_instructions(&[jump, ret], LinkType::RawIp),
        Err(FilterError::Program(ProgramError::Target { at: 0 }))
    );
}
