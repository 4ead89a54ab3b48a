//! What a client can subscribe to: a resource or a task of a server.

/// A subject of notices that a client asks for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Topic {
    /// The URI of a resource.
    Resource(String),
    /// The id of a task, as revision 2026-07-28 has them.
    Task(String),
}
