//! What a client on standard input and output and the gateway share. `exchange` answers its requests, `streams` keeps its
//! streams open.

use super::endpoint::Endpoint;
use super::in_flight::InFlight;
use super::lines::Output;
use super::param_headers::ParamHeaders;
use super::session::Session;

pub struct Connection {
    pub endpoint: Endpoint,
    /// The session of a client that did a handshake.
    pub session: Session,
    pub params: ParamHeaders,
    pub in_flight: InFlight,
    pub output: Output,
}
