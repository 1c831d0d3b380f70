//! Community ID version 1 (<https://github.com/corelight/community-id-spec>).

use crate::{FlowKey, Network, conversation::icmp_reply};
use base64::{Engine, engine::general_purpose::STANDARD};
use sha1::{Digest, Sha1};
use std::fmt;

/// A Community ID, shown as `1:` and the Base64 of the hash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CommunityId([u8; 20]);

impl fmt::Display for CommunityId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = [0; 28];
        // 20 bytes are always 28 characters.
        let len = STANDARD.encode_slice(self.0, &mut text).unwrap_or(0);
        write!(f, "1:{}", str::from_utf8(&text[..len]).unwrap_or_default())
    }
}

/// Community ID of a flow with the default seed 0; none without IP.
///
/// `lo_asked`: `lo` sends the requests of an ICMP query, or the packets of a one-way ICMP message. Both
/// have the type and code in the key, and the specification needs the sender.
pub fn community_id(key: &FlowKey, lo_asked: bool) -> Option<CommunityId> {
    let (mut from, mut to) = match key.network() {
        Network::None => return None,
        Network::V4 => (&key.lo[12..], &key.hi[12..]),
        Network::V6 => (&key.lo[..], &key.hi[..]),
    };
    let (mut from_port, mut to_port) = (key.lo_port, key.hi_port);
    if key.is_icmp() {
        let [kind, code] = key.lo_port;
        match icmp_reply(kind, key.network()) {
            Some(reply) => {
                (from_port, to_port) = ([0, kind], [0, reply]);
                if !lo_asked {
                    (from_port, to_port) = (to_port, from_port);
                }
                // Between equal addresses the ports decide.
                if from == to && from_port > to_port {
                    (from_port, to_port) = (to_port, from_port);
                }
            }
            None => {
                // One-way messages are not put in order.
                (from_port, to_port) = ([0, kind], [0, code]);
                if !lo_asked {
                    (from, to) = (to, from);
                }
            }
        }
    }
    let mut hash = Sha1::new();
    hash.update([0, 0]);
    hash.update(from);
    hash.update(to);
    hash.update([key.proto, 0]);
    if matches!(key.proto, 6 | 17 | 132) || key.is_icmp() {
        hash.update(from_port);
        hash.update(to_port);
    }
    Some(CommunityId(hash.finalize().into()))
}
