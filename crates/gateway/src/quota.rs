//! Quotas: the rate limits of principals, servers and tools. The limits are part of the catalog; how much of them is
//! used is kept here, and in `usage` for principals, over all changes of the catalog and of the limits.

use std::collections::HashMap;
use std::sync::{Arc, RwLock};
use std::time::Instant;

use super::Gateway;
use super::catalog::Entry;
use super::engine::{Payer, Throttled};
use super::principals::Principal;
use super::usage::Usage;
use budget::{Bound, RateLimiter};

/// What is used of the limits of one server and its tools, for as long as a server of that name is registered.
#[derive(Debug, Default)]
pub struct ServerQuota {
    calls: RateLimiter,
    by_tool: RwLock<HashMap<Box<str>, Arc<RateLimiter>>>,
}

impl ServerQuota {
    fn tool(&self, tool: &str) -> Arc<RateLimiter> {
        let known = self.by_tool.read().expect("no code panics while it holds the limiters");
        if let Some(limiter) = known.get(tool) {
            return limiter.clone();
        }
        drop(known);
        let mut known = self.by_tool.write().expect("no code panics while it holds the limiters");
        known.entry(tool.into()).or_default().clone()
    }

    /// Forgets tools that the server no longer lists and to whose name no limit is given.
    pub fn keep_tools_of(&self, entry: &Entry) {
        let limits = entry.registration.config.tool_limits.by_key();
        let mut known = self.by_tool.write().expect("no code panics while it holds the limiters");
        known.retain(|tool, _| entry.tool(tool).is_some() || limits.contains_key(&**tool));
    }
}

impl Gateway {
    /// Counts a call towards the limits of its payer, its server and its tool, in this order. If one of them refuses the
    /// call, it counts towards none. `tool` is the native name, if a tool is called.
    pub(super) fn charge_quotas(
        &self,
        payer: Payer,
        usage: &Usage,
        entry: &Entry,
        tool: Option<&str>,
    ) -> Result<(), Throttled> {
        let (config, catalog) = (&entry.registration.config, self.catalog.load());
        let principal = payer.principal().and_then(|id| catalog.principals().by_id(id));
        let listed = tool.filter(|tool| entry.tool(tool).is_some());
        let of_tool = tool.and_then(|tool| config.tool_limits.find(tool)).map(|(key, limit)| {
            // Callers can invent names of tools that are not listed: those that match a pattern share one count.
            (entry.quota.tool(listed.unwrap_or(key)), limit)
        });
        let limits = [
            principal.and_then(Principal::rate_limit).map(|limit| (&usage.rate, limit)),
            config.rate_limit.map(|limit| (&entry.quota.calls, limit)),
            of_tool.as_ref().map(|(limiter, limit)| (&**limiter, *limit)),
        ];
        let now = Instant::now();
        for (count, (limiter, limit)) in limits.iter().flatten().enumerate() {
            let taken = limiter.take(limit.calls_per_minute, limit.burst_size(), now);
            let Err(retry_after) = taken else { continue };
            for (limiter, _) in limits.iter().flatten().take(count) {
                limiter.give_back();
            }
            let name = principal.map_or("", |principal| principal.name().as_str());
            self.metrics.call_refused(name, entry.name().as_str(), listed.unwrap_or_default());
            let exceeded = self.budgets().exceeded(Bound::RateLimit, limit.calls_per_minute.into());
            return Err(Throttled { exceeded, retry_after });
        }
        Ok(())
    }
}
