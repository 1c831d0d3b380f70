//! Filters that have been compiled, and one compilation at a time.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::{
    error::FilterError,
    filter::{Filter, LinkType},
};

/// Results that are kept at most.
const ENTRIES: usize = 64;

/// Instructions of all of them: some 8 MB.
const INSTRUCTIONS: usize = 200_000;

type Result = std::result::Result<Filter, FilterError>;

struct Entry {
    expression: String,
    link: LinkType,
    result: Result,
}

/// The latest used last.
static KEPT: Mutex<VecDeque<Entry>> = Mutex::new(VecDeque::new());

/// Held while libpcap compiles, so that however many ask, it takes one processor.
static COMPILING: Mutex<()> = Mutex::new(());

fn kept() -> MutexGuard<'static, VecDeque<Entry>> {
    KEPT.lock().unwrap_or_else(PoisonError::into_inner)
}

fn find(expression: &str, link: LinkType) -> Option<Result> {
    let mut kept = kept();
    let at = kept
        .iter()
        .position(|entry| entry.link == link && entry.expression == expression)?;
    let entry = kept.remove(at)?;
    let result = entry.result.clone();
    kept.push_back(entry);
    Some(result)
}

fn keep(expression: &str, link: LinkType, result: &Result) {
    let mut kept = kept();
    kept.push_back(Entry {
        expression: expression.to_owned(),
        link,
        result: result.clone(),
    });
    let size = |entry: &Entry| {
        let filter = entry.result.as_ref();
        filter.map_or(0, |filter| filter.instructions().len())
    };
    let mut total: usize = kept.iter().map(size).sum();
    while kept.len() > ENTRIES || total > INSTRUCTIONS {
        let Some(oldest) = kept.pop_front() else {
            return;
        };
        total -= size(&oldest);
    }
}

/// What was made of an expression before, or is made of it now.
pub(crate) fn compiled(
    expression: &str,
    link: LinkType,
    compile: impl FnOnce() -> Result,
) -> Result {
    if let Some(result) = find(expression, link) {
        return result;
    }
    let _alone = COMPILING.lock().unwrap_or_else(PoisonError::into_inner);
    // Others may have waited for the same.
    if let Some(result) = find(expression, link) {
        return result;
    }
    let result = compile();
    // It may go better the next time.
    if !matches!(result, Err(FilterError::Library(_))) {
        keep(expression, link, &result);
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_expression_is_compiled_once_and_few_are_kept() {
        let expression = |number: usize| format!("tcp port {}", number + 1);
        for number in 0..2 * ENTRIES {
            Filter::compile(&expression(number), LinkType::Ethernet).unwrap();
        }
        let last = expression(2 * ENTRIES - 1);
        let again = compiled(&last, LinkType::Ethernet, || panic!("compiled again"));
        assert_eq!(again.unwrap().expression(), last);
        assert!(kept().len() <= ENTRIES);
        assert!(find(&expression(0), LinkType::Ethernet).is_none());
    }

    #[test]
    fn what_is_wrong_is_not_tried_again() {
        let wrong = "tcp prot 80";
        let first = Filter::compile(wrong, LinkType::Ethernet);
        let again = compiled(wrong, LinkType::Ethernet, || panic!("compiled again"));
        assert_eq!(first, again);
    }
}
