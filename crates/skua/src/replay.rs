//! `skua replay`: the same pipeline on a capture file.

use crate::args::ReplayArguments;

pub fn replay(arguments: &ReplayArguments) -> anyhow::Result<()> {
    let _ = arguments;
    anyhow::bail!("replay is not wired up yet")
}
