//! What every probe does when interfaces, namespaces or its capture points come and go.

use std::collections::{BTreeSet, HashSet};

use skua_link::{Changes, Link};

use crate::{
    LivePoints, PointId, PointState, ProbeError,
    interfaces::Interfaces,
    watch::{Change, Watch, wanted},
};

/// The interfaces to watch.
#[derive(Clone)]
pub(crate) enum Scope {
    /// Interfaces of these names; without names all that are up.
    Names(Vec<String>),
    /// Capture points.
    Points(LivePoints),
}

impl Scope {
    pub fn new(interfaces: &[String], points: Option<&LivePoints>) -> Self {
        match points {
            Some(points) => Self::Points(points.clone()),
            None => Self::Names(interfaces.to_vec()),
        }
    }

    /// Finds the namespaces to watch.
    pub fn watch(&self, all_netns: bool) -> Result<Watch, ProbeError> {
        match self {
            Self::Names(names) => Watch::start(all_netns, names),
            Self::Points(_) => Watch::selected(),
        }
    }

    /// Whether an interface should be attached to that is not yet.
    pub fn wants(&self, netns: u64, link: &Link) -> bool {
        match self {
            Self::Names(names) => wanted(names, link),
            Self::Points(points) => points.awaits(id(netns, link.ifindex)),
        }
    }

    pub fn points(&self) -> Option<&LivePoints> {
        match self {
            Self::Names(_) => None,
            Self::Points(points) => Some(points),
        }
    }

    /// Notes what has happened to an interface.
    pub fn note(&self, netns: u64, ifindex: u32, state: PointState) {
        if let Self::Points(points) = self {
            points.note(id(netns, ifindex), state);
        }
    }
}

fn id(netns: u64, ifindex: u32) -> PointId {
    PointId { netns, ifindex }
}

/// A probe that follows interfaces.
pub(crate) trait Follow {
    /// What captures an interface; dropping it ends that, when all that came before is counted or
    /// [`wait_for_detached`](Self::wait_for_detached) waits for it.
    type Capture;
    fn interfaces(&mut self) -> &mut Interfaces<Self::Capture>;
    /// Begins to capture an interface.
    fn attach(&mut self, number: u16, link: &Link) -> Result<Self::Capture, ProbeError>;
    /// How it is captured, like `tcx`.
    fn hook_of(&self, capture: &Self::Capture) -> &'static str;
    /// Waits until no packet of detached interfaces is counted any more.
    fn wait_for_detached(&mut self) -> Result<(), ProbeError>;
    /// After the last interface of a namespace.
    fn namespace_removed(&mut self, number: u16) {
        let _ = number;
    }

    /// Whether the programs for one more namespace can be had.
    fn has_room(&self) -> bool {
        skua_kernel::has_room_for_namespaces()
    }

    fn watch(&mut self) -> &mut Watch {
        &mut self.interfaces().watch
    }

    /// The capture points, when these say what is captured.
    fn live_points(&mut self) -> Option<LivePoints> {
        self.interfaces().scope.points().cloned()
    }

    /// An interface appeared or has changed: attaches if it is selected. Errors have been logged.
    fn link_updated(&mut self, number: u16, link: Link) -> Result<(), ProbeError> {
        let Some(link) = self.interfaces().newcomer(number, link) else {
            return Ok(());
        };
        match self.attach(number, &link) {
            Ok(capture) => {
                let hook = self.hook_of(&capture);
                self.interfaces().joined(number, link, hook, capture);
                Ok(())
            }
            Err(error) if self.interfaces().failed(number, &link, &error) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Starts to follow a namespace and attaches to its interfaces. One that cannot be watched is no reason
    /// to stop; the first such error is returned.
    fn follow(&mut self, number: u16) -> Result<Option<ProbeError>, ProbeError> {
        let mut refused = None;
        for link in self.watch().follow(number)? {
            if let Err(error) = self.link_updated(number, link) {
                refused.get_or_insert(error);
            }
        }
        Ok(refused)
    }

    fn links_changed(&mut self, changes: Vec<Change>) {
        for change in changes {
            match change {
                Change::Updated(number, link) => {
                    let _ = self.link_updated(number, link);
                }
                Change::Removed(number, ifindex) => {
                    self.links_removed(number, |gone| gone == ifindex)
                }
                Change::All(number, links) => {
                    let there: HashSet<u32> = links.iter().map(|l| l.ifindex).collect();
                    self.links_removed(number, |ifindex| !there.contains(&ifindex));
                    for link in links {
                        let _ = self.link_updated(number, link);
                    }
                }
            }
        }
    }

    fn links_removed(&mut self, number: u16, gone: impl Fn(u32) -> bool) {
        self.interfaces().forget(number, &gone);
        for key in self.interfaces().attached() {
            if key.0 == number && gone(key.1) {
                self.interfaces().left(key);
            }
        }
        let netns = self.watch().inode(number);
        if let (Some(points), Some(netns)) = (self.live_points(), netns) {
            points.mark_removed(netns, gone);
        }
    }

    /// Finds namespaces that came or went.
    fn refresh_namespaces(&mut self) -> Result<(), ProbeError> {
        let before = self.watch().inodes();
        let changes = self.watch().refresh();
        self.namespaces_changed(changes, &before)?;
        let recovered = self.watch().recover();
        self.links_changed(recovered);
        self.retry_crowded_out();
        Ok(())
    }

    /// Tries the interfaces again for which there were too many programs.
    fn retry_crowded_out(&mut self) {
        for (key, link) in self.interfaces().take_crowded_out() {
            if !self.has_room() {
                self.interfaces().put_crowded_out(key, link);
                continue;
            }
            // The interface may have been removed or replaced by now.
            if let Ok(Some(link)) = self.watch().link(key.0, link.ifindex) {
                let _ = self.link_updated(key.0, link);
            }
        }
    }

    /// `before`: number and inode of the namespaces before they changed.
    fn namespaces_changed(
        &mut self,
        changes: Changes,
        before: &[(u16, u64)],
    ) -> Result<(), ProbeError> {
        for number in changes.removed {
            self.links_removed(number, |_| true);
            let inode = before.iter().find(|(n, _)| *n == number);
            if let (Some(points), Some((_, netns))) = (self.live_points(), inode) {
                points.mark_removed(*netns, |_| true);
            }
            self.namespace_removed(number);
        }
        for number in changes.added {
            self.follow(number)?;
        }
        Ok(())
    }

    /// Carries out what was changed about the capture points.
    fn points_changed(&mut self) -> Result<(), ProbeError> {
        let Some(points) = self.live_points() else {
            return Ok(());
        };
        let edits = points.begin();
        let set = points.set();
        let mut left = false;
        let mut attached = BTreeSet::new();
        for (number, ifindex) in self.interfaces().attached() {
            let Some(netns) = self.watch().inode(number) else {
                continue;
            };
            let point = id(netns, ifindex);
            if set.contains(&point) {
                // It may have been removed and added again meanwhile.
                points.note(point, PointState::Active);
                attached.insert(point);
            } else {
                self.interfaces().left((number, ifindex));
                left = true;
            }
        }
        if left {
            self.wait_for_detached()?;
        }
        let before = self.watch().inodes();
        let inodes = set.iter().map(|point| point.netns).collect();
        let changes = self.watch().select(inodes);
        self.namespaces_changed(changes, &before)?;
        for (point, state) in points.states() {
            if matches!(state, PointState::Waiting(_)) && !attached.contains(&point) {
                self.find_point(&points, point);
            }
        }
        points.done(edits);
        Ok(())
    }

    /// Attaches to a point whose namespace is followed already.
    fn find_point(&mut self, points: &LivePoints, point: PointId) {
        let Some(number) = self.watch().number(point.netns) else {
            return points.note(point, PointState::Gone);
        };
        match self.watch().link(number, point.ifindex) {
            Ok(Some(link)) => {
                let _ = self.link_updated(number, link);
            }
            Ok(None) => points.note(point, PointState::Gone),
            Err(error) => points.note(point, PointState::Refused(error.to_string())),
        }
    }
}
