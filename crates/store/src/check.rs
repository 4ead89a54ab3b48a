//! `toolgate check`: reads everything in a database and reports every problem. Nothing is changed, and a gateway may be
//! running on the database meanwhile.

use std::path::Path;

use super::address::{DatabaseAddress, PostgresAddress};
use super::db::Database;
use super::failure::describe;
use super::health::HealthSender;
use super::key;
use super::migrate::MIGRATIONS;
use super::open_error::KeyOrigin;
use super::postgres::Postgres;
use super::sqlite::Sqlite;
use super::{OpenOptions, OpenStoreError, Store, StoreError};
use model::Secret;

/// The number of problems of one kind that are listed; the rest is only counted.
const NAMED: usize = 100;

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What was checked, such as `servers`.
    pub subject: String,
    /// What is wrong with it; empty if nothing is.
    pub problems: Vec<String>,
}

impl Finding {
    fn new(subject: impl Into<String>, mut problems: Vec<String>) -> Self {
        if problems.len() > NAMED {
            let more = problems.len() - NAMED;
            problems.truncate(NAMED);
            problems.push(format!("and {more} more"));
        }
        Self { subject: subject.into(), problems }
    }
}

/// Checks the database of a gateway. Fails if the database cannot be opened.
pub async fn check(options: &OpenOptions) -> Result<Vec<Finding>, OpenStoreError> {
    let given = options.secret_key.as_ref().map(Secret::expose);
    match &options.database {
        DatabaseAddress::File(path) => check_file(path, given).await,
        DatabaseAddress::Postgres(address) => check_server(address, given).await,
    }
}

/// Opens a database only to read it. A gateway may be running on it.
pub(super) async fn open_to_read(options: &OpenOptions) -> Result<Store, OpenStoreError> {
    let given = options.secret_key.as_ref().map(Secret::expose);
    let database = options.database.to_string();
    let (store, origin) = match &options.database {
        DatabaseAddress::File(path) => {
            let (path, sqlite) = Sqlite::open_to_read(path).await?;
            let (key, origin) = key::find(given, &path)?;
            if pending_migrations(&sqlite).await > 0 {
                sqlite.close().await;
                return Err(OpenStoreError::Older { database });
            }
            (Store::to_read(Database::Sqlite(sqlite), &key), origin)
        }
        DatabaseAddress::Postgres(address) => {
            let required = || OpenStoreError::KeyRequired { database: database.clone() };
            let (key, origin) = key::given(given.ok_or_else(required)?, KeyOrigin::Environment)?;
            let postgres = Postgres::open(address, HealthSender::default()).await?;
            (Store::to_read(Database::Postgres(postgres), &key), origin)
        }
    };
    let error = match store.key_opens().await {
        Ok(Some(true)) => return Ok(store),
        Ok(Some(false) | None) => OpenStoreError::KeyMismatch { database, origin },
        Err(cause) => OpenStoreError::Content { database, cause },
    };
    store.close().await;
    Err(error)
}

/// Checks a database on a server. The server itself takes care of its files.
async fn check_server(
    address: &PostgresAddress,
    given: Option<&str>,
) -> Result<Vec<Finding>, OpenStoreError> {
    let required = || OpenStoreError::KeyRequired { database: address.to_string() };
    let (key, origin) = key::given(given.ok_or_else(required)?, KeyOrigin::Environment)?;
    let postgres = Postgres::open(address, HealthSender::default()).await?;
    let store = Store::to_read(Database::Postgres(postgres), &key);
    let mut findings = vec![fit(&store, &origin).await];
    findings.extend(contents(&store).await);
    store.close().await;
    Ok(findings)
}

async fn check_file(path: &Path, given: Option<&str>) -> Result<Vec<Finding>, OpenStoreError> {
    let (path, sqlite) = Sqlite::open_to_read(path).await?;
    let (key, key_finding) = match key::find(given, &path) {
        Ok((key, origin)) => (Some((key, origin)), None),
        Err(error) => (None, Some(Finding::new("key", vec![error.to_string()]))),
    };
    let mut findings = vec![integrity(&sqlite).await, references(&sqlite).await];
    match (key, key_finding) {
        (Some((key, origin)), _) => {
            let store = Store::to_read(Database::Sqlite(sqlite.clone()), &key);
            findings.push(fit(&store, &origin).await);
            match pending_migrations(&sqlite).await {
                0 => findings.extend(contents(&store).await),
                // This is not a problem, but this version cannot read all of the tables yet.
                count => findings.push(Finding::new(
                    format!("contents not read, migrations to run at the next start: {count}"),
                    vec![],
                )),
            }
        }
        (None, finding) => findings.extend(finding),
    }
    sqlite.close().await;
    Ok(findings)
}

/// The number of migrations of this version that the database has not run; 0 if that is unknown.
async fn pending_migrations(sqlite: &Sqlite) -> usize {
    let done = sqlite.rows("SELECT CAST(version AS TEXT) FROM _sqlx_migrations").await.unwrap_or_default();
    let is_pending = |version: i64| !done.contains(&version.to_string());
    match done.is_empty() {
        true => 0,
        false => MIGRATIONS.iter().filter(|(version, ..)| is_pending(*version)).count(),
    }
}

async fn integrity(sqlite: &Sqlite) -> Finding {
    let rows = sqlite.rows("PRAGMA integrity_check").await;
    let problems = match rows {
        Ok(rows) => rows.into_iter().filter(|row| row != "ok").collect(),
        Err(error) => vec![describe(&error)],
    };
    Finding::new("database file", problems)
}

async fn references(sqlite: &Sqlite) -> Finding {
    const SQL: &str = "SELECT 'a row of ' || \"table\" || ' refers to a missing row of ' || parent
        FROM pragma_foreign_key_check";
    let problems = sqlite.rows(SQL).await.unwrap_or_else(|error| vec![describe(&error)]);
    Finding::new("references", problems)
}

async fn fit(store: &Store, origin: &KeyOrigin) -> Finding {
    let problems = match store.key_opens().await {
        Ok(Some(true)) => vec![],
        Ok(Some(false)) => vec![format!("the key in {origin} is not the one that encrypted this database")],
        Ok(None) => {
            vec!["the database was never opened by a gateway: it has no check value for the key".into()]
        }
        Err(error) => vec![error.to_string()],
    };
    Finding::new(format!("key in {origin}"), problems)
}

async fn contents(store: &Store) -> Vec<Finding> {
    let grants = store.read_grants().await.map(|grants| {
        let opened = |(server, grant): (String, Option<_>)| {
            grant.ok_or_else(|| {
                StoreError::Corrupt(format!("the grant of server \"{server}\" cannot be opened"))
            })
        };
        grants.into_iter().map(opened).collect()
    });
    let authorizations = store.unreadable_authorizations().await.map(|ids| {
        let unreadable = |id| StoreError::Corrupt(format!("authorization session {id} cannot be opened"));
        ids.into_iter().map(|id| Err::<(), _>(unreadable(id))).collect()
    });
    vec![
        each("servers", store.read_servers().await),
        each("tool groups", store.read_groups().await),
        each("users", store.read_users().await),
        each("IdP groups", store.read_idp_groups().await),
        each("clients", store.read_clients().await),
        each("grants", grants),
        each("authorization sessions", authorizations),
        each("grants of users", store.read_user_grants().await),
        audit(store).await,
    ]
}

async fn audit(store: &Store) -> Finding {
    match store.verify_audit(None).await {
        Ok(report) => {
            let problem =
                report.problem.map(|problem| format!("entry {}: {}", problem.number, problem.reason));
            Finding::new(format!("audit: {}", report.entries), problem.into_iter().collect())
        }
        Err(error) => Finding::new("audit", vec![error.to_string()]),
    }
}

/// Counts the rows of a table and names those that cannot be read.
fn each<T>(subject: &str, rows: Result<Vec<Result<T, StoreError>>, StoreError>) -> Finding {
    let problem = |error: StoreError| match error {
        StoreError::Corrupt(what) => what,
        other => other.to_string(),
    };
    match rows {
        Ok(rows) => {
            let readable = rows.iter().filter(|row| row.is_ok()).count();
            let problems = rows.into_iter().filter_map(Result::err).map(problem).collect();
            Finding::new(format!("{subject}: {readable}"), problems)
        }
        Err(error) => Finding::new(subject, vec![problem(error)]),
    }
}
