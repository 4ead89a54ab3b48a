//! Shortened text: sentences that quote a server, which may say anything at any length.

/// The most characters of a sentence that quotes a server.
pub const SENTENCE: usize = 2000;

/// Cuts a text to at most `limit` characters; a cut text ends with `…`.
pub fn cut(mut text: String, limit: usize) -> String {
    // The end of the last character that is kept, and whether there is one beyond the limit.
    let mut ends = text.char_indices().map(|(at, _)| at).skip(limit.saturating_sub(1));
    if let (Some(end), Some(_)) = (ends.next(), ends.next()) {
        text.truncate(end);
        text.push('…');
        // What was cut off may be large, and sentences are kept.
        text.shrink_to_fit();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_text_beyond_the_limit_is_cut() {
        let cut_to_3 = |text: &str| cut(text.to_owned(), 3);
        assert_eq!(
            (cut_to_3(""), cut_to_3("ab"), cut_to_3("äöü")),
            (String::new(), "ab".into(), "äöü".into())
        );
        assert_eq!(cut_to_3("äöüß"), "äö…");
        assert_eq!(cut("x".repeat(3_000_000), SENTENCE).chars().count(), SENTENCE);
    }
}
