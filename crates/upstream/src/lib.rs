//! Live links to MCP servers: processes, streamable HTTP, legacy HTTP+SSE, in both eras of the protocol.
//! Reading order: `supervise`, `start` and `attend` (one server, kept alive), `connect` with `step`, `probe` and `lists`
//! (what connecting means), `link`, `request` and `exchange` (a request and what comes back), `calls`, `inbound` and
//! `ticket` (who gets which message), `pool` and `further` (further links), then the transports. `oauth` and
//! `credentials` are about servers that want OAuth.
//! Nothing here knows the database or who is asking.

mod attend;
mod calls;
mod connect;
pub mod credentials;
mod error;
mod exchange;
mod failures;
mod further;
mod http;
mod inbound;
mod link;
mod lists;
mod news;
pub mod oauth;
mod pace;
mod pool;
mod probe;
mod request;
mod sse;
mod start;
pub mod stdio;
mod step;
mod supervise;
mod ticket;

use std::ffi::OsString;
use std::path::PathBuf;
use std::pin::Pin;
use std::time::Duration;

use tokio_util::task::TaskTracker;

use wire::authored::ClientInfo;

pub use calls::Purpose;
pub use error::{CallError, ConnectError, Denial};
pub use exchange::{Exchange, Replier};
pub use failures::FailureNote;
pub use http::Tls;
pub use inbound::Inbound;
pub use link::Link;
pub use lists::Discovery;
pub use news::{News, Newsroom};
pub use pool::Owner;
pub use request::{LinkRequest, OnBehalf};
pub use supervise::{LinkState, ServerEvent, Upstream};

/// What every link of this gateway has in common.
#[derive(Clone)]
pub struct Options {
    /// Limit for the whole of connecting: handshake and lists.
    pub init_timeout: Duration,
    /// The program that starts children: this one, called as `<program> __guard`.
    pub guard: PathBuf,
    /// The guards that are running.
    pub guards: stdio::Guards,
    /// The environment that children inherit, already without what is the gateway's own.
    pub child_env: Vec<(OsString, OsString)>,
    pub tls: Tls,
    /// What must go on although nobody waits for it: a link that is closed, a grant that is renewed. Whoever stops the
    /// gateway waits for these.
    pub tasks: TaskTracker,
    /// Where watchers learn what happens.
    pub newsroom: Newsroom,
    pub oauth: oauth::OAuthIdentity,
}

/// A future behind a pointer. A crate that awaits it does not compile its code once more, as it does with an `async fn`.
type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// How the gateway names itself to upstreams.
const CLIENT: ClientInfo<'static> = ClientInfo { name: "toolgate", version: env!("CARGO_PKG_VERSION") };

/// A message may be of any reasonable size; beyond this an upstream is considered broken.
const MAX_MESSAGE: usize = 256 * 1024 * 1024;
