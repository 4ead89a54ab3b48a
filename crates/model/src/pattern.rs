//! Patterns for names, in which a star stands for any characters.

/// Whether a text matches a pattern, in which each `*` stands for any run of characters.
pub fn matches(pattern: &str, text: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut left) = text.strip_prefix(start) else { return false };
    let (middle, end) = rest.rsplit_once('*').unwrap_or(("", rest));
    // The first place of each part is as good as any later one, since what follows it may be anything.
    for part in middle.split('*') {
        let Some(at) = left.find(part) else { return false };
        left = &left[at + part.len()..];
    }
    left.ends_with(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_characters() {
        for (pattern, text, does_match) in [
            ("*", "", true),
            ("a*", "a", true),
            ("*a", "ba", true),
            ("a*a", "a", false),
            ("a*a", "aa", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("*ab*ab", "ab", false),
            ("*ä*", "bäb", true),
            ("a", "ab", false),
            ("A*", "ab", false),
            ("a.*", "ab", false),
        ] {
            assert_eq!(matches(pattern, text), does_match, "{pattern} {text}");
        }
    }
}
