//! The API of the dashboard, one file per page; development mode only. Responses contain no secrets: no tokens, values
//! of headers or environment variables, or arguments of processes that could be secrets.

pub mod diagnostics;
mod empty_state;
pub mod events;
pub mod groups;
pub mod import;
pub mod oauth;
pub mod overview;
pub mod prompts;
pub mod resources;
pub mod server;
pub mod servers;
pub mod tools;

use bytes::Bytes;
use serde::Serialize;
use utoipa::ToSchema;

use super::error::ErrorResponse;
use super::extract::json_object;
use gateway::Entry;
use gateway::record::state_of;
use model::{FieldError, Fields};

/// The new state of a flag.
#[derive(Serialize, ToSchema)]
#[schema(as = Switched)]
pub struct SwitchedItem {
    /// The name of the server, or the full name of the tool or prompt.
    name: String,
    /// The flag of the item itself. A tool or prompt is visible only if its server is enabled, too.
    enabled: bool,
}

/// The confirmation of a deletion.
#[derive(Serialize, ToSchema)]
pub struct Deleted {
    /// Always true.
    deleted: bool,
}

impl Deleted {
    const YES: Self = Self { deleted: true };
}

/// The new value of a flag.
#[derive(ToSchema)]
pub struct SwitchInput {
    pub enabled: bool,
}

impl SwitchInput {
    fn parse(body: &Bytes) -> Result<Self, ErrorResponse> {
        let mut fields = Fields::new(json_object(body)?);
        let enabled = fields.flag("enabled")?;
        fields.finish()?;
        let enabled = enabled.ok_or_else(|| FieldError::new("enabled", "is required: true or false"))?;
        Ok(Self { enabled })
    }
}

/// The fields of a list item that describe its server.
struct Home<'a> {
    server: &'a str,
    server_enabled: bool,
    transport: &'static str,
    server_status: &'static str,
}

impl<'a> Home<'a> {
    fn of(entry: &'a Entry) -> Self {
        Self {
            server: entry.name().as_str(),
            server_enabled: entry.is_enabled(),
            transport: entry.registration.config.transport.as_str(),
            server_status: state_of(entry).0.as_str(),
        }
    }
}
