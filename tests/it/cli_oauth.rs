//! Servers that require OAuth, registered from a terminal: the browser is opened, comes back to a local port, and the
//! registration is completed.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::process::Child;
use url::Url;

use crate::oauth_register::protected;
use crate::support::cli::{Cli, finish};
use crate::support::process::send_signal;
use crate::support::provider::Rules;
use crate::support::{Fake, Provider, TestApp, client, eventually};

async fn ready() -> (TestApp, Fake, Provider, Cli) {
    let app = TestApp::start().await;
    let (fake, provider) = protected(Rules::default()).await;
    let cli = Cli::new(&app.address);
    (app, fake, provider, cli)
}

/// Starts a command with a browser that only records the page that it is told to open.
fn with_browser(cli: &Cli, arguments: &[&str]) -> Child {
    let folder = cli.home.path().join("bin");
    std::fs::create_dir_all(&folder).unwrap();
    for name in ["xdg-open", "open"] {
        let script = "#!/bin/sh\nprintf %s \"$1\" > page.part && mv page.part page\n";
        std::fs::write(folder.join(name), script).unwrap();
        std::fs::set_permissions(folder.join(name), std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap_or_default());
    cli.command(arguments).env("PATH", path).spawn().unwrap()
}

/// The page that the browser was told to open.
async fn page(cli: &Cli) -> String {
    let file = cli.home.path().join("page");
    eventually("the browser is opened", async || file.exists()).await;
    let page = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(file).unwrap();
    page
}

/// Requests the page to which the provider redirects the browser, with these parameters.
async fn come_back(page: &str, brought: &Value) -> String {
    let query: Value = Url::parse(page)
        .unwrap()
        .query_pairs()
        .map(|(key, value)| (key.into_owned(), Value::from(&*value)))
        .collect();
    let mut target = Url::parse(query["redirect_uri"].as_str().unwrap()).unwrap();
    for (key, value) in brought.as_object().unwrap() {
        target.query_pairs_mut().append_pair(key, value.as_str().unwrap());
    }
    let address = format!("127.0.0.1:{}", target.port().unwrap());
    client::request(&address, "GET", "/favicon.ico", &[], Vec::new()).await.expect(404);
    let path = format!("{}?{}", target.path(), target.query().unwrap());
    client::request(&address, "GET", &path, &[], Vec::new()).await.expect(200).text()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registration_goes_through_the_browser() {
    let (_app, fake, provider, cli) = ready().await;
    let child = with_browser(&cli, &["register", "--name", "web", "--url", &fake.url()]);
    let page = page(&cli).await;
    let shown = come_back(&page, &provider.visit(&page).await).await;
    assert!(shown.contains("close this window"), "{shown}");
    let ended = finish(child).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stdout.contains("connected") && ended.stderr.contains(&page), "{ended:?}");
    assert_eq!(cli.ok(&["invoke", "web__echo", "text=hi"]).await, "hi\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_browser_the_address_is_printed() {
    let (_app, fake, provider, cli) = ready().await;
    let nowhere = cli.home.path().join("empty").display().to_string();
    for (name, arguments) in [("one", &["--no-browser"][..]), ("two", &[])] {
        let url = fake.url();
        let mut register = vec!["register", "--name", name, "--url", &url, "--output", "json"];
        register.extend(arguments);
        let mut child = cli.command(&register).env("PATH", &nowhere).spawn().unwrap();
        let mut stderr = tokio::io::BufReader::new(child.stderr.take().unwrap());
        let mut page = String::new();
        while !page.trim().starts_with("http") {
            page.clear();
            let read = tokio::io::AsyncBufReadExt::read_line(&mut stderr, &mut page);
            let read = tokio::time::timeout(Duration::from_secs(30), read).await.expect("an address comes");
            assert!(read.unwrap() > 0, "it ended without an address");
        }
        come_back(page.trim(), &provider.visit(page.trim()).await).await;
        tokio::spawn(async move { tokio::io::copy(&mut stderr, &mut tokio::io::sink()).await });
        let ended = finish(child).await;
        let registered: Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|_| panic!("{ended:?}"));
        assert_eq!(registered["server"]["name"], name);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_authorization_leaves_nothing_behind() {
    let (app, fake, provider, cli) = ready().await;
    provider.change(|rules| rules.denies = true);
    let child = with_browser(&cli, &["register", "--name", "web", "--url", &fake.url()]);
    let page = page(&cli).await;
    let shown = come_back(&page, &provider.visit(&page).await).await;
    assert!(shown.contains("failed"), "{shown}");
    let ended = finish(child).await;
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""), "{ended:?}");
    assert!(ended.complaint().contains("denied"), "{ended:?}");
    app.get("/api/v0/servers/web").await.expect(404);
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_ends_the_waiting() {
    let (_app, fake, _provider, cli) = ready().await;
    let child = with_browser(&cli, &["register", "--name", "web", "--url", &fake.url()]);
    page(&cli).await;
    send_signal(&child, libc::SIGINT);
    assert_eq!(finish(child).await.code, Some(130));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_can_be_authorized_again() {
    let (_app, fake, provider, cli) = ready().await;
    let child = with_browser(&cli, &["register", "--name", "web", "--url", &fake.url()]);
    let first = page(&cli).await;
    come_back(&first, &provider.visit(&first).await).await;
    assert_eq!(finish(child).await.code, Some(0));
    let child = with_browser(&cli, &["authorize", "web"]);
    let second = page(&cli).await;
    come_back(&second, &provider.visit(&second).await).await;
    let ended = finish(child).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(provider.tokens("authorization_code").len(), 2);
    let sentence = cli.fails(&["authorize", "wbe"]).await;
    assert!(sentence.contains("did you mean \"web\"?"), "{sentence}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_says_which_server_wants_authorization() {
    let (_app, fake, _provider, cli) = ready().await;
    cli.write("mcp.json", &json!({"mcpServers": {"web": {"url": fake.url()}}}).to_string());
    let ended = cli.run(&["import", "mcp.json", "--yes"]).await;
    assert_eq!(ended.code, Some(1));
    assert!(ended.stdout.contains("failed") && ended.stdout.contains("toolgate register"), "{ended:?}");
}
