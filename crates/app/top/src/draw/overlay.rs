//! Windows over the view: help, details, a capture or tap to make.

use ratatui::{
    Frame,
    layout::Rect,
    style::Style,
    symbols::border,
    text::Line,
    widgets::{Block, Clear, Paragraph, Wrap},
};
use serde_json::Value;

use crate::{
    app::{App, Overlay},
    make::{MINUTES, Make},
    readable::readable,
    text::shown,
    theme::Theme,
};

/// Most lines of details: enough for any record.
const LINES: usize = 2000;
/// Longest value, in columns.
const VALUE: usize = 4096;

const HELP: &str = "\
1-7, Tab      views, as in the first line
arrows, j k   choose a row; PageUp, PageDown, Home (g), End (G)
Enter         details of the row
s, S          next and previous order; r reverses it
/             filter: for flows process:curl port:443 rate>1Mbit or a
              pcap expression, Tab completes; for sockets and services words
              like process=curl port=443; for the topology a Gremlin query;
              for the others a part of a line
Esc           remove the filter
e             flows: show those that have ended, too
b             flows: sums by process, service, container, country, AS
C             choose columns
x, X          write the rows to a file, as JSON or CSV
space         freeze and continue
y             copy the row as JSON (OSC 52)
c             capture only this flow, socket, interface or node; asks first
t             tap only this: copy its packets to a monitor; asks first
right, left   open and close a node of the topology
d             services: what listens, or dependencies
mouse         click: view, row; a second click: details; wheel: scroll
?             this help
q, Ctrl-C     quit";

const ASCII: border::Set<'static> = border::Set {
    top_left: "+",
    top_right: "+",
    bottom_left: "+",
    bottom_right: "+",
    vertical_left: "|",
    vertical_right: "|",
    horizontal_top: "-",
    horizontal_bottom: "-",
};

/// Draws text, wrapped at words.
pub fn words(frame: &mut Frame<'_>, area: Rect, text: &str, style: Style, theme: Theme) {
    let lines: Vec<_> = text
        .lines()
        .take(usize::from(area.height))
        .map(|line| Line::raw(shown(line, VALUE, theme.ascii)))
        .collect();
    let paragraph = Paragraph::new(lines)
        .style(style)
        .wrap(Wrap { trim: false });
    frame.render_widget(paragraph, area);
}

/// A box with a title over an area; returns its inner area.
fn window(frame: &mut Frame<'_>, theme: Theme, title: &str, area: Rect) -> Rect {
    frame.render_widget(Clear, area);
    let set = if theme.ascii { ASCII } else { border::PLAIN };
    let block = Block::bordered()
        .border_set(set)
        .title(format!(" {title} "));
    let inside = block.inner(area);
    frame.render_widget(block, area);
    inside
}

/// The centre of an area, of this size if it fits.
fn middle(area: Rect, width: u16, height: u16) -> Rect {
    let (width, height) = (width.min(area.width), height.min(area.height));
    Rect {
        x: area.x + (area.width - width) / 2,
        y: area.y + (area.height - height) / 2,
        width,
        height,
    }
}

/// Fields of a record, one a line, those inside others with dots.
fn fields(value: &Value, name: &str, lines: &mut Vec<(String, String)>) {
    if lines.len() >= LINES {
        return;
    }
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let dot = if name.is_empty() { "" } else { "." };
                fields(value, &format!("{name}{dot}{key}"), lines);
            }
        }
        Value::Array(items) if items.iter().any(Value::is_object) => {
            for (at, item) in items.iter().enumerate() {
                fields(item, &format!("{name}.{at}"), lines);
            }
        }
        Value::Array(items) => {
            let items = items.iter().take(LINES).map(|item| match item {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            });
            lines.push((name.to_owned(), items.collect::<Vec<_>>().join(" ")));
        }
        Value::String(text) => lines.push((name.to_owned(), text.clone())),
        other => lines.push((name.to_owned(), other.to_string())),
    }
}

/// Draws the overlay of an area.
pub fn draw(frame: &mut Frame<'_>, app: &mut App, area: Rect) {
    let theme = app.theme;
    let filter_help = app.view.filter_help(app.fleet);
    let conditions = app.takes_conditions();
    let columns = app.columns();
    let hidden = app.list().hidden.clone();
    let zone = app.zone;
    match &mut app.overlay {
        None => {}
        Some(Overlay::Filter { text }) => {
            let offers = match conditions {
                true if !text.is_empty() => skua_condition::completions(text),
                _ => Vec::new(),
            };
            let offered: Vec<&str> = offers.iter().map(|offer| offer.text.as_str()).collect();
            let filter_help = match &offers[..] {
                [] => filter_help.to_owned(),
                [one] if !one.meaning.is_empty() => format!("{}  {}", one.text, one.meaning),
                _ => offered.join("  "),
            };
            let line = Rect {
                y: area.bottom().saturating_sub(1),
                height: area.height.min(1),
                ..area
            };
            frame.render_widget(Clear, line);
            let text = shown(&filter_help, usize::from(area.width), theme.ascii);
            frame.render_widget(Line::styled(text, theme.faint()), line);
        }
        Some(Overlay::Help { from }) => {
            let lines: Vec<_> = HELP.lines().collect();
            let height = u16::try_from(lines.len() + 2).unwrap_or(u16::MAX);
            let inside = window(frame, theme, "keys", middle(area, 78, height));
            *from = (*from).min(lines.len().saturating_sub(usize::from(inside.height)));
            let rest: Vec<_> = lines[*from..].iter().map(|line| Line::raw(*line)).collect();
            frame.render_widget(Paragraph::new(rest), inside);
        }
        Some(Overlay::Columns { at }) => {
            let height = u16::try_from(columns.len() + 2).unwrap_or(u16::MAX);
            let inside = window(frame, theme, "columns", middle(area, 40, height));
            *at = (*at).min(columns.len().saturating_sub(1));
            let from = (*at + 1).saturating_sub(usize::from(inside.height));
            let lines = columns
                .iter()
                .enumerate()
                .skip(from)
                .map(|(number, column)| {
                    let mark = if hidden.contains(&number) {
                        "[ ]"
                    } else {
                        "[x]"
                    };
                    let style = match number == *at {
                        true => theme.selected(),
                        false => Style::new(),
                    };
                    Line::styled(format!("{mark} {}", column.title), style)
                });
            frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()), inside);
        }
        Some(Overlay::Details {
            row,
            from,
            raw: true,
        }) => {
            let inside = window(frame, theme, "details as JSON", area);
            let text = serde_json::to_string_pretty(row).unwrap_or_default();
            let lines: Vec<_> = text.lines().take(LINES).collect();
            *from = (*from).min(lines.len().saturating_sub(1));
            let rest = lines[*from..].iter().take(usize::from(inside.height));
            let rest = rest.map(|line| Line::raw(shown(line, VALUE, theme.ascii)));
            frame.render_widget(Paragraph::new(rest.collect::<Vec<_>>()), inside);
        }
        Some(Overlay::Details { row, from, .. }) => {
            let inside = window(frame, theme, "details", area);
            let mut all = Vec::new();
            fields(row, "", &mut all);
            for (name, value) in &mut all {
                *value = readable(name, value, zone);
            }
            let names = all.iter().map(|(name, _)| name.chars().count());
            let longest = names.max().unwrap_or(0).min(usize::from(inside.width) / 2);
            *from = (*from).min(all.len().saturating_sub(1));
            let lines: Vec<_> = all[*from..]
                .iter()
                .take(usize::from(inside.height))
                .map(|(name, value)| {
                    let name = shown(name, longest, theme.ascii);
                    let value = shown(value, VALUE, theme.ascii);
                    Line::raw(format!("{name:<longest$}  {value}"))
                })
                .collect();
            let paragraph = Paragraph::new(lines).wrap(Wrap { trim: false });
            frame.render_widget(paragraph, inside);
        }
        Some(Overlay::Confirm(make)) => confirm(frame, theme, make, area),
    }
}

fn confirm(frame: &mut Frame<'_>, theme: Theme, make: &Make, area: Rect) {
    let title = if make.tap {
        "make a tap?"
    } else {
        "make a capture?"
    };
    let width = area.width.saturating_sub(4).min(100);
    let inside = window(frame, theme, title, middle(area, width, 14));
    let what = match make.tap {
        true => "Skua copies its packets from now on to:",
        false => "Skua captures its flows from now on, beside what it captures already.",
    };
    let mut lines = vec![Line::raw(what)];
    if make.tap {
        let to = shown(
            &make.to,
            usize::from(inside.width.saturating_sub(3)),
            theme.ascii,
        );
        lines.push(Line::styled(format!("  {to}_"), theme.accent()));
        lines.push(Line::styled(
            "(mon0, mon0@NAMESPACE, vxlan://192.0.2.9/42, or stream for `skua tap watch`)",
            theme.faint(),
        ));
    }
    lines.push(Line::raw(format!(
        "It ends by itself after {MINUTES} minutes. The same as a command:"
    )));
    lines.push(Line::raw(""));
    lines.push(Line::raw(shown(&make.command(), VALUE, theme.ascii)));
    let paragraph = Paragraph::new(lines).wrap(Wrap { trim: false });
    frame.render_widget(paragraph, inside);
}
