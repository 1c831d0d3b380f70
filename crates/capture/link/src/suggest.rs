//! Suggestions for a mistyped interface name.

/// Names at least this similar (Jaro-Winkler, 0 to 1) are worth suggesting.
const LEAST_SIMILARITY: f64 = 0.7;

/// The at most `limit` names that are nearest to `typed`, best first; empty when none is near.
/// Names of equal similarity stay in alphabetical order.
pub fn nearest_names<'a>(
    typed: &str,
    names: impl IntoIterator<Item = &'a str>,
    limit: usize,
) -> Vec<&'a str> {
    let typed = typed.to_lowercase();
    let mut near: Vec<(f64, &str)> = names
        .into_iter()
        .map(|name| (strsim::jaro_winkler(&typed, &name.to_lowercase()), name))
        .filter(|(similarity, _)| *similarity >= LEAST_SIMILARITY)
        .collect();
    near.sort_by(|(a, a_name), (b, b_name)| b.total_cmp(a).then_with(|| a_name.cmp(b_name)));
    near.dedup_by(|(_, a), (_, b)| a == b);
    near.truncate(limit);
    near.into_iter().map(|(_, name)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 6] = ["lo", "eth0", "eth1", "wlp3s0", "docker0", "br-1a2b3c"];

    #[test]
    fn the_nearest_comes_first() {
        assert_eq!(nearest_names("eht0", NAMES, 1), ["eth0"]);
        assert_eq!(nearest_names("ETH1", NAMES, 3), ["eth1", "eth0"]);
        assert_eq!(nearest_names("doker0", NAMES, 2), ["docker0"]);
    }

    #[test]
    fn nothing_like_it_gives_nothing() {
        assert!(nearest_names("zzzz", NAMES, 3).is_empty());
        assert!(nearest_names("", NAMES, 3).is_empty());
    }
}
