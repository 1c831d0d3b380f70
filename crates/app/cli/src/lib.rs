//! The commands.

#![allow(
    missing_docs,
    reason = "a part of one program; what it shows, only that program sees"
)]

pub mod accounts;
pub mod addresses;
pub mod agents;
pub mod alert;
pub mod arguments;
pub mod capture;
pub mod changes;
#[cfg(test)]
mod columns;
pub mod command_line;
mod compressed;
pub mod console;
pub mod dns;
#[cfg(test)]
mod docs;
pub mod doctor;
pub mod elements;
mod empty;
pub mod extcap;
pub mod file;
pub mod flows;
pub mod health;
pub mod injection;
pub mod lake;
pub mod links;
pub mod query;
pub mod replay;
pub mod shell;
pub mod skydive;
pub mod sockets;
pub mod steer;
pub mod tap;
pub mod top;
pub mod workflow;
