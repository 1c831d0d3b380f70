//! What keys do.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::{
    app::{App, Effect, Overlay},
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
            Some(Overlay::Details { row, from }) => {
                let copied = (key.code == KeyCode::Char('y')).then(|| self.copied(row.to_string()));
                self.overlay = scrolled(key.code, from).map(|from| Overlay::Details { row, from });
                copied
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
                    self.overlay = Some(Overlay::Details { row, from: 0 });
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
        let identity = self.view.identity();
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
            KeyCode::Backspace => {
                text.pop();
            }
            KeyCode::Char(c) if !c.is_control() && text.len() < LONGEST => text.push(c),
            _ => {}
        }
        self.overlay = Some(Overlay::Filter { text });
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
