//! In place of [`crate::Producer`] when the client is not built in.

use skua_collect::Line;

use crate::{Cause, Error, Target};

/// Whether the client is built in.
pub const BUILT: bool = false;

/// Has no values: this build has no client.
#[derive(Debug)]
pub enum Producer {}

impl Producer {
    /// Always fails: the client is not built in.
    pub fn open(_: &Target) -> Result<Self, Error> {
        Err(Error::NotBuilt)
    }

    /// Does not happen.
    pub fn put(&mut self, _: &Line<'_>) {
        match *self {}
    }

    /// Does not happen.
    pub fn poll(&mut self) {
        match *self {}
    }

    /// Does not happen.
    pub fn finish(&mut self) {
        match *self {}
    }

    /// Does not happen.
    pub fn acknowledged(&self) -> u64 {
        match *self {}
    }

    /// Does not happen.
    pub fn lost(&self) -> Vec<(Cause, u64)> {
        match *self {}
    }
}
