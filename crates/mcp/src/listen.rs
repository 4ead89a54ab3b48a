//! `subscriptions/listen`: a stream of change notifications for clients without a session. Its first message says which
//! of the wishes are granted, every message carries the id of the request, and it lasts until one side ends it.

use std::sync::Arc;

use serde::Deserialize;

use super::live::{Listening, Stream};
use super::modern::profile;
use super::reply::Reply;
use super::stream::{self, Outlet};
use super::{Ask, Mcp};
use budget::Taken;
use gateway::caller::{Profile, Viewer};
use gateway::lists::Lists;
use gateway::refusal::Refusal;
use gateway::tasks;
use model::Topic;
use wire::{Era, Head, OwnedId, authored, text, walk};

/// The notifications that a client asks for; kinds that this gateway does not know are ignored.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Wishes {
    tools_list_changed: bool,
    prompts_list_changed: bool,
    resources_list_changed: bool,
    resource_subscriptions: Vec<String>,
    task_ids: Vec<String>,
}

impl Mcp {
    pub(super) async fn listen(self: &Arc<Self>, ask: &Ask<'_>, head: &Head<'_>, id: OwnedId) -> Reply {
        let profile = profile(head, &ask.viewer);
        self.prepare_greeting(&ask.viewer, &profile).await;
        let wishes = wishes(head).and_then(|wishes| wishes.fitting(&profile));
        let wishes = match (wishes, self.lists_of(&ask.viewer, &profile)) {
            (Ok(wishes), Ok(lists)) => wishes.granted_by(&lists),
            (Err(refusal), _) | (_, Err(refusal)) => return Reply::refusal(Era::Modern, &id, &refusal),
        };
        if !ask.accepts_events {
            return Reply::not_acceptable("this is an event stream; accept text/event-stream");
        }
        let room = match self.room_for(&ask.viewer, &wishes.topics()) {
            Ok(room) => room,
            Err(refusal) => return Reply::refusal(Era::Modern, &id, &refusal),
        };
        let (outlet, body) = match self.stream_slot(&ask.viewer) {
            Ok(slot) => stream::open_in(&self.gateway.budgets().buffered, slot),
            Err(exceeded) => return Reply::too_many_streams(&exceeded),
        };
        let (mcp, viewer) = (self.clone(), ask.viewer.clone());
        // In a task of its own: subscriptions must be undone even if the client is gone.
        self.tasks.spawn(async move { mcp.keep_telling(viewer, profile, wishes, id, outlet, room).await });
        Reply::events(body)
    }

    async fn keep_telling(
        self: Arc<Self>,
        viewer: Viewer,
        profile: Profile,
        mut wishes: Wishes,
        id: OwnedId,
        outlet: Outlet,
        room: Taken,
    ) {
        let subscriptions = self.subscribe_all(&viewer, &profile, wishes.topics(), room).await;
        wishes.resource_subscriptions.retain(|uri| subscriptions.has(&Topic::Resource(uri.clone())));
        wishes.task_ids.retain(|id| subscriptions.has(&Topic::Task(id.clone())));
        let listening = Listening {
            id,
            tools: wishes.tools_list_changed,
            prompts: wishes.prompts_list_changed,
            resources: wishes.resources_list_changed,
        };
        let granted = wishes.to_json();
        let (serial, gone) = (self.sessions.new_serial(), outlet.gone.clone());
        // Taken before the stream is registered, so that no change of the lists after it is missed.
        let known = self.gateway.fingerprint(&viewer, &profile);
        let acknowledged = "notifications/subscriptions/acknowledged";
        let acknowledged = listening.notice(acknowledged, &[("notifications", granted.as_slice())]);
        self.lives.with(serial, &viewer, &profile, |live| {
            // Must be the first message, and nothing that happens after it may be missed.
            outlet.send(&acknowledged);
            live.stream = Some(Stream { outlet, known, listening: Some(listening) });
            live.subscriptions = subscriptions;
        });
        self.catch_up(serial, &viewer, &profile);
        if known.is_some() {
            self.stop.run_until_cancelled(gone.cancelled()).await;
        }
        self.release(serial);
    }
}

fn wishes(head: &Head<'_>) -> Result<Wishes, Refusal> {
    let params = head.params.as_ref();
    let wanted = params.and_then(|params| walk::member(head.body, &params.span, "notifications"));
    let wanted = wanted.filter(|wanted| head.body[wanted.start] == b'{');
    let wanted = wanted.ok_or_else(|| Refusal::Invalid("params.notifications must be an object".into()))?;
    serde_json::from_slice(&head.body[wanted])
        .map_err(|error| Refusal::Invalid(format!("params.notifications: {error}")))
}

impl Wishes {
    /// The wishes that the endpoint can grant: lists that it does not have cannot change.
    fn granted_by(self, lists: &Lists) -> Self {
        let capabilities = lists.greeting.capabilities(Era::Modern);
        let has = |key: &str| walk::member(capabilities, &(0..capabilities.len()), key).is_some();
        Self {
            tools_list_changed: self.tools_list_changed && has("tools"),
            prompts_list_changed: self.prompts_list_changed && has("prompts"),
            resources_list_changed: self.resources_list_changed && has("resources"),
            resource_subscriptions: self.resource_subscriptions,
            task_ids: self.task_ids,
        }
    }

    /// Refuses wishes about tasks of a client that does not declare the extension.
    fn fitting(self, profile: &Profile) -> Result<Self, Refusal> {
        match self.task_ids.is_empty() || profile.capabilities.has_extension(tasks::EXTENSION) {
            true => Ok(self),
            false => Err(Refusal::MissingExtension(tasks::EXTENSION)),
        }
    }

    /// What it subscribes to.
    fn topics(&self) -> Vec<Topic> {
        let resources = self.resource_subscriptions.iter().cloned().map(Topic::Resource);
        resources.chain(self.task_ids.iter().cloned().map(Topic::Task)).collect()
    }

    fn to_json(&self) -> Vec<u8> {
        let mut members: Vec<(&str, &[u8])> = Vec::new();
        for (key, granted) in [
            ("toolsListChanged", self.tools_list_changed),
            ("promptsListChanged", self.prompts_list_changed),
            ("resourcesListChanged", self.resources_list_changed),
        ] {
            members.extend(granted.then_some((key, &b"true"[..])));
        }
        let named = [("resourceSubscriptions", &self.resource_subscriptions), ("taskIds", &self.task_ids)];
        let named = named.into_iter().filter(|(_, names)| !names.is_empty());
        let named: Vec<_> = named.map(|(key, names)| (key, array(names))).collect();
        members.extend(named.iter().map(|(key, names)| (*key, names.as_slice())));
        authored::object(&members)
    }
}

fn array(names: &[String]) -> Vec<u8> {
    let names: Vec<_> = names.iter().map(|name| text::quote(name)).collect();
    [b"[", names.join(&b","[..]).as_slice(), b"]"].concat()
}
