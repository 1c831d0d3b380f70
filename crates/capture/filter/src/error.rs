//! What can be wrong with a filter expression, in one line.

use std::fmt;

use thiserror::Error;

use crate::classic::ProgramError;

/// Characters of the expression that a message shows.
const SHOWN: usize = 120;

/// Where in an expression something is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position {
    /// Column in characters, from 1; one past the last for what is missing at the end.
    pub column: usize,
    /// The word or sign that is wrong; empty at the end of the expression.
    pub token: String,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.token.is_empty() {
            write!(f, "at column {}, at the end", self.column)
        } else {
            write!(
                f,
                "at column {}, near '{}'",
                self.column,
                excerpt(&self.token, 0)
            )
        }
    }
}

/// The reason with its place; the token only if the reason does not name it already.
fn placed(reason: &str, place: Option<&Position>) -> String {
    match place {
        None => reason.to_owned(),
        Some(place) if names(reason, &place.token) => {
            format!("{reason} at column {}", place.column)
        }
        Some(place) => format!("{reason} {place}"),
    }
}

fn meant(suggestion: Option<&str>, place: Option<&Position>) -> String {
    // What was changed is mostly near the place.
    let column = place.map_or(0, |place| place.column);
    suggestion.map_or_else(String::new, |other| {
        format!("; did you mean '{}'?", excerpt(other, column))
    })
}

fn names(reason: &str, token: &str) -> bool {
    let number = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_digit());
    reason.contains(&format!("'{token}'"))
        || reason.contains(&format!("\"{token}\""))
        || number && reason.split(' ').any(|word| word == token)
}

/// Why an expression is no filter. Every message is one line.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum FilterError {
    /// libpcap rejects the expression.
    #[error(
        "filter '{}': {}{}",
        excerpt(expression, place.as_ref().map_or(0, |place| place.column)),
        placed(reason, place.as_ref()),
        meant(suggestion.as_deref(), place.as_ref())
    )]
    Invalid {
        /// The expression.
        expression: String,
        /// libpcap's reason.
        reason: String,
        /// Where, if that could be found out.
        place: Option<Position>,
        /// A similar expression that libpcap takes.
        suggestion: Option<String>,
    },
    /// The expression needs something that is not in the packet.
    #[error(
        "filter '{}': 'inbound', 'outbound' and other things that are not in the packet cannot be \
         filtered on; every flow has both directions",
        excerpt(expression, 0)
    )]
    NotInPacket {
        /// The expression.
        expression: String,
    },
    /// The expression is larger than [`crate::MAX_EXPRESSION`], [`crate::MAX_WORDS`] or
    /// [`crate::MAX_RAW_INSTRUCTIONS`] allow.
    #[error(
        "filter '{}': the expression is too long: {size} {unit}, at most {limit}; \
         ranges and networks are shorter than lists",
        excerpt(expression, 0)
    )]
    TooBig {
        /// The expression.
        expression: String,
        /// Its size.
        size: usize,
        /// The largest size.
        limit: usize,
        /// What was counted.
        unit: &'static str,
    },
    /// Classic BPF that is not a program.
    #[error("filter program: {0}")]
    Program(#[from] ProgramError),
    /// libpcap could not be used at all.
    #[error("libpcap: {0}")]
    Library(String),
}

/// The part of an expression around a column, on one line.
fn excerpt(expression: &str, column: usize) -> String {
    let length = expression.chars().count();
    let start = if length <= SHOWN {
        0
    } else {
        column.saturating_sub(SHOWN / 2)
    };
    let mut shown: String = expression.chars().skip(start).take(SHOWN).collect();
    if start > 0 {
        shown.insert(0, '…');
    }
    if start + SHOWN < length {
        shown.push('…');
    }
    shown.chars().flat_map(printable).collect()
}

/// A character as it is, control characters (line ends, terminal escapes) escaped.
fn printable(character: char) -> Vec<char> {
    if character.is_control() {
        character.escape_default().collect()
    } else {
        vec![character]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_the_part_around_the_column_on_one_line() {
        let long = format!("{}\nX{}", "a".repeat(300), "b".repeat(300));
        let shown = excerpt(&long, 301);
        assert!(shown.starts_with("…a") && shown.ends_with("b…"), "{shown}");
        assert!(shown.contains("a\\nXb"), "{shown}");
        assert_eq!(excerpt("tcp \x1b[2J", 0), "tcp \\u{1b}[2J");
    }
}
