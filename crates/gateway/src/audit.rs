//! The audit of changes: what is noted of each, and what is summed instead. A change is noted by `store`, in its own
//! transaction. What strangers can cause is counted here, and written once a minute, so that a flood costs no writes.

use std::collections::HashMap;
use std::mem;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::{Error, Gateway, now_ms};
use model::audit::{Actor, ActorKind};
use model::redact::MASK;
use model::{
    AuditEntry, AuditHead, AuditNote, AuditOutcome, By, Client, Group, IdpGroup, Registration, Token, User,
};

pub use store::{AuditFilter, AuditReport};

/// How many sums there are at most; the rest is counted together.
const MOST_SUMS: usize = 4096;
/// How many entries are written in one transaction.
const PORTION: usize = 100;
/// How often the head is logged. A cut-off end of the audit shows only against a head that is kept elsewhere.
const LOGGING: Duration = Duration::from_secs(3600);
/// The pause between two steps of deleting old entries.
const TRIMMING_PAUSE: Duration = Duration::from_millis(50);
/// How long the last sums may take to be written.
const LAST_SUMS: Duration = Duration::from_secs(2);
const DAY_MS: i64 = 24 * 60 * 60 * 1000;

/// Settings of the audit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Auditing {
    /// How long entries are kept; 0 for ever.
    pub days: u32,
    /// How often sums are written. There is no variable for it.
    pub summing: Duration,
}

impl Default for Auditing {
    fn default() -> Self {
        Self { days: 0, summing: Duration::from_secs(60) }
    }
}

/// What happened too often to have entries of its own, since the last time that it was written.
#[derive(Default)]
pub(super) struct AuditSums(Mutex<HashMap<SumKey, Sum>>);

#[derive(Clone, PartialEq, Eq, Hash)]
struct SumKey {
    by: By,
    action: &'static str,
    target: String,
    outcome: AuditOutcome,
}

#[derive(Clone, Copy)]
struct Sum {
    first_ms: i64,
    count: u64,
}

impl SumKey {
    /// The key of everything that does not fit any more.
    fn other(&self) -> Self {
        let actor = Actor { kind: ActorKind::Anonymous, name: "other".to_owned() };
        Self { by: By { actor, address: None }, target: String::new(), ..self.clone() }
    }

    fn note(&self, sum: Sum) -> AuditNote {
        let note = AuditNote::new(&self.by, self.action, self.target.as_str(), sum.first_ms);
        AuditNote { count: sum.count, ..note.outcome(self.outcome) }
    }
}

impl AuditSums {
    fn add(&self, key: SumKey, sum: Sum) {
        let mut sums = self.0.lock().expect("no code panics while it holds the sums");
        let key = if sums.len() < MOST_SUMS || sums.contains_key(&key) { key } else { key.other() };
        let known = sums.entry(key).or_insert(Sum { first_ms: sum.first_ms, count: 0 });
        known.first_ms = known.first_ms.min(sum.first_ms);
        known.count = known.count.saturating_add(sum.count);
    }

    fn take(&self) -> Vec<(SumKey, Sum)> {
        let taken = mem::take(&mut *self.0.lock().expect("no code panics while it holds the sums"));
        let mut taken: Vec<_> = taken.into_iter().collect();
        taken.sort_by_key(|(_, sum)| sum.first_ms);
        taken
    }
}

impl Gateway {
    /// Counts what somebody did that changes nothing here, such as a refused request. It is noted with others of the same
    /// kind within a minute.
    pub fn sum_up(&self, by: By, action: &'static str, target: &str, outcome: AuditOutcome) {
        let key = SumKey { by, action, target: target.to_owned(), outcome };
        self.audit_sums.add(key, Sum { first_ms: now_ms(), count: 1 });
    }

    /// The entries that fit, newest first.
    pub async fn audit(&self, filter: &AuditFilter) -> Result<Vec<AuditEntry>, Error> {
        Ok(self.store.audit(filter).await?)
    }

    /// Checks that no entry was removed or altered, and that a noted head is among them.
    pub async fn verify_audit(&self, noted: Option<AuditHead>) -> Result<AuditReport, Error> {
        Ok(self.store.verify_audit(noted).await?)
    }

    /// Begins to write sums, to delete old entries and to log the head, for as long as the gateway runs.
    pub fn keep_audit(self: &Arc<Self>, auditing: Auditing) {
        let (gateway, stop) = (self.clone(), self.stop.clone());
        self.tasks.spawn(async move { stop.run_until_cancelled(gateway.follow_audit(auditing)).await });
    }

    async fn follow_audit(self: Arc<Self>, auditing: Auditing) {
        let mut logged: Option<Instant> = None;
        loop {
            if logged.is_none_or(|logged| logged.elapsed() >= LOGGING) {
                match self.store.audit_head().await {
                    Ok(head) => {
                        tracing::info!(%head, "the head of the audit");
                        logged = Some(Instant::now());
                    }
                    Err(error) => tracing::warn!(%error, "cannot read the head of the audit"),
                }
            }
            if let Err(error) = self.trim_audit(auditing.days).await {
                tracing::warn!(%error, "cannot delete old entries of the audit; trying again later");
            }
            tokio::time::sleep(until_next(now_ms(), auditing.summing)).await;
            self.write_sums().await;
        }
    }

    /// Writes the sums so far. What cannot be written waits for the next time.
    async fn write_sums(&self) {
        let sums = self.audit_sums.take();
        let mut portions = sums.chunks(PORTION);
        while let Some(portion) = portions.next() {
            let notes: Vec<_> = portion.iter().map(|(key, sum)| key.note(*sum)).collect();
            if let Err(error) = self.store.note(&notes).await {
                tracing::warn!(%error, "cannot write sums of the audit; trying again later");
                for (key, sum) in portion.iter().chain(portions.by_ref().flatten()) {
                    self.audit_sums.add(key.clone(), *sum);
                }
                return;
            }
        }
    }

    /// Writes the last sums, when the gateway stops.
    pub(super) async fn write_last_sums(&self) {
        if tokio::time::timeout(LAST_SUMS, self.write_sums()).await.is_err() {
            tracing::warn!("stopped waiting for the last sums of the audit");
        }
    }

    async fn trim_audit(&self, days: u32) -> Result<(), Error> {
        if days == 0 {
            return Ok(());
        }
        let before_ms = now_ms().saturating_sub(i64::from(days).saturating_mul(DAY_MS));
        while self.store.trim_audit(before_ms).await? > 0 {
            tokio::time::sleep(TRIMMING_PAUSE).await;
        }
        Ok(())
    }
}

/// The time until the next full minute, or whatever the interval is.
fn until_next(now_ms: i64, interval: Duration) -> Duration {
    let interval = i64::try_from(interval.as_millis()).unwrap_or(i64::MAX).max(1);
    Duration::from_millis((interval - now_ms.rem_euclid(interval)).unsigned_abs())
}

/// A change of a server. Secrets are masked; those that changed are named.
pub(super) fn server_note(
    by: &By,
    action: &str,
    before: Option<&Registration>,
    after: Option<&Registration>,
    at_ms: i64,
) -> AuditNote {
    let name = after.or(before).map(|registration| registration.config.name.to_string());
    let mut note = AuditNote::new(by, action, name.unwrap_or_default(), at_ms);
    note.before = before.map(|before| before.masked_json().into());
    note.after = after.map(|after| {
        let mut shown = after.masked_json();
        if let Some(before) = before {
            let secrets = changed_secrets(before, after);
            if !secrets.is_empty() {
                shown.insert("changed_secrets".to_owned(), json!(secrets));
            }
        }
        shown.into()
    });
    note
}

/// The fields that differ, but look the same once they are masked.
fn changed_secrets(before: &Registration, after: &Registration) -> Vec<String> {
    fn flat(object: Map<String, Value>) -> Vec<(String, Value)> {
        let fields = object.into_iter().flat_map(|(key, value)| match value {
            Value::Object(inner) => {
                inner.into_iter().map(|(name, value)| (format!("{key}.{name}"), value)).collect()
            }
            value => vec![(key, value)],
        });
        fields.collect()
    }
    let old: HashMap<_, _> = flat(before.to_json()).into_iter().collect();
    let old_shown: HashMap<_, _> = flat(before.masked_json()).into_iter().collect();
    let new_shown: HashMap<_, _> = flat(after.masked_json()).into_iter().collect();
    let is_hidden = |(key, value): &(String, Value)| {
        old.get(key).is_some_and(|old| old != value) && old_shown.get(key) == new_shown.get(key)
    };
    flat(after.to_json()).into_iter().filter(is_hidden).map(|(key, _)| key).collect()
}

pub(super) fn user_note(by: &By, action: &str, before: Option<&User>, after: Option<&User>) -> AuditNote {
    let name = before.or(after).map(|user| user.username.to_string()).unwrap_or_default();
    let shown = |user: &User| {
        json!({
            "username": user.username,
            "role": user.role,
            "rate_limit": user.rate_limit,
            "allow_list": user.allow_list.entries(),
            "disabled": user.is_disabled,
            "source": user.source(),
            "groups": user.idp.as_ref().map(|idp| &idp.groups),
            "access_token": user.token.as_ref().map(|_| MASK),
        })
    };
    let mut note = AuditNote::new(by, action, name, now_ms());
    (note.before, note.after) = (before.map(shown), after.map(shown));
    let id = |user: &User| user.token.as_ref().map(Token::id);
    let replaced = before.zip(after).is_some_and(|(before, after)| id(before) != id(after));
    with_replaced_token(note, replaced)
}

pub(super) fn idp_group_note(
    by: &By,
    action: &str,
    before: Option<&IdpGroup>,
    after: Option<&IdpGroup>,
) -> AuditNote {
    let name = after.or(before).map(|group| group.name.clone()).unwrap_or_default();
    let shown = |group: &IdpGroup| {
        json!({
            "name": group.name,
            "role": group.role,
            "allow_list": group.allow_list.entries(),
            "rate_limit": group.rate_limit,
        })
    };
    let mut note = AuditNote::new(by, action, name, now_ms());
    (note.before, note.after) = (before.map(shown), after.map(shown));
    note
}

pub(super) fn client_note(
    by: &By,
    action: &str,
    before: Option<&Client>,
    after: Option<&Client>,
) -> AuditNote {
    let name = after.or(before).map(|client| client.name.to_string()).unwrap_or_default();
    let shown = |client: &Client| {
        json!({
            "name": client.name,
            "description": client.description,
            "allow_list": client.allow_list.entries(),
            "rate_limit": client.rate_limit,
            "access_token": MASK,
            "is_custom_access_token": client.is_custom_token,
            "jwt_subject": client.jwt_subject,
        })
    };
    let mut note = AuditNote::new(by, action, name, now_ms());
    (note.before, note.after) = (before.map(shown), after.map(shown));
    let replaced = before.zip(after).is_some_and(|(before, after)| before.token.id() != after.token.id());
    with_replaced_token(note, replaced)
}

/// Says that a token was replaced, which is masked before and after.
fn with_replaced_token(mut note: AuditNote, is_replaced: bool) -> AuditNote {
    if let Some(Value::Object(after)) = note.after.as_mut().filter(|_| is_replaced) {
        after.insert("changed_secrets".to_owned(), json!(["access_token"]));
    }
    note
}

pub(super) fn group_note(by: &By, action: &str, before: Option<&Group>, after: Option<&Group>) -> AuditNote {
    let name = after.or(before).map(|group| group.name.to_string()).unwrap_or_default();
    let mut note = AuditNote::new(by, action, name, now_ms());
    (note.before, note.after) = (before.map(|group| json!(group)), after.map(|group| json!(group)));
    note
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: usize) -> SumKey {
        let by = By::anonymous(Some(format!("192.0.2.{number}")));
        SumKey { by, action: "user.sign_in", target: String::new(), outcome: AuditOutcome::Refused }
    }

    #[test]
    fn sums_are_bounded_and_lose_no_count() {
        let sums = AuditSums::default();
        for number in 0..MOST_SUMS + 100 {
            sums.add(key(number), Sum { first_ms: 5, count: 1 });
            sums.add(key(0), Sum { first_ms: 3, count: 2 });
        }
        let taken = sums.take();
        assert_eq!(taken.len(), MOST_SUMS + 1);
        assert_eq!(taken.iter().map(|(_, sum)| sum.count).sum::<u64>(), 3 * (MOST_SUMS as u64 + 100));
        let other = taken.iter().find(|(key, _)| key.by.actor.name == "other").unwrap();
        assert_eq!((other.1.count, &other.0.by.address), (100, &None));
        assert_eq!((taken[0].0.by.address.as_deref(), taken[0].1.first_ms), (Some("192.0.2.0"), 3));
        assert!(sums.take().is_empty());
    }

    #[test]
    fn a_minute_ends_at_a_full_one() {
        let minute = Duration::from_secs(60);
        assert_eq!(until_next(0, minute), minute);
        assert_eq!(until_next(59_000, minute), Duration::from_secs(1));
    }

    #[test]
    fn changed_secrets_are_named_and_never_shown() {
        let registration = |value: Value| {
            let Value::Object(object) = value else { panic!("tests pass an object") };
            Registration::parse(object).unwrap()
        };
        let server = |key: &str, argument: &str, path: &str| {
            registration(json!({
                "name": "a", "transport": "stdio", "command": "npx", "cwd": path,
                "args": ["--token", argument], "env": {"KEY": key, "SAME": "planted-same"},
            }))
        };
        let (before, after) =
            (server("planted-1", "planted-2", "/a"), server("planted-3", "planted-4", "/b"));
        let note = server_note(&By::gateway(), "server.update", Some(&before), Some(&after), 1);
        let after = note.after.clone().unwrap();
        assert_eq!(after["changed_secrets"], json!(["args", "env.KEY"]));
        assert_eq!((&after["cwd"], &after["env"]["KEY"]), (&json!("/b"), &json!("***")));
        assert!(!format!("{note:?}").contains("planted"), "{note:?}");
        let http = registration(json!({
            "name": "b", "transport": "sse", "url": "https://planted:planted@h/mcp?key=planted",
            "bearer_token": "planted", "headers": {"X-Key": "planted"}, "oauth_client_secret": "planted",
        }));
        let note = server_note(&By::gateway(), "server.register", None, Some(&http), 1);
        assert!(!format!("{note:?}").contains("planted"), "{note:?}");
    }
}
