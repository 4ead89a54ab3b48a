//! Creating, replacing and deleting tool groups. What a group shows is computed in `view`.

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::audit::group_note;
use super::catalog::Catalog;
use super::{Error, Gateway, now_ms};
use model::group::EVERYTHING;
use model::{By, FieldError, Group};

/// A group's configuration before and after it was replaced.
pub struct GroupReplacement {
    pub old: Group,
    pub new: Group,
}

impl Gateway {
    pub async fn create_group(self: &Arc<Self>, input: Map<String, Value>, by: &By) -> Result<Group, Error> {
        let (group, by) = (Group::parse(input)?, by.clone());
        self.to_the_end(async move |gateway: Arc<Self>| {
            let _turn = gateway.turn().await?;
            let catalog = gateway.catalog();
            if catalog.group(group.name.as_str()).is_ok() {
                return Err(Error::conflict(format!("tool group {:?} already exists", group.name.as_str())));
            }
            check_members(&catalog, &group, None)?;
            let note = group_note(&by, "group.create", None, Some(&group));
            gateway.store.put_group(&group, now_ms(), &note).await?;
            gateway.swap(catalog.with_group(group.clone()));
            tracing::info!(group = %group.name, "created a tool group");
            Ok(group)
        })
        .await
    }

    pub async fn replace_group(
        self: &Arc<Self>,
        name: &str,
        input: Map<String, Value>,
        by: &By,
    ) -> Result<GroupReplacement, Error> {
        let name = self.catalog().group(name)?.name.clone();
        let (new, by) = (Group::parse_replacement(name, input)?, by.clone());
        self.to_the_end(async move |gateway: Arc<Self>| {
            let _turn = gateway.turn().await?;
            let catalog = gateway.catalog();
            let old = catalog.group(new.name.as_str())?.clone();
            check_members(&catalog, &new, Some(&old))?;
            let note = group_note(&by, "group.update", Some(&old), Some(&new));
            gateway.store.put_group(&new, now_ms(), &note).await?;
            gateway.swap(catalog.with_group(new.clone()));
            tracing::info!(group = %new.name, "replaced a tool group");
            Ok(GroupReplacement { old, new })
        })
        .await
    }

    pub async fn delete_group(self: &Arc<Self>, name: &str, by: &By) -> Result<(), Error> {
        let (name, by) = (self.catalog().group(name)?.name.clone(), by.clone());
        self.to_the_end(async move |gateway: Arc<Self>| {
            let _turn = gateway.turn().await?;
            let catalog = gateway.catalog();
            let note = group_note(&by, "group.delete", Some(catalog.group(name.as_str())?), None);
            gateway.store.delete_group(&name, &note).await?;
            gateway.swap(catalog.without_group(&name));
            tracing::info!(group = %name, "deleted a tool group");
            Ok(())
        })
        .await
    }
}

/// Checks that new members exist. Members that the group already had may have disappeared.
fn check_members(catalog: &Catalog, group: &Group, before: Option<&Group>) -> Result<(), Error> {
    let check = |field: &str, names: fn(&Group) -> &Vec<String>, exists: &dyn Fn(&str) -> bool| {
        let known: HashSet<_> = before.map(|before| names(before).iter().collect()).unwrap_or_default();
        match names(group).iter().find(|name| !known.contains(name) && !exists(name)) {
            None => Ok(()),
            Some(name) => Err(FieldError::new(field, format!("names {name:?}, which does not exist"))),
        }
    };
    let has_resource =
        |uri: &str| uri == EVERYTHING || catalog.find_resource(uri).is_ok_and(|found| !found.is_empty());
    check("included_tools", |group| &group.included_tools, &|name| catalog.tool(name).is_ok())?;
    check("included_servers", |group| &group.included_servers, &|name| catalog.get(name).is_some())?;
    let has_prompt = |name: &str| name == EVERYTHING || catalog.prompt(name).is_ok();
    check("included_prompts", |group| &group.included_prompts, &has_prompt)?;
    check("included_resources", |group| &group.included_resources, &has_resource)?;
    Ok(())
}
