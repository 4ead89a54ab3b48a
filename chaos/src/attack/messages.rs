//! Messages whose cost is out of proportion: batches, long URIs, many subscriptions, many different capabilities.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::arena::Arena;
use crate::plan::Plan;
use crate::raw;
use crate::verdict::{Attack, Verdict};

/// The longest time that one of these messages may take, in a debug build on a busy machine.
const LONG: Duration = Duration::from_secs(3);
/// Subscriptions of a session or a listen request, and of a principal.
const OF_SESSION: usize = 1000;
const OF_PRINCIPAL: usize = 10_000;
/// The version of the protocol that has batches.
const WITH_BATCHES: &str = "2025-03-26";

pub async fn run(plan: &Plan) -> Result<Vec<Verdict>> {
    let arena = Arena::development(plan, 96, |settings| settings).await?;
    arena
        .attack("batches", "2,000 lists in a batch, and 100 lists of 250 kB", async |attack| {
            batches(&arena, attack).await
        })
        .await?;
    arena
        .attack("long URIs", "URIs of 180 kB and of 8 kB against templates, on every door", async |attack| {
            uris(&arena, attack).await
        })
        .await?;
    arena
        .attack(
            "many subscriptions",
            "listen with 8,000 URIs, and 1,001 subscriptions of a session",
            async |attack| subscriptions(&arena, attack).await,
        )
        .await?;
    arena
        .attack(
            "subscriptions of a principal",
            "10,001 subscriptions over 11 sessions and listen requests",
            async |attack| principal_subscriptions(&arena, attack).await,
        )
        .await?;
    arena
        .attack(
            "many capabilities",
            "600 clients with different capabilities of 3 kB list, and call what does not exist",
            async |attack| capabilities(&arena, attack).await,
        )
        .await?;
    arena.close().await
}

/// Each new set of capabilities makes the gateway open a link and read lists; both are bounded.
async fn capabilities(arena: &Arena, attack: &mut Attack) -> Result<()> {
    let mut clients = JoinSet::new();
    for part in 0..6 {
        let address = arena.gateway.address.clone();
        clients.spawn(async move {
            for number in 0..100 {
                let name = format!("{part}-{number}-{}", "x".repeat(3000));
                let session = raw::session_with(&address, &json!({"extensions": {name: {}}})).await?;
                for (method, params) in
                    [("tools/list", json!({})), ("tools/call", json!({"name": "s__nothing"}))]
                {
                    let request = raw::post("/mcp", &raw::message(method, &params));
                    let answer = request.header("Mcp-Session-Id", &session).send(&address).await?;
                    ensure!(answer.status == 200, "{method} got {} {}", answer.status, answer.text());
                    let answer = answer.json()?;
                    let is_right = match method {
                        "tools/list" => {
                            answer["result"]["tools"].as_array().is_some_and(|all| !all.is_empty())
                        }
                        _ => answer["error"]["code"] == -32602,
                    };
                    ensure!(is_right, "{method} got {answer}");
                }
            }
            Ok(())
        });
    }
    for outcome in clients.join_all().await {
        attack.check(outcome.is_ok(), || format!("{outcome:?}"));
    }
    attack.came_back("600 lists, and 600 errors -32602");
    Ok(())
}

async fn batches(arena: &Arena, attack: &mut Attack) -> Result<()> {
    ensure!(arena.register("many", "many").await?.status == 201, "not registered");
    let list = raw::message("tools/list", &json!({}));
    let answer = arena.gateway.send(raw::post("/mcp", &json!(vec![list.clone(); 2000]))).await?;
    let code = answer.json()?["error"]["code"].clone();
    attack.check(answer.status == 400 && code == -32600, || format!("{} {code}", answer.status));
    attack.came_back(format!("{} {code} with {} bytes", answer.status, answer.body.len()));
    let answer = arena.gateway.send(raw::post("/mcp", &json!(vec![list; 100]))).await?;
    attack.check(answer.body.len() <= 16 << 20, || format!("an answer of {} bytes", answer.body.len()));
    let left_out = answer
        .json()?
        .as_array()
        .map_or(0, |answers| answers.iter().filter(|answer| answer["error"]["code"] == -32603).count());
    attack.check(left_out > 0, || "nothing was left out".to_owned());
    attack.came_back(format!("{} bytes, {left_out} left out", answer.body.len()));
    arena.remove("many").await
}

async fn uris(arena: &Arena, attack: &mut Attack) -> Result<()> {
    let begun = Instant::now();
    let mut requests = JoinSet::new();
    for length in [180_000, 8100] {
        let uri = format!("x://{}", "?q=".repeat(length / 3));
        for request in [
            raw::post("/mcp", &raw::message("resources/read", &json!({"uri": uri}))),
            raw::post("/v0/servers/s/mcp", &raw::message("resources/read", &json!({"uri": uri}))),
            raw::modern(
                "/mcp",
                "subscriptions/listen",
                json!({"notifications": {"resourceSubscriptions": [uri]}}),
            ),
            toolgate_chaos::http::Request::new("POST", "/api/v0/resources/read").json(&json!({"uri": uri})),
        ] {
            // An accepted listen request has no end.
            if length < 10_000 && request.body.windows(20).any(|window| window == b"subscriptions/listen") {
                continue;
            }
            let address = arena.gateway.address.clone();
            requests.spawn(async move { (length, request.send(&address).await) });
        }
    }
    let mut refused = 0;
    for (length, outcome) in requests.join_all().await {
        let answer = outcome?;
        let error = answer.json().unwrap_or_default();
        let is_refused = answer.status == 400 || error["error"]["code"] == -32602;
        refused += usize::from(is_refused);
        attack.check(length < 10_000 || is_refused, || {
            format!("a URI of {length} bytes: {} {:.200}", answer.status, answer.text())
        });
    }
    let took = begun.elapsed();
    attack.check(took < LONG, || format!("it took {took:?}"));
    attack.came_back(format!("{refused} refused, all answered in {} ms", took.as_millis()));
    Ok(())
}

async fn subscriptions(arena: &Arena, attack: &mut Attack) -> Result<()> {
    let uris: Vec<String> = (0..8000).map(|number| format!("fake://item/{number}")).collect();
    let begun = Instant::now();
    let wanted = json!({"notifications": {"resourceSubscriptions": uris}});
    let answer = arena.gateway.send(raw::modern("/mcp", "subscriptions/listen", wanted)).await?.json()?;
    attack.check(answer["error"]["code"] == -32602, || format!("listen got {answer}"));
    attack.check(begun.elapsed() < LONG, || format!("the refusal took {:?}", begun.elapsed()));
    let session = raw::session(&arena.gateway.address).await?;
    let mut last = Value::Null;
    for uri in &uris[..1001] {
        let request = raw::post("/mcp", &subscribe(uri)).header("Mcp-Session-Id", &session);
        last = arena.gateway.send(request).await?.json()?;
    }
    attack.check(last["error"]["code"] == -32602, || format!("the 1,001st subscription got {last}"));
    attack.came_back(format!("{} and {}", answer["error"]["message"], last["error"]["message"]));
    end(arena, &session).await
}

/// Half of them in sessions, by batches, and half in listen requests. One more is refused at each door, and room for it
/// comes back with a session that ends.
async fn principal_subscriptions(arena: &Arena, attack: &mut Attack) -> Result<()> {
    let address = arena.gateway.address.as_str();
    let uris: Vec<String> = (0..OF_SESSION).map(|number| format!("fake://item/{number}")).collect();
    let before = arena.refusals("subscriptions").await?;
    let (mut sessions, mut streams) = (Vec::new(), Vec::new());
    for _ in 0..OF_PRINCIPAL / OF_SESSION / 2 {
        let session = raw::session_of(address, WITH_BATCHES).await?;
        for uris in uris.chunks(100) {
            let messages: Vec<_> = uris.iter().map(|uri| subscribe(uri)).collect();
            let batch = raw::post("/mcp", &json!(messages)).header("Mcp-Session-Id", &session);
            let answer = arena.gateway.send(batch).await?.text();
            ensure!(!answer.contains("error"), "a batch of subscriptions got {answer:.300}");
        }
        sessions.push(session);
        let wanted = json!({"notifications": {"resourceSubscriptions": uris}});
        let listen = raw::modern("/mcp", "subscriptions/listen", wanted);
        let mut stream = raw::begin(address, &listen.to_bytes("localhost")).await?;
        let status = raw::status(&mut stream, LONG * 3).await;
        ensure!(status == Some(200), "a listen request got {status:?}");
        streams.push(stream);
    }
    let last = raw::session(address).await?;
    let one_more = raw::post("/mcp", &subscribe(&uris[0])).header("Mcp-Session-Id", &last);
    let wanted = json!({"notifications": {"resourceSubscriptions": [uris[0]]}});
    for request in [one_more.clone(), raw::modern("/mcp", "subscriptions/listen", wanted)] {
        let answer = arena.gateway.send(request).await?.json()?;
        let message = answer["error"]["message"].as_str().unwrap_or_default();
        let is_named = answer["error"]["code"] == -32602 && message.contains(&OF_PRINCIPAL.to_string());
        attack.check(is_named, || format!("the 10,001st subscription got {answer}"));
        attack.came_back(message);
    }
    let refused = arena.refusals("subscriptions").await? - before;
    attack.check(refused == 2, || format!("{refused} refusals were counted"));
    for session in &sessions {
        end(arena, session).await?;
    }
    let answer = arena.gateway.send(one_more).await?.json()?;
    attack.check(answer.get("result").is_some(), || format!("one more afterwards got {answer}"));
    end(arena, &last).await
}

fn subscribe(uri: &str) -> Value {
    raw::message("resources/subscribe", &json!({"uri": uri}))
}

async fn end(arena: &Arena, session: &str) -> Result<()> {
    let end = toolgate_chaos::http::Request::new("DELETE", "/mcp").header("Mcp-Session-Id", session);
    arena.gateway.send(end).await?;
    Ok(())
}
