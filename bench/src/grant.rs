//! How an agent gets a token for a user: what the agent and the user's browser send to the gateway as an authorization server.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::gateway::Gateway;
use crate::{Message, header};

/// The gateway's address as its users know it; requests of this program go to the one that it listens at.
pub const PUBLIC_URL: &str = "https://gate.example";
const CALLBACK: &str = "https://agent.example/callback";
/// The example of RFC 7636.
const VERIFIER: &str = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
const CHALLENGE: &str = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";

/// Creates a user, who signs in and allows an agent to act for them; returns the agent's access token.
pub async fn grant(gateway: &Gateway, username: &str, allow_list: &[String]) -> Result<String> {
    let user = json!({ "username": username, "role": "user", "allow_list": allow_list });
    let user = gateway.ask("POST", "/api/v0/users", &user).await?;
    let metadata =
        json!({ "client_name": "Agent", "redirect_uris": [CALLBACK], "token_endpoint_auth_method": "none" });
    let client = text(&gateway.ask("POST", "/register", &metadata).await?, "client_id")?;

    let cookie = {
        let answer = post(gateway, "/login", "", &[("token", &text(&user, "access_token")?)]).await?;
        let cookie = header(&answer.head, "set-cookie").context("no cookie of a session")?;
        format!("Cookie: {}\r\n", cookie.split(';').next().unwrap_or_default())
    };
    let query = encoded(&[
        ("response_type", "code"),
        ("client_id", &client),
        ("redirect_uri", CALLBACK),
        ("code_challenge", CHALLENGE),
        ("code_challenge_method", "S256"),
    ]);
    let page = gateway.exchange("GET", &format!("/authorize?{query}"), &cookie, "").await?;
    let page = String::from_utf8(page.body)?;
    let (query, form_token) = (hidden(&page, "query")?, hidden(&page, "form_token")?);
    let consent = [("query", query.as_str()), ("form_token", &form_token), ("decision", "allow")];
    let answer = post(gateway, "/authorize", &cookie, &consent).await?;
    let location = header(&answer.head, "location").context("no redirect to the agent")?;
    let code = location.split(['?', '&']).find_map(|pair| pair.strip_prefix("code="));

    let redeemed = [
        ("grant_type", "authorization_code"),
        ("code", code.context("no code for the agent")?),
        ("client_id", &client),
        ("redirect_uri", CALLBACK),
        ("code_verifier", VERIFIER),
    ];
    let answer = post(gateway, "/token", "", &redeemed).await?;
    text(&serde_json::from_slice(&answer.body)?, "access_token")
}

/// Sends a form as a browser does.
async fn post(gateway: &Gateway, path: &str, cookie: &str, fields: &[(&str, &str)]) -> Result<Message> {
    let headers =
        format!("{cookie}Origin: {PUBLIC_URL}\r\nContent-Type: application/x-www-form-urlencoded\r\n");
    let answer = gateway.exchange("POST", path, &headers, &encoded(fields)).await?;
    let is_good = ["HTTP/1.1 200", "HTTP/1.1 303"].iter().any(|start| answer.head.starts_with(start));
    ensure!(is_good, "{path}: {} {}", answer.head, String::from_utf8_lossy(&answer.body));
    Ok(answer)
}

fn text(answer: &Value, key: &str) -> Result<String> {
    Ok(answer[key].as_str().with_context(|| format!("an answer without {key}: {answer}"))?.to_owned())
}

/// The value of a hidden field on a page.
fn hidden(page: &str, name: &str) -> Result<String> {
    let start = format!("name=\"{name}\" value=\"");
    let (_, rest) = page.split_once(&start).with_context(|| format!("a page without {name}: {page}"))?;
    Ok(rest.split('"').next().unwrap_or_default().replace("&amp;", "&"))
}

/// Encodes a query or a form.
fn encoded(pairs: &[(&str, &str)]) -> String {
    let encode = |value: &str| -> String {
        let keeps = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
        let encoded =
            |byte: u8| if keeps(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
        value.bytes().map(encoded).collect()
    };
    let pairs: Vec<String> = pairs.iter().map(|(key, value)| format!("{key}={}", encode(value))).collect();
    pairs.join("&")
}
