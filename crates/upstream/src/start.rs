//! Starts supervising a server, which is connected first or in the background. The supervising task is in `supervisor`.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

use arc_swap::ArcSwapOption;
use tokio::sync::{Notify, Semaphore, mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Options;
use super::connect::{ConnectTarget, connect};
use super::credentials::Credentials;
use super::error::ConnectError;
use super::failures::Failures;
use super::handle::{HANDSHAKES_AT_ONCE, LinkState, ServerEvent, Shared, Upstream};
use super::journal::Journal;
use super::link::Link;
use super::lists::Discovery;
use super::reading::Reading;
use super::slots::ServerSlots;
use super::stdio::Stderr;
use super::supervisor::Supervisor;
use budget::{Bound, Budget, WAITING_CALLS};
use model::{Offering, Redactor, ServerConfig, Status};
use wire::{Era, Version};

/// What there is before the supervisor takes over.
struct Beginning {
    known_era: Option<Era>,
    slots: Arc<ServerSlots>,
    stderr: Stderr,
    connected: Option<(Arc<Link>, Discovery)>,
    /// Why an attempt to connect just failed.
    failure: Option<String>,
    reading: Reading,
    /// What the server offered when its lists were last read, if another gateway reads them.
    offering: Option<Arc<Offering>>,
}

impl Upstream {
    /// Connects now and returns what the server offers; then the supervisor takes over.
    pub async fn connect(
        config: ServerConfig,
        options: Options,
        events: mpsc::UnboundedSender<ServerEvent>,
        credentials: Option<Arc<Credentials>>,
        journal: Journal,
    ) -> Result<(Self, Discovery), ConnectError> {
        journal.note("connecting");
        let stderr = Stderr::new(journal);
        let slots = options.processes.of_server();
        let target = ConnectTarget {
            config: &config,
            options: &options,
            stderr: &stderr,
            slots: &slots,
            credentials: credentials.as_ref(),
            reading: Reading::Here,
        };
        let (link, discovery) = match connect(&target, None).await {
            Ok(connected) => connected,
            Err(error) => {
                stderr
                    .journal
                    .note(&format!("cannot connect: {}", Redactor::of(&config).redact(&error.to_string())));
                return Err(error);
            }
        };
        let known_era = link.version().map(|version| version.era());
        let connected = Some((link, discovery.clone()));
        let upstream = Self::start(
            config,
            options,
            events,
            credentials,
            Beginning {
                known_era,
                slots,
                stderr,
                connected,
                failure: None,
                reading: Reading::Here,
                offering: None,
            },
        );
        Ok((upstream, discovery))
    }

    /// Connects in the background, or when a caller needs the server. `offering` is the stored offering of the server.
    pub fn resume(
        config: ServerConfig,
        options: Options,
        events: mpsc::UnboundedSender<ServerEvent>,
        credentials: Option<Arc<Credentials>>,
        journal: Journal,
        offering: &Arc<Offering>,
        reading: Reading,
    ) -> Self {
        let known_era = Version::parse(&offering.protocol_version).map(|version| version.era());
        let (slots, stderr) = (options.processes.of_server(), Stderr::new(journal));
        let offering = (reading != Reading::Here).then(|| offering.clone());
        let beginning =
            Beginning { known_era, slots, stderr, connected: None, failure: None, reading, offering };
        Self::start(config, options, events, credentials, beginning)
    }

    /// Supervises a server that could not be connected just now, for this reason: it is tried again after a pause.
    pub fn resume_failed(
        config: ServerConfig,
        options: Options,
        events: mpsc::UnboundedSender<ServerEvent>,
        credentials: Option<Arc<Credentials>>,
        journal: Journal,
        reason: String,
    ) -> Self {
        let (slots, stderr) = (options.processes.of_server(), Stderr::new(journal));
        let beginning = Beginning {
            known_era: None,
            slots,
            stderr,
            connected: None,
            failure: Some(reason),
            reading: Reading::Here,
            offering: None,
        };
        Self::start(config, options, events, credentials, beginning)
    }

    fn start(
        config: ServerConfig,
        options: Options,
        events: mpsc::UnboundedSender<ServerEvent>,
        credentials: Option<Arc<Credentials>>,
        beginning: Beginning,
    ) -> Self {
        let Beginning { known_era, slots, stderr, connected, failure, reading, offering } = beginning;
        let has_failed = failure.is_some();
        let also_legacy = connected.as_ref().and_then(|(link, _)| link.also_legacy());
        let (refreshes, refresh_requests) = mpsc::unbounded_channel();
        let permits =
            usize::try_from(config.max_concurrency).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
        let waiting = Budget::new(Bound::WaitingCalls, WAITING_CALLS, &options.budgets.refusals);
        let shared = Arc::new(Shared {
            config,
            options,
            events,
            credentials,
            state: watch::Sender::new(LinkState {
                status: if failure.is_some() { Status::Failed } else { Status::Connecting },
                reason: failure.unwrap_or_default(),
                link: None,
                is_resting: false,
            }),
            reading: watch::Sender::new(reading),
            elsewhere: Mutex::new((Status::Connecting, String::new())),
            offering: ArcSwapOption::new(
                connected.as_ref().map(|(_, discovery)| discovery.offering.clone()).or(offering),
            ),
            stderr,
            failures: Failures::default(),
            known_era: Mutex::new(known_era),
            also_legacy: Mutex::new(also_legacy),
            finding_era: tokio::sync::Mutex::default(),
            handshakes: Semaphore::new(HANDSHAKES_AT_ONCE),
            last_discovery: Mutex::default(),
            remarks: Mutex::default(),
            wanted: Notify::new(),
            woken: Notify::new(),
            refreshes,
            slots,
            level: Mutex::default(),
            wanted_topics: Mutex::default(),
            permits: (permits > 0).then(|| Arc::new(Semaphore::new(permits))),
            waiting,
            restarts: AtomicU64::default(),
            stop: CancellationToken::new(),
            task: TaskTracker::new(),
        });
        if let Some((link, discovery)) = &connected {
            shared.note_connected("connected", link, &discovery.offering);
            shared.show_connected(link, discovery);
        }
        let upstream = Self(shared.clone());
        let supervisor = Supervisor {
            upstream: upstream.clone(),
            refreshes: refresh_requests,
            has_read: true,
            starts_again: has_failed,
            was_connected: connected.is_some(),
        };
        shared.task.spawn(supervisor.run(connected));
        shared.task.close();
        upstream
    }
}
