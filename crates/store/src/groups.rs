//! The table `groups`: tool groups by name.

use serde_json::Value;

use super::changes::ChangedKind;
use super::db::{Tx, on};
use super::{Store, StoreError};
use model::{AuditNote, Group, GroupName};

impl Store {
    /// Loads all groups, ordered by name.
    pub async fn load_groups(&self) -> Result<Vec<Group>, StoreError> {
        self.read_groups().await?.into_iter().collect()
    }

    /// Reads each group, or what is wrong with it.
    pub(super) async fn read_groups(&self) -> Result<Vec<Result<Group, StoreError>>, StoreError> {
        let mut tx = self.read().await?;
        let groups = self.read_groups_of(&mut tx, None).await?;
        tx.commit().await?;
        Ok(groups)
    }

    /// The same within a transaction, or only the group of a name.
    pub(super) async fn read_groups_of(
        &self,
        tx: &mut Tx,
        only: Option<&str>,
    ) -> Result<Vec<Result<Group, StoreError>>, StoreError> {
        const SQL: &str =
            "SELECT name, config FROM groups WHERE CAST($1 AS TEXT) IS NULL OR name = $1 ORDER BY name";
        let rows: Vec<(String, String)> = on!(tx, |db| sqlx::query_as(SQL).bind(only).fetch_all(db).await)?;
        let parse = |(name, config): (String, String)| {
            let damaged = |why: String| StoreError::Corrupt(format!("the group \"{name}\": {why}"));
            match serde_json::from_str(&config) {
                Ok(Value::Object(object)) => Group::parse(object).map_err(|error| damaged(error.to_string())),
                Ok(_) => Err(damaged("its configuration is not an object".into())),
                Err(error) => Err(damaged(error.to_string())),
            }
        };
        Ok(rows.into_iter().map(parse).collect())
    }

    /// Stores a new or changed group.
    pub async fn put_group(&self, group: &Group, now_ms: i64, note: &AuditNote) -> Result<(), StoreError> {
        const SQL: &str = "INSERT INTO groups (name, config, created_at, updated_at) VALUES ($1, $2, $3, $3)
            ON CONFLICT (name) DO UPDATE SET config = excluded.config, updated_at = excluded.updated_at";
        let config = serde_json::to_string(group).expect("a group can always be serialized");
        let mut tx = self.change(note).await?;
        on!(&mut tx, |db| {
            let query = sqlx::query(SQL).bind(group.name.as_str()).bind(config).bind(now_ms);
            query.execute(db).await.map(|_| ())
        })?;
        tx.note(ChangedKind::Group, group.name.as_str()).await?;
        tx.commit().await
    }

    pub async fn delete_group(&self, name: &GroupName, note: &AuditNote) -> Result<(), StoreError> {
        const SQL: &str = "DELETE FROM groups WHERE name = $1";
        let mut tx = self.change(note).await?;
        on!(&mut tx, |db| sqlx::query(SQL).bind(name.as_str()).execute(db).await.map(|_| ()))?;
        tx.note(ChangedKind::Group, name.as_str()).await?;
        tx.commit().await
    }
}
