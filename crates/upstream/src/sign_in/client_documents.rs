//! Documents that OAuth clients publish about themselves: metadata documents, whose URL is the client id, and key sets.
//! Anybody can make the gateway fetch them, so each fetch is bounded in size, time and number, and reaches public addresses
//! only. What is in them is up to the caller.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http::header::{ACCEPT, AGE, CACHE_CONTROL, DATE, EXPIRES};
use tokio::sync::Semaphore;
use url::Url;

use super::client_assertion::{AssertionProblem, ProvenClient, verify_client_assertion};
use super::idp_metadata::seconds;
use super::key_set::KeySet;
use super::web::receive;
use crate::Tls;
use crate::oauth::AddressPolicy;
use model::WallClock;
use model::oauth::{ClientHosts, ClientKeys};

const TIME_LIMIT: Duration = Duration::from_secs(5);
const LARGEST_DOCUMENT: usize = 64 * 1024;
/// How many fetches may run at once.
const FETCHES: usize = 16;
/// How often one source may cause a fetch, per minute.
const FETCHES_OF_SOURCE: usize = 30;
const MINUTE_MS: i64 = 60 * 1000;
/// The largest number of sources that are tracked.
const MOST_SOURCES: usize = 10_000;
/// How long a document is kept at least and at most, whatever its headers say.
const SHORTEST_LIFE: i64 = 5 * 60;
const LONGEST_LIFE: i64 = 24 * 60 * 60;
/// How many documents are kept, and how many bytes of them.
const MOST_DOCUMENTS: usize = 500;
const MOST_BYTES: usize = 8 * 1024 * 1024;
/// A key set of at least this age is fetched again for a key that it does not have.
const KEYS_PAUSE_MS: i64 = 10 * 1000;

pub struct ClientDocuments {
    tls: Tls,
    clock: WallClock,
    /// `OAUTH_CLIENT_HOSTS`: a host that it names, without a pattern, may have a private address.
    hosts: ClientHosts,
    /// For public addresses only, and for any.
    clients: [OnceLock<Result<reqwest::Client, String>>; 2],
    running: Semaphore,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    documents: HashMap<Url, KeptDocument>,
    bytes: usize,
    /// When each source caused fetches in the last minute.
    sources: HashMap<IpAddr, VecDeque<i64>>,
}

#[derive(Clone)]
struct KeptDocument {
    body: Bytes,
    fetched_at: i64,
    until: i64,
}

pub struct FetchedDocument {
    pub body: Bytes,
    pub fresh_for: Duration,
}

/// Why there is no document. Each is a sentence fragment about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DocumentProblem {
    #[error(
        "cannot be fetched now: at most {FETCHES_OF_SOURCE} documents a minute are fetched for one address"
    )]
    TooMany,
    #[error("cannot be fetched: {0}")]
    Unusable(String),
}

impl ClientDocuments {
    pub fn new(hosts: ClientHosts, tls: Tls, clock: WallClock) -> Self {
        Self {
            tls,
            clock,
            hosts,
            clients: [OnceLock::new(), OnceLock::new()],
            running: Semaphore::new(FETCHES),
            state: Mutex::default(),
        }
    }

    /// Returns the document at an https URL. `source` is the address for which it is fetched, as limits count it.
    pub async fn fetch(&self, url: &Url, source: IpAddr) -> Result<FetchedDocument, DocumentProblem> {
        let now = self.clock.now_ms();
        let kept = self.state().kept(url, now);
        match kept {
            Some(document) => Ok(document.at(now)),
            None => self.fetch_anew(url, source).await,
        }
    }

    /// Forgets a document that turned out to be invalid, so that a corrected one is found.
    pub fn forget(&self, url: &Url) {
        self.state().remove(url);
    }

    /// Verifies how a client proves who it is with a key (`private_key_jwt`). `source` is as for `fetch`.
    pub async fn verify_assertion(
        &self,
        assertion: &[u8],
        keys: &ClientKeys,
        client: &ProvenClient<'_>,
        source: IpAddr,
    ) -> Result<(), AssertionProblem> {
        let now = self.clock.now_seconds();
        let url = match keys {
            ClientKeys::Inline(keys) => {
                let keys = KeySet::of(keys).map_err(AssertionProblem::Wrong)?;
                return verify_client_assertion(assertion, &keys, client, now);
            }
            ClientKeys::At(url) => {
                let wrong =
                    |_| AssertionProblem::Unavailable("the jwks_uri of the client is not a URL".into());
                &Url::parse(url).map_err(wrong)?
            }
        };
        let unavailable = |problem: DocumentProblem| {
            AssertionProblem::Unavailable(format!("the key set of the client {problem}"))
        };
        let read = |document: &FetchedDocument| {
            let keys = KeySet::parse(&document.body);
            keys.map_err(|reason| {
                AssertionProblem::Unavailable(format!("the key set of the client cannot be used: {reason}"))
            })
        };
        let keys = read(&self.fetch(url, source).await.map_err(unavailable)?)?;
        let verified = verify_client_assertion(assertion, &keys, client, now);
        if !matches!(verified, Err(AssertionProblem::UnknownKey)) || self.is_recent(url) {
            return verified;
        }
        let keys = read(&self.fetch_anew(url, source).await.map_err(unavailable)?)?;
        verify_client_assertion(assertion, &keys, client, now)
    }

    async fn fetch_anew(&self, url: &Url, source: IpAddr) -> Result<FetchedDocument, DocumentProblem> {
        if !self.state().count(source, self.clock.now_ms()) {
            return Err(DocumentProblem::TooMany);
        }
        let fetched = tokio::time::timeout(TIME_LIMIT, self.receive(url)).await;
        let fetched = fetched.unwrap_or_else(|_| Err("its server does not answer in time".to_owned()));
        let document = fetched.map_err(DocumentProblem::Unusable)?;
        self.state().keep(url, document.clone());
        Ok(document.at(document.fetched_at))
    }

    async fn receive(&self, url: &Url) -> Result<KeptDocument, String> {
        if url.scheme() != "https" || !url.username().is_empty() || url.password().is_some() {
            return Err("it is not a plain https URL".to_owned());
        }
        let may_be_private = url.host_str().is_some_and(|host| self.hosts.names(host));
        let policy = AddressPolicy::of_documents(may_be_private);
        policy.check(url.as_str())?;
        let client =
            self.clients[usize::from(may_be_private)].get_or_init(|| policy.client(&self.tls, TIME_LIMIT));
        let client = client.as_ref().map_err(Clone::clone)?;
        let _running = self.running.acquire().await.map_err(|error| error.to_string())?;
        let request = client.get(url.clone()).header(ACCEPT, "application/json");
        let response = receive(request, LARGEST_DOCUMENT).await.map_err(|problem| {
            tracing::info!(%url, %problem, "a document of an OAuth client cannot be fetched");
            problem.for_anybody()
        })?;
        if response.status != 200 {
            return Err(format!("HTTP status {}", response.status));
        }
        let now = self.clock.now_ms();
        let until = now + lifetime(&response.headers) * 1000;
        Ok(KeptDocument { body: response.body, fetched_at: now, until })
    }

    fn is_recent(&self, url: &Url) -> bool {
        let now = self.clock.now_ms();
        let state = self.state();
        let document = state.documents.get(url);
        document.is_some_and(|document| now.saturating_sub(document.fetched_at) < KEYS_PAUSE_MS)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no code panics while it holds the state")
    }
}

impl KeptDocument {
    fn at(&self, now: i64) -> FetchedDocument {
        let fresh_for = Duration::from_millis(u64::try_from(self.until - now).unwrap_or(0));
        FetchedDocument { body: self.body.clone(), fresh_for }
    }
}

impl State {
    fn kept(&self, url: &Url, now: i64) -> Option<KeptDocument> {
        let document = self.documents.get(url);
        // One from the future was fetched before the clock was set back.
        document.filter(|document| (document.fetched_at..document.until).contains(&now)).cloned()
    }

    fn keep(&mut self, url: &Url, document: KeptDocument) {
        self.remove(url);
        self.bytes += document.body.len();
        self.documents.insert(url.clone(), document);
        while self.documents.len() > MOST_DOCUMENTS || self.bytes > MOST_BYTES {
            let first = self.documents.iter().min_by_key(|(_, document)| document.until);
            let Some(url) = first.map(|(url, _)| url.clone()) else { return };
            self.remove(&url);
        }
    }

    fn remove(&mut self, url: &Url) {
        if let Some(document) = self.documents.remove(url) {
            self.bytes -= document.body.len();
        }
    }

    /// Counts a fetch. Returns false if its source exceeds the limit.
    fn count(&mut self, source: IpAddr, now: i64) -> bool {
        let is_counted = |at: &i64| (*at..at.saturating_add(MINUTE_MS)).contains(&now);
        if self.sources.len() >= MOST_SOURCES && !self.sources.contains_key(&source) {
            self.sources.retain(|_, fetches| fetches.iter().any(is_counted));
            if self.sources.len() >= MOST_SOURCES {
                self.sources.clear();
            }
        }
        let fetches = self.sources.entry(source).or_default();
        fetches.retain(is_counted);
        let is_within = fetches.len() < FETCHES_OF_SOURCE;
        if is_within {
            fetches.push_back(now);
        }
        is_within
    }
}

/// How long a document with these headers is kept, in seconds.
fn lifetime(headers: &HeaderMap) -> i64 {
    let texts = |name| headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    let number = |text: &str| text.trim().trim_matches('"').parse::<u64>().ok();
    let directives = || texts(CACHE_CONTROL).flat_map(|text| text.split(',')).map(str::trim);
    let is_unkept = directives().any(|directive| {
        ["no-store", "no-cache"].iter().any(|name| {
            let named = directive.split('=').next().unwrap_or_default();
            named.eq_ignore_ascii_case(name)
        })
    });
    let max_age = directives().find_map(|directive| {
        let (name, value) = directive.split_once('=')?;
        name.trim().eq_ignore_ascii_case("max-age").then(|| number(value))?
    });
    let age = texts(AGE).next().and_then(number).unwrap_or_default();
    let date = |name| texts(name).next().and_then(seconds);
    let said = match max_age {
        _ if is_unkept => 0,
        Some(max_age) => max_age.saturating_sub(age),
        None => date(EXPIRES).zip(date(DATE)).map_or(0, |(end, now)| end.saturating_sub(now)),
    };
    i64::try_from(said).unwrap_or(i64::MAX).clamp(SHORTEST_LIFE, LONGEST_LIFE)
}

#[cfg(test)]
mod tests {
    use http::header::{HeaderName, HeaderValue};

    use super::*;

    #[test]
    fn documents_live_as_their_headers_say_within_bounds() {
        let life = |list: &[(&str, &str)]| {
            let pairs = list.iter().map(|(name, value)| {
                (HeaderName::try_from(*name).unwrap(), HeaderValue::try_from(*value).unwrap())
            });
            lifetime(&pairs.collect())
        };
        assert_eq!(life(&[]), SHORTEST_LIFE);
        assert_eq!(life(&[("cache-control", "public, max-age=3600")]), 3600);
        assert_eq!(life(&[("cache-control", "Max-Age=\"3600\""), ("age", "600")]), 3000);
        assert_eq!(life(&[("cache-control", "max-age=3600, no-store")]), SHORTEST_LIFE);
        assert_eq!(life(&[("cache-control", "max-age=1")]), SHORTEST_LIFE);
        assert_eq!(life(&[("cache-control", "max-age=99999999999")]), LONGEST_LIFE);
        assert_eq!(life(&[("cache-control", "max-age=many")]), SHORTEST_LIFE);
        let dates = [("date", "Tue, 17 Nov 2026 10:00:00 GMT"), ("expires", "Tue, 17 Nov 2026 12:00:00 GMT")];
        assert_eq!(life(&dates), 7200);
        assert_eq!(life(&[("expires", "0")]), SHORTEST_LIFE);
    }

    #[test]
    fn a_source_causes_thirty_fetches_in_any_minute() {
        let mut state = State::default();
        let [one, other]: [IpAddr; 2] = ["192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap()];
        assert!((0..30).all(|second| state.count(one, 1_000_000 + second * 1000)));
        assert!(!state.count(one, 1_030_000));
        assert!(state.count(other, 1_030_000));
        assert!(!state.count(one, 1_059_999));
        assert!(state.count(one, 1_060_000));
        assert!(!state.count(one, 1_060_001));
        // The clock was set back.
        assert!(state.count(one, 5));
        for number in 0..=u32::try_from(MOST_SOURCES).unwrap() {
            assert!(state.count(IpAddr::V4(number.into()), 7));
        }
        assert!(state.sources.len() <= MOST_SOURCES);
    }

    #[test]
    fn few_documents_are_kept() {
        let mut state = State::default();
        let url = |number: usize| Url::parse(&format!("https://a.example/{number}")).unwrap();
        for number in 0..MOST_DOCUMENTS + 10 {
            let until = 1000 + number as i64;
            state.keep(&url(number), KeptDocument { body: Bytes::from_static(b"{}"), fetched_at: 5, until });
        }
        assert_eq!((state.documents.len(), state.bytes), (MOST_DOCUMENTS, 2 * MOST_DOCUMENTS));
        assert!(state.kept(&url(9), 10).is_none() && state.kept(&url(10), 10).is_some());
        assert!(state.kept(&url(10), 1010).is_none() && state.kept(&url(10), 4).is_none());
        let large = KeptDocument { body: Bytes::from(vec![0; MOST_BYTES]), fetched_at: 5, until: 9000 };
        state.keep(&url(0), large);
        assert_eq!((state.documents.len(), state.bytes), (1, MOST_BYTES));
        state.remove(&url(0));
        assert_eq!(state.bytes, 0);
    }
}
