//! Quotas: the rate limits of principals, servers and tools. The limits are part of the catalog; how much of them is
//! used is kept here, and in `usage` for principals, over all changes of the catalog and of the limits. Gateways on one
//! database share the limits: each reserves calls there, some at a time.

use std::collections::HashMap;
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};

use foldhash::fast::RandomState;

use super::Gateway;
use super::catalog::Entry;
use super::engine::{Payer, Throttled};
use super::limiter::Limiter;
use super::principals::Principal;
use super::usage::Usage;
use budget::{Bound, PortionTake};
use model::{PrincipalId, RateLimit, ServerName};
use store::{Reserved, quota_of_server, quota_of_tool};

/// The part of a burst that all gateways together may have reserved without using it.
const RESERVED_PART: u32 = 10;

/// A limit that a call has to keep.
struct Charge<'a> {
    limiter: &'a Limiter,
    limit: RateLimit,
    subject: Subject<'a>,
}

/// Whose limit it is.
enum Subject<'a> {
    Principal(PrincipalId),
    Server(&'a ServerName),
    Tool(&'a ServerName, &'a str),
}

impl Charge<'_> {
    /// The name under which gateways share the limit.
    fn name(&self) -> String {
        match self.subject {
            Subject::Principal(id) => format!("principal {}", id.0),
            Subject::Server(server) => quota_of_server(server),
            Subject::Tool(server, tool) => quota_of_tool(server, tool),
        }
    }

    fn pace_and_burst(&self) -> (u32, u32) {
        (self.limit.calls_per_minute, self.limit.burst_size())
    }

    fn take_alone(&self) -> Result<(), Duration> {
        let (pace, burst) = self.pace_and_burst();
        self.limiter.alone.take(pace, burst, Instant::now())
    }
}

/// What is used of the limits of one server and its tools, for as long as a server of that name is registered.
#[derive(Debug, Default)]
pub struct ServerQuota {
    calls: Limiter,
    by_tool: RwLock<HashMap<Box<str>, Arc<Limiter>, RandomState>>,
}

impl ServerQuota {
    fn tool(&self, tool: &str) -> Arc<Limiter> {
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

/// The limits of a call, and who makes it.
struct Charges<'a> {
    principal: Option<&'a Principal>,
    entry: &'a Entry,
    /// The tool, if the server lists it.
    listed: Option<&'a str>,
    /// In the order in which they are charged.
    limits: [Option<Charge<'a>>; 3],
}

/// The limiter of a tool that has a limit, and the name that it has there.
type ToolLimiter<'a> = (Arc<Limiter>, RateLimit, &'a str);

impl<'a> Charges<'a> {
    fn new(
        principal: Option<&'a Principal>,
        usage: &'a Usage,
        entry: &'a Entry,
        tool: Option<&'a str>,
        of_tool: Option<&'a ToolLimiter<'a>>,
    ) -> Self {
        let (config, server) = (&entry.registration.config, entry.name());
        let limits = [
            principal.and_then(|principal| {
                let (limit, subject) = (principal.rate_limit()?, Subject::Principal(principal.id()));
                Some(Charge { limiter: &usage.rate, limit, subject })
            }),
            config.rate_limit.map(|limit| Charge {
                limiter: &entry.quota.calls,
                limit,
                subject: Subject::Server(server),
            }),
            of_tool.map(|(limiter, limit, name)| Charge {
                limiter,
                limit: *limit,
                subject: Subject::Tool(server, name),
            }),
        ];
        Self { principal, entry, listed: tool.filter(|tool| entry.tool(tool).is_some()), limits }
    }

    fn all(&self) -> impl Iterator<Item = &Charge<'a>> {
        self.limits.iter().flatten()
    }
}

fn tool_limiter<'a>(entry: &'a Entry, tool: Option<&'a str>) -> Option<ToolLimiter<'a>> {
    let tool = tool?;
    let (key, limit) = entry.registration.config.tool_limits.find(tool)?;
    // Callers can invent names of tools that are not listed: those that match a pattern share one count.
    let name = if entry.tool(tool).is_some() { tool } else { key };
    Some((entry.quota.tool(name), limit, name))
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
        let catalog = payer.principal().map(|id| (self.catalog.load(), id));
        let principal = catalog.as_ref().and_then(|(catalog, id)| catalog.principals().by_id(*id));
        let of_tool = tool_limiter(entry, tool);
        let charges = Charges::new(principal, usage, entry, tool, of_tool.as_ref());
        for (count, charge) in charges.all().enumerate() {
            let Err(retry_after) = charge.take_alone() else { continue };
            charges.all().take(count).for_each(|earlier| earlier.limiter.alone.give_back());
            return Err(self.throttled(&charges, charge, retry_after));
        }
        Ok(())
    }

    /// The same, if gateways on the same database share the limits.
    pub(super) async fn charge_shared_quotas(
        &self,
        payer: Payer,
        usage: &Usage,
        entry: &Entry,
        tool: Option<&str>,
    ) -> Result<(), Throttled> {
        let catalog = self.catalog();
        let principal = payer.principal().and_then(|id| catalog.principals().by_id(id));
        let of_tool = tool_limiter(entry, tool);
        let charges = Charges::new(principal, usage, entry, tool, of_tool.as_ref());
        for (count, charge) in charges.all().enumerate() {
            let Err(retry_after) = self.take_shared(charge).await else { continue };
            charges.all().take(count).for_each(|earlier| earlier.limiter.portion.add(1));
            return Err(self.throttled(&charges, charge, retry_after));
        }
        Ok(())
    }

    /// Counts a call towards a limit that gateways share. Without the database, each gateway counts for itself.
    async fn take_shared(&self, charge: &Charge<'_>) -> Result<(), Duration> {
        let (limiter, limit) = (charge.limiter, charge.pace_and_burst());
        let from_portion = || match limiter.portion.take(limit, Instant::now()) {
            PortionTake::Taken => Some(Ok(())),
            PortionTake::Refused(retry_after) => Some(Err(retry_after)),
            PortionTake::Empty => None,
        };
        if let Some(taken) = from_portion() {
            return taken;
        }
        let _reserving = limiter.reserving.lock().await;
        // Another call may have reserved enough for both.
        if let Some(taken) = from_portion() {
            return taken;
        }
        let calls = (limit.1 / RESERVED_PART / self.replica_count()).max(1);
        match self.store.reserve_calls(&charge.name(), limit, calls).await {
            Ok(Reserved::Calls(calls)) => {
                limiter.portion.add(calls - 1);
                Ok(())
            }
            Ok(Reserved::NothingFor(time)) => {
                limiter.portion.refuse(Instant::now() + time);
                Err(time)
            }
            Err(error) => {
                tracing::debug!(%error, "cannot reserve calls; this gateway counts for itself");
                charge.take_alone()
            }
        }
    }

    fn throttled(&self, charges: &Charges<'_>, charge: &Charge<'_>, retry_after: Duration) -> Throttled {
        let name = charges.principal.map_or("", |principal| principal.name().as_str());
        let server = charges.entry.name().as_str();
        self.metrics.call_refused(name, server, charges.listed.unwrap_or_default());
        let exceeded = self.budgets().exceeded(Bound::RateLimit, charge.limit.calls_per_minute.into());
        Throttled { exceeded, retry_after }
    }
}
