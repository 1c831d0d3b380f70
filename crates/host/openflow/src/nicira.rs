//! Actions of Open vSwitch, ovs-actions(7).

use crate::{
    action::{self, Action, Budget, int, texts, values},
    field::{self, Entry, Header, bits, digits, port},
    read::Reader,
};
use skua_topology::{Map, Value};
use std::{
    fmt::Write as _,
    net::{Ipv4Addr, Ipv6Addr},
};

/// Number of Nicira, whose actions these were.
const NICIRA: u32 = 0x2320;
/// The port that a packet came from.
const IN_PORT: u16 = 0xfff8;
/// No table, for `ct`; the present one, for `resubmit`.
const NO_TABLE: u8 = 0xff;
const DEFAULT_PRIORITY: u16 = 0x8000;

fn dotted(bytes: &[u8]) -> String {
    let parts: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    parts.join(".")
}

/// As JSON writes bytes.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let at = |place: usize| u32::from(chunk.get(place).copied().unwrap_or(0));
        let whole = at(0) << 16 | at(1) << 8 | at(2);
        for digit in 0..4 {
            if digit <= chunk.len() {
                let value = (whole >> (18 - 6 * digit)) & 63;
                text.push(char::from(DIGITS[value as usize]));
            } else {
                text.push('=');
            }
        }
    }
    text
}

fn named(header: &Header) -> Value {
    header.named().skydive.as_ref().into()
}

/// Reads an action after `0xffff` and its length.
pub(crate) fn action(body: &mut Reader, budget: &mut Budget) -> Option<Action> {
    let vendor = body.u32()?;
    let subtype = body.u16()?;
    if vendor != NICIRA {
        let text = format!("experimenter({vendor:#x},{subtype})");
        return Some(Action::new("experimenter", text));
    }
    Some(match subtype {
        1 | 14 | 44 => resubmit(subtype, body)?,
        2 => {
            body.skip(2)?;
            let id = body.u32()?;
            Action::with(
                "nx_set_tunnel",
                format!("set_tunnel:{}", digits(id)),
                [("TunId", int(id))],
            )
        }
        9 => {
            body.skip(6)?;
            let id = body.u64()?;
            let text = format!("set_tunnel64:{}", digits(id));
            Action::with("nx_set_tunnel64", text, [("TunId", int(id))])
        }
        4 => {
            body.skip(2)?;
            let queue = body.u32()?;
            Action::with(
                "nx_set_queue",
                format!("set_queue:{queue}"),
                [("QueueId", int(queue))],
            )
        }
        5 => Action::new("nx_pop_queue", "pop_queue"),
        6 => reg_move(body)?,
        7 => reg_load(body)?,
        8 => {
            let note = body.rest();
            Action::with(
                "nx_note",
                format!("note:{}", dotted(note)),
                [("Note", base64(note).as_str().into())],
            )
        }
        10 => multipath(body)?,
        12 | 13 => bundle(subtype, body)?,
        15 | 32 => output_reg(subtype, body)?,
        16 | 45 => learn(subtype, body)?,
        17 => Action::new("nx_exit", "exit"),
        18 => Action::new("nx_dec_ttl", "dec_ttl"),
        19 => {
            let (idle, hard) = (body.u16()?, body.u16()?);
            let mut parts = Vec::new();
            for (name, value) in [("idle_timeout", idle), ("hard_timeout", hard)] {
                if value != 0 {
                    parts.push(format!("{name}={value}"));
                }
            }
            let text = format!("fin_timeout({})", parts.join(","));
            let arguments = [("FinIdleTimeout", int(idle)), ("FinHardTimeout", int(hard))];
            Action::with("nx_fin_timeout", text, arguments)
        }
        20 => {
            let (most, id, reason) = (body.u16()?, body.u16()?, body.u8()?);
            let mut parts = Vec::new();
            if reason != 1 {
                parts.push(format!("reason={}", reason_name(reason)));
            }
            if most != u16::MAX {
                parts.push(format!("max_len={most}"));
            }
            if id != 0 {
                parts.push(format!("id={id}"));
            }
            let text = match parts.is_empty() {
                true => format!("CONTROLLER:{most}"),
                false => format!("controller({})", parts.join(",")),
            };
            let arguments = [
                ("MaxLen", int(most)),
                ("ControllerId", int(id)),
                ("Reason", int(reason)),
            ];
            Action::with("nx_controller", text, arguments)
        }
        21 => {
            let count = usize::from(body.u16()?);
            body.skip(4)?;
            let ids: Vec<String> = (0..count)
                .map_while(|_| body.u16())
                .map(|id| id.to_string())
                .collect();
            Action::new("nx_dec_ttl_cnt_ids", format!("dec_ttl({})", ids.join(",")))
        }
        22 => {
            body.skip(6)?;
            let (value, mask) = (body.u64()?, body.u64()?);
            let text = match mask {
                u64::MAX => format!("write_metadata:{}", digits(value)),
                mask => format!("write_metadata:{}/{}", digits(value), digits(mask)),
            };
            Action::new("nx_write_metadata", text)
        }
        23 | 24 => {
            let name = if subtype == 23 {
                "push_mpls"
            } else {
                "pop_mpls"
            };
            let kind = if subtype == 23 {
                "nx_push_mpls"
            } else {
                "nx_pop_mpls"
            };
            let ethertype = body.u16()?;
            let text = format!("{name}:{ethertype:#06x}");
            Action::with(kind, text, [("EtherType", int(ethertype))])
        }
        25 => Action::new("nx_set_mpls_ttl", format!("set_mpls_ttl({})", body.u8()?)),
        26 => Action::new("nx_dec_mpls_ttl", "dec_mpls_ttl"),
        27 | 28 => stack(subtype, body)?,
        29 | 38 | 41 => sample(subtype, body)?,
        30 => {
            body.skip(2)?;
            Action::new(
                "nx_set_mpls_label",
                format!("set_mpls_label({})", body.u32()?),
            )
        }
        31 => Action::new("nx_set_mpls_tc", format!("set_mpls_tc({})", body.u8()?)),
        33 => {
            body.skip(6)?;
            action::set_field("nx_reg_load2", body)?
        }
        34 => {
            let (clause, clauses, id) = (body.u8()?, body.u8()?, body.u32()?);
            let text = format!("conjunction({id},{}/{clauses})", u16::from(clause) + 1);
            let arguments = [
                ("Clause", int(clause)),
                ("NClauses", int(clauses)),
                ("Id", int(id)),
            ];
            Action::with("nx_conjunction", text, arguments)
        }
        35 => conntrack(body, budget)?,
        36 => nat(body)?,
        37 => controller(body)?,
        39 => {
            let (number, most) = (body.u16()?, body.u32()?);
            let text = format!("output(port={},max_len={most})", port(number.into()));
            let arguments = [("Port", int(number)), ("MaxLen", int(most))];
            Action::with("nx_output_trunc", text, arguments)
        }
        42 => {
            body.skip(6)?;
            let actions = action::list(body, budget)?;
            let text = format!("clone({})", texts(&actions));
            Action::with("nx_clone", text, [("Actions", values(&actions))])
        }
        43 => Action::new("nx_ct_clear", "ct_clear"),
        46 => encap(body)?,
        47 => Action::new("nx_decap", "decap()"),
        48 => Action::new("nx_dec_nsh_ttl", "dec_nsh_ttl"),
        49 => {
            let length = body.u16()?;
            let offset = body.u16()?;
            let header = Header::read(body)?;
            let text = format!("check_pkt_larger({length})->{}", bits(&header, offset, 1));
            Action::with("nx_check_pkt_larger", text, [("PktLen", int(length))])
        }
        50 => {
            let header = Header::read(body)?;
            let text = format!("delete_field:{}", header.named().set);
            Action::with("nx_delete_field", text, [("Field", named(&header))])
        }
        other => Action::new("nx_unknown", format!("nicira_{other}")),
    })
}

fn resubmit(subtype: u16, body: &mut Reader) -> Option<Action> {
    let from = body.u16()?;
    let table = if subtype == 1 { NO_TABLE } else { body.u8()? };
    let name = if from == IN_PORT {
        String::new()
    } else {
        port(from.into())
    };
    let tables = if table == NO_TABLE {
        String::new()
    } else {
        table.to_string()
    };
    let text = match (subtype, tables.is_empty()) {
        (44, _) => format!("resubmit({name},{tables},ct)"),
        (_, true) if from != IN_PORT => format!("resubmit:{name}"),
        _ => format!("resubmit({name},{tables})"),
    };
    let arguments = [("InPort", int(from)), ("Table", int(table))];
    Some(Action::with("resubmit", text, arguments))
}

fn reg_move(body: &mut Reader) -> Option<Action> {
    let (count, from, to) = (body.u16()?, body.u16()?, body.u16()?);
    let (source, target) = (Header::read(body)?, Header::read(body)?);
    let text = format!(
        "move:{}->{}",
        bits(&source, from, count),
        bits(&target, to, count)
    );
    let arguments = [
        ("NBits", int(count)),
        ("Src", named(&source)),
        ("SrcOfs", int(from)),
        ("Dst", named(&target)),
        ("DstOfs", int(to)),
    ];
    Some(Action::with("nx_reg_move", text, arguments))
}

/// Offset, and number of bits less one, in one number.
fn unpacked(both: u16) -> (u16, u16) {
    (both >> 6, (both & 63) + 1)
}

fn reg_load(body: &mut Reader) -> Option<Action> {
    let both = body.u16()?;
    let header = Header::read(body)?;
    let value = body.u64()?;
    let (offset, count) = unpacked(both);
    let text = format!("load:{}->{}", digits(value), bits(&header, offset, count));
    let arguments = [
        ("OfsNbits", int(both)),
        ("SrcField", named(&header)),
        ("Value", int(value)),
    ];
    Some(Action::with("nx_reg_load", text, arguments))
}

fn stack(subtype: u16, body: &mut Reader) -> Option<Action> {
    let offset = body.u16()?;
    let header = Header::read(body)?;
    let count = body.u16()?;
    let (kind, name) = match subtype {
        27 => ("nx_stack_push", "push"),
        _ => ("nx_stack_pop", "pop"),
    };
    let text = format!("{name}:{}", bits(&header, offset, count));
    let arguments = [
        ("Field", named(&header)),
        ("NBits", int(count)),
        ("Offset", int(offset)),
    ];
    Some(Action::with(kind, text, arguments))
}

/// Over what a hash is taken.
fn hash_fields(number: u16) -> String {
    match number {
        0 => "eth_src".to_owned(),
        1 => "symmetric_l4".to_owned(),
        2 => "symmetric_l3l4".to_owned(),
        3 => "symmetric_l3l4+udp".to_owned(),
        4 => "nw_src".to_owned(),
        5 => "nw_dst".to_owned(),
        6 => "symmetric_l3".to_owned(),
        other => other.to_string(),
    }
}

fn multipath(body: &mut Reader) -> Option<Action> {
    let (fields, basis) = (body.u16()?, body.u16()?);
    body.skip(2)?;
    let (algorithm, most, argument) = (body.u16()?, body.u16()?, body.u32()?);
    body.skip(2)?;
    let both = body.u16()?;
    let header = Header::read(body)?;
    let name = match algorithm {
        0 => "modulo_n".to_owned(),
        1 => "hash_threshold".to_owned(),
        2 => "hrw".to_owned(),
        3 => "iter_hash".to_owned(),
        other => other.to_string(),
    };
    let (offset, count) = unpacked(both);
    let fields = hash_fields(fields);
    let text = format!(
        "multipath({fields},{basis},{name},{},{argument},{})",
        u32::from(most) + 1,
        bits(&header, offset, count)
    );
    let arguments = [
        ("Algorithm", name.as_str().into()),
        ("Arg", int(argument)),
        ("Basis", int(basis)),
        ("Dst", named(&header)),
        ("Fields", fields.as_str().into()),
        ("MaxLink", int(most)),
        ("OfsNbits", int(both)),
    ];
    Some(Action::with("nx_multipath", text, arguments))
}

fn bundle(subtype: u16, body: &mut Reader) -> Option<Action> {
    let (algorithm, fields, basis) = (body.u16()?, body.u16()?, body.u16()?);
    body.skip(4)?;
    let count = body.u16()?;
    let both = body.u16()?;
    // Without a register its header is zero.
    let header = Header::read(body)?;
    body.skip(4)?;
    let ports: Vec<u16> = (0..count).map_while(|_| body.u16()).collect();
    let name = match algorithm {
        0 => "active_backup".to_owned(),
        1 => "hrw".to_owned(),
        other => other.to_string(),
    };
    let fields = hash_fields(fields);
    let list: Vec<String> = ports.iter().map(|number| port((*number).into())).collect();
    let list = list.join(",");
    let (offset, bit_count) = unpacked(both);
    let (kind, text) = match subtype {
        12 => (
            "nx_bundle",
            format!("bundle({fields},{basis},{name},ofport,members:{list})"),
        ),
        _ => (
            "nx_bundle_load",
            format!(
                "bundle_load({fields},{basis},{name},ofport,{},members:{list})",
                bits(&header, offset, bit_count)
            ),
        ),
    };
    let ports: Value = ports
        .iter()
        .map(|port| Value::from(Map::from([("Port", int(*port))])))
        .collect();
    let mut action = Action::with(
        kind,
        text,
        [
            ("Algorithm", name.as_str().into()),
            ("Basis", int(basis)),
            ("Fields", fields.as_str().into()),
            ("InPorts", ports),
            ("NSlaves", int(count)),
            ("OfsNbits", int(both)),
            ("SlaveType", "in_port".into()),
        ],
    );
    if subtype == 13 {
        action.arguments = action.arguments.with("Dst", named(&header));
    }
    Some(action)
}

fn output_reg(subtype: u16, body: &mut Reader) -> Option<Action> {
    let both = body.u16()?;
    let (header, most) = match subtype {
        15 => {
            let header = Header::read(body)?;
            (header, body.u16()?)
        }
        _ => {
            let most = body.u16()?;
            (Header::read(body)?, most)
        }
    };
    let (offset, count) = unpacked(both);
    let text = format!("output:{}", bits(&header, offset, count));
    let arguments = [
        ("OfsNbits", int(both)),
        ("Src", named(&header)),
        ("MaxLen", int(most)),
    ];
    Some(Action::with("nx_output_reg", text, arguments))
}

fn learn(subtype: u16, body: &mut Reader) -> Option<Action> {
    let (idle, hard, priority) = (body.u16()?, body.u16()?, body.u16()?);
    let (cookie, flags, table) = (body.u64()?, body.u16()?, body.u8()?);
    body.skip(1)?;
    let (fin_idle, fin_hard) = (body.u16()?, body.u16()?);
    let mut parts = vec![format!("table={table}")];
    for (name, value) in [
        ("idle_timeout", idle),
        ("hard_timeout", hard),
        ("fin_idle_timeout", fin_idle),
        ("fin_hard_timeout", fin_hard),
    ] {
        if value != 0 {
            parts.push(format!("{name}={value}"));
        }
    }
    if priority != DEFAULT_PRIORITY {
        parts.push(format!("priority={priority}"));
    }
    if flags & 1 != 0 {
        parts.push("send_flow_rem".to_owned());
    }
    if flags & 2 != 0 {
        parts.push("delete_learned".to_owned());
    }
    if cookie != 0 {
        parts.push(format!("cookie={cookie:#x}"));
    }
    if subtype == 45 {
        // A limit, and where to write whether it was reached.
        let limit = body.u32()?;
        body.skip(4)?;
        if limit != 0 {
            parts.push(format!("limit={limit}"));
        }
    }
    let mut mods = Vec::new();
    while body.len() >= 2 && mods.len() < action::MAX_ACTIONS {
        let head = body.u16()?;
        if head == 0 {
            break;
        }
        let (part, value) = learned(head, body)?;
        parts.push(part);
        mods.push(value);
    }
    let arguments = [
        ("Cookie", int(cookie)),
        ("FinHardTimeout", int(fin_hard)),
        ("FinIdleTimeout", int(fin_idle)),
        ("Flags", int(flags)),
        ("FlowMods", mods.into_iter().collect()),
        ("HardTimeout", int(hard)),
        ("IdleTimeout", int(idle)),
        ("Priority", int(priority)),
        ("TableId", int(table)),
    ];
    let text = format!("learn({})", parts.join(","));
    Some(Action::with("nx_learn", text, arguments))
}

/// One part of what `learn` makes of a packet.
fn learned(head: u16, body: &mut Reader) -> Option<(String, Value)> {
    let count = head & 0x3ff;
    let mut map = vec![("SrcDst", int(head >> 8 & !3)), ("NBits", int(count))];
    let mut immediate = None;
    let mut source = None;
    if head & 0x2000 != 0 {
        let bytes = body.take(usize::from(count.div_ceil(16)) * 2)?;
        immediate = Some(bytes);
        map.push(("Src", digits(field::number(bytes)).as_str().into()));
    } else {
        let header = Header::read(body)?;
        let offset = body.u16()?;
        map.push(("Src", named(&header)));
        map.push(("SrcOfs", int(offset)));
        source = Some((header, offset));
    }
    let mut target = None;
    let what = head >> 11 & 3;
    if what != 2 {
        let header = Header::read(body)?;
        let offset = body.u16()?;
        map.push(("Dst", named(&header)));
        map.push(("DstOfs", int(offset)));
        target = Some((header, offset));
    }
    let from = match (&source, immediate) {
        (Some((header, offset)), _) => bits(header, *offset, count),
        (None, Some(bytes)) => digits(field::number(bytes)),
        (None, None) => String::new(),
    };
    // A whole field has its value as in matches.
    let whole = match (&target, immediate) {
        (Some((header, 0)), Some(bytes)) if usize::from(count) == header.size() * 8 => {
            let entry = Entry {
                named: header.named(),
                value: bytes.get(bytes.len().checked_sub(header.size())?..)?,
                mask: None,
            };
            Some(format!("{}={}", entry.named.set, entry.shown()))
        }
        _ => None,
    };
    let to = target.map(|(header, offset)| bits(&header, offset, count));
    let text = match (what, to) {
        (2, _) => format!("output:{from}"),
        (1, Some(to)) => format!("load:{from}->{to}"),
        (_, Some(to)) if to == from => to,
        (0, Some(_)) if whole.is_some() => whole.unwrap_or_default(),
        (_, to) => format!("{}={from}", to.unwrap_or_default()),
    };
    let map = map.into_iter().map(|(name, value)| (name.into(), value));
    Some((text, Map::new(map.collect()).into()))
}

fn sample(subtype: u16, body: &mut Reader) -> Option<Action> {
    let probability = body.u16()?;
    let (set, domain, point) = (body.u32()?, body.u32()?, body.u32()?);
    let mut text = format!(
        "sample(probability={probability},collector_set_id={set},obs_domain_id={domain},obs_point_id={point}"
    );
    let mut arguments = Map::from([
        ("Probability", int(probability)),
        ("CollectorSetId", int(set)),
        ("ObsDomainId", int(domain)),
        ("ObsPointId", int(point)),
    ]);
    if subtype != 29 {
        let (through, direction) = (body.u16()?, body.u8()?);
        if through != 0xffff {
            let _ = write!(text, ",sampling_port={}", port(through.into()));
        }
        text.push_str(match direction {
            1 => ",ingress",
            2 => ",egress",
            _ => "",
        });
        arguments = arguments.with("SamplingPort", int(through));
        arguments = arguments.with("Direction", int(direction));
    }
    text.push(')');
    let mut action = Action::new(
        if subtype == 29 {
            "nx_sample"
        } else {
            "nx_sample2"
        },
        text,
    );
    action.arguments = arguments;
    Some(action)
}

fn conntrack(body: &mut Reader, budget: &mut Budget) -> Option<Action> {
    let flags = body.u16()?;
    let mut head = *body;
    let source = match head.u32()? {
        0 => {
            body.skip(4)?;
            None
        }
        _ => Some(Header::read(body)?),
    };
    let (value, table) = (body.u16()?, body.u8()?);
    body.skip(3)?;
    let helper = body.u16()?;
    let actions = action::list(body, budget)?;
    let mut parts = Vec::new();
    if flags & 1 != 0 {
        parts.push("commit".to_owned());
    }
    if flags & 2 != 0 {
        parts.push("force".to_owned());
    }
    if table != NO_TABLE {
        parts.push(format!("table={table}"));
    }
    match &source {
        Some(header) => {
            let (offset, count) = unpacked(value);
            parts.push(format!("zone={}", bits(header, offset, count)));
        }
        None if value != 0 => parts.push(format!("zone={value}")),
        None => {}
    }
    let (nat, exec): (Vec<_>, Vec<_>) = actions
        .iter()
        .cloned()
        .partition(|action| action.kind == "nx_nat");
    parts.extend(nat.into_iter().map(|action| action.text));
    if !exec.is_empty() {
        parts.push(format!("exec({})", texts(&exec)));
    }
    match helper {
        0 => {}
        21 => parts.push("alg=ftp".to_owned()),
        69 => parts.push("alg=tftp".to_owned()),
        other => parts.push(format!("alg={other}")),
    }
    let text = match parts.is_empty() {
        true => "ct".to_owned(),
        false => format!("ct({})", parts.join(",")),
    };
    let flag_names = [(1, "Commit"), (2, "Force")];
    let set = flag_names.iter().filter(|(bit, _)| flags & bit != 0);
    let set = set.map(|(_, name)| ((*name).into(), Value::Bool(true)));
    let arguments = [
        ("Flags", Map::new(set.collect()).into()),
        ("ZoneSrc", source.as_ref().map_or_else(|| "".into(), named)),
        ("Value", int(value)),
        ("RecircTable", int(table)),
        ("Alg", int(helper)),
        ("Actions", values(&actions)),
    ];
    Some(Action::with("nx_ct", text, arguments))
}

fn nat(body: &mut Reader) -> Option<Action> {
    body.skip(2)?;
    let (flags, present) = (body.u16()?, body.u16()?);
    let mut v4 = [None; 2];
    let mut v6 = [None; 2];
    let mut ports = [0_u16; 2];
    for (bit, slot) in [(1, 0), (2, 1)] {
        if present & bit != 0 {
            v4[slot] = Some(Ipv4Addr::from(body.array::<4>()?));
        }
    }
    for (bit, slot) in [(4, 0), (8, 1)] {
        if present & bit != 0 {
            v6[slot] = Some(Ipv6Addr::from(body.array::<16>()?));
        }
    }
    for (bit, slot) in [(16, 0), (32, 1)] {
        if present & bit != 0 {
            ports[slot] = body.u16()?;
        }
    }
    let shown = |address: Option<String>| address.unwrap_or_default();
    let (v4, v6) = (
        v4.map(|address| address.map(|a| a.to_string())),
        v6.map(|address| address.map(|a| a.to_string())),
    );
    let mut parts = Vec::new();
    if flags & 3 != 0 {
        let mut range = if flags & 1 != 0 { "src" } else { "dst" }.to_owned();
        let brackets = ports[0] != 0;
        let (first, last) = match &v4 {
            [Some(first), last] => (Some(first.clone()), last.clone()),
            _ => {
                let dressed = |text: &String| match brackets {
                    true => format!("[{text}]"),
                    false => text.clone(),
                };
                (v6[0].as_ref().map(dressed), v6[1].as_ref().map(dressed))
            }
        };
        if let Some(first) = first {
            let _ = write!(range, "={first}");
            if let Some(last) = last {
                let _ = write!(range, "-{last}");
            }
            if ports[0] != 0 {
                let _ = write!(range, ":{}", ports[0]);
                if ports[1] != 0 {
                    let _ = write!(range, "-{}", ports[1]);
                }
            }
        }
        parts.push(range);
        for (bit, name) in [(4, "persistent"), (8, "hash"), (16, "random")] {
            if flags & bit != 0 {
                parts.push(name.to_owned());
            }
        }
    }
    let text = match parts.is_empty() {
        true => "nat".to_owned(),
        false => format!("nat({})", parts.join(",")),
    };
    const PRESENT: [&str; 6] = [
        "Ipv4Min", "Ipv4Max", "Ipv6Min", "Ipv6Max", "ProtoMin", "ProtoMax",
    ];
    let set = PRESENT.iter().enumerate();
    let set = set.filter(|(bit, _)| present >> bit & 1 == 1);
    let set = set.map(|(_, name)| ((*name).into(), Value::Bool(true)));
    let [v4_min, v4_max] = v4;
    let [v6_min, v6_max] = v6;
    let arguments = [
        ("Flags", int(flags)),
        ("Ipv4Min", shown(v4_min).as_str().into()),
        ("Ipv4Max", shown(v4_max).as_str().into()),
        ("Ipv6Min", shown(v6_min).as_str().into()),
        ("Ipv6Max", shown(v6_max).as_str().into()),
        ("ProtoMin", int(ports[0])),
        ("ProtoMax", int(ports[1])),
        ("RangePresent", Map::new(set.collect()).into()),
    ];
    Some(Action::with("nx_nat", text, arguments))
}

fn reason_name(reason: u8) -> String {
    match reason {
        0 => "no_match".to_owned(),
        1 => "action".to_owned(),
        2 => "invalid_ttl".to_owned(),
        3 => "action_set".to_owned(),
        4 => "group".to_owned(),
        5 => "packet_out".to_owned(),
        other => other.to_string(),
    }
}

fn controller(body: &mut Reader) -> Option<Action> {
    body.skip(6)?;
    let (mut parts, mut properties) = (Vec::new(), Vec::new());
    let mut most = None;
    while body.len() >= 4 && properties.len() < 16 {
        let mut head = *body;
        let kind = head.u16()?;
        let length = usize::from(head.u16()?);
        let data = body.part(length)?.rest().get(4..)?;
        let mut reader = Reader::new(data);
        // Each is filled up to eight bytes.
        body.skip((8 - length % 8) % 8)?;
        let mut map = Map::from([("Type", int(kind)), ("Length", int(length as u64))]);
        match kind {
            0 => most = Some(reader.u16()?),
            1 => parts.push(format!("id={}", reader.u16()?)),
            2 => {
                let reason = reason_name(reader.u8()?);
                parts.push(format!("reason={reason}"));
            }
            3 => {
                parts.push(format!("userdata={}", dotted(data)));
                map = map.with("Userdata", base64(data).as_str().into());
            }
            4 => parts.push("pause".to_owned()),
            5 => parts.push(format!("meter_id={}", reader.u32()?)),
            _ => {}
        }
        properties.push(Value::from(map));
    }
    if let Some(most) = most {
        parts.insert(0, format!("max_len={most}"));
    }
    let text = format!("controller({})", parts.join(","));
    let arguments = [("Properties", properties.into_iter().collect())];
    Some(Action::with("nx_controller2", text, arguments))
}

fn encap(body: &mut Reader) -> Option<Action> {
    let size = body.u16()?;
    let kind = body.u32()?;
    let name = match kind {
        0 => "ethernet".to_owned(),
        0x0001_894f => "nsh".to_owned(),
        0x0001_8847 => "mpls".to_owned(),
        other => format!("{other:#x}"),
    };
    let (mut parts, mut properties) = (Vec::new(), Vec::new());
    while body.len() >= 4 && properties.len() < 64 {
        let (class, number, length) = (body.u16()?, body.u8()?, body.u8()?);
        let data = body.take(usize::from(length).checked_sub(4)?)?;
        // Each is filled up to eight bytes.
        body.skip((8 - usize::from(length) % 8) % 8).or(Some(()))?;
        let mut reader = Reader::new(data);
        let mut map = Map::from([
            ("PropClass", int(class)),
            ("Type", int(number)),
            ("Len", int(length)),
        ]);
        match (class, number) {
            (4, 1) => {
                let kind = reader.u8()?;
                parts.push(format!("md_type={kind}"));
                map = map.with("MdType", int(kind));
            }
            (4, 2) => {
                let (class, kind, length) = (reader.u16()?, reader.u8()?, reader.u8()?);
                let value = reader.take(usize::from(length))?;
                let digits = value.iter().fold(String::new(), |mut text, byte| {
                    let _ = write!(text, "{byte:02x}");
                    text
                });
                parts.push(format!("tlv({class:#06x},{kind},0x{digits})"));
                map = map.with("TlvClass", int(class));
                map = map.with("TlvType", int(kind));
                map = map.with("TlvLen", int(length));
                map = map.with("Value", base64(value).as_str().into());
            }
            _ => {}
        }
        properties.push(Value::from(map));
    }
    let text = match parts.is_empty() {
        true => format!("encap({name})"),
        false => format!("encap({name}({}))", parts.join(",")),
    };
    let arguments = [
        ("HdrSize", int(size)),
        ("PacketType", name.as_str().into()),
        // As Skydive writes none.
        (
            "Props",
            match properties.is_empty() {
                true => Value::Null,
                false => properties.into_iter().collect(),
            },
        ),
    ];
    Some(Action::with("nx_encap", text, arguments))
}
