//! Dispatches a request by its transport and its HTTP method.

use std::sync::Arc;

use super::boxed::boxed;
use super::reply::Reply;
use super::{Ask, Mcp};
use gateway::caller::Scope;
use model::Door;

/// The transport and the scope that an MCP path names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointPath {
    pub transport: ClientTransport,
    pub scope: Scope,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientTransport {
    /// Streamable HTTP.
    Streamable,
    /// The event stream of HTTP+SSE.
    Sse,
    /// The address that a client of HTTP+SSE posts to.
    Message,
}

impl ClientTransport {
    /// How calls over it are recorded.
    pub fn door(self) -> Door {
        match self {
            ClientTransport::Streamable => Door::Mcp,
            ClientTransport::Sse | ClientTransport::Message => Door::Sse,
        }
    }
}

impl Mcp {
    pub async fn serve(self: &Arc<Self>, ask: Ask<'_>) -> Reply {
        if let Some(missing) = self.gateway.missing(&ask.viewer) {
            return Reply::not_found(missing);
        }
        // Boxed, since it is rarely needed.
        if self.gateway.slot() != 0
            && let Some(reply) = Box::pin(self.serve_elsewhere(&ask)).await
        {
            return reply;
        }
        match (ask.transport, ask.method) {
            (ClientTransport::Streamable, "POST") if ask.names_modern_version() => {
                boxed(|| self.post_modern(ask)).await
            }
            (ClientTransport::Streamable, "POST") => self.post(ask).await,
            (ClientTransport::Streamable, _) if ask.names_modern_version() => Reply::wrong_method("POST"),
            (ClientTransport::Streamable, "GET") => self.open_stream(&ask),
            (ClientTransport::Streamable, "DELETE") => self.end_session(&ask),
            (ClientTransport::Streamable, _) => Reply::wrong_method("GET, POST, DELETE"),
            (ClientTransport::Sse, "GET") => self.open_sse(&ask),
            (ClientTransport::Sse, _) => Reply::wrong_method("GET"),
            (ClientTransport::Message, "POST") => boxed(|| self.post_message(ask)).await,
            (ClientTransport::Message, _) => Reply::wrong_method("POST"),
        }
    }
}
