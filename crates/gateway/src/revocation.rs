//! Ends what runs under tokens that are no longer valid, and under the other credentials of users who are gone or kept out.

use std::collections::HashSet;
use std::sync::Arc;

use super::caller::Owner;
use super::catalog::Catalog;
use super::principals::{Principal, Principals};
use super::{Gateway, now_ms};
use model::PrincipalId;

impl Gateway {
    /// Publishes new rights, then ends what runs under tokens that are no longer valid. A principal that got another
    /// token keeps its sessions, subscriptions and links.
    pub(super) fn swap_principals(self: &Arc<Self>, catalog: &Catalog, principals: Principals) {
        let before = catalog.principals().all();
        let known: HashSet<_> = principals.all().map(Principal::id).collect();
        let revoked: Vec<_> = before.filter(|principal| !principals.confirm(principal)).cloned().collect();
        let names: HashSet<_> = principals.all().map(Principal::name).collect();
        let gone = catalog.principals().all().map(Principal::name).filter(|name| !names.contains(name));
        let gone: Vec<_> = gone.collect();
        // Before the tokens stop working: nobody who sends one must seem to guess.
        for hash in revoked.iter().filter_map(Principal::token_hash) {
            self.retired_tokens.add(*hash, now_ms());
        }
        let is_out = |id: &PrincipalId| principals.by_id(*id).is_none_or(Principal::is_disabled);
        let out: Vec<_> = catalog.principals().all().map(Principal::id).filter(is_out).collect();
        self.publish(catalog.with_principals(principals));
        // Before the change is signalled: sessions that end because of it must not seem to end by themselves.
        for principal in &revoked {
            principal.revoked().cancel();
        }
        out.into_iter().for_each(|id| self.signed_in.forget_user(id));
        self.usages.keep(&known);
        for name in gone {
            self.metrics.forget_principal(name.as_str());
        }
        self.changed.send_replace(());
        let gone: Vec<_> = revoked.iter().map(|of| of.id()).filter(|id| !known.contains(id)).collect();
        if !gone.is_empty() {
            self.release_links_of(|owner| matches!(owner, Owner::Principal(id) if gone.contains(&id)));
        }
    }
}
