//! Detects the era of a server and performs the handshake: `server/discover` first, `initialize` if that gets no modern
//! answer. Servers registered as `sse` are always legacy and are never probed.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::CLIENT;
use super::calls::Purpose;
use super::error::CallError;
use super::link::Link;
use super::request::modern_meta;
use super::step::Step;
use wire::error::code;
use wire::meta::PeersMeta;
use wire::{Era, Response, RpcError, Version, authored, meta, walk};

/// A process that does not answer the probe in this time is also sent `initialize`.
const STDIO_PATIENCE: Duration = Duration::from_secs(2);
/// Timeout of the probe over HTTP: if it gets no answer, there must be time left for `initialize`.
const HTTP_PATIENCE: Duration = Duration::from_secs(5);

/// Why the handshake or reading a list failed.
pub enum ProbeError {
    Call(CallError),
    /// The server answered, but not as the protocol requires.
    Words(String),
}

impl From<CallError> for ProbeError {
    fn from(error: CallError) -> Self {
        ProbeError::Call(error)
    }
}

/// What a server says about itself in the handshake.
pub struct Handshake {
    pub version: Version,
    pub capabilities: Option<Box<RawValue>>,
    pub server_info: Option<Box<RawValue>>,
    pub instructions: Option<String>,
    /// Whether a modern server lists a legacy revision, too.
    pub also_legacy: bool,
    /// Its `_meta`, without the keys of the protocol.
    pub meta: Option<Box<RawValue>>,
}

/// The parts of a server's capabilities that decide which lists it has.
#[derive(Default, Deserialize)]
pub struct Declared<'a> {
    #[serde(borrow)]
    pub tools: Option<&'a RawValue>,
    #[serde(borrow)]
    pub prompts: Option<&'a RawValue>,
    #[serde(borrow)]
    pub resources: Option<&'a RawValue>,
}

impl Handshake {
    pub fn declared(&self) -> Declared<'_> {
        let text = self.capabilities.as_deref().map_or("{}", RawValue::get);
        serde_json::from_str(text).unwrap_or_default()
    }

    /// The list changes that the server announces, as a subscription names them.
    pub fn change_notices(&self) -> Vec<String> {
        let declared = self.declared();
        let kinds = [
            ("toolsListChanged", declared.tools),
            ("promptsListChanged", declared.prompts),
            ("resourcesListChanged", declared.resources),
        ];
        let announces = |capability: &Option<&RawValue>| {
            let Some(capability) = capability.map(|capability| capability.get().as_bytes()) else {
                return false;
            };
            let announced = walk::member(capability, &(0..capability.len()), "listChanged");
            announced.is_some_and(|announced| &capability[announced] == b"true")
        };
        kinds
            .iter()
            .filter(|(_, capability)| announces(capability))
            .map(|(kind, _)| (*kind).to_owned())
            .collect()
    }
}

pub async fn over_http(
    link: &Arc<Link>,
    known: Option<Era>,
    limit: Duration,
    step: &Step,
) -> Result<Handshake, ProbeError> {
    if known == Some(Era::Legacy) {
        return initialize(link, step).await;
    }
    probe(link, HTTP_PATIENCE.min(limit / 2), step).await
}

pub async fn over_stdio(link: &Arc<Link>, step: &Step) -> Result<Handshake, ProbeError> {
    probe(link, STDIO_PATIENCE, step).await
}

/// Sends the probe, and `initialize` if it is not answered within `patience`.
async fn probe(link: &Arc<Link>, patience: Duration, step: &Step) -> Result<Handshake, ProbeError> {
    step.set("the handshake (server/discover)");
    let mut asked = Box::pin(discover(link));
    match tokio::time::timeout(patience, &mut asked).await {
        Ok(answer) => match judge(answer)? {
            Some(handshake) => Ok(handshake),
            None => initialize(link, step).await,
        },
        Err(_) => race(asked, Box::pin(initialize(link, step)), step).await,
    }
}

/// Waits for the answers to the probe and to `initialize`, which a slow server answers together. The first
/// one decides, and of two that came together the probe's. A modern server refuses `initialize` and may do so first, so
/// a refusal decides nothing before the probe is answered.
async fn race(
    mut asked: impl Future<Output = Result<Response, CallError>> + Unpin,
    mut initializing: impl Future<Output = Result<Handshake, ProbeError>> + Unpin,
    step: &Step,
) -> Result<Handshake, ProbeError> {
    let refused = tokio::select! {
        biased;
        answer = &mut asked => return match judge(answer)? {
            Some(handshake) => Ok(handshake),
            None => initializing.await,
        },
        handshake = &mut initializing => match handshake {
            Ok(handshake) => return Ok(handshake),
            Err(refused) => refused,
        },
    };
    if let ProbeError::Words(words) = &refused {
        step.set(format!("the handshake (server/discover; {words})"));
    }
    match judge(asked.await)? {
        Some(handshake) => Ok(handshake),
        None => Err(refused),
    }
}

pub async fn initialize(link: &Arc<Link>, step: &Step) -> Result<Handshake, ProbeError> {
    step.set("the handshake (initialize)");
    let id = link.calls.next_id();
    let body = authored::initialize(id, Version::LATEST_LEGACY, CLIENT, &link.capabilities.to_json());
    let answer = link.send(id, body, None, Purpose::OurOwn, None).await?.answer(None).await?;
    let result = result_of(&answer, "initialize")?;
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Initialized {
        protocol_version: String,
        capabilities: Option<Box<RawValue>>,
        server_info: Option<Box<RawValue>>,
        instructions: Option<String>,
        #[serde(rename = "_meta")]
        meta: Option<Box<RawValue>>,
    }
    let greeted: Initialized = serde_json::from_slice(result).map_err(|error| {
        ProbeError::Words(format!("the response to initialize cannot be parsed: {error}"))
    })?;
    let version = Version::parse(&greeted.protocol_version).filter(|version| version.era() == Era::Legacy);
    let version = version.ok_or_else(|| {
        ProbeError::Words(format!(
            "it uses protocol version {:?}, which the gateway does not support",
            greeted.protocol_version
        ))
    })?;
    // From here on messages carry the version, this notice included. SDK servers refuse requests that arrive before it.
    link.agree_on(version);
    link.tell(authored::notice("notifications/initialized", None)).await;
    Ok(Handshake {
        version,
        capabilities: greeted.capabilities,
        server_info: greeted.server_info,
        instructions: greeted.instructions,
        also_legacy: false,
        meta: greeted.meta.and_then(peers_meta),
    })
}

async fn discover(link: &Arc<Link>) -> Result<Response, CallError> {
    let ask = async || {
        let id = link.calls.next_id();
        let body = authored::discover(id, &modern_meta(b"{}", None, None));
        link.send(id, body, Some(Version::MODERN), Purpose::OurOwn, None).await?.answer(None).await
    };
    let answer = ask().await?;
    // A client retries with a version that the error lists, here the same one again.
    if refused_for(&answer).iter().any(|version| version == Version::MODERN.as_str()) {
        return ask().await;
    }
    Ok(answer)
}

/// The versions that a server lists as supported when it refuses ours; empty when it did not refuse it.
fn refused_for(answer: &Response) -> Vec<String> {
    answer
        .error()
        .filter(|error| error.is(code::UNSUPPORTED_PROTOCOL_VERSION))
        .map(supported_by)
        .unwrap_or_default()
}

fn supported_by(error: RpcError<'_>) -> Vec<String> {
    #[derive(Deserialize)]
    struct Data {
        supported: Vec<String>,
    }
    let data = error.data.and_then(|data| serde_json::from_slice::<Data>(data).ok());
    data.map(|data| data.supported).unwrap_or_default()
}

/// Reads the answer to the probe. `None` when it is not that of a modern server, so that `initialize` decides.
fn judge(answer: Result<Response, CallError>) -> Result<Option<Handshake>, ProbeError> {
    let answer = match answer {
        Ok(answer) => answer,
        Err(error @ (CallError::NotSent(_) | CallError::Unauthorized(_))) => return Err(error.into()),
        Err(error @ CallError::Status { status: 429 | 502 | 503 | 504, .. }) => return Err(error.into()),
        Err(_) => return Ok(None),
    };
    if let Some(error) = answer.error() {
        return judge_error(error);
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Discovered {
        supported_versions: Vec<String>,
        capabilities: Option<Box<RawValue>>,
        instructions: Option<String>,
        #[serde(rename = "_meta")]
        meta: Option<Box<RawValue>>,
        server_info: Option<Box<RawValue>>,
    }
    let result = answer.result().unwrap_or_default();
    let Ok(found) = serde_json::from_slice::<Discovered>(result) else { return Ok(None) };
    if !found.supported_versions.iter().any(|version| version == Version::MODERN.as_str()) {
        return only_others(&found.supported_versions);
    }
    let info_in_meta = found.meta.as_deref().and_then(|meta| {
        let mut members: HashMap<String, Box<RawValue>> = serde_json::from_str(meta.get()).ok()?;
        members.remove(meta::SERVER_INFO)
    });
    Ok(Some(Handshake {
        version: Version::MODERN,
        capabilities: found.capabilities,
        server_info: info_in_meta.or(found.server_info),
        instructions: found.instructions,
        also_legacy: speaks_legacy(&found.supported_versions),
        meta: found.meta.and_then(peers_meta),
    }))
}

fn judge_error(error: RpcError<'_>) -> Result<Option<Handshake>, ProbeError> {
    if error.is(code::UNSUPPORTED_PROTOCOL_VERSION) {
        return only_others(&supported_by(error));
    }
    if error.is(code::HEADER_MISMATCH) || error.is(code::MISSING_CLIENT_CAPABILITY) {
        return Err(ProbeError::Words(format!("server/discover failed: {} ({})", error.message, error.code)));
    }
    Ok(None)
}

/// Handles a server that does not support our modern revision: `Ok(None)` if it supports a legacy one that we know.
fn only_others(supported: &[String]) -> Result<Option<Handshake>, ProbeError> {
    if supported.is_empty() || speaks_legacy(supported) {
        return Ok(None);
    }
    if supported.iter().any(|version| version == Version::MODERN.as_str()) {
        return Err(ProbeError::Words(format!(
            "it refuses protocol version {} although it lists it",
            Version::MODERN.as_str()
        )));
    }
    Err(ProbeError::Words(format!(
        "it supports only protocol versions that the gateway does not support: {}",
        supported.join(", ")
    )))
}

fn speaks_legacy(supported: &[String]) -> bool {
    let versions = supported.iter().filter_map(|version| Version::parse(version));
    versions.into_iter().any(|version| version.era() == Era::Legacy)
}

/// The part of a `_meta` object that is not the protocol's; `None` if there is none, or if it is no object.
pub fn peers_meta(meta: Box<RawValue>) -> Option<Box<RawValue>> {
    if !meta.get().starts_with('{') {
        return None;
    }
    match PeersMeta::of(meta.get().as_bytes()) {
        PeersMeta::All => Some(meta),
        PeersMeta::Part(part) => serde_json::from_slice(&part).ok(),
        PeersMeta::Nothing => None,
    }
}

/// The result of an answer; an error becomes a sentence that names the request.
pub fn result_of<'a>(answer: &'a Response, method: &str) -> Result<&'a [u8], ProbeError> {
    answer.result().ok_or_else(|| {
        ProbeError::Words(match answer.error() {
            Some(error) => format!("{method} failed: {} ({})", error.message, error.code),
            None => format!("{method} failed without a reason"),
        })
    })
}
