//! Tokens to steps. The parser checks only the syntax; a later pass checks the order of steps.

use super::{
    Arg, ArgKind, PredicateName, Query, Step, StepName, Word,
    lexer::{Lexer, Token},
};
use crate::{
    check::Kind,
    error::{Class, QueryError, Span, nearest},
};

/// How large a query may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SyntaxLimits {
    /// Bytes.
    pub length: usize,
    /// Steps after `G`.
    pub steps: usize,
    /// Arguments of one step or predicate.
    pub arguments: usize,
    /// Predicates inside each other.
    pub depth: usize,
}

impl Default for SyntaxLimits {
    /// 64 KiB, 100 steps, 4,096 arguments, 4 levels.
    fn default() -> Self {
        Self {
            length: 64 << 10,
            steps: 100,
            arguments: 4_096,
            depth: 4,
        }
    }
}

/// Reads a query.
pub fn parse(text: &str, limits: &SyntaxLimits) -> Result<Query, QueryError> {
    if text.len() > limits.length {
        let message = format!(
            "the query has {} bytes; {} are allowed",
            text.len(),
            limits.length
        );
        return Err(QueryError::new(Class::Limit, message));
    }
    let mut lexer = Lexer::new(text);
    let (token, span) = lexer.next()?;
    Parser {
        lexer,
        token,
        span,
        limits,
        kind: Some(Kind::Graph),
    }
    .query()
}

struct Parser<'a> {
    lexer: Lexer<'a>,
    /// The next one.
    token: Token<'a>,
    span: Span,
    limits: &'a SyntaxLimits,
    /// What the steps so far yield, if they fit: only for advice.
    kind: Option<Kind>,
}

impl<'a> Parser<'a> {
    fn advance(&mut self) -> Result<(Token<'a>, Span), QueryError> {
        let (token, span) = self.lexer.next()?;
        Ok((
            std::mem::replace(&mut self.token, token),
            std::mem::replace(&mut self.span, span),
        ))
    }

    fn unexpected(&self, wanted: &str) -> QueryError {
        QueryError::at(
            self.span,
            format!("{wanted} should be here, not {}", self.token.describe()),
        )
    }

    fn query(mut self) -> Result<Query, QueryError> {
        match &self.token {
            Token::Name(name) if name.eq_ignore_ascii_case("G") => self.advance()?,
            _ => {
                let error = self.unexpected("`G`");
                return Err(
                    error.help("a query begins with G, as in G.V().Has(\"Name\", \"eth0\")")
                );
            }
        };
        let mut steps = Vec::new();
        while self.token != Token::End {
            if self.token != Token::Dot {
                return Err(self.unexpected("`.` and a step"));
            }
            self.advance()?;
            let step = self.step()?;
            if steps.len() == self.limits.steps {
                let message = format!("more than {} steps", self.limits.steps);
                let mut error = QueryError::at(step.span, message);
                error.class = Class::Limit;
                return Err(error);
            }
            self.kind = self.kind.and_then(|kind| kind.after(step.name));
            steps.push(step);
        }
        Ok(Query { steps })
    }

    fn step(&mut self) -> Result<Step, QueryError> {
        let Token::Name(text) = self.token else {
            return Err(self.unexpected("a step"));
        };
        let Some(name) = StepName::find(text) else {
            let error = QueryError::at(self.span, format!("there is no step `{text}`"));
            let known = StepName::ALL.iter().map(|step| step.name());
            return Err(match (nearest(text, known), PredicateName::find(text)) {
                (_, Some(predicate)) => {
                    let name = predicate.name();
                    error.help(format!(
                        "{name} is a predicate: it stands in a step, as in Has(\"MTU\", {name}(…))"
                    ))
                }
                (Some(known), None) => error.help(format!("did you mean `{known}`?")),
                (None, None) => match self.kind {
                    Some(kind) => error.help(kind.advice()),
                    None => error,
                },
            });
        };
        let (_, span) = self.advance()?;
        if name == StepName::G && self.token != Token::Open {
            return Ok(Step {
                name,
                args: Vec::new(),
                span,
                whole: span,
            });
        }
        if self.token != Token::Open {
            let error = self.unexpected(&format!("`(` after {}", name.name()));
            return Err(error.help(format!(
                "steps take their arguments in (), as in {}()",
                name.name()
            )));
        }
        let (args, end) = self.args(0)?;
        Ok(Step {
            name,
            args,
            span,
            whole: span.to(end),
        })
    }

    /// From `(` to `)`, both included, with the position of the latter.
    fn args(&mut self, depth: usize) -> Result<(Vec<Arg>, Span), QueryError> {
        let (_, open) = self.advance()?;
        let mut args = Vec::new();
        if self.token == Token::Close {
            let (_, end) = self.advance()?;
            return Ok((args, end));
        }
        loop {
            let arg = self.arg(depth)?;
            if args.len() == self.limits.arguments {
                let message = format!("more than {} arguments", self.limits.arguments);
                let mut error = QueryError::at(arg.span, message);
                error.class = Class::Limit;
                return Err(error);
            }
            args.push(arg);
            match self.token {
                Token::Comma => drop(self.advance()?),
                Token::Close => {
                    let (_, end) = self.advance()?;
                    return Ok((args, end));
                }
                Token::End => {
                    return Err(QueryError::at(open, "this `(` has no `)`"));
                }
                _ => return Err(self.unexpected("`,` or `)`")),
            }
        }
    }

    fn arg(&mut self, depth: usize) -> Result<Arg, QueryError> {
        let kind = match &self.token {
            Token::Str(text) => ArgKind::Str(text.clone()),
            Token::Int(number) => ArgKind::Int(*number),
            Token::Float(float) => ArgKind::Float(*float),
            Token::Name(name) => match self.word(name) {
                Some(kind) => kind,
                None => return self.predicate(depth),
            },
            _ => return Err(self.unexpected("an argument")),
        };
        let (_, span) = self.advance()?;
        Ok(Arg { kind, span })
    }

    fn word(&self, name: &str) -> Option<ArgKind> {
        if name.eq_ignore_ascii_case("TRUE") {
            Some(ArgKind::Bool(true))
        } else if name.eq_ignore_ascii_case("FALSE") {
            Some(ArgKind::Bool(false))
        } else {
            Word::find(name).map(ArgKind::Word)
        }
    }

    fn predicate(&mut self, depth: usize) -> Result<Arg, QueryError> {
        let (token, span) = self.advance()?;
        let Token::Name(text) = token else {
            return Err(QueryError::at(span, "a predicate should be here"));
        };
        let Some(name) = PredicateName::find(text) else {
            let error = QueryError::at(span, format!("there is no predicate `{text}`"));
            let words = ["TRUE", "FALSE"].into_iter();
            let known = PredicateName::ALL.iter().map(|predicate| predicate.name());
            let known = known
                .chain(Word::ALL.iter().map(|word| word.name()))
                .chain(words);
            return Err(if self.token != Token::Open {
                error.help(format!("if it is a text, write \"{text}\""))
            } else if let Some(known) = nearest(text, known) {
                error.help(format!("did you mean `{known}`?"))
            } else {
                let all: Vec<_> = PredicateName::ALL.iter().map(|name| name.name()).collect();
                error.help(format!("predicates: {}", all.join(", ")))
            });
        };
        if self.token != Token::Open {
            return Err(self.unexpected(&format!("`(` after {}", name.name())));
        }
        if depth == self.limits.depth {
            let message = format!(
                "more than {} predicates inside each other",
                self.limits.depth
            );
            let mut error = QueryError::at(span, message);
            error.class = Class::Limit;
            return Err(error);
        }
        let (args, end) = self.args(depth + 1)?;
        Ok(Arg {
            kind: ArgKind::Call(name, args),
            span: span.to(end),
        })
    }
}
