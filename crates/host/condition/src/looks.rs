//! Which language a text is in.

use crate::{Key, syntax};

/// What a filter looks like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Looks {
    /// Nothing is written.
    Empty,
    /// Conditions: it has a key with a sign, or a text in quotes.
    Conditions,
    /// Perhaps conditions with a wrong key; a pcap expression when it is one.
    Unclear,
    /// One word: a pcap expression when it is one, else a text to search.
    Word,
    /// A pcap expression.
    Expression,
}

/// Says which language a text is in. Words of pcap expressions are no keys with a sign.
pub fn looks(text: &str) -> Looks {
    let words: Vec<&str> = text.split_whitespace().collect();
    let plain = |word: &str| word.trim_start_matches(['-', '!']).to_ascii_lowercase();
    let name = |word: &str| {
        let word = plain(word);
        let end = word.find(|c| !syntax::is_of_key(c));
        end.map(|end| (word[..end].to_owned(), word[end..].to_owned()))
    };
    let quoted = |word: &&&str| plain(word).starts_with('"');
    let signed = |word: &str| {
        name(word).is_some_and(|(key, rest)| {
            let sign = rest.starts_with([':', '=', '<', '>']) || rest.starts_with("!=");
            sign && Key::named(&key).is_some()
        })
    };
    let apart = |pair: &[&str]| {
        matches!(pair[1], "=" | "<" | ">" | "<=" | ">=" | "!=")
            && Key::named(&plain(pair[0])).is_some()
    };
    if words.is_empty() {
        return Looks::Empty;
    }
    if words.iter().filter(quoted).count() > 0
        || words.iter().any(|word| signed(word))
        || words.windows(2).any(apart)
    {
        return Looks::Conditions;
    }
    let unknown = |word: &&str| {
        name(word).is_some_and(|(key, rest)| {
            key.len() > 1
                && key.starts_with(|c: char| c.is_ascii_alphabetic())
                && rest.starts_with([':', '=', '<', '>'])
        })
    };
    if words.iter().any(unknown) || words.iter().any(|word| word.starts_with('-')) {
        return Looks::Unclear;
    }
    let is_word = |c: char| !matches!(c, '(' | ')' | '[' | ']' | '!' | '&' | '|' | '"');
    match words.as_slice() {
        [word] if word.chars().all(is_word) => Looks::Word,
        _ => Looks::Expression,
    }
}
