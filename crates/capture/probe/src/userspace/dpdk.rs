//! The probe of a DPDK port, whose packets do not pass the kernel: threads poll its queues.

use std::{
    collections::BTreeMap,
    os::fd::BorrowedFd,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

pub use skua_dpdk::{BUILT, Error, PortInfo, Settings, device_name};

use skua_flow::{CapturePoint, Cause, Counters, Direction, Drained, FlowUpdate};
use skua_kernel::flow::FlowTableConfig;
use skua_packet::LinkType;

use super::{Shared, live_addresses, polling::Subscription, reader::Counting};
use crate::{
    Account, Description, LiveAddresses, Packets, PacketsConfig, PointAccount, PointState, Probe,
    ProbeError, Selection, Wake, Watched, WatchedNamespace,
    receive::FIRST_EXPORTER,
    watch::{thread_cpu_ns, wait_for},
};

/// Name of the hook.
const NAME: &str = "dpdk";
/// Interval of checks whether the device still exists.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Interval of attempts to open a removed device again.
const REOPEN_INTERVAL: Duration = Duration::from_secs(5);
/// Where flows of a port are: in no network namespace of the kernel.
const POINT: CapturePoint = CapturePoint {
    netns: FIRST_EXPORTER,
    ifindex: 1,
    direction: Direction::Ingress,
};

/// What the probe is to watch.
#[derive(Clone, Debug)]
pub struct DpdkConfig {
    /// The device with its arguments, like `net_af_packet0,iface=eth0` or `0000:03:00.0`.
    pub device: String,
    /// How DPDK is started and ports are opened.
    pub settings: Settings,
    /// Packets to keep or stream in addition to flows; none: packets are only counted.
    pub packets: Option<PacketsConfig>,
    /// The flow table.
    pub table: FlowTableConfig,
    /// Time between drains.
    pub scan_interval: Duration,
}

/// The status of a port, readable while the probe works. Clones share it.
#[derive(Clone)]
pub struct PortWatch(Arc<Mutex<(PointState, PortInfo)>>);

impl PortWatch {
    fn lock(&self) -> MutexGuard<'_, (PointState, PortInfo)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it captures.
    pub fn state(&self) -> PointState {
        self.lock().0.clone()
    }

    /// Its description at the last check.
    pub fn info(&self) -> PortInfo {
        self.lock().1.clone()
    }
}

/// The probe; see [`Probe`] for its use.
pub struct DpdkProbe {
    config: DpdkConfig,
    name: String,
    selection: Selection,
    packets: Option<Packets>,
    shared: Arc<Shared>,
    addresses: LiveAddresses,
    port: Option<Subscription>,
    watch: PortWatch,
    point: PointAccount,
    account: Account,
    next_drain: Instant,
    next_check: Instant,
}

impl DpdkProbe {
    /// Begins to capture.
    ///
    /// # Errors
    ///
    /// When the filter is wrong, DPDK is not there, or the device is not.
    pub fn start(config: DpdkConfig) -> Result<Self, ProbeError> {
        let table = &config.table;
        let name = device_name(&config.device)?.to_owned();
        let mut selection = Selection::new(&table.filter, table.sampling, table.hash_seed as u32)?;
        selection.prepare(LinkType::Ethernet)?;
        let shared = Arc::new(Shared::new(table)?);
        let mut probe = Self {
            addresses: live_addresses(table.max_addresses, &shared),
            packets: config.packets.map(Packets::new).transpose()?,
            point: PointAccount {
                interface: name.clone(),
                hook: NAME,
                ..PointAccount::default()
            },
            name,
            selection,
            shared,
            port: None,
            watch: PortWatch(Arc::new(Mutex::new((
                PointState::Waiting("not opened yet".into()),
                PortInfo::default(),
            )))),
            account: Account::default(),
            next_drain: Instant::now() + config.scan_interval,
            next_check: Instant::now() + CHECK_INTERVAL,
            config,
        };
        probe.attach()?;
        Ok(probe)
    }

    /// The status of its port.
    pub fn watch(&self) -> PortWatch {
        self.watch.clone()
    }

    fn attach(&mut self) -> Result<(), ProbeError> {
        let make = |queue| {
            let mut selection = self.selection.clone();
            // Each queue has a sequence of random numbers of its own.
            selection.reseed(u32::from(queue));
            let (packets, shared) = (self.packets.clone(), Arc::clone(&self.shared));
            Counting::new(LinkType::Ethernet, POINT, selection, packets, shared)
        };
        let port = Subscription::start(&self.config.settings, &self.config.device, make)?;
        let info = port.info().unwrap_or_default();
        tracing::info!(
            device = self.name,
            driver = info.driver,
            queues = info.queues,
            "attached"
        );
        *self.watch.lock() = (PointState::Active, info);
        self.point.attached = true;
        self.port = Some(port);
        Ok(())
    }

    fn detach(&mut self) {
        self.count_losses();
        if let Some(port) = self.port.take() {
            // What is in its queues is counted before this returns.
            drop(port);
            tracing::info!(device = self.name, "not attached any more");
        }
        self.point.attached = false;
    }

    /// Checks whether the device exists, and opens it again when it was removed.
    fn reopen(&mut self) {
        self.next_check = Instant::now() + CHECK_INTERVAL;
        match &self.port {
            Some(port) => match port.removal() {
                None => {
                    let info = port.info().unwrap_or_default();
                    self.watch.lock().1 = info;
                }
                Some(why) => {
                    self.detach();
                    self.watch.lock().0 = PointState::Refused(why.to_string());
                    self.next_check = Instant::now() + REOPEN_INTERVAL;
                }
            },
            None => {
                if let Err(error) = self.attach() {
                    self.watch.lock().0 = PointState::Refused(error.to_string());
                    self.next_check = Instant::now() + REOPEN_INTERVAL;
                }
            }
        }
    }

    /// Counts what the port lost since the last time.
    fn count_losses(&mut self) {
        let Some(port) = &mut self.port else { return };
        let lost = port.losses();
        let mut table = self.shared.lock();
        for (cause, packets) in [
            (Cause::RingFull, lost.missed),
            (Cause::DeviceError, lost.errors),
            (Cause::NoBuffer, lost.no_buffer),
        ] {
            if packets > 0 {
                table.flows.count(POINT, cause, Counters::new(packets, 0));
            }
        }
    }

    /// After a drain: adds up what was counted.
    fn settle(&mut self, drained: &Drained) {
        self.account.updates += drained.updates;
        for traffic in drained.traffic.values() {
            self.point.flows += *traffic;
        }
        let table = self.shared.lock();
        for (_, counters) in table.flows.points() {
            for (cause, sum) in counters.iter() {
                self.point.ingress[cause as usize] = sum;
            }
        }
        self.account.live = table.flows.len() as u64;
        self.account.inserted = table.flows.inserted();
    }
}

impl Probe for DpdkProbe {
    fn wait(
        &mut self,
        caller: Option<BorrowedFd<'_>>,
        until: Option<Instant>,
    ) -> Result<Wake, ProbeError> {
        if Instant::now() >= self.next_check {
            self.reopen();
        }
        let wait_until = until.map_or(self.next_check, |until| until.min(self.next_check));
        wait_for(
            &self.shared.wakeups,
            caller,
            self.next_drain,
            Some(wait_until),
        )
    }

    fn drain(&mut self, wake: Wake, sink: &mut dyn FnMut(&FlowUpdate)) -> Result<(), ProbeError> {
        let started = thread_cpu_ns();
        self.count_losses();
        let drained = self.shared.drain(&self.config.table, sink);
        self.settle(&drained);
        if wake == Wake::Interval {
            self.next_drain = (self.next_drain + self.config.scan_interval)
                .max(Instant::now() + self.config.scan_interval / 2);
        }
        self.account.drains += 1;
        self.account.pressed_drains += u64::from(wake == Wake::Pressure);
        self.account.drain_ns += thread_cpu_ns() - started;
        Ok(())
    }

    fn finish(&mut self, sink: &mut dyn FnMut(&FlowUpdate)) -> Result<(), ProbeError> {
        self.detach();
        let drained = self.shared.lock().flows.finish(sink);
        if let Some(packets) = &self.packets {
            packets.end();
        }
        self.settle(&drained);
        Ok(())
    }

    fn account(&mut self) -> Account {
        let key = (POINT.netns, POINT.ifindex);
        self.account.points = BTreeMap::from([(key, self.point.clone())]);
        self.account.max_entries = u64::from(self.config.table.max_entries);
        self.account.addresses = self.addresses.counts();
        self.account.clone()
    }

    fn interfaces(&self) -> Vec<Watched> {
        vec![Watched {
            netns: POINT.netns,
            ifindex: POINT.ifindex,
            netns_name: String::new(),
            name: self.name.clone(),
            netns_inode: 0,
            since_ns: 0,
        }]
    }

    fn namespaces(&self) -> Vec<WatchedNamespace> {
        Vec::new()
    }

    fn describe(&self) -> Description {
        Description {
            hook: NAME,
            rung: "DPDK, polled and counted in user space".to_owned(),
        }
    }

    fn addresses(&self) -> LiveAddresses {
        self.addresses.clone()
    }

    fn packets(&self) -> Option<Packets> {
        self.packets.clone()
    }

    fn map_memory(&self) -> Vec<(String, u64)> {
        Vec::new()
    }
}
