//! Ids of tasks: which server and task one names for a viewer, and whether the task is the viewer's.

use std::borrow::Cow;
use std::sync::Arc;

use crate::Gateway;
use crate::caller::{Scope, Viewer};
use crate::catalog::{Catalog, Entry};
use crate::refusal::Refusal;
use model::QualifiedName;
use upstream::Profile;
use wire::{Head, Span, text, walk};

impl Gateway {
    /// The server of a task that a viewer names, and the id there.
    pub(crate) fn find_task(
        &self,
        viewer: &Viewer,
        profile: &Profile,
        id: &str,
    ) -> Result<(Arc<Entry>, String), Refusal> {
        let catalog = self.catalog_for(profile);
        let (entry, known_as) = task_owner(&catalog, viewer, id)?;
        match self.owns_task(viewer, entry.name().as_str(), known_as) {
            true => Ok((entry.clone(), known_as.to_owned())),
            false => Err(Refusal::UnknownTask(id.to_owned())),
        }
    }

    pub(super) fn owns_task(&self, viewer: &Viewer, server: &str, id: &str) -> bool {
        viewer.principal.is_none() || self.usage(viewer.principal).tasks.has(server, id)
    }
}

/// The server of a task, and the id there, if the viewer sees the server.
pub fn task_owner<'a, 'b>(
    catalog: &'a Catalog,
    viewer: &Viewer,
    id: &'b str,
) -> Result<(&'a Arc<Entry>, &'b str), Refusal> {
    let named = match viewer.scope.server() {
        Some(server) => Some((server, id)),
        None => QualifiedName::parse(id).map(|name| (name.server, name.item)),
    };
    let found = named.and_then(|(server, id)| {
        let (entry, lens) = (catalog.get(server)?, catalog.lens(viewer)?);
        lens.shows_tasks(entry).then_some((entry, id))
    });
    found.ok_or_else(|| Refusal::UnknownTask(id.to_owned()))
}

/// Whether ids at an endpoint carry the name of their server.
pub fn is_qualified(scope: &Scope) -> bool {
    scope.server().is_none()
}

/// The refusal of an id that is missing or no string.
pub fn not_an_id() -> Refusal {
    Refusal::Invalid("params.taskId must be a string".into())
}

/// Whether a notice tells the status of a task, in either era.
pub fn is_status(head: &Head<'_>) -> bool {
    matches!(head.method.as_deref(), Some("notifications/tasks/status" | "notifications/tasks"))
}

/// The id of a task object.
pub fn task_id<'a>(message: &'a [u8], task: &Span) -> Option<Cow<'a, str>> {
    text::unescape(&message[walk::member(message, task, "taskId")?])
}
