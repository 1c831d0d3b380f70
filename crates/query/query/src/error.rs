//! Errors, with their position in the query and a valid alternative.

use std::fmt::Write;

/// A part of the query, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Span {
    /// First byte.
    pub start: usize,
    /// Byte after the last.
    pub end: usize,
}

impl Span {
    /// From the start of one to the end of the other.
    pub fn to(self, other: Self) -> Self {
        Self {
            start: self.start,
            end: other.end,
        }
    }
}

/// Who has to correct the error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// The query cannot be read, or makes no sense.
    Query,
    /// The query asks for more than is allowed.
    Limit,
    /// The data is not recorded, or not available here.
    Unavailable,
    /// The client has cancelled the query.
    Cancelled,
}

/// An error with its position in the query.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct QueryError {
    /// Who has to correct it.
    pub class: Class,
    /// The message.
    pub message: String,
    /// The position, if it has one.
    pub span: Option<Span>,
    /// What would be right.
    pub help: Option<String>,
}

impl QueryError {
    /// A mistake in the query.
    pub fn at(span: Span, message: impl Into<String>) -> Self {
        Self {
            class: Class::Query,
            message: message.into(),
            span: Some(span),
            help: None,
        }
    }

    /// An error of the query as a whole.
    pub fn new(class: Class, message: impl Into<String>) -> Self {
        Self {
            class,
            message: message.into(),
            span: None,
            help: None,
        }
    }

    /// With a word on what would be right.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Adds a position, if it has none yet.
    #[must_use]
    pub fn located(mut self, span: Span) -> Self {
        self.span.get_or_insert(span);
        self
    }

    /// For people: the message, the part of `query` with a line of carets below, the help.
    pub fn render(&self, query: &str) -> String {
        let mut text = self.message.clone();
        if let Some(span) = self.span {
            let (line, before, marked) = excerpt(query, span);
            let carets = "^".repeat(marked.max(1));
            let _ = write!(text, "\n  {line}\n  {}{carets}", " ".repeat(before));
        }
        if let Some(help) = &self.help {
            let _ = write!(text, "\n{help}");
        }
        text
    }
}

/// Most characters of a query that are shown.
const WIDTH: usize = 76;

/// The line of `query` in which `span` begins, cut to fit, with how many characters are before the
/// span and in it.
fn excerpt(query: &str, span: Span) -> (String, usize, usize) {
    let mut start = span.start.min(query.len());
    while !query.is_char_boundary(start) {
        start -= 1;
    }
    let line_start = query[..start].rfind('\n').map_or(0, |newline| newline + 1);
    let line_end = query[start..]
        .find('\n')
        .map_or(query.len(), |newline| start + newline);
    let mut end = span.end.clamp(start, line_end);
    while !query.is_char_boundary(end) {
        end -= 1;
    }
    // One column for each character: what moves the cursor is shown as a space.
    let plain = |text: &str| -> Vec<char> {
        text.chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect()
    };
    let line = plain(&query[line_start..line_end]);
    let before = query[line_start..start].chars().count();
    let marked = query[start..end].chars().count();
    if line.len() <= WIDTH {
        return (line.into_iter().collect(), before, marked);
    }
    let from = before
        .saturating_sub(WIDTH / 2)
        .min(line.len().saturating_sub(WIDTH));
    let to = (from + WIDTH).min(line.len());
    let (left, right) = (
        if from > 0 { "…" } else { "" },
        if to < line.len() { "…" } else { "" },
    );
    let shown: String = line[from..to].iter().collect();
    let shift = usize::from(from > 0);
    (
        format!("{left}{shown}{right}"),
        before - from + shift,
        marked.min(to - before),
    )
}

/// The most similar name in `known`.
pub(crate) fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wanted = name.to_ascii_lowercase();
    if wanted.len() > 64 {
        return None;
    }
    let distances = known.into_iter().map(|candidate| {
        let lower = candidate.to_ascii_lowercase();
        (strsim::damerau_levenshtein(&wanted, &lower), candidate)
    });
    let (distance, best) = distances.min_by_key(|(distance, _)| *distance)?;
    let near = distance <= (wanted.len() / 3).max(1) && distance < wanted.len();
    near.then_some(best)
}
