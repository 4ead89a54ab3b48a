//! Plain data and the rules that hold for it: names, servers, what a server offers, users, clients, secrets. No I/O and
//! no async; all other layers use these types.

pub mod allow_list;
pub mod arguments;
pub mod audit;
pub mod call_record;
pub mod capabilities;
pub mod client;
pub mod deep_json;
pub mod excerpt;
pub mod fields;
pub mod group;
pub mod histogram;
pub mod idp_group;
pub mod import;
pub mod issued;
pub mod log_level;
pub mod mode;
pub mod name;
pub mod offering;
pub mod own_meta;
pub mod package;
pub mod pattern;
pub mod principal;
pub mod rate_limit;
pub mod redact;
pub mod registration;
pub mod rule;
pub mod secret;
pub mod server;
pub mod time;
pub mod token;
pub mod topic;
pub mod uri;
pub mod user;

pub use allow_list::AllowList;
pub use audit::{AuditEntry, AuditHead, AuditNote, AuditOutcome, By};
pub use call_record::{CallRecord, Door, RecordedPrincipal};
pub use capabilities::Capabilities;
pub use client::Client;
pub use fields::{FieldError, Fields};
pub use group::{Group, GroupName};
pub use histogram::Histogram;
pub use idp_group::IdpGroup;
pub use issued::Issued;
pub use log_level::LogLevel;
pub use mode::Mode;
pub use name::{QualifiedName, ServerName};
pub use offering::{Offering, Prompt, Resource, Template, Tool};
pub use own_meta::OwnMeta;
pub use principal::PrincipalId;
pub use rate_limit::{RateLimit, ToolLimits};
pub use redact::Redactor;
pub use registration::Registration;
pub use rule::{Item, Rule, RuleSubject};
pub use secret::Secret;
pub use server::{
    Endpoint, Flags, OAuthSettings, Placement, Process, ServerConfig, SessionMode, Status, Transport,
};
pub use token::Token;
pub use topic::Topic;
pub use uri::ResourceUri;
pub use user::{HolderName, IdpAccount, Role, User, UserChange};
