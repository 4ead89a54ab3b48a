//! Where a request belongs: which transport and which scope its path names, and what its method asks there.

use std::sync::Arc;

use super::reply::Reply;
use super::{Ask, Mcp};
use gateway::caller::Scope;

/// What an MCP path means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub transport: Transport,
    pub scope: Scope,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Streamable HTTP.
    Streamable,
    /// The event stream of HTTP+SSE.
    Sse,
    /// Where a client of HTTP+SSE posts to.
    Message,
}

impl Mcp {
    pub async fn serve(self: &Arc<Self>, ask: Ask<'_>) -> Reply {
        if let Some(missing) = self.gateway.missing(&ask.viewer) {
            return Reply::not_found(missing);
        }
        match (ask.transport, ask.method) {
            (Transport::Streamable, "POST") if ask.names_modern_version() => {
                Box::pin(self.post_modern(ask)).await
            }
            (Transport::Streamable, "POST") => self.post(ask).await,
            (Transport::Streamable, _) if ask.names_modern_version() => Reply::wrong_method("POST"),
            (Transport::Streamable, "GET") => self.open_stream(&ask),
            (Transport::Streamable, "DELETE") => self.end_session(&ask),
            (Transport::Streamable, _) => Reply::wrong_method("GET, POST, DELETE"),
            (Transport::Sse, "GET") => self.open_sse(&ask),
            (Transport::Sse, _) => Reply::wrong_method("GET"),
            (Transport::Message, "POST") => Box::pin(self.post_message(ask)).await,
            (Transport::Message, _) => Reply::wrong_method("POST"),
        }
    }
}
