//! A table: as many columns and rows as fit.

use ratatui::{Frame, layout::Rect, text::Line};
use serde_json::Value;

use crate::{
    columns::{Column, fit},
    list::List,
    text::{shown, width},
    theme::Theme,
};

/// A cell is cut to this share of the table, so that a long name leaves space for others.
const SHARE: usize = 3;
/// Cells are not cut shorter than this, nor left longer than that.
const SHORTEST: usize = 16;
const LONGEST: usize = 44;

/// Lines of a table with its titles.
pub fn lines(
    theme: Theme,
    columns: &[Column],
    hidden: &[usize],
    rows: &[Value],
    room: usize,
) -> Vec<String> {
    let most = (room / SHARE).clamp(SHORTEST, LONGEST);
    let cells: Vec<Vec<String>> = rows
        .iter()
        .map(|row| {
            let cell = |column: &Column| shown(&(column.cell)(row), most, theme.ascii);
            columns.iter().map(cell).collect()
        })
        .collect();
    let mut longest = vec![0; columns.len()];
    for row in &cells {
        for (longest, cell) in longest.iter_mut().zip(row) {
            *longest = width(cell).max(*longest);
        }
    }
    for column in hidden {
        // As if nothing were in it.
        if let Some(longest) = longest.get_mut(*column) {
            *longest = 0;
        }
    }
    let (columns_shown, widths) = fit(columns, &longest, rows.is_empty(), room);
    let line = |cell: &dyn Fn(usize) -> String| {
        let mut line = String::new();
        for &at in &columns_shown {
            let cell = cell(at);
            let padding = " ".repeat(widths[at].saturating_sub(width(&cell)));
            if columns[at].right {
                line += &padding;
                line += &cell;
            } else {
                line += &cell;
                line += &padding;
            }
            line += "  ";
        }
        shown(line.trim_end(), room, theme.ascii)
    };
    let mut lines = vec![line(&|at| columns[at].title.to_owned())];
    lines.extend(cells.iter().map(|row| line(&|at| row[at].clone())));
    lines
}

/// Draws a list, with the chosen row marked.
pub fn draw(frame: &mut Frame<'_>, theme: Theme, columns: &[Column], list: &mut List, area: Rect) {
    list.fit(usize::from(area.height.saturating_sub(1)));
    let end = (list.offset + list.height).min(list.rows.len());
    let rows = &list.rows[list.offset..end];
    list.top = area.y + 1;
    let lines = lines(theme, columns, &list.hidden, rows, usize::from(area.width));
    for (at, line) in lines.into_iter().enumerate() {
        let Ok(down) = u16::try_from(at) else { return };
        let style = match at {
            0 => theme.title(),
            at if list.offset + at - 1 == list.selected => theme.selected(),
            _ => ratatui::style::Style::new(),
        };
        let row = Rect {
            y: area.y + down,
            height: 1,
            ..area
        };
        if row.y >= area.bottom() {
            return;
        }
        frame.render_widget(Line::raw(line), row);
        // The complete row, not only its text.
        frame.buffer_mut().set_style(row, style);
    }
}
