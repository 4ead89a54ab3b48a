//! Connecting to a server: opens the transport, detects the era, performs the handshake, reads every list. One timeout
//! covers all of it, and its error names the step that was not finished.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::watch;
use tokio_util::task::TaskTracker;

use super::calls::Purpose;
use super::credentials::Credentials;
use super::error::{CallError, ConnectError, Denial, seconds};
use super::exchange::Exchange;
use super::http::{HttpClient, Streamable, start_listening};
use super::inbound::Inbound;
use super::link::{Carrier, Link};
use super::lists::{self, Discovery};
use super::pace::Pace;
use super::probe::{self, Handshake};
use super::request::LinkRequest;
use super::slots::ServerSlots;
use super::sse::EventStream;
use super::stdio::{Child, StderrTail};
use super::step::Step;
use super::{Boxed, Options};
use model::{Capabilities, Offering, Process, Redactor, ServerConfig, Transport, excerpt};
use wire::{Era, Version};

/// The pause after a change of the subscribed resources, for each `SETTLED_AT_ONCE` bytes of the request that follows.
const SETTLING: Duration = Duration::from_millis(20);
const SETTLED_AT_ONCE: usize = 64 * 1024;
const LONGEST_SETTLING: Duration = Duration::from_secs(5);

/// The server to connect to, and what is needed for it.
#[derive(Clone, Copy)]
pub struct ConnectTarget<'a> {
    pub config: &'a ServerConfig,
    pub options: &'a Options,
    pub stderr: &'a StderrTail,
    pub slots: &'a ServerSlots,
    /// `None` where the server cannot use OAuth.
    pub credentials: Option<&'a Arc<Credentials>>,
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
        let words = to.stderr.last_words(5);
        return Err(if words.is_empty() {
            late
        } else {
            ConnectError::Failed(format!("{late}; it said: {words}"))
        });
    };
    result
}

/// Reads every list again over a working link.
pub async fn read_again(
    link: &Arc<Link>,
    config: &ServerConfig,
    options: &Options,
    before: &Offering,
) -> Result<Discovery, ConnectError> {
    let handshake = Handshake {
        version: link.version().unwrap_or(Version::LATEST_LEGACY),
        capabilities: before.capabilities.clone(),
        server_info: before.server_info.clone(),
        instructions: before.instructions.clone(),
        meta: before.meta.handshake.clone(),
    };
    let step = Step::of(config, options);
    match tokio::time::timeout(options.init_timeout, lists::read(link, &handshake, &step, &options.budgets))
        .await
    {
        Ok(discovery) => discovery.map_err(|error| explain(error, config, &Redactor::of(config))),
        Err(_) => Err(late(config, options, &step)),
    }
}

fn late(config: &ServerConfig, options: &Options, step: &Step) -> ConnectError {
    let (doing, limit) = (step.doing(), seconds(options.init_timeout));
    ConnectError::Failed(format!("{} did not finish {doing} within {limit}", config.target()))
}

async fn attempt(
    to: &ConnectTarget<'_>,
    known: Option<Era>,
    step: &Step,
) -> Result<(Arc<Link>, Discovery), ConnectError> {
    let mut unfinished = UnfinishedLink::new(to.options);
    let met = meet(to, Capabilities::NONE, known, step, &mut unfinished).await;
    let (config, redactor) = (to.config, Redactor::of(to.config));
    let (link, handshake) = met.map_err(|error| explain(error, config, &redactor))?;
    watch(&link, &handshake);
    link.about_to_read().await;
    let discovery = lists::read(&link, &handshake, step, &to.options.budgets).await;
    let discovery = discovery.map_err(|error| explain(error, config, &redactor))?;
    unfinished.link = None;
    Ok((link, discovery))
}

/// Opens a further link to a connected server: performs the handshake with these capabilities, reads no list.
pub fn connect_further<'a>(
    to: &'a ConnectTarget<'a>,
    capabilities: Capabilities,
    known: Option<Era>,
) -> Boxed<'a, Result<Arc<Link>, ConnectError>> {
    Box::pin(connect_further_in_time(to, capabilities, known))
}

async fn connect_further_in_time(
    to: &ConnectTarget<'_>,
    capabilities: Capabilities,
    known: Option<Era>,
) -> Result<Arc<Link>, ConnectError> {
    let step = Step::of(to.config, to.options);
    let mut unfinished = UnfinishedLink::new(to.options);
    let met = meet(to, capabilities, known, &step, &mut unfinished);
    let met = tokio::time::timeout(to.options.init_timeout, met).await;
    let met = met.map_err(|_| late(to.config, to.options, &step))?;
    let (link, handshake) = met.map_err(|error| explain(error, to.config, &Redactor::of(to.config)))?;
    if handshake.version.era() == Era::Legacy {
        start_listening(&link, handshake.version);
        // SDK servers send their requests on this stream, and drop them while it is not open.
        link.open_ears().await;
    }
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
) -> Result<(Arc<Link>, Handshake), probe::ProbeError> {
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
        Transport::Stdio(process) => greet_process(process, to, capabilities, known, step).await?,
    };
    link.agree_on(handshake.version);
    unfinished.link = Some(link.clone());
    Ok((link, handshake))
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
    let link = open_stdio(process, to, capabilities, step).await?;
    if known == Some(Era::Legacy) {
        let handshake = probe::initialize(&link, step).await?;
        return Ok((link, handshake));
    }
    match probe::over_stdio(&link, step).await {
        Ok(handshake) => Ok((link, handshake)),
        Err(_) if link.calls.is_lost() => {
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
    let deliver = streamable.clone().deliver(outbox);
    let link = Link::new(Carrier::Http(streamable), capabilities);
    let stop = link.stop.clone();
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

/// Starts listening for messages that the upstream sends outside of any call.
fn watch(link: &Arc<Link>, handshake: &Handshake) {
    match handshake.version.era() {
        Era::Legacy => start_listening(link, handshake.version),
        Era::Modern => {
            let (weak, stop, changes) = (Arc::downgrade(link), link.stop.clone(), handshake.change_notices());
            link.tasks.spawn(async move { stop.run_until_cancelled(subscribe(weak, changes)).await });
        }
    }
}

/// Keeps one `subscriptions/listen` open for list changes and for subscribed resources; its messages are routed like
/// all others.
async fn subscribe(link: Weak<Link>, changes: Vec<String>) {
    let mut pace = Pace::default();
    let Some(mut resources) = link.upgrade().map(|link| link.wanted_resources.subscribe()) else { return };
    for round in 0u64.. {
        let wanted = notifications(&changes, &resources.borrow_and_update());
        let Some(wanted) = wanted else {
            if let Some(live) = link.upgrade() {
                live.hears_now();
            }
            match settled_change(&mut resources, Duration::ZERO).await {
                Ok(()) => continue,
                Err(_) => return,
            }
        };
        let Some(live) = link.upgrade().filter(|link| !link.calls.is_lost()) else { return };
        let params: &[(&str, &[u8])] = &[("notifications", wanted.as_bytes())];
        let request =
            LinkRequest { method: "subscriptions/listen", params, progress: false, purpose: Purpose::OurOwn };
        match live.request(request).await {
            Ok(exchange) => {
                live.hears_now();
                if round > 0 {
                    // Changes in the meantime were not announced to us.
                    live.calls.signals.lists_changed();
                }
                drop(live);
                pace.begin();
                let settling = settling_time(wanted.len());
                tokio::select! {
                    goes_on = hear_out(exchange) => {
                        if !goes_on {
                            return;
                        }
                    }
                    changed = settled_change(&mut resources, settling) => match changed {
                        Ok(()) => continue,
                        Err(_) => return,
                    },
                }
            }
            Err(error @ (CallError::NotSent(_) | CallError::SessionLost(_))) => {
                return live.calls.signals.suspect(&error.to_string());
            }
            Err(CallError::Lost(_) | CallError::TimedOut(_)) => drop(live),
            Err(CallError::Status { .. } | CallError::Unauthorized(_) | CallError::Exceeded(_)) => return,
        }
        pace.pause(Duration::ZERO).await;
    }
}

/// Waits for a change of the subscribed resources, and for those that follow closely: each request names all of them,
/// so one request for each change would take time proportional to the square of their number.
async fn settled_change(
    resources: &mut watch::Receiver<BTreeSet<String>>,
    settling: Duration,
) -> Result<(), watch::error::RecvError> {
    resources.changed().await?;
    if !settling.is_zero() {
        tokio::time::sleep(settling).await;
    }
    Ok(())
}

/// The pause after a change: none before a short request. Otherwise it grows with the length of the request, so that
/// requests never take most of the time.
fn settling_time(length: usize) -> Duration {
    let times = u32::try_from(length / SETTLED_AT_ONCE).unwrap_or(u32::MAX);
    SETTLING.saturating_mul(times).min(LONGEST_SETTLING)
}

/// The notifications to ask for; `None` when there are none.
fn notifications(changes: &[String], resources: &BTreeSet<String>) -> Option<String> {
    let mut wanted: serde_json::Map<String, Value> =
        changes.iter().map(|kind| (kind.clone(), Value::Bool(true))).collect();
    if !resources.is_empty() {
        wanted.insert("resourceSubscriptions".into(), resources.iter().cloned().collect::<Vec<_>>().into());
    }
    (!wanted.is_empty()).then(|| Value::Object(wanted).to_string())
}

/// Waits for the end of a subscription; false when the server refused it with an error.
async fn hear_out(mut exchange: Exchange) -> bool {
    loop {
        match exchange.next().await {
            // A graceful end is a result.
            Ok(Inbound::Answer(answer)) => return answer.result().is_some(),
            Ok(Inbound::Notice(_) | Inbound::Request(_)) => {}
            Err(_) => return true,
        }
    }
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
