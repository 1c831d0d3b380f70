//! Numbered places of one size in memory that grows piece by piece up to a limit.

/// Places per piece. A growing table never moves what it holds.
const PIECE: usize = 1024;

/// A bounded slab. The owner marks in `T` whether a place is in use.
pub(crate) struct Slab<T> {
    pieces: Vec<Box<[T]>>,
    /// Places given out once; those below are in use or in `free`.
    used: u32,
    free: Vec<u32>,
    limit: u32,
    blank: T,
}

impl<T: Copy> Slab<T> {
    /// A slab of at most `limit` places, each `blank` at first.
    pub(crate) fn new(limit: usize, blank: T) -> Self {
        Self {
            pieces: Vec::new(),
            used: 0,
            free: Vec::new(),
            // The last number is kept out so that counting up to it cannot overflow.
            limit: u32::try_from(limit).unwrap_or(u32::MAX - 1),
            blank,
        }
    }

    /// Places in use.
    pub(crate) fn len(&self) -> usize {
        self.used as usize - self.free.len()
    }

    /// Puts a value into a free place.
    #[inline]
    pub(crate) fn insert(&mut self, value: T) -> Option<u32> {
        let place = match self.free.pop() {
            Some(place) => place,
            None if self.used < self.limit => {
                if self.used as usize == self.pieces.len() * PIECE {
                    self.pieces.push(vec![self.blank; PIECE].into());
                }
                self.used += 1;
                self.used - 1
            }
            None => return None,
        };
        self[place] = value;
        Some(place)
    }

    /// Gives a place back, blank.
    pub(crate) fn remove(&mut self, place: u32) {
        self[place] = self.blank;
        self.free.push(place);
    }

    /// What is at a place that may never have been given out.
    #[inline]
    pub(crate) fn get_mut(&mut self, place: u32) -> Option<&mut T> {
        let piece = self.pieces.get_mut(place as usize / PIECE)?;
        piece.get_mut(place as usize % PIECE)
    }

    /// Upper end of the numbers given out so far.
    pub(crate) fn end(&self) -> u32 {
        self.used
    }

    /// All places given out so far, blank ones included.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.pieces.iter().flatten().take(self.used as usize)
    }
}

impl<T> std::ops::Index<u32> for Slab<T> {
    type Output = T;

    #[inline]
    fn index(&self, place: u32) -> &T {
        &self.pieces[place as usize / PIECE][place as usize % PIECE]
    }
}

impl<T> std::ops::IndexMut<u32> for Slab<T> {
    #[inline]
    fn index_mut(&mut self, place: u32) -> &mut T {
        &mut self.pieces[place as usize / PIECE][place as usize % PIECE]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_to_its_limit_and_reuses_places() {
        let mut slab = Slab::new(PIECE + 1, 0u32);
        for value in 0..=PIECE as u32 {
            assert_eq!(slab.insert(value), Some(value));
        }
        assert_eq!(slab.insert(7), None);
        slab.remove(3);
        assert_eq!((slab.len(), slab[3]), (PIECE, 0));
        assert_eq!(slab.insert(9), Some(3));
        assert_eq!(slab.iter().copied().filter(|v| *v == 9).count(), 2);
    }
}
