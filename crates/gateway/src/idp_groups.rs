//! What people may do because of their groups at the identity provider (IdP).

use std::sync::Arc;

use serde_json::{Map, Value};

use super::audit::idp_group_note;
use super::users::check_admin_remains;
use super::{Error, Gateway, now_ms};
use model::{By, IdpGroup, idp_group};

impl Gateway {
    /// All groups that have rules, sorted by name.
    pub fn idp_groups(&self) -> Result<Vec<IdpGroup>, Error> {
        self.require_enterprise()?;
        Ok(self.catalog().principals().idp_groups().cloned().collect())
    }

    /// Creates or replaces the rules of a group.
    pub async fn put_idp_group(
        self: &Arc<Self>,
        name: &str,
        input: Map<String, Value>,
        by: &By,
    ) -> Result<IdpGroup, Error> {
        self.require_enterprise()?;
        let (group, by) = (IdpGroup::parse(name, input)?, by.clone());
        self.to_the_end(async move |gateway: Arc<Self>| {
            let _turn = gateway.turn().await?;
            let catalog = gateway.catalog();
            let after = catalog.principals().with_idp_group(group.clone());
            check_admin_remains(catalog.principals(), &after, || makes_last_admin(&group.name))?;
            let before = catalog.principals().idp_group(&group.name);
            let action = if before.is_some() { "idp_group.update" } else { "idp_group.create" };
            let note = idp_group_note(&by, action, before, Some(&group));
            gateway.store.put_idp_group(&group, now_ms(), &note).await?;
            gateway.swap_principals(&catalog, after);
            tracing::info!(group = group.name, "changed the rules of a group of the identity provider");
            Ok(group)
        })
        .await
    }

    pub async fn delete_idp_group(self: &Arc<Self>, name: &str, by: &By) -> Result<(), Error> {
        self.require_enterprise()?;
        if name == idp_group::EVERYBODY {
            return Err(Error::invalid(
                "the group \"*\", everybody of the identity provider, cannot be deleted; give it an empty allow_list instead",
            ));
        }
        let (name, by) = (name.to_owned(), by.clone());
        self.to_the_end(async move |gateway: Arc<Self>| {
            let _turn = gateway.turn().await?;
            let catalog = gateway.catalog();
            let before = catalog.principals().idp_group(&name);
            let before =
                before.ok_or_else(|| Error::not_found(format!("IdP group {name:?} does not exist")))?;
            let after = catalog.principals().without_idp_group(&name);
            check_admin_remains(catalog.principals(), &after, || makes_last_admin(&name))?;
            let note = idp_group_note(&by, "idp_group.delete", Some(before), None);
            gateway.store.delete_idp_group(&name, &note).await?;
            gateway.swap_principals(&catalog, after);
            tracing::info!(group = name, "deleted the rules of a group of the identity provider");
            Ok(())
        })
        .await
    }
}

fn makes_last_admin(group: &str) -> String {
    format!("all admins are admins because of the IdP group {group:?}")
}
