//! Opens, finds and closes further links of a server, and reads the lists that callers of these links see; `pool` keeps
//! them.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;

use super::Boxed;
use super::branch::Branch;
use super::connect::{connect_further, read_lists};
use super::error::{CallError, ConnectError};
use super::handle::{ServerEvent, Shared, Upstream};
use super::journal::without_output;
use super::link::Link;
use super::pace::Pace;
use super::pool::Found;
use super::profile::{Owner, Profile};
use super::reading::MOVED;
use model::{Capabilities, Offering, SessionMode, Topic, Transport, excerpt};
use wire::{Era, text};

/// The pause before lists are read again that the server announced as changed: further changes follow closely.
const SETTLING: Duration = Duration::from_millis(20);

/// How much of a client's declaration the status quotes.
const QUOTED: usize = 200;

/// What serves a caller.
enum Server {
    /// The first link, and the common lists.
    First(Arc<Link>),
    Branch(Arc<Branch>),
}

/// What a caller needs, as far as the eras of the server are known.
enum Need {
    FirstLink,
    Branch(Profile),
    /// The server is modern, and it is not known yet whether it also speaks the caller's era.
    Era,
}

impl Upstream {
    /// The link for a caller; an owner gets one of its own where the server is stateful.
    pub async fn link_for(&self, profile: &Profile) -> Result<Arc<Link>, CallError> {
        let first = self.link().await?;
        if let Need::FirstLink = self.need(first.era(), profile) {
            return Ok(first);
        }
        // Boxed, since the future is large and not always needed.
        Box::pin(async {
            loop {
                let branch = match self.server_for(profile, first.clone()).await? {
                    Server::First(link) => return Ok(link),
                    Server::Branch(branch) => branch,
                };
                let link = self.link_of(&branch).await;
                // One that callers share is given up for another one, and there is another one for this caller then.
                if link.is_ok() || !branch.is_given_up() || branch.profile.owner.is_some() {
                    return link;
                }
            }
        })
        .await
    }

    /// The profile of the link that serves a caller: equal for all callers that share it.
    pub async fn link_profile(&self, profile: &Profile) -> Result<Profile, CallError> {
        let first = self.link().await?;
        let first_profile =
            |link: &Link| Profile { era: link.era(), capabilities: Capabilities::NONE, owner: None };
        Ok(match self.server_for(profile, first.clone()).await? {
            Server::First(link) => first_profile(&link),
            Server::Branch(branch) if branch.uses_first_link() => first_profile(&first),
            Server::Branch(branch) => self.carrier(&branch).unwrap_or(branch).profile.clone(),
        })
    }

    /// Whether `lists_for` would return at once, with nothing that it did not return before.
    pub fn has_told_lists_for(&self, profile: &Profile) -> bool {
        let Some(era) = self.0.first_era() else { return false };
        let pool = &self.0.slots.pool;
        let needed = match self.need(era, profile) {
            Need::FirstLink => return true,
            Need::Branch(needed) => needed,
            Need::Era => return false,
        };
        pool.get(&needed).is_some_and(|branch| {
            let uses_common = branch.is_failed() && branch.profile.owner.is_none();
            uses_common || pool.is_read(&needed) && self.lists_of(&branch).is_some()
        })
    }

    /// The lists of a branch, if they can be used. A caller with a link of its own must see what its own calls changed,
    /// so there an announced change is waited for.
    fn lists_of(&self, branch: &Branch) -> Option<Arc<Offering>> {
        match branch.profile.owner {
            Some(_) => branch.fresh_lists(),
            None => branch.lists(),
        }
    }

    /// The lists that a caller sees; reads them if nobody with this profile did before. `None` for the common lists.
    pub async fn lists_for(&self, profile: &Profile) -> Result<Option<Arc<Offering>>, CallError> {
        let first = self.link().await?;
        match self.server_for(profile, first).await? {
            Server::First(_) => Ok(None),
            Server::Branch(branch) => {
                branch.touch();
                let lists = match self.lists_of(&branch) {
                    Some(lists) => lists,
                    None => self.read_branch(&branch, false).await?,
                };
                if let Some(needed) = self.list_profile(profile) {
                    self.0.slots.pool.set_read(&needed);
                }
                Ok(Some(lists))
            }
        }
    }

    /// The profile under which the lists for a caller are announced; `None` for the common ones.
    pub fn list_profile(&self, profile: &Profile) -> Option<Profile> {
        match self.need(self.0.first_era()?, profile) {
            Need::Branch(needed) => Some(needed),
            Need::FirstLink | Need::Era => None,
        }
    }

    /// Whether a caller's calls use the link of the profile `link`. A server may send the same notice on all its links.
    pub fn is_served_by(&self, profile: &Profile, link: &Profile) -> bool {
        let Some(era) = self.0.first_era() else { return false };
        let is_first = link.is_first(Some(era));
        match self.need(era, profile) {
            Need::FirstLink => is_first,
            Need::Branch(needed) => match self.0.slots.pool.get(&needed) {
                Some(branch) if branch.link().is_some() => branch.profile == *link,
                Some(_) | None => is_first,
            },
            Need::Era => false,
        }
    }

    /// Whether the server can be asked, perhaps after its link is opened.
    pub fn is_connected(&self) -> bool {
        let state = self.0.state.borrow();
        state.link.is_some() || state.is_resting
    }

    /// Whether a modern server grants notices about a topic that is subscribed on the link of this profile; waits for
    /// its answer. Legacy servers are asked by a request of its own for each resource.
    pub async fn grants(&self, at: &Profile, topic: &Topic) -> Result<bool, CallError> {
        let link = match at.is_first(self.0.first_era()) {
            true => Some(self.link().await?),
            false => self.0.slots.pool.get(at).and_then(|branch| branch.link()),
        };
        match link.filter(|link| link.is_modern()) {
            Some(link) => link.grants(topic).await,
            None => Ok(true),
        }
    }

    /// What a caller needs of a server whose first link has the era `first`.
    fn need(&self, first: Era, profile: &Profile) -> Need {
        let owner = profile.owner.filter(|_| self.config().session_mode == SessionMode::Stateful);
        let legacy = |capabilities: Capabilities| match owner.is_none()
            && capabilities.is_empty()
            && first == Era::Legacy
        {
            true => Need::FirstLink,
            false => Need::Branch(Profile { era: Era::Legacy, capabilities, owner }),
        };
        match (first, profile.era) {
            // What it asks a modern client for during a call is translated.
            (Era::Legacy, _) => legacy(profile.capabilities.clone()),
            (Era::Modern, Era::Legacy) if self.0.speaks_legacy() == Some(true) => {
                legacy(profile.capabilities.clone())
            }
            (Era::Modern, Era::Legacy) if self.0.speaks_legacy().is_none() => Need::Era,
            // Over HTTP the modern era has no sessions that could be one caller's own.
            (Era::Modern, _) => match owner.filter(|_| self.is_process()) {
                None if profile.capabilities.is_empty() => Need::FirstLink,
                owner => {
                    let capabilities = profile.capabilities.clone();
                    Need::Branch(Profile { era: Era::Modern, capabilities, owner })
                }
            },
        }
    }

    /// Whether each set of capabilities needs a process of its own.
    pub fn is_legacy_process(&self) -> bool {
        self.is_process() && self.0.first_era() == Some(Era::Legacy)
    }

    fn is_process(&self) -> bool {
        matches!(self.config().transport, Transport::Stdio(_))
    }

    async fn server_for(&self, profile: &Profile, first: Arc<Link>) -> Result<Server, CallError> {
        let needed = match self.need(first.era(), profile) {
            Need::FirstLink => return Ok(Server::First(first)),
            Need::Branch(needed) => needed,
            Need::Era => {
                // Boxed, since it is rarely needed.
                Box::pin(self.find_out_legacy(profile)).await;
                match self.need(first.era(), profile) {
                    Need::Branch(needed) => needed,
                    Need::FirstLink | Need::Era => return Ok(Server::First(first)),
                }
            }
        };
        let serves_era = first.era() == needed.era;
        let Some(found) = self.0.slots.pool.branch(&needed, self.is_process(), serves_era) else {
            self.0.note_nearest(&needed);
            return Ok(Server::First(first));
        };
        let Found { branch, is_nearest, replaced, forgotten } = found;
        self.give_up(replaced, forgotten);
        if is_nearest {
            self.0.note_nearest(&needed);
        }
        match branch.is_failed() && branch.profile.owner.is_none() && serves_era {
            true => Ok(Server::First(first)),
            false => Ok(Server::Branch(branch)),
        }
    }

    /// Finds out whether a modern server also speaks the legacy era, by opening the link that the caller needs in that
    /// case. The verdict lasts until the server is connected anew.
    pub(super) async fn find_out_legacy(&self, profile: &Profile) {
        let _turn = self.0.finding_era.lock().await;
        if self.0.speaks_legacy().is_some() {
            return;
        }
        let owner = profile.owner.filter(|_| self.config().session_mode == SessionMode::Stateful);
        let needed = Profile { era: Era::Legacy, capabilities: profile.capabilities.clone(), owner };
        let Some(Found { branch, .. }) = self.0.slots.pool.branch(&needed, false, false) else { return };
        match self.open(&branch).await {
            Ok(_) => self.0.set_speaks_legacy(Some(true)),
            Err(error) => {
                self.0.slots.pool.remove(&branch);
                branch.give_up();
                let server = &self.config().name;
                tracing::debug!(%server, reason = error.kind(), "the server supports only the modern revision");
                self.0.set_speaks_legacy(Some(false));
            }
        }
    }

    /// The link of a branch, opened if needed. If a shared one cannot be opened, the first link serves its callers.
    async fn link_of(&self, branch: &Arc<Branch>) -> Result<Arc<Link>, CallError> {
        branch.touch();
        if branch.uses_first_link() {
            return self.link().await;
        }
        if branch.is_given_up() {
            return Err(given_up());
        }
        let carrier = self.carrier(branch);
        let branch = carrier.as_ref().unwrap_or(branch);
        if let Some(link) = branch.link() {
            return Ok(link);
        }
        match self.open(branch).await {
            Ok(link) => Ok(link),
            Err(error) => {
                let first = self.link().await?;
                let may_share = branch.profile.owner.is_none() && first.era() == branch.profile.era;
                match may_share {
                    true => {
                        branch.set_failed();
                        self.0.note_refused(&error);
                        Ok(first)
                    }
                    false => Err(error),
                }
            }
        }
    }

    /// The branch whose link this one uses, if that is another one: a modern server gets the capabilities with each request,
    /// so an owner needs only one link.
    fn carrier(&self, branch: &Branch) -> Option<Arc<Branch>> {
        let needs_other = branch.profile.era == Era::Modern && !branch.profile.capabilities.is_empty();
        let carrier = Profile { capabilities: Capabilities::NONE, ..branch.profile.clone() };
        let found = needs_other.then(|| self.0.slots.pool.branch(&carrier, self.is_process(), false));
        found.flatten().map(|found| found.branch)
    }

    async fn open(&self, branch: &Arc<Branch>) -> Result<Arc<Link>, CallError> {
        let _turn = branch.opening.lock().await;
        if let Some(link) = branch.link() {
            return Ok(link);
        }
        if branch.is_given_up() {
            return Err(given_up());
        }
        let shared = &self.0;
        // Clients can declare any number of different capabilities, and the server has to answer every handshake.
        let _few_at_once = shared.handshakes.acquire().await;
        let target = shared.target();
        let opened = connect_further(&target, branch.profile.capabilities.clone(), branch.profile.era);
        let gone = || CallError::NotSent("the server was removed, replaced or disabled".into());
        let opened = shared.stop.run_until_cancelled(opened).await.ok_or_else(gone)?;
        let link = opened.map_err(|error| CallError::NotSent(error.to_string()))?;
        if target.reading.moves_to(self.reading()) {
            link.close().await;
            return Err(CallError::NotSent(MOVED.into()));
        }
        if let Some(offering) = self.offering() {
            shared.prepare(&link, &offering);
        }
        let wanted = branch.wanted_topics.lock().expect("no code panics while it holds the topics").clone();
        shared.restore_topics(&link, &wanted);
        // Changes between two links were not announced.
        branch.set_stale(true);
        if !branch.set_link(link.clone()) {
            link.close().await;
            return Err(given_up());
        }
        self.attend(branch, &link);
        let (upstream, branch) = (self.clone(), branch.clone());
        // It must not be ended and then opened again only to be read.
        let settling = shared.slots.settle(&branch, &link);
        shared.task.spawn(async move {
            upstream.note_failed(upstream.read_branch(&branch, false).await);
            drop(settling);
        });
        Ok(link)
    }

    /// Reads the lists that callers of a branch see, once for all callers that wait. `again` reads them even if there
    /// are some already.
    fn read_branch<'a>(
        &'a self,
        branch: &'a Arc<Branch>,
        again: bool,
    ) -> Boxed<'a, Result<Arc<Offering>, CallError>> {
        Box::pin(self.read_branch_in_turn(branch, again))
    }

    async fn read_branch_in_turn(
        &self,
        branch: &Arc<Branch>,
        again: bool,
    ) -> Result<Arc<Offering>, CallError> {
        let _turn = branch.reading.lock().await;
        if let Some(lists) = branch.fresh_lists().filter(|_| !again) {
            return Ok(lists);
        }
        let link = self.link_of(branch).await?;
        branch.set_stale(false);
        let shared = &self.0;
        let reading = read_lists(&link, &shared.config, &shared.options, &branch.profile.capabilities);
        let gone = || CallError::NotSent("the server was removed, replaced or disabled".into());
        let reading = shared.stop.run_until_cancelled(reading).await.ok_or_else(gone)?;
        let mut offering = match reading {
            Ok(discovery) => discovery.offering,
            Err(error) => {
                branch.set_stale(true);
                // A link that was lost meanwhile is opened again by the next caller.
                let is_other = || branch.link().is_none_or(|current| !Arc::ptr_eq(&current, &link));
                let is_lost = !branch.uses_first_link() && is_other();
                let is_refused = !is_lost && !matches!(error, ConnectError::Unreachable(_));
                if is_refused && branch.profile.owner.is_none() {
                    branch.set_failed();
                    shared.note_refused(&error);
                }
                return Err(CallError::NotSent(error.to_string()));
            }
        };
        if let Some(common) = self.offering() {
            Arc::make_mut(&mut offering).share_with(&common);
        }
        let before = branch.set_lists(offering.clone());
        if !before.is_some_and(|before| before.same_as(&offering)) {
            let served = shared.slots.pool.served_by(branch);
            let _ = shared.events.send(ServerEvent::OfferedTo(self.clone(), served, offering.clone()));
        }
        Ok(offering)
    }

    /// Reads the lists of all shared branches again that were read before. Owners are told of changes on their own links.
    pub(super) fn read_branches_again(&self) {
        let is_read = |branch: &Arc<Branch>| branch.profile.owner.is_none() && branch.lists().is_some();
        for branch in self.0.slots.pool.branches().into_iter().filter(is_read) {
            let upstream = self.clone();
            self.0.task.spawn(async move { upstream.note_failed(upstream.read_branch(&branch, true).await) });
        }
    }

    fn note_failed(&self, reading: Result<Arc<Offering>, CallError>) {
        if let Err(error) = reading {
            let (server, reason) = (&self.config().name, error.kind());
            tracing::debug!(%server, reason, "cannot read the lists of an additional link");
        }
    }

    /// Watches a further link: passes on what the server announces on it, and opens it again when it is lost, if anybody
    /// is subscribed to something there.
    fn attend(&self, branch: &Arc<Branch>, link: &Arc<Link>) {
        let (upstream, calls, stop) = (self.clone(), link.calls.clone(), link.stop.clone());
        let (branch, link) = (branch.clone(), Arc::downgrade(link));
        let attend = async move {
            let signals = &calls.signals;
            let watch = async {
                loop {
                    signals.wait().await;
                    if let Some(reason) = calls.lost().or_else(|| signals.take_suspect()) {
                        return reason;
                    }
                    for uri in signals.take_updated() {
                        let updated = ServerEvent::Updated(upstream.clone(), branch.profile.clone(), uri);
                        let _ = upstream.0.events.send(updated);
                    }
                    for notice in signals.task_notices.take() {
                        let noticed =
                            ServerEvent::TaskNotice(upstream.clone(), branch.profile.clone(), notice);
                        let _ = upstream.0.events.send(noticed);
                    }
                    if signals.take_lists_changed() {
                        upstream.take_list_change(&branch);
                    }
                    signals.take_doubt();
                }
            };
            tokio::select! {
                () = upstream.0.stop.cancelled() => {}
                () = stop.cancelled() => {}
                reason = watch => upstream.lose(&branch, &link, &reason).await,
            }
        };
        self.0.task.spawn(attend);
    }

    /// Reads lists again after the server announced a change on a further link: those of the link, also for callers with
    /// other capabilities who share it, and the common ones.
    fn take_list_change(&self, branch: &Arc<Branch>) {
        self.doubt_lists();
        let carried = |other: &Arc<Branch>| {
            let (one, other) = (&branch.profile, &other.profile);
            one.era == Era::Modern && one.era == other.era && one.owner == other.owner
        };
        let others = self.0.slots.pool.branches().into_iter().filter(carried);
        for branch in std::iter::once(branch.clone()).chain(others.filter(|it| !Arc::ptr_eq(it, branch))) {
            branch.set_stale(true);
            let upstream = self.clone();
            self.0.task.spawn(async move {
                tokio::time::sleep(SETTLING).await;
                if branch.fresh_lists().is_none() {
                    upstream.note_failed(upstream.read_branch(&branch, true).await);
                }
            });
        }
    }

    async fn lose(&self, branch: &Arc<Branch>, link: &Weak<Link>, reason: &str) {
        let server = &self.config().name;
        tracing::debug!(%server, reason = without_output(reason), "an additional link to a server ended");
        if let Some(link) = link.upgrade() {
            branch.forget(&link);
            link.abandon(reason);
        }
        let mut pace = Pace::default();
        while branch.is_subscribed() && branch.link().is_none() && !self.0.stop.is_cancelled() {
            pace.begin();
            match self.open(branch).await {
                Ok(_) => return,
                Err(error) => tracing::debug!(reason = error.kind(), "cannot reopen an additional link yet"),
            }
            self.0.stop.run_until_cancelled(pace.pause(Duration::from_secs(1))).await;
        }
    }

    /// Gives up a branch, and what was read for profiles that have none any more.
    fn give_up(&self, branch: Option<Arc<Branch>>, forgotten: Vec<Profile>) {
        if !forgotten.is_empty() {
            let _ = self.0.events.send(ServerEvent::Forgotten(self.clone(), forgotten));
        }
        let Some(branch) = branch else { return };
        if let Some(link) = branch.give_up() {
            self.0.options.tasks.spawn(async move { link.close().await });
        }
    }

    /// Gives up all further links, after the server turned out to be another one.
    pub(super) fn give_up_branches(&self) {
        for branch in self.0.slots.pool.branches() {
            let forgotten = self.0.slots.pool.remove(&branch);
            self.give_up(Some(branch), forgotten);
        }
    }

    /// Adds a topic to those that are subscribed on the link of this profile, or removes it.
    pub(super) fn want_on_branch(&self, profile: &Profile, topic: &Topic, is_wanted: bool) {
        let Some(branch) = self.0.slots.pool.get(profile) else { return };
        let mut wanted = branch.wanted_topics.lock().expect("no code panics while it holds the topics");
        let is_new = if is_wanted { wanted.insert(topic.clone()) } else { wanted.remove(topic) };
        drop(wanted);
        if let Some(link) = branch.link().filter(|_| is_new) {
            link.want_topic(topic, is_wanted);
        }
    }

    /// Opens the link of a profile again, with what is subscribed there.
    pub(super) fn restore_branch(&self, profile: &Profile, topics: BTreeSet<Topic>) {
        let Some(found) = self.0.slots.pool.branch(profile, self.is_process(), false) else { return };
        *found.branch.wanted_topics.lock().expect("no code panics while it holds the topics") = topics;
        let upstream = self.clone();
        self.0.task.spawn(async move {
            let nothing = Weak::new();
            upstream.lose(&found.branch, &nothing, "the server was changed").await;
        });
    }

    pub fn has_link_of(&self, owner: Owner) -> bool {
        self.0.slots.pool.has_link(|profile| profile.owner == Some(owner))
    }

    /// Whether the link of a profile is open.
    pub fn has_link(&self, at: &Profile) -> bool {
        at.is_first(self.0.first_era()) || self.0.slots.pool.has_link(|profile| profile == at)
    }

    /// Begins to close the links of owners that are gone: when this returns, their processes count as ending.
    pub fn release(&self, is_gone: impl Fn(Owner) -> bool) {
        let links = self.0.slots.pool.take(|branch| branch.profile.owner.is_some_and(&is_gone));
        if !links.is_empty() {
            self.0.options.tasks.spawn(close_all(links));
        }
    }

    /// Closes links of callers without sessions that were idle for longer than `limit`, and shared links of a stateful
    /// server, which are used only to greet. Links of sessions are closed with their session.
    pub async fn release_idle(&self, limit: Duration) {
        let is_stateful = self.config().session_mode == SessionMode::Stateful;
        let is_over = |branch: &Branch| match branch.profile.owner {
            Some(Owner::Principal(_) | Owner::Anybody | Owner::Link(_)) => branch.is_idle(limit),
            Some(Owner::Session(_)) => false,
            None => is_stateful && branch.link().is_some() && branch.is_idle(limit),
        };
        close_all(self.0.slots.pool.take(is_over)).await;
    }

    /// Sends a notice of a caller on its link, if both are of the same era. Returns when the server has received it.
    pub async fn tell(&self, profile: &Profile, notice: Bytes) -> Result<(), CallError> {
        let link = self.link_for(profile).await?;
        if link.era() == profile.era {
            link.tell(notice).await;
        }
        Ok(())
    }
}

impl Shared {
    /// Subscribes a new link to topics.
    pub fn restore_topics(&self, link: &Arc<Link>, wanted: &BTreeSet<Topic>) {
        for topic in wanted.iter().filter(|_| !link.is_modern()) {
            match topic {
                Topic::Resource(uri) => {
                    link.ask_in_passing("resources/subscribe", &[("uri", &text::quote(uri))]);
                }
                // Only modern servers have such subscriptions.
                Topic::Task(_) => {}
            }
        }
        link.want_topics(wanted);
    }

    /// Tells people that a set of capabilities has no link of its own.
    fn note_nearest(&self, profile: &Profile) {
        let declared = String::from_utf8_lossy(&profile.capabilities.to_json()).into_owned();
        let declared = excerpt::cut(declared, QUOTED);
        self.remark(format!(
            "clients declare more sets of capabilities than it may have links; those with {declared} use the \
             link with the nearest set"
        ));
    }

    /// Tells people that the server refused a further link.
    fn note_refused(&self, error: &dyn std::fmt::Display) {
        self.remark(format!(
            "clients with capabilities use the link without capabilities, because another link failed: {error}"
        ));
    }
}

fn given_up() -> CallError {
    CallError::NotSent("the link to the server was closed".into())
}

async fn close_all(links: Vec<Arc<Link>>) {
    for link in links {
        link.close().await;
    }
}
