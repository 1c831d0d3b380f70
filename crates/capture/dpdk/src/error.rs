//! Errors of DPDK.

/// Why there are no packets of a port.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The feature is missing.
    #[error(
        "this skua is built without DPDK: SKUA_DPDK=$(packaging/dpdk) cargo build --release -p skua \
         --features dpdk"
    )]
    NotBuilt,
    /// The environment (EAL) did not start; it is not tried again in this process.
    #[error("DPDK does not start: {0}; dpdk.eal has its arguments, and a restart tries again")]
    Start(String),
    /// The name of a device is none.
    #[error("\"{0}\" is no device of DPDK, like net_af_packet0,iface=eth0 or 0000:03:00.0")]
    Name(String),
    /// The device cannot be had.
    #[error("DPDK's device {device}: {reason}")]
    Device {
        /// Its name.
        device: String,
        /// What DPDK says.
        reason: String,
    },
    /// It is open already.
    #[error("DPDK's device {0} is in use")]
    Busy(String),
}
