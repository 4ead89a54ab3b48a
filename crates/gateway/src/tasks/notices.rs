//! Notices about tasks that come outside of any call, for the clients that they concern: in the legacy era the session
//! that started the task, in the modern one whoever subscribed to it.

use bytes::Bytes;

use super::ids::{is_qualified, is_status, task_owner};
use crate::Gateway;
use crate::caller::Viewer;
use upstream::{Profile, Upstream};
use wire::{Era, Head, Patch, authored, meta, text, walk};

/// A notice about a task, as its server sent it.
#[derive(Debug)]
pub struct TaskNotice {
    pub server: String,
    /// The profile of the link on which it came.
    pub link: Profile,
    /// The id at the server.
    pub id: String,
    message: Bytes,
}

impl TaskNotice {
    /// Reads a notice; `None` if it names no task, or is not of the era of its link.
    pub(crate) fn read(upstream: &Upstream, link: Profile, message: Bytes) -> Option<Self> {
        let head = Head::parse(&message).ok()?;
        let era = match head.method.as_deref() {
            Some("notifications/tasks") => Era::Modern,
            Some(_) | None => Era::Legacy,
        };
        let id = head.params.as_ref().and_then(|params| params.task_id.as_ref());
        let id = id.filter(|_| is_status(&head) && era == link.era)?.value.to_string();
        Some(Self { server: upstream.config().name.to_string(), link, id, message })
    }
}

impl Gateway {
    /// The sessions that started a task, of which there is more than one only if the server gave an id twice.
    pub fn sessions_of_task(&self, server: &str, id: &str) -> Vec<u64> {
        self.usages.sessions_of_task(server, id)
    }

    /// Whether a notice came on the link that a caller's calls use.
    pub fn came_on_link_of(&self, profile: &Profile, notice: &TaskNotice) -> bool {
        let upstream = self.catalog().get(&notice.server).and_then(|entry| entry.upstream.clone());
        upstream.is_some_and(|upstream| upstream.is_served_by(profile, &notice.link))
    }

    /// The id under which a viewer knows a task.
    pub fn shown_task_id(&self, viewer: &Viewer, notice: &TaskNotice) -> String {
        match is_qualified(&viewer.scope) {
            true => format!("{}{}{}", notice.server, model::name::SEPARATOR, notice.id),
            false => notice.id.clone(),
        }
    }

    /// A notice for a viewer who knows the task as `shown_as`, on the subscription with this id; `None` if the task is not
    /// the viewer's any more.
    pub fn task_notice_for(
        &self,
        viewer: &Viewer,
        profile: &Profile,
        notice: &TaskNotice,
        shown_as: &str,
        subscription: Option<&[u8]>,
    ) -> Option<Bytes> {
        let catalog = self.catalog_for(profile);
        let is_there = viewer.scope.server().is_none_or(|name| name == notice.server);
        let (entry, id) = task_owner(&catalog, viewer, shown_as).ok().filter(|_| is_there)?;
        if !self.owns_task(viewer, entry.name().as_str(), id) {
            return None;
        }
        let message = &notice.message;
        let head = Head::parse(message).ok()?;
        let params = head.params.as_ref()?;
        let mut patch = Patch::new(message);
        patch.replace(params.task_id.as_ref()?.span.clone(), text::quote(shown_as));
        if let Some(related) = head.related_task().filter(|_| is_qualified(&viewer.scope)) {
            patch.replace(related.span, text::quote(&entry.name().qualify(&related.value)));
        }
        let links = self.shared_uris(&catalog, viewer, entry.name());
        if let (Some(links), Some(result)) = (links, walk::member(message, &params.span, "result")) {
            links.in_result(&mut patch, message, &result);
        }
        if let Some(subscription) = subscription {
            let mark: &[(&str, &[u8])] = &[(meta::SUBSCRIPTION_ID, subscription)];
            match &params.meta {
                Some(present) => patch.edit_members(&present.span, |_| false, mark),
                None => patch.set_member(&params.span, "_meta", &authored::object(mark)),
            };
        }
        Some(patch.apply())
    }
}
