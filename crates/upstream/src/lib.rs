//! Live links to MCP servers: processes, streamable HTTP, legacy HTTP+SSE, in both eras of the protocol.
//! Reading order: `handle`, `start` and `supervisor` (one server, kept alive), `connect` with `step`, `probe` and
//! `lists` (the steps of connecting), `link`, `request` and `exchange` (a request and its answer), `calls`, `inbound`
//! and `ticket` (routing of messages to calls), `listen` and `task_notices` (messages outside of calls), `profile`, `branch`, `pool`, `slots` and
//! `further` (further links), then the transports; `through` and `eras` for servers that one gateway runs for others.
//! `journal` and `failures` are what people can look up about a server later.
//! `oauth` and `credentials` are for servers that require OAuth; `sign_in` is for people and agents that come to the gateway. `error` and `kind` are what callers get of a failure.
//! This crate knows neither the database nor the caller.

mod branch;
mod calls;
mod charge;
mod connect;
pub mod credentials;
mod eras;
mod error;
mod exchange;
mod failures;
mod further;
mod handle;
mod http;
mod inbound;
mod journal;
mod kind;
mod link;
mod listen;
mod lists;
mod news;
pub mod oauth;
mod pace;
mod pool;
mod probe;
mod profile;
mod reading;
mod request;
pub mod sign_in;
mod slots;
mod sse;
mod start;
pub mod stdio;
mod step;
mod supervisor;
mod task_notices;
mod through;
mod ticket;

use std::path::PathBuf;
use std::pin::Pin;
use std::time::Duration;

use tokio_util::task::TaskTracker;

use budget::Budgets;
use wire::authored::ClientInfo;

pub use calls::Purpose;
pub use error::{CallError, ConnectError, Denial};
pub use exchange::{Exchange, RelatedTask, Replier};
pub use failures::FailureNote;
pub use handle::{LinkState, ServerEvent, Upstream};
pub use http::{Tls, read_response, read_second_response};
pub use inbound::Inbound;
pub use journal::{Journal, JournalLine, JournalLines, JournalReader, KEPT_LINES};
pub use kind::kind_of;
pub use link::Link;
pub use lists::Discovery;
pub use news::{News, Newsroom};
pub use pace::Pace;
pub use profile::{Owner, Profile};
pub use reading::Reading;
pub use request::{Additions, LinkRequest, OnBehalf};
pub use slots::ProcessSlots;
pub use through::{Dialer, GatewayDialer, ThroughGateway};

/// Settings and shared state of all links of this gateway.
#[derive(Clone)]
pub struct Options {
    /// Timeout for connecting as a whole: handshake and lists.
    pub init_timeout: Duration,
    /// The program that starts child processes: this one, run as `<program> __guard`.
    pub guard: PathBuf,
    /// The guards that are running.
    pub guards: stdio::Guards,
    pub processes: ProcessSlots,
    pub children: stdio::ChildSettings,
    pub tls: Tls,
    /// Background work that must finish although no caller waits for it: closing a link, renewing a grant. Stopping the
    /// gateway waits for these tasks.
    pub tasks: TaskTracker,
    /// Broadcasts events to watchers.
    pub newsroom: Newsroom,
    pub budgets: Budgets,
    pub oauth: oauth::OAuthIdentity,
    /// The way to servers that another gateway runs.
    pub dialer: Dialer,
}

/// A boxed future. Unlike that of an `async fn`, its code is not compiled again in each crate that awaits it.
type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The client name and version that the gateway sends to upstreams.
const CLIENT: ClientInfo<'static> = ClientInfo { name: "toolgate", version: env!("CARGO_PKG_VERSION") };
