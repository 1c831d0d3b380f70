//! Names of services: each stored once, so that keys contain numbers.

use crate::HashMap;

/// The number of no name.
pub(crate) const NONE: u32 = 0;

/// Names by number. Unused names are removed when the table is nearly full.
#[derive(Debug)]
pub(crate) struct Names {
    numbers: HashMap<Box<str>, u32>,
    /// The names to show, without control characters.
    shown: Vec<Box<str>>,
    free: Vec<u32>,
    most: usize,
}

impl Names {
    /// A table for `most` names.
    pub(crate) fn new(most: usize) -> Self {
        Self {
            numbers: HashMap::default(),
            shown: vec!["".into()],
            free: Vec::new(),
            most,
        }
    }

    /// The number of a name; none when there are too many.
    pub(crate) fn number(&mut self, name: &str) -> Option<u32> {
        if name.is_empty() {
            return Some(NONE);
        }
        if let Some(number) = self.numbers.get(name) {
            return Some(*number);
        }
        if self.numbers.len() >= self.most {
            return None;
        }
        let printable = |c: char| if c.is_control() { '?' } else { c };
        let shown: Box<str> = name.chars().map(printable).collect();
        let number = match self.free.pop() {
            Some(number) => {
                if let Some(index) = self.shown.get_mut(number as usize) {
                    *index = shown;
                }
                number
            }
            None => {
                self.shown.push(shown);
                // There are at most as many as `most`.
                self.shown.len() as u32 - 1
            }
        };
        self.numbers.insert(name.into(), number);
        Some(number)
    }

    /// The name of a number, empty for [`NONE`].
    pub(crate) fn name(&self, number: u32) -> &str {
        self.shown
            .get(number as usize)
            .map(|name| &**name)
            .unwrap_or_default()
    }

    /// Whether unused names should be removed.
    pub(crate) fn crowded(&self) -> bool {
        self.numbers.len() > self.most / 4 * 3
    }

    /// Removes all names whose numbers `used` does not pass on.
    pub(crate) fn retain(&mut self, used: impl FnOnce(&mut dyn FnMut(u32))) {
        let mut marks = vec![false; self.shown.len()];
        used(&mut |number| {
            if let Some(mark) = marks.get_mut(number as usize) {
                *mark = true;
            }
        });
        let free = &mut self.free;
        self.numbers.retain(|_, number| {
            let stays = marks.get(*number as usize).copied().unwrap_or(false);
            if !stays {
                free.push(*number);
            }
            stays
        });
    }
}

/// The names that a datagram has defined so far, by their numbers there.
#[derive(Debug)]
pub(crate) struct Defined([u32; 256]);

impl Defined {
    pub(crate) fn new() -> Self {
        Self([NONE; 256])
    }

    pub(crate) fn clear(&mut self) {
        self.0 = [NONE; 256];
    }

    pub(crate) fn define(&mut self, number: u8, name: u32) {
        // No side has the number 0.
        if number > 0 {
            self.0[usize::from(number)] = name;
        }
    }

    pub(crate) fn of(&self, number: u8) -> u32 {
        self.0[usize::from(number)]
    }
}

/// Numbers for an exporter's names in one datagram.
pub(crate) type Numbered<K> = Vec<K>;

/// The number of a key in a datagram, and whether it has to be defined.
pub(crate) fn numbered<K: PartialEq>(known: &mut Numbered<K>, key: K) -> (u8, bool) {
    if let Some(index) = known.iter().position(|one| *one == key) {
        return (index as u8 + 1, false);
    }
    known.push(key);
    // A datagram ends before there are more.
    (u8::try_from(known.len()).unwrap_or(u8::MAX), true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_a_limit_and_go_when_nobody_uses_them() {
        let mut names = Names::new(2);
        let (web, odd) = (
            names.number("web").unwrap(),
            names.number("a\x1b[2J").unwrap(),
        );
        assert_eq!(names.number("web"), Some(web));
        assert_eq!((names.name(web), names.name(odd)), ("web", "a?[2J"));
        assert_eq!(names.number("more"), None);
        assert_eq!(names.number(""), Some(NONE));
        assert!(names.crowded());
        names.retain(|used| used(web));
        assert_eq!(names.number("more"), Some(odd));
        assert_eq!((names.name(web), names.name(odd)), ("web", "more"));
    }
}
