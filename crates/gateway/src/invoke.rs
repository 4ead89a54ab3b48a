//! Calling a tool over REST, and its result.

use std::pin::pin;

use bytes::Bytes;

use super::caller::{Owner, Profile};
use super::interview::CallListener;
use super::request::{NoResult, OwnRequest, disabled};
use super::result::members;
use super::trail::Trail;
use super::{Error, Gateway};
use wire::{authored, text};

/// The result of a tool, as the upstream wrote it.
pub struct InvokedResult(Bytes);

impl Gateway {
    /// Checks that a tool can be called, before anything is sent. A failed check counts as a denied call.
    pub fn check_callable(&self, owner: Owner, full_name: &str, trail: &Trail) -> Result<(), Error> {
        let _logged_with = trail.enter();
        let catalog = self.catalog_of(owner);
        let checked = catalog.tool(full_name).and_then(|(entry, _)| match entry.upstream {
            Some(_) => Ok(()),
            None => Err(disabled(entry)),
        });
        self.settle_trail(trail, full_name, checked.inspect_err(|_| self.deny_call()))
    }

    /// Calls a tool with arguments given as JSON. A listener follows the call.
    pub async fn invoke(
        &self,
        owner: Owner,
        full_name: &str,
        arguments: &[u8],
        listener: Option<CallListener>,
        trail: &Trail,
    ) -> Result<InvokedResult, Error> {
        let invoked = pin!(self.call_tool(owner, full_name, arguments, listener, trail));
        self.settle_trail(trail, full_name, trail.within(invoked).await)
    }

    async fn call_tool(
        &self,
        owner: Owner,
        full_name: &str,
        arguments: &[u8],
        listener: Option<CallListener>,
        trail: &Trail,
    ) -> Result<InvokedResult, Error> {
        let catalog = self.catalog_of(owner);
        let (entry, tool) = catalog.tool(full_name).inspect_err(|_| self.deny_call())?;
        self.check_home(owner, entry).await?;
        let name = text::quote(&tool.name);
        let request = OwnRequest {
            method: "tools/call",
            params: &[("name", &name), ("arguments", arguments)],
            tool: Some(&tool.name),
            is_repeatable: tool.is_repeatable(),
            profile: Profile {
                capabilities: CallListener::capabilities(listener.as_ref(), entry, &tool.name),
                ..Profile::of_gateway(Some(owner))
            },
            listener,
            trail: trail.clone(),
        };
        trail.keep_arguments(|| Bytes::copy_from_slice(arguments));
        let result = self.ask(entry, request).await;
        let explain = |no_result: NoResult| no_result.explain(full_name, entry, self.disclosure_to(owner));
        let result = result.inspect(|result| trail.keep_result(|| result.clone()));
        result.map(InvokedResult).map_err(explain)
    }
}

impl InvokedResult {
    pub fn is_error(&self) -> bool {
        members(&self.0).get("isError").is_some_and(|flag| flag.get() == "true")
    }

    /// `content` and `isError` always, `structuredContent` and `_meta` if the upstream sent them.
    pub fn to_json(&self) -> Vec<u8> {
        let members = members(&self.0);
        let get = |key: &str| members.get(key).map(|value| value.get().as_bytes());
        let mut shown: Vec<(&str, &[u8])> = vec![
            ("content", get("content").unwrap_or(b"[]")),
            ("isError", if self.is_error() { b"true" } else { b"false" }),
        ];
        for key in ["structuredContent", "_meta"] {
            shown.extend(get(key).map(|value| (key, value)));
        }
        authored::object(&shown)
    }
}
