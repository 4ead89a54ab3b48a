//! The people's face: the REST API under `/api/v0`, the dashboard with its own API, and the system routes. Handlers take the request apart, call the
//! gateway once and shape the answer; what they may answer with in trouble is decided in `error`.

#![allow(clippy::disallowed_types)] // Status codes are chosen here.

pub mod access;
pub mod address;
pub mod api;
pub mod assets;
pub mod body;
pub mod client_metadata;
pub mod dashboard;
pub mod error;
pub mod extract;
pub mod guesses;
pub mod openapi;
pub mod origin_check;
pub mod record;
pub mod reply;
pub mod revocable;
pub mod stream;
pub mod system;
pub mod ui;

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use tokio_util::sync::CancellationToken;
use url::Url;

use gateway::Gateway;

use assets::Assets;
use guesses::Guesses;

/// What every handler gets.
#[derive(Clone)]
pub struct Face {
    pub gateway: Arc<Gateway>,
    pub settings: Arc<WebSettings>,
    pub guesses: Arc<Guesses>,
    pub about: Arc<About>,
    /// Cancelled when the gateway is about to end, so that open streams do not hold it up.
    pub closing: CancellationToken,
}

/// The version, as people read it.
pub const VERSION: &str = concat!("v", env!("CARGO_PKG_VERSION"));

/// What this process is and how it came to be so.
pub struct About {
    pub started: Instant,
    pub config_source: String,
    pub database: String,
    /// The OpenAPI document of all routes.
    pub openapi: Bytes,
    pub assets: Assets,
}

/// How this gateway presents itself to browsers and proxies.
#[derive(Clone, Debug, Default)]
pub struct WebSettings {
    pub public_url: Option<Url>,
    /// Whether what a proxy says about the original request is believed.
    pub trust_proxy: bool,
    pub allowed_origins: Vec<String>,
    /// Only this machine can connect, so its own pages are no strangers.
    pub is_loopback: bool,
    /// Whether a host must be a name of this machine: nobody is asked for a token that a page could not know.
    pub checks_host: bool,
    pub telemetry: bool,
}
