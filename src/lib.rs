//! toolgate: one place where AI agents reach every tool. Modules in reading order; ARCHITECTURE.md has the map.

pub mod model;
pub mod wire;

pub mod seal;
pub mod store;
pub mod upstream;
