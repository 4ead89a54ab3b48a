//! The parts of params and `_meta` that the gateway uses. A known key with a value of the wrong type reads as absent
//! and is listed in `mistyped`, so that the method decides whether that matters; null simply counts as absent.

use super::head_error::HeadError;
use super::id::Id;
use super::keys::Keys;
use super::meta;
use super::scan::{Scan, Span};
use super::text::{self, Text};

/// Those of calls first, since they are searched in this order.
const KEYS: &[&str] = &[
    "name",
    "arguments",
    "_meta",
    "uri",
    "ref",
    "cursor",
    "level",
    "requestId",
    "progressToken",
    "requestState",
    "inputResponses",
    "task",
    "taskId",
];
const META_KEYS: &[&str] = &[
    meta::PROTOCOL_VERSION,
    meta::CLIENT_CAPABILITIES,
    meta::CLIENT_INFO,
    meta::LOG_LEVEL,
    meta::SUBSCRIPTION_ID,
    meta::PROGRESS_TOKEN,
    meta::RELATED_TASK,
    meta::TRACEPARENT,
];
const REFERENCE_KEYS: &[&str] = &["type", "name", "uri"];

#[derive(Debug, Clone, Default)]
pub struct Params<'a> {
    pub span: Span,
    pub name: Option<Text<'a>>,
    pub uri: Option<Text<'a>>,
    pub reference: Option<Reference<'a>>,
    /// An object.
    pub arguments: Option<Span>,
    pub cursor: Option<Text<'a>>,
    pub level: Option<Text<'a>>,
    pub request_id: Option<Id<'a>>,
    /// The token of a progress notice; a request has it in `_meta`.
    pub progress_token: Option<Id<'a>>,
    pub request_state: Option<Text<'a>>,
    /// An object.
    pub input_responses: Option<Span>,
    /// The first of `requestState` and `inputResponses` that is present, with any value.
    pub round_key: Option<&'static str>,
    /// An object: the request is to run as a task.
    pub task: Option<Span>,
    pub task_id: Option<Text<'a>>,
    pub meta: Option<Meta<'a>>,
    /// Known keys, those of `ref` and `_meta` included, whose value is of the wrong type.
    pub mistyped: Vec<&'static str>,
}

/// `params.ref` of a completion request.
#[derive(Debug, Clone, Default)]
pub struct Reference<'a> {
    pub span: Span,
    pub kind: Option<Text<'a>>,
    pub name: Option<Text<'a>>,
    pub uri: Option<Text<'a>>,
}

#[derive(Debug, Clone, Default)]
pub struct Meta<'a> {
    pub span: Span,
    /// Whether the version key is present, with any value: that alone makes a request a modern one.
    pub declares_version: bool,
    pub protocol_version: Option<Text<'a>>,
    /// An object.
    pub client_capabilities: Option<Span>,
    /// An object.
    pub client_info: Option<Span>,
    pub log_level: Option<Text<'a>>,
    pub subscription_id: Option<Id<'a>>,
    pub progress_token: Option<Id<'a>>,
    pub traceparent: Option<Text<'a>>,
    /// An object.
    pub related_task: Option<Span>,
}

impl<'a> Params<'a> {
    /// Reads the object that comes next in `scan`. It is read in place, since it is large.
    pub(super) fn read(&mut self, scan: &mut Scan<'a>) -> Result<(), HeadError> {
        let mut mistyped = Vec::new();
        self.span = each(scan, KEYS, |scan, key| {
            let opens = scan.peek() == Some(b'{');
            match key {
                "ref" if opens => self.reference.insert(Reference::default()).read(scan, &mut mistyped),
                "_meta" if opens => self.meta.insert(Meta::default()).read(scan, &mut mistyped),
                _ => {
                    self.take(&Member::read(scan, key)?, &mut mistyped);
                    Ok(())
                }
            }
        })?;
        self.mistyped = mistyped;
        Ok(())
    }

    fn take(&mut self, member: &Member<'a>, mistyped: &mut Vec<&'static str>) {
        if ["requestState", "inputResponses"].contains(&member.key) {
            self.round_key.get_or_insert(member.key);
        }
        match member.key {
            "name" => self.name = member.text(mistyped),
            "uri" => self.uri = member.text(mistyped),
            "cursor" => self.cursor = member.text(mistyped),
            "level" => self.level = member.text(mistyped),
            "requestState" => self.request_state = member.text(mistyped),
            "requestId" => self.request_id = member.id(mistyped),
            "progressToken" => self.progress_token = member.id(mistyped),
            "arguments" => self.arguments = member.object(mistyped),
            "inputResponses" => self.input_responses = member.object(mistyped),
            "task" => self.task = member.object(mistyped),
            "taskId" => self.task_id = member.text(mistyped),
            _ => _ = member.object(mistyped),
        }
    }
}

impl<'a> Reference<'a> {
    fn read(&mut self, scan: &mut Scan<'a>, mistyped: &mut Vec<&'static str>) -> Result<(), HeadError> {
        self.span = each(scan, REFERENCE_KEYS, |scan, key| {
            let text = Member::read(scan, key)?.text(mistyped);
            match key {
                "type" => self.kind = text,
                "name" => self.name = text,
                _ => self.uri = text,
            }
            Ok(())
        })?;
        Ok(())
    }
}

impl<'a> Meta<'a> {
    fn read(&mut self, scan: &mut Scan<'a>, mistyped: &mut Vec<&'static str>) -> Result<(), HeadError> {
        self.span = each(scan, META_KEYS, |scan, key| {
            let member = Member::read(scan, key)?;
            match key {
                meta::PROTOCOL_VERSION => {
                    self.declares_version = true;
                    self.protocol_version = member.text(mistyped);
                }
                meta::CLIENT_CAPABILITIES => self.client_capabilities = member.object(mistyped),
                meta::CLIENT_INFO => self.client_info = member.object(mistyped),
                meta::LOG_LEVEL => self.log_level = member.text(mistyped),
                meta::SUBSCRIPTION_ID => self.subscription_id = member.id(mistyped),
                meta::RELATED_TASK => self.related_task = member.object(mistyped),
                // Whatever it is, the request is served.
                meta::TRACEPARENT => self.traceparent = member.text(&mut Vec::new()),
                _ => self.progress_token = member.id(mistyped),
            }
            Ok(())
        })?;
        Ok(())
    }
}

/// Walks the object that comes next, checks its keys, and passes each known one to `take`, with the scan just before
/// its value. Returns the object's span.
fn each<'a>(
    scan: &mut Scan<'a>,
    known: &'static [&'static str],
    mut take: impl FnMut(&mut Scan<'a>, &'static str) -> Result<(), HeadError>,
) -> Result<Span, HeadError> {
    let mut keys = Keys::new(known);
    let start = scan.enter()?;
    while let Some(key) = scan.key()? {
        match keys.read(scan.body, key)? {
            Some(key) => take(scan, key)?,
            None => _ = scan.value()?,
        }
    }
    Ok(start..scan.position())
}

/// One known member, to be read as the type it should have.
struct Member<'a> {
    key: &'static str,
    body: &'a [u8],
    span: Span,
}

impl<'a> Member<'a> {
    fn read(scan: &mut Scan<'a>, key: &'static str) -> Result<Self, HeadError> {
        Ok(Self { key, span: scan.value()?, body: scan.body })
    }

    fn text(&self, mistyped: &mut Vec<&'static str>) -> Option<Text<'a>> {
        let text = text::unescape(&self.body[self.span.clone()]);
        self.noted(text.map(|value| Text { value, span: self.span.clone() }), mistyped)
    }

    fn id(&self, mistyped: &mut Vec<&'static str>) -> Option<Id<'a>> {
        self.noted(Id::at(self.body, self.span.clone()), mistyped)
    }

    fn object(&self, mistyped: &mut Vec<&'static str>) -> Option<Span> {
        self.noted((self.body[self.span.start] == b'{').then(|| self.span.clone()), mistyped)
    }

    fn noted<T>(&self, value: Option<T>, mistyped: &mut Vec<&'static str>) -> Option<T> {
        if value.is_none() && &self.body[self.span.clone()] != b"null" {
            mistyped.push(self.key);
        }
        value
    }
}
