//! The HTTP interface for people and scripts: the REST API under `/api/v0`, the dashboard with its own API, and the
//! system routes. A handler extracts its input, calls the gateway once and shapes the response; errors become status
//! codes in `error`.

#![allow(clippy::disallowed_types)] // Status codes are chosen here.

pub mod access;
pub mod address;
pub mod api;
pub mod assets;
pub mod authorization;
pub mod body;
pub mod client_metadata;
pub mod dashboard;
pub mod elsewhere;
pub mod error;
pub mod extract;
pub mod landing;
pub mod openapi;
pub mod origin_check;
pub mod pages;
pub mod record;
pub mod reply;
pub mod revocable;
pub mod source_limit;
pub mod stream;
pub mod system;
pub mod trail;
pub mod ui;

use std::ops::Deref;
use std::sync::{Arc, LazyLock, OnceLock, Weak};
use std::time::Instant;

use bytes::Bytes;
use tokio_util::sync::CancellationToken;
use url::Url;

use gateway::Gateway;
use mcp::Mcp;
use model::Secret;

use crate::oauth::AuthorizationServer;
use assets::Assets;
use elsewhere::OtherGateways;
use source_limit::SourceLimit;

/// The state that every handler gets. Each route has a clone of it, so that cloning must be cheap.
#[derive(Clone)]
pub struct Face(Arc<FaceParts>);

impl Face {
    pub fn new(parts: FaceParts) -> Self {
        Self(Arc::new(parts))
    }
}

impl Deref for Face {
    type Target = FaceParts;

    fn deref(&self) -> &FaceParts {
        &self.0
    }
}

/// What a [`Face`] consists of.
pub struct FaceParts {
    pub gateway: Arc<Gateway>,
    pub settings: WebSettings,
    pub guesses: SourceLimit,
    /// The authorization server; `None` where nobody can sign in.
    pub sign_in: Option<Arc<AuthorizationServer>>,
    pub about: About,
    pub others: Weak<dyn OtherGateways>,
    /// The face for agents, which knows their sessions; set once it is started.
    pub mcp: OnceLock<Weak<Mcp>>,
    /// Cancelled when the gateway is about to stop. It still serves requests for some time, but clients should go elsewhere.
    pub draining: CancellationToken,
    /// Cancelled when a shutdown begins, so that open streams end and do not delay it.
    pub closing: CancellationToken,
}

/// The version of this program, with a leading `v`.
pub const VERSION: &str = concat!("v", env!("CARGO_PKG_VERSION"));

/// Fixed facts about this process.
pub struct About {
    pub started: Instant,
    pub config_source: String,
    pub database: String,
    /// The OpenAPI document of all routes, built for its first reader.
    pub openapi: LazyLock<Bytes>,
    /// Read when a browser asks for the first one, since hashing them takes time.
    pub assets: LazyLock<Assets>,
}

/// Settings that concern browsers and proxies.
#[derive(Clone, Debug, Default)]
pub struct WebSettings {
    pub public_url: Option<Url>,
    /// Whether `X-Forwarded-*` headers are trusted.
    pub trust_proxy: bool,
    pub allowed_origins: Vec<String>,
    /// Names, beside the usual ones, that the `Host` header may have where no token is required.
    pub allowed_hosts: Vec<String>,
    /// Whether the gateway listens on loopback only.
    pub is_loopback: bool,
    /// The bearer token that `/init` requires.
    pub init_secret: Option<Secret>,
    /// Whether clients connect with TLS.
    pub is_tls: bool,
    pub telemetry: bool,
}
