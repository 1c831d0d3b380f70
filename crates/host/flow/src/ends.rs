//! Short marks of the endpoints of each place of a store, side by side: a search for an address or a port
//! reads 4 bytes per record, in a row, instead of a record each.

use crate::{FlowKey, HashKey};
use std::ops::{ControlFlow, Range};

/// Places per piece. A growing table never moves what it holds.
const PIECE: usize = 1024;
/// Marks that are compared before the result is checked: the compiler makes vectors of it.
const ROW: usize = 64;

/// What an endpoint is searched by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Endpoint {
    /// Its address, as keys have it.
    Address([u8; 16]),
    /// Its port.
    Port(u16),
}

/// Marks of one kind: of `lo` and `hi` of each place.
type Marks = Vec<Box<[[u16; 2]; PIECE]>>;

/// The marks of all places.
pub(crate) struct Ends {
    secret: HashKey,
    addresses: Marks,
    ports: Marks,
}

impl Ends {
    /// Bytes per place.
    pub(crate) const BYTES: usize = 2 * size_of::<[u16; 2]>();

    /// The secret prevents an attacker from choosing addresses that have one mark.
    pub(crate) fn new(secret: HashKey) -> Self {
        Self {
            secret,
            addresses: Marks::new(),
            ports: Marks::new(),
        }
    }

    /// Notes whose record is at a place.
    pub(crate) fn set(&mut self, place: u32, key: &FlowKey) {
        let addresses = [key.lo, key.hi].map(|address| self.mark(Endpoint::Address(address)));
        let ports = [key.lo_port, key.hi_port].map(u16::from_be_bytes);
        let (piece, at) = (place as usize / PIECE, place as usize % PIECE);
        for (marks, both) in [(&mut self.addresses, addresses), (&mut self.ports, ports)] {
            while marks.len() <= piece {
                marks.push(Box::new([[0; 2]; PIECE]));
            }
            marks[piece][at] = both;
        }
    }

    fn mark(&self, endpoint: Endpoint) -> u16 {
        match endpoint {
            Endpoint::Port(port) => port,
            Endpoint::Address(address) => {
                let alone = FlowKey {
                    lo: address,
                    ..FlowKey::default()
                };
                (alone.hash64(&self.secret) >> 48) as u16
            }
        }
    }

    /// Visits the places that may have the endpoint on one side, in order: all that have it, and a few that
    /// have not.
    pub(crate) fn find(
        &self,
        places: Range<u32>,
        endpoint: Endpoint,
        visit: &mut dyn FnMut(u32) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let marks = match endpoint {
            Endpoint::Address(_) => &self.addresses,
            Endpoint::Port(_) => &self.ports,
        };
        let mark = self.mark(endpoint);
        let (mut next, end) = (places.start as usize, places.end as usize);
        while next < end
            && let Some(piece) = marks.get(next / PIECE)
        {
            let from = next % PIECE;
            let to = PIECE.min(from + end - next);
            for (row, both) in piece[from..to].chunks(ROW).enumerate() {
                let is_in = |any, other: &u16| any | (*other == mark);
                if !both.as_flattened().iter().fold(false, is_in) {
                    continue;
                }
                let first = next + row * ROW;
                for (at, both) in both.iter().enumerate() {
                    if both.contains(&mark) {
                        visit((first + at) as u32)?;
                    }
                }
            }
            next += to - from;
        }
        ControlFlow::Continue(())
    }
}
