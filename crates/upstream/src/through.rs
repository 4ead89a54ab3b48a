//! Reaching a server through another gateway on the same database, which runs its processes. The connections are those of
//! streamable HTTP, but no sockets: the other end is in this process, and passes requests on.

use std::sync::{Arc, OnceLock, Weak};

use tokio::io::DuplexStream;

use model::ServerName;

/// Opens connections to servers through other gateways.
pub trait GatewayDialer: Send + Sync {
    /// A number for a new link, which no link of any gateway has.
    fn new_link(&self) -> u64;

    /// Opens a connection of a link to a server that another gateway runs.
    fn dial(self: Arc<Self>, to: &ThroughGateway) -> DuplexStream;
}

/// The way of one link through another gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThroughGateway {
    /// The number of the gateway that runs the server.
    pub slot: u16,
    pub server: ServerName,
    /// The number of the link.
    pub link: u64,
}

/// The dialer of this gateway, which is made after the first links.
#[derive(Clone, Default)]
pub struct Dialer(Arc<OnceLock<Weak<dyn GatewayDialer>>>);

impl Dialer {
    /// Names the dialer; only the first one counts.
    pub fn set(&self, dialer: Weak<dyn GatewayDialer>) {
        let _ = self.0.set(dialer);
    }

    pub(super) fn get(&self) -> Option<Arc<dyn GatewayDialer>> {
        self.0.get()?.upgrade()
    }
}
