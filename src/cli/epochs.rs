//! The epoch of the last change that this user made at a gateway. Requests name it, so that they see that change whichever
//! gateway behind a load balancer receives them. A file beside the settings keeps it for the next commands.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use url::Url;

use super::settings;

const FILE: &str = ".toolgate.epochs";
const OWNER_ONLY: u32 = 0o600;
/// Every change counts at all gateways after 2 seconds. An older epoch need not be named, and may belong to a database that
/// was replaced since.
const LIFE: Duration = Duration::from_secs(10);
const MOST_ENTRIES: usize = 32;
const MOST_BYTES: u64 = 64 * 1024;

/// The last epoch of one gateway. A file that cannot be read or written is no error: the process still has its own epochs.
pub struct LastEpoch {
    registry: String,
    path: Option<PathBuf>,
    seen: Mutex<Option<Seen>>,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
struct Seen {
    epoch: u64,
    /// When the epoch was received, in milliseconds since 1970.
    time_ms: u64,
}

#[derive(Serialize, Deserialize)]
struct Entry {
    registry: String,
    #[serde(flatten)]
    seen: Seen,
}

impl LastEpoch {
    /// Reads the epoch that an earlier command received from this gateway.
    pub fn load(registry: &Url) -> Self {
        let path = settings::path().map(|settings| settings.with_file_name(FILE));
        Self::load_from(path, registry)
    }

    fn load_from(path: Option<PathBuf>, registry: &Url) -> Self {
        let registry = name_of(registry);
        let entries = path.as_ref().and_then(|path| {
            let mut file = File::open(path).ok()?;
            file.lock_shared().ok()?;
            Some(entries(&mut file))
        });
        let entry = entries.into_iter().flatten().find(|entry| entry.registry == registry);
        Self { registry, path, seen: Mutex::new(entry.map(|entry| entry.seen)) }
    }

    /// Returns the epoch that a request has to name, if any.
    pub fn get(&self) -> Option<u64> {
        let seen = *self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.filter(|seen| seen.is_recent(now_ms())).map(|seen| seen.epoch)
    }

    /// Remembers the epoch of a response.
    pub fn note(&self, epoch: u64) {
        if self.get().is_some_and(|last| last >= epoch) {
            return;
        }
        let seen = Seen { epoch, time_ms: now_ms() };
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(seen);
        let _ = self.edit(|entries| {
            let own = entries.iter().position(|entry| entry.registry == self.registry);
            let own = own.map(|own| entries.remove(own).seen);
            // Another command may have received a later one meanwhile.
            let latest = own.filter(|own| own.epoch > epoch).unwrap_or(seen);
            entries.insert(0, Entry { registry: self.registry.clone(), seen: latest });
        });
    }

    /// Forgets the epoch, which the gateway cannot reach.
    pub fn forget(&self) {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = None;
        let _ = self.edit(|entries| entries.retain(|entry| entry.registry != self.registry));
    }

    /// Changes the entries of the file, and removes those that are too old.
    fn edit(&self, change: impl FnOnce(&mut Vec<Entry>)) -> std::io::Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        let options = &mut OpenOptions::new();
        let mut file =
            options.read(true).write(true).create(true).truncate(false).mode(OWNER_ONLY).open(path)?;
        file.lock()?;
        let mut entries = entries(&mut file);
        let now = now_ms();
        entries.retain(|entry| entry.seen.is_recent(now));
        change(&mut entries);
        entries.truncate(MOST_ENTRIES);
        file.set_len(0)?;
        file.rewind()?;
        file.write_all(&serde_json::to_vec(&entries)?)
    }
}

impl Seen {
    /// A time in the future is that of a clock which was set since.
    fn is_recent(self, now: u64) -> bool {
        now.checked_sub(self.time_ms).is_some_and(|age| u128::from(age) < LIFE.as_millis())
    }
}

fn entries(file: &mut File) -> Vec<Entry> {
    let mut text = Vec::new();
    match file.take(MOST_BYTES).read_to_end(&mut text) {
        Ok(_) => serde_json::from_slice(&text).unwrap_or_default(),
        Err(_) => Vec::new(),
    }
}

/// The name of a gateway in the file: its URL without a password.
fn name_of(registry: &Url) -> String {
    let mut registry = registry.clone();
    let _ = registry.set_username("");
    let _ = registry.set_password(None);
    registry.into()
}

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    fn at(folder: &tempfile::TempDir, registry: &str) -> LastEpoch {
        LastEpoch::load_from(Some(folder.path().join(FILE)), &url(registry))
    }

    fn write(folder: &tempfile::TempDir, text: &str) {
        std::fs::write(folder.path().join(FILE), text).unwrap();
    }

    #[test]
    fn the_highest_epoch_is_kept_for_the_next_command() {
        let folder = tempfile::tempdir().unwrap();
        let first = at(&folder, "http://a.example");
        assert_eq!(first.get(), None);
        let second = at(&folder, "http://a.example");
        for epoch in [5, 7, 6] {
            first.note(epoch);
        }
        second.note(4);
        assert_eq!((first.get(), second.get()), (Some(7), Some(4)));
        assert_eq!(at(&folder, "http://a.example").get(), Some(7));
        assert_eq!(at(&folder, "http://b.example").get(), None);
        first.forget();
        assert_eq!((first.get(), at(&folder, "http://a.example").get()), (None, None));
    }

    #[test]
    fn an_old_epoch_is_ignored_and_replaced() {
        let folder = tempfile::tempdir().unwrap();
        for time_ms in [now_ms() - 10_000, now_ms() + 60_000, 0] {
            write(&folder, &format!(r#"[{{"registry":"http://a.example/","epoch":9,"time_ms":{time_ms}}}]"#));
            let last = at(&folder, "http://a.example");
            assert_eq!(last.get(), None);
            last.note(3);
            assert_eq!(at(&folder, "http://a.example").get(), Some(3));
        }
    }

    #[test]
    fn the_file_does_not_grow_and_has_no_passwords() {
        let folder = tempfile::tempdir().unwrap();
        for number in 0..100 {
            at(&folder, &format!("http://anna:hunter2@host{number}.example")).note(1);
        }
        let text = std::fs::read_to_string(folder.path().join(FILE)).unwrap();
        assert_eq!(text.matches("registry").count(), MOST_ENTRIES);
        assert!(text.contains("http://host99.example/") && !text.contains("hunter2"), "{text}");
        assert_eq!(at(&folder, "http://host99.example").get(), Some(1));
    }

    #[test]
    fn a_file_that_cannot_be_used_is_no_error() {
        let folder = tempfile::tempdir().unwrap();
        for text in ["", "[", "{}", "[1]", "\u{0}"] {
            write(&folder, text);
            let last = at(&folder, "http://a.example");
            assert_eq!(last.get(), None, "{text:?}");
            last.note(2);
            assert_eq!(at(&folder, "http://a.example").get(), Some(2), "{text:?}");
        }
        let nowhere = [None, Some(folder.path().join("missing").join(FILE)), Some(folder.path().to_owned())];
        for path in nowhere {
            let last = LastEpoch::load_from(path, &url("http://a.example"));
            last.note(2);
            assert_eq!(last.get(), Some(2));
        }
    }
}
