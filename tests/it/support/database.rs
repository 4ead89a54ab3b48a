//! The database of a test: a file of its own, or a database of its own on the Postgres server that
//! `TOOLGATE_TEST_POSTGRES` names.

use std::fmt::Write as _;
use std::sync::Mutex;

use model::Secret;
use sqlx::{Connection, PgConnection};
use store::{DatabaseAddress, PostgresAddress};

/// Few, since many tests run at the same time.
const CONNECTIONS: u32 = 3;

/// The address of the Postgres server for tests, without the name of a database; `None` if there is none.
pub fn server() -> Option<String> {
    std::env::var("TOOLGATE_TEST_POSTGRES").ok().filter(|url| !url.is_empty())
}

/// A database on the server, which is deleted some time after its last user is gone.
pub struct Database {
    pub url: String,
    name: String,
}

/// The names of databases that nobody uses any more. They are deleted by the next one that is created: a test has no time
/// for that when it ends.
static UNUSED: Mutex<Vec<String>> = Mutex::new(Vec::new());

impl Database {
    pub async fn create(server: &str) -> Self {
        let mut connection =
            PgConnection::connect(&format!("{server}/postgres")).await.expect("the server accepts");
        let unused = std::mem::take(&mut *UNUSED.lock().unwrap());
        for name in unused {
            execute(&mut connection, format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")).await;
        }
        let name = format!("test_{}", random_hex(12));
        execute(&mut connection, format!("CREATE DATABASE {name} TEMPLATE template0")).await;
        connection.close().await.expect("the connection ends");
        Self { url: format!("{server}/{name}"), name }
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        UNUSED.lock().unwrap().push(std::mem::take(&mut self.name));
    }
}

async fn execute(connection: &mut PgConnection, sql: String) {
    let done = sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(connection).await;
    done.expect("the server does what it is told");
}

pub fn address(url: &str) -> DatabaseAddress {
    let address = PostgresAddress::parse(&Secret::new(url), None, CONNECTIONS).expect("the address is right");
    DatabaseAddress::Postgres(Box::new(address))
}

/// A key for a new database, as `TOOLGATE_SECRET_KEY` has it.
pub fn key() -> Secret {
    Secret::new(random_hex(32))
}

fn random_hex(length: usize) -> String {
    let mut bytes = vec![0; length];
    getrandom::fill(&mut bytes).unwrap();
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}
