//! Resources: listing, showing and reading them. A resource is given by its URI, or by its name if that is unique.

use clap::Args;
use serde_json::Value;

use super::content;
use super::invocation::Invocation;
use super::output::{self, Format, Table};
use super::record::{enabled, one, text};
use super::remote::ApiRequest;
use super::suggestion::{ListedNoun, explain};

/// List resources, all or those of a server
#[derive(Args)]
#[command(after_help = "Examples:
  toolgate list resources
  toolgate list resources --server docs
  toolgate list resources --templates")]
pub struct ListResources {
    /// Only those of this server
    #[arg(long)]
    server: Option<String>,
    /// List resource templates instead
    #[arg(long)]
    templates: bool,
}

/// Show a resource, or its content
#[derive(Args)]
#[command(after_help = "Examples:
  toolgate get resource docs://readme
  toolgate get resource docs://readme --read
  toolgate get resource readme --server docs --read > readme.md")]
pub struct GetResource {
    /// URI of the resource, or its name
    name: String,
    /// Server that offers it, if several servers do
    #[arg(long)]
    server: Option<String>,
    /// Show its content
    #[arg(long)]
    read: bool,
}

/// Show the content of a resource
#[derive(Args)]
#[command(after_help = "Example:
  toolgate read resource docs://readme")]
pub struct ReadResource {
    /// URI of the resource, or its name
    name: String,
    /// Server that offers it, if several servers do
    #[arg(long)]
    server: Option<String>,
}

pub async fn list(invocation: &Invocation, list: ListResources) -> anyhow::Result<()> {
    let mut request = ApiRequest::get(&[if list.templates { "resource_templates" } else { "resources" }]);
    if let Some(server) = &list.server {
        request = request.query("server", server);
    }
    let answer = invocation.remote.ask(request).await;
    let answer =
        explain(invocation, ListedNoun::Server, list.server.as_deref().unwrap_or_default(), answer).await?;
    invocation.show(&answer, |resources| {
        let resources = resources.as_array().map(Vec::as_slice).unwrap_or_default();
        if list.templates { templates_page(resources) } else { page(resources) }
    })
}

pub async fn get(invocation: &Invocation, get: GetResource) -> anyhow::Result<()> {
    let uri = find(invocation, &get.name, get.server.as_deref()).await?;
    if get.read {
        return show_content(invocation, &uri).await;
    }
    let request = ApiRequest::post(&["resources", "get"]).object(&one("uri", uri));
    let answer = invocation.remote.ask(request).await?;
    invocation.show(&answer, |resource| {
        output::card(&[
            ("URI", text(resource, "uri")),
            ("Qualified URI", text(resource, "qualified_uri")),
            ("Name", text(resource, "name")),
            ("Title", text(resource, "title")),
            ("Server", text(resource, "server")),
            ("Enabled", if resource["enabled"] == false { "no" } else { "yes" }.into()),
            ("Type", text(resource, "mime_type")),
            ("Description", text(resource, "description")),
        ])
    })
}

pub async fn read(invocation: &Invocation, read: ReadResource) -> anyhow::Result<()> {
    let uri = find(invocation, &read.name, read.server.as_deref()).await?;
    show_content(invocation, &uri).await
}

async fn show_content(invocation: &Invocation, uri: &str) -> anyhow::Result<()> {
    let request = ApiRequest::post(&["resources", "read"]).object(&one("uri", uri));
    let answer = invocation.remote.ask(request).await?;
    if invocation.format == Format::Json {
        return output::json(&answer.text);
    }
    let name = uri.rsplit('/').find(|part| !part.is_empty()).unwrap_or(uri);
    for content in answer.json()?["contents"].as_array().into_iter().flatten() {
        content::show_resource(content, name)?;
    }
    Ok(())
}

/// Finds the URI for a URI or name. One that is not listed is returned unchanged, since a template may match it.
async fn find(invocation: &Invocation, name: &str, server: Option<&str>) -> anyhow::Result<String> {
    if server.is_none() && name.contains("://") {
        return Ok(name.to_owned());
    }
    let mut request = ApiRequest::get(&["resources"]);
    if let Some(server) = server {
        request = request.query("server", server);
    }
    let answer = invocation.remote.ask(request).await;
    let listed = explain(invocation, ListedNoun::Server, server.unwrap_or_default(), answer).await?.json()?;
    let is_meant = |resource: &&Value| resource["uri"] == name || resource["name"] == name;
    let meant: Vec<&Value> = listed.as_array().into_iter().flatten().filter(is_meant).collect();
    match meant.as_slice() {
        [] => Ok(name.to_owned()),
        [one] => Ok(text(one, "qualified_uri")),
        several => {
            let uris: Vec<String> = several.iter().map(|resource| text(resource, "qualified_uri")).collect();
            anyhow::bail!("several resources are called {name:?}; use one of {}", uris.join(", "))
        }
    }
}

fn page(resources: &[Value]) -> String {
    if resources.is_empty() {
        output::message("There are no resources.");
        return String::new();
    }
    let mut table = Table::new(["URI", "NAME", "SERVER", "ENABLED", "TYPE", "DESCRIPTION"]);
    for resource in resources {
        table.row([
            text(resource, "uri").into(),
            text(resource, "name").into(),
            text(resource, "server").into(),
            enabled(resource),
            text(resource, "mime_type").into(),
            text(resource, "description").into(),
        ]);
    }
    table.render(output::width())
}

fn templates_page(templates: &[Value]) -> String {
    if templates.is_empty() {
        output::message("There are no templates.");
        return String::new();
    }
    let mut table = Table::new(["TEMPLATE", "NAME", "SERVER", "TYPE", "DESCRIPTION"]);
    for template in templates {
        table.row([
            text(template, "uri_template").into(),
            text(template, "name").into(),
            text(template, "server").into(),
            text(template, "mime_type").into(),
            text(template, "description").into(),
        ]);
    }
    table.render(output::width())
}
