//! What can go wrong with the identity provider.

/// Why nobody was signed in. Each has a sentence for the person who tries to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdpProblem {
    /// It cannot be reached or does not work. Another attempt may succeed.
    #[error("{0}")]
    Down(String),
    /// It refuses this person or this gateway.
    #[error("{0}")]
    Refused(String),
    /// What came back cannot be trusted: it is not from the identity provider, or not for this attempt to sign in.
    #[error("{0}")]
    Lies(String),
}

/// A text from outside as a part of a sentence: one line, without control characters, of at most `most` characters.
pub fn excerpt(text: &str, most: usize) -> String {
    let words: Vec<&str> = text.split(|c: char| c.is_whitespace() || c.is_control()).collect();
    let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
    let line = words.join(" ");
    match line.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}
