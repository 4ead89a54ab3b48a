//! Links to servers that another gateway on the same database runs. A link speaks streamable HTTP on a connection whose
//! other end is here: each request is forwarded to that gateway, and its reply becomes the response.

#![allow(clippy::disallowed_types)] // Status codes are chosen here.

use std::sync::Arc;

use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::header::HeaderMap;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::DuplexStream;

use super::peers::Internal;
use super::response::{ResponseBody, respond};
use mcp::{Forwarded, LinkAsk, LinkScope, Peers, Reply, Unreached};
use upstream::{GatewayDialer, ThroughGateway};
use wire::headers::{PROTOCOL_VERSION, SESSION_ID};

/// How many bytes a connection holds that the other end has not read.
const BUFFER: usize = 64 * 1024;

/// The request may have reached the other gateway, and there is no reply: the connection ends without a response.
#[derive(Debug, thiserror::Error)]
#[error("the other gateway did not answer")]
struct Unanswered;

impl GatewayDialer for Internal {
    fn new_link(&self) -> u64 {
        self.random_number()
    }

    fn dial(self: Arc<Self>, to: &ThroughGateway) -> DuplexStream {
        let (ours, theirs) = tokio::io::duplex(BUFFER);
        let (internal, slot) = (self.clone(), to.slot);
        let link = LinkScope { server: to.server.to_string(), number: to.link };
        let serve = async move {
            let service = service_fn(|request| pass_on(internal.clone(), slot, link.clone(), request));
            let served = http1::Builder::new().serve_connection(TokioIo::new(theirs), service).await;
            if let Err(error) = served {
                tracing::debug!(slot, %error, "a connection through another gateway ended early");
            }
        };
        self.spawn(serve);
        ours
    }
}

async fn pass_on(
    internal: Arc<Internal>,
    slot: u16,
    link: LinkScope,
    request: Request<Incoming>,
) -> Result<Response<ResponseBody>, Unanswered> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(|_| Unanswered)?.to_bytes();
    let ask = LinkAsk {
        method: head.method.as_str(),
        session: text(&head.headers, SESSION_ID),
        version: text(&head.headers, PROTOCOL_VERSION),
        body,
    };
    let reply = match internal.forward(slot, Forwarded::on_link(link, ask)).await {
        Ok(reply) => reply,
        Err(Unreached::NotSent) => Reply::misdirected("the other gateway cannot be reached"),
        Err(Unreached::Lost) => return Err(Unanswered),
    };
    Ok(respond(reply, None, &internal.budgets().buffered))
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}
