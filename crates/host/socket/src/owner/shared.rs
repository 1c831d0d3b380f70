//! What several processes share that wait at one port (`SO_REUSEPORT`), when it is not known which of
//! them a conversation is of.

use std::sync::Arc;

use super::{Owner, OwnerId, Owners, Slot};

impl Owners {
    /// What two owners share: their user and at least one known value of executable, container and unit.
    /// The result is an owner without a pid. None: they share nothing, or the limit was reached.
    pub fn shared(&mut self, one: OwnerId, other: OwnerId) -> Option<OwnerId> {
        if one == other {
            return Some(one);
        }
        let pair = (one.min(other), one.max(other));
        if let Some(known) = self.shared.get(&pair) {
            return *known;
        }
        let slot = share(self.slot(one)?, self.slot(other)?);
        let shared = slot.and_then(|slot| self.keep_shared(pair, slot));
        if !self.is_full() {
            self.shared.insert(pair, shared);
        }
        shared
    }

    fn keep_shared(&mut self, (one, other): (OwnerId, OwnerId), slot: Slot) -> Option<OwnerId> {
        // A third of the kind shares the same as the first two.
        let known = [one, other]
            .into_iter()
            .chain(self.shared.values().copied().flatten())
            .find(|id| {
                let known = self.slot(*id);
                known.is_some_and(|known| known.key.is_none() && known.owner == slot.owner)
            });
        if known.is_some() {
            return known;
        }
        if self.is_full() {
            self.counters.owners_full += 1;
            return None;
        }
        self.add(slot)
    }
}

/// What both have.
fn share(one: &Slot, other: &Slot) -> Option<Slot> {
    let (a, b) = (&one.owner, &other.owner);
    let text = |a: &Option<Arc<str>>, b: &Option<Arc<str>>| a.clone().filter(|_| a == b);
    let containment = one.containment.clone();
    let containment = containment.filter(|_| one.containment == other.containment);
    let executable = text(&a.executable, &b.executable);
    let owner = Owner {
        pid: 0,
        ns_pid: 0,
        start_ns: 0,
        process: if a.process == b.process {
            a.process.clone()
        } else {
            let path = executable.as_deref().unwrap_or_default();
            path.rsplit('/').next().unwrap_or_default().to_owned()
        },
        executable,
        uid: a.uid,
        user: text(&a.user, &b.user),
        cgroup: text(&a.cgroup, &b.cgroup),
        container: containment.as_ref().and_then(|_| a.container.clone()),
        unit: text(&a.unit, &b.unit),
    };
    let is_something =
        owner.executable.is_some() || owner.container.is_some() || owner.unit.is_some();
    (a.uid == b.uid && is_something).then(|| Slot {
        owner: Arc::new(owner),
        last_used: 0,
        key: None,
        comm: [0; 16],
        containment,
    })
}
