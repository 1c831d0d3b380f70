//! Queries as text, in canonical spelling.

use super::{Arg, ArgKind, Query, Step};
use std::fmt::{self, Display, Formatter, Write};

impl Display for Query {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_char('G')?;
        self.steps.iter().try_for_each(|step| write!(f, ".{step}"))
    }
}

impl Display for Step {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(self.name.name())?;
        if self.name == super::StepName::G && self.args.is_empty() {
            return Ok(());
        }
        args(&self.args, f)
    }
}

fn args(args: &[Arg], f: &mut Formatter<'_>) -> fmt::Result {
    f.write_char('(')?;
    for (at, arg) in args.iter().enumerate() {
        let comma = if at > 0 { ", " } else { "" };
        write!(f, "{comma}{arg}")?;
    }
    f.write_char(')')
}

impl Display for Arg {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.kind {
            ArgKind::Str(text) => quoted(text, f),
            ArgKind::Int(number) => write!(f, "{number}"),
            ArgKind::Float(float) if float.fract() == 0.0 => write!(f, "{float:.1}"),
            ArgKind::Float(float) => write!(f, "{float}"),
            ArgKind::Bool(truth) => f.write_str(if *truth { "TRUE" } else { "FALSE" }),
            ArgKind::Word(word) => f.write_str(word.name()),
            ArgKind::Call(name, inner) => {
                f.write_str(name.name())?;
                args(inner, f)
            }
        }
    }
}

pub(crate) fn quoted(text: &str, f: &mut impl Write) -> fmt::Result {
    let quote = if text.contains('"') && !text.contains('\'') {
        '\''
    } else {
        '"'
    };
    f.write_char(quote)?;
    for c in text.chars() {
        if c == quote {
            f.write_char('\\')?;
        }
        f.write_char(c)?;
    }
    f.write_char(quote)
}
