//! The terminal view: its state, its views and their drawing. It sends no requests and reads no keyboard:
//! `skua top` passes answers and keys to it, and executes its requests. So all of it is tested on fixed
//! data.

pub mod app;
pub mod columns;
mod draw;
mod fleet;
pub mod format;
mod keys;
mod list;
pub mod make;
mod rates;
mod readable;
pub mod text;
pub mod theme;
mod tree;
pub mod view;

pub use draw::draw;
pub use ratatui;
