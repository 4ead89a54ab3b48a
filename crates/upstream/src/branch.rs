//! One further link to a server besides its first, or one further set of its lists: opened when first needed, opened
//! again when it was lost.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use tokio::sync::Notify;

use super::link::Link;
use super::profile::Profile;
use model::{Offering, Topic};
use wire::Era;

/// After a failed attempt to open a shared link, its callers use the first link for this long.
const RETRY_AFTER: Duration = Duration::from_secs(30);

pub struct Branch {
    /// What its link declares, or what its lists are read with.
    pub profile: Profile,
    /// The current link; `None` before the first caller, and while it is lost. A branch that uses the first link has
    /// none.
    link: ArcSwapOption<Link>,
    /// Whether it was given up: nobody would close a link that it opens from now on.
    is_given_up: Mutex<bool>,
    /// Held while the link is opened; other callers wait.
    pub opening: tokio::sync::Mutex<()>,
    /// What the server lists on this link; `None` before the first reading.
    lists: ArcSwapOption<Offering>,
    /// Held while the lists are read.
    pub reading: tokio::sync::Mutex<()>,
    /// Whether the server announced a change that was not read yet.
    is_stale: AtomicBool,
    /// What callers of this link are subscribed to.
    pub wanted_topics: Mutex<BTreeSet<Topic>>,
    last_used: Mutex<Instant>,
    /// How many tasks of the gateway itself hold its link for a moment.
    settling: AtomicUsize,
    failed: Mutex<Option<Instant>>,
}

impl Branch {
    pub fn new(profile: Profile) -> Arc<Self> {
        Arc::new(Self {
            profile,
            link: ArcSwapOption::empty(),
            is_given_up: Mutex::default(),
            opening: tokio::sync::Mutex::default(),
            lists: ArcSwapOption::empty(),
            reading: tokio::sync::Mutex::default(),
            is_stale: AtomicBool::new(false),
            wanted_topics: Mutex::default(),
            last_used: Mutex::new(Instant::now()),
            settling: AtomicUsize::new(0),
            failed: Mutex::default(),
        })
    }

    /// Whether it uses the first link: a modern server gets the capabilities with each request, and needs no link for
    /// each set of them.
    pub fn uses_first_link(&self) -> bool {
        self.profile.era == Era::Modern && self.profile.owner.is_none()
    }

    /// The current link, if it is usable.
    pub fn link(&self) -> Option<Arc<Link>> {
        self.link.load_full().filter(|link| !link.calls.is_lost())
    }

    /// Keeps a link that was opened; false if the branch was given up meanwhile.
    pub fn set_link(&self, link: Arc<Link>) -> bool {
        let is_given_up = self.is_given_up.lock().expect("no code panics while it holds the mark");
        if !*is_given_up {
            self.link.store(Some(link));
            *self.failed.lock().expect("no code panics while it holds the time") = None;
        }
        !*is_given_up
    }

    pub fn is_given_up(&self) -> bool {
        *self.is_given_up.lock().expect("no code panics while it holds the mark")
    }

    /// Gives the branch up for good; returns its link, to be closed.
    pub fn give_up(&self) -> Option<Arc<Link>> {
        let mut is_given_up = self.is_given_up.lock().expect("no code panics while it holds the mark");
        *is_given_up = true;
        self.wanted_topics.lock().expect("no code panics while it holds the topics").clear();
        self.take_link()
    }

    /// Forgets the link if it is this one.
    pub fn forget(&self, link: &Arc<Link>) -> bool {
        let is_current = self.link.load().as_ref().is_some_and(|current| Arc::ptr_eq(current, link));
        if is_current {
            self.link.store(None);
        }
        is_current
    }

    /// Takes the link out, to be closed.
    pub fn take_link(&self) -> Option<Arc<Link>> {
        let link = self.link.swap(None);
        if let Some(link) = &link {
            link.begins_to_end();
        }
        link
    }

    pub fn lists(&self) -> Option<Arc<Offering>> {
        self.lists.load_full()
    }

    /// The lists, unless the server announced a change of them.
    pub fn fresh_lists(&self) -> Option<Arc<Offering>> {
        self.lists().filter(|_| !self.is_stale.load(Ordering::Acquire))
    }

    /// Keeps new lists; returns the ones before.
    pub fn set_lists(&self, lists: Arc<Offering>) -> Option<Arc<Offering>> {
        self.lists.swap(Some(lists))
    }

    pub fn set_stale(&self, is_stale: bool) {
        self.is_stale.store(is_stale, Ordering::Release);
    }

    /// Notes that the link could not be opened.
    pub fn set_failed(&self) {
        *self.failed.lock().expect("no code panics while it holds the time") = Some(Instant::now());
    }

    /// Whether its callers use the first link for now.
    pub fn is_failed(&self) -> bool {
        let failed = *self.failed.lock().expect("no code panics while it holds the time");
        failed.is_some_and(|since| since.elapsed() < RETRY_AFTER)
    }

    pub fn is_subscribed(&self) -> bool {
        !self.wanted_topics.lock().expect("no code panics while it holds the topics").is_empty()
    }

    /// Whether it can be given up for another one: nobody uses its link.
    pub fn may_go(&self) -> bool {
        let is_used = self.link.load().as_ref().is_some_and(|link| link.calls.has_callers());
        !is_used && !self.is_subscribed()
    }

    /// Holds the link, which is read for the first time. It is in use until then, but not by a caller.
    pub fn settle(self: &Arc<Self>, link: Arc<Link>, settled: Arc<Notify>) -> Settling {
        self.settling.fetch_add(1, Ordering::AcqRel);
        Settling { branch: self.clone(), link: Some(link), settled }
    }

    pub fn is_settling(&self) -> bool {
        self.settling.load(Ordering::Acquire) > 0
    }

    pub fn touch(&self) {
        *self.last_used.lock().expect("no code panics while it holds a time") = Instant::now();
    }

    pub fn last_used(&self) -> Instant {
        *self.last_used.lock().expect("no code panics while it holds a time")
    }

    /// When its link was last used; `None` while it is in use, not open or needed for subscriptions. Everybody who uses
    /// the link holds it.
    pub fn unused_since(&self) -> Option<Instant> {
        let is_free = self.link.load().as_ref().is_some_and(|link| Arc::strong_count(link) == 1);
        (is_free && !self.is_subscribed()).then(|| self.last_used())
    }

    /// Whether it has been idle for longer than `limit`. A link with calls in flight is not idle.
    pub fn is_idle(&self, limit: Duration) -> bool {
        if self.link.load().as_ref().is_some_and(|link| link.calls.has_callers()) || self.is_subscribed() {
            self.touch();
        }
        self.last_used().elapsed() > limit
    }
}

/// Keeps a new link from being idle. Whoever waits for an idle link is woken when this is dropped.
pub struct Settling {
    branch: Arc<Branch>,
    link: Option<Arc<Link>>,
    settled: Arc<Notify>,
}

impl Drop for Settling {
    fn drop(&mut self) {
        // In this order: whoever finds that no link settles must find that this one is idle.
        self.link = None;
        self.branch.settling.fetch_sub(1, Ordering::AcqRel);
        self.settled.notify_waiters();
    }
}
