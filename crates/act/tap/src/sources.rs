//! The sources of one network namespace.

use std::collections::{BTreeMap, BTreeSet, btree_map::Entry};

use skua_kernel::{
    Attachment, Direction, HookKind, KernelError,
    flow::LinkKind,
    tap::{MonitorPrograms, OUTPUTS, Output, SourcePrograms},
};
use skua_link::Namespace;

use crate::{Source, TapError, veth_pair::VethPair};

/// A source with its programs.
struct Point {
    number: u32,
    link: LinkKind,
    attached: Vec<(Direction, Attachment)>,
}

/// Sources of a namespace, and the veth pairs to their monitors.
pub(crate) struct NamespaceSources {
    // First field, dropped first: copying stops before the veth pairs are removed.
    points: BTreeMap<u32, Point>,
    programs: SourcePrograms,
    outputs: [Output; OUTPUTS],
    /// By the namespace that they lead to.
    veth_pairs: BTreeMap<u64, VethPair>,
}

impl NamespaceSources {
    pub fn new(programs: SourcePrograms) -> Self {
        Self {
            points: BTreeMap::new(),
            programs,
            outputs: [Output::default(); OUTPUTS],
            veth_pairs: BTreeMap::new(),
        }
    }

    /// The near end of the veth pair to a namespace; made if it does not exist.
    pub fn veth_to(
        &mut self,
        near: &Namespace,
        far: &Namespace,
        programs: &MonitorPrograms,
        hook: HookKind,
    ) -> Result<u32, TapError> {
        let to = far.id.inode;
        if self
            .veth_pairs
            .get(&to)
            .is_some_and(|pair| !pair.is_whole(near))
        {
            self.veth_pairs.remove(&to);
        }
        match self.veth_pairs.entry(to) {
            Entry::Occupied(pair) => Ok(pair.get().near()),
            Entry::Vacant(place) => {
                let pair = VethPair::open(near, far, programs, hook)?;
                Ok(place.insert(pair).near())
            }
        }
    }

    /// Sets where copies go, and removes veth pairs that are no longer used.
    pub fn set_outputs(
        &mut self,
        outputs: [Output; OUTPUTS],
        used: &BTreeSet<u64>,
    ) -> Result<(), TapError> {
        if self.outputs != outputs {
            self.programs.set_outputs(&outputs)?;
            self.outputs = outputs;
        }
        self.veth_pairs.retain(|to, _| used.contains(to));
        Ok(())
    }

    /// Taps these and no others.
    pub fn keep(&mut self, sources: &BTreeSet<u32>) {
        self.points.retain(|ifindex, _| {
            let kept = sources.contains(ifindex);
            if !kept {
                self.programs.remove_source(*ifindex);
            }
            kept
        });
    }

    /// Taps a source.
    pub fn tap(
        &mut self,
        namespace: &Namespace,
        source: &Source,
        number: u32,
        (link, directions): (LinkKind, &[Direction]),
        hook: HookKind,
    ) -> Result<(), TapError> {
        let point = self.points.entry(source.ifindex).or_insert(Point {
            number: u32::MAX,
            link,
            attached: Vec::new(),
        });
        if point.link != link {
            // Another interface of that number.
            point.attached.clear();
            point.link = link;
        }
        let is_wanted = |(direction, attachment): &(Direction, Attachment)| {
            directions.contains(direction) && attachment.is_there()
        };
        point.attached.retain(is_wanted);
        if point.number == number && point.attached.len() == directions.len() {
            return Ok(());
        }
        self.programs
            .add_source(source.ifindex, number, directions)?;
        point.number = number;
        for direction in directions {
            if point.attached.iter().any(|(known, _)| known == direction) {
                continue;
            }
            let program = self.programs.program(link, *direction)?;
            let attached = namespace
                .enter(|| Attachment::new(program, source.ifindex, *direction, hook))??;
            point.attached.push((*direction, attached));
        }
        Ok(())
    }

    /// Replaces the programs by another generation. Each packet passes one of them from start to end.
    pub fn replace(
        &mut self,
        programs: SourcePrograms,
        directions: &[Direction],
    ) -> Result<(), TapError> {
        programs.set_outputs(&self.outputs)?;
        for (ifindex, point) in &self.points {
            programs.add_source(*ifindex, point.number, directions)?;
            // Check every interface's kind before the first program is exchanged.
            for (direction, _) in &point.attached {
                programs.program(point.link, *direction)?;
            }
        }
        for point in self.points.values_mut() {
            for (direction, attachment) in &mut point.attached {
                let replaced: Result<(), KernelError> =
                    attachment.replace(programs.program(point.link, *direction)?);
                if let Err(error) = replaced {
                    // The interface was removed; the next reconciliation attaches if it is back.
                    tracing::debug!(%error, "a source no longer exists");
                }
            }
        }
        self.programs = programs;
        Ok(())
    }

    /// Puts other programs at the far ends.
    pub fn replace_delivery(&mut self, programs: &MonitorPrograms) -> Result<(), TapError> {
        self.veth_pairs
            .values_mut()
            .try_for_each(|pair| pair.replace(programs))
    }
}
