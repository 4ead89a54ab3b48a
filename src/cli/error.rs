//! Errors with an exit code or output of their own.

/// A mistake in the arguments that clap cannot find.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct UsageError(pub String);

/// The tool reported an error. Its result is already printed.
#[derive(Debug, thiserror::Error)]
#[error("the tool reported an error")]
pub struct ToolError;
