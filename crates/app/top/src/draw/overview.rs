//! The overview.

use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    style::Style,
    text::{Line, Span},
};
use serde_json::Value;

use super::{overlay, table};
use crate::{
    app::App,
    columns::{FLOW_COLUMNS, PROCESSES},
    format::{bit_rate, count},
    text::shown,
    theme::Theme,
};

/// Columns for the scale of a graph.
const SCALE: usize = 16;
/// Lines on health at most.
const HEALTH: usize = 6;

pub fn draw(frame: &mut Frame<'_>, app: &mut App, area: Rect) {
    let health = health(app, usize::from(area.width));
    let lines = u16::try_from(health.len()).unwrap_or(u16::MAX);
    let areas = Layout::vertical([
        Constraint::Length(3 * graph_height(area)),
        Constraint::Length(1),
        Constraint::Fill(3),
        Constraint::Fill(2),
        Constraint::Length(lines),
    ]);
    let [rates, _, flows, processes, below] = areas.areas(area);
    draw_rates(frame, app, rates);
    draw_flows(frame, app, flows);
    let room = usize::from(processes.height.saturating_sub(2));
    let rows = &app.processes[..app.processes.len().min(room)];
    title(frame, app.theme, "TOP PROCESSES", processes);
    let rows = table::lines(
        app.theme,
        &PROCESSES,
        &[],
        rows,
        usize::from(processes.width),
    );
    let style = |at| match at {
        0 => app.theme.faint(),
        _ => Style::new(),
    };
    for (at, line) in rows.into_iter().enumerate() {
        put(frame, Line::styled(line, style(at)), processes, at + 1);
    }
    for (at, line) in health.into_iter().enumerate() {
        put(frame, line, below, at);
    }
}

/// Draws a line of an area, if the area is high enough.
fn put(frame: &mut Frame<'_>, line: Line<'_>, area: Rect, at: usize) {
    let Ok(at) = u16::try_from(at) else { return };
    if at < area.height {
        let row = Rect {
            y: area.y + at,
            height: 1,
            ..area
        };
        frame.render_widget(line, row);
    }
}

fn title(frame: &mut Frame<'_>, theme: Theme, title: &'static str, area: Rect) {
    put(frame, Line::styled(title, theme.title()), area, 0);
}

/// Lines of a graph: more where the terminal is high.
fn graph_height(area: Rect) -> u16 {
    match area.height {
        0..36 => 1,
        36..60 => 2,
        _ => 4,
    }
}

fn draw_rates(frame: &mut Frame<'_>, app: &App, area: Rect) {
    let rates = [
        ("bits", &app.rates.bits, true),
        ("packets", &app.rates.packets, false),
        ("new flows", &app.rates.flows, false),
    ];
    let height = usize::from(area.height / 3).max(1);
    for (at, (name, numbers, bits)) in rates.into_iter().enumerate() {
        let shown = |rate: f64| match bits {
            true => bit_rate(rate),
            false => format!("{}/s", count(rate.round() as u64)),
        };
        let now = numbers
            .back()
            .map_or_else(|| "-".to_owned(), |rate| shown(*rate));
        let head = format!("{name:<10}{now:>12}  ");
        let room = usize::from(area.width).saturating_sub(head.len() + SCALE);
        let most = numbers.iter().rev().take(room).copied().fold(0.0, f64::max);
        let graph = app.theme.graph(numbers.iter().copied(), room, height);
        for (line, bars) in graph.into_iter().enumerate() {
            let (head, scale) = match line {
                0 if most > 0.0 => (head.clone(), format!(" max {}", shown(most))),
                0 => (head.clone(), String::new()),
                _ => (" ".repeat(head.len()), String::new()),
            };
            let line_of_area = at * height + line;
            let spans = vec![
                Span::raw(head),
                Span::styled(bars, app.theme.accent()),
                Span::styled(scale, app.theme.faint()),
            ];
            put(frame, Line::from(spans), area, line_of_area);
        }
    }
}

fn draw_flows(frame: &mut Frame<'_>, app: &mut App, area: Rect) {
    let theme = app.theme;
    let filter = &app.list().filter;
    let text = match filter.is_empty() {
        true if app.ended => "TOP FLOWS".to_owned(),
        true => "TOP FLOWS THAT GO ON".to_owned(),
        false => format!("TOP FLOWS{}filter: {filter}", theme.dot()),
    };
    let text = shown(&text, usize::from(area.width), theme.ascii);
    put(frame, Line::styled(text, theme.title()), area, 0);
    let body = Rect {
        y: area.y + 1,
        height: area.height.saturating_sub(1),
        ..area
    };
    match app.list().error.clone() {
        Some(error) => overlay::words(frame, body, &error, theme.bad(), theme),
        None => table::draw(frame, theme, &FLOW_COLUMNS, app.list_mut(), body),
    }
}

/// Losses, and remedies.
fn health(app: &App, width: usize) -> Vec<Line<'static>> {
    let theme = app.theme;
    let status = &app.status;
    if status.is_null() {
        return vec![Line::styled("HEALTH", theme.title())];
    }
    let summary = &status["summary"];
    let parts = |of: &Value| -> Vec<String> {
        let causes = of.as_object().into_iter().flatten();
        let causes = causes.map(|(cause, sum)| {
            let packets = sum["packets"].as_u64().or(sum.as_u64()).unwrap_or(0);
            (cause, packets)
        });
        causes
            .filter(|(_, packets)| *packets > 0)
            .map(|(cause, packets)| format!("{cause} {}", count(packets)))
            .collect()
    };
    let mut lines = vec![Line::styled("HEALTH", theme.title())];
    let mut say = |text: String, style: Style| {
        if lines.len() < HEALTH {
            lines.push(Line::styled(shown(&text, width, theme.ascii), style));
        }
    };
    let mut lost = parts(&summary["lost"]);
    lost.extend(
        parts(&summary["sockets"]["lost"])
            .iter()
            .map(|part| format!("sockets: {part}")),
    );
    if summary["not_kept"]["flows"].as_u64().unwrap_or(0) > 0 {
        lost.push(format!("flows evicted {}", summary["not_kept"]["flows"]));
    }
    match lost.is_empty() {
        true => say("nothing is lost".into(), theme.good()),
        false => say(format!("lost: {}", lost.join(", ")), theme.bad()),
    }
    let table = &summary["table"];
    if let (Some(live), Some(most)) = (table["live"].as_u64(), table["max_entries"].as_u64())
        && most > 0
    {
        say(
            format!(
                "table: {} of {} entries{}{} drains, {} under pressure",
                count(live),
                count(most),
                theme.dot(),
                summary["drains"],
                summary["drains_under_pressure"]
            ),
            Style::new(),
        );
    }
    let left_out = parts(&summary["left_out"]);
    if !left_out.is_empty() {
        say(format!("left out: {}", left_out.join(", ")), Style::new());
    }
    for advice in status["advice"].as_array().into_iter().flatten() {
        say(advice.as_str().unwrap_or_default().to_owned(), theme.bad());
    }
    lines
}
