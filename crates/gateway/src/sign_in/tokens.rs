//! Access and refresh tokens of grants: issuing, renewing and revoking them.

use std::sync::Arc;
use std::time::Duration;

use super::super::{Error, Gateway};
use super::{ACCESS_LIFE, REFRESH_LIFE_MS, narrow};
use model::{By, GrantId, Reach, Secret};
use store::{AccessContent, ConsentOfGrant, OpaqueDigest, OpaqueKind, Rotation, StoreError};

#[derive(Debug)]
pub struct IssuedTokens {
    pub access: Secret,
    pub expires_in: Duration,
    pub refresh: Secret,
}

/// Why no tokens are issued.
#[derive(Debug)]
pub enum TokenProblem {
    /// The code or the refresh token does not count (any more), with a sentence.
    InvalidGrant(&'static str),
    /// The tokens cannot be for what was asked.
    InvalidTarget,
    /// The database cannot be used now: nothing is known about the token.
    Unavailable(Error),
}

impl From<Error> for TokenProblem {
    fn from(error: Error) -> Self {
        TokenProblem::Unavailable(error)
    }
}

impl From<StoreError> for TokenProblem {
    fn from(error: StoreError) -> Self {
        TokenProblem::Unavailable(error.into())
    }
}

const UNKNOWN: TokenProblem =
    TokenProblem::InvalidGrant("the refresh token is unknown, has expired or was revoked");
const REUSED: TokenProblem = TokenProblem::InvalidGrant(
    "the refresh token was replaced long ago; since somebody still uses it, all tokens have been revoked",
);

impl Gateway {
    /// The client id and the software of the grant that a refresh token belongs to.
    pub async fn refresh_software(&self, token: &str) -> Result<Option<(String, String)>, Error> {
        let Some(digest) = self.opaque_tokens.digest(OpaqueKind::Refresh, token) else { return Ok(None) };
        let found = self.store.refreshed_grant(&digest).await?;
        Ok(found.map(|found| (found.grant.client_id, found.software.expose().to_owned())))
    }

    /// Exchanges a refresh token for new tokens. Who sends it was checked before.
    pub async fn renew_tokens(
        self: &Arc<Self>,
        token: &str,
        narrowed: Option<Reach>,
        by: &By,
    ) -> Result<IssuedTokens, TokenProblem> {
        let digest = self.opaque_tokens.digest(OpaqueKind::Refresh, token).ok_or(UNKNOWN)?;
        let by = by.clone();
        let renewed = self.to_the_end(async move |gateway: Arc<Self>| {
            Ok(gateway.renew_now(&digest, narrowed.as_ref(), &by).await)
        });
        renewed.await.unwrap_or_else(|error| Err(error.into()))
    }

    async fn renew_now(
        self: &Arc<Self>,
        digest: &OpaqueDigest,
        narrowed: Option<&Reach>,
        by: &By,
    ) -> Result<IssuedTokens, TokenProblem> {
        let grant = self.store.refreshed_grant(digest).await?.ok_or(UNKNOWN)?.grant;
        let reach = narrow(&grant.reach, narrowed)?;
        if self.holder_anew(grant.user).await?.is_none() {
            return Err(UNKNOWN);
        }
        let (now, next) = (self.clock.now_ms(), self.opaque_tokens.generate(OpaqueKind::Refresh));
        match self.store.rotate(digest, grant.id, &next, now, now + REFRESH_LIFE_MS).await? {
            Rotation::Successor(refresh) => Ok(self.issue(grant.id, reach, refresh)),
            Rotation::Unknown => Err(UNKNOWN),
            Rotation::Reused => {
                self.end_reused(grant.id, "an old refresh token was used again", by).await?;
                Err(REUSED)
            }
        }
    }

    /// Ends the grant of an access or refresh token (RFC 7009). One that is unknown, or of another client, changes nothing.
    pub async fn revoke(self: &Arc<Self>, token: &str, client_id: &str, by: &By) -> Result<(), Error> {
        let grant = match self.opaque_tokens.digest(OpaqueKind::Refresh, token) {
            Some(digest) => self.store.refreshed_grant(&digest).await?.map(|found| found.grant),
            None => match self.opaque_tokens.open_access(token.as_bytes()) {
                Some(content) if content.expires_at_ms > self.clock.now_ms() => {
                    self.store.user_grant(content.grant).await?
                }
                Some(_) | None => None,
            },
        };
        match grant.filter(|grant| grant.client_id == client_id) {
            Some(grant) => self.end_stored(grant, ConsentOfGrant::Keep, None, by).await,
            None => Ok(()),
        }
    }

    pub(super) fn issue(&self, grant: GrantId, reach: Reach, refresh: Secret) -> IssuedTokens {
        let life = i64::try_from(ACCESS_LIFE.as_millis()).expect("an hour is short");
        let content = AccessContent { grant, reach, expires_at_ms: self.clock.now_ms() + life };
        IssuedTokens { access: self.opaque_tokens.make_access(&content), expires_in: ACCESS_LIFE, refresh }
    }
}
