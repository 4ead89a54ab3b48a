//! The API of the dashboard, one file per page; development mode only. Responses contain no secrets: no tokens,
//! values of headers or environment variables, or arguments of processes.

pub mod diagnostics;
mod empty_state;
pub mod events;
pub mod groups;
pub mod import;
pub mod oauth;
pub mod overview;
pub mod prompts;
pub mod resources;
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

/// A flag of something was set.
#[derive(Serialize, ToSchema)]
#[schema(as = Switched)]
pub struct SwitchedItem {
    name: String,
    /// Its own flag; it is in effect only while its server is enabled, too.
    enabled: bool,
}

/// Something is gone.
#[derive(Serialize, ToSchema)]
pub struct Deleted {
    deleted: bool,
}

impl Deleted {
    const YES: Self = Self { deleted: true };
}

/// The body of every switch.
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

/// The columns of a list that are about the server of each item.
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
