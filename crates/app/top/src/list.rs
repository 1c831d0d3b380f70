//! A list of records: selection, order and filter.

use serde_json::Value;

/// Most rows that are requested. If the API supports pages, others follow when the cursor comes near
/// them.
const ROWS_AT_MOST: usize = 1000;
/// Rows by which the requested page moves.
const PAGE: usize = 500;
/// Rows are requested in steps, so that not every move of the cursor changes the request.
const STEP: usize = 32;

/// A list of records and where the user is in it.
#[derive(Debug, Default)]
pub struct List {
    /// The rows in memory.
    pub rows: Vec<Value>,
    /// Which row is chosen.
    pub selected: usize,
    /// The first row on the screen.
    pub offset: usize,
    /// Rows that fit on the screen.
    pub height: usize,
    /// The line of the screen with the first of them.
    pub top: u16,
    /// Which order.
    pub sort: usize,
    /// Whether it is turned round.
    pub reversed: bool,
    /// The filter in force.
    pub filter: String,
    /// Numbers of the columns that are not shown.
    pub hidden: Vec<usize>,
    /// The error of the last answer.
    pub error: Option<String>,
    /// Whether there was an answer.
    pub answered: bool,
    /// Number of the first of `rows` among all that there are.
    pub base: usize,
    /// Number of rows in total, if the API returns it.
    pub found: Option<usize>,
    /// Identity of the selected row, which stays selected after updates; none at the top.
    chosen: Option<String>,
}

impl List {
    /// Replaces the rows; the selected row stays selected while it exists.
    pub fn replace(&mut self, rows: Vec<Value>, identity: fn(&Value) -> String) {
        self.rows = rows;
        if self.reversed {
            self.rows.reverse();
        }
        self.answered = true;
        self.error = None;
        let found = self
            .chosen
            .as_ref()
            .and_then(|chosen| self.rows.iter().position(|row| identity(row) == *chosen));
        self.selected = found.unwrap_or(self.selected);
        self.stay_inside();
    }

    /// Replaces the page, and sets the total number of rows.
    pub fn replace_page(&mut self, rows: Vec<Value>, found: usize, identity: fn(&Value) -> String) {
        self.replace(rows, identity);
        self.found = Some(found);
        if self.base >= found {
            // There are fewer by now.
            self.base = found.saturating_sub(PAGE);
        }
    }

    /// Moves the cursor by this many rows.
    pub fn go(&mut self, by: isize, identity: fn(&Value) -> String) {
        self.turn(by);
        let to = self.selected.saturating_add_signed(by);
        self.selected = to.min(self.rows.len().saturating_sub(1));
        // At the top, the cursor stays at the first row.
        self.chosen = match (self.base, self.selected) {
            (0, 0) => None,
            (_, at) => self.rows.get(at).filter(|row| !row.is_null()).map(identity),
        };
        self.stay_inside();
    }

    /// Turns to the page of a move's target, if the API supports pages. Rows in both pages stay; unknown
    /// rows are null.
    fn turn(&mut self, by: isize) {
        let Some(found) = self.found.filter(|_| !self.reversed) else {
            return;
        };
        let place = self.base + self.selected;
        let to = match by {
            isize::MIN => 0,
            isize::MAX => found.saturating_sub(1),
            by => place.saturating_add_signed(by).min(found.saturating_sub(1)),
        };
        let end = self.base + self.rows.len();
        let far = to < self.base || to >= end;
        let near_end = to + self.height.max(1) >= self.base + ROWS_AT_MOST && end < found;
        let near_begin = self.base > 0 && to < self.base + self.height;
        // Within the first page more rows suffice.
        let first = self.base == 0 && to < ROWS_AT_MOST && !matches!(by, isize::MAX);
        if first || !(far || near_end || near_begin) {
            return;
        }
        let base = to.saturating_sub(PAGE) / PAGE * PAGE;
        let old = std::mem::take(&mut self.rows);
        let count = ROWS_AT_MOST.min(found - base.min(found));
        self.rows = vec![Value::Null; count];
        for (number, row) in old.into_iter().enumerate() {
            let place = (self.base + number).checked_sub(base);
            if let Some(slot) = place.and_then(|place| self.rows.get_mut(place)) {
                *slot = row;
            }
        }
        let moved = |place: usize| (self.base + place).saturating_sub(base);
        (self.selected, self.offset) = (moved(self.selected), moved(self.offset));
        self.base = base;
    }

    /// Clears the selection: order or filter has changed.
    pub fn restart(&mut self) {
        (self.selected, self.offset, self.chosen) = (0, 0, None);
        (self.base, self.found) = (0, None);
    }

    /// How many there are.
    pub fn all(&self) -> usize {
        self.found
            .unwrap_or(self.rows.len())
            .max(self.base + self.rows.len())
    }

    /// Scrolls so that the selected row is within `height` rows.
    pub fn fit(&mut self, height: usize) {
        self.height = height;
        self.stay_inside();
    }

    fn stay_inside(&mut self) {
        self.selected = self.selected.min(self.rows.len().saturating_sub(1));
        let height = self.height.max(1);
        let lowest = (self.selected + 1).saturating_sub(height);
        let end = self.rows.len().saturating_sub(height);
        self.offset = self.offset.clamp(lowest, self.selected).min(end);
    }

    /// Number of rows to request.
    pub fn limit(&self) -> usize {
        if self.base > 0 {
            return ROWS_AT_MOST;
        }
        let seen = self.offset + self.height + 1;
        seen.next_multiple_of(STEP).min(ROWS_AT_MOST)
    }

    /// The selected row; none while it is unknown.
    pub fn row(&self) -> Option<&Value> {
        self.rows.get(self.selected).filter(|row| !row.is_null())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn identity(row: &Value) -> String {
        row.to_string()
    }

    fn rows(numbers: std::ops::Range<u32>) -> Vec<Value> {
        numbers.map(|n| json!(n)).collect()
    }

    #[test]
    fn the_chosen_row_stays_when_others_come() {
        let mut list = List::default();
        list.fit(5);
        list.replace(rows(0..20), identity);
        list.replace(rows(5..20), identity);
        assert_eq!(list.row(), Some(&json!(5)));
        list.go(3, identity);
        list.replace(rows(0..20), identity);
        assert_eq!(list.row(), Some(&json!(8)));
        assert_eq!((list.selected, list.offset), (8, 4));
        list.replace(rows(0..3), identity);
        assert_eq!((list.selected, list.offset), (2, 0));
        list.replace(Vec::new(), identity);
        assert_eq!((list.row(), list.selected), (None, 0));
    }

    #[test]
    fn pages_are_turned_as_the_cursor_moves() {
        let all =
            |list: &List| rows(list.base as u32..(list.base + list.limit()).min(50_000) as u32);
        // Identities are those of objects.
        let object = |rows: Vec<Value>| {
            rows.into_iter()
                .map(|n| json!({"n": n}))
                .collect::<Vec<_>>()
        };
        let mut list = List::default();
        list.fit(20);
        let answer = |list: &mut List| {
            let page = object(all(list));
            list.replace_page(page, 50_000, identity);
        };
        answer(&mut list);
        for _ in 0..3_000 {
            list.go(1, identity);
            answer(&mut list);
        }
        assert_eq!(list.row(), Some(&json!({"n": 3_000})));
        assert_eq!(list.base + list.selected, 3_000);
        assert!(list.rows.len() <= ROWS_AT_MOST);
        list.go(isize::MAX, identity);
        assert_eq!((list.row(), list.base + list.selected), (None, 49_999));
        answer(&mut list);
        assert_eq!(list.row(), Some(&json!({"n": 49_999})));
        for _ in 0..2_000 {
            list.go(-1, identity);
            answer(&mut list);
        }
        assert_eq!(list.row(), Some(&json!({"n": 47_999})));
        list.go(isize::MIN, identity);
        answer(&mut list);
        assert_eq!((list.base, list.row()), (0, Some(&json!({"n": 0}))));
        // The answer had fewer rows.
        list.go(isize::MAX, identity);
        list.replace_page(Vec::new(), 100, identity);
        assert_eq!(list.base, 0);
    }

    #[test]
    fn only_visible_rows_are_requested() {
        let mut list = List::default();
        list.fit(20);
        assert_eq!(list.limit(), 32);
        list.replace(rows(0..32), identity);
        list.go(31, identity);
        assert_eq!(list.limit(), 64);
        list.replace(rows(0..2000), identity);
        list.go(1990, identity);
        assert_eq!(list.limit(), ROWS_AT_MOST);
    }
}
