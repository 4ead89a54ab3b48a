//! toolgate: one place where AI agents reach every tool. This crate has the faces for people (`http`, `cli`) and the
//! wiring; the layers below are crates of their own. ARCHITECTURE.md has the map.

pub mod http;
pub mod routes;

pub mod app;
pub mod cli;
pub mod config;
