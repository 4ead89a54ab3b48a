//! Finds out whose token it is, and ends what goes on under tokens that are no longer valid.

use std::collections::HashSet;
use std::sync::Arc;

use super::Gateway;
use super::caller::Owner;
use super::catalog::Catalog;
use super::principals::{Principal, Principals};

impl Gateway {
    /// Whose token this is, if it is anybody's now. May wait: not every credential is known here from the start.
    pub async fn identify(&self, token: &[u8]) -> Option<Principal> {
        let hash = self.store.token_hash(token);
        self.catalog.load().principals().find(&hash).cloned()
    }

    pub fn is_initialized(&self) -> bool {
        self.catalog.load().principals().is_initialized
    }

    /// Lets new rights count, then ends what goes on under tokens that are no longer valid. Whoever has another token
    /// instead keeps what belongs to them.
    pub(super) fn swap_principals(self: &Arc<Self>, catalog: &Catalog, principals: Principals) {
        let before = catalog.principals().all();
        let valid: HashSet<_> = principals.all().map(Principal::credential).collect();
        let known: HashSet<_> = principals.all().map(Principal::id).collect();
        let revoked: Vec<_> =
            before.filter(|principal| !valid.contains(&principal.credential())).cloned().collect();
        self.publish(catalog.with_principals(principals));
        // Before anybody hears of the change: sessions that end by it must not seem to end by themselves.
        for principal in &revoked {
            principal.revoked().cancel();
        }
        self.changed.send_replace(());
        let gateway = self.clone();
        self.tasks.spawn(async move {
            for principal in revoked.iter().filter(|principal| !known.contains(&principal.id())) {
                gateway.release_links_of(Owner::Principal(principal.id())).await;
            }
        });
    }
}
