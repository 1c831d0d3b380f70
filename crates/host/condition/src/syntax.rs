//! From a text to terms, which all must hold.
//!
//! ```text
//! conditions = term { blank term }
//! term       = [ "-" ] ( key sign values | word | quoted )
//! sign       = ":" | "=" | "!=" | "<" | "<=" | ">" | ">="
//! values     = value { "," value }        any of them
//! value      = word | quoted
//! ```

use crate::ConditionError;

/// Most bytes of a text.
pub const LONGEST: usize = 2_048;
/// Most terms of a text.
pub const TERMS: usize = 32;
/// Most values of a term.
pub const VALUES: usize = 64;

/// How values are compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sign {
    /// Is one of them.
    Is,
    /// Less than it.
    Less,
    /// At most it.
    AtMost,
    /// Greater than it.
    Greater,
    /// At least it.
    AtLeast,
}

/// The longest first.
const SIGNS: [(&str, Sign, bool); 11] = [
    (":<=", Sign::AtMost, false),
    (":>=", Sign::AtLeast, false),
    (":<", Sign::Less, false),
    (":>", Sign::Greater, false),
    ("!=", Sign::Is, true),
    ("<=", Sign::AtMost, false),
    (">=", Sign::AtLeast, false),
    ("<", Sign::Less, false),
    (">", Sign::Greater, false),
    (":", Sign::Is, false),
    ("=", Sign::Is, false),
];

/// A value as it is written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Written {
    /// Without quotes.
    pub text: String,
    /// Where it begins, in bytes.
    pub at: usize,
    /// Whether it was in quotes: then `*` and `-` are themselves.
    pub quoted: bool,
}

/// A term as it is written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Raw {
    /// Whether it must not hold.
    pub negated: bool,
    /// The key in lower case; none when a text is searched.
    pub key: Option<Written>,
    /// How the values are compared.
    pub sign: Sign,
    /// Any of them; at least one.
    pub values: Vec<Written>,
}

/// Characters of keys.
pub(crate) fn is_of_key(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '.')
}

struct Reader<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Reader<'t> {
    fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn skip_blanks(&mut self) -> bool {
        let before = self.at;
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start().len();
        self.at > before
    }

    fn error(&self, at: usize, what: impl Into<String>) -> ConditionError {
        let rest = self.text.get(at..).unwrap_or_default();
        let part = rest.split_whitespace().next().unwrap_or("");
        ConditionError::new(self.text, at, part, what)
    }

    /// A key and its sign, or nothing of them.
    fn key(&mut self) -> Option<(Written, Sign, bool)> {
        let begin = self.at;
        let rest = self.rest();
        let end = rest.find(|c| !is_of_key(c)).unwrap_or(rest.len());
        let name = rest.get(..end).filter(|name| !name.is_empty())?;
        self.at += end;
        let apart = self.skip_blanks();
        let signs = SIGNS
            .iter()
            .filter(|(sign, ..)| !(apart && sign.starts_with(':')));
        let found = signs
            .into_iter()
            .find(|(sign, ..)| self.rest().starts_with(sign));
        let Some((written, sign, negated)) = found else {
            self.at = begin;
            return None;
        };
        self.at += written.len();
        if apart {
            self.skip_blanks();
        }
        let key = Written {
            text: name.to_ascii_lowercase(),
            at: begin,
            quoted: false,
        };
        Some((key, *sign, *negated))
    }

    /// A value up to a blank, or in a list up to a comma.
    fn value(&mut self, list: bool) -> Result<Written, ConditionError> {
        let at = self.at;
        if self.rest().starts_with('"') {
            let mut text = String::new();
            let mut chars = self.rest().char_indices().skip(1);
            while let Some((place, c)) = chars.next() {
                match c {
                    '"' => {
                        self.at += place + 1;
                        return Ok(Written {
                            text,
                            at,
                            quoted: true,
                        });
                    }
                    '\\' => text.extend(chars.next().map(|(_, c)| c)),
                    c => text.push(c),
                }
            }
            return Err(self.error(at, "the quote does not end: write \" behind the text"));
        }
        let rest = self.rest();
        let ends = |c: char| c.is_whitespace() || (list && c == ',');
        let end = rest.find(ends).unwrap_or(rest.len());
        self.at += end;
        Ok(Written {
            text: rest.get(..end).unwrap_or_default().to_owned(),
            at,
            quoted: false,
        })
    }

    fn term(&mut self) -> Result<Option<Raw>, ConditionError> {
        let begin = self.at;
        let negated = self.rest().starts_with(['-', '!']);
        self.at += usize::from(negated);
        if let Some((key, sign, unequal)) = self.key() {
            let mut values = vec![self.value(true)?];
            while self.rest().starts_with(',') {
                self.at += 1;
                values.push(self.value(true)?);
                if values.len() > VALUES {
                    return Err(self.error(begin, format!("more than {VALUES} values")));
                }
            }
            if !self.rest().is_empty() && !self.rest().starts_with(char::is_whitespace) {
                return Err(self.error(self.at, "a blank must follow a value"));
            }
            if sign != Sign::Is && values.len() > 1 {
                return Err(self.error(begin, "< and > take one value"));
            }
            return Ok(Some(Raw {
                negated: negated != unequal,
                key: Some(key),
                sign,
                values,
            }));
        }
        let value = self.value(false)?;
        if !value.quoted {
            match value.text.as_str() {
                "and" | "AND" | "&&" if !negated => return Ok(None),
                "or" | "OR" | "||" => {
                    return Err(self.error(
                        begin,
                        "all conditions must hold: for one of several values write port:80,443",
                    ));
                }
                "not" | "NOT" => {
                    return Err(self.error(begin, "write - before the condition: -process:sshd"));
                }
                "" => return Err(self.error(begin, "nothing stands behind it")),
                text if text.contains(['(', ')']) => {
                    return Err(self.error(
                        begin,
                        "there are no brackets: all conditions must hold, and commas separate values, port:80,443",
                    ));
                }
                _ => {}
            }
        }
        Ok(Some(Raw {
            negated,
            key: None,
            sign: Sign::Is,
            values: vec![value],
        }))
    }
}

/// Reads a text.
///
/// # Errors
///
/// What is wrong and where.
pub fn parse(text: &str) -> Result<Vec<Raw>, ConditionError> {
    let mut reader = Reader { text, at: 0 };
    if text.len() > LONGEST {
        return Err(reader.error(0, format!("longer than {LONGEST} bytes")));
    }
    let mut terms = Vec::new();
    loop {
        reader.skip_blanks();
        if reader.rest().is_empty() {
            return Ok(terms);
        }
        let begin = reader.at;
        terms.extend(reader.term()?);
        if terms.len() > TERMS {
            return Err(reader.error(begin, format!("more than {TERMS} conditions")));
        }
    }
}
