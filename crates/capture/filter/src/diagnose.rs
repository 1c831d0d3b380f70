//! Finds the error in an expression. libpcap says only "syntax error".

use std::time::{Duration, Instant};

use pcap::{Capture, Dead};

use crate::error::{FilterError, Position};
use crate::filter::compile_with;
use crate::suggest;
use crate::token::{Token, tokens};

/// Limits the repeated compilations, which may resolve names by DNS.
const PATIENCE: Duration = Duration::from_millis(500);

/// Compiles variants of an expression until the time is over.
pub(crate) struct Attempts<'a> {
    library: &'a Capture<Dead>,
    until: Instant,
}

impl Attempts<'_> {
    /// libpcap's reason against the expression, `Ok` if there is none; `None`: out of time.
    pub(crate) fn compile(&self, expression: &str) -> Option<Result<(), String>> {
        (Instant::now() < self.until)
            .then(|| compile_with(self.library, expression, false).map(|_| ()))
    }
}

/// Makes an error of libpcap's reason: with the place, and with an expression that would do.
pub(crate) fn explain(library: &Capture<Dead>, expression: &str, reason: &str) -> FilterError {
    let attempts = Attempts {
        library,
        until: Instant::now() + PATIENCE,
    };
    let reason = reason
        .trim()
        .trim_start_matches("can't parse filter expression: ");
    let tokens = tokens(expression);
    let wrong = if is_syntax(reason) {
        first_unexpected(&attempts, expression, &tokens)
    } else {
        named_in(reason, &tokens)
            .or_else(|| first_refused(&attempts, expression, &tokens, reason))
            .map(|index| (index, tokens.get(index)))
    };
    let place = wrong.map(|(_, token)| place(expression, token));
    FilterError::Invalid {
        expression: expression.to_owned(),
        suggestion: suggest::suggest(&attempts, &tokens, wrong.map(|(index, _)| index)),
        place,
        reason: reason.replace(['\n', '\r'], " "),
    }
}

fn is_syntax(reason: &str) -> bool {
    reason.contains("syntax error")
}

fn place(expression: &str, token: Option<&Token<'_>>) -> Position {
    let start = token.map_or(expression.trim_end().len(), |token| token.start);
    Position {
        column: expression
            .get(..start)
            .map_or(0, |before| before.chars().count())
            + 1,
        token: token.map_or_else(String::new, |token| token.text.to_owned()),
    }
}

/// The word that libpcap's reason quotes (`unknown port 'foo'`).
fn named_in(reason: &str, tokens: &[Token<'_>]) -> Option<usize> {
    let quoted = reason.split(['\'', '"']).skip(1).step_by(2);
    let numbers = reason
        .split(|sign: char| !sign.is_ascii_digit())
        .filter(|word| word.len() > 1);
    quoted
        .chain(numbers)
        .filter(|word| !word.is_empty())
        .find_map(|word| tokens.iter().position(|token| token.text == word))
}

/// The first token that cannot follow those before it; the number of tokens if something is missing
/// at the end. The more tokens, the less can follow, so it is found by bisection.
fn first_unexpected<'t, 'e>(
    attempts: &Attempts<'_>,
    expression: &str,
    tokens: &'t [Token<'e>],
) -> Option<(usize, Option<&'t Token<'e>>)> {
    let (mut good, mut bad) = (0, tokens.len() + 1);
    while good + 1 < bad {
        let middle = good + (bad - good) / 2;
        if can_go_on(attempts, expression, tokens.get(..middle)?)? {
            good = middle;
        } else {
            bad = middle;
        }
    }
    Some((good, tokens.get(good)))
}

/// The token that triggers libpcap's error.
fn first_refused(
    attempts: &Attempts<'_>,
    expression: &str,
    tokens: &[Token<'_>],
    reason: &str,
) -> Option<usize> {
    // A libpcap error that is not a syntax error appears as soon as a primitive is complete.
    let is_refused = |count: usize| {
        let beginnings = completed(expression, tokens.get(..count)?, &["", "= 1"])?;
        for beginning in beginnings {
            if attempts
                .compile(&beginning)?
                .is_err_and(|other| other.contains(reason))
            {
                return Some(true);
            }
        }
        Some(false)
    };
    let (mut good, mut bad) = (0, tokens.len());
    if !is_refused(bad)? {
        return None;
    }
    while good + 1 < bad {
        let middle = good + (bad - good) / 2;
        if is_refused(middle)? {
            bad = middle;
        } else {
            good = middle;
        }
    }
    Some(good)
}

/// What may complete a beginning of an expression.
const ENDINGS: [&str; 11] = [
    "",
    "1",
    "ip",
    "1.2.3.4",
    "port 1",
    "\\tcp",
    "1-2",
    "1/8",
    "1:2:3:4:5:6",
    "= 1",
    "1 = 1",
];

/// True if some ending makes an expression without syntax error of these tokens. `None`: out of time.
fn can_go_on(attempts: &Attempts<'_>, expression: &str, tokens: &[Token<'_>]) -> Option<bool> {
    if tokens.is_empty() {
        return Some(true);
    }
    for whole in completed(expression, tokens, &ENDINGS)? {
        match attempts.compile(&whole)? {
            Err(reason) if is_syntax(&reason) => {}
            _ => return Some(true),
        }
    }
    Some(false)
}

/// The tokens with each of the endings, brackets closed, and with and without a comparison.
fn completed(expression: &str, tokens: &[Token<'_>], endings: &[&str]) -> Option<Vec<String>> {
    let beginning = expression.get(..tokens.last()?.end())?;
    let mut open = Vec::new();
    for token in tokens {
        match token.text {
            "(" => open.push(')'),
            "[" => open.push(']'),
            ")" | "]" => drop(open.pop()),
            _ => {}
        }
    }
    // Round brackets inside square ones belong to the arithmetic; those outside to the logic.
    let outermost = open
        .iter()
        .position(|&sign| sign == ']')
        .unwrap_or(open.len());
    let square: String = open.iter().skip(outermost).rev().collect();
    let round: String = open.iter().take(outermost).rev().collect();
    let mut completed = Vec::new();
    for ending in endings {
        completed.push(format!("{beginning} {ending}{square}{round}"));
        completed.push(format!("{beginning} {ending}{square} = 1{round}"));
        completed.push(format!("{beginning} {ending}{square}{round} = 1"));
    }
    Some(completed)
}
