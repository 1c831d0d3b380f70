//! From text to a tree of steps and arguments, and back.

mod lexer;
mod names;
mod parser;
mod print;
pub(crate) use print::quoted;

use crate::error::Span;
pub use names::{PredicateName, StepName, Word};
pub use parser::{SyntaxLimits, parse};

/// A query: the steps after `G`.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Query {
    /// The steps in order.
    pub steps: Vec<Step>,
}

/// A step with its arguments.
#[derive(Clone, PartialEq, Debug)]
pub struct Step {
    /// Which.
    pub name: StepName,
    /// Its arguments.
    pub args: Vec<Arg>,
    /// Where its name is.
    pub span: Span,
    /// Where its name and arguments are.
    pub whole: Span,
}

/// An argument.
#[derive(Clone, PartialEq, Debug)]
pub struct Arg {
    /// What it is.
    pub kind: ArgKind,
    /// Where.
    pub span: Span,
}

/// What an argument can be.
#[derive(Clone, PartialEq, Debug)]
pub enum ArgKind {
    /// Text in quotes.
    Str(String),
    /// Integer.
    Int(i64),
    /// Number with a fraction.
    Float(f64),
    /// `TRUE` or `FALSE`.
    Bool(bool),
    /// `ASC`, `DESC`, `NOW` or `FOREVER`.
    Word(Word),
    /// A predicate with its arguments.
    Call(PredicateName, Vec<Arg>),
}
