//! toolgate: one place where AI agents reach every tool. Modules in reading order; ARCHITECTURE.md has the map.

pub mod model;
pub mod wire;

pub mod seal;
pub mod store;
pub mod upstream;

pub mod gateway;

pub mod http;
pub mod mcp;
pub mod routes;

pub mod app;
pub mod cli;
pub mod config;
pub mod telemetry;
