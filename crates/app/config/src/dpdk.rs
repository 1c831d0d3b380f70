//! Captures of DPDK's ports.

use anyhow::{Context as _, bail};
use skua_probe::userspace::dpdk::{BUILT, Error, Settings, device_name};

use crate::section::section;

/// Queues of a port at most.
const MOST_QUEUES: u16 = 64;

section! {
    /// Ports of DPDK.
    Dpdk {
        /// devices of DPDK, a list: names with arguments, like net_af_packet0,iface=eth0 or 0000:03:00.0; each is a
        /// node of type dpdkport
        ports: Vec<String> = Vec::new();
        /// arguments of DPDK's environment (EAL), which starts with the first capture
        eal: String = Settings::default().arguments.join(" ");
        /// queues by which a device receives, each polled by a thread
        queues: u16 = Settings::default().queues;
    }
}

impl Dpdk {
    /// The devices with their arguments. What a comma has cut off, in a variable, is put back: arguments
    /// have `=` in them, names have not.
    pub fn devices(&self) -> Vec<String> {
        let mut devices: Vec<String> = Vec::new();
        for part in &self.ports {
            let named = part.split(',').next().unwrap_or_default();
            match devices.last_mut() {
                Some(device) if named.contains('=') => {
                    device.push(',');
                    device.push_str(part);
                }
                _ => devices.push(part.clone()),
            }
        }
        devices
    }

    /// The error is the first invalid setting.
    pub fn check(&self) -> anyhow::Result<()> {
        let devices = self.devices();
        let mut names = Vec::new();
        for device in &devices {
            let name = device_name(device).context("dpdk.ports")?;
            if names.contains(&name) {
                bail!("dpdk.ports has {name} twice");
            }
            names.push(name);
        }
        if !devices.is_empty() && !BUILT {
            return Err(Error::NotBuilt).context("dpdk.ports");
        }
        if !(1..=MOST_QUEUES).contains(&self.queues) {
            bail!("dpdk.queues is {}, must be 1 to {MOST_QUEUES}", self.queues);
        }
        Ok(())
    }

    /// What DPDK is started with.
    pub fn settings(&self) -> Settings {
        Settings {
            arguments: self.eal.split_whitespace().map(str::to_owned).collect(),
            queues: self.queues,
            ..Settings::default()
        }
    }

    /// The device of this name.
    pub fn device(&self, name: &str) -> Option<String> {
        let mut devices = self.devices().into_iter();
        devices.find(|device| device_name(device).is_ok_and(|of| of == name))
    }
}
