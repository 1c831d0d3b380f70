//! `skua steer` against a running `skua run`: packets of a channel that jumps arrive in another pod, and
//! only there; each packet arrives once, whatever comes and goes.

mod faults;
mod kept;
mod lab;
mod replay;
mod right;
mod rights;
