//! What is compared: a server without a gateway, nginx, and the gateway, each with everything that the workloads need.

use anyhow::Result;
use toolgate_bench::gateway::Gateway;
use toolgate_bench::target::Target;

use crate::Plan;
use crate::nginx::Nginx;
use crate::setup::{Draft, Stored, Upstream};

pub const DIRECT: &str = "direct";
pub const NGINX: &str = "nginx";
pub const GATEWAY: &str = "gateway";

/// Servers behind the gateway, and tools of each of them.
const SERVERS: usize = 10;
const TOOLS: usize = 50;
pub const ALL_TOOLS: usize = SERVERS * TOOLS;

/// What can be measured of a peer.
pub struct Peer {
    pub name: &'static str,
    pub process: u32,
    pub target: Target,
    /// Has all tools in one list. Another process for peers that cannot join lists.
    pub list_process: u32,
    pub list_target: Target,
    /// In front of the names of tools.
    pub prefix: &'static str,
    owned: Owned,
}

/// Processes that end with the peer.
enum Owned {
    Servers { _servers: [Upstream; 2] },
    Proxies { _proxies: [Nginx; 2] },
    Gateway(Gateway),
}

/// The servers, and the catalog of the gateway.
pub struct Stage {
    few: Upstream,
    all: Upstream,
    pub stored: Stored,
}

impl Stage {
    pub async fn prepare(plan: &Plan) -> Result<Self> {
        let few = Upstream::start(TOOLS, "legacy", &[]).await?;
        let all = Upstream::start(ALL_TOOLS, "legacy", &[]).await?;
        let draft = Draft::new(plan, "development").await?.servers(SERVERS, &few.url).await?;
        let stored = draft.store().await?;
        Ok(Self { few, all, stored })
    }

    pub async fn direct(&self, plan: &Plan) -> Result<Peer> {
        let few = Upstream::start(TOOLS, "legacy", &plan.pinned()).await?;
        let all = Upstream::start(ALL_TOOLS, "legacy", &plan.pinned()).await?;
        Ok(Peer {
            name: DIRECT,
            process: few.process,
            target: Target::new(few.address(), ""),
            list_process: all.process,
            list_target: Target::new(all.address(), ""),
            prefix: "",
            owned: Owned::Servers { _servers: [few, all] },
        })
    }

    /// `None` if nginx is not installed.
    pub async fn nginx(&self, plan: &Plan) -> Result<Option<Peer>> {
        let Some(few) = Nginx::start(plan, self.few.address()).await? else { return Ok(None) };
        let Some(all) = Nginx::start(plan, self.all.address()).await? else { return Ok(None) };
        Ok(Some(Peer {
            name: NGINX,
            process: few.process,
            target: Target::new(&few.address, ""),
            list_process: all.process,
            list_target: Target::new(&all.address, ""),
            prefix: "",
            owned: Owned::Proxies { _proxies: [few, all] },
        }))
    }

    pub async fn gateway(&self) -> Result<Peer> {
        let gateway = self.stored.start().await?;
        let (process, target) = (gateway.process()?, Target::new(&gateway.address, ""));
        Ok(Peer {
            name: GATEWAY,
            process,
            target: target.clone(),
            list_process: process,
            list_target: target,
            prefix: "up0__",
            owned: Owned::Gateway(gateway),
        })
    }
}

impl Peer {
    pub async fn stop(self) -> Result<()> {
        match self.owned {
            Owned::Gateway(gateway) => gateway.stop().await.map(drop),
            Owned::Servers { .. } | Owned::Proxies { .. } => Ok(()),
        }
    }
}
