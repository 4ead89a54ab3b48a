//! Which eras of the protocol a server speaks, for another gateway that has links to it through this one.

use super::error::CallError;
use super::handle::Upstream;
use super::profile::Profile;
use model::Capabilities;
use wire::Era;

impl Upstream {
    /// Whether the server speaks an era. Waits until it is connected, and finds out where that is not known.
    pub async fn speaks(&self, era: Era) -> Result<bool, CallError> {
        let first = self.link().await?.era();
        if first == era {
            return Ok(true);
        }
        if era == Era::Legacy && self.0.speaks_legacy().is_none() {
            let nobody = Profile { era, capabilities: Capabilities::NONE, owner: None };
            Box::pin(self.find_out_legacy(&nobody)).await;
        }
        Ok(era == Era::Legacy && self.speaks_legacy_too())
    }

    /// Whether a modern server is known to speak the legacy era, too.
    pub fn speaks_legacy_too(&self) -> bool {
        self.0.speaks_legacy() == Some(true)
    }
}
