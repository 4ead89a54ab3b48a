//! toolgate, a gateway for MCP servers. This crate has the interfaces for people (`http`, `cli`) and the wiring; the
//! layers below are separate crates. ARCHITECTURE.md describes how they fit together.

pub mod http;
pub mod oauth;
pub mod routes;

pub mod allocator;
pub mod app;
pub mod cli;
pub mod config;
