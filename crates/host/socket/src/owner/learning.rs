//! What is learned of owners after they were first seen.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Asking, CachedContainer, Container, Containment, OwnerId, Owners, Pod, Slot};
use crate::container::Found;
use crate::runtime::{Lookups, Names};

/// Until a query without an answer is repeated the first time; then twice as long each time.
const AGAIN: Duration = Duration::from_secs(10);
/// Most attempts of a query.
const TRIES: u32 = 8;
/// Digits of an id that is shown in place of a name, as Docker does.
const SHORT: usize = 12;

impl Owners {
    /// The container in a path; its runtime is queried when it is new.
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
        let asking = if self.lookups.has_runtime(&containment.outer) {
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
        kept.request_names(&containment.outer, &mut self.lookups, now);
        self.containers.insert(containment.clone(), kept);
        (containment, container)
    }

    /// Queries the runtimes about unknown containers, until their queue is full.
    pub(super) fn request_names(&mut self) {
        let now = Instant::now();
        for (containment, kept) in &mut self.containers {
            if !kept.request_names(&containment.outer, &mut self.lookups, now) {
                return;
            }
        }
    }

    pub(super) fn read_answers(&mut self) {
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

    /// Searches unknown control groups, and lists the hierarchies again for that.
    pub(super) fn find_cgroups(&mut self) {
        self.settle_pending();
        if !self.pending.is_empty() && self.cgroups.list() {
            self.settle_pending();
            // Groups that the list does not have were removed.
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
    /// Queries the runtime when it is time; false: the queue of queries is full.
    fn request_names(&mut self, found: &Found, lookups: &mut Lookups, now: Instant) -> bool {
        match self.asking {
            Asking::At { when, tries } if when <= now => {
                let queued = lookups.request(found);
                if queued {
                    self.asking = Asking::Asked { tries: tries + 1 };
                }
                queued
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
        let names = names.cloned().unwrap_or_default();
        let has_pod = names.pod_name.is_some() || names.pod_namespace.is_some();
        let pod = (pod.is_some() || has_pod).then(|| Pod {
            uid: pod.clone().or(names.pod_uid),
            name: names.pod_name,
            namespace: names.pod_namespace,
        });
        let outer_label = names.name.clone().unwrap_or_else(|| short(&outer.id));
        let mut container = match inner {
            None => Self {
                runtime: outer.runtime,
                id: outer.id.clone(),
                name: names.name,
                image: names.image,
                instance: names.instance,
                labels: names.labels,
                pod,
                outer: None,
                label: outer_label,
            },
            Some(inner) => Self {
                runtime: inner.runtime,
                id: inner.id.clone(),
                name: None,
                image: None,
                instance: None,
                labels: Vec::new(),
                pod,
                outer: Some(outer_label),
                label: short(&inner.id),
            },
        };
        if let Some(runtime) = names.runtime
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
