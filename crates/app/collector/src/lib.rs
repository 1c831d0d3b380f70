//! Both ends of the way to collectors.
//!
//! | module | |
//! |---|---|
//! | `export` | tells collectors what drains of `skua run` and `skua agent` bring |
//! | `settings`, `members`, `srv` | what is told to whom; which collectors there are, by their names |
//! | `failover` | which collector is told of what, while all of them are there and while not |
//! | `known` | names and sockets of this host |
//! | `queue`, `sender` | datagrams that wait to be sent, and who sends them |
//! | `seal` | who has written a datagram |
//! | `answers`, `spool` | whether a collector answers, and what is on disk while not |
//! | `report` | how that fares, in /metrics and by the doctor |
//! | `command` | `skua collector`: takes it, sums it up, writes it |
//! | `gate`, `receive` | whose datagrams it takes, and the threads that take them and sum them up |
//! | `watch` | how it fares: /metrics, /health, /ready, and what is logged |
//! | `sink` | where lines go |

#![allow(
    missing_docs,
    reason = "a part of one program; what it shows, only that program sees"
)]

pub mod command;
mod gate;
mod receive;
mod received;
mod sink;
mod watch;
