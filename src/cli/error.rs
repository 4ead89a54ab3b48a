//! Errors that end a command with an exit code or an output of their own.

/// A mistake in the arguments that only shows when they are put together.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct UsageError(pub String);

/// The tool ran and said that it failed. What it said is printed already.
#[derive(Debug, thiserror::Error)]
#[error("the tool reported an error")]
pub struct ToolError;
