//! Reads everything that a server lists, each list to its last page.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde_json::value::RawValue;

use super::calls::Purpose;
use super::link::{Carrier, Link};
use super::probe::{Handshake, ProbeError, result_of};
use super::request::LinkRequest;
use super::step::Step;
use model::{Offering, Prompt, Resource, Template, Tool};
use wire::error::code;
use wire::{Era, HeaderParam, Response};

/// What a server offers, as read from its lists.
#[derive(Clone, Debug)]
pub struct Discovery {
    pub offering: Arc<Offering>,
    /// Problems that do not prevent using the server.
    pub problems: Vec<String>,
}

/// The most pages of one list; a server with more is considered broken.
const MAX_PAGES: usize = 10_000;

pub async fn read(link: &Arc<Link>, handshake: &Handshake, step: &Step) -> Result<Discovery, ProbeError> {
    let declared = handshake.declared();
    let mut reader = ListReader { link, step, problems: Vec::new(), ttl_ms: None, is_private: false };
    let (mut tools, mut prompts, mut resources, mut templates) = (vec![], vec![], vec![], vec![]);
    if declared.tools.is_some() {
        tools = reader.list("tools/list", "tools", Tool::parse, Tool::key).await?;
    }
    if declared.prompts.is_some() {
        prompts = reader.list("prompts/list", "prompts", Prompt::parse, Prompt::key).await?;
    }
    if declared.resources.is_some() {
        resources = reader.list("resources/list", "resources", Resource::parse, Resource::key).await?;
        let kind = "resourceTemplates";
        templates = reader.list("resources/templates/list", kind, Template::parse, Template::key).await?;
    }
    let ListReader { mut problems, ttl_ms, is_private, .. } = reader;
    hide_unreachable(link, &mut tools, &mut problems);
    let offering = Offering {
        protocol_version: handshake.version.as_str().to_owned(),
        server_info: handshake.server_info.clone(),
        capabilities: handshake.capabilities.clone(),
        instructions: handshake.instructions.clone(),
        tools,
        prompts,
        resources,
        templates,
        ttl_ms,
        is_private,
    };
    Ok(Discovery { offering: Arc::new(offering), problems })
}

struct ListReader<'a> {
    link: &'a Arc<Link>,
    step: &'a Step,
    problems: Vec<String>,
    ttl_ms: Option<u64>,
    is_private: bool,
}

impl ListReader<'_> {
    async fn list<T>(
        &mut self,
        method: &'static str,
        member: &str,
        parse: fn(Box<RawValue>) -> Result<T, String>,
        key: fn(&T) -> &str,
    ) -> Result<Vec<T>, ProbeError> {
        let (mut items, mut seen, mut cursors) = (Vec::new(), HashSet::new(), HashSet::new());
        let mut cursor: Option<Box<RawValue>> = None;
        for page in 1..=MAX_PAGES {
            self.step.set(format!("reading {method}, page {page}"));
            let Some(found) = self.page(method, member, cursor.as_deref()).await? else { return Ok(items) };
            for definition in found.items {
                match parse(definition) {
                    Ok(item) if seen.insert(key(&item).to_owned()) => items.push(item),
                    Ok(item) => self.problems.push(format!("{method} names {:?} twice", key(&item))),
                    Err(problem) => self.problems.push(format!("{method} has {problem}")),
                }
            }
            let Some(next) = found.next else { return Ok(items) };
            if !cursors.insert(next.get().to_owned()) {
                return Err(ProbeError::Words(format!("{method} repeats the cursor {}", next.get())));
            }
            cursor = Some(next);
        }
        Err(ProbeError::Words(format!("{method} has more than {MAX_PAGES} pages")))
    }

    /// Reads one page; `None` when the server does not know the method.
    async fn page(
        &mut self,
        method: &'static str,
        member: &str,
        cursor: Option<&RawValue>,
    ) -> Result<Option<ListPage>, ProbeError> {
        let cursor = cursor.map(|cursor| ("cursor", cursor.get().as_bytes()));
        let params = cursor.as_slice();
        let answer = self
            .link
            .request(LinkRequest { method, params, progress: false, purpose: Purpose::OurOwn })
            .await?
            .answer(None)
            .await?;
        if is_unknown_method(&answer) {
            return Ok(None);
        }
        let unreadable =
            |error| ProbeError::Words(format!("the response to {method} cannot be parsed: {error}"));
        let mut found: HashMap<Cow<'_, str>, &RawValue> =
            serde_json::from_slice(result_of(&answer, method)?).map_err(unreadable)?;
        let items = found.remove(member).map_or("[]", RawValue::get);
        let items = serde_json::from_str(items).map_err(unreadable)?;
        if let Some(ttl) = found.get("ttlMs").and_then(|ttl| ttl.get().parse::<u64>().ok()) {
            self.ttl_ms = Some(self.ttl_ms.map_or(ttl, |least| least.min(ttl)));
        }
        self.is_private |= found.get("cacheScope").is_some_and(|scope| scope.get() == r#""private""#);
        let next = found.remove("nextCursor").filter(|next| next.get() != "null").map(ToOwned::to_owned);
        Ok(Some(ListPage { items, next }))
    }
}

struct ListPage {
    items: Vec<Box<RawValue>>,
    next: Option<Box<RawValue>>,
}

fn is_unknown_method(answer: &Response) -> bool {
    answer.error().is_some_and(|error| error.is(code::METHOD_NOT_FOUND))
}

/// Hides tools that cannot be called. A modern server over HTTP may require arguments in headers too; a tool that
/// declares this in a way that the revision forbids is hidden, the others stay.
fn hide_unreachable(link: &Link, tools: &mut Vec<Tool>, problems: &mut Vec<String>) {
    let wants_headers = matches!(link.carrier, Carrier::Http(_))
        && link.version().is_some_and(|version| version.era() == Era::Modern);
    if !wants_headers {
        return;
    }
    let mut params = HashMap::new();
    tools.retain(|tool| {
        let schema = tool.fields().input_schema.map_or("{}", RawValue::get);
        match HeaderParam::from_schema(schema.as_bytes()) {
            Ok(wanted) if wanted.is_empty() => true,
            Ok(wanted) => {
                params.insert(tool.name.clone(), wanted);
                true
            }
            Err(reason) => {
                problems.push(format!("the tool {:?} is hidden: {reason}", tool.name));
                false
            }
        }
    });
    link.set_header_params(params);
}
