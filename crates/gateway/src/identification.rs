//! Authentication: finds the user or client that a credential belongs to. What they may do is decided elsewhere: routes
//! in the faces, tools and prompts in `view`.

use std::sync::{Arc, Mutex};

use tokio_util::sync::CancellationToken;

use super::principals::Principal;
use super::{Error, Gateway};
use model::{GrantId, Reach, Secret};
use store::TokenHash;

/// What a credential proves.
#[derive(Clone)]
pub struct Identity {
    pub principal: Principal,
    /// Cancelled when the credential ends, and with it everything that runs under it.
    pub ends: CancellationToken,
    /// The MCP endpoints that it is for; `None` for a credential that is not limited so.
    pub reach: Option<Arc<Reach>>,
    /// The grant of an access token.
    pub grant: Option<GrantId>,
}

impl Identity {
    /// That of the holder of a static token.
    pub fn of_holder(principal: Principal) -> Self {
        Self { ends: principal.revoked().clone(), principal, reach: None, grant: None }
    }
}

/// A token as far as it can be read without knowing whether it counts.
#[derive(Clone)]
enum ReadToken {
    Static(TokenHash),
    Access(AccessToken),
}

#[derive(Clone)]
struct AccessToken {
    grant: GrantId,
    reach: Arc<Reach>,
    expires_at_ms: i64,
}

/// The last token on a connection, with what was read of it: reading is most of the cost of identifying a caller. Whether the
/// token is valid is looked up each time.
#[derive(Default)]
pub struct TokenMemory(Mutex<Option<(Secret, ReadToken)>>);

/// Longer tokens are not remembered.
const LONGEST: usize = 512;

impl TokenMemory {
    fn read(&self, token: &[u8], read: impl FnOnce() -> ReadToken) -> ReadToken {
        let mut last = self.0.lock().expect("no code panics while it holds a token");
        if let Some((known, content)) = &*last
            && is_same(known.expose().as_bytes(), token)
        {
            return content.clone();
        }
        let content = read();
        let text = std::str::from_utf8(token).ok().filter(|text| text.len() <= LONGEST);
        *last = text.map(|text| (Secret::new(text), content.clone()));
        content
    }
}

/// Compares in a time that does not depend on where the two differ: a proxy may send requests of several clients on one
/// connection.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    let difference = one.iter().zip(other).fold(0, |difference, (one, other)| difference | (one ^ other));
    one.len() == other.len() && difference == 0
}

impl Gateway {
    /// The user or client that a token of this gateway belongs to, if it is valid. Only memory is looked at. Tokens of another
    /// issuer are judged by the face that got them, if nobody is found here.
    pub fn identify(&self, token: &[u8], memory: Option<&TokenMemory>) -> Option<Identity> {
        let read = || self.read_token(token);
        let content = match memory {
            Some(memory) => memory.read(token, read),
            None => read(),
        };
        self.identify_read(&content)
    }

    /// The same for a token that is not known here: another gateway on the same database may just have created it.
    pub async fn identify_anew(self: &Arc<Self>, token: &[u8]) -> Result<Option<Identity>, Error> {
        let content = self.read_token(token);
        match &content {
            ReadToken::Static(_) if self.has_issued(token) => {}
            ReadToken::Static(_) if self.store.is_shared() && self.store.has_token(token).await? => {
                let turn = self.local_turn().await;
                self.catch_up(&turn).await?;
            }
            ReadToken::Access(access)
                if self.store.is_shared()
                    && access.expires_at_ms > self.clock.now_ms()
                    && !self.signed_in.is_gone(access.grant) =>
            {
                if let Some(grant) = self.look_up_grant(access.grant).await? {
                    self.holder_anew(grant.user).await?;
                }
            }
            ReadToken::Static(_) | ReadToken::Access(_) => {}
        }
        Ok(self.identify_read(&content))
    }

    /// Whether a token is an access token that a gateway on this database issued. It may have expired or been revoked since, and
    /// its key replaced: whoever sends it does not guess.
    pub fn has_issued(&self, token: &[u8]) -> bool {
        self.opaque_tokens.is_access(token)
    }

    pub fn is_initialized(&self) -> bool {
        self.catalog.load().principals().is_initialized
    }

    /// Opening an access token proves that it was made here. Anything else may be a static token, whatever it looks like.
    fn read_token(&self, token: &[u8]) -> ReadToken {
        match self.opaque_tokens.open_access(token) {
            Some(content) => ReadToken::Access(AccessToken {
                grant: content.grant,
                reach: Arc::new(content.reach),
                expires_at_ms: content.expires_at_ms,
            }),
            None => ReadToken::Static(self.store.token_hash(token)),
        }
    }

    fn identify_read(&self, content: &ReadToken) -> Option<Identity> {
        let access = match content {
            ReadToken::Static(hash) => {
                let catalog = self.catalog.load();
                let found = catalog.principals().find(hash).filter(|principal| !principal.is_disabled());
                return found.cloned().map(Identity::of_holder);
            }
            ReadToken::Access(access) => access,
        };
        let now = self.clock.now_ms();
        if access.expires_at_ms <= now {
            return None;
        }
        let grant = self.signed_in.grant(access.grant)?;
        let principal = self.holder(grant.user)?;
        self.signed_in.note_grant_use(&grant, now);
        let (ends, reach) = (grant.ends.clone(), Some(access.reach.clone()));
        Some(Identity { principal, ends, reach, grant: Some(grant.id) })
    }
}
