//! Resources: the lists, the server that a URI belongs to, and reading. If several servers have a URI, none is guessed:
//! the error names the qualified URIs to choose from.

use std::pin::pin;
use std::sync::Arc;

use super::caller::{Owner, Profile};
use super::catalog::{Catalog, Entry};
use super::ending::CalledTool;
use super::refusal::Refusal;
use super::request::{NoResult, OwnRequest};
use super::result::members;
use super::tools::Coverage;
use super::trail::Trail;
use super::unknown_resource::says_not_found;
use super::view::{Lens, Part};
use super::{Error, Gateway, rights};
use budget::{Bound, Exceeded, URI_BYTES};
use model::{FieldError, Item, Redactor, Resource, ResourceUri, ServerName, Template, uri};
use wire::{authored, text};

impl Catalog {
    /// All covered resources, sorted by server, then URI.
    pub fn covered_resources(
        &self,
        coverage: &Coverage<'_>,
    ) -> Result<impl Iterator<Item = (&Arc<Entry>, &Resource)>, Error> {
        let entries = self.covered_by_name(coverage)?.into_iter();
        Ok(entries.flat_map(|entry| entry.resources().map(move |resource| (entry, resource))))
    }

    /// All covered resource templates, sorted by server, then template.
    pub fn covered_templates(
        &self,
        coverage: &Coverage<'_>,
    ) -> Result<impl Iterator<Item = (&Arc<Entry>, &Template)>, Error> {
        let entries = self.covered_by_name(coverage)?.into_iter();
        Ok(entries.flat_map(|entry| {
            let mut templates: Vec<_> = entry.templates().collect();
            templates.sort_by_key(|template| template.key());
            templates.into_iter().map(move |template| (entry, template))
        }))
    }

    /// The covered servers, sorted by their plain names, since URIs do not begin with a server.
    fn covered_by_name(&self, coverage: &Coverage<'_>) -> Result<Vec<&Arc<Entry>>, Error> {
        let mut entries = self.covered(coverage)?;
        entries.sort_by_key(|entry| entry.name());
        Ok(entries)
    }

    /// Everything listed under this URI, disabled servers included.
    pub fn find_resource(&self, text: &str) -> Result<Vec<(&Arc<Entry>, &Resource)>, Error> {
        Ok(match parse_uri(text)? {
            ResourceUri::Qualified { server, uri } => {
                let entry = self.get(server.as_str()).into_iter();
                entry.filter_map(|entry| Some((entry, entry.resource(&uri)?))).collect()
            }
            ResourceUri::Upstream(uri) => {
                self.entries().filter_map(|entry| Some((entry, entry.resource(&uri)?))).collect()
            }
        })
    }

    /// The one resource that a URI names.
    pub fn resource(&self, text: &str) -> Result<(&Arc<Entry>, &Resource), Error> {
        let found = self.find_resource(text)?;
        one_of(text, prefer_enabled(found, |(entry, _)| entry), |(entry, _)| entry)
    }

    /// The server to read a URI from, and the URI there, for an agent, who sees only what is enabled and in its scope.
    pub fn reader_in(&self, lens: &Lens<'_>, text: &str) -> Result<(&Arc<Entry>, String), Refusal> {
        let unknown = || Refusal::UnknownResource(text.to_owned());
        let makes = |entry: &Arc<Entry>, uri: &str| lens.shows_made(entry, uri) && entry.makes(uri);
        let uri = match parse_uri(text).map_err(|error| Refusal::Invalid(error.to_string()))? {
            ResourceUri::Qualified { server, uri } => {
                let entry = self.get(server.as_str()).ok_or_else(unknown)?;
                let is_open = lens.shows_resource(entry, &uri) || makes(entry, &uri);
                return if is_open { Ok((entry, uri)) } else { Err(unknown()) };
            }
            ResourceUri::Upstream(uri) => uri,
        };
        let has = |entry: &&Arc<Entry>| entry.resource(&uri).is_some() && lens.shows_resource(entry, &uri);
        let mut found: Vec<_> = self.entries().filter(has).collect();
        if found.is_empty() {
            found = self.entries().filter(|entry| makes(entry, &uri)).collect();
        }
        // The endpoint of one server passes on URIs that no list has: the server decides.
        if let (Part::Server(server), true) = (lens.part, found.is_empty()) {
            found.extend(self.get(server).filter(|entry| lens.may_use_resource(entry, &uri)));
        }
        match found.as_slice() {
            [] => Err(unknown()),
            [entry] => Ok((entry, uri)),
            [..] => Err(Refusal::Invalid(several(
                text,
                found.iter().map(|entry| &***entry),
                uri::qualify_for_agents,
            ))),
        }
    }

    /// The server to read a URI from, and the URI as that server knows it. If no list has the URI, this is the one
    /// server whose template matches it. A qualified URI always goes to its server, which decides.
    pub fn reader_of(&self, text: &str) -> Result<(&Arc<Entry>, String), Error> {
        let lets_read = |entry: &Entry, uri: &str| {
            entry
                .cut_by()
                .is_none_or(|rules| rights::decide(self, rules, entry.name().as_str(), Item::Resource(uri)))
        };
        let uri = match parse_uri(text)? {
            ResourceUri::Qualified { server, uri } => {
                let entry = self.require(server.as_str())?;
                return match lets_read(entry, &uri) {
                    true => Ok((entry, uri)),
                    false => Err(unknown_resource(text)),
                };
            }
            ResourceUri::Upstream(uri) => uri,
        };
        let has = |entry: &&Arc<Entry>| entry.resource(&uri).is_some();
        let mut found: Vec<_> = self.entries().filter(has).collect();
        if found.is_empty() {
            found = self.entries().filter(|entry| lets_read(entry, &uri) && entry.makes(&uri)).collect();
        }
        let entry = one_of(text, prefer_enabled(found, |entry| entry), |entry| entry)?;
        Ok((entry, uri))
    }
}

fn parse_uri(text: &str) -> Result<ResourceUri, Error> {
    Ok(ResourceUri::parse(text).map_err(|problem| FieldError::new("uri", problem))?)
}

/// Drops disabled servers if any enabled one was found.
fn prefer_enabled<T>(found: Vec<T>, entry: impl Fn(&T) -> &Entry) -> Vec<T> {
    let (enabled, disabled): (Vec<_>, Vec<_>) = found.into_iter().partition(|item| entry(item).is_enabled());
    if enabled.is_empty() { disabled } else { enabled }
}

fn one_of<T>(text: &str, mut found: Vec<T>, entry: impl Fn(&T) -> &Entry) -> Result<T, Error> {
    if found.len() > 1 {
        return Err(Error::invalid(several(text, found.iter().map(entry), uri::qualify)));
    }
    found.pop().ok_or_else(|| match uri::has_scheme(text) {
        true => unknown_resource(text),
        false => FieldError::new("uri", format!("is {text:?}, which is not a URI")).into(),
    })
}

fn unknown_resource(text: &str) -> Error {
    Error::not_found(format!("no server has the resource {text:?}"))
}

fn several<'a>(
    text: &str,
    entries: impl Iterator<Item = &'a Entry>,
    qualify: fn(&ServerName, &str) -> String,
) -> String {
    let choices: Vec<_> = entries.map(|entry| qualify(entry.name(), text)).collect();
    format!("several servers have the URI {text:?}; use one of {}", choices.join(", "))
}

impl Entry {
    /// Whether one of the server's templates matches this URI.
    fn makes(&self, uri: &str) -> bool {
        self.templates().any(|template| uri::template_matches(&template.uri_template, uri))
    }
}

impl Gateway {
    /// Checks the length of a URI in a request; that of a qualified one is the length of the URI in it.
    pub fn check_uri(&self, text: &str) -> Result<(), Exceeded> {
        // A qualified URI is longer than the URI in it.
        let is_short = text.len() <= URI_BYTES
            || matches!(ResourceUri::parse(text), Ok(ResourceUri::Qualified { uri, .. }) if uri.len() <= URI_BYTES);
        match is_short {
            true => Ok(()),
            false => Err(self.budgets().exceeded(Bound::UriLength, URI_BYTES as u64)),
        }
    }

    /// Reads a resource: `contents` as the upstream sent them.
    pub async fn read_resource(&self, owner: Owner, text: &str, trail: &Trail) -> Result<Vec<u8>, Error> {
        let contents = pin!(self.contents_of(owner, text, trail));
        self.settle_trail(trail, text, trail.within(contents).await)
    }

    async fn contents_of(&self, owner: Owner, text: &str, trail: &Trail) -> Result<Vec<u8>, Error> {
        self.check_uri(text)?;
        let catalog = self.catalog_of(owner);
        let (entry, known_as) = catalog.reader_of(text)?;
        self.check_home(owner, entry).await?;
        let uri = text::quote(&known_as);
        let request = OwnRequest {
            method: "resources/read",
            params: &[("uri", &uri)],
            tool: None,
            is_repeatable: true,
            listener: None,
            profile: Profile::of_gateway(Some(owner)),
            trail: trail.clone(),
        };
        trail.found(entry, CalledTool::Unlisted(known_as.clone()));
        let result = self.ask(entry, request).await;
        let result = result.inspect(|result| trail.keep_result(|| result.clone()));
        let result = result.map_err(|no_result| match no_result {
            NoResult::Rpc { code, message, data } if says_not_found(code, data.as_deref(), &known_as) => {
                let message = Redactor::of(&entry.registration.config).redact(&message);
                Error::not_found(format!("server {:?} says: {message}", entry.name().as_str()))
            }
            other => other.explain(&format!("reading {text}"), entry, self.disclosure_to(owner)),
        })?;
        let contents = members(&result).get("contents").map_or("[]", |contents| contents.get()).as_bytes();
        Ok(authored::object(&[("contents", contents)]))
    }
}
