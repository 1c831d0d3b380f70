//! A list of records: what is chosen, its order and its filter.

use serde_json::Value;

/// Rows that are asked for at most: who wants others filters or sorts.
const ROWS_AT_MOST: usize = 1000;
/// Rows are asked for in steps, so that a move of the cursor does not ask anew.
const STEP: usize = 32;

/// A list of records and where the user is in it.
#[derive(Debug, Default)]
pub struct List {
    /// What is shown.
    pub rows: Vec<Value>,
    /// Which row is chosen.
    pub selected: usize,
    /// The first row on the screen.
    pub offset: usize,
    /// Rows that fit on the screen.
    pub height: usize,
    /// Which order.
    pub sort: usize,
    /// Whether it is turned round.
    pub reversed: bool,
    /// The filter in force.
    pub filter: String,
    /// What is wrong with the last answer.
    pub error: Option<String>,
    /// Whether there was an answer.
    pub answered: bool,
    /// Identity of the chosen row, so that it stays chosen when others come; none at the top.
    chosen: Option<String>,
}

impl List {
    /// Takes what was answered; the chosen row stays chosen as long as it is there.
    pub fn take(&mut self, rows: Vec<Value>, identity: fn(&Value) -> String) {
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

    /// Moves by so many rows.
    pub fn go(&mut self, by: isize, identity: fn(&Value) -> String) {
        let to = self.selected.saturating_add_signed(by);
        self.selected = to.min(self.rows.len().saturating_sub(1));
        // At the top the top is followed, whatever is there.
        self.chosen = match self.selected {
            0 => None,
            at => self.rows.get(at).map(identity),
        };
        self.stay_inside();
    }

    /// Forgets what is chosen: the order or the filter is another one.
    pub fn restart(&mut self) {
        (self.selected, self.offset, self.chosen) = (0, 0, None);
    }

    /// Keeps the chosen row on a screen with room for `height` rows.
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

    /// How many rows to ask for.
    pub fn limit(&self) -> usize {
        let seen = self.offset + self.height + 1;
        seen.next_multiple_of(STEP).min(ROWS_AT_MOST)
    }

    /// The chosen row.
    pub fn row(&self) -> Option<&Value> {
        self.rows.get(self.selected)
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
        list.take(rows(0..20), identity);
        list.take(rows(5..20), identity);
        assert_eq!(list.row(), Some(&json!(5)));
        list.go(3, identity);
        list.take(rows(0..20), identity);
        assert_eq!(list.row(), Some(&json!(8)));
        assert_eq!((list.selected, list.offset), (8, 4));
        list.take(rows(0..3), identity);
        assert_eq!((list.selected, list.offset), (2, 0));
        list.take(Vec::new(), identity);
        assert_eq!((list.row(), list.selected), (None, 0));
    }

    #[test]
    fn only_what_is_shown_is_asked_for() {
        let mut list = List::default();
        list.fit(20);
        assert_eq!(list.limit(), 32);
        list.take(rows(0..32), identity);
        list.go(31, identity);
        assert_eq!(list.limit(), 64);
        list.take(rows(0..2000), identity);
        list.go(1990, identity);
        assert_eq!(list.limit(), ROWS_AT_MOST);
    }
}
