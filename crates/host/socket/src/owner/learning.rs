//! What is learned of owners after they were first seen.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Asking, CachedContainer, Container, Containment, OwnerId, Owners, Pod, Slot};
use crate::container::Found;
use crate::runtime::{Lookups, Names};

/// Until a question without an answer is asked again the first time; then twice as long each time.
const AGAIN: Duration = Duration::from_secs(10);
/// Most times that a question is asked.
const TRIES: u32 = 8;
/// Digits of an id that is shown in place of a name, as Docker does.
const SHORT: usize = 12;

impl Owners {
    /// The container that a path tells of; asked about when it is new.
    pub(super) fn container(
        &mut self,
        containment: Containment,
    ) -> (Arc<Containment>, Arc<Container>) {
        if let Some((containment, kept)) = self.containers.get_key_value(&containment) {
            return (containment.clone(), kept.container.clone());
        }
        let containment = Arc::new(containment);
        let container = Arc::new(Container::new(&containment, None));
        self.memory += container.memory();
        let now = Instant::now();
        let asking = if self.lookups.can_ask(&containment.outer) {
            Asking::At {
                when: now,
                tries: 0,
            }
        } else {
            Asking::Done
        };
        let mut kept = CachedContainer {
            container: container.clone(),
            asking,
        };
        kept.ask(&containment.outer, &mut self.lookups, now);
        self.containers.insert(containment.clone(), kept);
        (containment, container)
    }

    /// Asks the runtimes what is not known, until their queue is full.
    pub(super) fn ask(&mut self) {
        let now = Instant::now();
        for (containment, kept) in &mut self.containers {
            if !kept.ask(&containment.outer, &mut self.lookups, now) {
                return;
            }
        }
    }

    pub(super) fn take_answers(&mut self) {
        let answers: HashMap<_, _> = std::iter::from_fn(|| self.lookups.answer()).collect();
        if answers.is_empty() {
            return;
        }
        let mut changed = false;
        for (containment, kept) in &mut self.containers {
            match answers.get(&containment.outer) {
                Some(Ok(names)) => {
                    self.memory -= kept.container.memory();
                    let former = std::mem::replace(
                        &mut kept.container,
                        Arc::new(Container::new(containment, Some(names))),
                    );
                    self.renames.add(&former.label, &kept.container.label);
                    self.memory += kept.container.memory();
                    kept.asking = Asking::Done;
                    changed = true;
                }
                Some(Err(_)) => kept.no_answer(),
                None => {}
            }
        }
        if !changed {
            return;
        }
        for slot in self.slots.values_mut() {
            let kept = slot
                .containment
                .as_ref()
                .and_then(|of| self.containers.get(of));
            if let Some(kept) = kept {
                Arc::make_mut(&mut slot.owner).container = Some(kept.container.clone());
            }
        }
    }

    /// Looks for control groups that were not known, and lists them again for that.
    pub(super) fn find_cgroups(&mut self) {
        self.settle_pending();
        if !self.pending.is_empty() && self.cgroups.list() {
            self.settle_pending();
            // What the list does not have is gone.
            self.pending.clear();
        }
    }

    fn settle_pending(&mut self) {
        let pending: Vec<OwnerId> = self.pending.iter().copied().collect();
        for id in pending {
            let key = self.slot(id).and_then(|slot| slot.key);
            let Some(path) = key.and_then(|key| self.cgroups.path(key.cgroup)) else {
                continue;
            };
            self.change(id, |owners, slot| owners.settle(slot, &path));
            self.pending.remove(&id);
        }
    }

    pub(super) fn name_users(&mut self) {
        for id in self.slots.numbers() {
            self.change(OwnerId(id), Self::name_user);
        }
    }

    /// Changes an owner with the help of all the rest.
    fn change(&mut self, id: OwnerId, change: impl FnOnce(&mut Self, &mut Slot)) {
        let Some(slot) = self.slots.get_mut(id.0) else {
            return;
        };
        let mut changed = std::mem::take(slot);
        self.memory -= changed.memory();
        change(self, &mut changed);
        self.memory += changed.memory();
        if let Some(slot) = self.slots.get_mut(id.0) {
            *slot = changed;
        }
    }
}

impl CachedContainer {
    /// Asks when it is time to; false: there is no room for more questions.
    fn ask(&mut self, found: &Found, lookups: &mut Lookups, now: Instant) -> bool {
        match self.asking {
            Asking::At { when, tries } if when <= now => {
                let asked = lookups.ask(found);
                if asked {
                    self.asking = Asking::Asked { tries: tries + 1 };
                }
                asked
            }
            _ => true,
        }
    }

    fn no_answer(&mut self) {
        if let Asking::Asked { tries } = self.asking {
            self.asking = if tries < TRIES {
                Asking::At {
                    when: Instant::now() + AGAIN * 2_u32.pow(tries - 1),
                    tries,
                }
            } else {
                Asking::Done
            };
        }
    }
}

impl Container {
    pub(super) fn new(containment: &Containment, names: Option<&Names>) -> Self {
        let Containment { outer, inner, pod } = containment;
        let told = names.cloned().unwrap_or_default();
        let pod_told = told.pod_name.is_some() || told.pod_namespace.is_some();
        let pod = (pod.is_some() || pod_told).then(|| Pod {
            uid: pod.clone().or(told.pod_uid),
            name: told.pod_name,
            namespace: told.pod_namespace,
        });
        let outer_label = told.name.clone().unwrap_or_else(|| short(&outer.id));
        let mut container = match inner {
            None => Self {
                runtime: outer.runtime,
                id: outer.id.clone(),
                name: told.name,
                image: told.image,
                labels: told.labels,
                pod,
                outer: None,
                label: outer_label,
            },
            Some(inner) => Self {
                runtime: inner.runtime,
                id: inner.id.clone(),
                name: None,
                image: None,
                labels: Vec::new(),
                pod,
                outer: Some(outer_label),
                label: short(&inner.id),
            },
        };
        if let Some(runtime) = names.and_then(|names| names.runtime)
            && inner.is_none()
        {
            container.runtime = runtime;
        }
        if let Some(Pod {
            name: Some(name),
            namespace,
            ..
        }) = &container.pod
        {
            let namespace = namespace.as_deref().unwrap_or("?");
            container.label = format!("{namespace}/{name}/{}", container.label);
        }
        container
    }
}

/// Ids are hexadecimal digits; names in their place stay whole.
fn short(id: &str) -> String {
    match id.get(..SHORT) {
        Some(short) if id.len() == 64 => short.to_owned(),
        _ => id.to_owned(),
    }
}
