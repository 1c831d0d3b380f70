//! Which conversation a packet belongs to.

use skua_flow::{CapturePoint, Conversation, Ports};
use skua_packet::{Frame, Level, LinkType, Options, decode};

/// A conversation and the direction of the packet in it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct Track {
    /// [`skua_flow::FlowKey::tracking_id`].
    pub id: u64,
    /// Whether the packet is a request, or goes from `lo` to `hi`.
    pub forward: bool,
}

/// Reads a packet; none when it has no link header.
pub(crate) fn level(data: &[u8], link: LinkType) -> Option<Level> {
    let frame = Frame {
        data,
        wire_len: u32::try_from(data.len()).unwrap_or(u32::MAX),
        link,
        stripped_vlan: None,
        segments: 1,
    };
    Some(decode(&frame, Options::default()).ok()?.outer)
}

impl Track {
    /// Of a packet that has been read.
    pub fn of(level: &Level) -> Self {
        let ports = Ports::of(&level.transport, level.network);
        let conversation = Conversation::new(CapturePoint::default(), level, &ports, [0; 6]);
        Self {
            id: conversation.key.tracking_id(),
            // Both addresses may be equal: then only ICMP itself distinguishes request and reply.
            forward: ports.request.unwrap_or(conversation.from_lo),
        }
    }
}

/// How frames of an interface start.
pub(crate) fn link_type(ethernet: bool) -> LinkType {
    match ethernet {
        true => LinkType::Ethernet,
        false => LinkType::RawIp,
    }
}
