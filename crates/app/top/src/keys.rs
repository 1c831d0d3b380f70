//! What keys do.

use ratatui::crossterm::event::{
    KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind,
};

use crate::{
    app::{App, Effect, GROUPINGS, Overlay},
    make::Make,
    view::View,
};

/// The longest filter that can be written.
const LONGEST: usize = 1024;

impl App {
    /// Handles a key; returns work for the caller.
    pub fn key(&mut self, key: KeyEvent) -> Option<Effect> {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c') => Some(Effect::Quit),
                KeyCode::Char('u') => {
                    if let Some(Overlay::Filter { text }) = &mut self.overlay {
                        text.clear();
                    }
                    None
                }
                _ => None,
            };
        }
        match self.overlay.take() {
            None => self.plain_key(key.code),
            Some(Overlay::Help { from }) => {
                self.overlay = scrolled(key.code, from).map(|from| Overlay::Help { from });
                None
            }
            Some(Overlay::Details { row, from, raw }) => {
                let copied = (key.code == KeyCode::Char('y')).then(|| self.copied(row.to_string()));
                self.overlay = match key.code {
                    KeyCode::Char('J') => Some(Overlay::Details {
                        row,
                        from: 0,
                        raw: !raw,
                    }),
                    code => scrolled(code, from).map(|from| Overlay::Details { row, from, raw }),
                };
                copied
            }
            Some(Overlay::Columns { at }) => {
                self.columns_key(key.code, at);
                None
            }
            Some(Overlay::Filter { text }) => {
                self.filter_key(key.code, text);
                None
            }
            Some(Overlay::Confirm(make)) => self.confirm_key(key.code, make),
        }
    }

    fn plain_key(&mut self, code: KeyCode) -> Option<Effect> {
        self.message = None;
        let page = isize::try_from(self.list().height.max(1)).unwrap_or(1);
        match code {
            KeyCode::Char('q') => return Some(Effect::Quit),
            KeyCode::Char(c @ '1'..='7') => self.show(View::ALL[c as usize - '1' as usize]),
            KeyCode::Tab => self.show(View::ALL[(self.view as usize + 1) % 7]),
            KeyCode::BackTab => self.show(View::ALL[(self.view as usize + 6) % 7]),
            KeyCode::Down | KeyCode::Char('j') => self.go(1),
            KeyCode::Up | KeyCode::Char('k') => self.go(-1),
            KeyCode::PageDown => self.go(page),
            KeyCode::PageUp => self.go(-page),
            KeyCode::Home | KeyCode::Char('g') => self.go(isize::MIN),
            KeyCode::End | KeyCode::Char('G') => self.go(isize::MAX),
            KeyCode::Char('?') => self.overlay = Some(Overlay::Help { from: 0 }),
            KeyCode::Char('/') => {
                let text = self.list().filter.clone();
                self.overlay = Some(Overlay::Filter { text });
            }
            KeyCode::Esc => self.filter(String::new()),
            KeyCode::Char('s') => self.sort(1),
            KeyCode::Char('S') => self.sort(-1),
            KeyCode::Char('r') => {
                let list = self.list_mut();
                list.reversed = !list.reversed;
                list.rows.retain(|row| !row.is_null());
                list.rows.reverse();
                list.restart();
            }
            KeyCode::Char('e') if matches!(self.view, View::Flows | View::Overview) => {
                self.ended = !self.ended;
                self.list_mut().restart();
            }
            KeyCode::Char('b') if self.view == View::Flows && !self.fleet => {
                let mut all = GROUPINGS.into_iter();
                self.group = match self.group {
                    None => all.next(),
                    Some(by) => all.skip_while(|known| *known != by).nth(1),
                };
                let list = self.list_mut();
                list.restart();
                list.rows.clear();
                list.hidden.clear();
                list.answered = false;
            }
            KeyCode::Char('C') => self.overlay = Some(Overlay::Columns { at: 0 }),
            KeyCode::Char('x') => return Some(self.export(false)),
            KeyCode::Char('X') => return Some(self.export(true)),
            KeyCode::Char('d') if self.view == View::Services => {
                self.dependencies = !self.dependencies;
                self.list_mut().restart();
                self.list_mut().rows.clear();
            }
            KeyCode::Char(' ') => {
                self.frozen = !self.frozen;
                self.rates.pause();
            }
            KeyCode::Right | KeyCode::Char('l' | '+') if self.view == View::Topology => {
                self.open_node(true);
            }
            KeyCode::Left | KeyCode::Char('h' | '-') if self.view == View::Topology => {
                self.open_node(false);
            }
            KeyCode::Enter => {
                if let Some(row) = self.list().row().cloned() {
                    self.overlay = Some(Overlay::Details {
                        row,
                        from: 0,
                        raw: false,
                    });
                }
            }
            KeyCode::Char('y') => {
                let row = self.list().row()?.to_string();
                return Some(self.copied(row));
            }
            KeyCode::Char('c') => self.ask_to_make(false),
            KeyCode::Char('t') => self.ask_to_make(true),
            _ => {}
        }
        None
    }

    fn show(&mut self, view: View) {
        self.view = view;
    }

    fn go(&mut self, by: isize) {
        let identity = self.identity();
        self.list_mut().go(by, identity);
    }

    fn sort(&mut self, by: isize) {
        let orders = self.view.sorts().len();
        if orders > 0 {
            let list = self.list_mut();
            list.sort = (list.sort + orders).saturating_add_signed(by) % orders;
            list.restart();
        }
    }

    fn filter(&mut self, text: String) {
        let list = self.list_mut();
        if list.filter == text {
            return;
        }
        list.filter = text;
        list.error = None;
        list.restart();
        match self.view {
            View::Topology => self.restart_tree(),
            View::Events => self.show_events(),
            _ => {}
        }
    }

    fn copied(&mut self, text: String) -> Effect {
        self.message = Some((
            "copied as JSON, if the terminal allows it (OSC 52)".into(),
            false,
        ));
        Effect::Copy(text)
    }

    fn filter_key(&mut self, code: KeyCode, mut text: String) {
        match code {
            KeyCode::Enter => return self.filter(text.trim().to_owned()),
            KeyCode::Esc => return,
            KeyCode::Tab if self.takes_conditions() => text = completed(text),
            KeyCode::Backspace => {
                text.pop();
            }
            KeyCode::Char(c) if !c.is_control() && text.len() < LONGEST => text.push(c),
            _ => {}
        }
        self.overlay = Some(Overlay::Filter { text });
    }

    /// Whether the filter of the view is one of conditions.
    pub(crate) fn takes_conditions(&self) -> bool {
        matches!(self.view, View::Overview | View::Flows) && !self.fleet
    }

    /// Handles a click or the wheel; returns work for the caller.
    pub fn mouse(&mut self, event: MouseEvent) -> Option<Effect> {
        let by = match event.kind {
            MouseEventKind::ScrollDown => 3,
            MouseEventKind::ScrollUp => -3,
            MouseEventKind::Down(MouseButton::Left) => 0,
            _ => return None,
        };
        match &mut self.overlay {
            Some(Overlay::Help { from } | Overlay::Details { from, .. }) => {
                match by {
                    0 => self.overlay = None,
                    by => *from = from.saturating_add_signed(by),
                }
                return None;
            }
            Some(_) => return None,
            None => {}
        }
        if by != 0 {
            self.go(by);
        } else if event.row == 0 {
            let mut end = 0;
            for view in View::ALL {
                end += 4 + view.name().len() as u16;
                if event.column < end {
                    self.show(view);
                    break;
                }
            }
        } else {
            let list = self.list();
            let line = usize::from(event.row.checked_sub(list.top)?);
            let at = list.offset + line;
            if line < list.height && at < list.rows.len() {
                if at == list.selected {
                    // A second click shows all of it.
                    return self.plain_key(KeyCode::Enter);
                }
                let by = at as isize - list.selected as isize;
                self.go(by);
            }
        }
        None
    }

    /// The rows as they are shown, in a file.
    fn export(&self, csv: bool) -> Effect {
        let list = self.list();
        let rows = list.rows.iter().filter(|row| !row.is_null());
        let mut text = String::new();
        if csv {
            let columns = self.columns().iter().enumerate();
            let columns = columns
                .filter(|(at, column)| !list.hidden.contains(at) && !column.title.is_empty());
            let columns: Vec<_> = columns.map(|(_, column)| column).collect();
            let quoted = |cell: String| match cell.contains([',', '"', '\n', '\r']) {
                true => format!("\"{}\"", cell.replace('"', "\"\"")),
                false => cell,
            };
            let mut line = |cells: Vec<String>| {
                text += &cells.join(",");
                text.push('\n');
            };
            line(
                columns
                    .iter()
                    .map(|column| quoted(column.title.to_owned()))
                    .collect(),
            );
            for row in rows {
                line(
                    columns
                        .iter()
                        .map(|column| quoted((column.cell)(row)))
                        .collect(),
                );
            }
        } else {
            for row in rows {
                text += &row.to_string();
                text.push('\n');
            }
        }
        Effect::Export {
            name: self.view.name(),
            kind: if csv { "csv" } else { "json" },
            text,
        }
    }

    fn columns_key(&mut self, code: KeyCode, at: usize) {
        let all = self.columns().len();
        let at = match code {
            KeyCode::Down | KeyCode::Char('j') => (at + 1) % all,
            KeyCode::Up | KeyCode::Char('k') => (at + all - 1) % all,
            KeyCode::Char(' ') | KeyCode::Enter => {
                let hidden = &mut self.list_mut().hidden;
                match hidden.iter().position(|column| *column == at) {
                    Some(place) => {
                        hidden.remove(place);
                    }
                    None => hidden.push(at),
                }
                at
            }
            _ => return,
        };
        self.overlay = Some(Overlay::Columns { at });
    }

    fn ask_to_make(&mut self, tap: bool) {
        let Some(row) = self.list().row() else { return };
        match Make::of(self.view, row, tap) {
            Ok(make) => self.overlay = Some(Overlay::Confirm(make)),
            Err(why) => self.message = Some((why.into(), true)),
        }
    }

    fn confirm_key(&mut self, code: KeyCode, mut make: Make) -> Option<Effect> {
        match code {
            KeyCode::Enter => {
                self.message = Some(("making it …".into(), false));
                return Some(Effect::Make(make));
            }
            KeyCode::Char('y') if !make.tap => return Some(Effect::Make(make)),
            KeyCode::Esc => return None,
            KeyCode::Char('n' | 'q') if !make.tap => return None,
            KeyCode::Backspace => {
                make.to.pop();
            }
            KeyCode::Char(c) if make.tap && !c.is_control() && make.to.len() < LONGEST => {
                make.to.push(c);
            }
            _ => {}
        }
        self.overlay = Some(Overlay::Confirm(make));
        None
    }
}

/// A text with its last word completed: as far as all proposals agree, else by the first.
fn completed(text: String) -> String {
    let offers = skua_condition::completions(&text);
    let Some(first) = offers.first() else {
        return text;
    };
    let agreed = offers.iter().fold(first.text.as_str(), |agreed, offer| {
        let same = agreed
            .chars()
            .zip(offer.text.chars())
            .take_while(|(a, b)| a == b);
        let bytes: usize = same.map(|(a, _)| a.len_utf8()).sum();
        agreed.get(..bytes).unwrap_or_default()
    });
    let next = skua_condition::completed(&text, agreed);
    match next.len() > text.len() {
        true => next,
        false => skua_condition::completed(&text, &first.text),
    }
}

/// The first line after a key that scrolls; none when the key closes.
fn scrolled(code: KeyCode, from: usize) -> Option<usize> {
    match code {
        KeyCode::Down | KeyCode::Char('j') => Some(from + 1),
        KeyCode::Up | KeyCode::Char('k') => Some(from.saturating_sub(1)),
        KeyCode::PageDown | KeyCode::Char(' ') => Some(from + 10),
        KeyCode::PageUp => Some(from.saturating_sub(10)),
        KeyCode::Home => Some(0),
        KeyCode::Char('y') => Some(from),
        _ => None,
    }
}
