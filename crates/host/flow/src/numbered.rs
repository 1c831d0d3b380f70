//! Values that records name by a number, such as who owns a socket: kept as long as a record has the
//! number and there is room.

use std::{collections::HashMap, num::NonZeroU32};

/// The values by number. Numbers are given in order and come again only after all others: what is
/// forgotten leaves numbers in records that mean nothing any more, never something else.
#[derive(Debug)]
pub struct Numbered<T> {
    values: HashMap<u32, T>,
    last: u32,
}

impl<T> Default for Numbered<T> {
    fn default() -> Self {
        Self {
            values: HashMap::new(),
            last: 0,
        }
    }
}

/// Which numbers are in use, collected by a pass over all records.
#[derive(Debug, Default)]
pub struct Used(HashMap<u32, bool>);

impl Used {
    /// A record has that number; `active`: its conversation or socket has not ended.
    pub fn note(&mut self, number: NonZeroU32, active: bool) {
        *self.0.entry(number.get()).or_default() |= active;
    }
}

impl<T> Numbered<T> {
    /// Keeps a value; none when each number is taken.
    pub fn insert(&mut self, value: T) -> Option<NonZeroU32> {
        if self.values.len() >= u32::MAX as usize {
            return None;
        }
        let number = loop {
            self.last = self.last.wrapping_add(1);
            match NonZeroU32::new(self.last) {
                Some(number) if !self.values.contains_key(&number.get()) => break number,
                _ => {}
            }
        };
        self.values.insert(number.get(), value);
        Some(number)
    }

    /// The value with that number; none when it was forgotten.
    pub fn get(&self, number: NonZeroU32) -> Option<&T> {
        self.values.get(&number.get())
    }

    /// As [`get`](Self::get), to be changed.
    pub fn get_mut(&mut self, number: NonZeroU32) -> Option<&mut T> {
        self.values.get_mut(&number.get())
    }

    /// All values, in no order.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.values.values_mut()
    }

    /// All values, in no order.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.values.values()
    }

    /// The numbers of all values, in no order.
    pub fn numbers(&self) -> Vec<NonZeroU32> {
        let numbers = self.values.keys().copied();
        numbers.filter_map(NonZeroU32::new).collect()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Bytes of the table itself, about.
    pub fn memory(&self) -> usize {
        self.values.capacity() * (size_of::<(u32, T)>() + 1) * 8 / 7
    }

    /// Removes values that no record has.
    pub fn take_unused(&mut self, used: &Used) -> Vec<(NonZeroU32, T)> {
        let unused = self
            .values
            .extract_if(|number, _| !used.0.contains_key(number));
        let taken: Vec<_> = unused.filter_map(numbered).collect();
        self.shrink();
        taken
    }

    /// Removes values that only ended records have, least recently used first (`last_used` of each value),
    /// until `enough` returns true for the number that is left and the next value.
    pub fn take_least_used<U: Ord>(
        &mut self,
        used: &Used,
        last_used: impl Fn(&T) -> U,
        mut enough: impl FnMut(usize, &T) -> bool,
    ) -> Vec<(NonZeroU32, T)> {
        let active = |number: &u32| used.0.get(number).is_some_and(|active| *active);
        let ended = self.values.iter().filter(|(number, _)| !active(number));
        let mut ended: Vec<_> = ended.map(|(n, value)| (last_used(value), *n)).collect();
        ended.sort_unstable();
        let mut taken = Vec::new();
        for (_, number) in ended {
            let left = self.values.len();
            if self
                .values
                .get(&number)
                .is_none_or(|next| enough(left, next))
            {
                break;
            }
            taken.extend(self.values.remove_entry(&number).and_then(numbered));
        }
        self.shrink();
        taken
    }

    fn shrink(&mut self) {
        if self.values.capacity() > 4 * self.values.len().max(16) {
            self.values.shrink_to_fit();
        }
    }
}

fn numbered<T>((number, value): (u32, T)) -> Option<(NonZeroU32, T)> {
    Some((NonZeroU32::new(number)?, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_means_one_value_or_none() {
        let mut numbered = Numbered::default();
        let first = numbered.insert("a").unwrap();
        let second = numbered.insert("b").unwrap();
        let mut used = Used::default();
        used.note(second, false);
        assert_eq!(numbered.take_unused(&used), [(first, "a")]);
        let third = numbered.insert("c").unwrap();
        assert_eq!(numbered.get(first), None);
        assert_eq!(numbered.get(second), Some(&"b"));
        assert_eq!(numbered.get(third), Some(&"c"));
    }

    #[test]
    fn the_least_used_go_first_but_what_goes_on() {
        let mut numbered = Numbered {
            last: u32::MAX - 2,
            ..Numbered::default()
        };
        let values = [3, 0, 4, 1, 2];
        let numbers = values.map(|n| numbered.insert(n).unwrap());
        // The numbers have wrapped around.
        assert_eq!(numbers.map(|n| n.get()), [u32::MAX - 1, u32::MAX, 1, 2, 3]);
        let mut used = Used::default();
        numbers.iter().for_each(|number| used.note(*number, false));
        used.note(numbers[1], true);
        used.note(numbers[1], false);
        let taken = numbered.take_least_used(&used, |value| *value, |left, _| left <= 2);
        let taken: Vec<_> = taken.into_iter().map(|(_, value)| value).collect();
        assert_eq!(taken, [1, 2, 3]);
        assert_eq!(numbered.get(numbers[1]), Some(&0));
        assert_eq!(numbered.get(numbers[2]), Some(&4));
    }
}
