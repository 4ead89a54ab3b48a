//! What a web page can send: DNS rebinding, foreign origins, requests without a preflight.

use anyhow::{Context, Result};
use serde_json::json;
use tokio::io::AsyncWriteExt;
use toolgate_chaos::gateway::Settings;

use crate::arena::Arena;
use crate::plan::Plan;
use crate::raw;
use crate::verdict::{Attack, Verdict};

pub async fn run(plan: &Plan) -> Result<Vec<Verdict>> {
    let arena = Arena::development(plan, 64, |settings| settings.variable("HOST", "0.0.0.0")).await?;
    arena
        .attack(
            "rebinding, all addresses",
            "a page of another host registers a stdio server",
            async |attack| {
                let log = arena.gateway.log.lock().expect("no code panics while it holds the log").clone();
                attack.check(log.contains("run commands"), || format!("it did not warn at its start: {log}"));
                pages(&arena.gateway.address, attack).await
            },
        )
        .await?;
    let mut verdicts = arena.close().await?;
    let arena = Arena::development(plan, 64, |settings| settings).await?;
    arena
        .attack(
            "rebinding, loopback",
            "the same on a loopback address, and pages of other ports",
            async |attack| {
                let address = arena.gateway.address.as_str();
                pages(address, attack).await?;
                let page = &[("Content-Type", "text/plain"), ("Origin", "http://localhost:3000")];
                refused(address, "127.0.0.1", "/api/v0/servers", page, attack).await
            },
        )
        .await?;
    arena
        .attack(
            "initialization by a page",
            "/init of a fresh gateway by rebinding, and without INIT_SECRET",
            async |attack| initialization(plan, attack).await,
        )
        .await?;
    verdicts.extend(arena.close().await?);
    Ok(verdicts)
}

/// Requests that a page can send, each of which must be refused.
async fn pages(address: &str, attack: &mut Attack) -> Result<()> {
    for path in ["/api/v0/servers", "/mcp", "/init"] {
        for host in ["evil.example", "evil.example:8080", "127.0.0.1.evil.example", "localhost.evil.example"]
        {
            refused(address, host, path, &[], attack).await?;
            refused(address, host, path, &[("Origin", &format!("http://{host}"))], attack).await?;
        }
        for headers in [
            [("Origin", "https://evil.example"), ("Content-Type", "text/plain")],
            [("Origin", "null"), ("Content-Type", "text/plain")],
        ] {
            refused(address, "127.0.0.1", path, &headers, attack).await?;
        }
        for site in ["cross-site", "same-site"] {
            refused(address, "127.0.0.1", path, &[("Sec-Fetch-Site", site)], attack).await?;
        }
    }
    attack.came_back("each 403");
    Ok(())
}

async fn refused(
    address: &str,
    host: &str,
    path: &str,
    headers: &[(&str, &str)],
    attack: &mut Attack,
) -> Result<()> {
    let status = status_of(address, host, path, headers).await?;
    attack.check(status == 403, || format!("POST {path} with Host {host} and {headers:?}: {status}"));
    Ok(())
}

async fn status_of(address: &str, host: &str, path: &str, headers: &[(&str, &str)]) -> Result<u16> {
    let body = json!({"name": "evil", "transport": "stdio", "command": "true"}).to_string();
    let bytes = String::from_utf8(raw::kept("POST", path, headers, body.as_bytes()))?;
    let mut stream = raw::open(address).await?;
    stream.write_all(bytes.replacen("Host: localhost", &format!("Host: {host}"), 1).as_bytes()).await?;
    let status = raw::status(&mut stream, std::time::Duration::from_secs(10)).await;
    status.context("no response")
}

async fn initialization(plan: &Plan, attack: &mut Attack) -> Result<()> {
    let folder = tempfile::tempdir().context("cannot make a folder")?;
    let settings = Settings::new(&plan.program, folder.path())
        .variable("SERVER_MODE", "enterprise")
        .variable("HOST", "0.0.0.0")
        .variable("INIT_SECRET", "the-secret-of-the-operator");
    let gateway = settings.start().await?;
    for host in ["evil.example", "evil.example:8080"] {
        let authorized = [("Authorization", "Bearer the-secret-of-the-operator")];
        refused(&gateway.address, host, "/init", &authorized, attack).await?;
    }
    let page = [("Origin", "http://evil.example")];
    refused(&gateway.address, "127.0.0.1", "/init", &page, attack).await?;
    for headers in [&[][..], &[("Authorization", "Bearer wrong-secret")][..]] {
        let status = status_of(&gateway.address, "127.0.0.1", "/init", headers).await?;
        attack.check(status == 401, || format!("/init with {headers:?}: {status}"));
    }
    attack.came_back("403 for pages, 401 without the secret");
    gateway.terminate().await?;
    Ok(())
}
