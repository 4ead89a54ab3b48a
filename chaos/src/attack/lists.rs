//! Servers that list without end.

use anyhow::Result;

use crate::arena::Arena;
use crate::plan::Plan;
use crate::verdict::{Attack, Verdict};

pub async fn run(plan: &Plan) -> Result<Vec<Verdict>> {
    let arena =
        Arena::development(plan, 448, |settings| settings.variable("MCP_SERVER_INIT_REQ_TIMEOUT_SEC", "120"))
            .await?;
    for (name, tried, path, most, reason) in [
        ("endless pages", "pages of 1 MiB without end", "pages", 64, "left out"),
        ("too many items", "a list of 10,050 tools", "items", 10_000, "left out"),
        ("the same name", "100,000 tools with one name", "duplicates", 1, "twice"),
    ] {
        arena.attack(name, tried, async |attack| list(&arena, path, most, reason, attack).await).await?;
    }
    arena.close().await
}

async fn list(arena: &Arena, path: &str, most: u64, reason: &str, attack: &mut Attack) -> Result<()> {
    let answer = arena.register("lists", path).await?;
    let record = answer.json()?;
    let (count, said) = (record["tool_count"].as_u64(), record["status_reason"].as_str().unwrap_or_default());
    attack.check(answer.status == 201 && count <= Some(most), || {
        format!("{}: {count:?} tools: {:.300}", answer.status, answer.text())
    });
    attack.check(said.contains(reason), || format!("the reason does not say it: {said:.200}"));
    attack.check(said.chars().count() <= 2000, || format!("a reason of {} bytes", said.len()));
    attack.came_back(format!("{} tools, {said:.100}", count.unwrap_or_default()));
    arena.remove("lists").await
}
