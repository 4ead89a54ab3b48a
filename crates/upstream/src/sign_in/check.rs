//! A check of an issuer that the operator named, in sentences that say what to change.

use super::claims::SKEW;
use super::idp_metadata::IdpMetadata;
use super::issuer::{Issuer, MetadataSource, fetch_keys};

/// One step of a check, with the sentence that says what to change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckStep {
    pub step: &'static str,
    pub ok: bool,
    pub text: String,
}

impl Issuer {
    /// Tries what tokens of the issuer need, whatever is cached: the steps `discovery`, `keys` and `clock`.
    pub async fn check(&self, now: u64) -> Vec<CheckStep> {
        let step = |step, ok, text| CheckStep { step, ok, text };
        let web = self.web.anew();
        let metadata = match self.source.fetch(&web, &self.name).await {
            Ok(metadata) => metadata,
            Err(problem) => {
                let skipped = |name| step(name, false, "Not tried, since discovery failed.".to_owned());
                let text = format!("{}.", capitalized(&problem.to_string()));
                return vec![step("discovery", false, text), skipped("keys"), skipped("clock")];
            }
        };
        let discovery = match missing_endpoint(self.source, &metadata) {
            Some(missing) => step(
                "discovery",
                false,
                format!(
                    "The metadata of {} has no {missing}: it is not an OpenID provider. Check {}.",
                    self.name,
                    self.source.setting()
                ),
            ),
            None => step("discovery", true, format!("The metadata of {} is valid.", self.name)),
        };
        let keys = match fetch_keys(&web, &metadata).await {
            Ok(keys) => {
                let usable = match keys.len() {
                    1 => "one usable key".to_owned(),
                    count => format!("{count} usable keys"),
                };
                step("keys", true, format!("The identity provider has {usable}."))
            }
            Err(problem) => step("keys", false, format!("{}.", capitalized(&problem.to_string()))),
        };
        let (ok, text) = compare_clocks(now, metadata.date);
        vec![discovery, keys, step("clock", ok, text)]
    }
}

/// What people need to sign in, and the metadata does not have.
fn missing_endpoint(source: MetadataSource, metadata: &IdpMetadata) -> Option<&'static str> {
    let endpoints = [
        (metadata.authorization_endpoint.is_none(), "authorization_endpoint"),
        (metadata.token_endpoint.is_none(), "token_endpoint"),
    ];
    match source {
        MetadataSource::OpenId => endpoints.iter().find(|(is_missing, _)| *is_missing).map(|(_, name)| *name),
        // Its tokens are verified, and it is asked for none.
        MetadataSource::AnyServer => None,
    }
}

/// Whether our clock and that of the identity provider agree, and a sentence about it.
fn compare_clocks(ours: u64, theirs: Option<u64>) -> (bool, String) {
    let Some(theirs) = theirs else {
        return (true, "The identity provider does not say what time it is.".to_owned());
    };
    let difference = ours.abs_diff(theirs);
    if difference <= SKEW {
        return (true, "The clocks of the gateway and of the identity provider agree.".to_owned());
    }
    let direction = if ours > theirs { "ahead of" } else { "behind" };
    let text = format!(
        "The clock of the gateway is {difference} s {direction} that of the identity provider; at most {} s are \
         allowed. Synchronize both with NTP.",
        SKEW
    );
    (false, text)
}

fn capitalized(text: &str) -> String {
    let mut rest = text.chars();
    rest.next().map(|first| first.to_uppercase().chain(rest).collect()).unwrap_or_default()
}
