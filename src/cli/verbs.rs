//! The verbs that several nouns share: `list`, `get`, `enable` and the like, each with the nouns it knows.

use clap::{Args, Subcommand};

use super::{Session, UsageError, clients, groups, prompts, resources, servers, tools, users};

/// List servers, tools, prompts, resources, groups, clients or users
#[derive(Args)]
#[command(after_help = "Examples:
  toolgate list servers
  toolgate list tools --server github
  toolgate list tools --output json | jq -r '.[].name'")]
pub struct List {
    #[command(subcommand)]
    noun: ListNoun,
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
}

pub async fn list(session: &Session, list: List) -> anyhow::Result<()> {
    match list.noun {
        ListNoun::Servers(_) => servers::list(session).await,
        ListNoun::Tools(tools) => tools::list(session, tools).await,
        ListNoun::Prompts(prompts) => prompts::list(session, prompts).await,
        ListNoun::Resources(resources) => resources::list(session, resources).await,
        ListNoun::Groups(_) => groups::list(session).await,
        ListNoun::McpClients(_) => clients::list(session).await,
        ListNoun::Users(_) => users::list(session).await,
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

pub async fn get(session: &Session, get: Get) -> anyhow::Result<()> {
    match get.noun {
        GetNoun::Server(server) => servers::get(session, server).await,
        GetNoun::Group(group) => groups::get(session, group).await,
        GetNoun::Prompt(prompt) => prompts::get(session, prompt).await,
        GetNoun::Resource(resource) => resources::get(session, resource).await,
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

pub async fn read(session: &Session, read: Read) -> anyhow::Result<()> {
    match read.noun {
        ReadNoun::Resource(resource) => resources::read(session, resource).await,
    }
}

/// Make a tool, a prompt or a whole server available again
#[derive(Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:
  toolgate enable tool github__create_issue
  toolgate enable tool github      (all tools of the server)
  toolgate enable server github"
)]
pub struct Enable {
    #[command(subcommand)]
    noun: Option<SwitchNoun>,
    /// Short for `enable tool NAME`
    name: Option<String>,
}

/// Hide a tool, a prompt or a whole server from agents
#[derive(Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:
  toolgate disable tool github__delete_repo
  toolgate disable prompt github   (all prompts of the server)
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

/// Which way to switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    Enable,
    Disable,
}

impl Switch {
    /// The last part of the route.
    pub fn route(self) -> &'static str {
        match self {
            Switch::Enable => "enable",
            Switch::Disable => "disable",
        }
    }

    pub fn done(self) -> &'static str {
        match self {
            Switch::Enable => "enabled",
            Switch::Disable => "disabled",
        }
    }
}

pub async fn enable(session: &Session, enable: Enable) -> anyhow::Result<()> {
    switch(session, Switch::Enable, enable.noun, enable.name).await
}

pub async fn disable(session: &Session, disable: Disable) -> anyhow::Result<()> {
    switch(session, Switch::Disable, disable.noun, disable.name).await
}

async fn switch(
    session: &Session,
    switch: Switch,
    noun: Option<SwitchNoun>,
    name: Option<String>,
) -> anyhow::Result<()> {
    match (noun, name) {
        (Some(SwitchNoun::Tool(tool)), _) => tools::switch(session, switch, tool).await,
        (Some(SwitchNoun::Prompt(prompt)), _) => prompts::switch(session, switch, prompt).await,
        (Some(SwitchNoun::Server(server)), _) => servers::switch(session, switch, server).await,
        (None, Some(name)) => tools::switch(session, switch, tools::SwitchTool { name }).await,
        (None, None) => {
            let sentence = format!("say what: `toolgate {0} tool|prompt|server NAME`", switch.route());
            Err(UsageError(sentence).into())
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

pub async fn create(session: &Session, create: Create) -> anyhow::Result<()> {
    match create.noun {
        CreateNoun::McpClient(client) => clients::create(session, client).await,
        CreateNoun::User(user) => users::create(session, user).await,
        CreateNoun::Group(group) => groups::create(session, group).await,
    }
}

/// Change a server, a client, a user or a group
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
}

pub async fn update(session: &Session, update: Update) -> anyhow::Result<()> {
    match update.noun {
        UpdateNoun::Server(server) => servers::update(session, *server).await,
        UpdateNoun::McpClient(client) => clients::update(session, client).await,
        UpdateNoun::User(user) => users::update(session, user).await,
        UpdateNoun::Group(group) => groups::update(session, group).await,
    }
}

/// Delete a client, a user or a group
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
}

pub async fn delete(session: &Session, delete: Delete) -> anyhow::Result<()> {
    match delete.noun {
        DeleteNoun::McpClient(client) => clients::delete(session, client).await,
        DeleteNoun::User(user) => users::delete(session, user).await,
        DeleteNoun::Group(group) => groups::delete(session, group).await,
    }
}
