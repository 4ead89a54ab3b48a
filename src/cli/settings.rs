//! The gateway to talk to and the token to use: from flags, the environment, and `~/.toolgate.conf`. The token in the
//! file is sent only to the gateway in the file.

use std::fs::{self, OpenOptions, Permissions};
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde_json::Value;
use url::Url;

use crate::config::variable;
use model::import;

const DEFAULT_REGISTRY: &str = "http://127.0.0.1:8080";
const FILE: &str = ".toolgate.conf";
const OWNER_ONLY: u32 = 0o600;

pub struct RemoteSettings {
    pub registry: Url,
    pub token: Option<String>,
    /// Whether the flag `--registry` named the gateway, so that another command needs it as well.
    pub is_from_flag: bool,
}

impl RemoteSettings {
    pub fn load(flag: Option<Url>) -> anyhow::Result<Self> {
        let file = ConfFile::load()?;
        let stated = variable("TOOLGATE_REGISTRY").filter(|text| !text.is_empty());
        let stated = stated.map(|text| {
            parse_registry(&text).map_err(|problem| anyhow::anyhow!("TOOLGATE_REGISTRY {problem}"))
        });
        let is_from_flag = flag.is_some();
        let registry = match (flag, stated.transpose()?) {
            (Some(registry), _) | (None, Some(registry)) => registry,
            (None, None) => file.registry.clone(),
        };
        let token = variable("TOOLGATE_TOKEN").filter(|token| !token.is_empty());
        let token = token.or_else(|| file.token.filter(|_| registry == file.registry));
        Ok(Self { registry, token, is_from_flag })
    }
}

/// Formats a command for a person to run; `registry` is the gateway that it has to name, if any.
pub fn command(registry: Option<&str>, arguments: &str) -> String {
    match registry {
        Some(registry) => format!("toolgate --registry {registry} {arguments}"),
        None => format!("toolgate {arguments}"),
    }
}

/// Tells whether commands without settings use the gateway at this address.
pub fn is_default(scheme: &str, address: SocketAddr) -> bool {
    let is_reached = address.ip().is_unspecified() || address.ip() == Ipv4Addr::LOCALHOST;
    is_reached && format!("{scheme}://127.0.0.1:{}", address.port()) == DEFAULT_REGISTRY
}

/// The content of the file, with defaults.
struct ConfFile {
    registry: Url,
    token: Option<String>,
}

impl ConfFile {
    fn load() -> anyhow::Result<Self> {
        let path = path();
        let text = match path.as_deref().map(fs::read_to_string) {
            Some(Ok(text)) => text,
            Some(Err(error)) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("cannot read {}", shown(path.as_deref())));
            }
            Some(Err(_)) | None => String::new(),
        };
        let value = if text.trim().is_empty() { Ok(Value::Null) } else { import::read(&text) };
        let value = value.with_context(|| format!("{} is wrong", shown(path.as_deref())))?;
        let field = |name: &str| match &value[name] {
            Value::Null => Ok(None),
            Value::String(text) => Ok(Some(text.clone()).filter(|text| !text.is_empty())),
            _ => bail!("{} is wrong: {name} must be a string", shown(path.as_deref())),
        };
        let registry = field("registry_url")?;
        let registry =
            parse_registry(registry.as_deref().unwrap_or(DEFAULT_REGISTRY)).map_err(|problem| {
                anyhow::anyhow!("{} is wrong: registry_url {problem}", shown(path.as_deref()))
            })?;
        Ok(Self { registry, token: field("access_token")? })
    }
}

/// Parses the URL of a gateway. The error is the rest of a sentence that begins with the name of the setting.
pub fn parse_registry(text: &str) -> Result<Url, String> {
    let wrong = || "must be the URL of a gateway, such as http://127.0.0.1:8080".to_owned();
    let mut url = Url::parse(text.trim()).map_err(|_| wrong())?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() || url.query().is_some() {
        return Err(wrong());
    }
    // A trailing slash makes no difference.
    let path = url.path().trim_end_matches('/').to_owned();
    url.set_path(&path);
    url.set_fragment(None);
    Ok(url)
}

/// Returns the path of the file; `None` without a home directory.
pub fn path() -> Option<PathBuf> {
    variable("HOME").filter(|home| !home.is_empty()).map(|home| Path::new(&home).join(FILE))
}

/// Writes the file atomically, readable only for its owner.
pub fn save(registry: &str, token: &str) -> anyhow::Result<PathBuf> {
    let path = path().context("there is no home directory: set HOME")?;
    // Replaces the target of a symbolic link, not the link.
    let target = fs::canonicalize(&path).unwrap_or_else(|_| path.clone());
    // Every JSON string is a valid YAML string.
    let text = format!("registry_url: {}\naccess_token: {}\n", Value::from(registry), Value::from(token));
    let draft = target.with_extension(format!("conf.{}", std::process::id()));
    let written = write_draft(&draft, &text).and_then(|()| fs::rename(&draft, &target));
    if written.is_err() {
        let _ = fs::remove_file(&draft);
    }
    written.with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

fn write_draft(draft: &Path, text: &str) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(OWNER_ONLY).open(draft)?;
    file.set_permissions(Permissions::from_mode(OWNER_ONLY))?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

fn shown(path: Option<&Path>) -> String {
    path.map_or_else(|| FILE.to_owned(), |path| path.display().to_string())
}
