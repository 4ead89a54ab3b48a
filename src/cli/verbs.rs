//! Commands that exist for several nouns, such as `list`, `get` and `enable`.

use clap::{Args, Subcommand};

use super::error::UsageError;
use super::invocation::Invocation;
use super::switch::Switch;
use super::{clients, grants, groups, idp_groups, oauth_clients, prompts, resources, servers, tools, users};

/// List servers (the default), tools, prompts, resources, groups, clients, users or grants
#[derive(Args)]
#[command(after_help = "Examples:
  toolgate list servers
  toolgate list tools --server github
  toolgate list tools --output json | jq -r '.[].name'")]
pub struct List {
    #[command(subcommand)]
    noun: Option<ListNoun>,
}

#[derive(Subcommand)]
enum ListNoun {
    Servers(servers::ListServers),
    Tools(tools::ListTools),
    Prompts(prompts::ListPrompts),
    Resources(resources::ListResources),
    Groups(groups::ListGroups),
    McpClients(clients::ListClients),
    Users(users::ListUsers),
    IdpGroups(idp_groups::ListIdpGroups),
    Grants(grants::ListGrants),
    OauthClients(oauth_clients::ListOauthClients),
}

pub async fn list(invocation: &Invocation, list: List) -> anyhow::Result<()> {
    match list.noun {
        None | Some(ListNoun::Servers(_)) => servers::list(invocation).await,
        Some(ListNoun::Tools(tools)) => tools::list(invocation, tools).await,
        Some(ListNoun::Prompts(prompts)) => prompts::list(invocation, prompts).await,
        Some(ListNoun::Resources(resources)) => resources::list(invocation, resources).await,
        Some(ListNoun::Groups(_)) => groups::list(invocation).await,
        Some(ListNoun::McpClients(_)) => clients::list(invocation).await,
        Some(ListNoun::Users(_)) => users::list(invocation).await,
        Some(ListNoun::IdpGroups(_)) => idp_groups::list(invocation).await,
        Some(ListNoun::Grants(_)) => grants::list(invocation).await,
        Some(ListNoun::OauthClients(_)) => oauth_clients::list(invocation).await,
    }
}

/// Show one server, group, prompt or resource
#[derive(Args)]
#[command(after_help = "Examples:
  toolgate get server github
  toolgate get prompt github__review --arg language=rust
  toolgate get resource docs://readme --read")]
pub struct Get {
    #[command(subcommand)]
    noun: GetNoun,
}

#[derive(Subcommand)]
enum GetNoun {
    Server(servers::GetServer),
    Group(groups::GetGroup),
    Prompt(prompts::GetPrompt),
    Resource(resources::GetResource),
}

pub async fn get(invocation: &Invocation, get: Get) -> anyhow::Result<()> {
    match get.noun {
        GetNoun::Server(server) => servers::get(invocation, server).await,
        GetNoun::Group(group) => groups::get(invocation, group).await,
        GetNoun::Prompt(prompt) => prompts::get(invocation, prompt).await,
        GetNoun::Resource(resource) => resources::get(invocation, resource).await,
    }
}

/// Read the content of a resource
#[derive(Args)]
#[command(after_help = "Example:
  toolgate read resource docs://readme")]
pub struct Read {
    #[command(subcommand)]
    noun: ReadNoun,
}

#[derive(Subcommand)]
enum ReadNoun {
    Resource(resources::ReadResource),
}

pub async fn read(invocation: &Invocation, read: Read) -> anyhow::Result<()> {
    match read.noun {
        ReadNoun::Resource(resource) => resources::read(invocation, resource).await,
    }
}

/// Enable a tool, a prompt or a whole server
#[derive(Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:
  toolgate enable tool github__create_issue
  toolgate enable tool github      # all tools of the server
  toolgate enable server github"
)]
pub struct Enable {
    #[command(subcommand)]
    noun: Option<SwitchNoun>,
    /// Short for `enable tool NAME`
    name: Option<String>,
}

/// Disable a tool, a prompt or a whole server: agents do not see it
#[derive(Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:
  toolgate disable tool github__delete_repo
  toolgate disable prompt github   # all prompts of the server
  toolgate disable server github"
)]
pub struct Disable {
    #[command(subcommand)]
    noun: Option<SwitchNoun>,
    /// Short for `disable tool NAME`
    name: Option<String>,
}

#[derive(Subcommand)]
enum SwitchNoun {
    Tool(tools::SwitchTool),
    Prompt(prompts::SwitchPrompt),
    Server(servers::SwitchServer),
}

pub async fn enable(invocation: &Invocation, enable: Enable) -> anyhow::Result<()> {
    switch(invocation, Switch::Enable, enable.noun, enable.name).await
}

pub async fn disable(invocation: &Invocation, disable: Disable) -> anyhow::Result<()> {
    switch(invocation, Switch::Disable, disable.noun, disable.name).await
}

async fn switch(
    invocation: &Invocation,
    switch: Switch,
    noun: Option<SwitchNoun>,
    name: Option<String>,
) -> anyhow::Result<()> {
    match (noun, name) {
        (Some(SwitchNoun::Tool(tool)), _) => tools::switch(invocation, switch, tool).await,
        (Some(SwitchNoun::Prompt(prompt)), _) => prompts::switch(invocation, switch, prompt).await,
        (Some(SwitchNoun::Server(server)), _) => servers::switch(invocation, switch, server).await,
        (None, Some(name)) => tools::switch(invocation, switch, tools::SwitchTool { name }).await,
        (None, None) => {
            let command = invocation.command(&format!("{} tool|prompt|server NAME", switch.route()));
            Err(UsageError(format!("specify what: `{command}`")).into())
        }
    }
}

/// Create a client, a user or a group
#[derive(Args)]
#[command(after_help = "Examples:
  toolgate create group dev --included-servers \"github, files\"
  toolgate create mcp-client cursor --allow \"github, files\"
  toolgate create user alice")]
pub struct Create {
    #[command(subcommand)]
    noun: CreateNoun,
}

#[derive(Subcommand)]
enum CreateNoun {
    McpClient(clients::CreateClient),
    User(users::CreateUser),
    Group(groups::CreateGroup),
}

pub async fn create(invocation: &Invocation, create: Create) -> anyhow::Result<()> {
    match create.noun {
        CreateNoun::McpClient(client) => clients::create(invocation, client).await,
        CreateNoun::User(user) => users::create(invocation, user).await,
        CreateNoun::Group(group) => groups::create(invocation, group).await,
    }
}

/// Change a server, a client, a user, a group or a group of the identity provider
#[derive(Args)]
#[command(after_help = "Examples:
  toolgate update server github --description \"Issues and pull requests\"
  toolgate update mcp-client cursor --allow \"github\"
  toolgate update group --conf dev.json")]
pub struct Update {
    #[command(subcommand)]
    noun: UpdateNoun,
}

#[derive(Subcommand)]
enum UpdateNoun {
    Server(Box<servers::UpdateServer>),
    McpClient(clients::UpdateClient),
    User(users::UpdateUser),
    Group(groups::UpdateGroup),
    IdpGroup(idp_groups::UpdateIdpGroup),
}

pub async fn update(invocation: &Invocation, update: Update) -> anyhow::Result<()> {
    match update.noun {
        UpdateNoun::Server(server) => servers::update(invocation, *server).await,
        UpdateNoun::McpClient(client) => clients::update(invocation, client).await,
        UpdateNoun::User(user) => users::update(invocation, user).await,
        UpdateNoun::Group(group) => groups::update(invocation, group).await,
        UpdateNoun::IdpGroup(group) => idp_groups::update(invocation, group).await,
    }
}

/// Delete a client, a user, a group or an OAuth client, or end a grant
#[derive(Args)]
#[command(after_help = "Examples:
  toolgate delete group dev
  toolgate delete mcp-client cursor
  toolgate delete user alice")]
pub struct Delete {
    #[command(subcommand)]
    noun: DeleteNoun,
}

#[derive(Subcommand)]
enum DeleteNoun {
    McpClient(clients::DeleteClient),
    User(users::DeleteUser),
    Group(groups::DeleteGroup),
    IdpGroup(idp_groups::DeleteIdpGroup),
    Grant(grants::DeleteGrant),
    OauthClient(oauth_clients::DeleteOauthClient),
}

pub async fn delete(invocation: &Invocation, delete: Delete) -> anyhow::Result<()> {
    match delete.noun {
        DeleteNoun::McpClient(client) => clients::delete(invocation, client).await,
        DeleteNoun::User(user) => users::delete(invocation, user).await,
        DeleteNoun::Group(group) => groups::delete(invocation, group).await,
        DeleteNoun::IdpGroup(group) => idp_groups::delete(invocation, group).await,
        DeleteNoun::Grant(grant) => grants::delete(invocation, grant).await,
        DeleteNoun::OauthClient(client) => oauth_clients::delete(invocation, client).await,
    }
}
