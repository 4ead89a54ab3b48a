//! Reads everything that a server lists, each list to its last page or to a bound on lists.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use serde_json::value::RawValue;

use super::calls::Purpose;
use super::link::{Carrier, Link};
use super::probe::{ProbeError, peers_meta, result_of};
use super::request::LinkRequest;
use super::step::Step;
use budget::{Bound, Budgets, LISTED_BYTES, LISTED_ITEMS, LISTED_PAGES};
use model::{Capabilities, Offering, OwnMeta, Prompt, Resource, Template, Tool, excerpt};
use wire::error::code;
use wire::{Era, HeaderParam, Response, walk};

/// What a server offers, as read from its lists.
#[derive(Clone, Debug)]
pub struct Discovery {
    pub offering: Arc<Offering>,
    /// Problems that do not prevent using the server.
    pub problems: Vec<String>,
    /// What is left out because of a bound.
    pub remarks: Vec<String>,
}

impl Discovery {
    /// What another gateway has read.
    pub fn known(offering: Arc<Offering>) -> Self {
        Self { offering, problems: Vec::new(), remarks: Vec::new() }
    }
}

/// How many problems are named, and how much of each.
const NAMED_PROBLEMS: usize = 10;
const PROBLEM_LENGTH: usize = 200;

pub async fn read(
    link: &Arc<Link>,
    step: &Step,
    budgets: &Budgets,
    capabilities: &Capabilities,
) -> Result<Discovery, ProbeError> {
    let handshake = link.handshake().ok_or_else(|| ProbeError::Words("there was no handshake".into()))?;
    let declared = handshake.declared();
    let mut reader = ListReader {
        link,
        step,
        budgets,
        capabilities: capabilities.to_json(),
        bytes: 0,
        problems: Problems::default(),
        remarks: Vec::new(),
        ttl_ms: None,
        is_private: false,
        meta: None,
    };
    let mut meta = OwnMeta { handshake: handshake.meta.clone(), ..OwnMeta::default() };
    let (mut tools, mut prompts, mut resources, mut templates) = (vec![], vec![], vec![], vec![]);
    if declared.tools.is_some() {
        tools = reader.list("tools/list", "tools", Tool::parse, Tool::key).await?;
        meta.tools = reader.meta.take();
    }
    if declared.prompts.is_some() {
        prompts = reader.list("prompts/list", "prompts", Prompt::parse, Prompt::key).await?;
        meta.prompts = reader.meta.take();
    }
    if declared.resources.is_some() {
        resources = reader.list("resources/list", "resources", Resource::parse, Resource::key).await?;
        meta.resources = reader.meta.take();
        let kind = "resourceTemplates";
        templates = reader.list("resources/templates/list", kind, Template::parse, Template::key).await?;
        meta.templates = reader.meta.take();
    }
    let ListReader { mut problems, remarks, ttl_ms, is_private, .. } = reader;
    hide_unreachable(link, &mut tools, capabilities, &mut problems);
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
        meta,
    };
    Ok(Discovery { offering: Arc::new(offering), problems: problems.into_sentences(), remarks })
}

struct ListReader<'a> {
    link: &'a Arc<Link>,
    step: &'a Step,
    budgets: &'a Budgets,
    /// What a modern server is told about the clients that will see the lists.
    capabilities: Vec<u8>,
    /// The bytes of all definitions so far, and of the cursors.
    bytes: usize,
    problems: Problems,
    remarks: Vec<String>,
    ttl_ms: Option<u64>,
    is_private: bool,
    /// The `_meta` of the first page of the current list.
    meta: Option<Box<RawValue>>,
}

impl ListReader<'_> {
    async fn list<T>(
        &mut self,
        method: &'static str,
        member: &str,
        parse: fn(Box<RawValue>) -> Result<T, String>,
        key: fn(&T) -> &str,
    ) -> Result<Vec<Arc<T>>, ProbeError> {
        let (mut items, mut seen, mut cursors) = (Vec::new(), HashSet::new(), HashSet::new());
        let mut cursor: Option<Box<RawValue>> = None;
        for page in 1..=LISTED_PAGES {
            if self.bytes >= LISTED_BYTES {
                return Ok(self.leave_out(items, too_many_bytes()));
            }
            self.step.set(format!("reading {method}, page {page}"));
            let Some(mut found) = self.page(method, member, cursor.as_deref()).await? else {
                return Ok(items);
            };
            if page == 1 {
                self.take_meta(found.meta.take());
            }
            for definition in found.definitions() {
                if items.len() == LISTED_ITEMS {
                    let reason = format!("{method} has more than {LISTED_ITEMS} items");
                    return Ok(self.leave_out(items, reason));
                }
                if self.bytes + definition.len() > LISTED_BYTES {
                    return Ok(self.leave_out(items, too_many_bytes()));
                }
                let definition =
                    RawValue::from_string(definition.to_owned()).map_err(|e| unreadable(method, e))?;
                let length = definition.get().len();
                match parse(definition) {
                    Ok(item) if seen.insert(key(&item).to_owned()) => {
                        self.bytes += length;
                        items.push(Arc::new(item));
                    }
                    Ok(item) => self.problems.add(|| format!("{method} names {:?} twice", key(&item))),
                    Err(problem) => self.problems.add(|| format!("{method} has {problem}")),
                }
            }
            let Some(next) = found.next else { return Ok(items) };
            self.bytes += next.get().len();
            if !cursors.insert(next.get().to_owned()) {
                return Err(ProbeError::Words(format!("{method} repeats the cursor {}", next.get())));
            }
            cursor = Some(next);
        }
        Ok(self.leave_out(items, format!("{method} has more than {LISTED_PAGES} pages")))
    }

    /// Keeps the `_meta` of a list, if there is room for it.
    fn take_meta(&mut self, meta: Option<Box<RawValue>>) {
        self.meta = meta.and_then(peers_meta).filter(|meta| self.bytes + meta.get().len() <= LISTED_BYTES);
        self.bytes += self.meta.as_deref().map_or(0, |meta| meta.get().len());
    }

    /// Ends a list before its end.
    fn leave_out<T>(&mut self, items: Vec<T>, reason: String) -> Vec<T> {
        self.budgets.refusals.count(Bound::Lists);
        let remark = format!("{reason}; the rest is left out");
        if !self.remarks.contains(&remark) {
            self.remarks.push(remark);
        }
        items
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
            .request(LinkRequest {
                method,
                params,
                capabilities: &self.capabilities,
                progress: false,
                log_level: None,
                purpose: Purpose::OurOwn,
                trace: &[],
            })
            .await?
            .answer(None)
            .await?;
        if is_unknown_method(&answer) {
            return Ok(None);
        }
        let result = result_of(&answer, method)?;
        let object = walk::whole(result).map_err(|error| unreadable(method, error))?;
        if result.get(object.start) != Some(&b'{') {
            return Err(unreadable(method, "the result is not an object"));
        }
        let (mut items, mut next, mut meta) = (None, None, None);
        // Walked instead of parsed into a map: a page may have any number of members and items.
        for (key, _, value) in walk::members(result, &object) {
            let bytes = &result[value.clone()];
            match &*key {
                "ttlMs" => {
                    if let Some(ttl) = std::str::from_utf8(bytes).ok().and_then(|ttl| ttl.parse::<u64>().ok())
                    {
                        self.ttl_ms = Some(self.ttl_ms.map_or(ttl, |least| least.min(ttl)));
                    }
                }
                "cacheScope" => self.is_private |= bytes == br#""private""#,
                "_meta" => meta = Some(bytes),
                "nextCursor" => next = Some(bytes).filter(|next| *next != b"null"),
                key if key == member => items = Some(value),
                _ => {}
            }
        }
        if items.as_ref().is_some_and(|items| result.get(items.start) != Some(&b'[')) {
            return Err(unreadable(method, format!("{member} is not a list")));
        }
        let next = next.map(serde_json::from_slice).transpose().map_err(|error| unreadable(method, error))?;
        let meta = meta.map(serde_json::from_slice).transpose().map_err(|error| unreadable(method, error))?;
        let items = items.map(|items| answer.message().slice_ref(&result[items]));
        Ok(Some(ListPage { items: items.unwrap_or_default(), next, meta }))
    }
}

fn unreadable(method: &str, error: impl std::fmt::Display) -> ProbeError {
    ProbeError::Words(format!("the response to {method} cannot be parsed: {error}"))
}

fn too_many_bytes() -> String {
    format!("its lists are larger than {} MiB", LISTED_BYTES / (1024 * 1024))
}

/// Problems with single items. Only the first ones are kept; the others are counted.
#[derive(Default)]
struct Problems {
    named: Vec<String>,
    others: usize,
}

impl Problems {
    fn add(&mut self, problem: impl FnOnce() -> String) {
        match self.named.len() < NAMED_PROBLEMS {
            true => self.named.push(excerpt::cut(problem(), PROBLEM_LENGTH)),
            false => self.others += 1,
        }
    }

    fn into_sentences(mut self) -> Vec<String> {
        if self.others > 0 {
            self.named.push(format!("and {} more", self.others));
        }
        self.named
    }
}

struct ListPage {
    /// The list as JSON; empty if there is none.
    items: Bytes,
    next: Option<Box<RawValue>>,
    meta: Option<Box<RawValue>>,
}

impl ListPage {
    fn definitions(&self) -> impl Iterator<Item = &str> {
        let spans = walk::elements(&self.items, &(0..self.items.len()));
        spans.filter_map(|span| std::str::from_utf8(&self.items[span]).ok())
    }
}

fn is_unknown_method(answer: &Response) -> bool {
    answer.error().is_some_and(|error| error.is(code::METHOD_NOT_FOUND))
}

/// Whether a server may require arguments in headers too: a modern one over HTTP.
fn wants_headers(link: &Link) -> bool {
    matches!(&link.carrier, Carrier::Http(http) if !http.is_through_gateway())
        && link.version().is_some_and(|version| version.era() == Era::Modern)
}

fn header_params(tool: &Tool) -> Result<Vec<HeaderParam>, String> {
    HeaderParam::from_schema(tool.fields().input_schema.map_or("{}", RawValue::get).as_bytes())
}

/// Tells a link which arguments belong into headers, from lists that it did not read itself.
pub fn teach_headers(link: &Link, offering: &Offering) {
    if wants_headers(link) {
        let wanted = |tool: &Arc<Tool>| Some((tool.name.clone(), header_params(tool).ok()?));
        link.learn_header_params(offering.tools.iter().filter_map(wanted).collect());
    }
}

/// Hides tools that cannot be called: a tool that declares in a way that the revision forbids which of its arguments belong
/// into headers is hidden, the others stay.
fn hide_unreachable(
    link: &Link,
    tools: &mut Vec<Arc<Tool>>,
    capabilities: &Capabilities,
    problems: &mut Problems,
) {
    if !wants_headers(link) {
        return;
    }
    let mut params = HashMap::new();
    tools.retain(|tool| match header_params(tool) {
        Ok(wanted) if wanted.is_empty() => true,
        Ok(wanted) => {
            params.insert(tool.name.clone(), wanted);
            true
        }
        Err(reason) => {
            problems.add(|| format!("the tool {:?} is hidden: {reason}", tool.name));
            false
        }
    });
    // Callers with different capabilities may share a link, which has none of them.
    match link.capabilities == *capabilities {
        true => link.set_header_params(params),
        false => link.add_header_params(params),
    }
}
