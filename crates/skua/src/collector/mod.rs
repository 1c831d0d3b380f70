//! Both ends of the way to collectors.
//!
//! | module | |
//! |---|---|
//! | `export` | tells collectors what drains of `skua run` and `skua agent` bring |
//! | `queue` | datagrams that wait to be sent |
//! | `report` | how that fares, in /metrics and by the doctor |
//! | `command` | `skua collector`: takes it, sums it up, writes it |
//! | `sink` | where lines go |

pub mod command;
pub mod export;
mod queue;
pub mod report;
mod sink;
