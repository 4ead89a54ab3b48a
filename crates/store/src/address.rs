//! Where a database is: a SQLite file, or a Postgres server. The password of a server is never shown.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use sqlx::postgres::PgConnectOptions;

use model::Secret;

/// The name under which Postgres lists the connections of the gateway.
const APPLICATION: &str = "toolgate";
/// How long a start waits for a server that cannot be reached.
const REACHING: Duration = Duration::from_secs(30);

#[derive(Clone, Debug)]
pub enum DatabaseAddress {
    /// The file of a SQLite database.
    File(PathBuf),
    Postgres(Box<PostgresAddress>),
}

impl DatabaseAddress {
    /// Parses `sqlite:FILE` or `postgres://…`, the value of a variable or flag. The error names that, and shows nothing of the
    /// value.
    pub fn parse(
        variable: &'static str,
        url: &Secret,
        listen_url: Option<&Secret>,
        connections: u32,
    ) -> Result<Self, AddressError> {
        let wrong = |problem: &str| AddressError { variable, problem: problem.to_owned() };
        let (scheme, rest) = url.expose().split_once(':').unwrap_or_default();
        match scheme {
            "sqlite" => match rest.strip_prefix("//").unwrap_or(rest).split('?').next() {
                Some(path) if !path.is_empty() => Ok(DatabaseAddress::File(PathBuf::from(path))),
                Some(_) | None => Err(wrong("it names no file after sqlite:")),
            },
            "postgres" | "postgresql" => {
                let options = parse(variable, url)?;
                let address = PostgresAddress::of_options(options, listen_url, connections)?;
                Ok(DatabaseAddress::Postgres(Box::new(address)))
            }
            _ => Err(wrong("it must start with sqlite: or postgres:")),
        }
    }

    /// The file of the database, if it is one.
    pub fn file(&self) -> Option<&Path> {
        match self {
            DatabaseAddress::File(path) => Some(path),
            DatabaseAddress::Postgres(_) => None,
        }
    }
}

impl fmt::Display for DatabaseAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DatabaseAddress::File(path) => write!(f, "{}", path.display()),
            DatabaseAddress::Postgres(address) => write!(f, "{address}"),
        }
    }
}

/// A database on a Postgres server, and how many connections to it are kept.
#[derive(Clone)]
pub struct PostgresAddress {
    pub(super) options: PgConnectOptions,
    /// The connection that listens, if it needs another address: a pooler may share connections between transactions.
    pub(super) listening: PgConnectOptions,
    pub(super) connections: u32,
    pub(super) reaching: Duration,
}

impl PostgresAddress {
    /// Parses URLs such as `postgres://user:password@host/database`. The error does not show them.
    pub fn parse(url: &Secret, listen_url: Option<&Secret>, connections: u32) -> Result<Self, AddressError> {
        Self::of_options(parse("DATABASE_URL", url)?, listen_url, connections)
    }

    fn of_options(
        options: PgConnectOptions,
        listen_url: Option<&Secret>,
        connections: u32,
    ) -> Result<Self, AddressError> {
        let listening = match listen_url {
            Some(url) => parse("DATABASE_LISTEN_URL", url)?,
            None => options.clone(),
        };
        Ok(Self { options, listening, connections, reaching: REACHING })
    }

    /// Puts an address together from its parts.
    pub fn of_parts(parts: PostgresParts<'_>, listen_url: Option<&Secret>) -> Result<Self, AddressError> {
        let mut options = PgConnectOptions::new_without_pgpass().host(parts.host).port(parts.port);
        options = options.username(parts.user).database(parts.database);
        if let Some(password) = parts.password {
            options = options.password(password.expose());
        }
        Self::of_options(prepared(options), listen_url, parts.connections)
    }

    /// Sets how long a start waits for a server that cannot be reached.
    pub fn reached_within(self, reaching: Duration) -> Self {
        Self { reaching, ..self }
    }
}

impl PostgresAddress {
    /// The host and port of the server; `None` if it is reached over a socket of this machine.
    pub fn host_and_port(&self) -> Option<(String, u16)> {
        let is_local = self.options.get_socket().is_some() || self.options.get_host().starts_with('/');
        (!is_local).then(|| (self.options.get_host().to_owned(), self.options.get_port()))
    }
}

/// The parts of an address, as the variables `POSTGRES_*` give them.
#[derive(Clone, Copy, Debug)]
pub struct PostgresParts<'a> {
    pub host: &'a str,
    pub port: u16,
    pub user: &'a str,
    pub password: Option<&'a Secret>,
    pub database: &'a str,
    pub connections: u32,
}

/// What is wrong with an address.
#[derive(Debug, thiserror::Error)]
#[error("{variable} is wrong: {problem}")]
pub struct AddressError {
    variable: &'static str,
    problem: String,
}

fn parse(variable: &'static str, url: &Secret) -> Result<PgConnectOptions, AddressError> {
    let wrong = |problem: &str| AddressError { variable, problem: problem.to_owned() };
    let form = "it must be postgres://user:password@host:port/database";
    let has_scheme = ["postgres://", "postgresql://"].iter().any(|scheme| url.expose().starts_with(scheme));
    if !has_scheme {
        return Err(wrong(form));
    }
    // Its error may quote the URL.
    let options = PgConnectOptions::from_str(url.expose()).map_err(|_| wrong(form))?;
    if options.get_database().is_none_or(str::is_empty) {
        return Err(wrong("it names no database; add its name: postgres://user:password@host:port/database"));
    }
    Ok(prepared(options))
}

fn prepared(options: PgConnectOptions) -> PgConnectOptions {
    // A pooler such as PgBouncer may give each transaction another connection, where no statement is prepared.
    options.application_name(APPLICATION).statement_cache_capacity(0)
}

impl fmt::Debug for PostgresAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for PostgresAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let options = &self.options;
        let place = options.get_socket().map(|path| path.display().to_string());
        let place = place.unwrap_or_else(|| format!("{}:{}", options.get_host(), options.get_port()));
        let database = options.get_database().unwrap_or_default();
        write!(f, "postgres://{}@{place}/{database}", options.get_username())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(url: &str) -> Result<String, String> {
        let address = PostgresAddress::parse(&Secret::new(url), None, 8);
        address.map(|address| address.to_string()).map_err(|error| error.to_string())
    }

    #[test]
    fn an_address_is_shown_without_its_password() {
        let shown = parsed("postgres://anna:geheim@db.example:5433/tools?sslmode=require").unwrap();
        assert_eq!(shown, "postgres://anna@db.example:5433/tools");
        let address = PostgresAddress::parse(&Secret::new("postgresql://u:geheim@h/d"), None, 8).unwrap();
        assert!(!format!("{address:?}").contains("geheim"), "{address:?}");
    }

    #[test]
    fn a_wrong_address_is_not_quoted() {
        for url in [
            "postgres:geheim",
            "postgres://u:geheim@h:port/d",
            "postgres://u:geheim@h",
            "postgres://u:geheim@h/d?sslmode=x",
        ] {
            let error = parsed(url).unwrap_err();
            assert!(error.starts_with("DATABASE_URL is wrong: ") && !error.contains("geheim"), "{error}");
        }
    }
}
