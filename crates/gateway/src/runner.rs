//! Servers whose processes run on one of the gateways on the same database: what the one that runs them tells the others,
//! which have links to the server through it.

use super::Gateway;
use upstream::{Reading, Upstream};
use wire::Era;

impl Gateway {
    /// Whether this gateway runs a server for the others.
    pub fn runs(&self, server: &str) -> bool {
        self.upstream_of(server).is_some_and(|upstream| upstream.reading() == Reading::Here)
    }

    /// Whether a server speaks an era; waits until it is connected. The error is a sentence.
    pub async fn speaks(&self, server: &str, era: Era) -> Result<bool, String> {
        let catalog = self.catalog();
        let entry = catalog.get(server);
        let (Some(entry), Some(upstream)) = (entry, self.upstream_of(server)) else {
            return Err("the server is disabled".to_owned());
        };
        let what = format!("server {server:?}");
        let spoken = upstream.speaks(era).await;
        spoken.map_err(|error| self.disclosure(None).sentence(&what, &error, entry))
    }

    /// Whether a modern server is known to speak the legacy era, too.
    pub fn speaks_legacy_too(&self, server: &str) -> bool {
        self.upstream_of(server).is_some_and(|upstream| upstream.speaks_legacy_too())
    }

    fn upstream_of(&self, server: &str) -> Option<Upstream> {
        self.catalog().get(server).and_then(|entry| entry.upstream.clone())
    }
}
