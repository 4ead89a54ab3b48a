//! Tasks of servers, as agents use them. On endpoints with several servers the id of a task carries the name of its
//! server. In enterprise mode tasks belong to the principal that started them: the server knows only the gateway, so it
//! would let one client read or cancel the task of another. In development mode all tasks are everybody's.

mod eras;
mod ids;
mod listing;
mod notices;
mod owned;
mod uses;

pub use ids::{not_an_id, task_owner};
pub use notices::TaskNotice;
pub use owned::OwnTasks;
pub use uses::TaskUse;

/// The extension that modern clients and servers declare.
pub const EXTENSION: &str = "io.modelcontextprotocol/tasks";
