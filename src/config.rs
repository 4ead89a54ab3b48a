//! All settings of the gateway, with defaults and validation; the only place that reads the environment. Flags win over
//! environment variables, and those over `.env` in the working directory. An invalid value ends the start with an error
//! that names the variable.

#![allow(clippy::disallowed_methods)] // The environment is read here.

mod auditing;
mod children;
mod database;
mod limits;
mod recording;
mod sign_in;
mod traces;
mod variables;

use std::collections::HashMap;
use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use tracing_subscriber::filter::{LevelFilter, Targets};
use url::Url;

use budget::Limits;
use gateway::audit::Auditing;
use gateway::recorder::Recording;
use model::{Secret, WallClock};
use store::DatabaseAddress;
use telemetry::LogFormat;

pub use model::Mode;

pub use sign_in::{JwtSettings, OidcClient, SignInSettings};
pub use traces::TraceSettings;

use variables::{EnvVariables, variables};

/// An invalid setting, with the name of the flag or variable.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(String);

/// The flags of `toolgate start`.
#[derive(Clone, Debug, Default)]
pub struct StartFlags {
    pub port: Option<u16>,
    pub host: Option<String>,
    pub sqlite_db_path: Option<PathBuf>,
    pub enterprise: bool,
}

impl StartFlags {
    fn is_given(&self) -> bool {
        self.port.is_some() || self.host.is_some() || self.sqlite_db_path.is_some() || self.enterprise
    }
}

#[derive(Clone, Debug)]
pub struct Config {
    pub port: u16,
    pub bind: Bind,
    pub mode: Mode,
    pub database: DatabaseAddress,
    pub secret_key: Option<Secret>,
    pub init_timeout: Duration,
    /// Idle timeout of sessions that hold something; `None` for no timeout.
    pub session_idle_timeout: Option<Duration>,
    pub public_url: Option<Url>,
    pub trust_proxy: bool,
    pub allowed_origins: Vec<String>,
    /// Names, beside the usual ones, that requests may call the gateway by.
    pub allowed_hosts: Vec<String>,
    /// The bearer token that initialization requires.
    pub init_secret: Option<Secret>,
    pub tls: Option<TlsFiles>,
    /// Whether OAuth metadata of any server may name private addresses.
    pub oauth_allow_private: bool,
    /// How long a pending authorization is kept, and a finished one after that. There is no variable for it.
    pub oauth_session_life: Duration,
    /// By which credentials expire. There is no variable for it.
    pub clock: WallClock,
    /// Where other gateways on the same database reach this one, if that is not found out.
    pub internal_url: Option<Url>,
    /// How long the rights in memory count without a database that confirms them.
    pub stale_rights: Duration,
    pub telemetry: bool,
    pub limits: Limits,
    /// What is recorded of calls.
    pub recording: Recording,
    /// How people sign in, and which tokens of agents count.
    pub sign_in: SignInSettings,
    /// How calls are traced; `None` if they are not.
    pub traces: Option<TraceSettings>,
    /// How long the audit is kept.
    pub auditing: Auditing,
    /// Environment of child processes: a part of that of the gateway.
    pub child_env: Vec<(OsString, OsString)>,
    /// `STDIO_USER`: name or number of the user that runs child processes.
    pub stdio_user: Option<String>,
    /// The number of descriptors that a child process may have open, if it is not that of the gateway.
    pub child_descriptors: Option<u64>,
    /// Path of this program, which is also the guard of child processes.
    pub program: PathBuf,
    /// Where the settings came from, for the dashboard.
    pub source: String,
}

/// The PEM files of the certificate chain and of its private key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// Which addresses to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bind {
    /// Both loopback addresses; IPv6 only if the machine has it.
    Loopback,
    Address(IpAddr),
}

impl Bind {
    pub fn addresses(&self) -> Vec<IpAddr> {
        match self {
            Bind::Loopback => vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()],
            Bind::Address(address) => vec![*address],
        }
    }

    pub fn is_loopback(&self) -> bool {
        self.addresses().iter().all(IpAddr::is_loopback)
    }
}

impl Config {
    /// Loads the settings from flags, the environment and `.env`.
    pub fn load(flags: &StartFlags) -> Result<Self, ConfigError> {
        let program = std::env::current_exe()
            .map_err(|error| ConfigError(format!("the path of this program is unknown: {error}")))?;
        Self::from(flags, &variables()?, std::env::vars_os().collect(), program)
    }

    fn from<E: Fn(&str) -> Option<String>>(
        flags: &StartFlags,
        variables: &EnvVariables<E>,
        environment: Vec<(OsString, OsString)>,
        program: PathBuf,
    ) -> Result<Self, ConfigError> {
        let mode = match flags.enterprise {
            true => Mode::Enterprise,
            false => variables
                .parse("SERVER_MODE", "development or enterprise", Mode::parse)?
                .unwrap_or(Mode::Development),
        };
        variables
            .parse("SESSION_IDLE_TIMEOUT_SEC", "a number of seconds", |text| text.parse::<u64>().ok())?;
        let port = variables.parse("PORT", "a number from 0 to 65535", |text| text.parse().ok())?;
        let init_timeout = variables
            .parse("MCP_SERVER_INIT_REQ_TIMEOUT_SEC", "a number of seconds from 1", |text| {
                text.parse().ok().filter(|&seconds: &u64| seconds > 0)
            })?
            .unwrap_or(30);
        let idle_timeout = variables
            .parse("SESSION_IDLE_TIMEOUT_SEC", "a number of seconds", |text| text.parse::<u64>().ok())?
            .unwrap_or(3600);
        let internal_url = variables.parse("INTERNAL_URL", "an http or https URL", web_url)?;
        let stale_rights =
            variables.parse("STALE_RIGHTS_SEC", "a number of seconds", |text| text.parse::<u64>().ok())?;
        let sign_in = sign_in::read(variables, mode)?;
        let public_url = sign_in::public_url(variables, mode, &sign_in)?;
        Ok(Self {
            port: flags.port.or(port).unwrap_or(8080),
            bind: bind(flags, variables, mode)?,
            mode,
            database: database::address(flags, variables)?,
            secret_key: variables.value_or_file("TOOLGATE_SECRET_KEY")?.map(Secret::new),
            init_timeout: Duration::from_secs(init_timeout),
            session_idle_timeout: (idle_timeout > 0).then(|| Duration::from_secs(idle_timeout)),
            public_url,
            trust_proxy: variables.flag("TRUST_PROXY")?.unwrap_or(false),
            allowed_origins: variables.origins("ALLOWED_ORIGINS")?,
            allowed_hosts: variables.hosts("ALLOWED_HOSTS")?,
            init_secret: init_secret(variables.get("INIT_SECRET")),
            tls: tls_files(variables)?,
            oauth_allow_private: variables.flag("OAUTH_ALLOW_PRIVATE")?.unwrap_or(false),
            oauth_session_life: Duration::from_secs(600),
            clock: WallClock::default(),
            internal_url,
            stale_rights: Duration::from_secs(stale_rights.unwrap_or(300)),
            telemetry: variables.flag("OTEL_ENABLED")?.unwrap_or(mode == Mode::Enterprise),
            limits: limits::read(variables)?,
            recording: recording::read(variables)?,
            sign_in,
            traces: traces::read(variables)?,
            auditing: auditing::read(variables)?,
            child_env: children::environment(environment, variables.get("STDIO_ENV").as_deref()),
            stdio_user: variables.get("STDIO_USER"),
            child_descriptors: None,
            program,
            source: variables.source(flags),
        })
    }
}

/// The crates of the product beside this one.
const LAYERS: [&str; 8] = ["gateway", "mcp", "model", "seal", "store", "telemetry", "upstream", "wire"];

/// Returns the log filter: `RUST_LOG`, or `info`.
pub fn log_filter() -> Result<Targets, ConfigError> {
    let text = variables()?.get("RUST_LOG").unwrap_or_else(|| "info".to_owned());
    let filter =
        text.parse().map_err(|error| ConfigError(format!("RUST_LOG is not a log filter: {error}")))?;
    Ok(with_layers(filter))
}

/// Returns the format of the log: `LOG_FORMAT`, or the given one.
pub fn log_format(default: LogFormat) -> Result<LogFormat, ConfigError> {
    let format = variables()?.parse("LOG_FORMAT", "text or json", |text| match text {
        "text" => Some(LogFormat::Text),
        "json" => Some(LogFormat::Json),
        _ => None,
    })?;
    Ok(format.unwrap_or(default))
}

/// Extends a filter for `toolgate` to the layers, which log under the names of their crates.
fn with_layers(filter: Targets) -> Targets {
    let named: HashMap<String, LevelFilter> =
        filter.iter().map(|(target, level)| (target.to_owned(), level)).collect();
    LAYERS.iter().fold(filter, |filter, layer| {
        let level = named.get(&format!("toolgate::{layer}")).or_else(|| named.get("toolgate"));
        match level {
            Some(level) if !named.contains_key(*layer) => filter.with_target(*layer, *level),
            Some(_) | None => filter,
        }
    })
}

/// Reads an environment variable for the command line: a setting of its own, or `${NAME}` in a file.
pub fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn web_url(text: &str) -> Option<Url> {
    Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
}

fn bind<E: Fn(&str) -> Option<String>>(
    flags: &StartFlags,
    variables: &EnvVariables<E>,
    mode: Mode,
) -> Result<Bind, ConfigError> {
    let Some(host) = flags.host.clone().or_else(|| variables.get("HOST")) else {
        return Ok(match mode {
            Mode::Development => Bind::Loopback,
            Mode::Enterprise => Bind::Address(Ipv4Addr::UNSPECIFIED.into()),
        });
    };
    if host.eq_ignore_ascii_case("localhost") {
        return Ok(Bind::Loopback);
    }
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let resolved = (bare, 0).to_socket_addrs().ok().and_then(|mut addresses| addresses.next());
    match resolved {
        Some(address) => Ok(Bind::Address(address.ip())),
        None => {
            Err(ConfigError(format!("HOST={host} is wrong: it must be an address or name of this machine")))
        }
    }
}

/// Makes a secret of the value of `INIT_SECRET`. White space around it, such as the line end of a file, is not part of it,
/// since a header cannot carry it.
pub fn init_secret(value: Option<String>) -> Option<Secret> {
    value.map(|value| value.trim().to_owned()).filter(|value| !value.is_empty()).map(Secret::new)
}

fn tls_files<E: Fn(&str) -> Option<String>>(
    variables: &EnvVariables<E>,
) -> Result<Option<TlsFiles>, ConfigError> {
    let missing = |name: &str, other: &str| {
        Err(ConfigError(format!("{name} is missing: {other} is set, and TLS needs both")))
    };
    match (variables.get("TLS_CERT_FILE"), variables.get("TLS_KEY_FILE")) {
        (None, None) => Ok(None),
        (Some(certificate), Some(key)) => {
            Ok(Some(TlsFiles { certificate: certificate.into(), key: key.into() }))
        }
        (Some(_), None) => missing("TLS_KEY_FILE", "TLS_CERT_FILE"),
        (None, Some(_)) => missing("TLS_CERT_FILE", "TLS_KEY_FILE"),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::variables::parse_env_file;
    use super::*;

    fn load(flags: &StartFlags, env: &[(&str, &str)], file: &str) -> Result<Config, ConfigError> {
        let find =
            |name: &str| env.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        let variables = EnvVariables::new(parse_env_file(file)?, find);
        let environment =
            env.iter().map(|(key, value)| (OsString::from(key), OsString::from(value))).collect();
        Config::from(flags, &variables, environment, PathBuf::from("toolgate"))
    }

    #[test]
    fn a_log_filter_for_toolgate_is_one_for_its_layers() {
        let filter = with_layers("warn,toolgate=debug,store=error,toolgate::mcp=trace".parse().unwrap());
        let enabled = |target: &str, level| filter.would_enable(target, &level);
        assert!(enabled("toolgate::http", tracing::Level::DEBUG));
        assert!(enabled("upstream::link", tracing::Level::DEBUG));
        assert!(!enabled("upstream::link", tracing::Level::TRACE));
        assert!(enabled("mcp::live", tracing::Level::TRACE));
        assert!(!enabled("store", tracing::Level::WARN));
        assert!(!enabled("hyper", tracing::Level::INFO));
    }

    #[test]
    fn flags_win_over_the_environment_and_that_over_the_file() {
        let file = "# comment\nexport PORT=1\nSQLITE_DB_PATH=\"a b.db\" # why\nTRUST_PROXY=1 # yes\n";
        assert_eq!(load(&StartFlags::default(), &[], file).unwrap().port, 1);
        assert_eq!(load(&StartFlags::default(), &[("PORT", "2")], file).unwrap().port, 2);
        let flags = StartFlags { port: Some(3), ..StartFlags::default() };
        let config = load(&flags, &[("PORT", "2")], file).unwrap();
        assert_eq!((config.port, config.trust_proxy), (3, true));
        assert_eq!(config.database.file(), Some(Path::new("a b.db")));
    }

    #[test]
    fn a_wrong_value_names_its_variable() {
        for (name, value) in [
            ("PORT", "http"),
            ("PORT", "65536"),
            ("SERVER_MODE", "sandbox"),
            ("MCP_SERVER_INIT_REQ_TIMEOUT_SEC", "0"),
            ("SESSION_IDLE_TIMEOUT_SEC", "-1"),
            ("PUBLIC_URL", "gate.example.com"),
            ("TRUST_PROXY", "maybe"),
            ("OAUTH_ALLOW_PRIVATE", "2"),
            ("ALLOWED_ORIGINS", "https://a.example, b"),
            ("ALLOWED_HOSTS", "gate.example:80"),
            ("ALLOWED_HOSTS", "https://gate.example"),
            ("ALLOWED_HOSTS", "gate.example, *"),
            ("OTEL_ENABLED", "on"),
            ("DATABASE_URL", "mysql://x"),
            ("DATABASE_URL", "postgres://x"),
            ("DATABASE_URL", "postgres://u:p@h:port/d"),
            ("DATABASE_URL", "sqlite:"),
            ("DATABASE_POOL", "0"),
            ("MAX_CONNECTIONS", "0"),
            ("MAX_BUFFERED_MB", "lots"),
            ("MAX_STREAMS", "-1"),
            ("MAX_CALLS", "1.5"),
            ("MAX_PROCESSES", "18446744073709551616"),
            ("MAX_MESSAGE_MB", "5000"),
            ("AUDIT_DAYS", "-1"),
            ("PARK_TIMEOUT_SEC", "0"),
            ("PARK_TIMEOUT_SEC", "86401"),
        ] {
            let error = load(&StartFlags::default(), &[(name, value)], "").unwrap_err();
            assert!(error.to_string().starts_with(name), "{name}={value}: {error}");
        }
        assert!(load(&StartFlags::default(), &[], "PORT").unwrap_err().to_string().contains("line 1"));
    }

    #[test]
    fn a_database_is_a_file_or_on_a_server() {
        let shown =
            |env: &[(&str, &str)]| load(&StartFlags::default(), env, "").unwrap().database.to_string();
        let url = |url: &str| shown(&[("DATABASE_URL", url)]);
        assert_eq!(url("sqlite:x.db"), "x.db");
        assert_eq!(url("sqlite://x.db?mode=rwc"), "x.db");
        assert_eq!(url("sqlite:///var/x.db"), "/var/x.db");
        assert_eq!(url("postgres://u:geheim@db:5433/tools"), "postgres://u@db:5433/tools");
        assert_eq!(shown(&[("POSTGRES_HOST", "db")]), "postgres://postgres@db:5432/postgres");
        let parts =
            [("POSTGRES_HOST", "db"), ("POSTGRES_PORT", "1"), ("POSTGRES_USER", "u"), ("POSTGRES_DB", "d")];
        assert_eq!(shown(&parts), "postgres://u@db:1/d");
        assert_eq!(shown(&[]), "./toolgate.db");
    }

    #[test]
    fn parts_of_an_address_can_be_in_files() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "anna\n").unwrap();
        let path = file.path().to_str().unwrap();
        let load = |env: &[(&str, &str)]| load(&StartFlags::default(), env, "");
        let config = load(&[("POSTGRES_HOST", "db"), ("POSTGRES_USER_FILE", path)]).unwrap();
        assert_eq!(config.database.to_string(), "postgres://anna@db:5432/anna");
        let missing = load(&[("POSTGRES_HOST", "db"), ("POSTGRES_PASSWORD_FILE", "/nowhere")]).unwrap_err();
        assert!(
            missing.to_string().starts_with("POSTGRES_PASSWORD_FILE=/nowhere cannot be read"),
            "{missing}"
        );
    }

    #[test]
    fn allowed_hosts_are_names_without_ports() {
        let text = "gate.internal, Gate-2.example,10.0.0.5,[fd00::1], FD00::2,";
        let config = load(&StartFlags::default(), &[("ALLOWED_HOSTS", text)], "").unwrap();
        let expected = ["gate.internal", "gate-2.example", "10.0.0.5", "[fd00::1]", "[fd00::2]"];
        assert_eq!(config.allowed_hosts, expected);
    }

    #[test]
    fn white_space_around_the_init_secret_is_not_part_of_it() {
        let secret =
            |text: &str| load(&StartFlags::default(), &[("INIT_SECRET", text)], "").unwrap().init_secret;
        assert_eq!(secret(" open sesame\n"), Some(Secret::new("open sesame")));
        assert_eq!(secret(" \n"), None);
    }

    #[test]
    fn tls_needs_both_files() {
        let tls = |env: &[(&str, &str)]| load(&StartFlags::default(), env, "").map(|config| config.tls);
        let (certificate, key) = (("TLS_CERT_FILE", "c.pem"), ("TLS_KEY_FILE", "k.pem"));
        assert_eq!(tls(&[]).unwrap(), None);
        let files = TlsFiles { certificate: "c.pem".into(), key: "k.pem".into() };
        assert_eq!(tls(&[certificate, key]).unwrap(), Some(files));
        assert!(tls(&[certificate]).unwrap_err().to_string().starts_with("TLS_KEY_FILE is missing"));
        assert!(tls(&[key]).unwrap_err().to_string().starts_with("TLS_CERT_FILE is missing"));
    }

    #[test]
    fn development_listens_on_both_loopback_addresses() {
        assert_eq!(load(&StartFlags::default(), &[], "").unwrap().bind, Bind::Loopback);
        let all = load(&StartFlags::default(), &[("HOST", "0.0.0.0")], "").unwrap().bind;
        assert!(!all.is_loopback());
        assert!(load(&StartFlags::default(), &[("HOST", "::1")], "").unwrap().bind.is_loopback());
    }
}
