//! Taps against a running `skua run`: what comes to the monitor and, above all, to the receiver.

mod faults;
mod lab;
mod owners;
mod right;

use lab::{Lab, Listener, Tap, ToFile, ask, pair, refused, run};
