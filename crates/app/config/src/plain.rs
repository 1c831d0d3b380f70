//! Errors of readers of YAML and JSON in words of users.

/// What a reader of YAML or JSON says, in words of users: which key there is not and which is near, what stands where something
/// else belongs. The place in the file stays.
pub fn in_plain_words(message: &str) -> String {
    let (message, place) = match message.rfind(" at line ") {
        Some(at) => message.split_at(at),
        None => (message, ""),
    };
    let (path, what) = match message.split_once(": ") {
        Some((path, what)) if !path.contains(' ') => (format!("{path}: "), what),
        _ => (String::new(), message),
    };
    let quoted: Vec<&str> = what.split('`').skip(1).step_by(2).collect();
    let plain = if let (Some((unknown, known)), true) =
        (quoted.split_first(), what.starts_with("unknown "))
    {
        let near = |known: &&&str| strsim::jaro_winkler(unknown, known);
        let nearest = known.iter().max_by(|a, b| near(a).total_cmp(&near(b)));
        let kind = if what.starts_with("unknown field") {
            "there is no key"
        } else {
            "this cannot be"
        };
        match nearest.filter(|nearest| near(nearest) > 0.7) {
            Some(nearest) => format!("{kind} `{unknown}`{place} (did you mean {nearest}?)"),
            None => format!("{kind} `{unknown}`{place}; there are: {}", known.join(", ")),
        }
    } else if let Some((found, expected)) = what
        .strip_prefix("invalid type: ")
        .or_else(|| what.strip_prefix("invalid value: "))
        .and_then(|rest| rest.split_once(", expected "))
    {
        let found = match found.split(' ').next().unwrap_or_default() {
            "sequence" => "a list",
            "map" => "keys",
            "unit" => "nothing",
            _ => found,
        };
        let expected = match expected {
            "a sequence" => "a list",
            "a boolean" => "true or false",
            _ if expected.starts_with("struct ") || expected == "a map" => "keys",
            "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number of 0 or more",
            "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number",
            "f32" | "f64" => "a number",
            _ => expected,
        };
        format!("{found} where {expected} should be{place}")
    } else if what.starts_with("invalid length ") {
        format!("a list where keys should be{place}")
    } else if what.starts_with("EOF while parsing") {
        format!("the text ends too early{place}")
    } else if let Some(key) = what.strip_prefix("missing field ") {
        format!("{key} is missing{place}")
    } else if let Some(key) = what.strip_prefix("duplicate field ") {
        format!("{key} stands there twice{place}")
    } else {
        return format!("{path}{what}{place}");
    };
    format!("{path}{plain}")
}

#[cfg(test)]
mod tests {
    use super::in_plain_words;

    #[test]
    fn words_of_libraries_are_replaced() {
        for (text, plain) in [
            (
                "unknown field `x`, expected one of `Name`, `Type` at line 1 column 4",
                "there is no key `x` at line 1 column 4; there are: Name, Type",
            ),
            (
                "unknown field `nam`, expected `name` at line 1 column 4",
                "there is no key `nam` at line 1 column 4 (did you mean name?)",
            ),
            (
                "invalid type: integer `7`, expected a string at line 1 column 17",
                "integer `7` where a string should be at line 1 column 17",
            ),
            (
                "invalid length 2, expected struct Request with 3 elements at line 1 column 2",
                "a list where keys should be at line 1 column 2",
            ),
            (
                "EOF while parsing an object at line 1 column 1",
                "the text ends too early at line 1 column 1",
            ),
            ("missing field `Type`", "`Type` is missing"),
            ("flow: something else", "flow: something else"),
        ] {
            assert_eq!(in_plain_words(text), plain);
        }
    }
}
