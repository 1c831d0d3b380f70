//! Captures that follow a query: their API, commands, and what runs them.

pub mod api;
pub mod command;
pub mod live;
pub mod run;
