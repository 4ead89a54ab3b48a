//! The parts of params and `_meta` that the gateway uses. A known key with a value of the wrong type reads as absent
//! and is listed in `mistyped`, so that the method decides whether that matters; null simply counts as absent.

use super::head_error::HeadError;
use super::id::Id;
use super::keys::{Keys, Known, known_keys};
use super::meta;
use super::scan::{Scan, Span};
use super::text::{self, Text};

known_keys!(Key {
    Name = "name",
    Arguments = "arguments",
    Meta = "_meta",
    Uri = "uri",
    Ref = "ref",
    Cursor = "cursor",
    Level = "level",
    RequestId = "requestId",
    ProgressToken = "progressToken",
    RequestState = "requestState",
    InputResponses = "inputResponses",
    Task = "task",
    TaskId = "taskId",
});
known_keys!(MetaKey {
    ProgressToken = meta::PROGRESS_TOKEN,
    ProtocolVersion = meta::PROTOCOL_VERSION,
    ClientCapabilities = meta::CLIENT_CAPABILITIES,
    ClientInfo = meta::CLIENT_INFO,
    LogLevel = meta::LOG_LEVEL,
    SubscriptionId = meta::SUBSCRIPTION_ID,
    RelatedTask = meta::RELATED_TASK,
    Traceparent = meta::TRACEPARENT,
});
known_keys!(ReferenceKey { Type = "type", Name = "name", Uri = "uri", });

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
        self.span = each(scan, |scan, key| {
            let opens = scan.peek() == Some(b'{');
            match key {
                Key::Ref if opens => self.reference.insert(Reference::default()).read(scan, &mut mistyped),
                Key::Meta if opens => self.meta.insert(Meta::default()).read(scan, &mut mistyped),
                _ => {
                    self.take(key, &Member::read(scan, key)?, &mut mistyped);
                    Ok(())
                }
            }
        })?;
        self.mistyped = mistyped;
        Ok(())
    }

    fn take(&mut self, key: Key, member: &Member<'a>, mistyped: &mut Vec<&'static str>) {
        if matches!(key, Key::RequestState | Key::InputResponses) {
            self.round_key.get_or_insert(member.key);
        }
        match key {
            Key::Name => self.name = member.text(mistyped),
            Key::Uri => self.uri = member.text(mistyped),
            Key::Cursor => self.cursor = member.text(mistyped),
            Key::Level => self.level = member.text(mistyped),
            Key::RequestState => self.request_state = member.text(mistyped),
            Key::RequestId => self.request_id = member.id(mistyped),
            Key::ProgressToken => self.progress_token = member.id(mistyped),
            Key::Arguments => self.arguments = member.object(mistyped),
            Key::InputResponses => self.input_responses = member.object(mistyped),
            Key::Task => self.task = member.object(mistyped),
            Key::TaskId => self.task_id = member.text(mistyped),
            Key::Meta | Key::Ref => _ = member.object(mistyped),
        }
    }
}

impl<'a> Reference<'a> {
    fn read(&mut self, scan: &mut Scan<'a>, mistyped: &mut Vec<&'static str>) -> Result<(), HeadError> {
        self.span = each(scan, |scan, key| {
            let text = Member::read(scan, key)?.text(mistyped);
            match key {
                ReferenceKey::Type => self.kind = text,
                ReferenceKey::Name => self.name = text,
                ReferenceKey::Uri => self.uri = text,
            }
            Ok(())
        })?;
        Ok(())
    }
}

impl<'a> Meta<'a> {
    fn read(&mut self, scan: &mut Scan<'a>, mistyped: &mut Vec<&'static str>) -> Result<(), HeadError> {
        self.span = each(scan, |scan, key| {
            let member = Member::read(scan, key)?;
            match key {
                MetaKey::ProtocolVersion => {
                    self.declares_version = true;
                    self.protocol_version = member.text(mistyped);
                }
                MetaKey::ClientCapabilities => self.client_capabilities = member.object(mistyped),
                MetaKey::ClientInfo => self.client_info = member.object(mistyped),
                MetaKey::LogLevel => self.log_level = member.text(mistyped),
                MetaKey::SubscriptionId => self.subscription_id = member.id(mistyped),
                MetaKey::RelatedTask => self.related_task = member.object(mistyped),
                // Whatever it is, the request is served.
                MetaKey::Traceparent => self.traceparent = member.text(&mut Vec::new()),
                MetaKey::ProgressToken => self.progress_token = member.id(mistyped),
            }
            Ok(())
        })?;
        Ok(())
    }
}

/// Walks the object that comes next, checks its keys, and passes each known one to `take`, with the scan just before
/// its value. Returns the object's span.
fn each<'a, K: Known>(
    scan: &mut Scan<'a>,
    mut take: impl FnMut(&mut Scan<'a>, K) -> Result<(), HeadError>,
) -> Result<Span, HeadError> {
    let mut keys = Keys::new();
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
    fn read(scan: &mut Scan<'a>, key: impl Known) -> Result<Self, HeadError> {
        Ok(Self { key: key.text(), span: scan.value()?, body: scan.body })
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
