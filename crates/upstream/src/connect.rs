//! Connecting to a server: opens the transport, detects the era, performs the handshake, reads every list. One timeout
//! covers all of it, and its error names the step that was not finished.

use std::path::Path;
use std::sync::Arc;

use tokio_util::task::TaskTracker;

use super::credentials::Credentials;
use super::error::{CallError, ConnectError, Denial, seconds};
use super::http::{HttpClient, Streamable};
use super::journal::LAST_LINES;
use super::link::{Carrier, Link};
use super::listen::start_listening;
use super::lists::{self, Discovery};
use super::probe::{self, Handshake};
use super::reading::Reading;
use super::slots::ServerSlots;
use super::sse::EventStream;
use super::stdio::{Child, Stderr};
use super::step::Step;
use super::{Boxed, Options};
use model::{Capabilities, Process, Redactor, ServerConfig, Transport, excerpt};
use wire::Era;

/// The server to connect to, and what is needed for it.
#[derive(Clone, Copy)]
pub struct ConnectTarget<'a> {
    pub config: &'a ServerConfig,
    pub options: &'a Options,
    pub stderr: &'a Stderr,
    pub slots: &'a ServerSlots,
    /// `None` where the server cannot use OAuth.
    pub credentials: Option<&'a Arc<Credentials>>,
    pub reading: Reading,
}

/// Connects and reads every list. `known` is the era found last time; for a legacy server it saves the probe.
pub fn connect<'a>(
    to: &'a ConnectTarget<'a>,
    known: Option<Era>,
) -> Boxed<'a, Result<(Arc<Link>, Discovery), ConnectError>> {
    Box::pin(connect_in_time(to, known))
}

async fn connect_in_time(
    to: &ConnectTarget<'_>,
    known: Option<Era>,
) -> Result<(Arc<Link>, Discovery), ConnectError> {
    let step = Step::of(to.config, to.options);
    let attempt = attempt(to, known, &step);
    let Ok(result) = tokio::time::timeout(to.options.init_timeout, attempt).await else {
        let late = late(to.config, to.options, &step);
        // A process that died tells more than the second one, which was too slow.
        if let Some(death) = step.death() {
            let text = format!("{death}\nStarted again: {late}");
            return Err(ConnectError::Failed(excerpt::cut(
                Redactor::of(to.config).redact(&text),
                excerpt::SENTENCE,
            )));
        }
        let words = to.stderr.last_words(5);
        return Err(if words.is_empty() {
            late
        } else {
            ConnectError::Failed(format!("{late}{LAST_LINES}{words}"))
        });
    };
    result
}

/// Reads every list over a working link, as clients with these capabilities see them.
pub async fn read_lists(
    link: &Arc<Link>,
    config: &ServerConfig,
    options: &Options,
    capabilities: &Capabilities,
) -> Result<Discovery, ConnectError> {
    let step = Step::of(config, options);
    let reading = lists::read(link, &step, &options.budgets, capabilities);
    match tokio::time::timeout(options.init_timeout, reading).await {
        Ok(discovery) => discovery.map_err(|error| explain(error, config, &Redactor::of(config))),
        Err(_) => Err(late(config, options, &step)),
    }
}

fn late(config: &ServerConfig, options: &Options, step: &Step) -> ConnectError {
    let (doing, limit) = (step.doing(), seconds(options.init_timeout));
    ConnectError::Failed(format!("{} did not finish {doing} within {limit}{}", config.target(), hint(config)))
}

/// Programs that download a package when it is used for the first time.
const DOWNLOADERS: [&str; 5] = ["npx", "bunx", "uvx", "pipx", "docker"];

/// What to do about a server that was too slow: a download that is cut off may have to be repeated each time.
fn hint(config: &ServerConfig) -> &'static str {
    let Transport::Stdio(process) = &config.transport else { return "" };
    let program = Path::new(&process.command).file_name().and_then(|name| name.to_str());
    match program.is_some_and(|program| DOWNLOADERS.contains(&program)) {
        true => {
            "; if it was still downloading a package, run the command once in a terminal until it has started, or \
             raise MCP_SERVER_INIT_REQ_TIMEOUT_SEC"
        }
        false => "",
    }
}

async fn attempt(
    to: &ConnectTarget<'_>,
    known: Option<Era>,
    step: &Step,
) -> Result<(Arc<Link>, Discovery), ConnectError> {
    let mut unfinished = UnfinishedLink::new(to.options);
    let met = meet(to, Capabilities::NONE, known, step, &mut unfinished).await;
    let (config, redactor) = (to.config, Redactor::of(to.config));
    let link = met.map_err(|error| explain(error, config, &redactor))?;
    start_listening(&link);
    link.about_to_read().await;
    let discovery = lists::read(&link, step, &to.options.budgets, &Capabilities::NONE).await;
    let discovery = discovery.map_err(|error| explain(error, config, &redactor))?;
    unfinished.link = None;
    Ok((link, discovery))
}

/// Connects without reading any list. `known` is the era found last time.
pub fn connect_only<'a>(
    to: &'a ConnectTarget<'a>,
    known: Option<Era>,
) -> Boxed<'a, Result<Arc<Link>, ConnectError>> {
    Box::pin(handshake_in_time(to, Capabilities::NONE, known))
}

/// Opens a further link to a connected server, in this era: performs the handshake with these capabilities, reads no
/// list.
pub fn connect_further<'a>(
    to: &'a ConnectTarget<'a>,
    capabilities: Capabilities,
    era: Era,
) -> Boxed<'a, Result<Arc<Link>, ConnectError>> {
    Box::pin(connect_further_in_time(to, capabilities, era))
}

async fn connect_further_in_time(
    to: &ConnectTarget<'_>,
    capabilities: Capabilities,
    era: Era,
) -> Result<Arc<Link>, ConnectError> {
    let link = handshake_in_time(to, capabilities, Some(era)).await?;
    if link.era() != era {
        to.options.tasks.spawn(async move { link.close().await });
        let reason = format!("{} no longer supports the protocol revision of the caller", to.config.target());
        return Err(ConnectError::Failed(reason));
    }
    Ok(link)
}

async fn handshake_in_time(
    to: &ConnectTarget<'_>,
    capabilities: Capabilities,
    known: Option<Era>,
) -> Result<Arc<Link>, ConnectError> {
    let step = Step::of(to.config, to.options);
    let mut unfinished = UnfinishedLink::new(to.options);
    let met = meet(to, capabilities, known, &step, &mut unfinished);
    let met = tokio::time::timeout(to.options.init_timeout, met).await;
    let met = met.map_err(|_| late(to.config, to.options, &step))?;
    let link = met.map_err(|error| explain(error, to.config, &Redactor::of(to.config)))?;
    start_listening(&link);
    // SDK servers send their requests on this stream, and drop them while it is not open.
    link.about_to_read().await;
    unfinished.link = None;
    Ok(link)
}

/// Opens the transport and performs the handshake.
async fn meet(
    to: &ConnectTarget<'_>,
    capabilities: Capabilities,
    known: Option<Era>,
    step: &Step,
    unfinished: &mut UnfinishedLink,
) -> Result<Arc<Link>, probe::ProbeError> {
    let ConnectTarget { config, options, credentials, .. } = *to;
    step.set("connecting");
    let redactor = Redactor::of(config);
    let (link, handshake) = match &config.transport {
        Transport::StreamableHttp(endpoint) => {
            let client = HttpClient::new(endpoint, redactor, credentials.cloned(), options);
            let link = open_http(client, capabilities);
            unfinished.link = Some(link.clone());
            let handshake = probe::over_http(&link, known, options.init_timeout, step).await?;
            (link, handshake)
        }
        Transport::Sse(endpoint) => {
            let client = HttpClient::new(endpoint, redactor, credentials.cloned(), options);
            let link = open_sse(client, capabilities).await?;
            let handshake = probe::initialize(&link, step).await?;
            (link, handshake)
        }
        Transport::Stdio(process) => match to.reading {
            Reading::Here | Reading::Elsewhere => {
                greet_process(process, to, capabilities, known, step).await?
            }
            Reading::Through(slot) => {
                let unknown = || CallError::NotSent("no gateway runs the server yet; try again".into());
                let client = HttpClient::through(config, slot.ok_or_else(unknown)?, options)?;
                let link = open_http(client, capabilities);
                unfinished.link = Some(link.clone());
                let handshake = probe::over_http(&link, known, options.init_timeout, step).await?;
                (link, handshake)
            }
        },
    };
    link.introduce(handshake);
    unfinished.link = Some(link.clone());
    Ok(link)
}

/// A link that is not completely connected yet; closed on drop. Just dropping the link would not end it, because the
/// tasks that listen on it hold it too, and the upstream would keep an unused session.
struct UnfinishedLink {
    link: Option<Arc<Link>>,
    tasks: TaskTracker,
}

impl UnfinishedLink {
    fn new(options: &Options) -> Self {
        Self { link: None, tasks: options.tasks.clone() }
    }
}

impl Drop for UnfinishedLink {
    fn drop(&mut self) {
        if let Some(link) = self.link.take() {
            self.tasks.spawn(async move { link.close().await });
        }
    }
}

/// Performs the handshake with a process. One that exits on the probe is a legacy server that tolerates nothing before
/// `initialize`, so it is started again without a probe.
async fn greet_process(
    process: &Process,
    to: &ConnectTarget<'_>,
    capabilities: Capabilities,
    known: Option<Era>,
    step: &Step,
) -> Result<(Arc<Link>, Handshake), probe::ProbeError> {
    let link = open_stdio(process, to, capabilities.clone(), step).await?;
    if known == Some(Era::Legacy) {
        let handshake = probe::initialize(&link, step).await?;
        return Ok((link, handshake));
    }
    match probe::over_stdio(&link, step).await {
        Ok(handshake) => Ok((link, handshake)),
        Err(_) if link.calls.is_lost() => {
            step.note_death(link.calls.lost());
            let link = open_stdio(process, to, capabilities, step).await?;
            let handshake = probe::initialize(&link, step).await?;
            Ok((link, handshake))
        }
        Err(error) => Err(error),
    }
}

async fn open_stdio(
    process: &Process,
    to: &ConnectTarget<'_>,
    capabilities: Capabilities,
    step: &Step,
) -> Result<Arc<Link>, CallError> {
    let ConnectTarget { config, options, stderr, slots, .. } = *to;
    let slot = slots.take(&options.tasks, step).await?;
    let started = Child::start(process, options, Redactor::of(config), stderr.of_next_process(), slot);
    let (child, running) = started.map_err(CallError::NotSent)?;
    let link = Link::new(Carrier::Stdio(child), capabilities);
    link.tasks.spawn(running.run(Arc::downgrade(&link), link.stop.clone()));
    Ok(link)
}

fn open_http(client: HttpClient, capabilities: Capabilities) -> Arc<Link> {
    let (streamable, outbox) = Streamable::new(client);
    let sender = streamable.clone();
    let link = Link::new(Carrier::Http(streamable), capabilities);
    let (deliver, stop) = (sender.deliver(outbox, link.calls.clone()), link.stop.clone());
    link.tasks.spawn(async move { stop.run_until_cancelled(deliver).await });
    link
}

async fn open_sse(client: HttpClient, capabilities: Capabilities) -> Result<Arc<Link>, CallError> {
    let (stream, incoming) = EventStream::open(client).await?;
    let link = Link::new(Carrier::Sse(stream), capabilities);
    let (run, stop) = (incoming.run(Arc::downgrade(&link)), link.stop.clone());
    link.tasks.spawn(async move { stop.run_until_cancelled(run).await });
    Ok(link)
}

/// Turns a failure of the handshake or the lists into an error sentence for people.
fn explain(error: probe::ProbeError, config: &ServerConfig, redactor: &Redactor) -> ConnectError {
    // Cut after the secrets are redacted: a part of one would not be recognized.
    let quoted = |text: &str| excerpt::cut(redactor.redact(text), excerpt::SENTENCE);
    match error {
        probe::ProbeError::Call(CallError::Unauthorized(denial)) if denial.had_grant => {
            ConnectError::Unauthorized(Denial { text: quoted(&denial.text), ..denial })
        }
        probe::ProbeError::Call(CallError::Unauthorized(denial)) => {
            let text = format!(
                "{denial}; the server requires credentials: give a bearer_token, or an Authorization value in headers"
            );
            ConnectError::Unauthorized(Denial { text, ..denial })
        }
        probe::ProbeError::Call(error @ (CallError::NotSent(_) | CallError::SessionLost(_))) => {
            ConnectError::Unreachable(quoted(&error.to_string()))
        }
        probe::ProbeError::Call(error) => ConnectError::Failed(quoted(&error.to_string())),
        probe::ProbeError::Words(words) => {
            ConnectError::Failed(quoted(&format!("{}: {words}", config.target())))
        }
    }
}
