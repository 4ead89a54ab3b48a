//! Empty states: what a page shows in place of an empty list, with commands that add the first item.

use serde::Serialize;
use utoipa::ToSchema;

/// What a page shows in place of an empty list.
#[derive(Serialize, ToSchema)]
pub struct EmptyState {
    title: &'static str,
    description: &'static str,
    /// Commands that add the first item, to copy into a terminal.
    commands: Vec<String>,
}

/// Returns the empty state of tools, prompts or resources: there are no servers, or they offer none.
pub fn nothing_offered(
    has_servers: bool,
    base: &str,
    title: &'static str,
    description: &'static str,
) -> EmptyState {
    match has_servers {
        true => EmptyState { title, description, commands: vec![] },
        false => no_servers(base),
    }
}

/// Returns the empty state of a gateway without servers.
pub fn no_servers(base: &str) -> EmptyState {
    let input = r#"{"name":"everything","transport":"stdio","command":"npx","args":["-y","@modelcontextprotocol/server-everything"]}"#;
    EmptyState {
        title: "No servers yet",
        description: "Register an MCP server: a command that the gateway starts, or a URL. Its tools, prompts and \
                      resources then appear here and at the gateway's own MCP endpoint.",
        commands: vec![
            format!("curl -X POST {base}/api/v0/servers -d '{input}'"),
            format!(
                "toolgate register --name everything{} -- npx -y @modelcontextprotocol/server-everything",
                registry_flag(base)
            ),
        ],
    }
}

/// Returns the flag that names a gateway at another than the default address, with a space before it.
fn registry_flag(base: &str) -> String {
    match base {
        "http://127.0.0.1:8080" | "http://localhost:8080" => String::new(),
        _ => format!(" --registry {base}"),
    }
}

/// Returns the empty state of the groups page.
pub fn no_groups(base: &str) -> EmptyState {
    let input = r#"{"name":"small","included_servers":["everything"]}"#;
    EmptyState {
        title: "No tool groups yet",
        description: "A group is a selection of tools with its own MCP endpoint: give an agent the five \
                      tools that it needs instead of five hundred.",
        commands: vec![format!("curl -X POST {base}/api/v0/tool-groups -d '{input}'")],
    }
}
