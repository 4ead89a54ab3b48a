//! The rules of the authorization server: who the software of an agent is, where answers may go, what a token is for.
//! No I/O: documents are fetched, and client ids sealed, by the callers.

pub mod authorize;
pub mod client_hosts;
pub mod client_url;
pub mod parameters;
pub mod pkce;
pub mod problem;
pub mod redirect;
pub mod registration;
pub mod resource;
pub mod software;

pub use authorize::{Asked, AuthorizeRequest};
pub use client_hosts::ClientHosts;
pub use client_url::ClientUrl;
pub use parameters::Parameters;
pub use problem::OAuthProblem;
pub use redirect::{PrivateSchemes, RedirectUri};
pub use software::{ClientKeys, Proof, SecretHash, Software, SoftwareOrigin};

/// The only scope: all rights of the user, at the endpoints that the token is for.
pub const SCOPE: &str = "mcp";
