//! Messages whose cost is out of proportion: batches, long URIs, many subscriptions.

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
    arena.close().await
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
    let session = raw::session(&arena.gateway.address, "/mcp", None).await?;
    let mut last = Value::Null;
    for uri in &uris[..1001] {
        let message = raw::message("resources/subscribe", &json!({"uri": uri}));
        let request = raw::post("/mcp", &message).header("Mcp-Session-Id", &session);
        last = arena.gateway.send(request).await?.json()?;
    }
    attack.check(last["error"]["code"] == -32602, || format!("the 1,001st subscription got {last}"));
    attack.came_back(format!("{} and {}", answer["error"]["message"], last["error"]["message"]));
    let end = toolgate_chaos::http::Request::new("DELETE", "/mcp").header("Mcp-Session-Id", &session);
    arena.gateway.send(end).await?;
    Ok(())
}
