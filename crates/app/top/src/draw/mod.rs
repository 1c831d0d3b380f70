//! Draws the state: a line of views, a line of sums, the view, a line of keys.

mod overlay;
mod overview;
mod table;

use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    style::{Modifier, Style},
    text::{Line, Span},
};

use crate::{
    app::{App, Overlay, lost},
    format::{bit_rate, count},
    text::shown,
    view::View,
};

/// Draws the complete view.
pub fn draw(frame: &mut Frame<'_>, app: &mut App) {
    app.prepare();
    let areas = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Min(0),
        Constraint::Length(1),
    ]);
    let [tabs, sums, body, keys] = areas.areas(frame.area());
    frame.render_widget(tab_line(app), tabs);
    frame.render_widget(sum_line(app, usize::from(sums.width)), sums);
    match app.view {
        View::Overview => overview::draw(frame, app, body),
        _ => list(frame, app, body),
    }
    if app.unreachable.is_some() {
        // The data is outdated.
        frame.buffer_mut().set_style(body, app.theme.faint());
    }
    overlay::draw(frame, app, body);
    frame.render_widget(key_line(app, usize::from(keys.width)), keys);
}

fn tab_line(app: &App) -> Line<'static> {
    let mut spans = Vec::new();
    for (at, view) in View::ALL.into_iter().enumerate() {
        let name = format!("{} {}", at + 1, view.name());
        let style = match view == app.view {
            true => app.theme.selected(),
            false => Style::new(),
        };
        spans.push(Span::styled(name, style));
        spans.push(Span::raw("  "));
    }
    Line::from(spans)
}

fn sum_line(app: &App, width: usize) -> Line<'static> {
    let (theme, dot) = (app.theme, app.theme.dot());
    let address = shown(&app.address, width / 3, theme.ascii);
    let mut spans = vec![Span::styled(address, theme.title())];
    if let Some(why) = &app.unreachable {
        let text = format!("{dot}unreachable, trying again: {why}");
        spans.push(Span::styled(shown(&text, width, theme.ascii), theme.bad()));
        return Line::from(spans);
    }
    let latest = |rates: &std::collections::VecDeque<f64>| rates.back().copied();
    if let (Some(bits), Some(packets)) = (latest(&app.rates.bits), latest(&app.rates.packets)) {
        spans.push(Span::raw(format!(
            "{dot}{}{dot}{} packets/s",
            bit_rate(bits),
            count(packets.round() as u64)
        )));
    }
    let summary = &app.status["summary"];
    if let Some(flows) = summary["flows"].as_u64() {
        spans.push(Span::raw(format!("{dot}{} flows", count(flows))));
        spans.push(match lost(&app.status) {
            0 => Span::raw(format!("{dot}lost 0")),
            lost => Span::styled(format!("{dot}lost {}", count(lost)), theme.bad()),
        });
    }
    if app.frozen {
        let style = theme.title().add_modifier(Modifier::REVERSED);
        spans.push(Span::raw(" "));
        spans.push(Span::styled(" FROZEN ", style));
    }
    Line::from(spans)
}

fn key_line(app: &App, width: usize) -> Line<'static> {
    let theme = app.theme;
    if let Some(Overlay::Filter { text }) = &app.overlay {
        // The end is where one writes.
        let skip = text
            .chars()
            .count()
            .saturating_sub(width.saturating_sub(12));
        let text: String = text.chars().skip(skip).collect();
        return Line::from(vec![
            Span::styled("filter: ", theme.title()),
            Span::raw(shown(&text, width.saturating_sub(10), theme.ascii)),
            Span::styled(" ", theme.selected()),
        ]);
    }
    if let Some((message, bad)) = &app.message {
        let style = if *bad { theme.bad() } else { theme.good() };
        return Line::styled(shown(message, width, theme.ascii), style);
    }
    let keys = match app.overlay {
        Some(Overlay::Confirm(_)) => "Enter makes it  Esc does not",
        Some(Overlay::Columns { .. }) => {
            "arrows choose  space shows or hides  any other key closes"
        }
        Some(Overlay::Details { .. }) => "arrows scroll  J raw JSON  y copy  any other key closes",
        Some(_) => "arrows scroll  y copy  any other key closes",
        None => match app.view {
            View::Topology => {
                "right open  left close  Enter details  / query  c capture  t tap  ? help  q quit"
            }
            View::Services => {
                "s sort  r reverse  / filter  d dependencies  Enter details  ? help  q quit"
            }
            View::Events => "/ filter  Enter details  y copy  space freeze  ? help  q quit",
            View::Overview => {
                "1-7 views  / filter  Enter details  c capture  space freeze  ? help  q quit"
            }
            View::Flows => {
                "s sort  / filter  b sum up  e ended  Enter details  c capture  ? help  q quit"
            }
            _ => "s sort  r reverse  / filter  Enter details  c capture  t tap  ? help  q quit",
        },
    };
    Line::styled(shown(keys, width, theme.ascii), theme.faint())
}

/// A list with a line about it.
fn list(frame: &mut Frame<'_>, app: &mut App, area: Rect) {
    let theme = app.theme;
    let [about, body] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(area);
    let columns = app.columns();
    let list = app.list();
    let mut spans = Vec::new();
    if let Some(order) = app.view.sorts().get(list.sort) {
        spans.push(Span::raw(format!(
            "by {order} {}",
            theme.order(list.reversed)
        )));
        spans.push(Span::raw(theme.dot()));
    }
    spans.push(Span::raw(match list.rows.len() {
        0 => "no rows".to_owned(),
        _ => format!("row {} of {}", list.base + list.selected + 1, list.all()),
    }));
    if app.view == View::Flows && !app.fleet {
        if let Some(by) = app.group {
            spans.push(Span::raw(format!("{}summed up by {by}", theme.dot())));
        }
        if !app.ended {
            spans.push(Span::raw(format!("{}without ended", theme.dot())));
        }
    }
    if !list.filter.is_empty() {
        let text = format!("{}filter: {}", theme.dot(), list.filter);
        let text = shown(&text, usize::from(about.width), theme.ascii);
        spans.push(Span::styled(text, theme.accent()));
    }
    frame.render_widget(Line::from(spans), about);
    if let Some(error) = &list.error {
        overlay::words(frame, body, error, theme.bad(), theme);
        return;
    }
    if list.rows.is_empty() {
        let text = match (app.view, list.answered) {
            (View::Events, _) => "nothing has changed since `skua top` started",
            (View::Flows, true) if !list.filter.is_empty() && !app.fleet => {
                "nothing matches; conditions: process:curl port:443 rate>1Mbit \"text\""
            }
            (_, true) => "nothing there",
            (_, false) => "asking",
        };
        frame.render_widget(Line::styled(text, theme.faint()), body);
        app.list_mut()
            .fit(usize::from(body.height.saturating_sub(1)));
        return;
    }
    table::draw(frame, app.theme, columns, app.list_mut(), body);
}
