//! Browser sessions of people who signed in.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::super::principals::Principal;
use super::super::{Error, Gateway};
use super::signed_in::OpenSession;
use super::{SESSION_IDLE_MS, SESSION_LIFE_MS};
use model::{AuditNote, By, PrincipalId, Secret};
use store::{BrowserSessionRow, NewOpaque, OpaqueDigest, OpaqueKind, form_token};

/// A browser session that counts.
pub struct BrowserSession {
    pub user: Principal,
    /// Cancelled when the session ends.
    pub ends: CancellationToken,
    /// What a form must send, so that no other site can send it.
    pub form_token: String,
}

impl Gateway {
    /// Begins a session of a person who has proved who they are. Returns the value of the cookie.
    pub async fn open_session(self: &Arc<Self>, user: PrincipalId, by: &By) -> Result<Secret, Error> {
        let by = by.clone();
        self.to_the_end(async move |gateway: Arc<Self>| {
            let NewOpaque { secret: cookie, digest } = gateway.opaque_tokens.generate(OpaqueKind::Session);
            let now = gateway.clock.now_ms();
            let note = AuditNote::new(&by, "session.open", gateway.name_of(user), now);
            let made = gateway.store.insert_browser_session(&digest, user, &note).await?;
            gateway.signed_in.end(&[], &made.ended, made.epoch);
            let row = BrowserSessionRow {
                digest: digest.as_str().to_owned(),
                user,
                created_at_ms: now,
                used_at_ms: now,
            };
            if gateway.signed_in.add_session(row.clone(), made.epoch).is_none() {
                gateway.look_up_session(&digest).await?;
            }
            // Credentials of somebody who is disabled end after that; this one may have been made between the two.
            if gateway.holder_now(user).await?.is_none() {
                gateway.end_session(row, &by).await?;
                return Err(Error::forbidden("this user has no access any more"));
            }
            Ok(cookie)
        })
        .await
    }

    /// The session of a cookie, if it counts. Asking is a use of it.
    pub async fn session(self: &Arc<Self>, cookie: &str) -> Result<Option<BrowserSession>, Error> {
        let Some(digest) = self.opaque_tokens.digest(OpaqueKind::Session, cookie) else { return Ok(None) };
        let now = self.clock.now_ms();
        let known = self.signed_in.session(digest.as_str());
        let found = match known.filter(|session| is_in_time(session, now)) {
            Some(session) => Some(session),
            // Another gateway may have begun it, or seen a later use.
            None if self.store.is_shared() => self.look_up_session(&digest).await?,
            None => None,
        };
        let Some(session) = found.filter(|session| is_in_time(session, now)) else { return Ok(None) };
        let Some(user) = self.holder_anew(session.user).await? else { return Ok(None) };
        self.signed_in.note_session_use(&session, now);
        let form_token = form_token(&Secret::new(cookie));
        Ok(Some(BrowserSession { user, ends: session.ends.clone(), form_token }))
    }

    /// Ends the session of a cookie, if there is one.
    pub async fn close_session(self: &Arc<Self>, cookie: &str, by: &By) -> Result<(), Error> {
        let Some(digest) = self.opaque_tokens.digest(OpaqueKind::Session, cookie) else { return Ok(()) };
        let Some(row) = self.store.browser_session(&digest).await?.value else { return Ok(()) };
        let by = by.clone();
        self.to_the_end(async move |gateway: Arc<Self>| gateway.end_session(row, &by).await).await
    }

    async fn end_session(&self, row: BrowserSessionRow, by: &By) -> Result<(), Error> {
        let note = AuditNote::new(by, "session.close", self.name_of(row.user), self.clock.now_ms());
        if let Some(epoch) = self.store.end_browser_session(&row, &note).await? {
            self.signed_in.end(&[], &[row.digest], epoch);
        }
        Ok(())
    }

    /// Holds a session in memory that exists in the database. `None` if it does not.
    async fn look_up_session(&self, digest: &OpaqueDigest) -> Result<Option<Arc<OpenSession>>, Error> {
        loop {
            let found = self.store.browser_session(digest).await?;
            let Some(row) = found.value else { return Ok(None) };
            // Otherwise it may have ended since it was read.
            if let Some(session) = self.signed_in.add_session(row, found.epoch) {
                return Ok(Some(session));
            }
        }
    }
}

fn is_in_time(session: &OpenSession, now_ms: i64) -> bool {
    now_ms < session.created_at_ms + SESSION_LIFE_MS
        && now_ms < session.used_at_ms() + SESSION_IDLE_MS
        && !session.ends.is_cancelled()
}
