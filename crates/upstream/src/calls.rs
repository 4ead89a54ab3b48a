//! The calls in flight on one link, and the routing of the upstream's messages to them.
//! Ids and progress tokens are numbers of the link's own (token = id), so those of different callers cannot collide.

use std::collections::{BTreeSet, HashMap};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use foldhash::fast::RandomState;
use tokio::sync::Notify;

use super::error::CallError;
use super::inbound::{Inbound, answered_id};
use super::listen::ACKNOWLEDGED;
use super::task_notices::TaskNotices;
use super::ticket::Ticket;
use budget::{Bound, Budgets, Exceeded};
use model::{Capabilities, PrincipalId};
use wire::error::code;
use wire::{Ends, Head, HeadError, Id, MessageKind, authored, meta, walk};

pub struct Calls {
    capabilities: Capabilities,
    last_id: AtomicU64,
    pending: Mutex<PendingCalls>,
    pub signals: Signals,
}

#[derive(Default)]
struct PendingCalls {
    calls: HashMap<u64, PendingCall, RandomState>,
    /// Why the link was lost. Set once; from then on every call fails with this reason.
    lost: Option<String>,
    /// The calls that wait for the result of a task, with its id.
    awaited_tasks: Vec<(u64, String)>,
}

struct PendingCall {
    purpose: Purpose,
    /// Whether the upstream waits for its caller, who was told so and is gone meanwhile.
    is_parked: bool,
    slot: Ticket,
}

/// Whether a request is made for a caller or for the gateway itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// For a caller, to whom the upstream may send requests meanwhile; `None` is everybody in development mode.
    Caller(Option<PrincipalId>),
    /// For the gateway itself: lists, subscriptions, the handshake.
    OurOwn,
}

impl Purpose {
    fn is_for_caller(self) -> bool {
        matches!(self, Purpose::Caller(_))
    }
}

impl Calls {
    pub fn new(capabilities: Capabilities) -> Self {
        Self {
            capabilities,
            last_id: AtomicU64::default(),
            pending: Mutex::default(),
            signals: Signals::default(),
        }
    }

    pub fn next_id(&self) -> u64 {
        self.last_id.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Registers a call. Err when the link is already lost.
    pub fn begin(&self, id: u64, purpose: Purpose) -> Result<Ticket, CallError> {
        let mut pending = self.lock();
        if let Some(reason) = &pending.lost {
            return Err(CallError::NotSent(reason.clone()));
        }
        let slot = Ticket::default();
        pending.calls.insert(id, PendingCall { purpose, is_parked: false, slot: slot.clone() });
        Ok(slot)
    }

    pub fn end(&self, id: u64) {
        let mut pending = self.lock();
        pending.calls.remove(&id);
        pending.awaited_tasks.retain(|(waiting, _)| *waiting != id);
    }

    /// Notes that a call is about to wait for the result of a task: what the upstream asks meanwhile for this task is asked
    /// of the caller.
    pub fn awaits_task(&self, id: u64, task: &str) {
        self.lock().awaited_tasks.push((id, task.to_owned()));
    }

    /// Marks the link as lost: every call in flight and every later one fails. Only the first reason is kept.
    pub fn lose(&self, reason: &str) {
        let mut pending = self.lock();
        if pending.lost.is_some() {
            return;
        }
        pending.lost = Some(reason.to_owned());
        for (_, waiting) in pending.calls.drain() {
            waiting.slot.settle(Err(CallError::Lost(reason.to_owned())));
        }
        drop(pending);
        self.signals.notify.notify_one();
    }

    /// Fails the call, if any, whose upstream did not get the answer to its question.
    pub fn answer_lost(&self, id: Option<u64>, error: &CallError) {
        if let Some(slot) = id.and_then(|id| self.slot(id)) {
            let reason = format!("the answer to its request for input did not arrive: {error}");
            slot.settle(Err(CallError::Lost(reason)));
        }
    }

    /// Fails the call, if any, of a message that was never written to the upstream: it did not run.
    pub fn return_unsent(&self, message: &[u8], reason: &str) {
        let id = Head::of_own(message).ok().and_then(|head| head.id?.as_u64());
        if let Some(slot) = id.and_then(|id| self.slot(id)) {
            slot.settle(Err(CallError::NotSent(reason.to_owned())));
        }
    }

    /// Fails the call whose answer is too large to be kept, by the bound that it exceeds. Called when that is noticed and
    /// when the message is over: its id may stand at either end. A message without an id there is dropped, and no call
    /// fails because of it.
    pub fn drop_large(&self, ends: &Ends, is_over: bool, exceeded: Exceeded, budgets: &Budgets) {
        let id = ends.answer_id(is_over);
        let id = id.as_deref().and_then(|id| Id::at(id, 0..id.len())).and_then(|id| number(&id));
        if is_over {
            // The budget itself has counted what it refused.
            if exceeded.bound == Bound::MessageSize {
                budgets.refusals.count(Bound::MessageSize);
            }
            tracing::debug!(id, "dropped a message that is too large");
        }
        if let Some(slot) = id.and_then(|id| self.slot(id)) {
            slot.settle(Err(CallError::dropped(exceeded)));
        }
    }

    pub fn is_lost(&self) -> bool {
        self.lock().lost.is_some()
    }

    pub fn lost(&self) -> Option<String> {
        self.lock().lost.clone()
    }

    /// Routes a message to the call that it belongs to. `own` is the call on whose own stream it came, if there is one.
    /// Returns the reply of the gateway itself, if the message needs one.
    pub fn sort(&self, message: Bytes, own: Option<u64>) -> Option<Bytes> {
        if let Some(id) = answered_id(&message).filter(|id| own.is_none_or(|own| own == *id)) {
            self.answer(id, message);
            return None;
        }
        let head = match Head::parse(&message) {
            Ok(head) => head,
            // A server whose request is invalid, such as nested too deep, would wait for its answer forever.
            Err(HeadError::Invalid { reason, id: Some(id) }) if is_request(&message) => {
                return Some(authored::error(Some(&id), code::INVALID_REQUEST, &reason, None));
            }
            Err(reason) => {
                tracing::debug!(%reason, "ignored data from a server that is not an MCP message");
                return None;
            }
        };
        match head.kind {
            MessageKind::Result | MessageKind::Error => {
                let id = answered_call(head.id.as_ref(), own);
                drop(head);
                match id {
                    Some(id) => self.answer(id, message),
                    None => tracing::debug!(own, "dropped a response to another request"),
                }
                None
            }
            MessageKind::Notice => {
                match head.method.as_deref().unwrap_or_default() {
                    "notifications/tools/list_changed"
                    | "notifications/prompts/list_changed"
                    | "notifications/resources/list_changed" => self.signals.lists_changed(),
                    "notifications/resources/updated" => {
                        if let Some(uri) = head.params.as_ref().and_then(|params| params.uri.as_ref()) {
                            self.signals.updated(&uri.value);
                        }
                    }
                    "notifications/progress" => {
                        let token =
                            head.params.as_ref().and_then(|params| params.progress_token.as_ref()?.as_u64());
                        drop(head);
                        // On a call's own stream, the token of another call is ignored: it would reach another caller.
                        let token = token.filter(|token| own.is_none_or(|own| own == *token));
                        self.notice(token, Inbound::Notice(message));
                    }
                    // It contains an id that only the gateway and the upstream know.
                    "notifications/cancelled" => {}
                    ACKNOWLEDGED => {
                        let id = own.or_else(|| subscription_of(&head));
                        drop(head);
                        self.notice(id, Inbound::Notice(message));
                    }
                    "notifications/tasks" | "notifications/tasks/status"
                        if own.is_none_or(|own| !self.is_for_caller(own)) =>
                    {
                        // A subscription that was replaced may still send what the new one sends, too.
                        let is_over = subscription_of(&head).is_some_and(|id| self.slot(id).is_none());
                        drop(head);
                        if !is_over {
                            self.signals.task_notices.add(message);
                            self.signals.notify.notify_one();
                        }
                    }
                    // Log messages, and notices that later revisions may add.
                    _ => {
                        let call = own.or_else(|| self.waiter(&head)).or_else(|| self.active_call());
                        drop(head);
                        self.notice(call, Inbound::Notice(message));
                    }
                }
                None
            }
            MessageKind::Request => {
                let id = head.id.as_ref().map(|id| id.raw().to_vec()).unwrap_or_default();
                let method = head.method.as_deref().unwrap_or_default().to_owned();
                let asked = match (own, head.related_task()) {
                    (Some(own), _) => Some(own),
                    // The task may be another caller's than the only call.
                    (None, Some(_)) => self.waiter(&head),
                    (None, None) => self.active_call(),
                };
                drop(head);
                self.request(&method, &id, message, asked)
            }
        }
    }

    fn request(&self, method: &str, id: &[u8], message: Bytes, asked: Option<u64>) -> Option<Bytes> {
        // A request of the gateway itself has nobody who could be asked.
        let asked = asked.filter(|id| self.is_for_caller(*id));
        match method {
            "ping" => return Some(authored::result(id, b"{}")),
            "roots/list" if asked.is_none() || !self.capabilities.has_roots() => {
                return Some(authored::result(id, br#"{"roots":[]}"#));
            }
            _ => {}
        }
        if self.notice(asked, Inbound::Request(message)) {
            return None;
        }
        let text = format!(
            "{method} cannot be assigned to a call: several calls share this link; make one call at a time, \
             or register the server as stateful and use sessions"
        );
        Some(authored::error(Some(id), code::METHOD_NOT_FOUND, &text, None))
    }

    /// Notes whether the upstream waits for the caller of a call.
    pub fn set_parked(&self, id: u64, is_parked: bool) {
        if let Some(waiting) = self.lock().calls.get_mut(&id) {
            waiting.is_parked = is_parked;
        }
    }

    /// Hands an answer over. The call is over with it, even if its caller has not noticed yet: what comes next belongs to
    /// others.
    fn answer(&self, id: u64, message: Bytes) {
        let waiting = self.lock().calls.remove(&id);
        match waiting {
            Some(waiting) => waiting.slot.settle(Ok(message)),
            // Its caller gave up in the meantime.
            None => tracing::debug!(id, "dropped a response that no call waits for"),
        }
    }

    fn notice(&self, id: Option<u64>, message: Inbound) -> bool {
        id.and_then(|id| self.slot(id)).is_some_and(|slot| slot.add(message))
    }

    fn slot(&self, id: u64) -> Option<Ticket> {
        self.lock().calls.get(&id).map(|waiting| waiting.slot.clone())
    }

    fn is_for_caller(&self, id: u64) -> bool {
        self.lock().calls.get(&id).is_some_and(|waiting| waiting.purpose.is_for_caller())
    }

    /// Whether a caller waits for an answer on this link.
    pub fn has_callers(&self) -> bool {
        self.lock().calls.values().any(|waiting| waiting.purpose.is_for_caller())
    }

    /// The calls of callers that are in flight.
    pub fn of_callers(&self) -> Vec<u64> {
        let pending = self.lock();
        let for_callers = pending.calls.iter().filter(|(_, waiting)| waiting.purpose.is_for_caller());
        for_callers.map(|(id, _)| *id).collect()
    }

    /// The call that a message of the upstream without a stream of its own belongs to. For a parked call the server waits
    /// already, so the message is rather that of another call, but only of the same principal: it might still be about the
    /// parked one.
    fn active_call(&self) -> Option<u64> {
        let pending = self.lock();
        let for_callers = || pending.calls.iter().filter(|(_, waiting)| waiting.purpose.is_for_caller());
        let mut running = for_callers().filter(|(_, waiting)| !waiting.is_parked);
        match (running.next(), running.next()) {
            (None, _) => only(for_callers().map(|(id, _)| *id)),
            (Some((id, active)), None) => {
                let is_alone = for_callers().all(|(_, waiting)| waiting.purpose == active.purpose);
                is_alone.then_some(*id)
            }
            (Some(_), Some(_)) => None,
        }
    }

    /// The call that waits for the result of the task that a message is related to.
    fn waiter(&self, message: &Head<'_>) -> Option<u64> {
        let task = message.related_task()?;
        let pending = self.lock();
        let mut waiting = pending.awaited_tasks.iter().filter(|(_, awaited)| *awaited == task.value);
        waiting.next().map(|(id, _)| *id)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, PendingCalls> {
        self.pending.lock().expect("no code panics while it holds the calls")
    }
}

/// The only item, if there is just one.
fn only(mut ids: impl Iterator<Item = u64>) -> Option<u64> {
    ids.next().filter(|_| ids.next().is_none())
}

/// The request for a subscription that a notice belongs to.
fn subscription_of(notice: &Head<'_>) -> Option<u64> {
    let meta = walk::member(notice.body, &notice.params.as_ref()?.span, "_meta")?;
    let id = walk::member(notice.body, &meta, meta::SUBSCRIPTION_ID)?;
    number(&Id::at(notice.body, id)?)
}

fn is_request(message: &[u8]) -> bool {
    walk::member(message, &(0..message.len()), "method").is_some()
}

/// The call that an answer with this id belongs to. On a call's own stream only answers to that call are accepted: one
/// with another id would reach another caller.
fn answered_call(id: Option<&Id<'_>>, own: Option<u64>) -> Option<u64> {
    // An error without an id.
    let Some(id) = id else { return own };
    number(id).filter(|number| own.is_none_or(|own| own == *number))
}

fn number(id: &Id<'_>) -> Option<u64> {
    id.as_u64().or_else(|| quoted_number(id.raw()))
}

/// The number in an id like `"7"`: some servers write every id as a string.
fn quoted_number(id: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(id.strip_prefix(b"\"")?.strip_suffix(b"\"")?).ok()?;
    digits.parse().ok().filter(|number: &u64| number.to_string() == digits)
}

/// Events of a link that concern the whole server; the supervisor handles them.
#[derive(Default)]
pub struct Signals {
    lists_changed: AtomicBool,
    doubted: AtomicBool,
    suspect: Mutex<Option<String>>,
    /// URIs of changed resources, each once, however often it changed since they were last taken.
    updated: Mutex<BTreeSet<String>>,
    pub task_notices: TaskNotices,
    notify: Notify,
}

impl Signals {
    /// Reports a failed call that shows the link to be unusable, though calls in flight may still succeed.
    pub fn suspect(&self, reason: &str) {
        *self.suspect.lock().expect("no code panics while it holds the reason") = Some(reason.to_owned());
        self.notify.notify_one();
    }

    pub fn take_suspect(&self) -> Option<String> {
        self.suspect.lock().expect("no code panics while it holds the reason").take()
    }

    /// Reports a failed call that may mean a broken link, or concern only the call.
    pub fn doubt(&self) {
        self.doubted.store(true, Ordering::Release);
        self.notify.notify_one();
    }

    pub fn take_doubt(&self) -> bool {
        self.doubted.swap(false, Ordering::AcqRel)
    }

    pub fn lists_changed(&self) {
        self.lists_changed.store(true, Ordering::Release);
        self.notify.notify_one();
    }

    pub fn take_lists_changed(&self) -> bool {
        self.lists_changed.swap(false, Ordering::AcqRel)
    }

    fn updated(&self, uri: &str) {
        self.updated.lock().expect("no code panics while it holds the URIs").insert(uri.to_owned());
        self.notify.notify_one();
    }

    pub fn take_updated(&self) -> BTreeSet<String> {
        std::mem::take(&mut *self.updated.lock().expect("no code panics while it holds the URIs"))
    }

    /// Waits for the next signal; returns at once if there was one since the last wait.
    pub async fn wait(&self) {
        self.notify.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALLER: Purpose = Purpose::Caller(None);

    fn notice(method: &str) -> Bytes {
        authored::notice(method, Some(br#"{"elicitationId":"e"}"#))
    }

    #[tokio::test]
    async fn an_answer_on_a_calls_own_stream_is_only_for_that_call() {
        let calls = Calls::new(Capabilities::NONE);
        let (first, second) = (calls.begin(1, CALLER).unwrap(), calls.begin(2, CALLER).unwrap());
        for stray in [&b"2"[..], b"\"2\"", b"\"x\""] {
            calls.sort(authored::result(stray, br#"{"stray":1}"#), Some(1));
        }
        calls.sort(authored::result(b"\"1\"", b"{}"), Some(1));
        calls.sort(authored::result(b"2", b"{}"), None);
        for ticket in [first, second] {
            let Ok(Inbound::Answer(answer)) = ticket.next().await else { panic!("no answer") };
            assert!(!answer.message().windows(5).any(|window| window == b"stray"));
        }
    }

    #[tokio::test]
    async fn a_question_belongs_to_the_only_call_that_is_not_parked() {
        let calls = Calls::new(Capabilities::NONE);
        let question = || Bytes::from_static(br#"{"jsonrpc":"2.0","id":"q","method":"elicitation/create"}"#);
        let [first, second] = [1, 2].map(|id| calls.begin(id, CALLER).unwrap());
        assert!(calls.sort(question(), None).is_some(), "it may be that of either");
        calls.set_parked(1, true);
        for _ in 0..2 {
            assert!(calls.sort(question(), None).is_none());
            assert!(matches!(second.next().await, Ok(Inbound::Request(_))));
        }
        let other = calls.begin(3, Purpose::Caller(Some(PrincipalId(3)))).unwrap();
        calls.set_parked(2, true);
        assert!(calls.sort(question(), None).is_some(), "it may be that of another principal");
        calls.end(3);
        drop(other);
        assert!(calls.sort(question(), None).is_some(), "both are parked");
        calls.end(2);
        assert!(calls.sort(question(), None).is_none());
        assert!(matches!(first.next().await, Ok(Inbound::Request(_))));
    }

    #[tokio::test]
    async fn an_answered_call_gets_nothing_more() {
        let calls = Calls::new(Capabilities::NONE);
        let answered = calls.begin(1, CALLER).unwrap();
        calls.sort(authored::result(b"1", b"{}"), None);
        let next = calls.begin(2, CALLER).unwrap();
        calls.sort(notice("notifications/message"), None);
        assert!(matches!(next.next().await, Ok(Inbound::Notice(_))));
        assert!(matches!(answered.next().await, Ok(Inbound::Answer(_))));
        calls.end(1);
        assert!(calls.has_callers());
    }

    #[tokio::test]
    async fn a_server_learns_that_its_request_is_invalid() {
        let calls = Calls::new(Capabilities::NONE);
        let deep = format!("{}{}", "[".repeat(1000), "]".repeat(1000));
        let message = |start: &str| Bytes::from(format!(r#"{{"jsonrpc":"2.0",{start},"id":"q"}}"#));
        let request = format!(r#""method":"elicitation/create","params":{{"x":{deep}}}"#);
        let answer = calls.sort(message(&request), None).unwrap();
        let head = Head::parse(&answer).unwrap();
        assert_eq!((head.kind, head.id.unwrap().raw()), (MessageKind::Error, &b"\"q\""[..]));
        assert!(calls.sort(message(&format!(r#""result":{deep}"#)), None).is_none());
    }

    #[tokio::test]
    async fn a_question_about_a_task_reaches_the_call_that_waits_for_it() {
        let calls = Calls::new(Capabilities::NONE);
        let (waiting, other) = (calls.begin(1, CALLER).unwrap(), calls.begin(2, CALLER).unwrap());
        calls.awaits_task(1, "t");
        let question = |task: &str| {
            let meta = format!(r#"{{"_meta":{{"{}":{{"taskId":"{task}"}}}}}}"#, meta::RELATED_TASK);
            authored::request(7, "elicitation/create", Some(meta.as_bytes()))
        };
        assert!(calls.sort(question("t"), None).is_none());
        assert!(matches!(waiting.next().await, Ok(Inbound::Request(_))));
        calls.end(1);
        // The only call that is left is not about this task.
        assert!(calls.sort(question("t"), None).is_some_and(|answer| answer.starts_with(b"{")));
        calls.sort(authored::result(b"2", b"{}"), None);
        assert!(matches!(other.next().await, Ok(Inbound::Answer(_))));
    }

    #[tokio::test]
    async fn a_notice_of_any_kind_reaches_the_call_it_came_with() {
        let calls = Calls::new(Capabilities::NONE);
        let (first, second) = (calls.begin(1, CALLER).unwrap(), calls.begin(2, CALLER).unwrap());
        assert!(calls.sort(notice("notifications/elicitation/complete"), Some(2)).is_none());
        assert!(matches!(second.next().await, Ok(Inbound::Notice(_))));
        // Without a stream of its own it belongs to no call while two are in flight.
        calls.sort(notice("notifications/elicitation/complete"), None);
        calls.sort(notice("notifications/cancelled"), Some(1));
        calls.sort(authored::result(b"1", b"{}"), None);
        assert!(matches!(first.next().await, Ok(Inbound::Answer(_))));
    }
}
