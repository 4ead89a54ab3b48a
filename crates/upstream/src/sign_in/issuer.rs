//! An issuer of tokens that the operator named: its metadata and its keys, both cached.

use std::sync::Arc;

use super::cached::Cached;
use super::idp_metadata::{IdpMetadata, discover, discover_any};
use super::key_set::KeySet;
use super::problem::IdpProblem;
use super::signed_jwt::SignedJwt;
use super::web::{Proof, Web};
use crate::Tls;
use model::WallClock;

pub struct Issuer {
    /// Exactly as tokens must name it.
    pub name: String,
    pub web: Arc<Web>,
    pub source: MetadataSource,
    metadata: Arc<Cached<IdpMetadata>>,
    keys: Arc<Cached<KeySet>>,
}

/// Which kind of server the issuer is, and the variable that names it.
#[derive(Clone, Copy)]
pub enum MetadataSource {
    /// `OIDC_ISSUER`: an OpenID provider.
    OpenId,
    /// `JWT_ISSUER`: any authorization server.
    AnyServer,
}

impl Issuer {
    pub fn new(name: &str, source: MetadataSource, tls: Tls, clock: &WallClock) -> Self {
        let (name, web) = (name.to_owned(), Arc::new(Web::new(tls)));
        let (asked, by) = (name.clone(), web.clone());
        let metadata = Cached::new("the metadata of the identity provider", clock.clone(), move || {
            let (name, web) = (asked.clone(), by.clone());
            Box::pin(async move { source.fetch(&web, &name).await })
        });
        let (published, by) = (metadata.clone(), web.clone());
        let keys = Cached::new("the keys of the identity provider", clock.clone(), move || {
            let (metadata, web) = (published.clone(), by.clone());
            Box::pin(async move { fetch_keys(&web, metadata.get().await?.as_ref()).await })
        });
        Self { name, web, source, metadata, keys }
    }

    pub async fn metadata(&self) -> Result<Arc<IdpMetadata>, IdpProblem> {
        self.metadata.get().await
    }

    /// Whether the issuer signed this token. If none of the known keys did, they are fetched again: it may be a new one.
    pub async fn signed(&self, token: &SignedJwt<'_>) -> Result<bool, IdpProblem> {
        let keys = self.keys.get().await?;
        if keys.verifies(token) {
            return Ok(true);
        }
        let newer = self.keys.newer(&keys).await?;
        Ok(newer.is_some_and(|keys| keys.verifies(token)))
    }
}

impl MetadataSource {
    /// The variable that names the issuer.
    pub fn setting(self) -> &'static str {
        match self {
            MetadataSource::OpenId => "OIDC_ISSUER",
            MetadataSource::AnyServer => "JWT_ISSUER",
        }
    }

    pub async fn fetch(self, web: &Web, issuer: &str) -> Result<IdpMetadata, IdpProblem> {
        match self {
            MetadataSource::OpenId => discover(web, self.setting(), issuer).await,
            MetadataSource::AnyServer => discover_any(web, self.setting(), issuer).await,
        }
    }
}

pub async fn fetch_keys(web: &Web, metadata: &IdpMetadata) -> Result<KeySet, IdpProblem> {
    let url = &metadata.keys;
    let down = |reason: &str| {
        IdpProblem::Down(format!("the keys of the identity provider cannot be used: {url}: {reason}"))
    };
    let response = web.get(url, &Proof::Nothing).await.map_err(|reason| down(&reason))?;
    if response.status != 200 {
        return Err(down(&format!("HTTP status {}", response.status)));
    }
    let keys = KeySet::parse(&response.body).map_err(|reason| down(&reason))?;
    match keys.len() {
        0 => Err(down("it has no key for RS256, ES256 or EdDSA")),
        _ => Ok(keys),
    }
}
