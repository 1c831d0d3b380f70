//! Files that the tests write, as others publish them.

use std::{
    net::Ipv6Addr,
    path::{Path, PathBuf},
};

use super::*;

/// Values of a database.
enum Data {
    Text(&'static str),
    Number(u32),
    Map(Vec<(&'static str, Data)>),
    /// Without elements.
    List,
}

impl Data {
    /// In the format's own coding: type and length in a byte (lengths of 29 and more in the next one), then the value.
    fn write(&self, out: &mut Vec<u8>) {
        let mut head = |kind: u8, length: usize| {
            let extended = kind > 7;
            let kind_bits = if extended { 0 } else { kind << 5 };
            let short = length.min(29) as u8;
            out.push(kind_bits | short);
            if extended {
                out.push(kind - 7);
            }
            if length >= 29 {
                out.push((length - 29) as u8);
            }
        };
        match self {
            Self::Text(text) => {
                head(2, text.len());
                out.extend(text.as_bytes());
            }
            Self::Number(number) => {
                head(6, 4);
                out.extend(number.to_be_bytes());
            }
            Self::List => head(11, 0),
            Self::Map(pairs) => {
                head(7, pairs.len());
                for (key, value) in pairs {
                    Self::Text(key).write(out);
                    value.write(out);
                }
            }
        }
    }
}

/// A database of prefixes, in a tree of IPv6 with records of 24 bits.
fn mmdb(kind: &'static str, entries: Vec<(&str, Data)>) -> Vec<u8> {
    // Children of each node: none, a node, or data.
    #[derive(Clone, Copy, PartialEq)]
    enum Child {
        None,
        Node(usize),
        Data(usize),
    }
    let (mut tree, mut data) = (vec![[Child::None; 2]], Vec::new());
    for (prefix, value) in entries {
        let net: ipnet::IpNet = prefix.parse().unwrap();
        let (bits, length) = match net.network() {
            // IPv4 is under ::/96.
            IpAddr::V4(v4) => (u128::from(u32::from(v4)), net.prefix_len() + 96),
            IpAddr::V6(v6) => (u128::from(v6), net.prefix_len()),
        };
        let at = data.len();
        value.write(&mut data);
        let mut node = 0;
        for depth in 0..length {
            let side = (bits >> (127 - depth) & 1) as usize;
            if depth + 1 == length {
                tree[node][side] = Child::Data(at);
            } else {
                node = match tree[node][side] {
                    Child::Node(next) => next,
                    _ => {
                        tree.push([Child::None; 2]);
                        let next = tree.len() - 1;
                        tree[node][side] = Child::Node(next);
                        next
                    }
                };
            }
        }
    }
    let mut out = Vec::new();
    let nodes = tree.len();
    for child in tree.iter().flatten() {
        let record = match child {
            Child::None => nodes,
            Child::Node(next) => *next,
            Child::Data(at) => nodes + 16 + at,
        };
        out.extend(&(record as u32).to_be_bytes()[1..]);
    }
    out.extend([0; 16]);
    out.extend(data);
    out.extend(b"\xab\xcd\xefMaxMind.com");
    let map = |pairs| Data::Map(pairs);
    map(vec![
        ("binary_format_major_version", Data::Number(2)),
        ("binary_format_minor_version", Data::Number(0)),
        ("build_epoch", Data::Number(1_700_000_000)),
        ("database_type", Data::Text(kind)),
        ("description", map(vec![("en", Data::Text("of a test"))])),
        ("ip_version", Data::Number(6)),
        ("languages", Data::List),
        ("node_count", Data::Number(nodes as u32)),
        ("record_size", Data::Number(24)),
    ])
    .write(&mut out);
    out
}

fn maxmind_country() -> Vec<u8> {
    let country = |code, name| {
        let names = Data::Map(vec![("en", Data::Text(name))]);
        Data::Map(vec![(
            "country",
            Data::Map(vec![("iso_code", Data::Text(code)), ("names", names)]),
        )])
    };
    mmdb(
        "GeoLite2-Country",
        vec![
            ("198.51.100.0/24", country("DE", "Germany")),
            ("2001:db8::/32", country("SE", "Sweden")),
        ],
    )
}

fn maxmind_asn() -> Vec<u8> {
    let system = Data::Map(vec![
        ("autonomous_system_number", Data::Number(64_500)),
        (
            "autonomous_system_organization",
            Data::Text("Example Networks of a test with a long name"),
        ),
    ]);
    mmdb("GeoLite2-ASN", vec![("198.51.100.0/25", system)])
}

fn ipinfo() -> Vec<u8> {
    let entry = Data::Map(vec![
        ("country", Data::Text("Norway")),
        ("country_code", Data::Text("NO")),
        ("asn", Data::Text("AS64501")),
        ("as_name", Data::Text("Nordic\nExample")),
    ]);
    let country = Data::Map(vec![("country", Data::Text("FI"))]);
    mmdb(
        "ipinfo lite.mmdb",
        vec![("203.0.113.0/24", entry), ("192.0.2.0/24", country)],
    )
}

/// A folder of files.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("skua-networks-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What the files say now.
fn read(files: &Files) -> Networks {
    let mut all = files::All::new(files);
    all.read(true);
    all.networks()
}

fn known(networks: &Networks, address: &str) -> (&'static str, u32, &'static str, &'static str) {
    let known = networks.known(address.parse().unwrap());
    (
        known.country,
        known.asn.unwrap_or_default(),
        known.organization,
        known.network,
    )
}

fn none() -> (&'static str, u32, &'static str, &'static str) {
    Default::default()
}

#[test]
fn databases_of_maxmind_and_ipinfo_add_to_each_other() {
    let folder = Folder::new("databases");
    let files = Files {
        databases: vec![
            folder.file("country.mmdb", &maxmind_country()),
            folder.file("asn.mmdb", &maxmind_asn()),
            folder.file("ipinfo.mmdb", &ipinfo()),
        ],
        ..Files::default()
    };
    let networks = read(&files);
    let of = |country, asn, organization| (country, asn, organization, "");
    let long = "Example Networks of a test with a long name";
    assert_eq!(known(&networks, "198.51.100.7"), of("DE", 64_500, long));
    assert_eq!(
        known(&networks, "::ffff:198.51.100.7"),
        of("DE", 64_500, long)
    );
    assert_eq!(known(&networks, "198.51.100.200"), of("DE", 0, ""));
    assert_eq!(known(&networks, "2001:db8::1"), of("SE", 0, ""));
    // The name is of one line.
    assert_eq!(
        known(&networks, "203.0.113.9"),
        of("NO", 64_501, "Nordic Example")
    );
    assert_eq!(known(&networks, "192.0.2.1"), of("FI", 0, ""));
    assert_eq!(known(&networks, "10.0.0.1"), none());
    assert_eq!(known(&networks, &Ipv6Addr::LOCALHOST.to_string()), none());
}

/// Files of another writer (`tests/files/make`).
#[test]
fn databases_of_another_writer_are_read() {
    let file = |name: &str| {
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/files")
            .join(name)
    };
    let names = [
        "maxmind-country.mmdb",
        "maxmind-asn.mmdb",
        "ipinfo-lite.mmdb",
    ];
    let networks = read(&Files {
        databases: names.map(file).into(),
        ..Files::default()
    });
    assert_eq!(networks.databases.len(), 3);
    let south = "Example South";
    for (address, country, asn, organization) in [
        ("198.51.100.1", "DE", 64_500, "Example, \"North\""),
        ("198.51.100.200", "DE", 0, ""),
        ("203.0.113.1", "SE", 64_501, south),
        ("203.0.113.200", "NO", 64_501, south),
        ("2001:db8:1::7", "FR", 4_200_000_001, "Example Six"),
        ("2001:db8:2::7", "", 0, ""),
        ("192.0.2.1", "", 0, ""),
    ] {
        assert_eq!(
            known(&networks, address),
            (country, asn, organization, ""),
            "{address}"
        );
    }
}

#[test]
fn the_smallest_range_names_an_address() {
    let folder = Folder::new("ranges");
    let csv = "prefix,name\n# ours\n10.0.0.0/8,site\n10.1.0.0/16,\"lab, \"\"old\"\"\"\n2001:db8::/32,documentation\n\n192.0.2.1,printer\n";
    let list = br#"[{"prefix": "10.1.2.0/24", "name": "cloud eu"}]"#;
    let object = br#"{"0.0.0.0/0": "elsewhere"}"#;
    let files = Files {
        ranges: vec![
            folder.file("a.csv", csv.as_bytes()),
            folder.file("b.json", list),
            folder.file("c.json", object),
        ],
        ..Files::default()
    };
    let networks = read(&files);
    for (address, name) in [
        ("10.2.3.4", "site"),
        ("10.1.9.9", "lab, \"old\""),
        ("10.1.2.3", "cloud eu"),
        ("2001:db8:1::1", "documentation"),
        ("192.0.2.1", "printer"),
        ("192.0.2.2", "elsewhere"),
        ("fe80::1", ""),
    ] {
        assert_eq!(known(&networks, address).3, name, "{address}");
    }
}

#[test]
fn services_have_the_first_name_of_their_port() {
    let folder = Folder::new("services");
    let text = "# a file\nhttps\t443/tcp\t\t# secure\nhttps 443/udp\nother 443/tcp alias\nbroken\nbad x/tcp\nodd 7/xns\nhuge 70000/tcp\n";
    let files = Files {
        services: Some(folder.file("services", text.as_bytes())),
        ..Files::default()
    };
    let networks = read(&files);
    assert_eq!(networks.port(6, 443), "https");
    assert_eq!(networks.port(17, 443), "https");
    for (protocol, port) in [(6, 7), (17, 80), (132, 443), (6, 4464)] {
        assert_eq!(networks.port(protocol, port), "");
    }
}

#[test]
fn what_is_wrong_is_said_with_the_place() {
    assert_eq!(
        Database::new(b"no database".to_vec()).unwrap_err(),
        "no usable MMDB file of version 2"
    );
    let ranges = |text: &str| Ranges::parse(text.as_bytes()).unwrap_err();
    assert_eq!(
        ranges("10.0.0.0/8,a\n10.0.0.0/33,b"),
        "line 2: \"10.0.0.0/33\" is no prefix such as 192.0.2.0/24"
    );
    assert_eq!(
        ranges("10.0.0.0/8"),
        "line 1: a prefix, a comma and a name are needed"
    );
    assert_eq!(ranges("10.0.0.0/8, "), "line 1: 10.0.0.0/8 has no name");
    assert!(ranges("[{\"prefix\": 7}]").starts_with("no list of prefixes and names:"));
    assert_eq!(
        ranges("[{\"prefix\": \"x\", \"name\": \"y\"}]"),
        "entry 1: \"x\" is no prefix such as 192.0.2.0/24"
    );
}

/// Any bits may be wrong: nothing panics, and no look-up goes on without end.
#[test]
fn damaged_databases_are_refused_or_harmless() {
    let whole = maxmind_country();
    let mut random = 7u32;
    let mut refused = 0;
    for round in 0..4_000 {
        let mut bytes = whole.clone();
        for _ in 0..1 + round % 3 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let at = (random >> 8) as usize % bytes.len();
            bytes[at] ^= 1 << (random & 7);
        }
        if round % 5 == 0 {
            bytes.truncate((random >> 8) as usize % whole.len());
        }
        match Database::new(bytes) {
            Ok(database) => {
                for address in ["198.51.100.7", "2001:db8::1", "10.0.0.1", "::"] {
                    database.look_up(address.parse().unwrap(), &mut Known::default());
                }
            }
            Err(_) => refused += 1,
        }
    }
    assert!(refused > 500, "{refused}");
}

#[test]
fn changed_files_are_read_again_and_a_broken_one_changes_nothing() {
    let folder = Folder::new("follow");
    let write = |text: &str| folder.file("a.csv", text.as_bytes());
    let files = Files {
        databases: vec![folder.file("broken.mmdb", b"nothing")],
        ranges: vec![
            write("10.0.0.0/8,before"),
            folder.file("b.csv", b"10.8.0.0/16,of another file"),
            folder.0.join("missing.csv"),
        ],
        ..Files::default()
    };
    let address: IpAddr = "10.9.9.9".parse().unwrap();
    assert_eq!(
        of(address),
        Known::default(),
        "nothing is known without files"
    );
    let mut all = files::All::new(&files);
    assert!(all.read(true));
    install(all.networks());
    for (text, changed, expected) in [
        ("10.0.0.0/8,before", false, "before"),
        ("10.0.0.0/8,afterwards", true, "afterwards"),
        ("10.0.0.0/80,broken file", false, "afterwards"),
        ("10.9.0.0/16,and whole again", true, "and whole again"),
    ] {
        if expected != "before" {
            write(text);
        }
        assert_eq!(all.read(false), changed, "{text}");
        if changed {
            install(all.networks());
        }
        // The second answer is remembered.
        assert_eq!(of(address).network, expected);
        assert_eq!(of(address).network, expected);
        assert_eq!(of("10.8.9.9".parse().unwrap()).network, "of another file");
        assert_eq!(of("11.9.9.9".parse().unwrap()).network, "");
    }
    // A file that comes later.
    folder.file("missing.csv", b"11.0.0.0/8,late");
    assert!(all.read(false));
    install(all.networks());
    assert_eq!(of("11.9.9.9".parse().unwrap()).network, "late");
}
