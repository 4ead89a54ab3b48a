//! The MCP clients that can be connected: where each keeps its configuration, and what an entry for a server looks like
//! there.

use std::path::PathBuf;

use clap::ValueEnum;
use serde_json::{Map, Value, json};
use url::Url;

use super::{json_text, toml_text};
use model::Secret;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum McpClient {
    ClaudeCode,
    ClaudeDesktop,
    Cursor,
    Vscode,
    Windsurf,
    Codex,
    Gemini,
}

/// An operating system, as far as paths depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum System {
    Linux,
    MacOs,
    Windows,
}

impl System {
    pub const THIS: Self = if cfg!(target_os = "macos") {
        System::MacOs
    } else if cfg!(windows) {
        System::Windows
    } else {
        System::Linux
    };
}

/// What a client connects to.
pub struct Connection<'a> {
    pub url: &'a Url,
    pub token: Option<&'a Secret>,
    /// For clients that can only start programs: this program and its arguments.
    pub command: &'a str,
    pub arguments: &'a [String],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileFormat {
    /// JSON, with comments where the client allows them.
    Json,
    Toml,
}

impl McpClient {
    pub fn title(self) -> &'static str {
        match self {
            Self::ClaudeCode => "Claude Code",
            Self::ClaudeDesktop => "Claude Desktop",
            Self::Cursor => "Cursor",
            Self::Vscode => "VS Code",
            Self::Windsurf => "Windsurf",
            Self::Codex => "Codex",
            Self::Gemini => "Gemini CLI",
        }
    }

    /// Returns the path of the configuration of a user; `None` if the variables do not say where the home directory is.
    pub fn path(self, system: System, variable: impl Fn(&str) -> Option<String>) -> Option<PathBuf> {
        let folder = |name: &str| variable(name).filter(|path| !path.is_empty()).map(PathBuf::from);
        let home = || folder(if system == System::Windows { "USERPROFILE" } else { "HOME" });
        let settings = || match system {
            System::Linux => folder("XDG_CONFIG_HOME").or_else(|| Some(home()?.join(".config"))),
            System::MacOs => Some(home()?.join("Library/Application Support")),
            System::Windows => folder("APPDATA").or_else(|| Some(home()?.join("AppData/Roaming"))),
        };
        Some(match self {
            Self::ClaudeCode => folder("CLAUDE_CONFIG_DIR").or_else(home)?.join(".claude.json"),
            Self::ClaudeDesktop => settings()?.join("Claude/claude_desktop_config.json"),
            Self::Cursor => home()?.join(".cursor/mcp.json"),
            Self::Vscode => settings()?.join("Code/User/mcp.json"),
            Self::Windsurf => home()?.join(".codeium/windsurf/mcp_config.json"),
            Self::Codex => folder("CODEX_HOME").or_else(|| Some(home()?.join(".codex")))?.join("config.toml"),
            Self::Gemini => home()?.join(".gemini/settings.json"),
        })
    }

    pub fn format(self) -> FileFormat {
        match self {
            Self::Codex => FileFormat::Toml,
            Self::ClaudeCode
            | Self::ClaudeDesktop
            | Self::Cursor
            | Self::Vscode
            | Self::Windsurf
            | Self::Gemini => FileFormat::Json,
        }
    }

    /// The key of the object that has the servers.
    pub fn section(self) -> &'static str {
        match self {
            Self::Vscode => "servers",
            Self::Codex => "mcp_servers",
            Self::ClaudeCode | Self::ClaudeDesktop | Self::Cursor | Self::Windsurf | Self::Gemini => {
                "mcpServers"
            }
        }
    }

    /// Tells whether the client can only start programs.
    pub fn starts_programs_only(self) -> bool {
        self == Self::ClaudeDesktop
    }

    /// Makes the entry for the gateway.
    pub fn entry(self, connection: &Connection<'_>) -> Value {
        if self.starts_programs_only() {
            let mut entry = json!({ "command": connection.command, "args": connection.arguments });
            if let Some(token) = connection.token {
                entry["env"] = json!({ "TOOLGATE_TOKEN": token.expose() });
            }
            return entry;
        }
        let mut entry = Map::new();
        let (url, headers) = match self {
            Self::Windsurf => ("serverUrl", "headers"),
            Self::Gemini => ("httpUrl", "headers"),
            Self::Codex => ("url", "http_headers"),
            Self::ClaudeCode | Self::Vscode => {
                entry.insert("type".into(), "http".into());
                ("url", "headers")
            }
            Self::Cursor | Self::ClaudeDesktop => ("url", "headers"),
        };
        entry.insert(url.into(), connection.url.as_str().into());
        if let Some(token) = connection.token {
            entry.insert(headers.into(), json!({ "Authorization": format!("Bearer {}", token.expose()) }));
        }
        Value::Object(entry)
    }
}

impl FileFormat {
    /// Tells whether the text has the entry.
    pub fn has(self, text: &str, section: &str, name: &str) -> bool {
        match self {
            Self::Json => json_text::get(text, section, name).is_some(),
            Self::Toml => toml_text::has(text, section, name),
        }
    }

    /// Reads the entry; `None` if the text has none.
    pub fn get(self, text: &str, section: &str, name: &str) -> Option<Value> {
        match self {
            Self::Json => json_text::get(text, section, name),
            Self::Toml => toml_text::get(text, section, name),
        }
    }

    /// Tells whether the text has exactly this entry.
    pub fn is(self, text: &str, section: &str, name: &str, entry: &Value) -> bool {
        self.get(text, section, name).as_ref() == Some(entry)
    }

    pub fn set(self, text: &str, section: &str, name: &str, entry: &Value) -> anyhow::Result<String> {
        let changed = match self {
            Self::Json => json_text::set(text, section, name, entry)?,
            Self::Toml => toml_text::set(text, section, name, entry)?,
        };
        anyhow::ensure!(self.is(&changed, section, name, entry), "the entry cannot be added to this text");
        Ok(changed)
    }

    /// Removes the entry; `None` if the text has none.
    pub fn remove(self, text: &str, section: &str, name: &str) -> anyhow::Result<Option<String>> {
        match self {
            Self::Json => json_text::remove(text, section, name),
            Self::Toml => toml_text::remove(text, section, name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(client: McpClient, system: System, variables: &[(&str, &str)]) -> String {
        let find = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        client.path(system, find).unwrap().display().to_string()
    }

    #[test]
    fn every_system_has_its_paths() {
        let unix = [("HOME", "/h")];
        let windows = [("USERPROFILE", "C:/u"), ("APPDATA", "C:/u/AppData/Roaming")];
        for (client, linux, mac, win) in [
            (McpClient::ClaudeCode, "/h/.claude.json", "/h/.claude.json", "C:/u/.claude.json"),
            (
                McpClient::ClaudeDesktop,
                "/h/.config/Claude/claude_desktop_config.json",
                "/h/Library/Application Support/Claude/claude_desktop_config.json",
                "C:/u/AppData/Roaming/Claude/claude_desktop_config.json",
            ),
            (McpClient::Cursor, "/h/.cursor/mcp.json", "/h/.cursor/mcp.json", "C:/u/.cursor/mcp.json"),
            (
                McpClient::Vscode,
                "/h/.config/Code/User/mcp.json",
                "/h/Library/Application Support/Code/User/mcp.json",
                "C:/u/AppData/Roaming/Code/User/mcp.json",
            ),
            (
                McpClient::Windsurf,
                "/h/.codeium/windsurf/mcp_config.json",
                "/h/.codeium/windsurf/mcp_config.json",
                "C:/u/.codeium/windsurf/mcp_config.json",
            ),
            (McpClient::Codex, "/h/.codex/config.toml", "/h/.codex/config.toml", "C:/u/.codex/config.toml"),
            (
                McpClient::Gemini,
                "/h/.gemini/settings.json",
                "/h/.gemini/settings.json",
                "C:/u/.gemini/settings.json",
            ),
        ] {
            assert_eq!(path(client, System::Linux, &unix), linux);
            assert_eq!(path(client, System::MacOs, &unix), mac);
            assert_eq!(path(client, System::Windows, &windows), win);
            assert_eq!(client.path(System::Linux, |_| None), None);
        }
    }

    #[test]
    fn variables_of_the_clients_move_their_files() {
        let variables =
            [("HOME", "/h"), ("XDG_CONFIG_HOME", "/x"), ("CODEX_HOME", "/c"), ("CLAUDE_CONFIG_DIR", "/d")];
        assert_eq!(path(McpClient::Codex, System::Linux, &variables), "/c/config.toml");
        assert_eq!(path(McpClient::ClaudeCode, System::Linux, &variables), "/d/.claude.json");
        assert_eq!(path(McpClient::Vscode, System::Linux, &variables), "/x/Code/User/mcp.json");
    }
}
