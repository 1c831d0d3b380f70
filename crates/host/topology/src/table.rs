//! Elements of one kind with their versions.

use crate::{
    Value,
    element::Element,
    index::{Index, IndexKey},
    window::{Span, Window},
};
use hashbrown::HashMap;
use std::{collections::VecDeque, ops::ControlFlow, sync::Arc};

/// One version of an element.
struct Version<T> {
    span: Span,
    item: Arc<T>,
}

/// An element; empty when nothing of it is kept any more.
struct Slot<T> {
    current: Option<(u64, Arc<T>)>,
    /// Oldest first.
    past: VecDeque<Version<T>>,
}

impl<T> Slot<T> {
    fn is_free(&self) -> bool {
        self.current.is_none() && self.past.is_empty()
    }
}

/// Visits a version with its slot, and the part of the window in which it was valid.
pub(crate) type VisitSlot<'a, T> = &'a mut dyn FnMut(u32, &Arc<T>, Window) -> ControlFlow<()>;

/// What an element had been when a version was forgotten.
pub(crate) struct Forgotten<T> {
    pub item: Arc<T>,
    /// Nothing of the element is kept any more.
    pub last: bool,
}

/// Without the mark of deletion, as the element was known before.
pub(crate) fn unmarked<T: Element>(item: Arc<T>) -> Arc<T> {
    if item.base().deleted_at.is_none() {
        return item;
    }
    let mut before = T::clone(&item);
    before.base_mut().deleted_at = None;
    Arc::new(before)
}

pub(crate) struct Table<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    ids: HashMap<Arc<str>, u32>,
    indexes: Vec<Index>,
    live: usize,
}

impl<T: Element> Table<T> {
    pub fn new<'a>(keys: impl IntoIterator<Item = &'a str>) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            ids: HashMap::new(),
            indexes: keys.into_iter().map(Index::new).collect(),
            live: 0,
        }
    }

    /// How many exist now.
    pub fn len(&self) -> usize {
        self.live
    }

    /// How many slots there are, free ones included.
    pub fn slots(&self) -> u32 {
        self.slots.len() as u32
    }

    pub fn slot(&self, id: &str) -> Option<u32> {
        self.ids.get(id).copied()
    }

    pub fn current(&self, slot: u32) -> Option<&Arc<T>> {
        let (_, item) = self.slots.get(slot as usize)?.current.as_ref()?;
        Some(item)
    }

    /// Adds an element that does not exist now.
    pub fn add(&mut self, item: Arc<T>, seq: u64) -> u32 {
        let id = item.base().id.clone();
        let slot = match self.ids.get(&id) {
            Some(slot) => *slot,
            None => {
                let slot = self.free.pop().unwrap_or_else(|| {
                    self.slots.push(Slot {
                        current: None,
                        past: VecDeque::new(),
                    });
                    (self.slots.len() - 1) as u32
                });
                self.ids.insert(id, slot);
                slot
            }
        };
        for index in &mut self.indexes {
            index.change(slot, None, Some(&*item), seq);
        }
        self.slots[slot as usize].current = Some((seq, item));
        self.live += 1;
        slot
    }

    /// Puts `item` in the place of the current version.
    pub fn update(&mut self, slot: u32, item: Arc<T>, seq: u64) {
        let Some((since, old)) = self.slots[slot as usize]
            .current
            .replace((seq, item.clone()))
        else {
            return;
        };
        for index in &mut self.indexes {
            index.change(slot, Some(&*old), Some(&*item), seq);
        }
        self.slots[slot as usize].past.push_back(Version {
            span: Span { since, until: seq },
            item: old,
        });
    }

    /// Ends the element; `last` is its last version with the time of deletion.
    pub fn delete(&mut self, slot: u32, last: Arc<T>, seq: u64) {
        let Some((since, old)) = self.slots[slot as usize].current.take() else {
            return;
        };
        for index in &mut self.indexes {
            index.change(slot, Some(&*old), None, seq);
        }
        self.live -= 1;
        self.slots[slot as usize].past.push_back(Version {
            span: Span { since, until: seq },
            item: last,
        });
    }

    /// Forgets the version that the event `seq` ended.
    pub fn forget(&mut self, slot: u32, seq: u64) -> Option<Forgotten<T>> {
        let entry = &mut self.slots[slot as usize];
        entry.past.front().filter(|old| old.span.until == seq)?;
        let Version { item, .. } = entry.past.pop_front()?;
        if entry.past.len() < entry.past.capacity() / 8 {
            let keep = entry.past.len() * 2;
            entry.past.shrink_to(keep);
        }
        let last = entry.is_free();
        for index in &mut self.indexes {
            index.forget(&*item, seq);
        }
        if last {
            self.ids.remove(&item.base().id);
            self.free.push(slot);
        }
        Some(Forgotten { item, last })
    }

    /// The version that the event `seq` began, or ended by deletion.
    pub fn of_event(&self, slot: u32, seq: u64) -> Option<&Arc<T>> {
        let entry = self.slots.get(slot as usize)?;
        if let Some((since, item)) = &entry.current
            && *since == seq
        {
            return Some(item);
        }
        let at = entry.past.partition_point(|old| old.span.since < seq);
        let began = entry.past.get(at).filter(|old| old.span.since == seq);
        let ended = || {
            let before = entry.past.get(at.checked_sub(1)?)?;
            (before.span.until == seq).then_some(before)
        };
        began.or_else(ended).map(|old| &old.item)
    }

    /// The versions of an element that `window` sees, each with the part of the window in which it
    /// was the valid one.
    pub fn versions(
        &self,
        slot: u32,
        window: Window,
        visit: &mut dyn FnMut(&Arc<T>, Window) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let Some(entry) = self.slots.get(slot as usize) else {
            return ControlFlow::Continue(());
        };
        if let Some((since, item)) = &entry.current
            && *since <= window.lo
        {
            // Nothing older can be in sight.
            return visit(item, window);
        }
        let first = entry
            .past
            .partition_point(|old| old.span.until <= window.lo);
        for old in entry.past.range(first..) {
            if !window.includes(old.span) {
                break;
            }
            let part = window.within(old.span);
            if old.item.base().deleted_at.is_some() && old.span.until > window.known {
                // At that moment the deletion was not known.
                visit(&unmarked(old.item.clone()), part)?;
            } else {
                visit(&old.item, part)?;
            }
        }
        match &entry.current {
            Some((since, item)) if *since <= window.hi => {
                let until = Span::OPEN;
                visit(
                    item,
                    window.within(Span {
                        since: *since,
                        until,
                    }),
                )
            }
            _ => ControlFlow::Continue(()),
        }
    }

    /// The index of `key`.
    pub fn index(&self, key: &str) -> Option<&Index> {
        self.indexes.iter().find(|index| &*index.key == key)
    }

    /// The versions that `window` sees of elements that had `value` under the key of `index`.
    pub fn having(
        &self,
        index: &Index,
        value: &IndexKey,
        window: Window,
        from: u32,
        visit: VisitSlot<'_, T>,
    ) -> ControlFlow<()> {
        index.visit(value, window, from, &mut |slot, span| {
            self.versions(slot, window.within(span), &mut |item, part| {
                visit(slot, item, part)
            })
        })
    }

    pub fn current_items(&self) -> impl Iterator<Item = &Arc<T>> {
        let current = self.slots.iter().filter_map(|slot| slot.current.as_ref());
        current.map(|(_, item)| item)
    }

    /// The current elements of a host.
    pub fn current_of_host(&self, host: &str, now: Window) -> Vec<Arc<T>> {
        let mut found = Vec::new();
        let value = IndexKey::of(&Value::Str(host.into()));
        let Some((index, value)) = self.index("@Host").zip(value) else {
            let items = self.current_items();
            found.extend(items.filter(|item| *item.base().host == *host).cloned());
            return found;
        };
        // It never breaks off.
        let _ = self.having(index, &value, now, 0, &mut |_, item, _| {
            if *item.base().host == *host {
                found.push(item.clone());
            }
            ControlFlow::Continue(())
        });
        found
    }

    /// Each index with the number of its values.
    pub fn index_sizes(&self) -> impl Iterator<Item = (&str, usize)> {
        self.indexes.iter().map(|index| (&*index.key, index.len()))
    }
}
