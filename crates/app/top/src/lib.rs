//! The terminal view: its state, its views and how they are drawn. It asks nobody and reads no keyboard:
//! `skua top` brings answers and keys, and does what comes of them. So all of it is tested on fixed data.

pub mod app;
pub mod columns;
mod draw;
mod fleet;
pub mod format;
mod keys;
mod list;
pub mod look;
pub mod make;
mod rates;
pub mod text;
mod tree;
pub mod view;

pub use draw::draw;
pub use ratatui;
