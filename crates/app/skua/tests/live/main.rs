//! The `skua` command on real traffic, in network namespaces of its own: every packet and byte that
//! an interface counts must be in a flow or in a named counter. Needs root.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod access;
mod actions;
mod addresses;
mod answers;
mod behaviour;
mod captures;
mod collect;
mod conservation;
mod devices;
mod dns;
mod extcap;
mod filters;
mod fleet;
mod history;
mod hostile;
mod lab;
mod lake;
mod large_answers;
mod links;
mod losses;
mod namespaces;
mod networks;
mod once;
mod own_lines;
mod queries;
mod rates;
mod segments;
mod sockets;
mod steer;
mod stopping;
mod tap;
mod wired;
