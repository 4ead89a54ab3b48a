//! Where the database is: a SQLite file by default, or a database on Postgres.

use std::path::PathBuf;

use super::variables::EnvVariables;
use super::{ConfigError, StartFlags};
use model::Secret;
use store::{DatabaseAddress, PostgresAddress, PostgresParts};

const DEFAULT_FILE: &str = "./toolgate.db";
const DEFAULT_CONNECTIONS: u32 = 8;

/// A flag wins over `DATABASE_URL`, and that over `POSTGRES_HOST` and `SQLITE_DB_PATH`.
pub fn address<E: Fn(&str) -> Option<String>>(
    flags: &StartFlags,
    variables: &EnvVariables<E>,
) -> Result<DatabaseAddress, ConfigError> {
    let connections = variables.parse("DATABASE_POOL", "a number from 2 to 1000", |text| {
        text.parse().ok().filter(|count| (2..=1000).contains(count))
    })?;
    let connections = connections.unwrap_or(DEFAULT_CONNECTIONS);
    if let Some(path) = &flags.sqlite_db_path {
        return Ok(DatabaseAddress::File(path.clone()));
    }
    let listen_url = variables.get("DATABASE_LISTEN_URL").map(Secret::new);
    let wrong = |error: store::AddressError| ConfigError(error.to_string());
    if let Some(url) = variables.get("DATABASE_URL") {
        let url = Secret::new(&url);
        return DatabaseAddress::parse("DATABASE_URL", &url, listen_url.as_ref(), connections).map_err(wrong);
    }
    let Some(host) = variables.get("POSTGRES_HOST") else {
        let path = variables.get("SQLITE_DB_PATH").unwrap_or_else(|| DEFAULT_FILE.to_owned());
        return Ok(DatabaseAddress::File(PathBuf::from(path)));
    };
    let port = variables.parse("POSTGRES_PORT", "a number from 1 to 65535", |text| {
        text.parse().ok().filter(|port| *port > 0)
    })?;
    let user = variables.value_or_file("POSTGRES_USER")?.unwrap_or_else(|| "postgres".to_owned());
    let password = variables.value_or_file("POSTGRES_PASSWORD")?.map(Secret::new);
    let database = variables.value_or_file("POSTGRES_DB")?.unwrap_or_else(|| user.clone());
    let parts = PostgresParts {
        host: &host,
        port: port.unwrap_or(5432),
        user: &user,
        password: password.as_ref(),
        database: &database,
        connections,
    };
    let address = PostgresAddress::of_parts(parts, listen_url.as_ref()).map_err(wrong)?;
    Ok(DatabaseAddress::Postgres(Box::new(address)))
}
