//! What a person agrees to, and the code with which software fetches its tokens.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::super::{Error, Gateway};
use super::tokens::{IssuedTokens, TokenProblem};
use super::{CODE_LIFE_MS, REFRESH_LIFE_MS, narrow};
use model::{AuditNote, By, GrantId, PrincipalId, Reach, Secret};
use store::{
    Consent, ConsentOfGrant, NewCode, NewUserGrant, OpaqueDigest, OpaqueKind, StoredCode, UserGrant,
};

/// What a person agrees to.
pub struct Approval {
    pub user: PrincipalId,
    pub client_id: String,
    pub client_name: String,
    /// What is known about the software, for the requests that follow. It means nothing here, and is kept with the grant.
    pub software: String,
    pub redirect_uri: String,
    pub reach: Reach,
    pub code_challenge: String,
    /// Whether the person is not asked for the same again.
    pub remember: bool,
}

/// What a code is for.
#[derive(Debug, PartialEq, Eq)]
pub struct PendingCode {
    pub client_id: String,
    pub software: String,
    pub redirect_uri: String,
    pub reach: Reach,
    pub code_challenge: String,
}

/// An approval as it is sealed with its code.
#[derive(Serialize, Deserialize)]
struct CodeContent {
    client_id: String,
    client_name: String,
    software: String,
    redirect_uri: String,
    reach: String,
    code_challenge: String,
}

const UNKNOWN: TokenProblem = TokenProblem::InvalidGrant("the code is unknown or has expired");
const USED: TokenProblem =
    TokenProblem::InvalidGrant("the code was used before; the tokens that it gave have been revoked");
const NO_ACCESS: TokenProblem = TokenProblem::InvalidGrant("the user who agreed has no access any more");

impl Gateway {
    /// Makes a code for what a person agreed to. It works once, within a minute.
    pub async fn approve(self: &Arc<Self>, approval: Approval, by: &By) -> Result<Secret, Error> {
        let by = by.clone();
        self.to_the_end(async move |gateway: Arc<Self>| {
            let Approval { user, client_id, client_name, reach, redirect_uri, remember, .. } = approval;
            let code = gateway.opaque_tokens.generate(OpaqueKind::Code);
            let now = gateway.clock.now_ms();
            let mut note = AuditNote::new(&by, "grant.approve", gateway.name_of(user), now);
            note.after = Some(json!({
                "client_name": client_name,
                "client_id": client_id,
                "redirect_uri": redirect_uri,
                "resource": reach.as_str(),
            }));
            let content = CodeContent {
                client_id,
                client_name,
                software: approval.software,
                redirect_uri,
                reach: reach.as_str().to_owned(),
                code_challenge: approval.code_challenge,
            };
            let sealed = serde_json::to_string(&content).map(Secret::new).map_err(Error::internal)?;
            let consent = Consent {
                client_id: &content.client_id,
                redirect_uri: &content.redirect_uri,
                reach: &reach,
                is_remembered: remember,
            };
            let expires_at_ms = now + CODE_LIFE_MS;
            let new = NewCode { digest: &code.digest, user, content: &sealed, expires_at_ms, consent };
            gateway.store.insert_code(&new, &note).await?;
            Ok(code.secret)
        })
        .await
    }

    /// Whether a person agreed to exactly this before, and is not to be asked again.
    pub async fn is_approved(
        &self,
        user: PrincipalId,
        client_id: &str,
        redirect_uri: &str,
        reach: &Reach,
    ) -> Result<bool, Error> {
        Ok(self.store.has_consent(user, client_id, redirect_uri, reach).await?)
    }

    /// Whether a person ever agreed to this client with this redirect URI.
    pub async fn has_agreed_before(
        &self,
        user: PrincipalId,
        client_id: &str,
        redirect_uri: &str,
    ) -> Result<bool, Error> {
        Ok(self.store.has_agreed(user, client_id, redirect_uri).await?)
    }

    /// What a code is for; also one that was used, for a day. `None` if it is unknown or has expired.
    pub async fn pending_code(&self, code: &str) -> Result<Option<PendingCode>, Error> {
        let Some(digest) = self.opaque_tokens.digest(OpaqueKind::Code, code) else { return Ok(None) };
        let Some(found) = self.store.code(&digest).await? else { return Ok(None) };
        if found.grant.is_none() && found.expires_at_ms <= self.clock.now_ms() {
            return Ok(None);
        }
        let CodeContent { client_id, software, redirect_uri, reach, code_challenge, .. } = read(&found)?;
        let reach = Reach::parse(&reach);
        Ok(Some(PendingCode { client_id, software, redirect_uri, reach, code_challenge }))
    }

    /// Exchanges a code for tokens. Who sends it was checked before. A second use ends what the first one gave.
    pub async fn redeem(
        self: &Arc<Self>,
        code: &str,
        narrowed: Option<Reach>,
        by: &By,
    ) -> Result<IssuedTokens, TokenProblem> {
        let digest = self.opaque_tokens.digest(OpaqueKind::Code, code).ok_or(UNKNOWN)?;
        let by = by.clone();
        let redeemed = self.to_the_end(async move |gateway: Arc<Self>| {
            Ok(gateway.redeem_now(&digest, narrowed.as_ref(), &by).await)
        });
        redeemed.await.unwrap_or_else(|error| Err(error.into()))
    }

    async fn redeem_now(
        self: &Arc<Self>,
        digest: &OpaqueDigest,
        narrowed: Option<&Reach>,
        by: &By,
    ) -> Result<IssuedTokens, TokenProblem> {
        let found = self.store.code(digest).await?.ok_or(UNKNOWN)?;
        if let Some(grant) = found.grant {
            self.end_reused(grant, "its code was used twice", by).await?;
            return Err(USED);
        }
        let now = self.clock.now_ms();
        if found.expires_at_ms <= now {
            return Err(UNKNOWN);
        }
        if self.holder_anew(found.user).await?.is_none() {
            return Err(NO_ACCESS);
        }
        let content = read(&found)?;
        let whole = Reach::parse(&content.reach);
        let reach = narrow(&whole, narrowed)?;
        let (id, refresh) = (GrantId::random(), self.opaque_tokens.generate(OpaqueKind::Refresh));
        let shown = UserGrant {
            id,
            user: found.user,
            client_id: content.client_id,
            client_name: content.client_name,
            reach: whole,
            created_at_ms: now,
            last_used_at_ms: None,
        };
        // The software sends the code, but the person who agreed has made the grant.
        let person = By::user(self.name_of(shown.user), by.address.clone());
        let mut note = AuditNote::new(&person, "grant.create", id.to_string(), now);
        note.after = Some(self.grant_json(&shown));
        let grant = NewUserGrant {
            id,
            user: shown.user,
            client_id: &shown.client_id,
            client_name: &shown.client_name,
            software: &Secret::new(content.software),
            reach: &shown.reach,
            refresh: &refresh.digest,
            expires_at_ms: now + REFRESH_LIFE_MS,
        };
        let Some(made) = self.store.redeem_code(digest, &grant, &note).await? else {
            // Another request with the same code was faster.
            if let Some(StoredCode { grant: Some(grant), .. }) = self.store.code(digest).await? {
                self.end_reused(grant, "its code was used twice", by).await?;
            }
            return Err(USED);
        };
        self.signed_in.end(&made.ended, &[], made.epoch);
        if self.signed_in.add_grant(id, shown.user, made.epoch).is_none() {
            self.look_up_grant(id).await?;
        }
        // Credentials of somebody who is disabled end after that; this one may have been made between the two.
        if self.holder_now(shown.user).await?.is_none() {
            let reason = Some("its user has no access any more");
            self.end_stored(shown, ConsentOfGrant::Keep, reason, by).await?;
            return Err(NO_ACCESS);
        }
        let user = self.name_of(shown.user);
        tracing::info!(user, client = shown.client_name, grant = %id, "software may act for a user");
        Ok(self.issue(id, reach, refresh.secret))
    }
}

fn read(code: &StoredCode) -> Result<CodeContent, Error> {
    serde_json::from_str(code.content.expose()).map_err(|_| Error::internal("a stored code is malformed"))
}
