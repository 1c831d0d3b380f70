//! Errors of people who write conditions.

/// What is wrong, where, and what to write instead.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{part}` at character {}: {what}", at + 1)]
pub struct ConditionError {
    /// The part of the text that is wrong.
    pub part: String,
    /// How many characters stand before it.
    pub at: usize,
    /// Why, and what to write.
    pub what: String,
}

impl ConditionError {
    /// Of a part of a text, from the byte `at` on.
    pub(crate) fn new(text: &str, at: usize, part: &str, what: impl Into<String>) -> Self {
        const SHOWN: usize = 40;
        let mut shown: String = part.chars().take(SHOWN).collect();
        if part.chars().nth(SHOWN).is_some() {
            shown.push('…');
        }
        Self {
            part: shown,
            at: text.get(..at).unwrap_or_default().chars().count(),
            what: what.into(),
        }
    }
}
