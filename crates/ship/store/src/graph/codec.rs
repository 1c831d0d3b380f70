//! The graph's events and states as bytes: MessagePack with names, of the types as they serialize.

use rmp_serde::{Deserializer, Serializer, decode, encode};
use serde::{Deserialize, Serialize};
use skua_topology::{Edge, Event, Node};
use std::{io::Cursor, sync::Arc};

/// Deeper nesting than the graph allows.
const MAX_DEPTH: usize = 128;

/// Adds an event.
pub fn put_event(out: &mut Vec<u8>, event: &Event) -> Result<(), encode::Error> {
    event.serialize(&mut Serializer::new(out).with_struct_map())
}

/// Visits the events in a payload, in order; an error when they are not as they should be.
pub fn events(payload: &[u8], visit: &mut dyn FnMut(Event)) -> Result<(), decode::Error> {
    let mut cursor = Cursor::new(payload);
    while cursor.position() < payload.len() as u64 {
        let mut reader = Deserializer::new(&mut cursor);
        reader.set_max_depth(MAX_DEPTH);
        visit(Event::deserialize(&mut reader)?);
    }
    Ok(())
}

/// Which state a part belongs to, and which part it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PartHead {
    /// The process that wrote it.
    pub run: u64,
    /// Number of the last event before it.
    pub seq: u64,
    /// Time of the graph, ms since the Unix epoch.
    pub time: i64,
    /// From 0 on.
    pub part: u32,
    /// Whether it is the last.
    pub last: bool,
}

/// A part of a state.
#[derive(Serialize, Deserialize, Default)]
pub struct Part {
    /// Nodes.
    pub nodes: Vec<Arc<Node>>,
    /// Edges.
    pub edges: Vec<Arc<Edge>>,
}

const PART_HEAD: usize = 29;

impl PartHead {
    /// With the part behind it.
    pub fn write(&self, part: &Part) -> Result<Vec<u8>, encode::Error> {
        let mut out = Vec::new();
        out.extend_from_slice(&self.run.to_le_bytes());
        out.extend_from_slice(&self.seq.to_le_bytes());
        out.extend_from_slice(&self.time.to_le_bytes());
        out.extend_from_slice(&self.part.to_le_bytes());
        out.push(self.last.into());
        part.serialize(&mut Serializer::new(&mut out).with_struct_map())?;
        Ok(out)
    }

    /// The head, and the bytes of the part.
    pub fn read(payload: &[u8]) -> Option<(Self, &[u8])> {
        let (head, rest) = payload.split_at_checked(PART_HEAD)?;
        let word = |at: usize| <[u8; 8]>::try_from(head.get(at..at + 8)?).ok();
        let head = Self {
            run: u64::from_le_bytes(word(0)?),
            seq: u64::from_le_bytes(word(8)?),
            time: i64::from_le_bytes(word(16)?),
            part: u32::from_le_bytes(head.get(24..28)?.try_into().ok()?),
            last: head[28] == 1,
        };
        Some((head, rest))
    }
}

impl Part {
    /// Decodes the bytes that [`PartHead::read`] returns.
    pub fn read(bytes: &[u8]) -> Result<Self, decode::Error> {
        let mut reader = Deserializer::new(Cursor::new(bytes));
        reader.set_max_depth(MAX_DEPTH);
        Self::deserialize(&mut reader)
    }
}
