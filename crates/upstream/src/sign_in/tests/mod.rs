//! Tests of signing in, against a fake identity provider on loopback.

mod client_documents;
mod fake_idp;
mod identity_provider;
mod jwt_issuer;
mod signatures;
mod signer;
