//! Actions and instructions (OpenFlow 1.3 to 1.4, sections 7.2.4 and 7.2.5).

use crate::{
    field::{self, Named, digits, port},
    nicira,
    read::Reader,
};
use skua_topology::{Map, Value};

/// Actions of a rule or group at most; what is beyond is counted.
pub(crate) const MAX_ACTIONS: usize = 256;
/// Actions inside actions at most.
const MAX_DEPTH: usize = 8;
/// Longest text of one action, in bytes.
const MAX_TEXT: usize = 4_096;

/// An action, in the syntax of `ovs-ofctl` and with its parts.
#[derive(Clone, PartialEq, Debug)]
pub struct Action {
    /// As `ovs-ofctl` writes it.
    pub text: String,
    /// Name, as Skydive has it.
    pub kind: &'static str,
    /// Its parts; empty for many.
    pub arguments: Map,
}

impl Action {
    pub(crate) fn new(kind: &'static str, text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            kind,
            arguments: Map::default(),
        }
    }

    pub(crate) fn with<const N: usize>(
        kind: &'static str,
        text: impl Into<String>,
        arguments: [(&str, Value); N],
    ) -> Self {
        Self {
            text: text.into(),
            kind,
            arguments: Map::from(arguments),
        }
    }

    /// As a value of a node.
    pub fn value(&self) -> Value {
        let map = Map::from([("Type", self.kind.into())]);
        match self.arguments.iter().next() {
            Some(_) => map.with("Arguments", self.arguments.clone().into()).into(),
            None => map.into(),
        }
    }
}

/// What may still be read.
pub(crate) struct Budget {
    actions: usize,
    depth: usize,
}

impl Budget {
    pub fn new() -> Self {
        Self {
            actions: MAX_ACTIONS,
            depth: 0,
        }
    }
}

pub(crate) fn int(number: impl Into<u64>) -> Value {
    i64::try_from(number.into()).unwrap_or(i64::MAX).into()
}

pub(crate) fn texts(actions: &[Action]) -> String {
    let texts: Vec<&str> = actions.iter().map(|action| action.text.as_str()).collect();
    texts.join(",")
}

pub(crate) fn values(actions: &[Action]) -> Value {
    actions.iter().map(Action::value).collect()
}

/// Reads a list of actions; none when it is broken.
pub(crate) fn list(reader: &mut Reader, budget: &mut Budget) -> Option<Vec<Action>> {
    let mut actions = Vec::new();
    if budget.depth >= MAX_DEPTH {
        return Some(vec![Action::new("omitted", "...")]);
    }
    budget.depth += 1;
    // What fills up to eight bytes is shorter than an action.
    while reader.len() >= 4 {
        if budget.actions == 0 {
            actions.push(Action::new("omitted", "..."));
            break;
        }
        budget.actions -= 1;
        let mut head = *reader;
        let kind = head.u16()?;
        let length = usize::from(head.u16()?);
        let mut body = Reader::new(reader.take(length)?.get(4..)?);
        let mut action = match kind {
            0xffff => nicira::action(&mut body, budget)?,
            _ => standard(kind, &mut body)?,
        };
        if action.text.len() > MAX_TEXT {
            let mut end = MAX_TEXT;
            while !action.text.is_char_boundary(end) {
                end -= 1;
            }
            action.text.truncate(end);
            action.text.push_str("...");
        }
        actions.push(action);
    }
    budget.depth -= 1;
    Some(actions)
}

fn standard(kind: u16, body: &mut Reader) -> Option<Action> {
    Some(match kind {
        0 => {
            let (number, most) = (body.u32()?, body.u16()?);
            let text = match port(number).as_str() {
                "CONTROLLER" => format!("CONTROLLER:{most}"),
                name @ ("ANY" | "TABLE") => format!("output:{name}"),
                name if name.starts_with(|c: char| c.is_ascii_digit()) => format!("output:{name}"),
                name => name.to_owned(),
            };
            let arguments = [("Port", int(number)), ("MaxLen", int(most))];
            Action::with("output", text, arguments)
        }
        11 => Action::new("copy_ttl_out", "copy_ttl_out"),
        12 => Action::new("copy_ttl_in", "copy_ttl_in"),
        15 => {
            let ttl = body.u8()?;
            let text = format!("set_mpls_ttl({ttl})");
            Action::with("set_mpls_ttl", text, [("MplsTtl", int(ttl))])
        }
        16 => Action::new("dec_mpls_ttl", "dec_mpls_ttl"),
        17 | 19 | 20 | 26 => {
            let name = match kind {
                17 => "push_vlan",
                19 => "push_mpls",
                20 => "pop_mpls",
                _ => "push_pbb",
            };
            let ethertype = body.u16()?;
            let text = format!("{name}:{ethertype:#06x}");
            Action::with(name, text, [("Ethertype", int(ethertype))])
        }
        18 => Action::new("pop_vlan", "pop_vlan"),
        21 => {
            let queue = body.u32()?;
            let text = format!("set_queue:{queue}");
            Action::with("set_queue", text, [("QueueId", int(queue))])
        }
        22 => {
            let group = body.u32()?;
            let text = format!("group:{group}");
            Action::with("group", text, [("GroupId", int(group))])
        }
        23 => {
            let ttl = body.u8()?;
            let text = format!("mod_nw_ttl:{ttl}");
            Action::with("set_nw_ttl", text, [("NwTtl", int(ttl))])
        }
        24 => Action::new("dec_nw_ttl", "dec_ttl"),
        25 => set_field("set_field", body)?,
        27 => Action::new("pop_pbb", "pop_pbb"),
        _ => Action::new("unknown", format!("action_{kind}")),
    })
}

/// `set_field`, and what Open vSwitch has for it in earlier versions.
pub(crate) fn set_field(kind: &'static str, body: &mut Reader) -> Option<Action> {
    let entry = field::entry(body)?;
    let Named { set, .. } = &entry.named;
    let shown = match &**set {
        "vlan_vid" if entry.mask.is_none() => field::number(entry.value).to_string(),
        _ => entry.shown(),
    };
    let text = format!("set_field:{shown}->{set}");
    Some(Action::with(kind, text, [("Field", entry.map().into())]))
}

/// What a rule does.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Instructions {
    /// At once.
    pub apply: Vec<Action>,
    /// At the end of all tables.
    pub write: Vec<Action>,
    /// Empties what is to be done at the end.
    pub clear: bool,
    /// Value and mask.
    pub metadata: Option<(u64, u64)>,
    /// The table that comes next.
    pub goto_table: Option<u8>,
    /// The meter that comes before.
    pub meter: Option<u32>,
}

impl Instructions {
    /// Reads them; none when they are broken.
    pub(crate) fn read(reader: &mut Reader) -> Option<Self> {
        let mut read = Self::default();
        let mut budget = Budget::new();
        while !reader.is_empty() {
            let mut head = *reader;
            let kind = head.u16()?;
            let length = usize::from(head.u16()?);
            let mut body = Reader::new(reader.take(length)?.get(4..)?);
            match kind {
                1 => read.goto_table = Some(body.u8()?),
                2 => {
                    body.skip(4)?;
                    read.metadata = Some((body.u64()?, body.u64()?));
                }
                3 | 4 => {
                    body.skip(4)?;
                    let actions = list(&mut body, &mut budget)?;
                    match kind {
                        3 => read.write.extend(actions),
                        _ => read.apply.extend(actions),
                    }
                }
                5 => read.clear = true,
                6 => read.meter = Some(body.u32()?),
                _ => {}
            }
        }
        Some(read)
    }

    /// Whether the packet ends here.
    pub fn drops(&self) -> bool {
        *self == Self::default()
    }

    /// As `ovs-ofctl` writes them after `actions=`.
    pub fn text(&self) -> String {
        let mut parts = Vec::new();
        parts.extend(self.meter.map(|meter| format!("meter:{meter}")));
        if !self.apply.is_empty() {
            parts.push(texts(&self.apply));
        }
        if self.clear {
            parts.push("clear_actions".to_owned());
        }
        if !self.write.is_empty() {
            parts.push(format!("write_actions({})", texts(&self.write)));
        }
        parts.extend(self.metadata.map(|(value, mask)| match mask {
            u64::MAX => format!("write_metadata:{}", digits(value)),
            mask => format!("write_metadata:{}/{}", digits(value), digits(mask)),
        }));
        parts.extend(self.goto_table.map(|table| format!("goto_table:{table}")));
        if parts.is_empty() {
            "drop".to_owned()
        } else {
            parts.join(",")
        }
    }
}
