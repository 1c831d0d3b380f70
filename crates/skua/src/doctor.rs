//! `skua doctor`: what this kernel allows.

use crate::args::DoctorArguments;

pub fn doctor(arguments: &DoctorArguments) -> anyhow::Result<()> {
    let _ = arguments;
    anyhow::bail!("doctor is not wired up yet")
}
