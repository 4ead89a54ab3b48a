//! Guessed tokens, from one address and from many.

use std::time::Duration;

use anyhow::Result;
use tokio::io::AsyncWriteExt;

use crate::arena::Arena;
use crate::plan::Plan;
use crate::raw;
use crate::verdict::{Attack, Verdict};

/// Wrong tokens that an address may send at once.
const BURST: usize = 300;
const LIMIT: Duration = Duration::from_secs(10);

pub async fn run(plan: &Plan) -> Result<Vec<Verdict>> {
    let arena = Arena::enterprise(plan, 64, |settings| settings).await?;
    arena
        .attack(
            "wrong tokens",
            "800 guesses from one address, and one from each of 1,000 others",
            async |attack| guesses(&arena, attack).await,
        )
        .await?;
    arena.close().await
}

async fn guesses(arena: &Arena, attack: &mut Attack) -> Result<()> {
    let address = arena.gateway.address.as_str();
    let (mut wrong, mut limited) = (0, 0);
    for number in 0..800 {
        match guess("127.0.0.1", address, number).await? {
            Some(401) => wrong += 1,
            Some(429) => limited += 1,
            other => attack.fail(format!("a guess got {other:?}")),
        }
    }
    attack.check(wrong >= BURST && limited > 0, || format!("{wrong} times 401, {limited} times 429"));
    attack.came_back(format!("{wrong} times 401, {limited} times 429"));
    let mut others = 0;
    for number in 0..1000 {
        let source = format!("127.1.{}.{}", number / 250, number % 250 + 1);
        match guess(&source, address, number).await? {
            Some(401) => others += 1,
            other => attack.fail(format!("a guess from {source} got {other:?}")),
        }
    }
    attack.came_back(format!("{others} others 401"));
    // The bystander has a valid token and the address of the guesses.
    let call = arena.gateway.send(arena.call()).await?;
    attack.check(call.status == 200, || format!("a valid token got {}", call.status));
    Ok(())
}

async fn guess(source: &str, address: &str, number: usize) -> Result<Option<u16>> {
    let token = format!("Bearer guess-number-{number}");
    let path = if number.is_multiple_of(2) { "/mcp" } else { "/api/v0/tools" };
    let mut stream = raw::open_from(source, address).await?;
    stream.write_all(&raw::kept("GET", path, &[("Authorization", &token)], b"")).await?;
    Ok(raw::status(&mut stream, LIMIT).await)
}
