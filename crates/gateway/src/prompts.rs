//! Prompts, as people manage and render them.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;

use super::caller::{Owner, Profile};
use super::ending::CalledTool;
use super::request::OwnRequest;
use super::result::members;
use super::tools::{Coverage, Switchable};
use super::trail::Trail;
use super::{Catalog, Entry, Error, Gateway};
use model::{By, FieldError, Prompt};
use wire::{authored, text};

impl Catalog {
    /// All covered prompts, sorted by full name.
    pub fn covered_prompts(
        &self,
        coverage: &Coverage<'_>,
    ) -> Result<impl Iterator<Item = (&Arc<Entry>, &Prompt)>, Error> {
        let entries = self.covered(coverage)?.into_iter();
        Ok(entries.flat_map(|entry| entry.prompts().map(move |prompt| (entry, prompt))))
    }
}

impl Gateway {
    /// Sets the own flag of one prompt, or of all prompts of a server; see [`Gateway::switch_tools`].
    pub async fn switch_prompts(
        self: &Arc<Self>,
        entity: &str,
        enabled: bool,
        by: &By,
    ) -> Result<Vec<String>, Error> {
        self.switch(Switchable::Prompts, entity, enabled, by).await
    }

    /// Renders a prompt: `messages`, and `description` and `meta` if the upstream sent them.
    pub async fn render(
        &self,
        owner: Owner,
        full_name: &str,
        arguments: &BTreeMap<String, String>,
        trail: &Trail,
    ) -> Result<Vec<u8>, Error> {
        let rendered = pin!(self.get_prompt(owner, full_name, arguments, trail));
        self.settle_trail(trail, full_name, trail.within(rendered).await)
    }

    async fn get_prompt(
        &self,
        owner: Owner,
        full_name: &str,
        arguments: &BTreeMap<String, String>,
        trail: &Trail,
    ) -> Result<Vec<u8>, Error> {
        let catalog = self.catalog_of(owner);
        let (entry, prompt) = catalog.prompt(full_name)?;
        if let Some(missing) =
            prompt.required_arguments().into_iter().find(|name| !arguments.contains_key(name))
        {
            return Err(FieldError::new(format!("arguments.{missing}"), "is required by this prompt").into());
        }
        self.check_home(owner, entry).await?;
        let name = text::quote(&prompt.name);
        let arguments: Vec<_> =
            arguments.iter().map(|(key, value)| (text::quote(key), text::quote(value))).collect();
        let arguments: Vec<_> =
            arguments.iter().map(|(key, value)| [key, &b":"[..], value].concat()).collect();
        let arguments = [b"{", arguments.join(&b","[..]).as_slice(), b"}"].concat();
        let request = OwnRequest {
            method: "prompts/get",
            params: &[("name", &name), ("arguments", &arguments)],
            tool: None,
            is_repeatable: true,
            listener: None,
            profile: Profile::of_gateway(Some(owner)),
            trail: trail.clone(),
        };
        trail.found(entry, CalledTool::Unlisted(prompt.name.clone()));
        trail.keep_arguments(|| arguments.clone().into());
        let result = self.ask(entry, request).await;
        let result = result.inspect(|result| trail.keep_result(|| result.clone()));
        let result =
            result.map_err(|no_result| no_result.explain(full_name, entry, self.disclosure_to(owner)))?;
        let members = members(&result);
        let get = |key: &str| members.get(key).map(|value| value.get().as_bytes());
        let mut shown: Vec<(&str, &[u8])> = Vec::new();
        shown.extend(get("description").map(|description| ("description", description)));
        shown.push(("messages", get("messages").unwrap_or(b"[]")));
        shown.extend(get("_meta").map(|meta| ("meta", meta)));
        Ok(authored::object(&shown))
    }
}
