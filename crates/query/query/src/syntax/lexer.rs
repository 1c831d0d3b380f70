//! Tokens of a query.

use crate::error::{QueryError, Span};

#[derive(Clone, PartialEq, Debug)]
pub enum Token<'a> {
    Name(&'a str),
    Str(String),
    Int(i64),
    Float(f64),
    Open,
    Close,
    Comma,
    Dot,
    End,
}

impl Token<'_> {
    /// For messages.
    pub fn describe(&self) -> String {
        match self {
            Self::Name(name) => format!("`{name}`"),
            Self::Str(_) => "a text".to_owned(),
            Self::Int(_) | Self::Float(_) => "a number".to_owned(),
            Self::Open => "`(`".to_owned(),
            Self::Close => "`)`".to_owned(),
            Self::Comma => "`,`".to_owned(),
            Self::Dot => "`.`".to_owned(),
            Self::End => "the end".to_owned(),
        }
    }
}

pub struct Lexer<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Lexer<'a> {
    pub fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    pub fn next(&mut self) -> Result<(Token<'a>, Span), QueryError> {
        let rest = &self.text[self.at..];
        let start = self.at + rest.len() - rest.trim_start().len();
        let rest = &self.text[start..];
        let Some(first) = rest.chars().next() else {
            self.at = self.text.len();
            return Ok((Token::End, Span { start, end: start }));
        };
        let (token, length) = match first {
            '(' => (Token::Open, 1),
            ')' => (Token::Close, 1),
            ',' => (Token::Comma, 1),
            '.' => (Token::Dot, 1),
            '"' | '\'' => {
                let (text, length) = quoted(rest, first, start)?;
                (Token::Str(text), length)
            }
            '0'..='9' | '-' | '+' => number(rest, start)?,
            c if c.is_ascii_alphabetic() || c == '_' => {
                let name = |c: char| !(c.is_ascii_alphanumeric() || c == '_');
                let length = rest.find(name).unwrap_or(rest.len());
                (Token::Name(&rest[..length]), length)
            }
            other => {
                let span = Span {
                    start,
                    end: start + other.len_utf8(),
                };
                let error = QueryError::at(span, format!("{other:?} has no meaning here"));
                return Err(match other {
                    '‘' | '’' | '“' | '”' | '`' => error.help("write text in \" or '"),
                    '=' | '!' | '<' | '>' => {
                        error.help("comparisons are predicates, as in Has(\"MTU\", Gt(1500))")
                    }
                    '@' => error.help("keys are texts, as in \"@Host\""),
                    _ => error,
                });
            }
        };
        self.at = start + length;
        Ok((
            token,
            Span {
                start,
                end: self.at,
            },
        ))
    }
}

/// Text in quotes. A backslash only escapes the quote sign; any other is literal, so that
/// expressions like `eth\d` need no doubling.
fn quoted(rest: &str, quote: char, start: usize) -> Result<(String, usize), QueryError> {
    let mut text = String::new();
    let mut chars = rest.char_indices().skip(1).peekable();
    while let Some((at, c)) = chars.next() {
        if c == quote {
            return Ok((text, at + 1));
        }
        match chars.peek() {
            Some((_, next)) if c == '\\' && *next == quote => {
                text.push(quote);
                chars.next();
            }
            _ => text.push(c),
        }
    }
    let span = Span {
        start,
        end: start + rest.len(),
    };
    Err(QueryError::at(
        span,
        format!("this text has no closing {quote}"),
    ))
}

fn number(rest: &str, start: usize) -> Result<(Token<'static>, usize), QueryError> {
    let sign = usize::from(rest.starts_with(['-', '+']));
    let bytes = rest.as_bytes();
    let mut end = sign;
    while bytes.get(end).is_some_and(u8::is_ascii_digit) {
        end += 1;
    }
    let whole = end;
    if bytes.get(end) == Some(&b'.') && bytes.get(end + 1).is_some_and(u8::is_ascii_digit) {
        end += 1;
        while bytes.get(end).is_some_and(u8::is_ascii_digit) {
            end += 1;
        }
    }
    let word = |c: char| !(c.is_ascii_alphanumeric() || c == '_');
    let tail = rest[end..].find(word).unwrap_or(rest.len() - end);
    let text = &rest[..end];
    let span = Span {
        start,
        end: start + end + tail,
    };
    if whole == sign || tail > 0 {
        let error = QueryError::at(span, format!("`{}` is no number", &rest[..end + tail]));
        return Err(error.help("times and addresses are texts, as in \"-5m\""));
    }
    let digits = text.strip_prefix('+').unwrap_or(text);
    let token = if end == whole {
        digits.parse().ok().map(Token::Int)
    } else {
        digits
            .parse()
            .ok()
            .filter(|float: &f64| float.is_finite())
            .map(Token::Float)
    };
    match token {
        Some(token) => Ok((token, end)),
        None => Err(QueryError::at(span, format!("`{text}` is out of range"))),
    }
}
