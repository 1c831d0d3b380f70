//! Captures by Open vSwitch: it mirrors packets to an interface, or exports flows to us.

use std::{
    collections::BTreeSet,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::{Context as _, bail};
use skua_control::capture::{Capture, CaptureType, NodePoint, PointState};
use skua_ovsdb::{
    BridgeExport, ClientConfig, Export, Mirror, MirrorState, Netflow, OvsControl, Sflow, Target,
};
use skua_probe::{
    LivePoints, PointId, PointState as Fares,
    userspace::{self, UserspaceConfig, UserspaceProbe},
};

use crate::captures::{
    each::Opened,
    receive::{InputFormat, Receiver},
    run::LocalRunner,
    worker::Part,
};

/// Bytes of sampled packets by default: all headers with their options.
const SAMPLE: u32 = 256;

/// Open vSwitch of this host, connected to when it is first needed. Clones are the same.
#[derive(Clone)]
pub struct Switch {
    target: Option<Target>,
    control: Arc<Mutex<Option<OvsControl>>>,
    claims: Claims,
}

/// What exports from which bridge, by the bridge's node: each has one exporter of a kind.
type Claims = Arc<Mutex<BTreeSet<(Arc<str>, InputFormat)>>>;

/// A bridge's exporter that is taken as long as this lives.
struct Claim {
    claims: Claims,
    what: (Arc<str>, InputFormat),
}

impl Claim {
    fn new(claims: &Claims, point: &NodePoint, format: InputFormat) -> anyhow::Result<Self> {
        let what = (point.node.clone(), format);
        let mut taken = claims.lock().unwrap_or_else(PoisonError::into_inner);
        if !taken.insert(what.clone()) {
            bail!("another capture of this type has the bridge's exporter, of which there is one");
        }
        Ok(Self {
            claims: claims.clone(),
            what,
        })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let taken = self.claims.lock();
        taken
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&self.what);
    }
}

impl Switch {
    /// With its database there; none: there is no Open vSwitch.
    pub fn new(target: Option<Target>) -> Self {
        Self {
            target,
            control: Arc::default(),
            claims: Claims::default(),
        }
    }

    /// Removes what processes left that are no more, on a thread: the database may not answer.
    pub fn clean_up(&self) -> std::io::Result<()> {
        if self.target.is_none() {
            return Ok(());
        }
        let switch = self.clone();
        let thread = std::thread::Builder::new().name("ovs-clean".into());
        thread.spawn(move || {
            // Connecting does it.
            if let Err(error) = switch.control() {
                let error = skua_output::one_line(&error);
                tracing::warn!(%error, "Open vSwitch cannot be configured now");
            }
        })?;
        Ok(())
    }

    fn control(&self) -> anyhow::Result<OvsControl> {
        let mut control = self.control.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(control) = &*control {
            return Ok(control.clone());
        }
        let Some(target) = &self.target else {
            bail!("there is no Open vSwitch here: ovs.target says where its database is");
        };
        let made = OvsControl::connect(ClientConfig::new(target.clone()), None)
            .with_context(|| format!("Open vSwitch's database at {target}"))?;
        Ok(control.insert(made).clone())
    }

    /// Begins a capture on a node.
    pub fn open(
        &self,
        runner: &LocalRunner,
        capture: &Capture,
        point: &NodePoint,
    ) -> anyhow::Result<Box<dyn Opened>> {
        let control = self.control()?;
        match capture.r#type {
            CaptureType::OvsMirror => {
                let mirrored = Mirrored::start(&control, runner, capture, point)?;
                Ok(Box::new(mirrored))
            }
            kind => {
                let format = match kind {
                    CaptureType::OvsSflow => InputFormat::Sflow,
                    _ => InputFormat::Netflow,
                };
                let claim = Claim::new(&self.claims, point, format)?;
                let exported = Exported::start(&control, runner, capture, point, claim)?;
                Ok(Box::new(exported))
            }
        }
    }
}

/// A mirror, and the capture of its output.
struct Mirrored {
    // Fields are dropped in this order: first nothing more comes, then what came is counted.
    mirror: Mirror,
    output: PointId,
    points: LivePoints,
    part: Part,
}

impl Mirrored {
    fn start(
        control: &OvsControl,
        runner: &LocalRunner,
        capture: &Capture,
        point: &NodePoint,
    ) -> anyhow::Result<Self> {
        let row = point.row.context("the node is no row of Open vSwitch")?;
        let mirror = control.mirror(&control.spec_of(row)?)?;
        let output = PointId {
            netns: skua_link::Namespace::own()?.id.inode,
            ifindex: rustix::net::netdevice::name_to_index(
                rustix::net::socket(
                    rustix::net::AddressFamily::INET,
                    rustix::net::SocketType::DGRAM,
                    None,
                )?,
                mirror.output(),
            )
            .with_context(|| format!("interface {}", mirror.output()))?,
        };
        let points = LivePoints::new([output].into())?;
        let config = UserspaceConfig {
            capture: userspace::Capture::Afpacket,
            points: Some(points.clone()),
            packets: LocalRunner::packets(capture),
            table: runner.table(capture, 0),
            scan_interval: LocalRunner::scan_interval(capture),
            ..UserspaceConfig::default()
        };
        let (part, ()) = Part::start(runner, capture, Some(&point.tid), move |seed| {
            let mut config = config;
            config.table.hash_seed = seed;
            Ok((UserspaceProbe::start(config)?, ()))
        })?;
        Ok(Self {
            mirror,
            output,
            points,
            part,
        })
    }
}

impl Opened for Mirrored {
    fn state(&self) -> PointState {
        let refused = |why: &str| PointState::Refused(why.into());
        if self.part.has_ended() {
            return refused("the capture ended; the log says why");
        }
        match self.mirror.state() {
            MirrorState::Removed => return refused("somebody else removed the mirror"),
            MirrorState::SelectionGone => return refused("the mirrored ports are gone"),
            MirrorState::Unknown => return PointState::Pending,
            MirrorState::Active => {}
        }
        match self.points.state(self.output) {
            Some(Fares::Active) => PointState::Active,
            Some(Fares::Waiting(_)) | None => PointState::Pending,
            Some(state) => PointState::Refused(state.reason().into()),
        }
    }

    fn listens_at(&self) -> Option<SocketAddr> {
        None
    }
}

/// An exporter, and the receiver of its datagrams.
struct Exported {
    // Dropped in this order, as above.
    export: BridgeExport,
    receiver: Receiver,
    _claim: Claim,
}

impl Exported {
    fn start(
        control: &OvsControl,
        runner: &LocalRunner,
        capture: &Capture,
        point: &NodePoint,
        claim: Claim,
    ) -> anyhow::Result<Self> {
        let (_, format) = claim.what;
        let listen = crate::captures::receive::listen(capture).map_err(anyhow::Error::msg)?;
        let receiver = Receiver::start(runner, capture, point, format, listen)?;
        let targets = vec![receiver.address()];
        let export = match format {
            InputFormat::Sflow => Export::Sflow(Sflow {
                // Otherwise the address of the route's interface, which may have none.
                agent: listen.ip().is_loopback().then(|| "lo".to_owned()),
                targets,
                header: match capture.header_size {
                    0 => SAMPLE,
                    bytes => bytes,
                },
                sampling: capture.sampling_rate,
                polling: capture.polling_interval,
            }),
            InputFormat::Netflow | InputFormat::Packets => Export::Netflow(Netflow {
                targets,
                active_timeout: Some(capture.polling_interval.max(1)),
                engine_id: None,
            }),
        };
        let export = control.export(&point.name, &export)?;
        Ok(Self {
            export,
            receiver,
            _claim: claim,
        })
    }
}

impl Opened for Exported {
    fn state(&self) -> PointState {
        match self.export.is_active() {
            Some(true) => self.receiver.state(),
            Some(false) => PointState::Refused(
                "somebody else changed what the bridge exports; it is theirs now".into(),
            ),
            None => PointState::Pending,
        }
    }

    fn listens_at(&self) -> Option<SocketAddr> {
        self.receiver.listens_at()
    }
}
