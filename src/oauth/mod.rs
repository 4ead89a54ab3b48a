//! The face for signing in: the authorization server for agents, and the pages on which people sign in and agree. The rules
//! of the protocol are in `model::oauth`; grants, codes and browser sessions in the gateway. Enterprise mode only.

#![allow(clippy::disallowed_types)] // Status codes are chosen here.

pub mod authorize;
pub mod challenge;
pub mod check;
pub mod client_proof;
pub mod cookies;
pub mod error;
pub mod external;
pub mod find_software;
pub mod forms;
pub mod html;
pub mod login;
pub mod metadata;
pub mod page;
pub mod provider_login;
pub mod register;
pub mod revoke;
pub mod server;
pub mod token;
pub mod visitor;

pub use server::{AuthorizationServer, Outside, ServerSettings};
