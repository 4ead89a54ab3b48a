//! Signing in with the operator's identity provider, and tokens of other issuers. Reading order: `identity_provider` (people
//! in a browser) with `token_endpoint` and `person`, `jwt_issuer` (bearer tokens of an external issuer), `issuer`, `cached`,
//! `idp_metadata` (what an issuer publishes) with `check`, `signed_jwt`, `key_set` and `claims` (tokens), `client_documents` and
//! `client_assertion` (OAuth clients of the gateway), `web` (requests). Nothing here is stored: the gateway does that.

mod cached;
mod check;
mod claims;
mod client_assertion;
mod client_documents;
mod identity_provider;
mod idp_metadata;
mod issuer;
mod jwt_issuer;
mod key_set;
mod person;
mod problem;
mod signed_jwt;
#[cfg(test)]
mod tests;
mod token_endpoint;
mod web;

pub use check::CheckStep;
pub use client_assertion::{AssertionProblem, ProvenClient};
pub use client_documents::{ClientDocuments, DocumentProblem, FetchedDocument};
pub use identity_provider::{
    BegunSignIn, CallbackQuery, IdentityProvider, IdpSettings, Recheck, SignInAttempt,
};
pub use idp_metadata::issuer_url;
pub use jwt_issuer::{JwtIssuer, JwtProblem, JwtSubject};
pub use person::{Person, PersonClaims};
pub use problem::IdpProblem;
pub use signed_jwt::SigningAlgorithm;
pub use web::{Proof, Web, WebResponse, is_safe_url};
