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

/// Sources of a namespace, and the ways from there.
pub(crate) struct Room {
    // First, so that nothing is copied any more when the ways go.
    points: BTreeMap<u32, Point>,
    programs: SourcePrograms,
    outputs: [Output; OUTPUTS],
    /// By the namespace that they lead to.
    ways: BTreeMap<u64, VethPair>,
}

impl Room {
    pub fn new(programs: SourcePrograms) -> Self {
        Self {
            points: BTreeMap::new(),
            programs,
            outputs: [Output::default(); OUTPUTS],
            ways: BTreeMap::new(),
        }
    }

    /// The near end of the way to a namespace, which is made if need be.
    pub fn way(
        &mut self,
        near: &Namespace,
        far: &Namespace,
        programs: &MonitorPrograms,
        hook: HookKind,
    ) -> Result<u32, TapError> {
        let to = far.id.inode;
        if self.ways.get(&to).is_some_and(|way| !way.is_whole(near)) {
            self.ways.remove(&to);
        }
        match self.ways.entry(to) {
            Entry::Occupied(way) => Ok(way.get().near()),
            Entry::Vacant(place) => {
                let way = VethPair::open(near, far, programs, hook)?;
                Ok(place.insert(way).near())
            }
        }
    }

    /// Says where copies go, and gives up ways that nobody goes any more.
    pub fn set_outputs(
        &mut self,
        outputs: [Output; OUTPUTS],
        used: &BTreeSet<u64>,
    ) -> Result<(), TapError> {
        if self.outputs != outputs {
            self.programs.set_outputs(&outputs)?;
            self.outputs = outputs;
        }
        self.ways.retain(|to, _| used.contains(to));
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

    /// Puts another generation of programs in the place of this one. Each packet meets the one or the
    /// other, whole.
    pub fn replace(
        &mut self,
        programs: SourcePrograms,
        directions: &[Direction],
    ) -> Result<(), TapError> {
        programs.set_outputs(&self.outputs)?;
        for (ifindex, point) in &self.points {
            programs.add_source(*ifindex, point.number, directions)?;
            // What is not for this kind of interface is to be known before anything is exchanged.
            for (direction, _) in &point.attached {
                programs.program(point.link, *direction)?;
            }
        }
        for point in self.points.values_mut() {
            for (direction, attachment) in &mut point.attached {
                let replaced: Result<(), KernelError> =
                    attachment.replace(programs.program(point.link, *direction)?);
                if let Err(error) = replaced {
                    // Its interface is gone; the next look attaches it anew if it is back.
                    tracing::debug!(%error, "a source was gone");
                }
            }
        }
        self.programs = programs;
        Ok(())
    }

    /// Puts other programs at the far ends.
    pub fn replace_delivery(&mut self, programs: &MonitorPrograms) -> Result<(), TapError> {
        self.ways
            .values_mut()
            .try_for_each(|way| way.replace(programs))
    }
}
