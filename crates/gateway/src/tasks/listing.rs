//! `tasks/list` on endpoints with several servers: the tasks of all of them in one answer.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::task::JoinSet;

use super::ids::task_id;
use crate::Gateway;
use crate::audience::Extent;
use crate::caller::{Profile, Viewer};
use crate::catalog::Entry;
use crate::request::OwnRequest;
use crate::trail::Trail;
use model::{Offering, deep_json};
use wire::{Era, Patch, Span, Version, text, walk};

/// The most pages and bytes of one server's list.
const MOST_PAGES: usize = 100;
const MOST_BYTES: usize = 4 << 20;
/// How long one server may take for all its pages: the others must not wait for it.
const LISTING: Duration = Duration::from_secs(10);

impl Gateway {
    /// The tasks that a viewer may see, of all servers that list theirs, as an array. Servers that fail are left out.
    pub async fn list_tasks(self: &Arc<Self>, viewer: &Viewer, profile: &Profile) -> Vec<u8> {
        // Only then is it known what servers of both eras declare to clients of this one.
        Box::pin(self.prepare_lists(viewer, profile, Extent::All)).await;
        let catalog = self.catalog_for(profile);
        let Some(lens) = catalog.lens(viewer) else { return b"[]".to_vec() };
        let mut asking = JoinSet::new();
        let servers = catalog.entries_by_full_name().into_iter();
        for entry in servers.filter(|entry| lens.shows_tasks(entry) && lists_tasks(entry.offering())) {
            let (gateway, entry) = (self.clone(), entry.clone());
            let (viewer, profile) = (viewer.clone(), profile.clone());
            asking.spawn(async move {
                let listed = tokio::time::timeout(LISTING, gateway.tasks_of(&viewer, &profile, &entry)).await;
                let late = || Err("it does not answer".to_owned());
                (entry.name().to_string(), listed.unwrap_or_else(|_| late()))
            });
        }
        let mut listed = Vec::new();
        for (server, tasks) in asking.join_all().await {
            match tasks {
                Ok(tasks) => listed.push((server, tasks)),
                Err(reason) => tracing::warn!(server, reason, "the tasks of a server are left out of a list"),
            }
        }
        listed.sort_by(|(one, _), (other, _)| one.cmp(other));
        let tasks: Vec<_> = listed.into_iter().flat_map(|(_, tasks)| tasks).collect();
        [b"[", tasks.join(&b","[..]).as_slice(), b"]"].concat()
    }

    /// The tasks of one server that a viewer may see, with the ids that the viewer sees. The error is for the log.
    async fn tasks_of(
        &self,
        viewer: &Viewer,
        profile: &Profile,
        entry: &Arc<Entry>,
    ) -> Result<Vec<Vec<u8>>, String> {
        let (mut tasks, mut bytes) = (Vec::new(), 0);
        let mut cursor: Option<Vec<u8>> = None;
        for _ in 0..MOST_PAGES {
            let request = OwnRequest {
                method: "tasks/list",
                params: &cursor.as_deref().map(|cursor| ("cursor", cursor)).into_iter().collect::<Vec<_>>(),
                tool: None,
                is_repeatable: true,
                listener: None,
                profile: profile.clone(),
                trail: Trail::default(),
            };
            let page = self.ask(entry, request).await.map_err(|failed| format!("{failed:?}"))?;
            let whole = 0..page.len();
            let listed = walk::member(&page, &whole, "tasks").ok_or("its answer has no tasks")?;
            for task in walk::elements(&page, &listed) {
                tasks.extend(self.shown_task(viewer, entry, &page, &task));
            }
            bytes += page.len();
            let next = walk::member(&page, &whole, "nextCursor").map(|next| page[next].to_vec());
            let next = next.filter(|next| next.starts_with(b"\"") && cursor.as_ref() != Some(next));
            match next {
                Some(next) if bytes < MOST_BYTES => cursor = Some(next),
                Some(_) | None => break,
            }
        }
        Ok(tasks)
    }

    /// A task with the id that the viewer sees; `None` if it is not the viewer's.
    fn shown_task(&self, viewer: &Viewer, entry: &Entry, page: &Bytes, task: &Span) -> Option<Vec<u8>> {
        let id = task_id(page, task)?;
        if !self.owns_task(viewer, entry.name().as_str(), &id) {
            return None;
        }
        let task = page.slice(task.clone());
        let span = walk::member(&task, &(0..task.len()), "taskId")?;
        let mut patch = Patch::new(&task);
        patch.replace(span, text::quote(&entry.name().qualify(&id)));
        Some(patch.apply().into())
    }
}

/// Whether a server lists its tasks, which only legacy ones do.
fn lists_tasks(offering: &Offering) -> bool {
    let is_legacy = Version::parse(&offering.protocol_version).is_none_or(|it| it.era() == Era::Legacy);
    let declared =
        offering.capabilities.as_deref().and_then(|declared| deep_json::parse(declared.get()).ok());
    is_legacy && declared.is_some_and(|declared| declared["tasks"].get("list").is_some())
}
