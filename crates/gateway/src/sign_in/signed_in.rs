//! The grants and browser sessions that exist, in memory: whether a credential counts is decided without the database. They are
//! not part of the catalog, since they begin and end all the time.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};

use tokio_util::sync::CancellationToken;

use model::{GrantId, PrincipalId};
use store::{BrowserSessionRow, CredentialUses, HeldCredentials};

/// How many grants that do not exist are remembered.
const MOST_GONE: usize = 10_000;

#[derive(Default)]
pub struct SignedIn {
    state: RwLock<State>,
    /// What was used since that was last written.
    used: Mutex<Vec<Used>>,
}

#[derive(Default)]
struct State {
    grants: HashMap<GrantId, Arc<LiveGrant>>,
    /// By the digest of the cookie.
    sessions: HashMap<String, Arc<OpenSession>>,
    of_user: HashMap<PrincipalId, Owned>,
    /// The epoch of the latest change of credentials that is in here. What was read before it may have ended since.
    epoch: i64,
    /// Grants that were looked up and do not exist. An id is never used again.
    gone: HashSet<GrantId>,
}

#[derive(Default)]
struct Owned {
    grants: HashSet<GrantId>,
    sessions: HashSet<String>,
}

enum Used {
    Grant(Arc<LiveGrant>),
    Session(Arc<OpenSession>),
}

/// A grant that exists.
pub struct LiveGrant {
    pub id: GrantId,
    pub user: PrincipalId,
    /// Cancelled when the grant ends, and with it all that runs under its tokens.
    pub ends: CancellationToken,
    /// The epoch in which it was read or made.
    epoch: i64,
    last: LastUse,
}

/// A browser session that exists. It may have expired.
pub struct OpenSession {
    pub digest: String,
    pub user: PrincipalId,
    pub ends: CancellationToken,
    pub created_at_ms: i64,
    epoch: i64,
    last: LastUse,
}

/// When a credential was last used.
#[derive(Default)]
struct LastUse {
    at_ms: AtomicI64,
    is_queued: AtomicBool,
}

impl LastUse {
    fn note(&self, now_ms: i64) {
        self.at_ms.fetch_max(now_ms, Ordering::Relaxed);
    }

    /// Whether the use has to be queued, to be written later.
    fn must_queue(&self) -> bool {
        !self.is_queued.load(Ordering::Relaxed) && !self.is_queued.swap(true, Ordering::AcqRel)
    }

    fn take(&self) -> i64 {
        self.is_queued.store(false, Ordering::Release);
        self.at_ms.load(Ordering::Relaxed)
    }
}

impl OpenSession {
    pub fn used_at_ms(&self) -> i64 {
        self.last.at_ms.load(Ordering::Relaxed)
    }
}

impl SignedIn {
    /// Begins with what is stored.
    pub fn new(grants: Vec<(GrantId, PrincipalId)>, sessions: Vec<BrowserSessionRow>, epoch: i64) -> Self {
        let signed_in = Self::default();
        for (id, user) in grants {
            signed_in.add_grant(id, user, epoch);
        }
        for session in sessions {
            signed_in.add_session(session, epoch);
        }
        signed_in
    }

    pub fn grant(&self, id: GrantId) -> Option<Arc<LiveGrant>> {
        self.read().grants.get(&id).cloned()
    }

    pub fn session(&self, digest: &str) -> Option<Arc<OpenSession>> {
        self.read().sessions.get(digest).cloned()
    }

    /// Notes that a grant is known not to exist.
    pub fn note_gone(&self, id: GrantId) {
        let mut state = self.write();
        if state.gone.len() >= MOST_GONE {
            state.gone.clear();
        }
        state.gone.insert(id);
    }

    pub fn is_gone(&self, id: GrantId) -> bool {
        self.read().gone.contains(&id)
    }

    /// Adds a grant that existed in an epoch. `None` if credentials ended later: it must be read again.
    pub fn add_grant(&self, id: GrantId, user: PrincipalId, epoch: i64) -> Option<Arc<LiveGrant>> {
        let mut state = self.write();
        if epoch < state.epoch {
            return None;
        }
        if let Some(known) = state.grants.get(&id) {
            return Some(known.clone());
        }
        let (ends, last) = (CancellationToken::new(), LastUse::default());
        let grant = Arc::new(LiveGrant { id, user, ends, epoch, last });
        state.grants.insert(id, grant.clone());
        state.of_user.entry(user).or_default().grants.insert(id);
        Some(grant)
    }

    /// The same for a browser session.
    pub fn add_session(&self, row: BrowserSessionRow, epoch: i64) -> Option<Arc<OpenSession>> {
        let mut state = self.write();
        if epoch < state.epoch {
            return None;
        }
        if let Some(known) = state.sessions.get(&row.digest) {
            // Another gateway may have seen a later use.
            known.last.note(row.used_at_ms);
            return Some(known.clone());
        }
        let last = LastUse { at_ms: AtomicI64::new(row.used_at_ms), ..LastUse::default() };
        let BrowserSessionRow { digest, user, created_at_ms, .. } = row;
        let ends = CancellationToken::new();
        let session =
            Arc::new(OpenSession { digest: digest.clone(), user, ends, created_at_ms, epoch, last });
        state.sessions.insert(digest.clone(), session.clone());
        state.of_user.entry(user).or_default().sessions.insert(digest);
        Some(session)
    }

    /// Ends grants and sessions that were deleted in an epoch.
    pub fn end(&self, grants: &[GrantId], sessions: &[String], epoch: i64) {
        let mut state = self.write();
        state.epoch = state.epoch.max(epoch);
        let mut ended: Vec<_> = grants.iter().filter_map(|id| state.remove_grant(*id)).collect();
        ended.extend(sessions.iter().filter_map(|digest| state.remove_session(digest)));
        drop(state);
        cancel(ended);
    }

    /// Ends everything of a user.
    pub fn end_user(&self, user: PrincipalId, epoch: i64) {
        self.take_over(user, &HeldCredentials::default(), epoch);
    }

    /// Ends everything of a user who is gone, or has no access any more.
    pub fn forget_user(&self, user: PrincipalId) {
        let mut state = self.write();
        let Some(owned) = state.of_user.remove(&user) else { return };
        let mut ended: Vec<_> = owned.grants.iter().filter_map(|id| state.remove_grant(*id)).collect();
        ended.extend(owned.sessions.iter().filter_map(|digest| state.remove_session(digest)));
        drop(state);
        cancel(ended);
    }

    /// Ends what a user no longer has in an epoch.
    pub fn take_over(&self, user: PrincipalId, held: &HeldCredentials, epoch: i64) {
        let mut state = self.write();
        state.epoch = state.epoch.max(epoch);
        for row in &held.sessions {
            if let Some(known) = state.sessions.get(&row.digest) {
                known.last.note(row.used_at_ms);
            }
        }
        let Some(owned) = state.of_user.get(&user) else { return };
        let grants: HashSet<_> = held.grants.iter().collect();
        let sessions: HashSet<_> = held.sessions.iter().map(|row| row.digest.as_str()).collect();
        // What was added later is not among those that were read.
        let is_old = |id: &GrantId| state.grants.get(id).is_some_and(|grant| grant.epoch <= epoch);
        let gone: Vec<_> =
            owned.grants.iter().filter(|id| !grants.contains(id) && is_old(id)).copied().collect();
        let is_old = |digest: &String| state.sessions.get(digest).is_some_and(|of| of.epoch <= epoch);
        let over = owned.sessions.iter().filter(|of| !sessions.contains(of.as_str()) && is_old(of));
        let over: Vec<_> = over.cloned().collect();
        let mut ended: Vec<_> = gone.into_iter().filter_map(|id| state.remove_grant(id)).collect();
        ended.extend(over.iter().filter_map(|digest| state.remove_session(digest)));
        drop(state);
        cancel(ended);
    }

    pub fn note_grant_use(&self, grant: &Arc<LiveGrant>, now_ms: i64) {
        grant.last.note(now_ms);
        if grant.last.must_queue() {
            self.queue(Used::Grant(grant.clone()));
        }
    }

    pub fn note_session_use(&self, session: &Arc<OpenSession>, now_ms: i64) {
        session.last.note(now_ms);
        if session.last.must_queue() {
            self.queue(Used::Session(session.clone()));
        }
    }

    fn queue(&self, used: Used) {
        self.used.lock().expect("no code panics while it holds the uses").push(used);
    }

    /// When a grant was last used here; `None` if it was not.
    pub fn last_use(&self, id: GrantId) -> Option<i64> {
        let at = self.grant(id)?.last.at_ms.load(Ordering::Relaxed);
        (at > 0).then_some(at)
    }

    /// What was used since the last time.
    pub fn take_uses(&self) -> CredentialUses {
        let taken = std::mem::take(&mut *self.used.lock().expect("no code panics while it holds the uses"));
        let mut uses = CredentialUses::default();
        for used in taken {
            match used {
                Used::Grant(grant) => uses.grants.push((grant.id, grant.last.take())),
                Used::Session(session) => {
                    uses.sessions.push((session.digest.clone(), session.last.take()));
                }
            }
        }
        uses
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().expect("no code panics while it holds the credentials")
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().expect("no code panics while it holds the credentials")
    }
}

impl State {
    fn remove_grant(&mut self, id: GrantId) -> Option<CancellationToken> {
        let grant = self.grants.remove(&id)?;
        self.disown(grant.user, |owned| owned.grants.remove(&id));
        Some(grant.ends.clone())
    }

    fn remove_session(&mut self, digest: &str) -> Option<CancellationToken> {
        let session = self.sessions.remove(digest)?;
        self.disown(session.user, |owned| owned.sessions.remove(digest));
        Some(session.ends.clone())
    }

    fn disown(&mut self, user: PrincipalId, remove: impl FnOnce(&mut Owned) -> bool) {
        if let Some(owned) = self.of_user.get_mut(&user) {
            remove(owned);
            if owned.grants.is_empty() && owned.sessions.is_empty() {
                self.of_user.remove(&user);
            }
        }
    }
}

fn cancel(ended: Vec<CancellationToken>) {
    ended.iter().for_each(CancellationToken::cancel);
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANN: PrincipalId = PrincipalId(1);
    const BOB: PrincipalId = PrincipalId(2);

    fn row(digest: &str, user: PrincipalId) -> BrowserSessionRow {
        BrowserSessionRow { digest: digest.into(), user, created_at_ms: 1, used_at_ms: 1 }
    }

    #[test]
    fn what_a_user_no_longer_has_ends_and_the_rest_stays() {
        let signed_in = SignedIn::default();
        let [one, two, other] = [GrantId::random(), GrantId::random(), GrantId::random()];
        let [first, second] = [one, two].map(|id| signed_in.add_grant(id, ANN, 1).unwrap());
        let third = signed_in.add_grant(other, BOB, 1).unwrap();
        let session = signed_in.add_session(row("s", ANN), 1).unwrap();
        signed_in.take_over(ANN, &HeldCredentials { grants: vec![one], sessions: vec![] }, 2);
        assert!(second.ends.is_cancelled() && session.ends.is_cancelled());
        assert!(!first.ends.is_cancelled() && !third.ends.is_cancelled());
        assert!(signed_in.grant(two).is_none() && signed_in.session("s").is_none());
        signed_in.end_user(ANN, 3);
        assert!(first.ends.is_cancelled() && !third.ends.is_cancelled());
    }

    #[test]
    fn what_was_made_after_a_reading_is_not_ended_by_it() {
        let signed_in = SignedIn::default();
        let id = GrantId::random();
        let grant = signed_in.add_grant(id, ANN, 5).unwrap();
        signed_in.take_over(ANN, &HeldCredentials::default(), 4);
        assert!(!grant.ends.is_cancelled());
        signed_in.take_over(ANN, &HeldCredentials::default(), 5);
        assert!(grant.ends.is_cancelled());
    }

    #[test]
    fn what_was_read_before_the_last_end_must_be_read_again() {
        let signed_in = SignedIn::default();
        let id = GrantId::random();
        signed_in.end(&[id], &[], 7);
        assert!(signed_in.add_grant(id, ANN, 6).is_none());
        assert!(signed_in.add_session(row("s", ANN), 6).is_none());
        assert!(signed_in.add_grant(id, ANN, 7).is_some());
    }

    #[test]
    fn uses_are_collected_once_with_the_latest_time() {
        let signed_in = SignedIn::default();
        let grant = signed_in.add_grant(GrantId::random(), ANN, 1).unwrap();
        let session = signed_in.add_session(row("s", ANN), 1).unwrap();
        for now in [10, 30, 20] {
            signed_in.note_grant_use(&grant, now);
            signed_in.note_session_use(&session, now);
        }
        let uses = signed_in.take_uses();
        assert_eq!((uses.grants, uses.sessions), (vec![(grant.id, 30)], vec![("s".to_owned(), 30)]));
        assert!(signed_in.take_uses().is_empty());
        signed_in.note_grant_use(&grant, 40);
        assert_eq!(signed_in.take_uses().grants, [(grant.id, 40)]);
    }
}
