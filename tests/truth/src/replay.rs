//! Runs `skua replay` and reads its JSON lines.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::conversation::{Account, Conversation, Endpoint, Key};

/// The program: what the environment variable `SKUA` names, else the one built beside this test.
///
/// # Errors
///
/// How to build it, when it is not there.
pub fn program() -> Result<PathBuf, String> {
    if let Some(path) = std::env::var_os("SKUA") {
        return Ok(path.into());
    }
    let test = std::env::current_exe().map_err(|error| error.to_string())?;
    // target/debug/deps/replay-… beside target/debug/skua.
    let path = test.ancestors().nth(2).unwrap_or(&test).join("skua");
    match path.exists() {
        true => Ok(path),
        false => Err(format!(
            "{} is missing: cargo build -p skua, or name a program in SKUA",
            path.display()
        )),
    }
}

/// Runs `skua replay` with JSON output and summary.
///
/// # Errors
///
/// When it cannot be started.
pub fn run(program: &Path, file: &Path, tunnels: bool) -> Result<Output, String> {
    let mut command = Command::new(program);
    command.args(["replay", "--output", "json", "--summary", "json"]);
    if tunnels {
        command.arg("--tunnels");
    }
    command
        .arg(file)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{}: {error}", program.display()))
}

/// What `skua replay` says of a file. Interfaces without a name are called after the file there.
///
/// # Errors
///
/// The message, or the line that cannot be read.
pub fn account(program: &Path, file: &Path, tunnels: bool) -> Result<Account, String> {
    let output = run(program, file, tunnels)?;
    let (lines, messages) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    if !output.status.success() {
        return Err(messages.into_owned());
    }
    let parse = |line: &str| -> Result<Value, String> {
        serde_json::from_str(line).map_err(|error| format!("{error}: {line}"))
    };
    let flows: Vec<Value> = lines.lines().map(parse).collect::<Result<_, _>>()?;
    let by_id: HashMap<&str, &Value> = flows
        .iter()
        .filter_map(|flow| Some((flow["id"].as_str()?, flow)))
        .collect();
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    let mut conversations = Vec::new();
    for flow in &flows {
        let conversation = conversation(flow, &by_id, &stem);
        conversations.push(conversation.ok_or_else(|| format!("cannot be read: {flow}"))?);
    }
    conversations.sort();
    let summary = parse(messages.lines().last().unwrap_or_default())?;
    let truncated = &summary["lost"]["truncated"];
    Ok(Account {
        conversations,
        truncated: (
            truncated["packets"].as_u64().unwrap_or(0),
            truncated["bytes"].as_u64().unwrap_or(0),
        ),
    })
}

fn conversation(flow: &Value, by_id: &HashMap<&str, &Value>, stem: &str) -> Option<Conversation> {
    let (key, a_is_lo) = key(flow, by_id, stem)?;
    let sent = |side: &str| {
        let counters = &flow[side];
        Some((counters["packets"].as_u64()?, counters["bytes"].as_u64()?))
    };
    let (ab, ba) = (sent("ab")?, sent("ba")?);
    let (lo_sent, hi_sent) = if a_is_lo { (ab, ba) } else { (ba, ab) };
    Some(Conversation {
        key,
        start_ns: time(flow["start"].as_str()?)?,
        end_ns: time(flow["last"].as_str()?)?,
        lo_sent,
        hi_sent,
        lo_first: a_is_lo,
    })
}

/// The key, and whether `a` is its lower endpoint.
fn key(flow: &Value, by_id: &HashMap<&str, &Value>, stem: &str) -> Option<(Key, bool)> {
    let number = |value: &Value| value.as_u64().map(|n| n as u16);
    let ethertype = number(&flow["ethertype"]);
    let icmp = &flow["icmp"];
    let endpoint = |side: &str| -> Option<Endpoint> {
        let side = &flow[side];
        let address = side["address"].as_str()?;
        let address = match ethertype {
            Some(_) => mac(address)?,
            None => match address.parse().ok()? {
                IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
                IpAddr::V6(v6) => v6.octets(),
            },
        };
        let port = match (number(&icmp["type"]), number(&icmp["code"])) {
            (Some(kind), Some(code)) => kind << 8 | code,
            _ => number(&side["port"]).unwrap_or(0),
        };
        Some(Endpoint(address, port))
    };
    let (a, b) = (endpoint("a")?, endpoint("b")?);
    let (lo, hi) = if a <= b { (a, b) } else { (b, a) };
    let mut vlan = [0; 4];
    for (place, id) in vlan
        .iter_mut()
        .zip(flow["vlans"].as_array().into_iter().flatten())
    {
        *place = 0x1000 | number(id)?;
    }
    let parent = match flow["tunnel"].as_object() {
        None => None,
        Some(tunnel) => {
            let kind = match tunnel["type"].as_str()? {
                "vxlan" => "vxlan",
                "geneve" => "geneve",
                "gre" => "gre",
                "ipip" => "ip-in-ip",
                "mpls" => "mpls",
                "erspan" => "erspan",
                _ => return None,
            };
            let id = tunnel["id"].as_u64()? as u32;
            let parent = by_id.get(tunnel["parent"].as_str()?)?;
            let (parent, _) = self::key(parent, by_id, stem)?;
            Some(parent.around((kind, id)))
        }
    };
    let interface = match flow["interface"].as_str()? {
        name if name == stem => "",
        name => name,
    };
    let v6 = flow["a"]["address"].as_str()?.contains(':');
    let key = Key {
        interface: interface.to_owned(),
        parent,
        vlan,
        ethernet: flow["layers"].as_str()?.starts_with("Ethernet"),
        network: match (ethertype, v6) {
            (Some(_), _) => 0,
            (None, true) => 6,
            (None, false) => 4,
        },
        protocol: match ethertype {
            Some(_) => 0,
            None => protocol(flow["protocol"].as_str()?)?,
        },
        detail: ethertype.or(number(&icmp["id"])).unwrap_or(0),
        lo,
        hi,
    };
    Some((key, a <= b))
}

/// Number of an IP protocol by the name in records.
fn protocol(name: &str) -> Option<u8> {
    Some(match name {
        "hopopt" => 0,
        "icmp" => 1,
        "igmp" => 2,
        "ipip" => 4,
        "tcp" => 6,
        "egp" => 8,
        "udp" => 17,
        "dccp" => 33,
        "6in4" => 41,
        "ipv6-route" => 43,
        "ipv6-frag" => 44,
        "rsvp" => 46,
        "gre" => 47,
        "esp" => 50,
        "ah" => 51,
        "icmpv6" => 58,
        "ipv6-nonxt" => 59,
        "ipv6-opts" => 60,
        "eigrp" => 88,
        "ospf" => 89,
        "pim" => 103,
        "vrrp" => 112,
        "l2tp" => 115,
        "sctp" => 132,
        "mobility" => 135,
        "udplite" => 136,
        "hip" => 139,
        "shim6" => 140,
        number => return number.parse().ok(),
    })
}

/// A MAC address as the flow key holds it; the empty text is none.
fn mac(text: &str) -> Option<[u8; 16]> {
    let mut address = [0; 16];
    for (byte, digits) in address[10..].iter_mut().zip(text.split(':')) {
        if !text.is_empty() {
            *byte = u8::from_str_radix(digits, 16).ok()?;
        }
    }
    Some(address)
}

/// RFC 3339 to ns since the Unix epoch.
fn time(text: &str) -> Option<u64> {
    let time = humantime::parse_rfc3339(text).ok()?;
    let since = time.duration_since(std::time::UNIX_EPOCH).ok()?;
    u64::try_from(since.as_nanos()).ok()
}
