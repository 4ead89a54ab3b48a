//! Adapts a server's response to its caller: sets the caller's own id, and adds what the caller's era expects. Parts
//! that need no change are not even read.

use bytes::Bytes;

use super::destination::Reading;
use super::downgrade;
use super::lists::Caching;
use super::shared_uris::ServerLinks;
use super::unknown_resource::with_uri;
use wire::error::code;
use wire::{Era, Head, Patch, Response, Span, text, walk};

/// A response, ready for its caller.
pub enum Settled {
    Answer(Answer),
    /// A modern server needs input before it gives its result.
    InputRequired(Bytes),
}

pub struct Answer {
    /// The message, in pieces that are sent one after the other: a large one is not copied.
    pub pieces: Vec<Bytes>,
    /// Set only for modern callers, whose HTTP status depends on it.
    pub fault: Option<Fault>,
}

impl Answer {
    /// The message in one piece.
    pub fn message(&self) -> Bytes {
        match self.pieces.as_slice() {
            [whole] => whole.clone(),
            pieces => pieces.concat().into(),
        }
    }
}

/// The error in a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    pub code: i64,
    /// The HTTP status with which a modern server sent it.
    pub status: Option<u16>,
}

/// The request that a response belongs to.
pub struct Asked<'a> {
    /// The caller's own id, as it wrote it.
    pub id: &'a [u8],
    pub caller: Era,
    pub server: Era,
    /// The HTTP status of the response, unless it was a success.
    pub refused_with: Option<u16>,
    /// The resource that is read, and the cache settings of reads in this gateway.
    pub reads: Option<(&'a Reading, Caching)>,
    /// The URIs of the server that are not unique in the caller's view.
    pub links: Option<&'a ServerLinks>,
}

impl Asked<'_> {
    /// Adapts a response to the caller.
    pub fn settle(&self, response: &Response) -> Settled {
        let message = response.message();
        let mut patch = Patch::new(message);
        match response.id() {
            Some(id) => _ = patch.replace(id.span, self.id),
            // An error about a request whose id the server could not read.
            None => _ = patch.set_member(&(0..message.len()), "id", self.id),
        }
        if self.server == Era::Modern && response.asks_for_input() {
            return Settled::InputRequired(patch.apply());
        }
        if let (Some((reading, _)), Some(result)) = (&self.reads, response.result_span()) {
            name_contents(&mut patch, response.message(), result, reading, self.links);
        }
        if let (Some(links), Some(result)) = (self.links, response.result_span()) {
            links.in_result(&mut patch, response.message(), result);
        }
        let fault = match (self.caller, response.result_span()) {
            (Era::Legacy, _) if self.server == Era::Legacy => None,
            (Era::Legacy, Some(result)) => {
                downgrade::result(&mut patch, response.message(), result);
                None
            }
            (Era::Legacy, None) => {
                if let Some((reading, _)) = &self.reads {
                    downgrade::read_error(&mut patch, response, reading);
                }
                None
            }
            (Era::Modern, Some(result)) => {
                self.complete(&mut patch, response, result);
                None
            }
            (Era::Modern, None) => self.translate_error(&mut patch, response),
        };
        Settled::Answer(Answer { pieces: patch.apply_in_pieces(message), fault })
    }

    /// Adds the members that every modern result has and a legacy server does not send.
    fn complete(&self, patch: &mut Patch<'_>, response: &Response, result: &Span) {
        let (answer, start) = (response.message(), result.start);
        if let Some((_, caching)) = &self.reads {
            return complete_reading(patch, answer, result, *caching);
        }
        if response.result_type().is_some() {
            return;
        }
        let is_empty = answer[start + 1..].iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'}');
        let member: &[u8] =
            if is_empty { br#""resultType":"complete""# } else { br#""resultType":"complete","# };
        patch.insert(start + 1, member);
    }

    /// Reads the error. For an unknown resource, the legacy code is replaced by the modern one, and the URI is added.
    fn translate_error(&self, patch: &mut Patch<'_>, response: &Response) -> Option<Fault> {
        let (span, error) = (response.error_span()?, response.error()?);
        let status = self.refused_with.filter(|_| self.server == Era::Modern);
        let Some((reading, _)) = self.reads.as_ref().filter(|_| error.is(code::RESOURCE_NOT_FOUND)) else {
            return Some(Fault { code: error.code, status });
        };
        let code = code::INVALID_PARAMS.to_string();
        let data = with_uri(error.data.unwrap_or(b"null"), &reading.asked);
        patch.edit_members(span, |_| false, &[("code", code.as_bytes()), ("data", &data)]);
        Some(Fault { code: code::INVALID_PARAMS.into(), status: None })
    }
}

fn complete_reading(patch: &mut Patch<'_>, answer: &[u8], result: &Span, caching: Caching) {
    let (ttl, scope) = (caching.ttl_ms.to_string(), caching.scope());
    let mut set: Vec<(&str, &[u8])> = Vec::new();
    for (key, value) in [("resultType", &br#""complete""#[..]), ("ttlMs", ttl.as_bytes())] {
        if walk::member(answer, result, key).is_none() {
            set.push((key, value));
        }
    }
    let declares_scope = || walk::member(answer, result, "cacheScope").is_some();
    if caching.is_private || !declares_scope() {
        set.push(("cacheScope", scope));
    }
    patch.edit_members(result, |_| false, &set);
}

/// Gives the contents of a resource the URI under which the caller asked for it, and other resources beside it the URI
/// under which they are listed.
fn name_contents(
    patch: &mut Patch<'_>,
    answer: &[u8],
    result: &Span,
    reading: &Reading,
    links: Option<&ServerLinks>,
) {
    if reading.asked == reading.known_as && links.is_none() {
        return;
    }
    let Some(contents) = walk::member(answer, result, "contents") else { return };
    for content in walk::elements(answer, &contents) {
        let Some(span) = walk::member(answer, &content, "uri") else { continue };
        let Some(uri) = text::unescape(&answer[span.clone()]) else { continue };
        let shown = match uri == reading.known_as {
            true => Some(reading.asked.clone()),
            false => links.and_then(|links| links.qualified(&uri)),
        };
        if let Some(shown) = shown.filter(|shown| *shown != uri) {
            patch.replace(span, text::quote(&shown));
        }
    }
}

/// The value of a member of the result.
pub fn result_member(answer: &[u8], key: &str) -> Option<Span> {
    walk::member(answer, &Head::parse(answer).ok()?.result?, key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(known_as: &str) -> Reading {
        Reading { asked: "x://1".into(), known_as: known_as.into() }
    }

    fn settled(
        server: Era,
        reads: Option<(&Reading, Caching)>,
        answer: &'static str,
    ) -> (String, Option<Fault>) {
        let asked =
            Asked { id: b"\"a\"", caller: Era::Modern, server, refused_with: Some(418), reads, links: None };
        match asked.settle(&Response::read(Bytes::from_static(answer.as_bytes())).unwrap()) {
            Settled::Answer(answer) => (String::from_utf8(answer.message().to_vec()).unwrap(), answer.fault),
            Settled::InputRequired(_) => panic!("no input is required"),
        }
    }

    #[test]
    fn a_modern_caller_gets_the_type_of_every_result_once() {
        for (from, to) in [
            (r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, r#"{"resultType":"complete"}"#),
            (r#"{"result": {"b":1.0},"jsonrpc":"2.0","id":1}"#, r#"{"resultType":"complete","b":1.0}"#),
            (
                r#"{"id":1,"jsonrpc":"2.0","result":{"x":{"resultType":1}}}"#,
                r#"{"resultType":"complete","x":{"resultType":1}}"#,
            ),
            (r#"{"id":1,"jsonrpc":"2.0","result":{"resultType":"task"}}"#, r#"{"resultType":"task"}"#),
        ] {
            let (message, fault) = settled(Era::Legacy, None, from);
            assert!(message.contains(to) && message.contains(r#""id":"a""#), "{message}");
            assert_eq!(fault, None);
        }
    }

    #[test]
    fn a_reading_says_how_long_and_for_whom_it_is_good() {
        let reading = reading("x://1");
        let caching = |is_private| Some((&reading, Caching { ttl_ms: 0, is_private }));
        let plain = r#"{"jsonrpc":"2.0","id":1,"result":{"contents":[]}}"#;
        let (message, _) = settled(Era::Legacy, caching(false), plain);
        assert!(message.contains(r#""resultType":"complete","ttlMs":0,"cacheScope":"public""#), "{message}");
        let told =
            r#"{"jsonrpc":"2.0","id":1,"result":{"ttlMs":7,"cacheScope":"public","resultType":"complete"}}"#;
        assert_eq!(settled(Era::Modern, caching(false), told).0, told.replace(":1,", ":\"a\","));
        let (message, _) = settled(Era::Modern, caching(true), told);
        assert!(message.contains(r#"{"ttlMs":7,"cacheScope":"private","#), "{message}");
    }

    #[test]
    fn an_unknown_resource_has_the_code_of_the_callers_era() {
        let unknown = r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32002,"message":"no","data":{"n":1.0}}}"#;
        let reading = reading("y://1");
        let reads = Some((&reading, Caching { ttl_ms: 0, is_private: false }));
        let (message, fault) = settled(Era::Legacy, reads, unknown);
        assert!(
            message.contains(r#"{"code":-32602,"message":"no","data":{"n":1.0,"uri":"x://1"}}"#),
            "{message}"
        );
        assert_eq!(fault, Some(Fault { code: -32602, status: None }));
        let (message, fault) = settled(Era::Modern, None, unknown);
        assert!(message.contains("-32002"));
        assert_eq!(fault, Some(Fault { code: -32002, status: Some(418) }));
    }
    #[test]
    fn an_error_without_an_id_gets_that_of_the_request() {
        for error in [
            r#" {"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"no","data":[1.0]}}"#,
            r#"{"jsonrpc":"2.0","error":{"code":-32600,"message":"no","data":[1.0]}}"#,
        ] {
            let (message, fault) = settled(Era::Legacy, None, error);
            assert!(message.contains(r#""error":{"code":-32600,"message":"no","data":[1.0]}"#), "{message}");
            assert!(message.contains(r#""id":"a""#) && Head::parse(message.as_bytes()).is_ok(), "{message}");
            assert_eq!(fault.unwrap().code, -32600);
        }
    }

    #[test]
    fn contents_carry_the_uri_that_was_asked_for() {
        let reads = reading("y://1");
        let read = r#"{"jsonrpc":"2.0","id":1,"result":{"contents":[{"uri":"y:\/\/1","text":"y://1"},{"uri":"y://2"}]}}"#;
        let (message, _) =
            settled(Era::Modern, Some((&reads, Caching { ttl_ms: 0, is_private: false })), read);
        assert!(message.contains(r#"[{"uri":"x://1","text":"y://1"},{"uri":"y://2"}]"#), "{message}");
    }
}
