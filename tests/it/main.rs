//! The gateway through its front door: raw JSON in and out, against real servers on loopback.

#![allow(clippy::unwrap_used)]

mod support;

mod announcements;
mod dashboard;
mod dashboard_events;
mod dashboard_import;
mod dashboard_pages;
mod groups;
mod groups_model;
mod mcp_at_once;
mod mcp_calls;
mod mcp_fidelity;
mod mcp_isolation;
mod mcp_lists;
mod mcp_messages;
mod mcp_questions;
mod mcp_scopes;
mod mcp_sessions;
mod mcp_sse;
mod mcp_stateful;
mod mcp_subscriptions;
mod process;
mod process_children;
mod prompts;
mod resources;
mod restart;
mod safety;
mod safety_bodies;
mod servers;
mod servers_at_once;
mod servers_change;
mod servers_input;
mod servers_secrecy;
mod smoke;
mod system;
mod tools_cancel;
mod tools_failure;
mod tools_invoke;
mod tools_list;
mod tools_stream;
mod tools_switch;
mod upstream_failures;
mod upstream_heal;
mod upstream_lists;
mod upstream_probe;
mod upstream_traffic;
