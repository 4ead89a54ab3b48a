//! Tasks of servers: the list of all of them, and notices about them outside of requests.

use bytes::Bytes;

use super::live::Live;
use super::{Mcp, refuse_cursor};
use gateway::caller::{Profile, Viewer};
use gateway::refusal::Refusal;
use gateway::tasks::TaskNotice;
use model::Topic;
use wire::{Era, Head, authored};

impl Mcp {
    /// The result of `tasks/list` on an endpoint with several servers.
    pub(super) async fn list_tasks(
        &self,
        head: &Head<'_>,
        viewer: &Viewer,
        profile: &Profile,
    ) -> Result<Bytes, Refusal> {
        refuse_cursor(head)?;
        let tasks = self.gateway.list_tasks(viewer, profile).await;
        Ok(authored::object(&[("tasks", &tasks)]).into())
    }

    /// Passes a notice about a task on to the streams of the clients that it concerns.
    pub(super) fn tell_task(&self, notice: &TaskNotice) {
        match notice.link.era {
            Era::Legacy => self.tell_sessions(notice),
            Era::Modern => self.tell_listeners(notice),
        }
    }

    /// Notifies the session that started the task, if it has an open stream.
    fn tell_sessions(&self, notice: &TaskNotice) {
        for serial in self.gateway.sessions_of_task(&notice.server, &notice.id) {
            let session = self.lives.look(serial, |live| (live.viewer.clone(), live.profile.clone()));
            let session = session.filter(|(_, profile)| self.gateway.came_on_link_of(profile, notice));
            let Some((viewer, profile)) = session else { continue };
            let id = self.gateway.shown_task_id(&viewer, notice);
            if let Some(message) = self.gateway.task_notice_for(&viewer, &profile, notice, &id, None) {
                self.lives.look(serial, |live| live.stream.as_ref().map(|it| it.outlet.send(&message)));
            }
        }
    }

    /// Notifies the streams that subscribed to the task, each with the id that it gave and that of its subscription.
    fn tell_listeners(&self, notice: &TaskNotice) {
        let is_meant = |live: &Live| {
            let mut held = live.subscriptions.iter();
            held.find_map(|(subscribed, held)| {
                let there = &held.there;
                let is_there = there.server == notice.server && there.link == notice.link;
                match (subscribed, &there.topic) {
                    (Topic::Task(id), Topic::Task(known_as)) if is_there && *known_as == notice.id => {
                        Some(id.clone())
                    }
                    (Topic::Resource(_) | Topic::Task(_), _) => None,
                }
            })
        };
        let concerned = self.lives.collect(|serial, live| {
            let listening = live.stream.as_ref()?.listening.as_ref()?;
            let id = is_meant(live)?;
            Some((serial, live.viewer.clone(), live.profile.clone(), id, listening.id.clone()))
        });
        for (serial, viewer, profile, id, subscription) in concerned {
            // Access may have changed since the subscription.
            let message = self.gateway.task_notice_for(&viewer, &profile, notice, &id, Some(&subscription));
            if let Some(message) = message {
                self.lives.look(serial, |live| live.stream.as_ref().map(|it| it.outlet.send(&message)));
            }
        }
    }
}
