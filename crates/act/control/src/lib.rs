//! What people have a host do: captures, taps, alerts, injections, and elements of the graph that they make. A query names the
//! nodes; what was asked for is kept over restarts.

pub mod alert;
pub mod capture;
pub mod elements;
mod follow;
pub mod injection;
mod patch;
mod resource;
mod skydive;
mod state_file;
pub mod tap;
pub mod workflow;

pub use json_patch::Patch as JsonPatch;
pub use resource::{Resource, ResourceError, Resources};
