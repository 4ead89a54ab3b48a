//! The variables of the environment and of `.env`, and how their values are parsed.

use std::cell::Cell;
use std::collections::HashMap;
use std::net::Ipv6Addr;

use url::{Host, Url};

use super::{ConfigError, StartFlags};

/// Returns the variables of the environment and of `.env`.
pub fn variables() -> Result<EnvVariables<impl Fn(&str) -> Option<String>>, ConfigError> {
    let file = match std::fs::read_to_string(".env") {
        Ok(text) => parse_env_file(&text)?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => HashMap::new(),
        Err(error) => return Err(ConfigError(format!(".env cannot be read: {error}"))),
    };
    Ok(EnvVariables::new(file, |name: &str| std::env::var(name).ok()))
}

pub struct EnvVariables<E> {
    file: HashMap<String, String>,
    environment: E,
    /// Whether a value was taken from the environment, and from the file.
    used: Cell<(bool, bool)>,
}

impl<E: Fn(&str) -> Option<String>> EnvVariables<E> {
    pub fn new(file: HashMap<String, String>, environment: E) -> Self {
        Self { file, environment, used: Cell::default() }
    }

    /// Returns the value of a variable. An empty one counts as not set, since compose files pass on empty variables.
    pub fn get(&self, name: &str) -> Option<String> {
        let (given, written) = ((self.environment)(name), self.file.get(name).cloned());
        let (environment, file) = self.used.get();
        self.used.set((environment || given.is_some(), file || given.is_none() && written.is_some()));
        given.or(written).filter(|value| !value.is_empty())
    }

    /// Names the sources of the settings that were read so far.
    pub fn source(&self, flags: &StartFlags) -> String {
        let (environment, file) = self.used.get();
        let sources = [(flags.is_given(), "flags"), (environment, "environment"), (file, ".env")];
        let used: Vec<_> =
            sources.into_iter().filter(|(is_used, _)| *is_used).map(|(_, name)| name).collect();
        if used.is_empty() { "defaults".into() } else { used.join(", ") }
    }

    pub fn parse<T>(
        &self,
        name: &str,
        wanted: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, ConfigError> {
        let Some(text) = self.get(name) else { return Ok(None) };
        match parse(text.trim()) {
            Some(value) => Ok(Some(value)),
            // A URL may have a password.
            None if text.contains('@') => Err(ConfigError(format!("{name} is wrong: it must be {wanted}"))),
            None => Err(ConfigError(format!("{name}={text} is wrong: it must be {wanted}"))),
        }
    }

    /// Returns the value of a variable, or the content of the file that `<name>_FILE` names, as container platforms pass
    /// secrets. A line end after it is not part of it.
    pub fn value_or_file(&self, name: &str) -> Result<Option<String>, ConfigError> {
        if let Some(value) = self.get(name) {
            return Ok(Some(value));
        }
        let name = format!("{name}_FILE");
        let Some(path) = self.get(&name) else { return Ok(None) };
        let text = std::fs::read_to_string(&path);
        let text = text.map_err(|error| ConfigError(format!("{name}={path} cannot be read: {error}")))?;
        Ok(Some(text.trim_end_matches(['\r', '\n']).to_owned()).filter(|text| !text.is_empty()))
    }

    pub fn flag(&self, name: &str) -> Result<Option<bool>, ConfigError> {
        self.parse(name, "true, 1, false or 0", |text| match text.to_ascii_lowercase().as_str() {
            "true" | "1" => Some(true),
            "false" | "0" => Some(false),
            _ => None,
        })
    }

    pub fn origins(&self, name: &str) -> Result<Vec<String>, ConfigError> {
        self.list(name, "origins such as https://app.example.com", |text| {
            let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https"))?;
            url.has_host().then(|| url.origin().ascii_serialization())
        })
    }

    /// Host names and addresses without ports, as they are in the `Host` header.
    pub fn hosts(&self, name: &str) -> Result<Vec<String>, ConfigError> {
        self.list(name, "host names such as gate.example.com", |text| {
            if let Ok(address) = text.parse::<Ipv6Addr>() {
                return Some(Host::<String>::Ipv6(address).to_string());
            }
            Host::parse(text).ok().map(|host| host.to_string()).filter(|host| !host.contains('*'))
        })
    }

    /// The parts of a value that are separated by commas, without empty ones.
    pub fn list(
        &self,
        name: &str,
        wanted: &str,
        parse: impl Fn(&str) -> Option<String>,
    ) -> Result<Vec<String>, ConfigError> {
        let list = self.parse(name, &format!("a comma-separated list of {wanted}"), |text| {
            let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
            parts.map(&parse).collect::<Option<Vec<_>>>()
        });
        Ok(list?.unwrap_or_default())
    }
}

pub fn parse_env_file(text: &str) -> Result<HashMap<String, String>, ConfigError> {
    let mut values = HashMap::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let line = line.strip_prefix("export ").unwrap_or(line);
        let (name, value) = line.split_once('=').ok_or_else(|| {
            ConfigError(format!(".env, line {}: a line has the form NAME=value", number + 1))
        })?;
        values.insert(name.trim().to_owned(), unquote(value.trim()));
    }
    Ok(values)
}

/// Removes the quotes around a value, or the comment after a value without quotes.
fn unquote(value: &str) -> String {
    for quote in ['"', '\''] {
        if let Some(inner) = value.strip_prefix(quote).and_then(|rest| rest.split_once(quote)) {
            return inner.0.to_owned();
        }
    }
    value.split(" #").next().unwrap_or_default().trim_end().to_owned()
}
