//! Suggestions for misspelt names: adds "did you mean" to the error for an unknown name.

use serde_json::Value;

use super::invocation::Invocation;
use super::remote::{ApiRequest, RemoteError};

/// A noun whose names the gateway can list.
#[derive(Clone, Copy, Debug)]
pub enum ListedNoun {
    Server,
    Tool,
    Prompt,
    Group,
    Client,
    User,
    IdpGroup,
    /// These have ids in place of names.
    Grant,
    OauthClient,
}

impl ListedNoun {
    fn list(self) -> ApiRequest {
        match self {
            ListedNoun::Server => ApiRequest::get(&["servers"]),
            ListedNoun::Tool => ApiRequest::get(&["tools"]).query("all", "true"),
            ListedNoun::Prompt => ApiRequest::get(&["prompts"]).query("all", "true"),
            ListedNoun::Group => ApiRequest::get(&["tool-groups"]),
            ListedNoun::Client => ApiRequest::get(&["clients"]),
            ListedNoun::User => ApiRequest::get(&["users"]),
            ListedNoun::IdpGroup => ApiRequest::get(&["idp-groups"]),
            ListedNoun::Grant => ApiRequest::get(&["grants"]),
            ListedNoun::OauthClient => ApiRequest::get(&["oauth-clients"]),
        }
    }
}

/// Returns the response; an error about the name gets a suggestion, if there is one.
pub async fn explain<T>(
    invocation: &Invocation,
    noun: ListedNoun,
    name: &str,
    answer: Result<T, RemoteError>,
) -> Result<T, RemoteError> {
    let (sentence, status, code) = match answer {
        Err(RemoteError::Refused { status: status @ (400 | 404), sentence, code }) => {
            (sentence, status, code)
        }
        other => return other,
    };
    if name.is_empty() {
        return Err(RemoteError::Refused { status, sentence, code });
    }
    let sentence = match nearest_of(invocation, noun, name).await {
        Some(nearest) => format!("{sentence}; did you mean {nearest:?}?"),
        None => sentence,
    };
    Err(RemoteError::Refused { status, sentence, code })
}

/// Returns the most similar name that the gateway lists, if one is close.
pub async fn nearest_of(invocation: &Invocation, noun: ListedNoun, name: &str) -> Option<String> {
    let names = names_of(invocation, noun).await;
    nearest(name, names.iter().map(String::as_str)).map(str::to_owned)
}

/// Returns all names that the gateway lists; none if it does not answer.
pub async fn names_of(invocation: &Invocation, noun: ListedNoun) -> Vec<String> {
    let items = match invocation.remote.ask(noun.list()).await.and_then(|answer| answer.json()) {
        Ok(Value::Array(items)) => items,
        Ok(_) | Err(_) => Vec::new(),
    };
    let name = |item: &Value| match noun {
        ListedNoun::User => item["username"].as_str().map(str::to_owned),
        ListedNoun::Grant | ListedNoun::OauthClient => item["id"].as_str().map(str::to_owned),
        ListedNoun::Server
        | ListedNoun::Tool
        | ListedNoun::Prompt
        | ListedNoun::Group
        | ListedNoun::IdpGroup
        | ListedNoun::Client => item["name"].as_str().map(str::to_owned),
    };
    items.iter().filter_map(name).collect()
}

/// Returns the known name that is most similar; `None` if none is close, or if the name is known.
pub fn nearest<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let folded = name.to_lowercase();
    let distance = |known: &str| {
        let known = known.to_lowercase();
        // Tools are often given without the name of their server.
        let item = known.split_once("__").map_or(known.as_str(), |(_, item)| item);
        let whole = strsim::damerau_levenshtein(&folded, &known);
        if folded.contains("__") { whole } else { whole.min(strsim::damerau_levenshtein(&folded, item)) }
    };
    let mut best: Option<(usize, &str)> = None;
    for known in names {
        if known == name {
            return None;
        }
        let found = distance(known);
        if best.is_none_or(|(best, _)| found < best) {
            best = Some((found, known));
        }
    }
    let close = (name.chars().count() / 3).max(1);
    best.filter(|(found, _)| *found <= close).map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_close_name_is_suggested() {
        let names = ["github", "gitlab", "time", "files__read_file"];
        let nearest = |name: &str| nearest(name, names.into_iter());
        assert_eq!(nearest("gihtub"), Some("github"));
        assert_eq!(nearest("GitHub"), Some("github"));
        assert_eq!(nearest("read_file"), Some("files__read_file"));
        assert_eq!(nearest("files__raed_file"), Some("files__read_file"));
        assert_eq!(nearest("time"), None);
        assert_eq!(nearest("weather"), None);
        assert_eq!(nearest(""), None);
    }
}
